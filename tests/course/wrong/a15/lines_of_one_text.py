"""a15.1 in minitorch/data/cleaning/duplicates.py: each text is counted alone."""

RIGHT = '        lines = text.split("\\n")\n'
WRONG = (
    '        lines = text.split("\\n")\n'
    "        counts = Counter(digest(line.strip()) for line in lines)\n"
    '        counts[digest("")] = 0\n'
)
