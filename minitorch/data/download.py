"""With this file one can fetch a file from the first place that has the right one
(`download`): within seconds or not at all, and never half of it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, TypeVar

from minitorch.data.files import atomic_write

T = TypeVar("T")

# (place, why not) for each place that was tried.
Tried = list[tuple[str, str]]

# Seconds until a server must answer. A machine without a network finds out soon.
ANSWER_WITHIN = 3.0
# Seconds of silence in the middle of a download after which a server is given up.
SILENCE = 10.0


def download(
    urls: Sequence[str],
    target: Path,
    check: Callable[[Path], T],
    tried: Tried,
    most: int,
) -> T | None:
    """Fetch a file to `target` from the first of `urls` that has it.

    It comes to `check` under a temporary name, and to its own only then: what is at
    `target` is right.

    Args:
        check: reads the file; raises a ValueError if it is wrong.
        tried: gets a line for each place that did not have it.
        most: bytes; a server that sends more sends something else.

    Returns what `check` does; None if no place has the file.
    """
    from http.client import HTTPException
    from tempfile import TemporaryFile

    cache = target.parent
    try:
        cache.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=cache).close()
    except OSError as error:
        tried.append((f"cache {cache}", f"cannot be written ({error}); no download"))
        return None
    for url in urls:
        try:
            return _fetch(url, target, check, most)
        except (OSError, ValueError, HTTPException) as error:
            tried.append((url, f"{type(error).__name__}: {error}"))
    return None


def put_aside(path: Path) -> str:
    """Rename a broken file, so that another may come; says what became of it."""
    aside = path.with_name(path.name + ".broken")
    try:
        os.replace(path, aside)
    except OSError as error:
        return f"and it cannot be put aside: {error}"
    return f"it is now {aside.name}"


def _fetch(url: str, target: Path, check: Callable[[Path], T], most: int) -> T:
    arrived = target.with_name(f".{target.name}.{os.urandom(8).hex()}.arrived")
    try:
        with closing(_open(url)) as response, atomic_write(arrived) as out:
            _copy(response, out, target.name, most)
        content = check(arrived)
        os.replace(arrived, target)
        return content
    finally:
        arrived.unlink(missing_ok=True)


def _copy(response: Any, out: IO[bytes], name: str, most: int) -> None:
    """Copies a download piece by piece."""
    length = response.headers.get("Content-Length") or ""
    total = int(length) if length.isdecimal() else None
    done = 0
    while piece := response.read(1 << 16):
        out.write(piece)
        done += len(piece)
        if done > most:
            raise ValueError(f"sends more than {most} bytes; not {name}")
    if total is not None and done != total:
        raise ValueError(f"sent {done} of {total} bytes")


def _open(url: str) -> Any:
    """urlopen that returns or raises within ANSWER_WITHIN seconds.

    Its own timeout does not cover the look-up of the name, which can take a minute
    on a machine whose network is down; so it runs in a thread that may be left alone.
    """
    from urllib.request import Request, urlopen

    answer: list[Any] = []
    gave_up = threading.Event()

    def ask() -> None:
        request = Request(url, headers={"User-Agent": "minitorch"})
        try:
            response = urlopen(request, timeout=SILENCE)
        except Exception as error:
            answer.append(error)
            return
        answer.append(response)
        if gave_up.is_set():
            response.close()

    thread = threading.Thread(target=ask, name="minitorch-download", daemon=True)
    started = time.monotonic()
    thread.start()
    thread.join(ANSWER_WITHIN)
    if not answer:
        gave_up.set()
        waited = time.monotonic() - started
        raise TimeoutError(f"no answer within {waited:.1f} s")
    if isinstance(answer[0], Exception):
        raise answer[0]
    return answer[0]
