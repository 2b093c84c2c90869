"""a15.3 in minitorch/data/cleaning/duplicates.py: candidates are not compared."""

RIGHT = "if jaccard(sets[i], sets[j]) >= threshold]"
WRONG = "if jaccard(sets[i], sets[j]) >= 0]"
