"""a12.6 in minitorch/compiler/recorder.py: nothing is put off."""

RIGHT = "        return self._noted(Step(fn, args, dtype, per_row), shape)"
WRONG = """        out = self._noted(Step(fn, args, dtype, per_row), shape)
        self.flush()
        return out"""
