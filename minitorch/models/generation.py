"""How a model writes: token after token, each drawn from what it expects.

With this file one can go on with texts (`generate`), also while one looks on
(`stream`), and choose how daring that is (`Sampling`). The first step reads the prompts
and keeps their keys and values (`KVCache`); each later one has one token of each text
to look at. On the device "cuda" that is one CUDA graph.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from minitorch.arguments import int_sequence
from minitorch.autodiff import no_grad
from minitorch.creation import rand, tensor
from minitorch.cuda_graphs import make_graphed_step
from minitorch.functions.movement import stack
from minitorch.functions.random import race
from minitorch.models.ahead import Ahead
from minitorch.models.cache import KVCache
from minitorch.random import Generator
from minitorch.tensor import Tensor
from minitorch.warn import warn

if TYPE_CHECKING:
    from minitorch.models.gpt import GPT

Generators = Generator | Sequence[Generator] | None


@dataclass(frozen=True)
class Sampling:
    """How the next token follows from the scores of all of them.

    Attributes:
        temperature: scores are divided by it; 0: take the best, draw nothing.
        top_k: draw among the k best alone (and what is as good as the last of them).
        top_p: draw among the fewest that have this share of the probability.

    Source of top_p: Holtzman et al., "The curious case of neural text degeneration",
    2020.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        t, k, p = self.temperature, self.top_k, self.top_p
        if not (isinstance(t, Real) and 0 <= t <= sys.float_info.max):
            raise ValueError(f"generate: temperature is {t!r:.60}; expected 0 or more")
        if k is not None and (type(k) is not int or k < 1):
            raise ValueError(f"generate: top_k is {k!r}; expected an int, 1 or more")
        if p is not None and not (isinstance(p, Real) and 0 < p <= 1):
            raise ValueError(f"generate: top_p is {p!r}; expected above 0, at most 1")

    @property
    def greedy(self) -> bool:
        """Whether nothing is drawn: scores over less than 1e-30 could be infinite, and
        in float32 less than 1e-45 of the probability is no share."""
        least = min(self.temperature, 1 if self.top_p is None else self.top_p)
        return least < 1e-30 or self.top_k == 1

    def probabilities(self, scores: Tensor) -> Tensor:
        """What each token is drawn with: scores [B, vocab] -> [B, vocab]."""
        # BEGIN SOLUTION a10.5
        scores = scores.float()
        if self.temperature != 1:
            scores = scores / self.temperature
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            best = scores.topk(self.top_k, -1).values
            scores = scores.masked_fill(scores < best[:, -1:], -math.inf)
        if self.top_p is not None and self.top_p < 1:
            ranked = scores.sort(-1, descending=True).values
            shares = ranked.softmax(-1)
            outside = shares.cumsum(-1) - shares >= self.top_p  # without its own share
            least = ranked.masked_fill(outside, math.inf).amin(-1, keepdim=True)
            scores = scores.masked_fill(scores < least, -math.inf)
        return scores.softmax(-1)
        # END SOLUTION a10.5

    def choose(self, scores: Tensor, uniform: Tensor | None) -> Tensor:
        """The next tokens, int64 [B]: scores [B, vocab], and as many numbers in [0, 1).

        Nothing here waits for numbers, so that it can be a part of a CUDA graph.
        """
        # BEGIN SOLUTION a10.5
        if uniform is None:
            return scores.argmax(-1)
        return race(self.probabilities(scores), uniform).argmax(-1)
        # END SOLUTION a10.5


def generate(
    model: GPT, prompt: Any, max_new_tokens: int, **options: Any
) -> list[int] | list[list[int]]:
    """What the model writes behind a prompt: a list of tokens, or one for each prompt.

    Args:
        prompt: token ids, a list or tensor [T]; or prompts of any lengths, a list of
            such lists, or a tensor [B, T]. Each is gone on with as if it were alone.
        options: see `stream`.
    """
    rows, single = rows_of(model, prompt)
    out: list[list[int]] = [[] for _ in rows]
    for tokens in _stream(model, rows, max_new_tokens, **options):
        for row, token in zip(out, tokens):
            if token is not None:
                row.append(token)
    return out[0] if single else out


def stream(
    model: GPT, prompt: Any, max_new_tokens: int, **options: Any
) -> Iterator[Any]:
    """The tokens of `generate` as they come: an int, or a list of one for each prompt.

    In such a list None stands for a text that has ended.

    Args:
        prompt: as `generate`'s.
        temperature, top_k, top_p: see `Sampling`; 1, None and None by default.
        stop: a token, or several, that end a text; they are not returned.
        generator: of the random numbers; a list has one for each prompt.
        use_cache: keep keys and values. Without, all is computed again for each token;
            the tokens are the same.

    A text that grows longer than the model's block_size is cut at its left, and then
    computed anew for each token: its tokens have other positions each time.

    A GPU is up to two tokens ahead if nothing is drawn: when the model is changed in
    between, these are still the old one's.

    Errors: ValueError for prompts that are empty or no tokens, and for options that
    make no sense.
    """
    rows, single = rows_of(model, prompt)
    steps = _stream(model, rows, max_new_tokens, **options)
    return (tokens[0] for tokens in steps) if single else steps


def _stream(
    model: GPT,
    rows: list[list[int]],
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | Collection[int] | None = None,
    generator: Generators = None,
    use_cache: bool = True,
) -> Iterator[list[Any]]:
    """Check the options; the iterator does the work."""
    if type(max_new_tokens) is not int or max_new_tokens < 0:
        raise ValueError(
            f"generate: max_new_tokens is {max_new_tokens!r}; expected an int, 0 or "
            f"more"
        )
    each = generator if isinstance(generator, Sequence) else [generator]
    if not all(one is None or isinstance(one, Generator) for one in each):
        raise ValueError(
            f"generate: generator is {generator!r}; expected a minitorch.Generator, or "
            f"a list of one for each prompt"
        )
    if isinstance(generator, Sequence) and len(generator) != len(rows):
        raise ValueError(
            f"generate: {len(generator)} generators for {len(rows)} prompts; give one, "
            f"or one for each"
        )
    some = tuple(stop) if isinstance(stop, Collection) else (stop,)
    ends = set() if stop is None else set(int_sequence("generate: stop", some))
    sampling = Sampling(temperature, top_k, top_p)
    writer = _Writer(model, rows, max_new_tokens, sampling, generator, use_cache)
    return _until(writer, max_new_tokens, ends)


def _until(writer: _Writer, count: int, ends: Collection[int]) -> Iterator[list[Any]]:
    """The writer's tokens until all texts have ended; the model is as it was then."""
    training = writer.model.training
    ended = [False] * len(writer.ids)
    try:
        for _ in range(count):
            tokens = writer.step()
            ended = [e or token in ends for e, token in zip(ended, tokens)]
            if all(ended):
                return
            yield [None if e else token for e, token in zip(ended, tokens)]
    finally:
        if writer.ahead is not None:
            writer.ahead.close()
        writer.model.train(training)
        # They know the writer, who has the cache: it would wait for the collector.
        del writer.decode, writer.ahead


class _Writer:
    """A batch of texts, and the model that goes on with them.

    Attributes:
        ids: int64 [B, T], all tokens so far; shorter prompts are filled at the left.
        padding: int64 [B], how many at the left of each row are no tokens.
        cache: of keys and values; None: each step computes all of it.
        last: int64 [B], the newest tokens, where the model is.
        decode: chooses the next ones from these, [B, 1], and the cache.
        ahead: starts steps that draw nothing before the host knows what they read.
    """

    def __init__(
        self,
        model: GPT,
        rows: list[list[int]],
        count: int,
        sampling: Sampling,
        generator: Generators,
        use_cache: bool,
    ) -> None:
        self.model, self.sampling, self.generator = model, sampling, generator
        longest, most = max(map(len, rows)), model.config.block_size
        self.ids = np.array([[0] * (longest - len(row)) + row for row in rows])
        self.padding = np.array([longest - len(row) for row in rows])
        self.cache: KVCache | None = None
        self.last: Tensor
        if use_cache and longest < most and count > 1:
            most = min(longest + count - 1, most)  # the last token is not looked at
            self.cache = KVCache(
                model.config, len(rows), most, self._padding(self.padding),
                model.device, model.wte.weight.dtype,
            )  # fmt: skip
        self.decode: Callable[..., Tensor] = self._choose
        self.ahead: Ahead | None = None
        if model.device.startswith("cuda") and self.cache is not None:
            if sampling.greedy:
                self.ahead = Ahead(self._choose, self.cache, len(rows))
                self.decode = self.ahead.step
            else:
                self.decode = make_graphed_step(self._choose, warn)

    def step(self) -> list[int]:
        """One token more for each text."""
        length = self.ids.shape[1]
        if self.ahead is not None and self.ahead.ready(length):
            tokens = self.ahead.tokens(length)
        else:
            self.last = self._new()
            tokens = self.last.tolist()
        self.ids = np.concatenate([self.ids, np.array(tokens)[:, None]], 1)
        return tokens

    def _new(self) -> Tensor:
        """The tokens behind those in `ids`."""
        uniform = () if self.sampling.greedy else (self._uniform(),)
        if self.model.training:
            self.model.eval()
        with no_grad():
            cache, length = self.cache, self.ids.shape[1]
            if cache is None or length > cache.max_length:
                return self._again(*uniform)
            if cache.fresh:
                return self._choose(self._tensor(self.ids), *uniform)
            return self.decode(self.last.unsqueeze(1), *uniform)

    def _choose(self, ids: Tensor, uniform: Tensor | None = None) -> Tensor:
        """Read ids [B, T] into the cache; the next tokens [B]."""
        # BEGIN SOLUTION a10.6
        last = self.model.features(ids, self.cache)[:, -1]
        return self.sampling.choose(self.model.lm_head(last), uniform)
        # END SOLUTION a10.6

    def _again(self, uniform: Tensor | None = None) -> Tensor:
        """The next tokens, from all that came before, as far as the model can see."""
        # BEGIN SOLUTION a10.6
        cut = max(0, self.ids.shape[1] - self.model.config.block_size)
        padding = self._padding(np.maximum(self.padding - cut, 0))
        ids = self._tensor(self.ids[:, cut:])
        last = self.model.features(ids, padding=padding)[:, -1]
        return self.sampling.choose(self.model.lm_head(last), uniform)
        # END SOLUTION a10.6

    def _tensor(self, array: np.ndarray) -> Tensor:
        return tensor(array, device=self.model.device)

    def _padding(self, padding: np.ndarray) -> Tensor | None:
        return self._tensor(padding) if padding.any() else None

    def _uniform(self) -> Tensor:
        """A number for each text and token."""
        size, device = self.model.config.vocab_size, self.model.device
        if isinstance(self.generator, Sequence):
            each = [rand(size, device=device, generator=g) for g in self.generator]
            return stack(each)
        return rand(len(self.ids), size, device=device, generator=self.generator)


def rows_of(model: GPT, prompt: Any) -> tuple[list[list[int]], bool]:
    """The prompts as lists, and whether it was a single one."""
    given = _listed(prompt)
    single = not given or not isinstance(given[0], (list, tuple, Tensor))
    rows = [given] if single else given
    rows = [_listed(row) for row in rows]
    size = model.config.vocab_size
    for row in rows:
        if not row:
            raise ValueError(
                "generate: a prompt is empty; give at least one token to begin with"
            )
        for token in row:
            whole = isinstance(token, (int, np.integer)) and type(token) is not bool
            if not whole or not 0 <= token < size:
                raise ValueError(
                    f"generate: {token!r} in a prompt is no token; expected ints from "
                    f"0 to {size - 1}"
                )
    return rows, single


def _listed(prompt: Any) -> list[Any]:
    given = prompt.tolist() if isinstance(prompt, Tensor) else prompt
    if not isinstance(given, Iterable):
        raise ValueError(
            f"generate: a prompt is {given!r}; expected token ids, a list or tensor [T]"
        )
    return list(given)
