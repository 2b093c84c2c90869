"""Training runs: recipes that go from data to a trained network and its pictures.

    >>> from minitorch.train import TrainConfig, train_mnist
    >>> train_mnist(TrainConfig(epochs=1)).test_accuracy

train_xor, train_points, train_mnist   the recipes; each takes a TrainConfig
TrainConfig, Result                    what goes in, what comes out
train_gpt                              the same for text: `minitorch/train/gpt`
train_step, train_epoch, evaluate      the loop itself, for one's own programs
save_checkpoint, load_checkpoint       everything a run remembers, in one file
"""

from __future__ import annotations

from minitorch.train.checkpoint import (
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
)
from minitorch.train.config import ConfigError, TrainConfig
from minitorch.train.gpt import GPTResult, GPTTrainConfig, load_gpt, train_gpt
from minitorch.train.loop import Evaluation, evaluate, train_epoch, train_step
from minitorch.train.models import ConvNet, LeNet, Mlp
from minitorch.train.recipes import (
    Result,
    train,
    train_mnist,
    train_points,
    train_xor,
)
from minitorch.train.running import DeviceFailed, Diverged, Interrupted
from minitorch.train.session import Epoch

__all__ = [
    "CheckpointError",
    "ConfigError",
    "ConvNet",
    "DeviceFailed",
    "Diverged",
    "Epoch",
    "Evaluation",
    "GPTResult",
    "GPTTrainConfig",
    "Interrupted",
    "LeNet",
    "Mlp",
    "Result",
    "TrainConfig",
    "evaluate",
    "load_checkpoint",
    "load_gpt",
    "save_checkpoint",
    "train",
    "train_epoch",
    "train_gpt",
    "train_mnist",
    "train_points",
    "train_step",
    "train_xor",
]
