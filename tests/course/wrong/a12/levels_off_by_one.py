"""a12.3 in minitorch/backend/fusion.py: a fold is where its argument is."""


class Program:
    def fold_levels(self):
        found = []
        for step in self.steps:
            before = [a for a in step.args if a >= 0]
            folds = any(self.steps[a].fold_start is not None for a in before)
            found.append(max([found[a] for a in before], default=0) + folds)
        return found
