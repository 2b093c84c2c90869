"""a10.1 in minitorch/data/text/merging.py: the leftmost first, not the lowest."""


def merge(ids, merges):
    tokens, i = list(ids), 0
    while i + 1 < len(tokens):
        pair = tokens[i], tokens[i + 1]
        if pair in merges:
            tokens[i : i + 2] = [merges[pair][1]]
            i = 0
        else:
            i += 1
    return tokens
