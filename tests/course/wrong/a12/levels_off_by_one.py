"""a12.3 in minitorch/backend/fusion.py: a fold is where its argument is."""

RIGHT = (
    "            found.append(max(before, default=0) + (step.fold_start is not None))"
)
WRONG = """            folds = [self.steps[a].fold_start is not None for a in step.args if a >= 0]
            found.append(max(before, default=0) + any(folds))"""
