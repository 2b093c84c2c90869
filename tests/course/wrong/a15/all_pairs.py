"""a15.3 in minitorch/data/cleaning/duplicates.py: each is compared with each."""

RIGHT = (
    "    candidates = candidate_pairs(np.reshape(table, (len(some), hashes)), bands)\n"
)
WRONG = (
    "    known = candidate_pairs(np.reshape(table, (len(some), hashes)), bands)\n"
    "    every = combinations(range(len(some)), 2)\n"
    "    candidates = [p for p in every if jaccard(sets[some[p[0]]], sets[some[p[1]]]) "
    ">= 0 and p in known]\n"
)
