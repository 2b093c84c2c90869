"""Optimizers and learning-rate schedules.

With this package one can train a module as in PyTorch:
`optimizer = optim.SGD(model.parameters(), lr=0.1)`, then `zero_grad()`, `backward()`
and `optimizer.step()`; `optim.lr_scheduler` changes the learning rate along the way.
"""

from typing import TYPE_CHECKING

from minitorch import absent
from minitorch.optim import lr_scheduler
from minitorch.optim.adam import Adam, AdamW
from minitorch.optim.composed import Adadelta, Adagrad, AdamWScheduleFree, RMSprop
from minitorch.optim.language import LAMB, Lion, Muon
from minitorch.optim.lbfgs import LBFGS
from minitorch.optim.optimizer import Optimizer
from minitorch.optim.sgd import SGD

__all__ = [
    "LAMB",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "AdamWScheduleFree",
    "Lion",
    "Muon",
    "Optimizer",
    "RMSprop",
    "lr_scheduler",
]

if not TYPE_CHECKING:  # for which a name that is not there stays an error
    __getattr__ = absent.explain(__name__)
