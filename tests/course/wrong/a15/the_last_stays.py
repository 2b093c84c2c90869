"""a15.1 in minitorch/data/cleaning/duplicates.py: the last copy stays."""

RIGHT = "    for text in texts:\n        key = digest(text)\n        out.append("
WRONG = (
    "    for text in reversed(texts):\n"
    "        key = digest(text)\n"
    "        out.insert(0, "
)
