"""An endless text whose entropy is known, to train language models on.

With this file one can make a language (`UrnText(vocab_size=64, seed=0)`), draw as much
of it as one likes (`draw`), and know what nobody knows of a language that people speak:
the probability of each next token (`probabilities`), and so the loss that no model can
get below (`entropy`) and how far above it one is (`excess`).

Each pair of tokens has an urn with a few slots. What follows the pair is what stands in
one of its slots, each as probable as the others:

    pair (a, b) -> urn [c1 c2 ... c8] -> c, which makes the next pair (b, c)

What stands in slots was drawn by Zipf's law: token r with a probability like
r ** -exponent. So some pairs come often and most of them hardly ever, and a model that
has more numbers, or reads more, knows the urns of rarer pairs. Such languages were
proposed to explain why losses of language models fall as powers of both.

Source: Hutter, "Learning curve theory", 2021; Michaud et al., "The quantization model
of neural scaling", NeurIPS 2023.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MOST_TOKENS, MOST_SLOTS = 256, 128
ROUNDS, NEAR = 10_000, 1e-12


class UrnText:
    """An endless text of `vocab_size` tokens, V; all of it follows from the seed.

    Args:
        vocab_size: V, 2 to 256.
        slots: of each urn, S: a power of two, 1 to 128.
        exponent: how fast tokens become rare; 0: all are as frequent.
        seed: of the urns, and of what is drawn.

    Attributes:
        urns: int64 [V, V, S], the slots of the urn of (a, b).
        probabilities: float64 [V, V, V], of c behind a and b.
        pairs: float64 [V, V], how frequent (a, b) is in a long text.
        entropy: nats that a token takes at least, where both before it are known.

    Errors: ValueError for other numbers, and where a text never mixes (few tokens).
    """

    def __init__(
        self, vocab_size: int = 64, slots: int = 8, exponent: float = 1.3, seed: int = 0
    ) -> None:
        _check(vocab_size, slots, exponent)
        self.vocab_size, self.slots, self.seed = vocab_size, slots, seed
        zipf = np.arange(1.0, vocab_size + 1) ** -exponent
        shape = (vocab_size, vocab_size, slots)
        # Raw numbers of Philox are the same in all versions of NumPy; 53 bits of each.
        share = (self._source(0).random_raw(shape) >> np.uint64(11)) * 2.0**-53
        self.urns = _inverse(zipf, share)
        counts = np.zeros((vocab_size,) * 3)
        places = *np.ogrid[:vocab_size, :vocab_size, :1][:2], self.urns
        np.add.at(counts, places, 1)
        self.probabilities = counts / slots
        self.pairs = self._stationary(np.outer(zipf, zipf) / zipf.sum() ** 2)
        self.entropy = float(-(self.pairs * _plogp(self.probabilities)).sum())

    def _source(self, *key: int) -> np.random.Philox:
        return np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=key))

    def _stationary(self, pairs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """How frequent pairs are, once more and more tokens do not change it."""
        behind = self.probabilities.transpose(1, 0, 2)  # [b, a, c]
        for _ in range(ROUNDS):
            then = (pairs.T[:, None, :] @ behind)[:, 0]
            if np.abs(then - pairs).sum() < NEAR:
                return then / then.sum()
            pairs = then
        raise ValueError(
            f"UrnText: with vocab_size {self.vocab_size}, slots {self.slots} and seed "
            f"{self.seed} a text goes round in circles; take more of them, or another "
            f"seed"
        )

    def draw(self, rows: int, length: int, *key: int) -> npt.NDArray[np.int64]:
        """Pieces of the text that know nothing of each other: int64 [rows, length].

        Another key (whole numbers) gives other pieces, the same key the same ones.

        Errors: ValueError for a length below 2, the pair that a piece begins with.
        """
        if rows < 0 or length < 2:
            raise ValueError(
                f"UrnText.draw: {rows} rows of {length} tokens; expected 0 rows or "
                f"more, of 2 tokens at least"
            )
        source, v = self._source(1, *key), self.vocab_size
        share = (source.random_raw(rows) >> np.uint64(11)) * 2.0**-53
        found = np.empty((length, rows), np.int64)
        found[0], found[1] = np.divmod(_inverse(self.pairs.reshape(-1), share), v)
        # A raw number has eight bytes, and the last bits of each choose a slot.
        raw = source.random_raw(-(-rows * (length - 2) // 8)).view(np.uint8)
        chosen = (raw[: rows * (length - 2)] % self.slots).reshape(length - 2, rows)
        flat = self.urns.reshape(-1)
        for t in range(2, length):
            urn = found[t - 2] * v + found[t - 1]
            np.take(flat, urn * self.slots + chosen[t - 2], out=found[t])
        return np.ascontiguousarray(found.T)

    def excess(
        self, ids: npt.NDArray[np.int64], log_probs: npt.NDArray[np.floating]
    ) -> float:
        """Nats a token by which a model's loss is above the entropy, 0 or more.

        The mean of KL(p || q) over all places that see two tokens, where p is the truth
        and q the model's: what its loss would come to after endlessly many draws of the
        next token, so that few pieces are enough.

        Args:
            ids: int64 [N, T], what the model has read.
            log_probs: [N, T, V], its logarithms of the next token's probabilities.
        """
        p = self.probabilities[ids[:, :-1], ids[:, 1:]]
        q = np.asarray(log_probs, np.float64)[:, 1:]
        return float((_plogp(p) - (p * np.where(p > 0, q, 0.0)).sum(-1)).mean())


def _inverse(
    weights: npt.NDArray[np.float64], share: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Of shares from 0 to 1, the number of the weight in whose part each one lies."""
    ends = np.cumsum(weights)
    return np.searchsorted(ends, share * ends[-1], side="right").astype(np.int64)


def _plogp(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The sum of p log p over the last dimension, where 0 log 0 is 0."""
    found: npt.NDArray[np.float64] = (p * np.log(np.where(p > 0, p, 1.0))).sum(-1)
    return found


def _check(vocab_size: int, slots: int, exponent: float) -> None:
    if not 2 <= vocab_size <= MOST_TOKENS:
        raise ValueError(
            f"UrnText: vocab_size is {vocab_size}; expected 2 to {MOST_TOKENS}"
        )
    if not 1 <= slots <= MOST_SLOTS or slots & (slots - 1):
        raise ValueError(
            f"UrnText: slots is {slots}; expected a power of two, 1 to {MOST_SLOTS}"
        )
    if not 0 <= exponent < np.inf:
        raise ValueError(f"UrnText: exponent is {exponent}; expected 0 or more")
