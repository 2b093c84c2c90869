"""a15.3 in minitorch/data/cleaning/duplicates.py: each is compared with each."""

RIGHT = (
    "    candidates = candidate_pairs(np.reshape(table, (len(sets), hashes)), bands)\n"
)
WRONG = (
    "    known = candidate_pairs(np.reshape(table, (len(sets), hashes)), bands)\n"
    "    every = combinations(range(len(sets)), 2)\n"
    "    candidates = [p for p in every if jaccard(sets[p[0]], sets[p[1]]) "
    ">= 0 and p in known]\n"
)
