"""The networks that the recipes train.

With this file one can build a network by name (`build_model`), or read how small ones
that work look: `ConvNet` (13,000 weights, more than 99 % of MNIST), `LeNet` and `Mlp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType

import minitorch.nn.functional as F
from minitorch import nn
from minitorch.tensor import Tensor


class Mlp(nn.Module):
    """Linear layers with ReLU between them, on inputs of any shape.

    x [N, ...] -> scores [N, classes]
    """

    def __init__(self, inputs: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        sizes = [inputs] + [hidden] * layers
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.output = nn.Linear(sizes[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.output(x)


class ConvNet(nn.Module):
    """Two convolutions and one linear layer.

    The pooling comes before the ReLU: the maximum of what is left of numbers after
    ReLU is ReLU of their maximum, and that is a quarter of the work.

    x [N, 1, 28, 28] -> scores [N, 10]
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, kernel_size=5)  # 28 -> 24, pooled 12
        self.conv2 = nn.Conv2d(16, 32, kernel_size=3)  # 12 -> 10, pooled 5
        self.dropout = nn.Dropout(0.25)
        self.output = nn.Linear(32 * 5 * 5, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.output(self.dropout(x.flatten(1)))


class LeNet(nn.Module):
    """LeNet-5 with ReLU and maxima, where the original had tanh and means.

    Source: LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to
    document recognition", 1998.

    x [N, 1, 28, 28] -> scores [N, 10]
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=5, padding=2)  # 28, pooled 14
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)  # 14 -> 10, pooled 5
        self.linear1 = nn.Linear(16 * 5 * 5, 120)
        self.linear2 = nn.Linear(120, 84)
        self.output = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.linear1(x.flatten(1)))
        return self.output(F.relu(self.linear2(x)))


Builder = Callable[[int], nn.Module]

_POINTS: Mapping[str, Builder] = MappingProxyType(
    {
        "mlp": lambda hidden: Mlp(2, hidden, layers=2, classes=2),
        "linear": lambda hidden: Mlp(2, 0, layers=0, classes=2),
    }
)
_DIGITS: Mapping[str, Builder] = MappingProxyType(
    {
        "cnn": lambda hidden: ConvNet(),
        "lenet": lambda hidden: LeNet(),
        "mlp": lambda hidden: Mlp(28 * 28, hidden, layers=2, classes=10),
    }
)
# The networks of each recipe by name, the default first; each is a function of the
# number of hidden units, which only an "mlp" lets one choose.
MODELS: Mapping[str, Mapping[str, Builder]] = MappingProxyType(
    {"xor": _POINTS, "points": _POINTS, "mnist": _DIGITS}
)


def build_model(recipe: str, name: str, hidden: int | None, device: str) -> nn.Module:
    """A network with fresh random weights, on `device`."""
    return MODELS[recipe][name](hidden or 0).to(device)
