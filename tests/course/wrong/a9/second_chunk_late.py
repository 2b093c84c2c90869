"""a9.5 in mojo_ops/elementwise.mojo: chunks after the first begin one element late."""

RIGHT = """
        var start = task * PER_TASK
        self.call(
"""
WRONG = """
        var start = task * PER_TASK + min(task, 1)
        self.call(
"""
