"""a18.1 in minitorch/serving/blocks.py: a block that nobody has is given back."""

RIGHT = """\
            self._check(block)
            self.references"""
WRONG = "            self.references"
