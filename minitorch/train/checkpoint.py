"""Checkpoints: everything that a training run remembers, in one safetensors file.

With this file one can write a checkpoint (`save_checkpoint`), read it
(`load_checkpoint`) and find the one of a run (`find_checkpoint`). Tensors are stored
under the path that leads to them, `model.conv1.weight`, so other programs can read the
weights; all else is JSON in the file's metadata. A file is either the old one or the
new one, never half of one, whatever happens while it is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitorch.tensor import Tensor

LAST, BEST = "last.safetensors", "best.safetensors"
KEY = "minitorch.checkpoint"
VERSION = 1


class CheckpointError(RuntimeError):
    """A checkpoint that is not there, or cannot be read; the message says why."""


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write `state`: nested dicts, lists and tuples of tensors, numbers and text.

    Raises:
        OSError: the folder cannot be written to.
        TypeError: `state` holds something else.
    """
    from safetensors.numpy import save

    from minitorch.data import atomic_write

    tensors: dict[str, np.ndarray] = {}
    skeleton = _take_apart(dict(state), "", tensors)
    text = json.dumps({"version": VERSION, "state": skeleton})
    blob = save(tensors, metadata={KEY: text})
    with atomic_write(path) as file:
        file.write(blob)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What `save_checkpoint` was given; tensors come back on the device "cpu".

    Raises:
        CheckpointError: the file is missing, damaged, or something else.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="np") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except FileNotFoundError:
        raise CheckpointError(f"checkpoint: there is no file {path}") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"checkpoint: {path} cannot be read as safetensors: {error}; if it is "
            f"damaged, resume from another one ({BEST})"
        ) from error
    if KEY not in metadata:
        raise CheckpointError(
            f"checkpoint: {path} holds tensors, but was not written by minitorch "
            f"train; expected a {LAST} or {BEST}"
        )
    content = json.loads(metadata[KEY])
    if content["version"] != VERSION:
        raise CheckpointError(
            f"checkpoint: {path} has format {content['version']}; this version reads "
            f"format {VERSION}"
        )
    return _put_together(content["state"], tensors)


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


def _take_apart(value: Any, name: str, tensors: dict[str, np.ndarray]) -> Any:
    """`value` in terms of JSON; tensors go into `tensors`, their name takes the place.

    What JSON does not know is a dict with one key that begins with $.
    """
    if isinstance(value, Tensor):
        tensors[name] = np.ascontiguousarray(value.detach().cpu().numpy())
        return {"$tensor": name}
    if isinstance(value, Mapping):
        # Pairs, since JSON would turn keys that are numbers into text.
        pairs = [[k, _take_apart(v, _join(name, k), tensors)] for k, v in value.items()]
        return {"$dict": pairs}
    if isinstance(value, (list, tuple)):
        items = [_take_apart(v, _join(name, i), tensors) for i, v in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"save_checkpoint: {name} is a {type(value).__name__}; expected tensors, "
        f"numbers, text, or dicts, lists and tuples of these"
    )


def _put_together(value: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    """The inverse of `_take_apart`."""
    from minitorch.creation import tensor

    if isinstance(value, list):
        return [_put_together(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "$tensor" in value:
        return tensor(tensors[value["$tensor"]])
    if "$tuple" in value:
        return tuple(_put_together(item, tensors) for item in value["$tuple"])
    return {key: _put_together(item, tensors) for key, item in value["$dict"]}


def _join(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)
