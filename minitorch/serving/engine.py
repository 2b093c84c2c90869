"""Texts that begin and end at different times, written by one model together.

With this file one can hand prompts to an `Engine` at any time (`add`), and let it make
a token of each running text with every `step`:

    engine = Engine(model, blocks=256, max_batch=16)
    a = engine.add([1, 2, 3], 20)
    for id, token, finished in engine.step(): ...
    engine.run()                            # the rest: {id: tokens}

Who runs is decided anew for each step (Yu et al., "Orca", 2022): a text that ends makes
room for one that waits, and nobody waits for the longest of a batch. First come, first
served. A step reads at most `max_tokens_per_step` tokens: one of each text that is
being written, and what is left of the number from prompts, in pieces if they are longer
(Agrawal et al., "Sarathi-Serve", 2024), so that a long prompt holds nobody up. Where no
block is free, the text that came last gives all of its own back, and later reads again
what it has written (Kwon et al., "PagedAttention", 2023).

What a text becomes does not depend on who else is there: its random numbers are its
own. Sums of floating-point numbers may differ in their last bits with the number of
rows that are multiplied together, here as in `generate`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minitorch.arguments import int_sequence
from minitorch.autodiff import no_grad
from minitorch.creation import rand, tensor
from minitorch.cuda_graphs import GraphedStep, make_graphed_step
from minitorch.dtypes import float64
from minitorch.functions.movement import stack
from minitorch.models.generation import Sampling, rows_of
from minitorch.random import Generator
from minitorch.serving.blocks import BlockPool, extend_keys
from minitorch.serving.cache import PagedCache, Part
from minitorch.warn import warn

if TYPE_CHECKING:
    from minitorch.models.gpt import GPT
    from minitorch.tensor import Tensor


MOST_BYTES = 1 << 32  # of blocks, if nobody says how many: some models look back far


class Event(NamedTuple):
    """What a step did for a text.

    Attributes:
        id: what `add` returned.
        token: the next one; None where the text ended with a stop token.
        finished: None: it goes on; "stop"; "length": it has as many tokens as were
            wanted, or as the model looks back at.
    """

    id: int
    token: int | None
    finished: str | None


@dataclass(eq=False)
class Text:
    """A text that is being written.

    Attributes:
        tokens: the prompt, and what was written.
        limit: how many tokens it ends with.
        read: how many of them have their keys and values in `blocks`.
        keys: of its full blocks, as in `BlockPool`.
    """

    id: int
    tokens: list[int]
    limit: int
    sampling: Sampling
    stop: Collection[int]
    generator: Generator | None
    read: int = 0
    blocks: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)

    @property
    def left(self) -> int:
        """How many tokens are to be read before the next one can be chosen."""
        return len(self.tokens) - self.read


class Engine:
    """A model that writes many texts, and the memory for them.

    Args:
        model: a GPT; each step leaves training mode. A new engine is for new weights:
            this one finds what was computed with the old ones.
        blocks: of keys and values; None: enough for `max_batch` texts as long as the
            model looks back, but no more than `MOST_BYTES`.
        block_size: tokens in a block.
        max_batch: how many texts run at once.
        max_tokens_per_step: how many tokens a step reads at most.

    Attributes:
        pool: who has which block.
        running, waiting: texts, in the order in which they came.

    Errors: ValueError for numbers that make no sense.
    """

    def __init__(
        self,
        model: GPT,
        blocks: int | None = None,
        block_size: int = 16,
        max_batch: int = 16,
        max_tokens_per_step: int = 256,
    ) -> None:
        if max_batch < 1 or max_tokens_per_step < max_batch:
            raise ValueError(
                f"Engine: max_batch is {max_batch} and max_tokens_per_step "
                f"{max_tokens_per_step}; expected at least 1, and a token of each text"
            )
        if blocks is None:
            c, size = model.config, max(block_size, 1)
            numbers = c.n_layer * size * 2 * c.kv_heads * c.head_size
            most = MOST_BYTES // (numbers * model.wte.weight.dtype.itemsize)
            blocks = max(min(max_batch * -(-c.block_size // size), most), 1)
        self.pool = BlockPool(blocks, block_size)
        self.model = model
        self.cache = PagedCache(
            model.config, blocks, block_size, model.device, model.wte.weight.dtype
        )
        self.max_batch, self.max_tokens = max_batch, max_tokens_per_step
        # Of steps, by the number of rows; only where there is a GPU, and a kernel that
        # reads keys where they lie.
        fits = model.wte.weight.dtype is not float64 and model.config.head_size <= 256
        on_gpu = model.device.startswith("cuda") and fits
        self._graphs: dict[int, GraphedStep] | None = {} if on_gpu else None
        self.running: list[Text] = []
        self.waiting: deque[Text] = deque()
        self._added = self._steps = self._written = self._preempted = 0
        self._asked = self._hit = 0
        self._seconds = 0.0

    def add(
        self,
        prompt: Any,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        stop: int | Collection[int] | None = None,
        seed: int | None = None,
    ) -> int:
        """Let a text wait for its turn; the number that its tokens come with.

        Args:
            prompt: token ids, a list or tensor [T].
            temperature, top_k, top_p, stop: as in `generation.stream`.
            seed: of its random numbers; None: one that nobody knows.

        Errors: ValueError for a prompt that is empty or no tokens, for options that
        make no sense, and for a text that could never get all blocks it needs.
        """
        (tokens, *_), single = rows_of(self.model, prompt)
        most = self.model.config.block_size
        if not single or len(tokens) >= most:
            what = f"has {len(tokens)} tokens" if single else "is a list of them"
            raise ValueError(
                f"Engine.add: the prompt {what}; expected one, of less than the "
                f"model's block_size, {most}"
            )
        if type(max_new_tokens) is not int or max_new_tokens < 1:
            raise ValueError(
                f"Engine.add: max_new_tokens is {max_new_tokens!r}; expected an int, "
                f"1 or more"
            )
        limit = min(len(tokens) + max_new_tokens, most)
        need = self.pool.blocks_for(limit - 1)  # the last token is not read
        if need > self.pool.size:
            raise ValueError(
                f"Engine.add: {len(tokens)} tokens and {limit - len(tokens)} more need "
                f"{need} blocks; the engine has {self.pool.size}"
            )
        sampling = Sampling(temperature, top_k, top_p)
        some = tuple(stop) if isinstance(stop, Collection) else (stop,)
        ends = set() if stop is None else set(int_sequence("Engine.add: stop", some))
        drawn = None if sampling.greedy else Generator(seed)
        sampling = Sampling(0.0) if sampling.greedy else sampling
        self._added += 1
        text = Text(self._added, tokens, limit, sampling, ends, drawn)
        self.waiting.append(text)
        return text.id

    def warm_up(self) -> None:
        """Make the CUDA graphs that the first texts would wait for, with their kernels;
        on a CPU, compile what a token takes."""
        self.model.eval()
        rows = 1
        with no_grad():
            while self._graphs is not None and rows < 2 * self.max_tokens:
                for _ in range(2):  # seen, and captured
                    self._scores([0] * rows, [self.cache.nobody] * rows, [0])
                rows *= 2
            self._scores([0], [self.cache.nobody], [0])

    def cancel(self, id: int) -> bool:
        """Forget a text; False where there is none of this number, or no longer."""
        for texts in (self.running, self.waiting):
            for text in texts:
                if text.id == id:
                    texts.remove(text)
                    self._give_back(text)
                    return True
        return False

    @property
    def busy(self) -> bool:
        """Whether a text runs or waits."""
        return bool(self.running or self.waiting)

    def step(self) -> list[Event]:
        """Read some tokens; what was written then."""
        start = time.perf_counter()
        if self.model.training:
            self.model.eval()
        chunks = self._schedule()
        events = self._written_by(chunks) if chunks else []
        self._steps += bool(chunks)
        self._seconds += time.perf_counter() - start
        return events

    def stream(self) -> Iterator[Event]:
        """What all steps do, until no text is left; more may be added in between."""
        while self.busy:
            yield from self.step()

    def run(self) -> dict[int, list[int]]:
        """The tokens of all texts that are there, by their ids."""
        out: dict[int, list[int]] = {}
        for id, token, _ in self.stream():
            out.setdefault(id, []).extend([] if token is None else [token])
        return dict(sorted(out.items()))

    def stats(self) -> dict[str, float]:
        """Numbers to watch: who is here now, and sums since the engine was made."""
        return {
            "running": len(self.running),
            "waiting": len(self.waiting),
            "blocks": self.pool.size,
            "blocks_used": self.pool.used,
            "requests": self._added,
            "steps": self._steps,
            "tokens": self._written,
            "tokens_per_second": self._written / self._seconds if self._seconds else 0,
            "preemptions": self._preempted,
            "prefix_tokens": self._asked,
            "prefix_hit_tokens": self._hit,
        }

    # ------------------------------------------------------------------- who runs

    def _schedule(self) -> list[tuple[Text, int]]:
        """Texts, and how many tokens of each are read now, those of one token first.

        Of `max_tokens` each running text that has one token left gets it. The others
        share the rest in the order in which they came, each as much as it has left;
        then those come in that wait, unless a text had to give its blocks back now.
        """
        # BEGIN SOLUTION a18.4
        budget = self.max_tokens - sum(text.left == 1 for text in self.running)
        chunks, preempted = [], self._preempted
        for text in self.running:  # those that give back their blocks are the last
            count = 1 if text.left == 1 else min(text.left, budget)
            budget -= count if text.left > 1 else 0
            if count and self._grow(text, text.read + count):
                chunks.append((text, count))
        if self._preempted == preempted:
            chunks += self._admit(budget)
        return sorted(chunks, key=lambda chunk: chunk[1] > 1)
        # END SOLUTION a18.4

    def _grow(self, text: Text, tokens: int) -> bool:
        """Blocks for so many tokens of a running text.

        While too few are free, the text that came last gives back all of its own, and
        waits in front of the others. False if that is this text itself.
        """
        # BEGIN SOLUTION a18.4
        need = self.pool.blocks_for(tokens) - len(text.blocks)
        while need > self.pool.available:
            last = self.running.pop()
            self._give_back(last)
            self.waiting.appendleft(last)
            self._preempted += 1
            if last is text:
                return False
        if need > 0:
            text.blocks += self.pool.take(need)
        return True
        # END SOLUTION a18.4

    def _admit(self, budget: int) -> Iterator[tuple[Text, int]]:
        """Texts that waited and run from now on, and how many tokens of each are read.

        They come in order, while fewer than `max_batch` run, the budget is not used up,
        and there are blocks for all tokens of the text (Text.tokens). A text begins
        behind the full blocks that others have read, but reads its last token itself.
        """
        # BEGIN SOLUTION a18.4
        while self.waiting and len(self.running) < self.max_batch and budget > 0:
            text, size = self.waiting[0], self.pool.block_size
            extend_keys(text.keys, text.tokens, size)
            # The last token is always read: from it follows the next one.
            text.blocks = self.pool.share(text.keys[: (len(text.tokens) - 1) // size])
            need = self.pool.blocks_for(len(text.tokens)) - len(text.blocks)
            if need > self.pool.available:
                self._give_back(text)
                return
            text.read = len(text.blocks) * size
            text.blocks += self.pool.take(need)
            self._asked += len(text.tokens)
            self._hit += text.read
            self.running.append(self.waiting.popleft())
            count = min(text.left, budget)
            budget -= count
            yield text, count
        # END SOLUTION a18.4

    def _give_back(self, text: Text) -> None:
        self.pool.release(text.blocks)
        text.blocks, text.read = [], 0

    # ------------------------------------------------------------- what is written

    def _written_by(self, chunks: Sequence[tuple[Text, int]]) -> list[Event]:
        """Read these tokens, and choose the next one of each text that was read."""
        last = np.cumsum([count for _, count in chunks]) - 1
        rows = [int(i) for i, (text, n) in zip(last, chunks) if text.left == n]
        ready, tokens = [text for text, n in chunks if text.left == n], []
        parts = [Part(text.blocks, text.read, count) for text, count in chunks]
        ids = [t for text, n in chunks for t in text.tokens[text.read : text.read + n]]
        with no_grad():
            scores = self._scores(ids, parts, rows)
            if ready:
                tokens = self._chosen(ready, scores)
        for text, count in chunks:  # once nothing can fail: else it is read again
            self._keep(text, count)
        return [self._next(text, token) for text, token in zip(ready, tokens)]

    def _scores(
        self, ids: Sequence[int], parts: Sequence[Part], wanted: Sequence[int]
    ) -> Tensor:
        """[len(wanted), vocab] of a step, whose keys and values are kept."""
        if self._graphs is not None:
            return self._replayed(ids, parts, wanted)
        cache: Any = self.cache
        with self.cache.reading(parts):
            x = self.model.features(self._tensor(np.array(ids)[:, None]), cache)
        x = x.squeeze(1)
        if len(wanted) < len(ids):
            x = x.index_select(0, self._tensor(np.array(wanted, np.int64)))
        return self.model.lm_head(x)

    def _replayed(
        self, ids: Sequence[int], parts: Sequence[Part], wanted: Sequence[int]
    ) -> Tensor:
        """The same by a CUDA graph, of which there is one for 1, 2, 4, ... rows.

        A token of a prompt is as a text that ends with it: nothing but the numbers in
        one tensor tells a step of prompts from another one.
        """
        assert self._graphs is not None
        rows = 1 << (len(ids) - 1).bit_length()
        pages = self.pool.blocks_for(self.model.config.block_size)
        sizes = rows, min(rows, self.max_batch), pages
        if rows not in self._graphs:
            one = partial(self._packed_scores, sizes)
            self._graphs[rows] = make_graphed_step(one, warn)
        packed = self.cache.packed(ids, parts, wanted, sizes)
        return self._graphs[rows](packed)[: len(wanted)]

    def _packed_scores(self, sizes: tuple[int, int, int], packed: Tensor) -> Tensor:
        cache: Any = self.cache
        with self.cache.reading_packed(packed, sizes) as (ids, wanted):
            x = self.model.features(ids, cache).squeeze(1)
        return self.model.lm_head(x.index_select(0, wanted))

    def _keep(self, text: Text, count: int) -> None:
        """So many tokens more are read; others may find the blocks that are full."""
        size, before = self.pool.block_size, text.read
        text.read += count
        extend_keys(text.keys, text.tokens, size)
        for i in range(before // size, text.read // size):
            self.pool.publish(text.blocks[i], text.keys[i])

    def _chosen(self, texts: Sequence[Text], scores: Tensor) -> list[int]:
        """The next token of each text: scores [B, vocab]."""
        alike: dict[Sampling, list[int]] = {}
        for i, text in enumerate(texts):
            alike.setdefault(text.sampling, []).append(i)
        out = [0] * len(texts)
        for sampling, rows in alike.items():
            some = scores
            if len(rows) < len(texts):
                some = scores.index_select(0, self._tensor(np.array(rows)))
            numbers = (
                None if sampling.greedy else self._uniform([texts[i] for i in rows])
            )
            for i, token in zip(rows, sampling.choose(some, numbers).tolist()):
                out[i] = token
        return out

    def _uniform(self, texts: Sequence[Text]) -> Tensor:
        size, device = self.model.config.vocab_size, self.model.device
        return stack([rand(size, device=device, generator=t.generator) for t in texts])

    def _next(self, text: Text, token: int) -> Event:
        """The text goes on with this token, or ends."""
        if token in text.stop:
            event = Event(text.id, None, "stop")
        else:
            text.tokens.append(token)
            self._written += 1
            ends = len(text.tokens) == text.limit
            event = Event(text.id, token, "length" if ends else None)
        if event.finished:
            self.running.remove(text)
            self._give_back(text)
        return event

    def _tensor(self, array: np.ndarray) -> Tensor:
        return tensor(array, device=self.model.device)
