"""What is wanted and what is not, learnt from examples of both.

With this file one can train a linear classifier of texts (`TextClassifier.fit`), let it
judge (`scores`), and drop what it thinks little of (`drop_below`).

    words      the  white  rabbit              features: runs of one and of two words
    features   the, white, rabbit, the white, white rabbit
    buckets    6, 4, 1, 4, 3                   a hash numbers them; some share one
    bag        mean of the buckets' vectors    -> a linear layer -> scores of classes

Order beyond n words is lost, which costs little where the question is of which kind a
text is.

Source: Joulin et al., "Bag of tricks for efficient text classification", 2016
(fastText); Weinberger et al., "Feature hashing for large scale multitask learning",
2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np

import minitorch.nn.functional as F
from minitorch.autodiff import no_grad
from minitorch.creation import randn, tensor
from minitorch.data.cleaning.duplicates import normalized
from minitorch.data.cleaning.pipeline import Dropped
from minitorch.nn import Embedding, Linear, Module
from minitorch.optim import AdamW
from minitorch.tensor import Tensor


class TextClassifier(Module):
    """Scores of classes for texts: a mean of vectors, and a linear layer.

    Args:
        classes: how many; class 1 of two is what is wanted (`scores`).
        dim: numbers of a feature's vector.
        buckets: vectors that there are; features with one hash share one.
        n: the longest run of words that is a feature.
    """

    def __init__(
        self,
        classes: int = 2,
        dim: int = 16,
        buckets: int = 1 << 14,
        n: int = 2,
        device: str | None = None,
    ) -> None:
        super().__init__()
        if n < 1 or buckets < 1:
            raise ValueError(
                f"TextClassifier: n is {n} and buckets {buckets}; expected 1 or more"
            )
        self.buckets, self.n = buckets, n
        # Small vectors: what was never learnt shall say little (uniform in fastText).
        self.table = Embedding.from_pretrained(
            randn(buckets, dim, device=device) / dim, freeze=False
        )
        self.head = Linear(dim, classes, device=device)

    def features(self, text: str) -> list[int]:
        """The buckets of all runs of 1 to n words, the single words first.

        A run's bucket is `crc32` of it, words joined by spaces, in UTF-8, modulo the
        number of buckets; words are those of `normalized`.
        """
        # BEGIN SOLUTION a15.5
        words = normalized(text).split()
        return [
            crc32(" ".join(words[i : i + length]).encode()) % self.buckets
            for length in range(1, self.n + 1)
            for i in range(len(words) - length + 1)
        ]
        # END SOLUTION a15.5

    def forward(self, texts: Sequence[str]) -> Tensor:
        """N texts -> scores [N, classes]. The bag of a text without words is 0."""
        found = [self.features(text) for text in texts]
        device = self.table.weight.device
        ids = tensor([i for one in found for i in one], device=device).long()
        counts = [len(one) for one in found]
        owners = np.repeat(np.arange(len(found)), counts).tolist()
        return self.head(self.bags(ids, tensor(owners, device=device).long(), counts))

    def bags(self, ids: Tensor, owners: Tensor, counts: Sequence[int]) -> Tensor:
        """Mean vectors of the features of N texts -> [N, dim]

        Args:
            ids: int64 [T], the features of all texts, one after the other.
            owners: int64 [T], which text each is of, from 0 to N - 1.
            counts: N, how many features each text has; 0 for a text without.
        """
        # BEGIN SOLUTION a15.5
        vectors = self.table(ids)
        sums = vectors.new_zeros(len(counts), vectors.shape[1])
        sums = sums.index_add_(0, owners, vectors)
        return sums / sums.new_tensor([[float(max(n, 1))] for n in counts])
        # END SOLUTION a15.5

    def fit(
        self,
        texts: Sequence[str],
        labels: Sequence[int],
        epochs: int = 10,
        lr: float = 0.02,
        batch: int = 16,
        seed: int = 0,
    ) -> list[float]:
        """Learn from texts and their classes by cross entropy; the losses of all steps.

        Each epoch goes through all texts in another order, `batch` at a time; the last
        batch may be smaller.

        Errors: ValueError if there are no texts, not as many labels, or no batches.
        """
        if not texts or len(texts) != len(labels):
            raise ValueError(
                f"TextClassifier.fit: {len(texts)} texts and {len(labels)} labels; "
                f"expected as many, and one at least"
            )
        if batch < 1:
            raise ValueError(
                f"TextClassifier.fit: batch is {batch}; expected 1 or more"
            )
        optimizer, device = AdamW(self.parameters(), lr=lr), self.head.weight.device
        order = orders(len(texts), epochs, seed)
        # BEGIN SOLUTION a15.5
        losses = []
        batches = [
            one[i : i + batch] for one in order for i in range(0, len(one), batch)
        ]
        for some in batches:
            wanted = tensor([labels[i] for i in some], device=device).long()
            loss = F.cross_entropy(self([texts[i] for i in some]), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses
        # END SOLUTION a15.5

    @no_grad()
    def scores(self, texts: Sequence[str]) -> list[float]:
        """How probably each text is of class 1."""
        found: list[float] = self(texts).softmax(-1)[:, 1].tolist() if texts else []
        return found

    def drop_below(
        self, texts: Sequence[str], least: float = 0.5
    ) -> list[str | Dropped]:
        """Without texts whose score is below `least`: a step for `clean`."""
        pairs = zip(texts, self.scores(texts))
        return [t if s >= least else Dropped("not wanted") for t, s in pairs]


def orders(count: int, epochs: int, seed: int) -> list[list[int]]:
    """All numbers below `count` in an order by chance, once for each epoch."""
    random = np.random.default_rng(seed)
    return [random.permutation(count).tolist() for _ in range(epochs)]
