"""What is no text one would want to read, by rules that look at no meaning.

With this file one can count what such rules ask about (`measure`), compare it with
limits (`QualityRules`), and drop texts outside of them (`drop_by_rules`). Each refusal
has its reason: a rule that drops too much shows. They are for English, and drop what
has no spaces between words.

Source: Rae et al., "Scaling language models: methods, analysis and insights from
training Gopher", 2021, appendix A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from minitorch.data.cleaning.pipeline import Dropped

STOP_WORDS = frozenset("the be to of and that have with".split())
BULLETS = ("-", "*", "•")
ELLIPSES = ("...", "…")
SYMBOLS = ("#", *ELLIPSES)


class Measures(NamedTuple):
    """What rules ask about a text. A word is what stands between white space; lines are
    those that are not blank. A share of nothing is 0.

    Attributes:
        words: how many.
        mean_length: of words, in characters.
        symbols: how often one of SYMBOLS is in the text, for each word.
        bullets: the share of lines that begin with one of BULLETS.
        ellipses: the share of lines that end with one of ELLIPSES.
        alphabetic: the share of words with a letter.
        stop_words: how many different STOP_WORDS there are, in upper or lower case.
    """

    words: int
    mean_length: float
    symbols: float
    bullets: float
    ellipses: float
    alphabetic: float
    stop_words: int


def measure(text: str) -> Measures:
    """The numbers of a text that rules compare with their limits."""
    # BEGIN SOLUTION a15.4
    words = text.split()
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    count, rows = max(len(words), 1), max(len(lines), 1)
    return Measures(
        words=len(words),
        mean_length=sum(map(len, words)) / count,
        symbols=sum(map(text.count, SYMBOLS)) / count,
        bullets=sum(line.startswith(BULLETS) for line in lines) / rows,
        ellipses=sum(line.endswith(ELLIPSES) for line in lines) / rows,
        alphabetic=sum(any(map(str.isalpha, word)) for word in words) / count,
        stop_words=len(STOP_WORDS & {word.lower() for word in words}),
    )
    # END SOLUTION a15.4


@dataclass(frozen=True)
class QualityRules:
    """Limits of what `measure` counts, both ends included; Gopher's by default.

    Gopher counts "#" and ellipses apart, each up to 0.1; here `symbols` is both.
    """

    words: tuple[int, int] = (50, 100_000)
    mean_length: tuple[float, float] = (3.0, 10.0)
    symbols: tuple[float, float] = (0.0, 0.1)
    bullets: tuple[float, float] = (0.0, 0.9)
    ellipses: tuple[float, float] = (0.0, 0.3)
    alphabetic: tuple[float, float] = (0.8, 1.0)
    stop_words: tuple[int, int] = (2, len(STOP_WORDS))

    def problems(self, text: str) -> dict[str, float]:
        """The measures of a text that are outside of their limits, in their order; {}
        for a text that may stay."""
        # BEGIN SOLUTION a15.4
        found = measure(text)._asdict().items()
        limits = vars(self)
        return {n: v for n, v in found if not limits[n][0] <= v <= limits[n][1]}
        # END SOLUTION a15.4


def drop_by_rules(
    texts: Sequence[str], rules: QualityRules | None = None
) -> list[str | Dropped]:
    """Without texts that have a problem, the first of which is the reason: a step for
    `clean`."""
    found = [(rules or QualityRules()).problems(text) for text in texts]
    return [Dropped(next(iter(f))) if f else t for t, f in zip(texts, found)]
