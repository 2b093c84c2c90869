"""a12.2 in minitorch/backend/fusion.py: a type that no function has."""

RIGHT = """        return f"{fold}{self.steps[k].fn.__name__}_{computed(kind).name}\""""
WRONG = """        return f"{fold}{self.steps[k].fn.__name__}_{kind.name}\""""
