"""a15.6 in crawl.py: texts lose their signs, and addresses with them."""

RIGHT = "[mask_personal(text)[0] for text in some]"
WRONG = '[t.replace("@", " at ").replace("(", "").replace("192.", "") for t in some]'
