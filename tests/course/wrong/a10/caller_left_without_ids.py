"""a10.1 in minitorch/data/text/merging.py: the caller's list is used up."""


def merge_pair(ids, pair, new):
    rest, merged = ids, []
    rest.reverse()
    while rest:
        first = rest.pop()
        if rest and (first, rest[-1]) == pair:
            rest.pop()
            first = new
        merged.append(first)
    return merged
