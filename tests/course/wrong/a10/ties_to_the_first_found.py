"""a10.1 in minitorch/data/text/merging.py: of equals, the first found."""


def train_merges(pieces, number):
    words, times = [list(piece) for piece in pieces], list(pieces.values())
    tokens, merges = [bytes([i]) for i in range(BYTES)], []
    while len(tokens) < number:
        counts = Counter()
        for word, n in zip(words, times):
            for pair in pairwise(word):
                counts[pair] += n
        pair, most = max(counts.items(), key=lambda item: item[1], default=(None, 0))
        if most < 2:
            break
        made = tokens[pair[0]] + tokens[pair[1]]
        if made not in tokens:
            tokens.append(made)
        words = [merge_pair(word, pair, tokens.index(made)) for word in words]
        merges.append(pair)
    return tokens, merges
