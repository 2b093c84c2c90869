"""a15.3 in minitorch/data/cleaning/duplicates.py: the same numbers in another band."""

RIGHT = (
    "    for start in range(0, width, rows):\n"
    "        buckets: dict[tuple[int, ...], list[int]] = defaultdict(list)\n"
)
WRONG = (
    "    buckets: dict[tuple[int, ...], list[int]] = defaultdict(list)\n"
    "    for start in range(0, width, rows):\n"
)
