"""a18.2 in minitorch/serving/blocks.py: what is found can still be taken."""

RIGHT = """\
            self._free.pop(block, None)
            self.references[block] += 1"""
WRONG = "            self.references[block] += 1"
