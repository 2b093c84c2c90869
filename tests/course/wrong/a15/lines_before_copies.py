"""a15.6 in crawl.py: copies lose all their lines."""

RIGHT = (
    '        "copies": drop_duplicates,\n'
    '        "near copies": drop_near_duplicates,\n'
    '        "lines": drop_duplicate_lines,\n'
)
WRONG = (
    '        "lines": drop_duplicate_lines,\n'
    '        "copies": drop_duplicates,\n'
    '        "near copies": drop_near_duplicates,\n'
)
