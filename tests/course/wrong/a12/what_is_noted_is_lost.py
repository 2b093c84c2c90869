"""a12.6 in minitorch/compiler/recorder.py: the old program is gone."""

RIGHT = """        if args is None:
            self.flush()
            self._begin(device, shape)
            per_row,"""
WRONG = """        if args is None:
            self._begin(device, shape)
            per_row,"""
