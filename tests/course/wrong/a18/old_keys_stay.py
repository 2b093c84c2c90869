"""a18.1 in minitorch/serving/blocks.py: what a block held is still found."""

RIGHT = """\
            if key := self._keys.pop(block, None):
                del self._known[key]
"""
WRONG = """\
            self._keys.get(block)
"""
