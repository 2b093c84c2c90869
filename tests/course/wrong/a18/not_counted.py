"""a18.2 in minitorch/serving/blocks.py: who else uses a block is forgotten."""

RIGHT = """\
            self.references[block] += 1
            found"""
WRONG = """\
            self.references[block] = 1
            found"""
