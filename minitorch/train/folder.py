"""The folder of a run.

With this file one can choose a folder (`default_folder`) and get it ready
(`prepare_folder`) so that nothing of an earlier run is lost.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryFile

from minitorch.data.files import remove_leftovers
from minitorch.train.checkpoint import BEST, LAST
from minitorch.train.config import ConfigError
from minitorch.train.profiled import TRACE
from minitorch.train.tracking import METRICS

TEXT = ("tokenizer.json", "train.bin", "val.bin")
NAMES = (
    LAST,
    BEST,
    "last",
    "best",
    TRACE,
    METRICS,
    "metrics.json",
    "config.json",
    "curves.png",
    "boundary.png",
    "confusion.png",
    "mistakes.png",
    "tensorboard",
    "wandb",
    *TEXT,
)


def default_folder(recipe: str) -> Path:
    """runs/<recipe>-<date and time>, a name that is not taken yet."""
    stem = f"{recipe}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = Path("runs", stem), 1
    while folder.exists():
        number += 1
        folder = Path("runs", f"{stem}-{number}")
    return folder


def prepare_folder(folder: Path, resuming: bool) -> None:
    """Make the folder; files of an earlier run in it move to `previous-<number>`.

    Raises:
        ConfigError: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        if not resuming:
            _put_aside(folder)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigError(
            "out", f"cannot write to the folder {folder}: {error.strerror or error}"
        ) from error


def _put_aside(folder: Path) -> None:
    old = [folder / name for name in NAMES if (folder / name).exists()]
    if not old:
        return
    number = 1
    while (folder / f"previous-{number}").exists():
        number += 1
    aside = folder / f"previous-{number}"
    aside.mkdir()
    for file in old:
        file.rename(aside / file.name)
