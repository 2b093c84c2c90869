"""Make a network smaller in five ways, and see what each one costs.

With this file one can round a network layer by layer (`round_linears`), and compare
what is in `nn.utils.prune`, `nn.sparse`, `quantization`, `rounding` and `distillation`
on digits: `python smaller.py` prints a table, with MNIST if it is there or can be
fetched, else with drawn digits (`--drawn`: at once with these). Minutes for each seed.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from itertools import pairwise

import numpy as np

try:
    import course  # noqa: F401  (in a workspace: use the files of this folder)
except ImportError:
    pass
from minitorch import Tensor, from_numpy, manual_seed, nn, no_grad, optim
from minitorch.data import load_digits
from minitorch.distillation import distillation_loss
from minitorch.nn import functional as F
from minitorch.nn.utils import prune
from minitorch.quantization import QuantizedLinear, quantize_
from minitorch.rounding import round_to_bits, round_with_feedback

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def held(linear: nn.Linear, q: Tensor, scale: Tensor) -> QuantizedLinear:
    """The layer with whole numbers q [N, K] and scales [N] for its weight."""
    made = QuantizedLinear.from_float(linear)
    made.q, made.scale = q, scale
    return made


@no_grad()
def round_linears(model: nn.Sequential, x: Tensor, bits: int) -> nn.Sequential:
    """The network with its weights rounded by `round_with_feedback`, from x [M, K] on.

    A layer is calibrated with what reaches it in the network that is returned, where
    the layers before it are rounded already: so it makes up for their errors, too. The
    network that is given stays as it is; layers without weights may be in both.
    """
    # BEGIN SOLUTION a17.4
    made = nn.Sequential()
    for layer in model:
        if isinstance(layer, nn.Linear):
            layer = held(layer, *round_with_feedback(layer.weight, x, bits))
        made.append(layer)
        x = layer(x)
    return made
    # END SOLUTION a17.4


# --------------------------------------------------------------------------- the table


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def load(train: bool, count: int, drawn: bool) -> tuple[Tensor, Tensor]:
    """Pixels around 0 [N, 784] and labels [N] of the first `count` digits."""
    digits = load_digits(train=train, source="drawn" if drawn else None)
    images = digits.images[:count].reshape(-1, 784).astype(np.float32)
    labels = digits.labels[:count].astype(np.int64)
    return from_numpy((images / 255 - 0.13) / 0.31), from_numpy(labels)


def plain(scores: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Cross entropy with the labels."""
    return F.cross_entropy(scores, y)


def train(
    model: nn.Module, x: Tensor, y: Tensor, epochs: int, lr: float, loss: Loss = plain
) -> None:
    """Adam on shuffled batches of 128, with a rate that falls to 0."""
    optimizer = optim.Adam(model.parameters(), lr=lr)
    rng, step, steps = np.random.default_rng(0), 0, epochs * -(-len(y) // 128)
    for _ in range(epochs):
        order = rng.permutation(len(y))
        for start in range(0, len(order), 128):
            rows = from_numpy(order[start : start + 128])
            value = loss(model(x[rows]), x[rows], y[rows])
            optimizer.zero_grad()
            value.backward()
            optimizer.param_groups[0]["lr"] = lr * (1 - step / steps)
            optimizer.step()
            step += 1


@no_grad()
def right(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of right answers."""
    return (model(x).argmax(1) == y).float().mean().item()


def linears(model: nn.Module) -> list[nn.Linear]:
    """Its layers with weights."""
    return [part for part in model.modules() if isinstance(part, nn.Linear)]


def nearest_linears(model: nn.Sequential, bits: int) -> nn.Sequential:
    """The network with each number of its weights rounded by itself."""
    parts = [
        held(part, *round_to_bits(part.weight, bits))
        if isinstance(part, nn.Linear)
        else part
        for part in model
    ]
    return nn.Sequential(*parts)


def rows(
    data: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], seed: int,
    hidden: int = 256, small: int = 16, epochs: int = 10,
) -> dict[str, tuple[float, float]]:  # fmt: skip
    """Bits that a weight takes, times the weights, in kilobytes, and the share that is
    right, by what was done."""
    manual_seed(seed)
    dense = mlp(784, hidden, hidden, 10)
    train(dense, *data, epochs, 1e-3)
    weights = sum(layer.weight.numel() for layer in linears(dense))
    found: dict[str, tuple[float, float]] = {}

    def note(name: str, model: nn.Module, bits: float, count: int = weights) -> None:
        found[name] = count * bits / 8000, right(model, *test)

    def trained(model: nn.Module) -> nn.Module:
        train(model, *data, max(epochs // 2, 1), 1e-3)
        return model

    note("dense", dense, 32)
    note("dense, trained on", trained(copy.deepcopy(dense)), 32)
    pruned = copy.deepcopy(dense)
    pairs = [(layer, "weight") for layer in linears(pruned)]
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=0.9)
    note("90 % pruned", pruned, 0.1 * 32 + 1)
    note("90 % pruned, trained on", trained(pruned), 0.1 * 32 + 1)
    halved = copy.deepcopy(dense)
    for layer in linears(halved):
        prune.custom_from_mask(layer, "weight", nn.two_of_four(layer.weight))
    note("two of four", halved, 0.5 * 32 + 1)
    note("two of four, trained on", trained(halved), 0.5 * 32 + 1)
    note("int8", quantize_(copy.deepcopy(dense), "int8"), 8)
    for bits in (4, 3, 2):
        note(f"{bits} bits, nearest", nearest_linears(dense, bits), bits)
        rounded = round_linears(dense, data[0][:1000], bits)
        note(f"{bits} bits, with feedback", rounded, bits)

    def taught(alpha: float) -> Loss:
        def loss(scores: Tensor, x: Tensor, y: Tensor) -> Tensor:
            with no_grad():
                teacher = dense(x)
            return distillation_loss(scores, teacher, y, temperature=4.0, alpha=alpha)

        return loss

    few = data[0][:500], data[1][:500]
    for name, loss, some in (
        ("alone", plain, data),
        ("with a teacher", taught(0.9), data),
        ("500 labels", plain, few),
        ("a teacher, no labels", taught(1.0), data),
    ):
        manual_seed(seed)
        student = mlp(784, small, 10)
        times = 2 * epochs * len(data[1]) // len(some[1])  # as many steps for all
        train(student, *some, times, 3e-3, loss)
        count = sum(layer.weight.numel() for layer in linears(student))
        note(f"{small} hidden, {name}", student, 32, count)
    return found


def main(
    count: int = 12_000, epochs: int = 10, seeds: int = 1, drawn: bool = False
) -> list[dict[str, tuple[float, float]]]:
    """Print means over seeds, and how far these are apart; returns `rows` of each."""
    data, test = load(True, count, drawn), load(False, 10_000, drawn)
    every = [rows(data, test, seed, epochs=epochs) for seed in range(seeds)]
    print(f"| network | kB | right | from | to |\n| --- |{' ---: |' * 4}")
    for name, (kilobytes, _) in every[0].items():
        shares = [found[name][1] for found in every]
        cells = (np.mean(shares), min(shares), max(shares))
        print(
            f"| {name} | {kilobytes:,.0f} | {' | '.join(f'{x:.2%}' for x in cells)} |"
        )
    return every


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=12_000, help="digits to use")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--drawn", action="store_true", help="do not look for MNIST")
    main(**vars(parser.parse_args()))
