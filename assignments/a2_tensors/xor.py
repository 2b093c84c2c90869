"""A network of tensors that learns XOR.

With this file one can train `Network` on any device: all points at once are one tensor,
a layer is a product of matrices, and `step` makes the loss a little smaller. Run it:
`python xor.py`.
"""

from __future__ import annotations

import random

try:
    import course  # noqa: F401  (in a workspace: use the files of this folder)
except ImportError:
    pass
from minitorch import Tensor, no_grad, tensor

POINTS = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0))
LABELS = (0.0, 1.0, 1.0, 0.0)


class Network:
    """[N, 2] -> `hidden` units with relu -> the probability of label 1, [N]

    Args:
        hidden: how many units lie between.
        seed: of the first weights, between -1 and 1.
        device: where they are.
    """

    def __init__(self, hidden: int, seed: int = 0, device: str = "cpu") -> None:
        rng = random.Random(seed)

        def row(n: int) -> list[float]:
            return [rng.uniform(-1, 1) for _ in range(n)]

        self.w1 = tensor([row(hidden), row(hidden)], device=device, requires_grad=True)
        self.b1 = tensor(row(hidden), device=device, requires_grad=True)
        self.w2 = tensor(row(hidden), device=device, requires_grad=True)
        self.b2 = tensor(row(1)[0], device=device, requires_grad=True)

    def parameters(self) -> list[Tensor]:
        """All that is learned: w1 [2, hidden], b1 [hidden], w2 [hidden], b2 []."""
        return [self.w1, self.b1, self.w2, self.b2]

    def forward(self, points: Tensor) -> Tensor:
        """points [N, 2] -> the probabilities of label 1, [N]"""
        # BEGIN SOLUTION a2.6
        hidden = (points @ self.w1 + self.b1).relu()
        return (hidden @ self.w2 + self.b2).sigmoid()
        # END SOLUTION a2.6


def mean_loss(network: Network, points: Tensor, labels: Tensor) -> Tensor:
    """points [N, 2], labels [N] -> the mean of -log(probability of the right label)"""
    # BEGIN SOLUTION a2.6
    p = network.forward(points)
    right = labels * p.log() + (1.0 - labels) * (1.0 - p).log()
    return -right.sum() / labels.shape[0]
    # END SOLUTION a2.6


def step(network: Network, points: Tensor, labels: Tensor, lr: float) -> float:
    """One step of gradient descent on all points; returns the loss before it."""
    # BEGIN SOLUTION a2.6
    for parameter in network.parameters():
        parameter.grad = None
    loss = mean_loss(network, points, labels)
    loss.backward()
    with no_grad():
        for parameter in network.parameters():
            if parameter.grad is not None:
                parameter -= lr * parameter.grad
    return loss.item()
    # END SOLUTION a2.6


def train(
    hidden: int = 8,
    steps: int = 400,
    lr: float = 0.5,
    seed: int = 3,
    device: str = "cpu",
) -> Network:
    """Train on the four corners."""
    network = Network(hidden, seed, device)
    points, labels = tensor(POINTS, device=device), tensor(LABELS, device=device)
    for number in range(steps):
        loss = step(network, points, labels, lr)
        if __name__ == "__main__" and number % 50 == 0:
            print(f"step {number:4}  loss {loss:.4f}")
    return network


if __name__ == "__main__":
    print(train().forward(tensor(POINTS)))
