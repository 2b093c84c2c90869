"""Steps that make training data of raw text, and an account of what each dropped.

With this file one can run steps one after the other (`clean`), and print what became of
documents and bytes (`Cleaned.table`).

    >>> print(clean(texts, {"copies": drop_duplicates, "rules": drop_by_rules}).table())

A step takes all texts, since some steps compare them, and returns as many: each text,
changed or not, or `Dropped` in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Dropped:
    """Stands in the place of a text that a step refuses, with the reason."""

    reason: str


Step = Callable[[Sequence[str]], Sequence["str | Dropped"]]


@dataclass(frozen=True)
class Stage:
    """What one step left, and why it dropped the others.

    Attributes:
        kept: the numbers of the texts behind it, among those that were given.
        size: their bytes in UTF-8.
        reasons: how many it dropped for each reason.
    """

    name: str
    kept: list[int]
    size: int
    reasons: Mapping[str, int]


@dataclass(frozen=True)
class Cleaned:
    """What is left of texts.

    Attributes:
        texts: in their order.
        stages: the texts as they came, then what each step made of them.
    """

    texts: list[str]
    stages: list[Stage]

    @property
    def kept(self) -> list[int]:
        """The number of each text among those that were given."""
        return self.stages[-1].kept

    def table(self) -> str:
        """The stages as a table in Markdown."""
        head = "| step | documents | bytes | dropped |\n| --- | ---: | ---: | --- |"
        rows = []
        for stage in self.stages:
            pairs = sorted(stage.reasons.items(), key=lambda pair: (-pair[1], pair[0]))
            why = ", ".join(f"{count} {reason}" for reason, count in pairs)
            rows.append(
                f"| {stage.name} | {len(stage.kept):,} | {stage.size:,} | {why} |"
            )
        return "\n".join([head, *rows])


def clean(texts: Sequence[str], steps: Mapping[str, Step]) -> Cleaned:
    """What is left of texts after the steps, which run in the order of the mapping.

    Errors: ValueError where a step returns more or fewer texts than it was given,
    TypeError where it returns what is neither a text nor `Dropped`.
    """
    left, kept = list(texts), list(range(len(texts)))
    stages = [Stage("raw", kept, _size(left), {})]
    for name, step in steps.items():
        made = step(left)
        every = made if isinstance(made, Sequence) else [made]
        odd = [type(t).__name__ for t in every if not isinstance(t, (str, Dropped))]
        if odd:
            raise TypeError(
                f"clean: the step {name!r} made a {odd[0]}; expected a list that has a "
                f"text or Dropped(reason) for each text"
            )
        if len(made) != len(kept):  # a step may have changed the list `left`
            raise ValueError(
                f"clean: the step {name!r} made {len(made)} of {len(kept)} texts; "
                f"expected as many, with Dropped(reason) in the place of what goes"
            )
        reasons = Counter(one.reason for one in made if isinstance(one, Dropped))
        pairs = [(t, k) for t, k in zip(made, kept) if not isinstance(t, Dropped)]
        left, kept = [text for text, _ in pairs], [number for _, number in pairs]
        stages.append(Stage(name, kept, _size(left), dict(reasons)))
    return Cleaned(left, stages)


def _size(texts: Sequence[str]) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
