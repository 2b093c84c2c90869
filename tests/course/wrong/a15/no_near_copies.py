"""a15.6 in crawl.py: copies that were changed stay."""

RIGHT = '        "near copies": drop_near_duplicates,\n'
WRONG = ""
