"""The page "GPT": what each token looks at, and which one is expected next.

With this file one can train a small GPT on the text that is shipped (`TextPage`), or
take one that `minitorch train gpt` made, and read its attention (`attention_of`).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import minitorch.nn.functional as F
from minitorch.autodiff import no_grad
from minitorch.creation import tensor
from minitorch.data import Tokenizer
from minitorch.lab.questions import packed, text
from minitorch.lab.training import Trainer
from minitorch.models import GPT
from minitorch.train.gpt import GPTTrainConfig, load_gpt, train_gpt
from minitorch.train.progress import Reporter

STEPS = 400  # about a minute
MOST_TOKENS, MOST_BARS = 48, 10


@no_grad()
def attention_of(
    model: GPT, ids: list[int]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Weights [layers, heads, T, T] of T tokens, and the next one's probabilities.

    Attention never writes its weights down; here they are computed once more, from what
    each layer was given.
    """
    maps: list[npt.NDArray[np.float32]] = []

    def look(module: Any, args: Any) -> None:
        x, where = args[:2]
        h, kv = module.heads, module.kv_heads
        heads = module.c_attn(x).unflatten(-1, (h + 2 * kv, module.size))
        q, k, _ = heads.transpose(1, 2).split((h, kv, kv), 1)
        if where.rotation is not None:
            q, k = F.rotary(q, *where.rotation), F.rotary(k, *where.rotation)
        k = k.repeat_interleave(h // kv, 1)
        scores = (q @ k.transpose(-2, -1))[0].numpy() / math.sqrt(module.size)
        scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        maps.append(weights / weights.sum(-1, keepdims=True))

    handles = [block.attn.register_forward_pre_hook(look) for block in model.h]
    try:
        scores = model.eval()(tensor([ids]))[0, -1]
    finally:
        for handle in handles:
            handle.remove()
    return np.stack(maps), F.softmax(scores, dim=-1).numpy()


class TextPage(Trainer):
    """What answers for the page; `path`: a run of `minitorch train gpt` to show."""

    def __init__(self, path: str | Path | None = None) -> None:
        super().__init__(self._train, None if path is None else load_gpt(path, "cpu"))
        self.questions = {"train": self.train, "look": self.look}

    def _train(self, folder: Path, reporter: Reporter) -> tuple[GPT, Tokenizer]:
        config = GPTTrainConfig(
            dataset="alice", layers=2, heads=4, width=64, block_size=48, lr=3e-3,
            steps=STEPS, eval_every=100, eval_batches=2, sample=0, out=folder,
            quiet=True,
        )  # fmt: skip
        result = train_gpt(config, reporter=reporter)
        reporter.note(result.summary().partition("; files")[0])
        return result.model, result.tokenizer

    def look(self, question: dict[str, Any]) -> dict[str, Any]:
        """Tokens, attention and the next token's probabilities for a text."""
        model, words = self.ready()
        ids = words.encode(text(question, "text", 2000))
        ids = ids[-min(MOST_TOKENS, model.config.block_size) :]
        if not ids:
            raise ValueError("the text is empty; type at least one character")
        maps, probabilities = attention_of(model, ids)
        best = np.argsort(-probabilities)[:MOST_BARS]
        bars = [(words.decode([int(i)]), float(probabilities[i])) for i in best]
        return {
            "tokens": [words.decode([i]) for i in ids],
            "shape": list(maps.shape),
            "maps": packed((maps * 127).round().astype(np.int8)),
            "next": bars,
        }
