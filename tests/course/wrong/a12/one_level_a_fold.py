"""a12.3 in minitorch/backend/fusion.py: folds are counted, whether or not one waits for
another."""


class Program:
    def fold_levels(self):
        found, level = [], 0
        for step in self.steps:
            level += step.fold_start is not None
            found.append(level)
        return found
