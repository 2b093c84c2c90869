"""A small convolutional network that learns to read digits.

With this file one can train `Network` on any device: `step` makes the loss of a batch
smaller, `accuracy` counts how many digits of a test set are read right. Run it:
`python mnist.py` or `python mnist.py cuda`. It uses MNIST where that can be had, and
drawn digits where it cannot.
"""

from __future__ import annotations

import sys

import numpy as np

try:
    import course  # noqa: F401  (in a workspace: use the files of this folder)
except ImportError:
    pass
import minitorch
from minitorch import Tensor, nn, no_grad, optim, tensor
from minitorch.nn import functional as F


class Network(nn.Module):
    """Two convolutions, each with ReLU and pooling, and one linear layer.

    images [N, 1, 28, 28] -> scores [N, 10]

    Args:
        p: how many of the 400 numbers in front of the linear layer are dropped.
    """

    def __init__(self, p: float = 0.25, device: str = "cpu") -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, kernel_size=5, device=device)
        self.conv2 = nn.Conv2d(8, 16, kernel_size=3, device=device)
        self.dropout = nn.Dropout(p)
        self.output = nn.Linear(16 * 5 * 5, 10, device=device)

    def forward(self, images: Tensor) -> Tensor:
        """images [N, 1, 28, 28] -> scores [N, 10]"""
        # BEGIN SOLUTION a6.6
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)  # [N, 8, 12, 12]
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)  # [N, 16, 5, 5]
        return self.output(self.dropout(x.flatten(1)))
        # END SOLUTION a6.6


def step(
    network: Network, optimizer: optim.Optimizer, images: Tensor, labels: Tensor
) -> float:
    """One step of training, with dropout; returns the loss before it.

    images [N, 1, 28, 28], labels int64 [N]
    """
    # BEGIN SOLUTION a6.6
    network.train()
    optimizer.zero_grad()
    loss = F.cross_entropy(network(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()
    # END SOLUTION a6.6


def predict(network: Network, images: Tensor) -> Tensor:
    """The digit with the largest score, without dropout: int64 [N].

    The network is in training mode afterwards if it was before.
    """
    # BEGIN SOLUTION a6.6
    before = network.training
    network.eval()
    with no_grad():
        scores = network(images)
    network.train(before)
    return scores.argmax(1)
    # END SOLUTION a6.6


def accuracy(network: Network, images: Tensor, labels: Tensor) -> float:
    """The share of the images that are read right."""
    right = predict(network, images) == labels
    return right.sum().item() / len(labels)


def train(
    images: Tensor,
    labels: Tensor,
    steps: int = 40,
    batch: int = 50,
    lr: float = 0.01,
    seed: int = 0,
) -> Network:
    """Train on batch after batch of images [N, 1, 28, 28], from the front again at the
    end."""
    minitorch.manual_seed(seed)
    network = Network(device=images.device)
    optimizer = optim.Adam(network.parameters(), lr=lr)
    for number in range(steps):
        first = number * batch % len(labels)
        rows = slice(first, first + batch)
        loss = step(network, optimizer, images[rows], labels[rows])
        if __name__ == "__main__" and number % 20 == 0:
            print(f"step {number:4}  loss {loss:.4f}")
    return network


def as_tensors(
    images: np.ndarray, labels: np.ndarray, device: str
) -> tuple[Tensor, Tensor]:
    """Images uint8 [N, 28, 28] as floats [N, 1, 28, 28] from 0 to 1, labels int64."""
    pixels = images.reshape(-1, 1, 28, 28).astype("float32") / 255
    return tensor(pixels, device=device), tensor(labels.astype("int64"), device=device)


def main(device: str = "cpu") -> None:
    """Train for one pass over the digits that this machine has."""
    from minitorch.data import load_digits

    digits = load_digits(train=True)
    test = load_digits(train=False, source=digits.source)
    images, labels = as_tensors(digits.images, digits.labels, device)
    network = train(images, labels, steps=len(labels) // 50, lr=0.002)
    share = accuracy(network, *as_tensors(test.images, test.labels, device))
    print(f"{digits.source}: {share:.2%} of {len(test)} digits are right")


if __name__ == "__main__":
    main(*sys.argv[1:])
