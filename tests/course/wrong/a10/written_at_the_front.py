"""a10.6 in minitorch/models/cache.py: each token is written over the first one."""

RIGHT = "        self.writing = first + self.slot\n"
WRONG = "        self.writing = first\n"
