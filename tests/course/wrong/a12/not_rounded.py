"""a12.2 in minitorch/backend/fusion.py: results keep the digits they happen to have."""

RIGHT = """        return f"y{k} = {self.step_kind(k)}({self.step_name(k)}({args}))\""""
WRONG = """        return f"y{k} = {self.step_name(k)}({args})\""""
