"""What cleans a small crawl of the web, step by step.

With this file one can make a text to learn from of a crawl (`cleaned`), and count what
each step drops. The library's `assignments/crawls.py` makes the crawl, and knows what
each page is. Run it: `python crawl.py` (seconds).
"""

from __future__ import annotations

from collections.abc import Sequence

try:
    import course  # noqa: F401  (in a workspace: use the files of this folder)
except ImportError:
    pass
from assignments.crawls import crawl, examples, judged, pages_of
from minitorch import manual_seed
from minitorch.data import load_text
from minitorch.data.cleaning import (
    Cleaned,
    TextClassifier,
    clean,
    drop_by_rules,
    drop_duplicate_lines,
    drop_duplicates,
    drop_near_duplicates,
    mask_personal,
)


def cleaned(
    texts: Sequence[str], wanted: Sequence[str], unwanted: Sequence[str]
) -> Cleaned:
    """What is left of a crawl, by all that this assignment is about.

    Args:
        texts: the pages.
        wanted, unwanted: a few texts of each kind, for a classifier; none of them is
            among the pages.

    Returns: `clean`'s; each page of the story once, without menus and footers, nothing
    else, and no address.
    """
    # BEGIN SOLUTION a15.6
    model = TextClassifier()
    model.fit([*wanted, *unwanted], [1] * len(wanted) + [0] * len(unwanted))
    steps = {
        "copies": drop_duplicates,
        "near copies": drop_near_duplicates,
        "lines": drop_duplicate_lines,
        "addresses": lambda some: [mask_personal(text)[0] for text in some],
        "rules": drop_by_rules,
        "classifier": model.drop_below,
    }
    return clean(texts, steps)
    # END SOLUTION a15.6


def main() -> None:
    """Clean a crawl of the text that ships with the library, and judge what is left."""
    manual_seed(0)
    pages = pages_of(load_text("alice").text)
    found = crawl(pages[15:])
    result = cleaned([page.text for page in found], *examples(pages[:15]))
    print(result.table())
    said = judged(found, result.kept)
    print(", ".join(f"{name} {value:.3f}" for name, value in said.items()))


if __name__ == "__main__":
    main()
