"""What a5 runs in the student's process: the rungs of the ladder, and the roofline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from assignments.calling import Timed, operand, operands_of, results, rung_of, watched


def _rung(name: str) -> Callable[..., Any]:
    from cuda_ops.matmul.matmul import LADDER

    return rung_of(LADDER, name)


def product(
    device: str, name: str, a: np.ndarray, b: np.ndarray, layouts: Sequence[str]
) -> dict[str, Any]:
    """A rung of the ladder."""
    x, y = operand(device, a, layouts[0]), operand(device, b, layouts[1])
    with watched():
        out = _rung(name)(x, y)
    return results({"out": out}, {"a": x, "b": y})


def in_slices(device: str, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """`matmul_vectorized`, cut so that groups of warps share the steps of k."""
    from cuda_ops.matmul import matmul

    x, y = operand(device, a), operand(device, b)
    config = next(c for c in matmul.configs_for(x.dtype) if c.slices > 1)
    sides = matmul.Sides(
        a.shape[0], b.shape[1], a.shape[1], (a.shape[1], 1), (1, b.shape[1]), ()
    )
    shape = (a.shape[0], b.shape[1])
    plan = matmul.plan_for(shape, sides, matmul.Cut(config, 1), (True, True), x.dtype)
    with watched():
        out = matmul.launch(plan, x, y)
    return results({"out": out}, {"a": x, "b": y})


def counted(
    device: str, name: str, a: np.ndarray, b: np.ndarray, least: int
) -> dict[str, Any]:
    """How many sectors a rung asks for beyond the least number, in a GPU's tiles."""
    from cuda_ops.simulator.sizes import real_sizes

    given = operands_of(device, a=a, b=b)
    with real_sizes("cuda_ops.ladders.matmul"), watched() as watch:
        out = _rung(name)(*given.values())
    needless = max(0, watch.total.sectors - least)
    return {**results({"out": out}, given), "needless sectors": needless}


def counts(
    device: str, size: Sequence[int], block: Sequence[int], itemsize: int
) -> dict[str, Any]:
    """`flops` and `traffic`."""
    from assignments.a5_matmul_ladder import roofline

    return {
        "flops": roofline.flops(*size),
        "bytes": roofline.traffic(*size, *block, itemsize),
    }


def limits(
    device: str, intensity: float, peak: float, bandwidth: float
) -> dict[str, Any]:
    """`limit`."""
    from assignments.a5_matmul_ladder.roofline import limit

    return {"limit": limit(intensity, peak, bandwidth)}


def roof(
    device: str,
    size: Sequence[int],
    block: Sequence[int],
    peak: float,
    bandwidth: float,
) -> dict[str, Any]:
    """`roofline`."""
    from assignments.a5_matmul_ladder.roofline import roofline

    found = roofline(tuple(size), tuple(block), peak, bandwidth)
    return {
        "flops": found.flops,
        "bytes": found.bytes,
        "intensity": found.intensity,
        "attainable": found.attainable,
        "limit": found.limit,
    }


# ----------------------------------------------------------------------------- speed


def _timed(device: str, name: str, a: np.ndarray, b: np.ndarray) -> Timed:
    from minitorch.backend import get_backend

    x, y, multiply = operand(device, a), operand(device, b), _rung(name)
    wait = get_backend(device).synchronize
    wait()

    def go() -> Any:
        out = multiply(x, y)
        wait()
        return out

    return go, lambda out: results({"out": out}, {"a": x, "b": y})


def timed_naive(device: str, a: np.ndarray, b: np.ndarray) -> Timed:
    """`matmul_naive`."""
    return _timed(device, "matmul_naive", a, b)


def timed_coalesced(device: str, a: np.ndarray, b: np.ndarray) -> Timed:
    """`matmul_coalesced`."""
    return _timed(device, "matmul_coalesced", a, b)


def timed_tiled(device: str, a: np.ndarray, b: np.ndarray) -> Timed:
    """`matmul_tiled`."""
    return _timed(device, "matmul_tiled", a, b)


def timed_coarsened(device: str, a: np.ndarray, b: np.ndarray) -> Timed:
    """`matmul_coarsened`."""
    return _timed(device, "matmul_coarsened", a, b)


def timed_vectorized(device: str, a: np.ndarray, b: np.ndarray) -> Timed:
    """`matmul_vectorized`."""
    return _timed(device, "matmul_vectorized", a, b)
