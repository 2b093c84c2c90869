"""a10.4 in characters.py: the learning rate begins at its most."""


def learning_rate(number, steps, most=0.02, warmup=10):
    share = max(0, number - warmup) / max(1, steps - warmup)
    least = most / 10
    return least + (most - least) * (1 + math.cos(math.pi * share)) / 2
