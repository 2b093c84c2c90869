"""Tensors in files, in the safetensors format that other libraries read as well.

With this file one can store the state of a module (`save_file(model.state_dict(),
path)`) and read it again, here or in PyTorch (`load_file(path)`), and keep a whole
checkpoint of nested dicts and lists (`save(...)`, `load(path)`). A file holds numbers
and names, never code, so that reading one is safe. A file is complete or not there:
it is written under another name and renamed at the end; and what is read is what was
written: a checksum of the whole file is in its metadata (files of other programs have
none, and are read without).

The format: 8 bytes with the length of the header (little endian), the header in JSON,
which gives the dtype, the shape and the place of each tensor, and then the numbers.
Source: the documentation of safetensors.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np

from minitorch.creation import from_numpy
from minitorch.tensor import Tensor

PathLike = str | os.PathLike[str]
DTYPES = (
    "F32",
    "F64",
    "I64",
    "I32",
    "I8",
    "BOOL",
    "F16",
    "BF16",
)  # safetensors' names of what we have
SKELETON = "minitorch"  # where in the metadata the structure of a checkpoint is
VERSION = "minitorch.version"  # of the format; a file that has it has a checksum
CHECKSUM = "minitorch.sha256"  # of the file with 64 zeros in the checksum's place
BLANK = "0" * 64
ENTRY = re.compile(rb'(?<="minitorch\.sha256":")[^"]{64}(?=")')  # in the header


def save_file(
    tensors: Mapping[str, Tensor],
    filename: PathLike | IO[bytes],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors, by name, into a safetensors file.

    Args:
        metadata: strings to store beside them and beside a checksum.

    Raises:
        TypeError: something is not a tensor, or a name is not a string.
    """
    from safetensors.numpy import save as to_bytes

    from minitorch.data.files import atomic_write

    if not isinstance(tensors, Mapping):
        raise TypeError(
            f"save_file: got a {type(tensors).__name__}; expected a dict of tensors, "
            f"such as model.state_dict()"
        )
    arrays = {}
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise TypeError(
                f"save_file: {name!r} is a {type(tensor).__name__}; expected strings "
                f"with tensors; save() stores nested dicts and numbers as well"
            )
        arrays[name] = np.array(tensor.detach().cpu().numpy(), order="C")
    # "format" tells other programs whose names the tensors have: they are PyTorch's.
    strings = {"format": "pt", **(metadata or {}), VERSION: "1", CHECKSUM: BLANK}
    content = to_bytes(arrays, strings)
    digest = hashlib.sha256(content).hexdigest().encode()
    end = 8 + int.from_bytes(content[:8], "little")
    file: Any = filename
    if isinstance(filename, (str, os.PathLike)):
        file = atomic_write(filename, len(content))
    with file if file is not filename else nullcontext(file) as file:
        file.write(ENTRY.sub(digest, content[:end]))
        file.write(memoryview(content)[end:])


def load_file(filename: PathLike, device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name.

    Args:
        device: where to put them; "cpu" by default.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a complete safetensors file, or has a dtype that does
            not exist here; the message says which.
    """
    return _read(filename, device)[0]


def _read(
    filename: PathLike, device: str | None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file."""
    from safetensors import SafetensorError, safe_open

    with open(filename, "rb") as checked:
        check_file(checked)
        try:
            with safe_open(os.fspath(filename), framework="numpy") as file:
                # safetensors' arrays are read-only or not, by version: take copies
                tensors = {
                    name: from_numpy(np.array(file.get_tensor(name)), device)
                    for name in file.keys()
                }
                metadata = dict(file.metadata() or {})
        except SafetensorError as error:
            raise ValueError(f"load: {filename} is damaged: {error}") from error
        if os.path.samestat(os.fstat(checked.fileno()), os.stat(filename)):
            return tensors, metadata
    return _read(filename, device)  # somebody has put another file there meanwhile


def check_file(file: IO[bytes]) -> None:
    """Raise a ValueError that says what is wrong with a file, if something is."""
    path, size = file.name, os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > size - 8:
        if start.startswith(b"PK"):  # a zip archive of pickles
            raise ValueError(
                f"load: {path} is not a safetensors file, but one of torch.save; let "
                f"PyTorch load it and write it with safetensors.torch.save_file"
            )
        raise ValueError(
            f"load: {path} ({size} bytes) is not a safetensors file, or was cut "
            f"off in its header; write it again with minitorch.save or save_file"
        )
    header = file.read(length)
    kinds, end, metadata = _parse(path, header)
    if size != 8 + length + end:
        raise ValueError(
            f"load: {path} has {size} bytes, but its header promises "
            f"{8 + length + end}; it was cut off or changed"
        )
    if VERSION in metadata or CHECKSUM in metadata:
        _check_sum(start + header, file, metadata.get(CHECKSUM))
    other = [f"{name} ({kind})" for name, kind in kinds.items() if kind not in DTYPES]
    if other:
        raise ValueError(
            f"load: {path} has tensors of dtypes that do not exist here: "
            f"{', '.join(other)}; convert them to one of {', '.join(DTYPES)} first"
        )


def _parse(path: str, text: bytes) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """Of a header: the dtypes by name, how many bytes follow, and the metadata."""
    try:
        header = json.loads(text)
        metadata = dict(header.pop("__metadata__", None) or {})
        end = max((v["data_offsets"][1] for v in header.values()), default=0)
        return {k: v["dtype"] for k, v in header.items()}, end, metadata
    except (
        ValueError, AttributeError, KeyError, TypeError, IndexError, RecursionError
    ) as error:  # fmt: skip
        raise ValueError(
            f"load: {path} is not a safetensors file: its header is not the JSON "
            f"that it should be ({error})"
        ) from None


def _check_sum(start: bytes, rest: IO[bytes], promised: Any) -> None:
    """Raise a ValueError unless a file has the checksum that is in its metadata.

    Args:
        start: the file's header, with its length.
        rest: the file, behind its header.
    """
    digest = hashlib.sha256(ENTRY.sub(BLANK.encode(), start))
    while piece := rest.read(1 << 20):
        digest.update(piece)
    if digest.hexdigest() != promised:
        raise ValueError(
            f"load: {rest.name} is damaged: its checksum is {digest.hexdigest()}, and "
            f"was {promised} when it was written; take another copy, or write it again"
        )


# --------------------------------------------------------------------- checkpoints


def save(obj: Any, f: PathLike | IO[bytes]) -> None:
    """Write tensors, or nested dicts, lists and tuples of tensors and numbers.

    A plain dict of tensors, such as a state_dict, becomes a safetensors file like any
    other. For the rest the structure is kept in the file's metadata:
    `save({"model": model.state_dict(), "optim": opt.state_dict(), "epoch": 3}, path)`.
    A dataclass, such as a model's configuration, is stored as the dict of its fields,
    and comes back as one: `Config(**load(path)["config"])`.

    Args:
        f: a path, or a file that is open for writing bytes, such as `io.BytesIO()`.

    Raises:
        TypeError: something else is in it, such as a module; the message says where.
        ValueError: it is nested too deeply, or contains itself.
    """
    if not (isinstance(f, (str, os.PathLike)) or hasattr(f, "write")):
        raise TypeError(
            f"save: the file is a {type(f).__name__}; expected a path or an open file"
        )
    plain = isinstance(obj, Mapping) and all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in obj.items()
    )
    if plain:
        save_file(obj, f)
        return
    tensors: dict[str, Tensor] = {}
    try:
        skeleton = json.dumps(encode(obj, "", tensors))
    except RecursionError:
        raise ValueError(f"save: the object for {f} is nested too deeply") from None
    save_file(tensors, f, {SKELETON: skeleton})


def load(
    f: PathLike | IO[bytes],
    map_location: str | None = None,
    *,
    weights_only: bool = True,
) -> Any:
    """What `save` stored; of any other safetensors file the dict of its tensors.

    Args:
        f: a path, or a file that is open for reading bytes, which is read to its end.
        map_location: the device to put tensors on; "cpu" by default.
        weights_only: must be True, for a file never holds code.

    Raises:
        ValueError: the file is damaged or none of ours; the message says what is wrong.
    """
    if weights_only is not True:
        raise ValueError("load: weights_only=False is not offered; no file holds code")
    if not isinstance(f, (str, os.PathLike)):
        if not hasattr(f, "read"):
            raise TypeError(
                f"load: the file is a {type(f).__name__}; expected a path or an open "
                f"file"
            )
        with TemporaryDirectory() as folder:  # safetensors reads files with names
            path = Path(folder, type(f).__name__)
            path.write_bytes(f.read())
            return load(path, map_location)
    tensors, metadata = _read(f, map_location)
    if SKELETON not in metadata:
        return tensors
    try:
        return decode(json.loads(metadata[SKELETON]), tensors)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"load: the structure in {f} ({SKELETON!r} in its metadata) is none that "
            f"minitorch.save writes: {error}"
        ) from error


def encode(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """`value` as JSON, with its tensors put into `tensors` under their paths."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        name = path or "tensor"
        while name in tensors:
            name += "'"
        tensors[name] = value
        return {"tensor": name}
    lead = f"{path}." if path else ""
    if is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        for key in value:
            if not (key is None or isinstance(key, (bool, int, float, str))):
                raise TypeError(f"save: {path or 'the dict'} has a key {key!r}")
        pairs = [[k, encode(v, f"{lead}{k}", tensors)] for k, v in value.items()]
        return {"dict": pairs}
    if isinstance(value, (list, tuple)):
        items = [encode(v, f"{lead}{i}", tensors) for i, v in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    raise TypeError(
        f"save: {path or 'the object'} is a {type(value).__name__}; only tensors, "
        f"numbers, strings, None, and dicts, lists and tuples of them can be stored; "
        f"of a module store its state_dict()"
    )


def decode(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The opposite of `encode`."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        if content not in tensors:
            raise ValueError(f"it names a tensor {content!r}, which is not in the file")
        return tensors[content]
    if kind == "dict":
        return {key: decode(item, tensors) for key, item in content}
    if kind not in ("list", "tuple"):
        raise ValueError(f"it has a {kind!r}; expected tensor, dict, list or tuple")
    items = [decode(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items


__all__ = ["load", "load_file", "save", "save_file"]
