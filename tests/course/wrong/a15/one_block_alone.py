"""a15.2 in minitorch/data/cleaning/duplicates.py: the last block counts alone."""

RIGHT = "least = np.minimum(least, (some"
WRONG = "least = np.minimum(np.uint64(PRIME), (some"
