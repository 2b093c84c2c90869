"""a15.6 in crawl.py: addresses stay."""

RIGHT = '        "addresses": lambda some: [mask_personal(text)[0] for text in some],\n'
WRONG = ""
