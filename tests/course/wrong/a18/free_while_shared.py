"""a18.1 in minitorch/serving/blocks.py: free, though others use it."""

RIGHT = """\
if not self.references[block]:
                self._free"""
WRONG = """\
if self.references[block] < 2:
                self._free"""
