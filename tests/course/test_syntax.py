"""Parsing in several threads."""

from __future__ import annotations

import ast
import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

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


LIBRARY = "import math\n\ndef f(x):\n    return math.exp(x)\n"


@pytest.mark.parametrize(
    "line",
    [
        "import random",
        "import numpy as np  # for later",
        "from operator import index",
        "import os, sys",
        "import os.path",
        "from collections import deque as queue, Counter",
    ],
)
def test_an_import_that_nobody_uses_is_left_out(line):
    rest = '"""About random numbers."""\n\ndef f(x):\n    return x.random\n'
    assert syntax.without_unused(f"{line}\n{rest}", LIBRARY) == f"\n{rest}"
    tried = f'{line}\n{rest}\n\nif __name__ == "__main__":\n    print(random)\n'
    assert syntax.without_unused(syntax.without_main(tried), LIBRARY)[0] == "\n"


@pytest.mark.parametrize(
    "text",
    [
        "import math\n",  # the library's functions may need it
        "from cmath import *\n",
        "import torch\n",
        "import random, torch\n",
        "from os import *\n",
        "from .os import path\n",
        "if True:\n    import random\n",
        "x = 1; import random\n",
        "import random; x = 1\n",
        "import random\nx = random.random()\n",
        "import random\nx: random.Random\n",
        "import random\nx: 'random.Random'\n",
        "import random\nx = globals()['random']\n",
        "import random\ndef random(x): pass\n",
        "import random\ndef f(random): pass\n",
        "import random\ndef f():\n    global random\n",
        "import random\nfrom a import random\n",
        "import random\nmatch 1:\n    case random: pass\n",
        "from random import (\n    random\n)\n",
    ],
)
def test_other_lines_stay(text):
    assert syntax.without_unused(text, LIBRARY) == text
