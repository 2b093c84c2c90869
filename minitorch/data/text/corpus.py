"""With this file one can get a text on any machine: `load_text` returns tinyshakespeare
where that can be had, and a text that comes with the library where it cannot.

    >>> data = load_text()
    >>> len(data.text), data.source
    (1115394, 'tinyshakespeare')

tinyshakespeare is 1.1 MB of Shakespeare's plays, put together by Andrej Karpathy for
char-rnn (2015). `alice.txt`, beside this file, is chapters I to V of Lewis Carroll's
"Alice's Adventures in Wonderland" (1865), after the Millennium Fulcrum Edition 2.9.
Both are in the public domain.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from minitorch.data.download import Tried, download, put_aside
from minitorch.data.files import DATA_VARIABLE, cache_folder, user_folders
from minitorch.warn import warn

TINYSHAKESPEARE, SHIPPED = "tinyshakespeare", "alice"
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
URLS: Sequence[str] = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
    "input.txt",
)
MAX_DOWNLOAD = 4 << 20
# Under which a folder may have it.
NAMES = ("tinyshakespeare/input.txt", "input.txt", "tinyshakespeare.txt")


class TextFileError(RuntimeError):
    """A file or folder that the user named has no such text. It is left as it is, and
    nothing else is used in its place."""


@dataclass(frozen=True)
class TextData:
    """A text, and where it is from.

    `source`: "tinyshakespeare", "alice" or a file's path. `notice`: what the user
    should be told, such as why it is another one; "" if nothing.
    """

    text: str
    source: str
    notice: str = ""

    def split(self, share: float = 0.9) -> tuple[str, str]:
        """Training and validation text: the first 90 %, and the rest."""
        end = int(len(self.text) * share)
        return self.text[:end], self.text[end:]


def load_text(
    source: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    allow_download: bool = True,
) -> TextData:
    """A text to learn from.

    tinyshakespeare is looked for in `data_dir`, in the folder that the environment
    variable MINITORCH_DATA names, in the cache (see `cache_folder`), and where nanoGPT
    has it from; a download goes into the cache. A folder that was named must have it.

    Args:
        source: "tinyshakespeare", "alice", or the name of a file in UTF-8; None:
            tinyshakespeare, or "alice" with a `notice` where that cannot be had.

    Raises:
        TextFileError: for a file that is not there, or another one, in a folder that
            the user named, since another text in its place would hide that; or for
            tinyshakespeare where it cannot be had, if that was asked for.
    """
    if source == SHIPPED:
        return _shipped("")
    if source not in (None, TINYSHAKESPEARE):
        return TextData(_read(Path(source or "").expanduser()), str(source))
    for origin, folder in user_folders(data_dir):
        path = _find(folder)
        if path is None:
            raise TextFileError(
                f"tinyshakespeare: none of {', '.join(NAMES)} is in {folder}, which "
                f"{origin} names. Put it there, or name no folder to have it looked for"
            )
        return TextData(_checked(path), TINYSHAKESPEARE)
    tried: Tried = []
    text = _from_cache(tried, allow_download)
    if text is not None:
        return TextData(text, TINYSHAKESPEARE)
    lines = "".join(f"\n  {place}: {reason}" for place, reason in tried)
    missing = (
        f"tinyshakespeare is not to be had. Tried:{lines}\nPut it into a folder as "
        f"{NAMES[0]}, and name that in the environment variable {DATA_VARIABLE}"
    )
    if source is not None:
        raise TextFileError(missing)
    return _shipped(f"This is the beginning of Alice in Wonderland. {missing}")


def _shipped(notice: str) -> TextData:
    path = Path(__file__).with_name(f"{SHIPPED}.txt")
    return TextData(_read(path), SHIPPED, notice)


def _read(path: Path) -> str:
    """A file of text, its lines ended as they are."""
    try:
        if content := path.read_bytes().decode("utf-8"):
            return content
    except OSError as error:
        raise TextFileError(
            f"text: {path} cannot be read ({error.strerror or error}); expected "
            f"{TINYSHAKESPEARE!r}, {SHIPPED!r}, or the name of a file of text"
        ) from error
    except UnicodeDecodeError as error:
        raise TextFileError(
            f"text: {path} is no text in UTF-8: {error.reason} at byte {error.start}; "
            f"convert it first"
        ) from error
    raise TextFileError(f"text: {path} is empty; expected a text to learn from")


def _find(folder: Path) -> Path | None:
    return next((folder / n for n in NAMES if (folder / n).is_file()), None)


def _checked(path: Path) -> str:
    """The text of tinyshakespeare in a file."""
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise TextFileError(
            f"tinyshakespeare: {path} ({len(content)} bytes) is another text: its "
            f"sha256 is {digest}, and should be {SHA256}. The file was left as it is. "
            f"To learn from it, give its name as the source"
        )
    return content.decode("utf-8")


def _arrived(path: Path) -> str:
    """The same, for a download."""
    try:
        return _checked(path)
    except TextFileError as error:
        raise ValueError(
            "sent a wrong file: its sha256 is not the right one"
        ) from error


def _from_cache(tried: Tried, allow_download: bool) -> str | None:
    """What is in the cache, or comes into it; a wrong file is put aside."""
    path = cache_folder("text") / "tinyshakespeare.txt"
    try:
        return _checked(path)
    except OSError:
        tried.append((f"cache {path.parent}", "not in it"))
    except TextFileError as error:
        aside = put_aside(path)
        warn(f"{error}; {aside}")
        tried.append((f"cache {path.parent}", f"broken; {aside}"))
    if not allow_download:
        tried.append(("download", "not allowed (allow_download=False)"))
        return None
    return download(URLS, path, _arrived, tried, MAX_DOWNLOAD)
