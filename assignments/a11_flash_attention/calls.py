"""What a11 runs in the student's process: attention in blocks, bfloat16, scalers."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from assignments.calling import garbage, operand, read, results, tensor, watched
from assignments.fences import fenced

# What only kernels can call.
IN_PYTHON = {"exp": np.exp, "log": np.log, "scaled": np.multiply}
IN_PYTHON |= {"maximum_float": np.maximum}
# What a block of attention calls, which makes no array: left out where these count.
STEPS = ("_lay_out", "_fetch", "_score", "_show", "_hide", "_online_softmax", "_keep")
STEPS += ("_scale_rows", "_weigh")
FEATURES = "features"  # the layout of heads that were made of features


def online(
    device: str, scores: np.ndarray, size: int, first_query: int
) -> dict[str, Any]:
    """`_online_softmax` for blocks of `size` keys, as the attention calls it.

    Args:
        scores: [S, lines], a row for each key.
        first_query: the number of the first query, of which key 0 .. i see each; -1 if
            all see all.
    """
    from fast_ops import attention as family

    S, lines = scores.shape
    state = np.split(fenced(np.zeros(5 * family.QUERIES, np.float32)), 5)
    top, total, decay, *_ = state
    top[:] = -np.inf
    weights = np.zeros_like(scores)
    for k0 in range(0, S, size):
        keys = min(size, S - k0)
        edge = k0 - first_query if first_query >= 0 else family.NEVER
        block = fenced(garbage(family.BLOCK, scores.dtype))
        lain = block.reshape(family.KEYS, family.QUERIES)
        for k in range(keys):
            seen = max(0, edge + k)
            from_tile = family._seen_from(edge, k)
            lain[k, from_tile:seen] = -np.inf
            lain[k, seen:lines] = scores[k0 + k, seen:]
        family._online_softmax(block, lines, keys, edge, *state)
        weights[:k0] *= decay[:lines]
        for k in range(keys):
            from_tile = family._seen_from(edge, k)
            weights[k0 + k, from_tile:] = lain[k, from_tile:lines]
    made = {"top": top[:lines].copy(), "total": total[:lines].copy()}
    return {**made, "softmax": weights / total[:lines]}


def _laid(device: str, array: np.ndarray, layout: str) -> Any:
    """[B, H, L, E] as asked, or with the heads of a position side by side."""
    if layout != FEATURES:
        return operand(device, array, layout)
    rows = np.ascontiguousarray(array.transpose(0, 2, 1, 3))
    return operand(device, rows).permute((0, 2, 1, 3))


def _spoil_workspace(blocks: int, E: int, V: int, rows: int, drop: Any) -> None:
    """NaN in the memory of the threads, which nobody may take for zeros."""
    from fast_ops.attention import _room
    from fast_ops.threads import get_num_threads
    from minitorch.backend.host.workspace import workspace
    from minitorch.dtypes import float32

    size = _room(blocks, E, V, rows, drop) * get_num_threads()
    workspace(size, float32).fill(np.nan)


def in_blocks() -> Any:
    """The CPU's backend, with attention's kernels also where one is not written."""
    from fast_ops import attention as family
    from fast_ops.backend import CPUBackend

    class InBlocks(CPUBackend):
        _attend = staticmethod(family.attend)
        _attend_backward = staticmethod(family.attend_backward)

    return InBlocks()


def attend(
    device: str,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    scale: float,
    causal: bool,
    layout: str,
    mask: np.ndarray | None,
    drop: tuple[float, int, int],
) -> dict[str, Any]:
    """`attention` of fast_ops."""
    from fast_ops.attention import QUERIES

    _spoil_workspace(1, query.shape[-1], value.shape[-1], QUERIES, drop)
    names = {"query": query, "key": key, "value": value}
    given = {name: _laid(device, a, layout) for name, a in names.items()}
    shape = query.shape[:-1]
    out = _laid(device, np.zeros((*shape, value.shape[-1]), query.dtype), layout)
    total = operand(device, np.zeros(shape, query.dtype))
    shown = None if mask is None else operand(device, mask)
    in_blocks().attention(out, total, *given.values(), scale, causal, shown, drop)
    return results({"out": out, "logsumexp": total}, given)


def memory(device: str, width: int, few: int, many: int) -> dict[str, Any]:
    """Whether `_attend` takes more memory for many keys than for few.

    It runs as Python, in which the arrays that it makes are counted.
    """
    from fast_ops import attention as family

    plain = getattr(family._attend, "py_func", family._attend)
    if hasattr(plain, "__code__"):  # one that is not written says so
        names = {**IN_PYTHON, **dict.fromkeys(STEPS, lambda *args: None)}
        plain = FunctionType(plain.__code__, {**plain.__globals__, **names})
    peaks = []
    for S in (1, few, many):  # the first one compiles what else it calls
        x = np.ones(S * width, np.float32)
        out = np.zeros(family.QUERIES * width, np.float32)
        ends = np.zeros(family.QUERIES, np.float32)
        work = np.zeros(
            family._room(1, width, width, family.QUERIES, (0.0, 0, 0)), np.float32
        )
        query, rows = np.ones_like(out), (width,) * 4
        sizes = family.QUERIES, S, width, width
        drop = 0, (0, 0, 0, 0, 0), np.float32(0)
        tracemalloc.start()
        with np.errstate(all="ignore"):  # of nothing
            plain(
                *(query, x, x, out, ends, rows, sizes, 0, np.float32(1), False),
                *((x[:0], np.empty(0, np.uint8), (0, 0)), drop, work),
            )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    least = 4 * family.QUERIES * (many - few)
    return {"memory grows with the keys": peaks[2] - peaks[1] > least // 4}


def gradients(
    device: str,
    grad: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    out: np.ndarray,
    logsumexp: np.ndarray,
    scale: float,
    causal: bool,
    layout: str,
    mask: np.ndarray | None,
    drop: tuple[float, int, int],
) -> dict[str, Any]:
    """`attention_backward` of fast_ops."""
    from fast_ops.attention import QUERIES

    _spoil_workspace(2, query.shape[-1], value.shape[-1], 2 * QUERIES, drop)
    names = {"grad": grad, "query": query, "key": key, "value": value, "out": out}
    given = {name: _laid(device, a, layout) for name, a in names.items()}
    given["logsumexp"] = operand(device, logsumexp)
    made = {
        f"grad_{name}": _laid(device, np.zeros_like(names[name]), layout)
        for name in ("query", "key", "value")
    }
    shown = None if mask is None else operand(device, mask)
    how = scale, causal, shown, drop
    in_blocks().attention_backward(*made.values(), *given.values(), *how)
    return results(made, given)


# --------------------------------------------------------------------- low precision


def rounded(device: str, words: np.ndarray) -> dict[str, Any]:
    """The bits of bfloat16 for those of float32; of every NaN the same."""
    from minitorch.backend import get_backend
    from minitorch.dtypes import bfloat16
    from minitorch.simple_ops.half import round_to_bfloat16

    numbers = words.astype(np.uint32).view(np.float32)
    if device == "simple":
        made = round_to_bfloat16(numbers)
    else:
        made = read(get_backend(device).copy(operand(device, numbers), bfloat16))
    return {"bits": same_nan(made.view(np.uint16).astype(np.int64))}


def same_nan(bits: np.ndarray) -> np.ndarray:
    """The bits of bfloat16, with one NaN for all."""
    return np.where(bits & 0x7FFF > 0x7F80, 0x7FC0, bits)


def scaled(
    device: str, loss: np.ndarray, half: bool, init_scale: float
) -> dict[str, Any]:
    """`GradScaler.scale` of a loss, of which some are float16, and of a list."""
    from minitorch.amp import GradScaler

    scaler, x = GradScaler(device, init_scale), tensor(device, loss)
    x = x.half() if half else x
    return {"one": read(scaler.scale(x)), "list": [read(y) for y in scaler.scale([x])]}


def trained(
    device: str,
    params: Sequence[np.ndarray],
    grads: Sequence[Sequence[np.ndarray]],
    options: dict[str, Any],
    factors: Sequence[float | None],
    clip: bool,
) -> dict[str, Any]:
    """Steps with a `GradScaler`; each parameter has an optimizer of its own.

    "turns" are the steps that these count (`steps_taken`): one is skipped, and counts.

    Args:
        grads: for each step, the gradients.
        factors: for each step, what `update` is given.
        clip: call `unscale_` before `step`.
    """
    import minitorch
    from minitorch.amp import GradScaler

    p = [tensor(device, a, requires_grad=True) for a in params]
    optimizers = [minitorch.optim.SGD([x], lr=0.5) for x in p]
    g = [[tensor(device, a) for a in step] for step in grads]
    scaler = GradScaler(device, **options)
    made = steps(scaler, p, optimizers, g, factors, clip, read)
    return {**made, "turns": [optimizer.steps_taken for optimizer in optimizers]}


def steps(
    scaler: Any,
    p: Sequence[Any],
    optimizers: Sequence[Any],
    grads: Sequence[Sequence[Any]],
    factors: Sequence[float | None],
    clip: bool,
    number: Callable[[Any], Any],
) -> dict[str, Any]:
    """The same program for both libraries: what is where after each step."""
    made: dict[str, Any] = {"after": [], "grads": [], "scales": [], "tracker": []}
    for given, factor in zip(grads, factors):
        for x, g, optimizer in zip(p, given, optimizers):
            optimizer.zero_grad()
            scaler.scale((x * g).sum()).backward()
            if clip:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
        made["grads"].append([number(x.grad) for x in p])
        scaler.update(factor)
        made["after"].append([number(x.detach()) for x in p])
        made["scales"].append(float(scaler.get_scale()))
        made["tracker"].append(int(scaler.state_dict()["_growth_tracker"]))
    return made


# --------------------------------------------------------------------- on a GPU


def rung(
    device: str,
    name: str,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    causal: bool,
) -> dict[str, Any]:
    """A rung of the ladder of attention."""
    from cuda_ops.attention.composed import attention_composed
    from cuda_ops.ladders.attention import attention_tiled

    ladder = {
        "attention_composed": attention_composed,
        "attention_tiled": attention_tiled,
    }
    names = {"query": query, "key": key, "value": value}
    given = {n: operand(device, a) for n, a in names.items()}
    with watched():
        out = ladder[name](*given.values(), causal)
    return results({"out": out}, given)


# ----------------------------------------------------------------------------- speed

Timed = tuple[Callable[[], Any], Callable[[Any], dict[str, Any]]]


def _timed(device: str, names: Sequence[str], fn: Any, **arrays: Any) -> Timed:
    given = {name: operand(device, a) for name, a in arrays.items()}
    made = {name: operand(device, np.zeros_like(arrays["query"])) for name in names}
    scale = arrays["query"].shape[-1] ** -0.5
    if "logsumexp" not in given:
        ends = np.zeros(arrays["query"].shape[:-1], np.float32)
        made["logsumexp"] = operand(device, ends)
    run = lambda: fn(*made.values(), *given.values(), scale, True)
    return run, lambda _: results(made, given)


def _composed(name: str) -> Any:
    from functools import partial

    from minitorch.backend import get_backend
    from minitorch.backend.attention import Attention

    fns = {"forward": Attention.attention, "backward": Attention.attention_backward}
    return partial(fns[name], get_backend("cpu"))


GRADS = ("grad_query", "grad_key", "grad_value")


def timed_forward(device: str, **arrays: np.ndarray) -> Timed:
    """Attention in blocks."""
    return _timed(device, ("out",), in_blocks().attention, **arrays)


def timed_composed(device: str, **arrays: np.ndarray) -> Timed:
    """Attention in three steps, with a matrix of weights."""
    return _timed(device, ("out",), _composed("forward"), **arrays)


def timed_backward(device: str, **arrays: np.ndarray) -> Timed:
    """The gradients, in blocks."""
    return _timed(device, GRADS, in_blocks().attention_backward, **arrays)


def timed_composed_backward(device: str, **arrays: np.ndarray) -> Timed:
    """The gradients, with a matrix of weights."""
    return _timed(device, GRADS, _composed("backward"), **arrays)
