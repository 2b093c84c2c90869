"""Models that are made here: a GPT of any size, and how it writes.

    >>> from minitorch.models import GPT
    >>> model = GPT.preset("char")
    >>> model.generate([0], max_new_tokens=20)

GPT, GPTConfig, PRESETS        the model, what it is made of, and known sizes
generate, stream, Sampling     what it writes behind a prompt
KVCache                        keys and values of a text that is being written
from_pretrained, load_weights, GPT-2's and Llama's files
save_weights
"""

from __future__ import annotations

from minitorch.models.cache import KVCache
from minitorch.models.config import PRESETS, GPTConfig
from minitorch.models.generation import Sampling, generate, stream
from minitorch.models.gpt import GPT
from minitorch.models.weights import from_pretrained, load_weights, save_weights

__all__ = [
    "GPT",
    "PRESETS",
    "GPTConfig",
    "KVCache",
    "Sampling",
    "from_pretrained",
    "generate",
    "load_weights",
    "save_weights",
    "stream",
]
