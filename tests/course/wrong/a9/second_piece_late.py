"""a9.5 in mojo_ops/elementwise.mojo: pieces after the first begin one element late."""

RIGHT = """
        var start = task * SHARE
        self.call(
"""
WRONG = """
        var start = task * SHARE + min(task, 1)
        self.call(
"""
