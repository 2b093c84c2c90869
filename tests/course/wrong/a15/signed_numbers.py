"""a15.2 in minitorch/data/cleaning/duplicates.py: products that do not fit."""

RIGHT = (
    "some = self.a[:, None] * x[start : start + BLOCK] + self.b[:, None]\n"
    "            least = np.minimum(least, (some % np.uint64(PRIME)).min(1))"
)
WRONG = (
    "a, b = self.a.astype(np.int64), self.b.astype(np.int64)\n"
    "            some = a[:, None] * x[start : start + "
    "BLOCK].astype(np.int64) + b[:, None]\n"
    "            least = np.minimum(least, (some % PRIME).min(1).astype(np.uint64))"
)
