"""Training a GPT on a text: `minitorch train gpt`.

    >>> from minitorch.train.gpt import GPTTrainConfig, train_gpt
    >>> train_gpt(GPTTrainConfig(dataset="alice", steps=200)).summary()

train_gpt, load_gpt            the recipe, and what is in its folder afterwards
GPTTrainConfig, GPTResult      what goes in, what comes out
"""

from __future__ import annotations

from minitorch.train.gpt.config import GPTTrainConfig
from minitorch.train.gpt.recipe import GPTResult, load_gpt, train_gpt

__all__ = ["GPTResult", "GPTTrainConfig", "load_gpt", "train_gpt"]
