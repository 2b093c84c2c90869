"""Checkpoints that all ranks write together, each what it has.

With this file a state in parts is saved (`save`) and read again (`load`, `open_state`)
by any number of ranks that have it in any parts, or by one process:

    save({"model": get_model_state_dict(model), "step": 3}, checkpoint_id="last")

    last/.metadata               JSON: where each box of each tensor is; all else; and
                                 a checksum of itself
    last/__0_9f2c.safetensors    what rank 0 has written, and so on

What several ranks have is written by one of them. Parts get names that are new, and
count only when `.metadata`, which is renamed last, names them: until then the folder
holds the checkpoint that it held before.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from minitorch.autodiff import no_grad
from minitorch.creation import empty, from_numpy
from minitorch.data.files import atomic_write
from minitorch.distributed.group import CheckpointException, world
from minitorch.distributed.objects import all_gather_object
from minitorch.distributed.tensor.placement import Box, Shape, ShardedTensor, at
from minitorch.dtypes import by_name
from minitorch.nn.module import misfits
from minitorch.serialization import PathLike, check_file, decode, encode, save_file
from minitorch.tensor import Tensor

METADATA, PARTS, FORMAT = ".metadata", "__*.safetensors", 2
Result = TypeVar("Result")


class Leaf(NamedTuple):
    """What stands at a place of a nested state: a `value`, or a tensor.

    Attributes:
        path: the keys that lead there.
        value: as JSON.
        shape, dtype: of the whole tensor; None: it is none.
        boxes: those that a rank has; when they are planned or written (the name of a
            file, the name there, box).
    """

    path: Sequence[Any]
    value: Any = None
    shape: Shape | None = None
    dtype: str = ""
    boxes: Sequence[Any] = ()


class StoredTensor:
    """A tensor of a checkpoint, of which only what is asked for is read: `x[1:3, 0:2]`.

    Args:
        leaf: what is known of it.
        opened: from the name of a file, safetensors' handle of it.
    """

    def __init__(self, leaf: Leaf, opened: Callable[[str], Any]) -> None:
        self.shape: Shape = tuple(leaf.shape or ())
        self.dtype = by_name(leaf.dtype)
        self.boxes, self.opened = leaf.boxes, opened

    def __getitem__(self, where: tuple[slice, ...]) -> Tensor:
        out = empty([s.stop - s.start for s in where], dtype=self.dtype, device="cpu")
        for file, key, box in self.boxes:
            both = [
                range(max(start, s.start), min(start + size, s.stop))
                for s, start, size in zip(where, *box)
            ]
            if all(both):
                there, here = (
                    tuple(slice(r.start - o, r.stop - o) for r, o in zip(both, origin))
                    for origin in (box[0], [s.start for s in where])
                )
                numbers = self.opened(file).get_slice(key)[there]
                out[here] = from_numpy(np.array(numbers))
        return out

    def whole(self) -> Tensor:
        """All of it, on the CPU."""
        return self[at(((0,) * len(self.shape), self.shape))]


# ------------------------------------------------------------------------- all ranks


def save(state_dict: Mapping[str, Any], *, checkpoint_id: PathLike) -> None:
    """Write a state of which each rank has a part. All ranks must call this.

    Args:
        state_dict: nested dicts of tensors, `ShardedTensor`s, and what `minitorch.save`
            takes besides. Tensors are alike on all ranks that have them; of other
            values, that of the first rank counts.
        checkpoint_id: a folder, which all ranks see.

    Raises:
        CheckpointException: on all ranks, if one failed; what the folder held before
            is as it was.
        ValueError: on all ranks, if their tensors do not make a whole.
    """
    folder, leaves = Path(checkpoint_id), dict[str, Any]()

    def look() -> tuple[dict[str, Leaf], str]:
        folder.mkdir(parents=True, exist_ok=True)
        leaves.update(_flat(state_dict))
        return {k: _described(k, *x) for k, x in leaves.items()}, os.urandom(4).hex()

    every = together("save", look)
    names = [PARTS.replace("*", f"{rank}_{every[0][1]}") for rank in range(len(every))]
    me, plan = _rank(), _planned([described for described, _ in every], names)
    file = folder / names[me]

    def write() -> int:
        mine: dict[str, Tensor] = {}
        for name, (_, value) in leaves.items():
            here = dict(_pieces(value))
            ours = [x for x in plan[name].boxes if x[0] == names[me]]
            mine |= {key: here[box] for _, key, box in ours}
        save_file(mine, file)
        return file.stat().st_size

    def commit() -> None:
        content = {"format": FORMAT, "files": files, "state": list(plan.values())}
        if me == 0:
            _commit(folder, content)

    try:
        files = dict(zip(names, together("save", write)))
        together("save", commit)
    except CheckpointException:
        file.unlink(missing_ok=True)
        raise


@no_grad()
def load(state_dict: dict[str, Any], *, checkpoint_id: PathLike) -> None:
    """Fill the tensors of a nested state from a checkpoint, whoever wrote it, and put
    its other values in place of the state's. An empty dict, as is the state of an
    optimizer before its first step, gets all that is there. All ranks must call this.

    Raises:
        CheckpointException: on all ranks, if a part is missing or damaged, or a rank's
            state has what the checkpoint has not; nothing was changed then.
    """
    leaves = _flat(state_dict)

    def look() -> None:
        check(checkpoint_id)
        found.update(_flat(open_state(checkpoint_id)))
        for name in [k for k, (_, x) in leaves.items() if isinstance(x, Mapping)]:
            below = {k: x for k, x in found.items() if k.startswith(f"{name}.")}
            leaves.update(below)
            if below:
                leaves.pop(name)
        wanted = {name: x for name, (_, x) in leaves.items() if _is_tensor(x)}
        there = {name: found[name][1] for name in wanted if name in found}
        problems = misfits(wanted, there, kinds=(StoredTensor,))
        problems += [f"missing: {k!r}" for k in leaves if k not in found | wanted]
        if problems:
            raise ValueError(
                f"{checkpoint_id} is of another model:\n    " + "\n    ".join(problems)
            )

    def fill() -> None:
        for name, (path, x) in leaves.items():
            value = found[name][1]
            if isinstance(x, ShardedTensor):
                x.local.copy_(x.layout.part(value))
            elif isinstance(x, Tensor):
                x.copy_(value.whole())
            else:
                _put(state_dict, path, value)

    found: dict[str, Any] = {}
    together("load", look)
    together("load", fill)


def together(caller: str, fn: Callable[[], Result]) -> list[Result]:
    """What `fn`, which waits for no other rank, returns on each. All must call this.

    Raises:
        CheckpointException: on all ranks, if `fn` failed on one.
    """
    group, mine, cause = world(), list[Any]([None, ""]), None
    try:
        mine[0] = fn()
    except Exception as error:
        mine[1], cause = f"{type(error).__name__}: {error}", error
    every: list[Any] = [mine] * (1 if group is None else group.size())
    if group is not None:
        all_gather_object(every, mine, group)
    failures = {rank: text for rank, (_, text) in enumerate(every) if text}
    if failures:
        raise CheckpointException(caller, failures) from cause
    return [found for found, _ in every]


def _rank() -> int:
    group = world()
    return 0 if group is None else group.rank()


# ---------------------------------------------------------------------------- to read


def open_state(checkpoint_id: PathLike) -> dict[str, Any]:
    """The nested state that was saved, with a `StoredTensor` for each tensor.

    Raises:
        FileNotFoundError: the folder holds no checkpoint, or not all of it.
        ValueError: a file of it was cut off, or is none of ours.
    """
    from safetensors import safe_open

    folder = Path(checkpoint_id)
    content = _metadata(folder)
    for name, size in content["files"].items():
        now = (folder / name).stat().st_size
        if now != size:
            raise ValueError(
                f"{folder / name} has {now} bytes, and had {size} when it was written; "
                f"it was cut off or changed"
            )
    opened = cache(lambda name: safe_open(folder / name, framework="numpy"))
    state: dict[str, Any] = {}
    for entry in content["state"]:
        leaf = Leaf(*entry)
        tensor = leaf.shape is not None
        value = StoredTensor(leaf, opened) if tensor else decode(leaf.value, {})
        _put(state, leaf.path, value)
    return state


def check(checkpoint_id: PathLike) -> None:
    """Raise a ValueError if a file is damaged. Each rank looks at some of them."""
    group, folder = world(), Path(checkpoint_id)
    ranks = 1 if group is None else group.size()
    for name in list(_metadata(folder)["files"])[_rank() :: ranks]:
        with open(folder / name, "rb") as file:
            check_file(file)


def whole(state: Any) -> Any:
    """The same nested dicts, with all numbers of their stored tensors."""
    if isinstance(state, StoredTensor):
        return state.whole()
    nested = isinstance(state, dict)
    return {key: whole(x) for key, x in state.items()} if nested else state


def _metadata(folder: Path) -> dict[str, Any]:
    path = folder / METADATA
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} is none of this version, which has format {FORMAT}")
    if content.pop("sha256", None) != _digest(content):
        raise ValueError(f"{path} is damaged: its checksum is not that of its content")
    return content


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _put(state: dict[Any, Any], path: Sequence[Any], value: Any) -> None:
    for key in path[:-1]:
        state = state.setdefault(key, {})
    if not (isinstance(value, dict) and path[-1] in state):  # {}, and there is more
        state[path[-1]] = value


# --------------------------------------------------------------------------- to write


def _is_tensor(x: Any) -> bool:
    return isinstance(x, (Tensor, ShardedTensor, StoredTensor))


def _flat(state: Mapping[Any, Any], path: tuple[Any, ...] = ()) -> dict[str, Any]:
    """All that stands in nested dicts: {"model.weight": (("model", "weight"), x)}."""
    found: dict[str, Any] = {}
    encode(dict.fromkeys(state), ".".join(map(str, path)), {})  # an error of a key
    for key, value in state.items():
        where = (*path, key)
        nested = isinstance(value, Mapping) and value
        name = ".".join(map(str, where))
        inner = _flat(value, where) if nested else {name: (where, value)}
        if twice := found.keys() & inner.keys():
            raise ValueError(f"two places of the state are named {sorted(twice)[0]!r}")
        found |= inner
    return found


def _pieces(x: Any) -> list[tuple[Box, Tensor]]:
    """The boxes of a tensor that are here."""
    if isinstance(x, ShardedTensor):
        return x.layout.pieces(x.local)
    return [(((0,) * x.dim(), tuple(x.shape)), x)] if isinstance(x, Tensor) else []


def _described(name: str, path: Sequence[Any], x: Any) -> Leaf:
    """What other ranks have to know of a leaf."""
    if _is_tensor(x):
        dtype = (x.local if isinstance(x, ShardedTensor) else x).dtype.name
        return Leaf(path, None, tuple(x.shape), dtype, [box for box, _ in _pieces(x)])
    tensors: dict[str, Tensor] = {}
    value = encode(x, name, tensors)
    if tensors:
        raise TypeError(f"{name} is a {type(x).__name__} with tensors; expected a dict")
    return Leaf(path, value)


def _planned(
    found: Sequence[Mapping[str, Leaf]], names: Sequence[str]
) -> dict[str, Leaf]:
    """The leaves of all ranks. Each box gets a file: that of the rank with least to
    write, of those that have it."""
    leaves, owners = dict[str, Leaf](), dict[str, dict[Box, list[str]]]()
    for file, some in zip(names, found):
        for name, leaf in some.items():
            first, boxes = leaves.setdefault(name, leaf), owners.setdefault(name, {})
            if leaf[2:4] != first[2:4]:
                raise ValueError(
                    f"save: {name} is {leaf.dtype} {leaf.shape} for {file}, and was "
                    f"{first.dtype} {first.shape} on a rank before; save one model"
                )
            for box in leaf.boxes:
                boxes.setdefault(box, []).append(file)
    loads = dict.fromkeys(names, 0)
    for name, leaf in leaves.items():
        stored = []
        for i, (box, files) in enumerate(owners[name].items()):
            file = min(files, key=loads.__getitem__)
            loads[file] += prod(box[1])
            stored.append((file, f"{name}[{i}]", box))
        size, count = prod(leaf.shape or ()), sum(prod(box[1]) for _, _, box in stored)
        if leaf.shape is not None and count != size:
            raise ValueError(
                f"save: ranks have {count} of the {size} numbers of {name}"
            )
        leaves[name] = leaf._replace(boxes=stored)
    return leaves


def _commit(folder: Path, content: Mapping[str, Any]) -> None:
    """Let the parts be the checkpoint, and remove those of the one before.

    Raises:
        FileExistsError: another job has saved here meanwhile, and took them for such.
    """
    gone = [name for name in content["files"] if not (folder / name).exists()]
    if gone:
        raise FileExistsError(
            f"{folder} has the checkpoint of another job, which was saved meanwhile "
            f"and has removed {', '.join(gone)}; give each job a folder of its own"
        )
    with atomic_write(folder / METADATA) as file:
        file.write(json.dumps({**content, "sha256": _digest(content)}).encode())
    with suppress(OSError, ValueError):  # what stays is removed the next time
        named = _metadata(folder)["files"]  # by now it may be another job's
        for old in folder.glob(PARTS):
            if old.name not in named:
                old.unlink()
