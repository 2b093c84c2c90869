"""a9.3 in mojo_ops/matmul.mojo: tasks begin at their number, not at their rows."""

RIGHT = """
        var first = task * self.per_task
        for m in range(first, min(first + self.per_task, self.p.M)):
            vectorized_row(self.p, m)
"""
WRONG = """
        var first = task
        for m in range(first, min(first + self.per_task, self.p.M)):
            vectorized_row(self.p, m)
"""
