"""The training loop.

With this file one can train a network (`train_step` for each batch of `train_epoch`)
and measure how good it is (`evaluate`). This is all there is to it; progress bars,
tables and checkpoints are in other files (`session.py`), which look on through
`after_step`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import minitorch.nn.functional as F
from minitorch import nn
from minitorch.autodiff import no_grad
from minitorch.tensor import Tensor

Batches = Iterable[tuple[Tensor, Tensor]]
Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
AfterStep = Callable[[Tensor, Tensor, int], None]


def train_step(
    model: nn.Module, optimizer: Any, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Learn from one batch: x [B, ...], y [B] -> loss [], how many it got right []."""
    scores = model(x)  # forward: what does the network say?
    loss = F.cross_entropy(scores, y)  # how wrong is it?

    optimizer.zero_grad()  # forget the gradients of the last step
    loss.backward()  # how does each weight change the loss?
    optimizer.step()  # change each weight a little, downhill

    right = (scores.detach().argmax(1) == y).sum()
    return loss.detach(), right


def train_epoch(
    model: nn.Module,
    batches: Batches,
    optimizer: Any,
    scheduler: Any,
    device: str,
    after_step: AfterStep,
    step: Step | None = None,
) -> None:
    """Go through the training examples once and learn from each batch.

    Args:
        model: x [B, ...] -> scores [B, classes].
        batches: pairs of x [B, ...] and the right classes y [B].
        optimizer: changes the model's parameters.
        scheduler: changes the optimizer's learning rate after each step.
        device: where the model is.
        after_step: called with loss, how many the network got right, and B when a step
            is done; the tensors are only good until the next step.
        step: does what `train_step` does with model and optimizer, in another way: a
            CUDA graph of it, say.
    """
    model.train()
    step = step or partial(train_step, model, optimizer)
    for x, y in batches:
        loss, right = step(x.to(device), y.to(device))
        scheduler.step()
        after_step(loss, right, len(y))


@dataclass(frozen=True)
class Evaluation:
    """How good a network is on N examples.

    Attributes:
        loss: the mean cross-entropy.
        accuracy: the share of examples that it gets right, 0 to 1.
        probabilities: float32 [N, classes].
        labels: the right classes, int64 [N].
    """

    loss: float
    accuracy: float
    probabilities: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]


@no_grad()
def evaluate(model: nn.Module, batches: Batches, device: str) -> Evaluation:
    """Measure a network, without learning. `batches` are as in `train_epoch`."""
    model.eval()
    losses, probabilities, labels = [], [], []
    for x, y in batches:
        scores = model(x.to(device))
        losses.append(F.cross_entropy(scores, y.to(device)).item() * len(y))
        probabilities.append(F.softmax(scores, dim=1).cpu().numpy())
        labels.append(y.cpu().numpy())
    p, right = np.concatenate(probabilities), np.concatenate(labels)
    accuracy = float(np.mean(p.argmax(axis=1) == right))
    return Evaluation(sum(losses) / len(right), accuracy, p, right)
