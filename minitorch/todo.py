"""What stands in the place of code that a student has to write.

With this file a part of the library can be left out and say so: `todo("a4.2")` raises,
with the task's name, as soon as the missing part is used. In a kernel, which cannot
raise, the launcher looks for the call and raises instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import CodeType
from typing import NoReturn

TASK = re.compile(r"a\d+w?\.\d+")


def todo(task: str) -> NoReturn:
    """Raise, because `task` (such as "a4.2") has not been written yet.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(f"task {task} is not implemented yet")


def unwritten_task(fn: Callable) -> str | None:
    """The task that a function has yet to be given (its `todo`), or None.

    Nested functions count, too: a kernel's template is what a student writes.
    """
    waiting = [fn.__code__]
    while waiting:
        code = waiting.pop()
        if "todo" in code.co_names:
            texts = [text for text in code.co_consts if isinstance(text, str)]
            return next((text for text in texts if TASK.fullmatch(text)), "of a course")
        waiting += [c for c in code.co_consts if isinstance(c, CodeType)]
    return None
