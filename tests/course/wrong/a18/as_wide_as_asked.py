"""a18.3 in minitorch/serving/cache.py: no more entries than were asked for."""

RIGHT = "pages = max(pages, -(-int((firsts + counts).max()) // self.block_size))"
WRONG = "pages = max(pages, -(-int(counts.max()) // self.block_size))"
