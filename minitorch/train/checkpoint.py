"""Checkpoints: everything that a training run remembers, in one safetensors file.

With this file one can write a checkpoint (`save_checkpoint`), read it
(`load_checkpoint`) and find the one of a run (`find_checkpoint`). Tensors are stored
under the path that leads to them, `model.conv1.weight`, so other programs can read the
weights; all else is JSON in the file's metadata (`minitorch/serialization.py`). A file
is either the old one or the new one, never half of one, whatever happens while it is
written. The ranks that share a run write a folder in its place, `last` for
`last.safetensors` (`minitorch/distributed/checkpoint/storage.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitorch.serialization import load, save
from minitorch.tensor import Tensor

LAST, BEST = "last.safetensors", "best.safetensors"
METADATA = ".metadata"  # a folder with it is a checkpoint of ranks
FORMAT = 1


class CheckpointError(RuntimeError):
    """A checkpoint that is not there, or cannot be read; the message says why."""


def save_checkpoint(path: Path, state: Mapping[str, Any], ranks: int = 1) -> None:
    """Write `state`: nested dicts, lists and tuples of tensors, numbers and text; if
    ranks share the run, what each of them has.

    Raises:
        OSError: the folder cannot be written to.
        CheckpointException: the same, of one rank, on all of them.
        TypeError: `state` holds something else.
    """
    content, folder = {**state, "format": FORMAT}, path.with_suffix("")
    if ranks == 1:
        save(content, path)
        shutil.rmtree(folder, ignore_errors=True)
        return
    from minitorch.distributed import checkpoint

    checkpoint.save(content, checkpoint_id=folder)
    path.unlink(missing_ok=True)


def all_finite(weights: Mapping[str, Any]) -> bool:
    """Whether no weight here became infinite, or no number: is it worth keeping?"""
    here: list[Tensor] = [getattr(w, "local", w) for w in weights.values()]
    return all(bool(np.isfinite(w.cpu().numpy()).all()) for w in here)


def load_checkpoint(path: Path, whole: bool = True) -> dict[str, Any]:
    """What `save_checkpoint` was given; tensors come back on the device "cpu".

    Args:
        whole: read all of a folder; else it has `StoredTensor`s, unchecked.

    Raises:
        CheckpointError: the file is missing, damaged, or something else.
    """
    try:
        content = _open(path, whole) if path.is_dir() else load(path)
    except (ValueError, OSError) as error:
        if not path.exists():
            raise CheckpointError(f"checkpoint: there is no file {path}") from None
        raise CheckpointError(
            f"checkpoint: {path} cannot be read ({error}); if it is damaged, resume "
            f"from the run's {'best' if path.is_dir() else BEST}"
        ) from error
    if not (isinstance(content, dict) and isinstance(content.get("format"), int)):
        raise CheckpointError(
            f"checkpoint: {path} was not written by minitorch train; expected the "
            f"{LAST} or {BEST} of a run"
        )
    if content["format"] != FORMAT:
        raise CheckpointError(
            f"checkpoint: {path} has format {content['format']}; this version reads "
            f"format {FORMAT}"
        )
    del content["format"]
    return content


def _open(path: Path, whole: bool) -> dict[str, Any]:
    from minitorch.distributed import checkpoint

    before = (path / METADATA).read_bytes()
    try:
        state = checkpoint.open_state(path)
        if whole:
            checkpoint.check(path)
        return checkpoint.whole(state) if whole else state
    except FileNotFoundError:
        if (path / METADATA).read_bytes() == before:
            raise
        return _open(path, whole)  # ranks have put another one there meanwhile


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of a run: a file, or a folder if ranks shared the run."""
    names = folder / LAST, folder / "last" / METADATA
    found = [(x.stat().st_mtime_ns, x) for x in names if x.exists()]
    newest = max(found, default=(0, None))[1]
    return newest.parent if newest and newest.name == METADATA else newest


def find_checkpoint(path: Path) -> Path:
    """The checkpoint that `--resume path` means: a file, a folder that ranks wrote, or
    the last one in a run's folder.

    Raises:
        CheckpointError: there is none.
    """
    if not path.exists():
        raise CheckpointError(f"checkpoint: there is no file or folder {path}")
    if not path.is_dir() or (path / METADATA).exists():
        return path
    last = last_checkpoint(path)
    if last is None:
        raise CheckpointError(
            f"checkpoint: the folder {path} holds no {LAST}; give the folder of a "
            f"run that got as far as its first checkpoint"
        )
    return last
