"""a15.3 in minitorch/data/cleaning/duplicates.py: the threshold is too little."""

RIGHT = "if jaccard(sets[i], sets[j]) >= threshold]"
WRONG = "if jaccard(sets[i], sets[j]) > threshold]"
