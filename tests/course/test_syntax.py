"""Parsing in several threads."""

from __future__ import annotations

import ast
import gc
import sys
from concurrent.futures import ThreadPoolExecutor

from assignments import catalog, syntax


def test_threads_may_parse_at_the_same_time():
    """With a hook into the garbage collector, threads take turns inside of a parse."""
    text = (catalog.LIBRARY / "minitorch" / "operators.py").read_text()
    right = ast.dump(ast.parse(text))

    def hook(phase, info):
        sum(range(50))

    interval = sys.getswitchinterval()
    gc.callbacks.append(hook)
    sys.setswitchinterval(1e-4)
    try:
        with ThreadPoolExecutor(2) as pool:
            trees = list(pool.map(syntax.parse, [text] * 16))
    finally:
        sys.setswitchinterval(interval)
        gc.callbacks.remove(hook)
    assert all(ast.dump(tree) == right for tree in trees)
