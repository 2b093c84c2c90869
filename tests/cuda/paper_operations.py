"""Operations on a GPU of paper: what Numba compiles for a real one, run in NumPy.

With this file kernels are debugged without a GPU. The simulator runs their Python;
this runs their PTX (`ptx.py`), made for the types that a launch really has. Results
are compared with PyTorch's.

    python tests/cuda/paper_operations.py operations int8          # all of them
    python tests/cuda/paper_operations.py operations int8 argmax   # some, by name
    python tests/cuda/paper_operations.py edges + faults           # others: see below

`PAPER_CHIP=8.0` runs for another compute capability, and `PAPER_TRACE=name` tells each
instruction of the kernels whose name has this in it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path += [str(HERE.parent), str(HERE.parents[1])]

import numpy as np  # noqa: E402
import ptx  # noqa: E402
import torch  # noqa: E402
from numpy.random import default_rng  # noqa: E402
from operations import OPERATIONS, assert_same, oracle, samples  # noqa: E402
from paper_runs import RunningDriver, install  # noqa: E402

import minitorch  # noqa: E402
from minitorch import dtypes  # noqa: E402
from minitorch.dtypes import DType  # noqa: E402
from minitorch.quantization import dequantize, quantize  # noqa: E402

CLOSE = {"float64": 1e-12, "float16": 4e-3, "bfloat16": 3e-2}
Check = tuple[str, Callable[[], None]]  # what is checked, and how


def operations(dtype: str, *names: str) -> Iterable[Check]:
    """Each operation that is defined for `dtype`, on its largest shapes."""
    kind = next(d for d in dtypes.ALL if d.name == dtype)
    letter = "f" if kind.is_floating_point else "b" if dtype == "bool" else "i"
    for op in (op for ops in OPERATIONS.values() for op in ops):
        if letter in op.kinds and (not names or op.name in names):
            yield f"{op} {dtype}", partial(operation, op, kind)


def operation(op: Any, dtype: DType) -> None:
    sizes = [sum(map(np.prod, shapes)) for shapes in op.shapes]
    at = int(np.argmax(sizes))
    close = max(CLOSE.get(dtype.name, 0), 3 * op.tolerance)
    every = slice(at, at + 1)
    for mine, theirs in samples(op, "cuda", dtype, "contiguous", among=every):
        assert_same(op.fn(minitorch, *mine), oracle(op, theirs), close)


# ---------------------------------------------------------------- sizes at the edges


def of(
    fn: Callable, *arrays: Any, dtype: str = "float32", grad: bool = False,
    exact: bool = False,
) -> Check:  # fmt: skip
    """fn(library, *tensors) here and in PyTorch, with gradients of the floats."""
    name = f"{fn.__name__} {dtype} {[np.shape(a) for a in arrays]}"

    def answers(library: Any, **where: Any) -> list[Any]:
        kind = getattr(library, dtype)
        tensors = [
            library.tensor(a, dtype=kind if a.dtype == np.float32 else None, **where)
            for a in arrays
        ]
        floats = [x for x in tensors if grad and x.is_floating_point()]
        for x in floats:
            x.requires_grad_()
        out = fn(library, *tensors)
        if grad:
            (out * out).sum().backward()
        return [out, *[x.grad for x in floats]]

    def check() -> None:
        mine, theirs = answers(minitorch, device="cuda"), answers(torch)
        for number, (a, b) in enumerate(zip(mine, theirs)):
            size = float(b.abs().max()) if b.is_floating_point() and number else 1.0
            close = 0.0 if exact else CLOSE.get(dtype, 2e-5) * max(size, 1.0)
            assert_same(a, b, close, f"{name}: {'gradient' if number else 'result'}")

    return name, check


def sum_rows(m: Any, x: Any) -> Any:
    return x.sum(-1)


def sum_columns(m: Any, x: Any) -> Any:
    return x.sum(0)


def amax(m: Any, x: Any) -> Any:
    return x.amax(-1)


def argmax(m: Any, x: Any) -> Any:
    return x.argmax(-1)


def argmin_columns(m: Any, x: Any) -> Any:
    return x.argmin(0)


def softmax(m: Any, x: Any) -> Any:
    return x.softmax(-1)


def layer_norm(m: Any, x: Any) -> Any:
    return m.nn.functional.layer_norm(x, (x.shape[-1],))


def cumsum(m: Any, x: Any) -> Any:
    return x.cumsum(-1)


def sort(m: Any, x: Any) -> Any:
    return x.sort(-1)[0]


def transposed(m: Any, x: Any) -> Any:
    return x.t().contiguous()


def matmul(m: Any, x: Any, y: Any) -> Any:
    return x @ y


def linear(m: Any, x: Any, w: Any) -> Any:
    return m.nn.functional.linear(x, w)


def picked(m: Any, x: Any, i: Any) -> Any:
    return x[i]


def sparse(m: Any, x: Any, y: Any) -> Any:
    return (x.to_sparse_csr() if m is minitorch else x) @ y


def narrowed(m: Any, x: Any) -> Any:
    return x.bfloat16().float() + x.half().float()


def attention(m: Any, q: Any, k: Any, v: Any) -> Any:
    return m.nn.functional.scaled_dot_product_attention(q, k, v)


def added(m: Any, x: Any, y: Any) -> Any:
    return x + y


def pooled(m: Any, x: Any) -> Any:
    return m.nn.functional.max_pool2d(x, 3, 2)


def selected(m: Any, x: Any) -> Any:
    return x[x > 0.5]


def edges() -> Iterable[Check]:
    """Sizes at the edges of warps, vectors and blocks."""
    rng = default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    def small(*shape: int) -> np.ndarray:
        return rng.integers(-128, 128, shape).astype(np.int8)

    for n in (1, 33, 257, 1030):
        for fn in (sum_rows, amax, argmax, cumsum, sort):
            yield of(fn, normal(3, n))
            yield of(fn, small(3, n))
        for fn in (softmax, layer_norm):
            yield of(fn, normal(3, n), grad=True)
        for fn in (sum_columns, argmin_columns):
            yield of(fn, normal(n, 3))
        yield of(argmin_columns, small(n, 3))
        yield of(transposed, normal(n, 35))
        yield of(linear, normal(3, 132), normal(n, 132))
        where = rng.integers(-n, n, 40)
        yield of(picked, normal(n, 5), where, grad=True)
        yield of(sparse, normal(n, 9) * (normal(n, 9) > 0.6), normal(9, 5))
        yield of(selected, normal(n))
    yield of(transposed, small(65, 33))
    for fn in (softmax, layer_norm, transposed):
        yield of(fn, normal(65, 257), dtype="bfloat16")
    yield of(linear, normal(3, 132), normal(1030, 132), dtype="bfloat16")
    keys = [normal(1, 1, n, 64) for n in (1, 600, 600)]
    yield of(attention, *keys, dtype="bfloat16")  # in a cluster
    for dtype in ("bfloat16", "float16"):  # rounded once, as PyTorch does
        yield of(added, normal(1030), normal(1030), dtype=dtype, exact=True)
    yield of(narrowed, normal(1030), exact=True)
    yield of(matmul, normal(33, 17), normal(17, 65))
    yield of(pooled, normal(2, 2, 9, 9), grad=True)
    yield of(matmul, normal(65, 40), normal(40, 72), dtype="bfloat16")


def of_whole_numbers(kind: str) -> Callable:
    """A layer whose weight is `kind` here, and what that stands for in PyTorch."""

    def layer(m: Any, x: Any, w: Any) -> Any:
        q, scale = quantize(minitorch.tensor(w.float().tolist()), kind, 64)
        if m is minitorch:
            q, scale = q.to("cuda"), scale.to("cuda")
            return m.nn.functional.quantized_linear(x, q, scale)
        stands_for = torch.tensor(dequantize(q, scale).tolist())
        return (x.float() @ stands_for.T).to(x.dtype)

    layer.__name__ = kind
    return layer


def turned_matmul(m: Any, x: Any, y: Any) -> Any:
    return x.t() @ y


def tensor_cores() -> Iterable[Check]:
    """Products that are large enough for `mma.sync`; on 9.0, of float64 alone."""
    rng = default_rng(0)
    for dtype in ("float64", "bfloat16", "float16"):
        x, y = (
            rng.standard_normal((160, n)).astype(np.float32) / 8 for n in (168, 176)
        )
        yield of(turned_matmul, x, y, dtype=dtype)
    for kind in ("int8", "int4"):
        for dtype, rows, k in ("bfloat16", 9, 192), ("float16", 16, 256):
            x, y = (rng.standard_normal((n, k)).astype(np.float32) for n in (rows, 33))
            yield of(of_whole_numbers(kind), x, y, dtype=dtype)


# ------------------------------------------------------------ what a GPU would refuse


def faults() -> Iterable[Check]:
    """What is wrong with a kernel is told, with the kernel and the instruction."""
    from numba import cuda

    from cuda_ops.block.intrinsics import load, load4, store
    from cuda_ops.runtime.launch import Kernel

    def beyond(a):
        a[cuda.grid(1) * 1_000_000] = 1.0

    def crooked(a):
        x = load4(a, 1 + cuda.threadIdx.x)
        store(a, cuda.threadIdx.x, x[0])

    def apart(a):
        t = cuda.threadIdx.x
        if t < 16:
            a[t] = cuda.shfl_sync(0xFFFFFFFF, a[t], 0)
        else:
            cuda.syncthreads()
            a[t] = 2.0

    def endless(a):
        while load(a, cuda.threadIdx.x) >= 0.0:
            store(a, cuda.threadIdx.x, 1.0)

    def bytes_of(a):
        a[0] = cuda.shfl_xor_sync(0xFFFFFFFF, a[0], 1)

    def refused(fn: Callable, message: str, *more: Any) -> Check:
        def check() -> None:
            x = minitorch.zeros(64, device="cuda", dtype=more[0] if more else None)
            try:
                Kernel(fn)[1, 32](x.raw.storage.array, *more[1:])
            except Exception as error:
                assert message in str(error), error
            else:
                raise AssertionError("nothing was said")

        return f"{fn.__name__}: {message}", check

    def left_out() -> None:
        code = ".visible .entry k(){ wgmma.fence.sync.aligned; ret; }"
        try:
            ptx.Program(code).launch((1, 1, 1), (128, 1, 1), 0, ())
        except NotImplementedError as error:
            assert "wgmma.fence.sync.aligned" in str(error), error
        else:
            raise AssertionError("nothing was said")

    ptx.STEPS = 10_000
    yield "what is not run", left_out
    yield refused(beyond, "bytes that nobody has")
    yield refused(crooked, "no multiples of 16")
    yield refused(apart, "wait for others forever")
    yield refused(endless, "no end after 10,000 instructions")
    yield refused(bytes_of, "32- and 64-bit", minitorch.int8)
    yield refused(beyond, "got a float16", minitorch.float32, np.float16(1))
    ptx.STEPS = 3_000_000


# ----------------------------------------------------------------------------- main


def run(checks: Iterable[Check], paper: RunningDriver) -> int:
    """Make all checks; tell what failed, and what the time went to."""
    failed = count = 0
    for name, check in checks:
        count += 1
        try:
            check()
        except NotImplementedError as error:
            print(f"NOT RUN {name}: {error}")
        except Exception:
            failed += 1
            lines = traceback.format_exc().strip().splitlines()
            print(f"FAILED {name}", *lines[-15:], sep="\n    ", end="\n\n")
    print(
        f"{count} checks, {failed} failed; {len(paper.compiled)} kernels: "
        f"{paper.compiling:.1f} s to compile, {paper.running:.1f} s to run "
        f"{paper.steps:,} instructions"
    )
    return int(failed > 0)


SCENARIOS: dict[str, Callable[..., Iterable[Check]]] = {
    fn.__name__: fn for fn in (operations, edges, tensor_cores, faults)
}


def asked(words: Sequence[str]) -> Iterable[Check]:
    """The checks of scenarios with their arguments, with "+" between them."""
    for scenario in " ".join(words).split(" + "):
        name, *rest = scenario.split()
        yield from SCENARIOS[name](*rest)


if __name__ == "__main__":
    chip = tuple(map(int, os.environ.get("PAPER_CHIP", "9.0").split(".")))
    driver = install(chip, os.environ.get("PAPER_TRACE", ""))
    sys.exit(run(asked(sys.argv[1:]), driver))
