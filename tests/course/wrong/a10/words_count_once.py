"""a10.1 in minitorch/data/text/merging.py: a word that is there often counts once."""


def train_merges(pieces, number):
    words = [list(piece) for piece in pieces]
    tokens, merges = [bytes([i]) for i in range(BYTES)], []
    while len(tokens) < number:
        counts = Counter(pair for word in words for pair in pairwise(word))
        most = max(counts.values(), default=0)
        if most < 2:
            break
        pair = min(pair for pair, count in counts.items() if count == most)
        made = tokens[pair[0]] + tokens[pair[1]]
        if made not in tokens:
            tokens.append(made)
        words = [merge_pair(word, pair, tokens.index(made)) for word in words]
        merges.append(pair)
    return tokens, merges
