"""A network of Scalars that learns XOR.

With this file one can see all of deep learning in a hundred lines: `Network` computes a
probability from two numbers, `mean_loss` says how wrong it is, and `step` makes it a
little less wrong. Run it: `python xor.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

try:
    import course  # noqa: F401  (in a workspace: use the files of this folder)
except ImportError:
    pass
from minitorch.scalar import Scalar

Point = Sequence[float]

POINTS: tuple[Point, ...] = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0))
LABELS = (0, 1, 1, 0)


class Linear:
    """outputs[j] = bias[j] + sum over i of weights[i][j] * xs[i]

    Args:
        inputs, outputs: how many numbers come in and go out.
        rng: where the first weights come from, between -1 and 1.
    """

    def __init__(self, inputs: int, outputs: int, rng: random.Random) -> None:
        self.weights = [
            [Scalar(rng.uniform(-1, 1)) for _ in range(outputs)] for _ in range(inputs)
        ]
        self.bias = [Scalar(rng.uniform(-1, 1)) for _ in range(outputs)]

    def parameters(self) -> list[Scalar]:
        """The weights, row by row, and the bias."""
        return [w for row in self.weights for w in row] + self.bias

    def forward(self, xs: Sequence[Scalar | float]) -> list[Scalar]:
        """xs [inputs] -> [outputs]"""
        # BEGIN SOLUTION a1.5
        out = []
        for j, total in enumerate(self.bias):
            for i, x in enumerate(xs):
                total = total + self.weights[i][j] * x
            out.append(total)
        return out
        # END SOLUTION a1.5


class Network:
    """Two numbers -> `hidden` units with relu -> the probability of label 1."""

    def __init__(self, hidden: int, seed: int = 0) -> None:
        rng = random.Random(seed)
        self.first = Linear(2, hidden, rng)
        self.second = Linear(hidden, 1, rng)

    def parameters(self) -> list[Scalar]:
        """All that is learned."""
        return self.first.parameters() + self.second.parameters()

    def forward(self, point: Point) -> Scalar:
        """The probability that the label of a point is 1."""
        # BEGIN SOLUTION a1.5
        hidden = [unit.relu() for unit in self.first.forward(point)]
        return self.second.forward(hidden)[0].sigmoid()
        # END SOLUTION a1.5


def mean_loss(
    network: Network, points: Sequence[Point], labels: Sequence[int]
) -> Scalar:
    """The mean of -log(probability of the right label)."""
    # BEGIN SOLUTION a1.5
    total = Scalar(0.0, requires_grad=False)
    for point, label in zip(points, labels):
        p = network.forward(point)
        total = total - (p.log() if label else (1.0 - p).log())
    return total / len(points)
    # END SOLUTION a1.5


def step(
    network: Network, points: Sequence[Point], labels: Sequence[int], lr: float
) -> float:
    """One step of gradient descent on all points; returns the loss before it."""
    # BEGIN SOLUTION a1.5
    loss = mean_loss(network, points, labels)
    for parameter in network.parameters():
        parameter.grad = None
    loss.backward()
    for parameter in network.parameters():
        if parameter.grad is not None:
            parameter.data -= lr * parameter.grad
    return loss.data
    # END SOLUTION a1.5


def train(hidden: int = 8, steps: int = 400, lr: float = 0.5, seed: int = 3) -> Network:
    """Train on the four corners."""
    network = Network(hidden, seed)
    for number in range(steps):
        loss = step(network, POINTS, LABELS, lr)
        if __name__ == "__main__" and number % 50 == 0:
            print(f"step {number:4}  loss {loss:.4f}")
    return network


if __name__ == "__main__":
    trained = train()
    for corner in POINTS:
        print(corner, f"{trained.forward(corner).data:.3f}")
