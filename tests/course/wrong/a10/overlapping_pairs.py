"""a10.1 in minitorch/data/text/merging.py: aaa has two places to merge."""


def merge_pair(ids, pair, new):
    merged = []
    for i, token in enumerate(ids):
        if i + 1 < len(ids) and (token, ids[i + 1]) == pair:
            merged.append(new)
        elif not (i and (ids[i - 1], token) == pair):
            merged.append(token)
    return merged
