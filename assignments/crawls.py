"""A small crawl of the web, made by a program that knows what each page is.

With this file one has pages as a crawler brings them (`crawl`): a story, page by page
(`pages_of`), some of it copied, and much that nobody wants to read; examples of both
(`examples`), and how good what is kept of a crawl is (`judged`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

WORDS = 120  # of a page of the story, at least
STORY, COPY, NEAR, ADVERT, LIST, LOG, TEASER = (
    "story", "copy", "near copy", "advert", "list", "log", "teasers",
)  # fmt: skip
TOP = ["Home | Books | Shop | Log in", "We use cookies. Accept all"]
BOTTOM = ["(c) All rights reserved.", "Back to top"]
OFFERS = """
    Buy the best {0} of the year with a discount of {1} % and have it sent to you today.
    Our {0} and the new {2} are in stock, and shipping to your home is free of charge.
    Customers that have bought the {0} rate it with five stars, and you will be happy!
    Click here to compare the price of a {2} with the price of a {0} in our online shop.
    Subscribe to our newsletter and save {1} % on the next {0} or {2} that you order.
    Limited offer: be one of the first {1} and pay with your credit card, safe and fast.
""".strip().splitlines()
GOODS = """phone laptop watch jacket mattress camera printer headset kettle vacuum drone
    keyboard monitor sofa blender tablet charger router speaker backpack""".split()


class Page(NamedTuple):
    """A page, what it is, and which page of the story it shows (-1: none)."""

    text: str
    kind: str
    source: int = -1


def pages_of(text: str) -> list[str]:
    """A text in pages of whole paragraphs, each of WORDS words or more."""
    pages: list[list[str]] = [[]]
    for paragraph in filter(str.strip, text.split("\n\n")):
        if sum(len(p.split()) for p in pages[-1]) >= WORDS:
            pages.append([])
        pages[-1].append(paragraph)
    return ["\n\n".join(page) for page in pages]


def crawl(pages: Sequence[str], seed: int = 0, junk: float = 1.0) -> list[Page]:
    """Pages of a story as a crawler brings them, in any order.

    Every third page is there a second time to the letter, every third one again with a
    few words changed. For each page of the story there are `junk` that are none. All
    but exact copies have a menu and a footer, and some have an address below.
    """
    rng, found = random.Random(seed), []
    for i, page in enumerate(pages):
        found.append(Page(_dressed(page, rng), STORY, i))
        if i % 3 == 0:
            found.append(Page(found[-1].text, COPY, i))
        if i % 3 == 1:
            found.append(Page(_dressed(_changed(page, rng), rng), NEAR, i))
    kinds = list(JUNK)
    for i in range(int(junk * len(pages))):
        kind = kinds[i % len(kinds)]
        found.append(Page(_dressed(JUNK[kind](rng), rng), kind))
    rng.shuffle(found)
    return found


def _dressed(text: str, rng: random.Random) -> str:
    """A text with what surrounds it on its page."""
    address = f"Questions? {rng.choice(('info', 'help', 'shop'))}@example.org, "
    address += f"(202) 555-01{rng.randrange(100):02}, or 192.0.2.{rng.randrange(256)}"
    return "\n".join([*TOP, text, *[address] * (rng.random() < 0.5), *BOTTOM])


def _changed(text: str, rng: random.Random) -> str:
    """A text with one word in fifty doubled, left out, or in capitals."""
    lines = []
    for line in text.split("\n"):
        words = [
            rng.choice((f"{word} {word}", "", word.upper()))
            if word and rng.random() < 0.02
            else word
            for word in line.split(" ")
        ]
        lines.append(" ".join(words))
    return "\n".join(lines)


def advert(rng: random.Random) -> str:
    """Sentences, and yet nothing to read."""
    lines = []
    for _ in range(rng.randrange(8, 16)):
        one, other = rng.sample(GOODS, 2)
        offer = rng.choice(OFFERS).strip()
        lines.append(offer.format(one, rng.randrange(5, 80), other))
    return "\n".join(lines)


def _list(rng: random.Random) -> str:
    return "\n".join(f"- {a} {rng.randrange(1000)}" for a in rng.choices(GOODS, k=40))


def _log(rng: random.Random) -> str:
    codes = [rng.randrange(10_000, 99_999) for _ in range(60)]
    return "\n".join(f"{code} {rng.randrange(200, 504)} 0x{code:x}" for code in codes)


def _teasers(rng: random.Random) -> str:
    goods = rng.choices(GOODS, k=12)
    return "\n".join(f"The {a} that sold {rng.randrange(999)} times ..." for a in goods)


JUNK: dict[str, Callable[[random.Random], str]] = {
    ADVERT: advert, LIST: _list, LOG: _log, TEASER: _teasers
}  # fmt: skip


# ---------------------------------------------------------------------------- judging


def judged(pages: Sequence[Page], kept: Sequence[int]) -> dict[str, float]:
    """How good what is kept of a crawl is, each from 0 to 1.

    recall: of the story's pages, those that are there. precision: of what is kept, the
    first of each of the story's pages.
    """
    sources = [pages[i].source for i in kept]
    right = len(set(sources) - {-1})
    every = len({page.source for page in pages} - {-1})
    return {
        "recall": right / every if every else 1.0,
        "precision": right / len(sources) if sources else 1.0,
    }


def examples(
    pages: Sequence[str], seed: int = 1, count: int = 20
) -> tuple[list[str], list[str]]:
    """Some pages, and as many adverts, as someone might have looked at them."""
    rng = random.Random(seed)
    return list(pages[:count]), [advert(rng) for _ in pages[:count]]
