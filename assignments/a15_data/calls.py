"""What a15 runs in the student's process: steps that clean texts, each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments.calling import read, tensor

Texts = Sequence[str]


def plain(step: Sequence[Any]) -> list[str]:
    """What a step made of each text, where "dropped" has the reason beside it."""
    from minitorch.data.cleaning import Dropped

    return [f"dropped: {t.reason}" if isinstance(t, Dropped) else t for t in step]


# ------------------------------------------------------------------------- duplicates


def copies(device: str, texts: Texts) -> dict[str, Any]:
    """`drop_duplicates`"""
    from minitorch.data.cleaning.duplicates import drop_duplicates

    given = list(texts)
    return {"out": plain(drop_duplicates(given)), "texts": given}


def lines(device: str, texts: Texts, times: int) -> dict[str, Any]:
    """`drop_duplicate_lines`"""
    from minitorch.data.cleaning.duplicates import drop_duplicate_lines

    given = list(texts)
    return {"out": plain(drop_duplicate_lines(given, times)), "texts": given}


def words(device: str, text: str) -> dict[str, Any]:
    """`normalized`"""
    from minitorch.data.cleaning.duplicates import normalized

    return {"out": normalized(text)}


def runs(device: str, text: str, n: int) -> dict[str, Any]:
    """`shingles`, in the order of the alphabet."""
    from minitorch.data.cleaning.duplicates import shingles

    found = shingles(text, n)
    return {"is a set": isinstance(found, (set, frozenset)), "out": sorted(found)}


def alike(device: str, a: Texts, b: Texts) -> dict[str, Any]:
    """`jaccard`"""
    from minitorch.data.cleaning.duplicates import jaccard

    one, other = set(a), set(b)
    found = float(jaccard(one, other))
    return {"out": found, "sets unchanged": (one, other) == (set(a), set(b))}


def signed(device: str, count: int, hashes: int, seed: int) -> dict[str, Any]:
    """`MinHash.signature` of a set of `count` shingles."""
    from minitorch.data.cleaning.duplicates import MinHash

    found = MinHash(hashes, seed).signature({f"shingle {i}" for i in range(count)})
    kind = str(getattr(found, "dtype", type(found).__name__))
    return {"dtype": kind, "signature": np.asarray(found).astype(np.int64)}


def equal(device: str, one: np.ndarray, other: np.ndarray) -> dict[str, Any]:
    """`MinHash.similarity`"""
    from minitorch.data.cleaning.duplicates import MinHash

    pair = one.astype(np.uint32), other.astype(np.uint32)
    return {"out": float(MinHash.similarity(*pair))}


def candidates(device: str, signatures: np.ndarray, bands: int) -> dict[str, Any]:
    """`candidate_pairs`, in order."""
    from minitorch.data.cleaning.duplicates import candidate_pairs

    found = candidate_pairs(signatures.astype(np.uint32), bands)
    return {"out": sorted((int(i), int(j)) for i, j in found)}


def joined(device: str, count: int, pairs: Sequence[Any]) -> dict[str, Any]:
    """`clusters`"""
    from minitorch.data.cleaning.duplicates import clusters

    return {"out": [int(i) for i in clusters(count, [(i, j) for i, j in pairs])]}


def chained(device: str, count: int, downwards: bool) -> dict[str, Any]:
    """`clusters` of a chain, whose pairs come from its end or its beginning."""
    from minitorch.data.cleaning.duplicates import clusters

    pairs = [(i, i + 1) for i in range(count - 1)]
    found = clusters(count, pairs[::-1] if downwards else pairs)
    return {"leaders": sorted(set(found)), "members": len(found)}


def near(
    device: str, texts: Texts, threshold: float, n: int, hashes: int, bands: int,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """`drop_near_duplicates`, and how many pairs of sets it compares."""
    from minitorch.data.cleaning import duplicates

    library, count = duplicates.jaccard, 0

    def counted(a: Any, b: Any) -> float:
        nonlocal count
        count += 1
        return library(a, b)

    duplicates.jaccard = counted
    try:
        found = duplicates.drop_near_duplicates(
            list(texts), threshold, n, hashes, bands, seed
        )
    finally:
        duplicates.jaccard = library
    return {"out": plain(found), "compared": count}


# -------------------------------------------------------------------- rules and masks


def measured(device: str, text: str) -> dict[str, Any]:
    """`measure`"""
    from minitorch.data.cleaning.rules import measure

    return {n: float(value) for n, value in measure(text)._asdict().items()}


def refused(device: str, text: str, limits: dict[str, Any]) -> dict[str, Any]:
    """`QualityRules.problems`"""
    from minitorch.data.cleaning.rules import QualityRules

    found = QualityRules(**{n: tuple(pair) for n, pair in limits.items()})
    return {"out": {n: float(v) for n, v in found.problems(text).items()}}


def masked(device: str, kind: str, text: str) -> dict[str, Any]:
    """`mask_emails`, `mask_phones` or `mask_ips`"""
    from minitorch.data.cleaning import masks

    every = {"<email>": masks.mask_emails, "<phone>": masks.mask_phones}
    out, count = every.get(kind, masks.mask_ips)(text)
    return {"out": out, "count": int(count)}


# ------------------------------------------------------------------------- classifier

BUCKETS, DIM, CLASSES = 23, 3, 3


def parameters(seed: int) -> dict[str, np.ndarray]:
    """Numbers for a classifier, by a seed."""
    random = np.random.default_rng([seed, 3])
    shapes = {"table": (BUCKETS, DIM), "weight": (CLASSES, DIM), "bias": (CLASSES,)}
    return {n: random.uniform(-1, 1, s).astype(np.float32) for n, s in shapes.items()}


def _model(device: str, n: int, seed: int) -> Any:
    from minitorch import no_grad
    from minitorch.data.cleaning.classifier import TextClassifier

    model, given = TextClassifier(CLASSES, DIM, BUCKETS, n, device), parameters(seed)
    with no_grad():
        for name, p in _places(model).items():
            p.copy_(tensor(device, given[name]))
    return model


def _places(model: Any) -> dict[str, Any]:
    head = model.head
    return {"table": model.table.weight, "weight": head.weight, "bias": head.bias}


def featured(device: str, text: str, n: int, buckets: int) -> dict[str, Any]:
    """`TextClassifier.features`"""
    from minitorch.data.cleaning.classifier import TextClassifier

    model = TextClassifier(2, 1, buckets, n, device)
    return {"out": [int(i) for i in model.features(text)]}


def bagged(
    device: str, seed: int, ids: np.ndarray, counts: Sequence[int], grad: np.ndarray
) -> dict[str, Any]:
    """`TextClassifier.bags`, and the gradient of the table."""
    model = _model(device, 1, seed)
    owners = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
    out = model.bags(tensor(device, ids), tensor(device, owners), list(counts))
    value = read(out)
    out.backward(tensor(device, grad))
    return {"out": value, "grad of the table": read(model.table.weight.grad)}


def learnt(
    device: str, seed: int, texts: Texts, labels: Sequence[int], epochs: int, batch: int
) -> dict[str, Any]:
    """`TextClassifier.fit`: the losses, and the parameters afterwards."""
    model = _model(device, 2, seed)
    losses = model.fit(list(texts), list(labels), epochs, 0.05, batch, seed)
    after = {name: read(p) for name, p in _places(model).items()}
    return {"losses": [float(x) for x in losses], **after}


# --------------------------------------------------------------------------- pipeline

SAMPLE, LAST = 15, 50  # pages for examples, and pages of the story


def crawled(seed: int) -> Any:
    """A crawl, and the examples of what is wanted and what is not."""
    from assignments.crawls import crawl, examples, pages_of
    from minitorch.data import load_text

    pages = pages_of(load_text("alice").text)
    return crawl(pages[SAMPLE:LAST], seed), examples(pages[:SAMPLE], seed + 1)


def piped(device: str, seed: int) -> dict[str, Any]:
    """`cleaned` of a crawl: the numbers of the pages that stay, and their texts."""
    import minitorch
    from assignments.a15_data.crawl import cleaned

    minitorch.manual_seed(seed)
    pages, (wanted, unwanted) = crawled(seed)
    found = cleaned([page.text for page in pages], wanted, unwanted)
    return {"kept": [int(i) for i in found.kept], "texts": list(found.texts)}
