"""a18.2 in minitorch/serving/blocks.py: goes on behind a key that is not known."""

RIGHT = """\
                break
            self._free"""
WRONG = """\
                continue
            self._free"""
