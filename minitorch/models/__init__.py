"""Models that are made here: a GPT of any size, and how it writes.

    >>> from minitorch.models import GPT
    >>> model = GPT.preset("char")
    >>> model.generate([0], max_new_tokens=20)

GPT, GPTConfig, PRESETS        the model, what it is made of, and known sizes
KVCache                        keys and values of a text that is being written
"""

from __future__ import annotations

from minitorch.models.cache import KVCache
from minitorch.models.config import PRESETS, GPTConfig
from minitorch.models.gpt import GPT

__all__ = ["GPT", "PRESETS", "GPTConfig", "KVCache"]
