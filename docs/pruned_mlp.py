"""Drop 90 % to 99 % of a network's weights, train what is left, and measure.

Run it: `python docs/pruned_mlp.py` (with MNIST if it is there or can be fetched, else
with drawn digits; `--drawn` does not look for MNIST). It

1. trains a dense network with two hidden layers of 1,024;
2. lets `prune_linears` keep the largest 10 % of each layer's weights, as sparse
   matrices, and trains again: what is left makes up for what is gone;
3. does the same with 3 % and with 1 % of the weights.

After each step it prints what the network gets right, and how long it takes for the
test set. A multiplication in a sparse product costs more than one in a dense product,
which runs near the machine's limit: 90 % less of them save less than 90 % of the time.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np

from minitorch import Tensor, from_numpy, manual_seed, nn, no_grad, optim
from minitorch.data import load_digits
from minitorch.nn import functional as F

SPARSITIES = (0.9, 0.97, 0.99)


def mlp(hidden: int) -> nn.Sequential:
    """A network for digits [N, 784] -> scores [N, 10]."""
    return nn.Sequential(
        nn.Linear(784, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


def load(train: bool, count: int, drawn: bool) -> tuple[Tensor, Tensor]:
    """Pixels around 0 [N, 784] and labels [N] of the first `count` digits."""
    digits = load_digits(train=train, source="drawn" if drawn else None)
    if train and digits.notice:
        print(digits.notice)
    images = digits.images[:count].reshape(-1, 784)
    pixels = (images.astype(np.float32) / 255 - 0.13) / 0.31
    return from_numpy(pixels), from_numpy(digits.labels[:count].astype(np.int64))


def train(
    model: nn.Module, x: Tensor, y: Tensor, epochs: int, lr: float, batch: int = 128
) -> None:
    """Adam on shuffled batches."""
    optimizer = optim.Adam(model.parameters(), lr=lr)
    rng = np.random.default_rng(0)
    for _ in range(epochs):
        order = rng.permutation(len(y))
        for start in range(0, len(order), batch):
            rows = from_numpy(order[start : start + batch])
            loss = F.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@no_grad()
def evaluate(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """The share of right answers, and the time for all of x in milliseconds."""
    right = (model(x).argmax(1) == y).float().mean().item()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        model(x)
        times.append(time.perf_counter() - start)
    return right, 1e3 * median(times)


def report(name: str, model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Print one line of the table; returns the share of right answers."""
    weights = sum(p.numel() for p in model.parameters())
    right, milliseconds = evaluate(model, x, y)
    print(f"{name:<22}{weights:>10,}{right:>10.2%}{milliseconds:>10.2f} ms")
    return right


def main(
    count: int = 12_000,
    epochs: int = 2,
    hidden: int = 1024,
    drawn: bool = False,
) -> dict[str, float]:
    """Train, prune, train; returns the share of right answers by row of the table."""
    manual_seed(0)
    x, y = load(True, count, drawn)
    test = load(False, count, drawn)
    model = mlp(hidden)
    train(model, x, y, epochs, lr=1e-3)
    print(f"{'network':<22}{'weights':>10}{'right':>10}{'test set':>13}")
    results = {"dense": report("dense", model, *test)}
    for amount in SPARSITIES:
        nn.prune_linears(model, amount)
        name = f"{amount:.0%} pruned"
        results[name] = report(name, model, *test)
        train(model, x, y, epochs, lr=2e-3)
        results[f"{name}, trained"] = report("  and trained again", model, *test)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=12_000, help="digits to use")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--drawn", action="store_true", help="do not look for MNIST")
    main(**vars(parser.parse_args()))
