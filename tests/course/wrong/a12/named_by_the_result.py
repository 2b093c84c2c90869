"""a12.2 in minitorch/backend/fusion.py: a comparison of bools."""

RIGHT = """        return f"{fold}{self.steps[k].fn.__name__}_{computed(kind).name}\""""
WRONG = """        return f"{fold}{self.steps[k].fn.__name__}_{self.step_kind(k)}\""""
