"""Clean a dirty text, train a small GPT on it before and after, and compare.

Run it: `python docs/clean_text.py` (two minutes). Pages of "Alice in Wonderland" lie in
a crawl among copies of themselves, adverts, lists and logs. The same GPT, by
characters, learns for as many steps from the crawl, from what parts of the cleaning
leave of it, and from the pages as they were. What counts is its loss on pages of the
book that are in none of these.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from assignments.a15_data.crawl import cleaned
from assignments.crawls import crawl, examples, judged, pages_of
from minitorch import manual_seed, no_grad, optim
from minitorch.data import CharTokenizer, TokenWindows, load_text
from minitorch.data.cleaning import clean, drop_duplicates, drop_near_duplicates
from minitorch.models import GPT, GPTConfig

BLOCK, BATCH = 64, 16


def trained(
    text: str, unseen: str, tokenizer: CharTokenizer, steps: Sequence[int], seed: int
) -> list[float]:
    """Of a new GPT, after so many steps on a text: the loss of a character, unseen."""
    manual_seed(seed)
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 64}
    model = GPT(GPTConfig(tokenizer.vocab_size, BLOCK, **sizes))
    optimizer, found = optim.AdamW(model.parameters(), lr=3e-3), []
    windows = TokenWindows(np.array(tokenizer.encode(text)), BLOCK)
    rest = TokenWindows(np.array(tokenizer.encode(unseen)), BLOCK)
    for step in range(max(steps)):
        loss = model.loss(*windows.draw((BATCH,), seed, step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step + 1 in steps:
            with no_grad():
                pairs = rest.get_batch(np.arange(0, len(rest), BLOCK))
                found.append(model.loss(*pairs).item())
    return found


def main(
    steps: Sequence[int] = (300, 600, 1200),
    junk: float = 3.0,
    seeds: Sequence[int] = (0,),
) -> None:
    """Print what cleaning drops, and the losses."""
    manual_seed(0)
    pages = pages_of(load_text("alice").text)
    known, story, unseen = pages[:15], pages[15:-8], "\n\n".join(pages[-8:])
    found = crawl(story, junk=junk)
    raw = [page.text for page in found]
    result = cleaned(raw, *examples(known))
    print(result.table())
    print(", ".join(f"{n} {v:.3f}" for n, v in judged(found, result.kept).items()))
    copies = {"copies": drop_duplicates, "near copies": drop_near_duplicates}
    texts = {
        "the crawl": raw,
        "without copies": clean(raw, copies).texts,
        "cleaned": result.texts,
        "the pages themselves": story,
    }
    joined = {name: "\n\n".join(some) for name, some in texts.items()}
    tokenizer = CharTokenizer.train("".join(joined.values()) + unseen)
    print("| text | bytes |", " | ".join(f"{n} steps" for n in steps), "|")
    print("| --- | ---: |", " | ".join("---:" for _ in steps), "|")
    for name, text in joined.items():
        runs = [trained(text, unseen, tokenizer, steps, seed) for seed in seeds]
        cells = [", ".join(f"{loss:.3f}" for loss in losses) for losses in zip(*runs)]
        print(
            f"| {name} | {len(text.encode()):,} |", " | ".join(cells), "|", flush=True
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[300, 600, 1200])
    parser.add_argument(
        "--junk", type=float, default=3.0, help="pages, for one of the story"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    main(**vars(parser.parse_args()))
