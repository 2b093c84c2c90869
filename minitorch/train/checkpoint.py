"""Checkpoints: everything that a training run remembers, in one safetensors file.

With this file one can write a checkpoint (`save_checkpoint`), read it
(`load_checkpoint`) and find the one of a run (`find_checkpoint`). Tensors are stored
under the path that leads to them, `model.conv1.weight`, so other programs can read the
weights; all else is JSON in the file's metadata (`minitorch/serialization.py`). A file
is either the old one or the new one, never half of one, whatever happens while it is
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitorch.serialization import load, save
from minitorch.tensor import Tensor

LAST, BEST = "last.safetensors", "best.safetensors"
FORMAT = 1


class CheckpointError(RuntimeError):
    """A checkpoint that is not there, or cannot be read; the message says why."""


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write `state`: nested dicts, lists and tuples of tensors, numbers and text.

    Raises:
        OSError: the folder cannot be written to.
        TypeError: `state` holds something else.
    """
    save({**state, "format": FORMAT}, path)


def all_finite(weights: Mapping[str, Tensor]) -> bool:
    """Whether no weight became infinite, or no number: is it worth keeping?"""
    return all(bool(np.isfinite(w.cpu().numpy()).all()) for w in weights.values())


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What `save_checkpoint` was given; tensors come back on the device "cpu".

    Raises:
        CheckpointError: the file is missing, damaged, or something else.
    """
    try:
        content = load(path)
    except FileNotFoundError:
        raise CheckpointError(f"checkpoint: there is no file {path}") from None
    except (ValueError, OSError) as error:
        raise CheckpointError(
            f"checkpoint: {path} cannot be read ({error}); if it is damaged, resume "
            f"from the run's {BEST}"
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


def find_checkpoint(path: Path) -> Path:
    """The checkpoint file that `--resume path` means: a file, or a run's folder.

    Raises:
        CheckpointError: there is none.
    """
    if path.is_dir():
        if not (path / LAST).exists():
            raise CheckpointError(
                f"checkpoint: the folder {path} holds no {LAST}; give the folder of a "
                f"run that got as far as its first checkpoint"
            )
        return path / LAST
    if not path.exists():
        raise CheckpointError(f"checkpoint: there is no file or folder {path}")
    return path
