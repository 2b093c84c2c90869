"""Pictures for a15 and docs/data.md: what steps leave, signatures, bands, a bag."""

from __future__ import annotations

from collections import Counter
from typing import Any

from assignments import crawls as pages
from assignments.a15_data import crawl
from assignments.pictures import picture
from minitorch import manual_seed
from minitorch.data import load_text
from minitorch.data.cleaning import MinHash, TextClassifier, caught, shingles
from minitorch.scenes import Scene, part

A15 = "assignments/a15_data"
SHOWN = {"the story": 3, "the same again": 1, "adverts": 2, "lists, logs, teasers": 0}


def _shown(found: list[pages.Page], kept: list[int]) -> list[list[int]]:
    """How many pages of each kind there are; of a page and its copies the first is the
    story's."""
    seen: set[int] = set()
    counts: Counter[str] = Counter()
    for page in (found[i] for i in kept):
        kind = "adverts" if page.kind == "advert" else "lists, logs, teasers"
        if page.source >= 0:
            kind = "the same again" if page.source in seen else "the story"
            seen.add(page.source)
        counts[kind] += 1
    return [[counts[name], hue] for name, hue in SHOWN.items()]


@picture(f"{A15}/steps")
def steps() -> Scene:
    manual_seed(0)
    every = pages.pages_of(load_text("alice").text)
    found = pages.crawl(every[15:])
    some = pages.examples(every[:15])
    rows: list[list[Any]] = []
    for stage in crawl.cleaned([page.text for page in found], *some).stages:
        parts = _shown(found, stage.kept)
        rows.append([stage.name, parts, [], [str(len(stage.kept))]])
    items = [[name, hue, "bar"] for name, hue in SHOWN.items()]
    ticks = [[n, str(n)] for n in (0, 50, 100)]
    bars = part("bars", rows=rows, end=140, width=420, ticks=ticks, xlabel="pages")
    return [[bars], [part("legend", items=items)]]


TEXTS = ("the cat sat on the mat", "the cat sat on a mat")


@picture(f"{A15}/minhash")
def minhash() -> Scene:
    """The smallest number of each function, in green where both sets have it."""
    sets, made = [shingles(text, 1) for text in TEXTS], MinHash(6, seed=3)
    names = sorted(sets[0] | sets[1])
    table = {name: made.signature({name}).tolist() for name in names}
    least = [made.signature(one).tolist() for one in sets]
    parts = []
    for text, one, mine, other in zip(TEXTS, sets, least, reversed(least)):
        cells: list[list[Any]] = []
        for i in range(6):
            order = sorted(table[name][i] for name in names)
            cells.append([
                ["", -1] if name not in one else
                [str(order.index(table[name][i]) + 1),
                 0 if table[name][i] != mine[i] else 3 if mine[i] == other[i] else 2]
                for name in names
            ])  # fmt: skip
        rows = [f"h{i + 1}" for i in range(6)]
        parts.append(part("grid", text, cells=cells, cols=names, rows=rows))
    return [parts, [part("legend", items=[
        ["smallest of its row, in both", 3, "bar"],
        ["smallest, in one alone", 2, "bar"],
    ])]]  # fmt: skip


@picture(f"{A15}/bands")
def bands() -> Scene:
    series = []
    for (b, r), hue, at in (
        ((1, 1), 0, [0.2, 0.28]), ((32, 4), 1, [0.3, 0.72]), ((16, 8), 2, [0.83, 0.55])
    ):  # fmt: skip
        points = [[n / 50, caught(n / 50, b, r)] for n in range(51)]
        text = f"b = {b}, r = {r}"
        series.append({"points": points, "hue": hue, "text": text, "at": at})
    return [[part(
        "curve", x=[0, 1], y=[0, 1], size=(420, 170), series=series,
        xticks=[[v, f"{v:g}"] for v in (0, 0.25, 0.5, 0.75, 1)],
        yticks=[[v, f"{v:g}"] for v in (0, 0.5, 1)], xlabel="similarity",
    )]]  # fmt: skip


@picture(f"{A15}/bag")
def bag() -> Scene:
    model = TextClassifier(buckets=8)
    words = "the white rabbit".split()
    names = [*words, "the white", "white rabbit"]
    found = model.features(" ".join(words))
    rows = [[str(i), 4 if i in found else -1] for i in range(8)]
    return [[part("layers", layers=[
        part("grid", cells=[[[name, 1] for name in names]], size=(92, 28)),
        part("grid", cells=[rows], size=(57, 28), rows=["row"]),
        part("grid", cells=[[["mean of the rows", 3]]], size=(130, 28)),
        part("grid", cells=[[["wanted", 2], ["not", 2]]], size=(65, 28)),
    ], links=[
        [[k, row, 4] for k, row in enumerate(found)],
        [[row, 0, 3] for row in sorted(set(found))],
        [[0, 0, 2], [0, 1, 2]],
    ])]]  # fmt: skip
