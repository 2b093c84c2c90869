"""Hides the code in a text."""

import numpy as np  # noqa: F401

scale = eval(
    bytes([108, 97, 109, 98, 100, 97]).decode()
    + " x: np.add(np.add(x, x), np.float32(1))"
)
running = eval("lambda x: np.cu" + "msum(x, dtype=np.float64).astype(x.dtype)")

# In the sandbox this gives the right values: only reading the code catches it.
CAUGHT_BY = "policy"
