"""Compiled programs: equal to those that are not, and fewer passes over memory."""

from __future__ import annotations

import ast
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from fuzz.compare import difference
from fuzz.programs import programs
from helpers import SIMULATED
from minitorch import Tensor, compiler, executor, nn, optim
from minitorch.backend import fusion, get_backend
from minitorch.backend.fusion import Program, Step, generated_folder, load, needed
from minitorch.bench.compiled import gelu, softmax
from minitorch.compiler.recorder import MOST_STEPS, Fused, Recorder
from minitorch.dtypes import bool_, float32
from minitorch.executor import Executor, active, executing
from minitorch.operators import add, exp, mul
from minitorch.profiler import profile, record_function
from minitorch.tensor_data import TensorData

ROWS, COLS = (12, 36) if SIMULATED else (300, 120)  # more than one thread does alone


def fusions(fn: Callable, *args: Any) -> list[Fused]:
    told: list[Fused] = []
    with Recorder(told):
        kept = fn(*args)
    del kept
    return told


def names(fusion: Fused) -> str:
    return " ".join([step.fn.__name__ for step in fusion.program.steps])


def layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    away = x - x.mean(-1, keepdim=True)
    return away / ((away * away).mean(-1, keepdim=True) + 1e-5).sqrt() * weight


# How operands can lie: each is made of a matrix, a row, a column and a number.
CHAINS: dict[str, Callable[..., Tensor]] = {
    "flat": lambda x, row, column, one: gelu(x),
    "row": lambda x, row, column, one: (x * row + row).tanh(),
    "part of a row": lambda x, row, column, one: (x[:, 1:] * row[1:] + 1.0).tanh(),
    "column": lambda x, row, column, one: (x - column) / (column.abs() + 1.0),
    "row and column": lambda x, row, column, one: (x * column + row).sigmoid(),
    "outer product": lambda x, row, column, one: (row * column).sin() + x,
    "number": lambda x, row, column, one: (x * one + 2.0).exp() - one,
    "transposed": lambda x, row, column, one: (x.T * column.T + 1.0).relu(),
    "every other": lambda x, row, column, one: (x[::2] * row + 1.0).relu(),
    "backward": lambda x, row, column, one: (x.flip(0) * row).neg(),
    "images": lambda x, row, column, one: (
        x.view(3, 4, -1) * row[:4].view(4, 1) + x[:, :4].sum()
    ).tanh(),
    "expanded": lambda x, row, column, one: (row.expand(x.shape) + 1.0) * x,
    "odd line": lambda x, row, column, one: (x[:, :7] + row[:7]) * column,
    "a view of what is noted": lambda x, row, column, one: (x * row).T.exp() + 1.0,
    "where": lambda x, row, column, one: minitorch.where(x > row, x * 2.0, column),
    "masks": lambda x, row, column, one: ((x > row) & (x < column)).float() * x,
    "clamp": lambda x, row, column, one: (x * 3.0).clamp(-1.0, 2.0) + row,
    "integers": lambda x, row, column, one: (x * 4.0).long() * 3 + (row > 0).long(),
    "float64": lambda x, row, column, one: (x.double() * row.double()).float() + one,
    "sums": lambda x, row, column, one: (x * row).sum(1, keepdim=True) + column * x,
    "softmax": lambda x, row, column, one: softmax(x * row),
    "layer norm": lambda x, row, column, one: layer_norm(x, row),
    "log of a sum": lambda x, row, column, one: (x - column).exp().sum(1).log() + one,
    "row by row": lambda x, row, column, one: (x * row).amax(1, True) + column * 2.0,
    "lowest": lambda x, row, column, one: (x + row).amin(-1, True) - x * column,
    "two dims": lambda x, row, column, one: (
        x.view(ROWS // 2, 2, COLS) * row
        - (x.view(ROWS // 2, 2, COLS) * row).mean((1, 2), keepdim=True)
    ),
    "folded twice": lambda x, row, column, one: x.exp().sum(1) + (x * x).amax(1),
    "numbers of rows": lambda x, row, column, one: (
        x.view(ROWS // 4, 4, COLS).amax(-1, True) * column.view(4, -1).T[..., None]
        + column.view(-1, 4)[:1].T
        + column.view(-1, 4)[:, :1, None]
    ),
    "numbers of rows, again": lambda x, row, column, one: (
        x.view(4, -1, COLS).sum(-1, True) * column.view(-1, 4).T[..., None]
        - x.view(4, -1, COLS) * column.view(-1, 4).T[..., None]
    ),
    "folded inputs": lambda x, row, column, one: (
        column.expand(x.shape).amin(1, True) * row.expand(x.shape).amax(1, True)
        + one.expand(x.shape).amax(1, True)
        - x
    ),
    "numbers of rows, folded": lambda x, row, column, one: (
        ((x * row).amax(1, True) * 2.0).expand(x.shape).amin(1, True) - x
    ),
    "columns": lambda x, row, column, one: (x * row).sum(0) + row,
    "everything": lambda x, row, column, one: (x * x).sum() + one,
    "mean of all": lambda x, row, column, one: ((x - column) * (x - column)).mean(),
    "largest of all": lambda x, row, column, one: (x * 2.0 + 1.0).amax() * one,
    "two of all": lambda x, row, column, one: (
        x.exp().sum((0, 1), keepdim=True) / (x + 1.0).amin((0, 1), keepdim=True)
    ),
    "all and rows": lambda x, row, column, one: (
        (x * 2.0).exp().sum() + (x * 2.0).exp().sum(1) * row.exp().sum()
    ),
    "no number": lambda x, row, column, one: softmax(x / (x - x)),
    "compensated": lambda x, row, column, one: (x + 100.0) - 100.0,
}


def operands(device: str, rows: int = ROWS) -> list[Tensor]:
    minitorch.manual_seed(1)
    shapes = (rows, COLS), (COLS,), (rows, 1), ()
    return [minitorch.randn(*shape, device=device) for shape in shapes]


@pytest.mark.parametrize("name", CHAINS)
def test_compiled_is_equal(name: str, device: str) -> None:
    """To the bit on the CPU, whose sums of rows are those of `reduce`; a GPU adds in
    another order, and may join products and sums of different steps."""
    chain, given = CHAINS[name], operands(device)
    made, expected = minitorch.compile(chain)(*given), chain(*given)
    assert made.dtype is expected.dtype and made.shape == expected.shape
    close = {"rtol": 1e-5, "atol": 5e-5} if device == "cuda" else {"rtol": 0}
    np.testing.assert_allclose(made.cpu().numpy(), expected.cpu().numpy(), **close)


LENGTHS = [2, 31, 32, 33, 127, 128, 129] + [1000, 1024, 1028] * (not SIMULATED)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("rows", [1, 2, 9] if SIMULATED else [1, 9, 1200])
def test_lengths_of_rows(rows: int, n: int, device: str) -> None:
    rows = min(rows, 9) if device in ("simple", "toy") else rows
    x = minitorch.randn(rows, n, device=device)
    weight = minitorch.randn(n, device=device)
    for chain in (lambda: softmax(x * 2.0), lambda: layer_norm(x, weight)):
        made, expected = minitorch.compile(chain)(), chain()
        np.testing.assert_allclose(
            made.cpu().numpy(), expected.cpu().numpy(), rtol=2e-5, atol=2e-5
        )


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 40_000])
def test_sizes(size: int, device: str) -> None:
    size = min(size, 600) if SIMULATED else size
    x = minitorch.randn(size, device=device)
    made = minitorch.compile(gelu)(x)
    np.testing.assert_allclose(
        made.cpu().numpy(), gelu(x).cpu().numpy(), rtol=1e-6, atol=1e-6
    )


def test_gradients(device: str) -> None:
    """The backward pass of a compiled function is compiled."""

    def network(x: Tensor, row: Tensor, column: Tensor, one: Tensor) -> Tensor:
        y = gelu(x * row) @ x.T
        return (y * (y * y + 1.0).rsqrt() * column + one).sum()

    found = []
    for fn in (network, minitorch.compile(network)):
        rows = 12 if device == "simple" else ROWS
        given = [t.requires_grad_() for t in operands(device, rows)]
        fn(*given).backward()
        found.append([t.grad.cpu().numpy() for t in given])
    for made, expected in zip(*reversed(found)):
        np.testing.assert_allclose(made, expected, rtol=2e-5, atol=1e-4)
    assert active.executor is None


def test_the_backward_pass_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    noted = Recorder.note

    def note(self: Recorder, fn: Callable, *rest: Any) -> Any:
        seen.append(fn.__name__)
        return noted(self, fn, *rest)

    monkeypatch.setattr(Recorder, "note", note)
    x = minitorch.randn(8, requires_grad=True)
    y = minitorch.compile(lambda x: (x * x).tanh())(x)
    assert seen == ["mul", "tanh"]
    y.backward(minitorch.ones(8))
    assert seen[2:] == ["tanh_backward", "mul", "mul", "add"]


def test_gradients_of_gradients() -> None:
    x = minitorch.randn(7, requires_grad=True)
    compiled = minitorch.compile(lambda x: (x * x * x).sin())
    first, expected = (
        minitorch.autograd.grad(fn(x).sum(), x, create_graph=True)[0]
        for fn in (compiled, lambda x: (x * x * x).sin())
    )
    for made, wanted in ((first, expected), (first.sum(), expected.sum())):
        np.testing.assert_array_equal(made.detach().numpy(), wanted.detach().numpy())
    (second,) = minitorch.autograd.grad(first.sum(), x)
    (wanted,) = minitorch.autograd.grad(expected.sum(), x)
    np.testing.assert_array_equal(second.numpy(), wanted.numpy())


# ----------------------------------------------------------------- what is put together


def test_a_chain_is_one_loop() -> None:
    x, row = minitorch.randn(ROWS, COLS), minitorch.randn(COLS)
    (found,) = fusions(lambda x: gelu(x * row), x)
    assert names(found) == "mul mul mul mul mul add mul tanh add mul"
    assert str(found).endswith("(6 read, 1 written)")


def test_rows_are_folded_on_the_way() -> None:
    x, weight = minitorch.randn(ROWS, COLS), minitorch.randn(COLS)
    (found,) = fusions(softmax, x)
    assert str(found).endswith(
        "fold(maximum) sub exp fold(add) div (1 read, 1 written)"
    )
    assert found.program.fold_levels() == [1, 1, 1, 2, 2] and found.program.folded == 1
    (found,) = fusions(layer_norm, x, weight)
    assert found.program.fold_levels() == [1, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    # What becomes one number a column is no part of a program.
    found, *rest = fusions(lambda x: (x * 2.0).sum(0) + 1.0, x)
    assert list(map(names, [found, *rest])) == ["mul", "add"]


def test_what_becomes_one_number() -> None:
    """Is the end of a program, but for what is computed of such numbers alone."""
    x, row = minitorch.randn(ROWS, COLS), minitorch.randn(COLS)
    (found,) = fusions(lambda x: (x - row).exp().mean(), x)
    assert names(found) == "sub exp add div" and found.program.kept == (3,)
    assert found.program.folds_whole(x.shape)
    found, *rest = fusions(lambda x: x * 2.0 + (x * 2.0).amax((0, 1), True), x)
    assert list(map(names, [found, *rest])) == ["mul maximum", "add"] or rest


def test_what_nobody_holds_is_not_written() -> None:
    x = minitorch.randn(9)
    kept: list[Tensor] = []

    def program(x: Tensor) -> None:
        y = x * 2.0
        kept.append(y + 1.0)
        z = y.exp()  # for nothing
        del z
        kept.append(y - 1.0)

    (found,) = fusions(program, x)
    assert names(found) == "mul add sub" and found.program.kept == (1, 2)
    np.testing.assert_array_equal(kept[0].numpy(), (x * 2.0 + 1.0).numpy())
    np.testing.assert_array_equal(kept[1].numpy(), (x * 2.0 - 1.0).numpy())


def test_other_operations_come_between() -> None:
    x = minitorch.randn(8, 8)
    found = fusions(lambda x: (((x + 1.0) * 2.0) @ (x - 1.0)).relu() + x, x)
    assert list(map(names, found)) == ["add mul sub", "relu add"]


def test_a_program_has_an_end() -> None:
    def program(x: Tensor) -> Tensor:
        for _ in range(MOST_STEPS + 3):
            x = x * 0.5 + 1.0
        return x

    x = minitorch.randn(5)
    lengths = [len(found.program.steps) for found in fusions(program, x)]
    assert sum(lengths) == 2 * (MOST_STEPS + 3) and max(lengths) <= MOST_STEPS
    np.testing.assert_array_equal(
        minitorch.compile(program)(x).numpy(), program(x).numpy()
    )


def test_many_inputs() -> None:
    xs = [minitorch.randn(4) for _ in range(90)]

    def program() -> Tensor:
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        return total

    made = minitorch.compile(program)()
    np.testing.assert_array_equal(made.numpy(), program().numpy())


def test_what_a_program_needs() -> None:
    steps = [(mul, (~0, ~1)), (exp, (~0,)), (add, (0, ~1)), (exp, (1,))]
    program = Program(
        (float32, float32), tuple([Step(*step, float32) for step in steps]), (2,)
    )
    found = needed(program)
    assert [step.fn for step in found.steps] == [mul, add] and found.kept == (1,)
    assert found.steps[1].args == (0, ~1) and needed(found) == found
    assert [found.step_text(k) for k in range(2)] == [
        "y0 = float32(mul_float32(x0, x1))",
        "y1 = float32(add_float32(y0, x1))",
    ]


def test_the_default_of_a_backend(device: str) -> None:
    """Function by function, by what every backend brings."""
    x, row, *_ = operands(device)
    backend = get_backend(x.device)
    steps = (
        Step(mul, (~0, ~1), float32),
        Step(minitorch.operators.gt, (0, ~1), bool_),
        Step(minitorch.operators.where, (1, 0, ~1), float32),
        Step(exp, (~1,), float32),
    )
    outs = {k: backend.empty((ROWS, COLS), steps[k].dtype) for k in (1, 2, 3)}
    program = Program((float32, float32), steps, (1, 2, 3))
    raws, shape = [x.raw, row.raw], (ROWS, COLS)
    minitorch.backend.base.Fusion.fused(backend, program, shape, raws, outs)
    product = x * row
    expected = [
        product > row,
        minitorch.where(product > row, product, row),
        row.exp().expand(ROWS, COLS),
    ]
    for made, wanted in zip(outs.values(), expected):
        np.testing.assert_array_equal(backend.to_numpy(made), wanted.cpu().numpy())


# ------------------------------------------------------------------- nothing is guessed


def test_python_decides_at_each_call() -> None:
    @minitorch.compile
    def program(x: Tensor, scale: float) -> Tensor:
        y = x * scale
        if y.sum() > 0:  # a number is read: what was noted has run
            y = y + 1.0
        return y.neg() * (2.0 if x.shape[0] > 2 else 3.0)

    for x in ([1.0, 2.0], [-1.0, -2.0], [1.0, 2.0, 3.0]):
        for scale in (1.0, -2.0):
            t = minitorch.tensor(x)
            expected = program.__wrapped__(t, scale)  # type: ignore[attr-defined]
            assert program(t, scale).tolist() == expected.tolist()


def test_in_place_and_views() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2.0
        first = y[0]
        first += 1.0  # y has been written before
        z = y + x
        x.mul_(3.0)  # and z before x changes
        w = x.view(-1)[1:] * 2.0
        z[0] = w[:3]
        return z.relu() + w.sum()

    given = minitorch.randn(4, 3)
    copies = given.clone(), given.clone()
    made, expected = minitorch.compile(program)(copies[0]), program(copies[1])
    np.testing.assert_array_equal(made.numpy(), expected.numpy())
    np.testing.assert_array_equal(copies[0].numpy(), copies[1].numpy())


@pytest.mark.timeout(900)
@given(programs())
def test_random_programs(lines: list[str]) -> None:
    with Recorder():
        what = difference(lines, "cpu")
    assert what is None, f"{what}\n{lines}"


def test_an_error_leaves_nothing_behind() -> None:
    kept: list[Tensor] = []

    @minitorch.compile
    def program(x: Tensor) -> None:
        kept.append(x * 2.0 + 1.0)
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        program(minitorch.ones(3))
    assert active.executor is None and kept[0].tolist() == [3.0, 3.0, 3.0]
    leaf = minitorch.ones(3, requires_grad=True)
    y = minitorch.compile(lambda x: x * x)(leaf)
    leaf.register_hook(lambda grad: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    assert active.executor is None


def test_threads() -> None:
    """Another thread's work is not recorded, and not disturbed."""
    inside, done = threading.Event(), threading.Event()
    found: list[Any] = []

    def other() -> None:
        inside.wait(60)
        x = minitorch.arange(5.0)
        found.append(minitorch.compile(lambda x: x * 2.0 + 1.0)(x).tolist())
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    @minitorch.compile
    def program(x: Tensor) -> Tensor:
        y = x + 1.0
        inside.set()
        assert done.wait(60)
        return y * 3.0

    assert program(minitorch.ones(2)).tolist() == [6.0, 6.0]
    thread.join()
    assert found == [[1.0, 3.0, 5.0, 7.0, 9.0]]


def test_calls_leave_nothing_behind() -> None:
    """Backends of half types are made once, and not at each call."""
    x = minitorch.ones(3, dtype=minitorch.bfloat16)
    compiled = minitorch.compile(lambda: x * 2.0 + 1.0)
    compiled()
    before = executor._seen.cache_info().currsize
    for _ in range(5):
        compiled()
    assert executor._seen.cache_info().currsize == before


def test_a_training_step() -> None:
    """All of it: layers, loss, backward pass, clipping, optimizer."""

    def trained(wrap: Callable) -> list[float]:
        minitorch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1))
        model.append(nn.LayerNorm(16)).append(nn.Linear(16, 3))
        optimizer = optim.AdamW(model.parameters(), lr=1e-2)
        x, y = minitorch.randn(32, 8), minitorch.arange(32) % 3

        @wrap
        def step() -> Tensor:
            loss = nn.functional.cross_entropy(gelu(model(x)), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        return [step().item() for _ in range(5)]

    assert trained(minitorch.compile) == trained(lambda fn: fn)


# ------------------------------------------------------------------------ as in PyTorch


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(2, 2), 2.0

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = self.layer(x) * self.scale
        return {"y": y.tanh(), "rest": [y, 3]}


def test_a_compiled_module() -> None:
    model = Scaled()
    compiled = minitorch.compile(model, mode="max-autotune")
    theirs = torch.compile(torch.nn.Linear(2, 2))
    assert [k.split(".")[0] for k in theirs.state_dict()] == ["_orig_mod"] * 2
    assert list(compiled.state_dict()) == [
        "_orig_mod.layer.weight", "_orig_mod.layer.bias",
    ]  # fmt: skip
    compiled.scale = 5.0
    assert model.scale == compiled.scale == 5.0
    assert compiled.eval() is compiled and not model.training
    x = minitorch.randn(3, 2)
    made, expected = compiled(x), model(x)
    assert made["y"].tolist() == expected["y"].tolist() and made["rest"][1] == 3
    made["rest"][0].sum().backward()
    assert model.layer.weight.grad is not None
    with pytest.raises(AttributeError, match="'Scaled' object has no attribute 'scal'"):
        compiled.scal  # noqa: B018


def test_forms_of_compile() -> None:
    @minitorch.compile
    def double(x: float) -> float:
        return 2 * x

    @minitorch.compile(fullgraph=True, dynamic=False, backend="eager")
    def triple(x: float) -> float:
        """Three times x."""
        return 3 * x

    assert (double(2), triple(2), triple.__doc__) == (4, 6, "Three times x.")
    model = nn.Linear(2, 2)
    assert minitorch.compile(model, disable=True) is model
    with pytest.raises(TypeError, match="got a int"):
        minitorch.compile(3)


def test_is_compiling_and_disable() -> None:
    seen: list[bool] = []

    @compiler.disable
    def plain(x: Tensor) -> Tensor:
        seen.append(compiler.is_compiling())
        return x * 2.0

    @minitorch.compile
    def program(x: Tensor) -> Tensor:
        y = plain(x + 1.0)
        seen.append(compiler.is_compiling())
        return y + 1.0

    assert program(minitorch.ones(2)).tolist() == [5.0, 5.0]
    assert plain(minitorch.ones(1)).tolist() == [2.0]
    assert seen == [False, True, False] and not compiler.is_compiling()


def test_an_executor_where_nothing_is_compiled() -> None:
    @compiler.disable
    def plain(x: Tensor) -> Tensor:
        with profile() as prof:
            y = x * 2.0
        assert [e.key for e in prof.key_averages() if e.key == "Mul"] == ["Mul"]
        return y

    program = minitorch.compile(lambda x: plain(x + 1.0) + 1.0)
    assert program(minitorch.ones(2)).tolist() == [5.0, 5.0]


def test_explain() -> None:
    x = minitorch.ones(2, 3)
    said = compiler.explain(lambda x: (x * 2.0).tanh() @ x.T + 1.0, x)
    assert said == (
        "(2, 3) cpu: mul tanh (2 read, 1 written)\n(2, 2) cpu: add (2 read, 1 written)"
    )


# -------------------------------------------------------------------- who else is there


def test_a_profiler_sees_what_runs(tmp_path: Path) -> None:
    x = minitorch.randn(ROWS, COLS)
    with profile() as prof:
        with record_function("outside"):
            minitorch.compile(lambda x: gelu(x))(x)
    counts = {each.key: each.count for each in prof.key_averages()}
    assert counts["fused"] == 1 and counts["outside"] == 1 and counts["Tanh"] == 1
    assert "map" not in counts and "zip" not in counts

    @minitorch.compile
    def program(x: Tensor) -> Tensor:
        y = x * 2.0 + 1.0
        with record_function("inside"):
            return y * 2.0 + 1.0

    with profile() as prof:
        program(x)
    (inside,) = [e for e in prof.events() if e.name == "inside"]
    kernels = [e for e in prof.events() if e.name == "fused"]
    assert len(kernels) == 2
    assert [inside.start <= e.start < inside.end for e in kernels] == [False, True]


def test_an_executor_below_sees_all() -> None:
    class Names(Executor):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def call(self, name: str, fn: Any, args: Any, kwargs: Any) -> Any:
            self.calls.append(name)
            return fn(*args, **kwargs)

    x = minitorch.randn(4, 4)
    with executing(Names()) as seen:
        y = minitorch.compile(lambda x: (x * 2.0 + 1.0) @ x)(x)
        y.tolist()
    assert [name for name in seen.calls if name != "number"] == [
        "empty", "fused", "matmul",
    ]  # fmt: skip


# ------------------------------------------------------------------------- what is made


def test_the_loop_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "generated_folder", lambda: tmp_path)
    x = minitorch.randn(ROWS, COLS)
    minitorch.compile(lambda x: (x * 1.5).sin().cos().sin() - x)(x)
    (made,) = tmp_path.glob("*.py")
    tree = ast.parse(made.read_text())
    assert ast.get_docstring(tree) == (
        "5 functions in one loop, made by minitorch.compile."
    )
    assert "y3 = float32(sin_float32(y2))" in made.read_text()


def test_a_file_that_was_damaged_or_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "kernels")
    monkeypatch.chdir(tmp_path)
    generated_folder.cache_clear()
    try:
        assert load("a", "x = 1").x == 1
        (path,) = generated_folder().glob("a_*.py")
        monkeypatch.chdir("/")
        del sys.modules[path.stem]
        path.write_bytes(b"\xff\x00")
        assert load("a", "x = 1").x == 1 and path.read_text() == "x = 1"
        shutil.rmtree(generated_folder())
        assert load("a", "x = 2").x == 2
    finally:
        generated_folder.cache_clear()


def test_half_types_are_rounded_once() -> None:
    """On a GPU; on the CPU they are not put together."""
    x = minitorch.randn(40, 40, dtype=minitorch.bfloat16)
    assert not fusions(lambda x: x * 2.0 + 1.0, x)


def test_backends_without_a_compiler(device: str) -> None:
    types = get_backend(device).fused_types
    assert bool(types) == (device in ("cpu", "cuda"))
    x = minitorch.ones(3, device=device)
    assert len(fusions(lambda x: x * 2.0 + 1.0, x)) == bool(types)


@given(st.data())
def test_lines(data: st.DataObject) -> None:
    """In no line an input begins anew, and lines are neither too long nor too many."""
    from fast_ops.fused import line_of
    from minitorch.backend.host.memory import CHUNK

    n, rows, images = (data.draw(st.integers(1, 20_000)) for _ in range(3))
    size = images * rows * n
    places = [(n, 1), (rows, n), (images, rows * n), (1, size), (size, 1)]
    chosen = tuple(data.draw(st.lists(st.sampled_from(places), max_size=4)))
    line = line_of(chosen, size)
    assert 1 <= line <= CHUNK
    for m, d in chosen:
        if 1 < m < size:
            assert (m if d == 1 else d) % line == 0


def test_a_raw_program_leaves_inputs_alone(device: str) -> None:
    x = minitorch.randn(ROWS, COLS, device=device)
    before = x.clone()
    backend = get_backend(x.device)
    out: TensorData = backend.empty((ROWS, COLS), float32)
    steps = Step(mul, (~0, ~0), float32), Step(exp, (0,), float32)
    backend.fused(Program((float32,), steps, (1,)), (ROWS, COLS), [x.raw], {1: out})
    np.testing.assert_array_equal(x.cpu().numpy(), before.cpu().numpy())
    np.testing.assert_allclose(
        backend.to_numpy(out), np.exp(before.cpu().numpy() ** 2), rtol=1e-5
    )
