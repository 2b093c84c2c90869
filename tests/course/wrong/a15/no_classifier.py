"""a15.6 in crawl.py: adverts stay."""

RIGHT = '        "classifier": model.drop_below,\n'
WRONG = ""
