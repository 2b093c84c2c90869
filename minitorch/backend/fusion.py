"""Several elementwise functions as one: what the compiler hands to a backend.

With this file one can write a chain of `map`, `zip` and `where` down as a `Program`,
run it function by function on any backend (`fused`, the default), and make the text of
one loop of it (`Program.lines`), for a backend that compiles.

    y = (a + b).tanh() * b            0: add(a, b)   1: tanh(0)   2: mul(1, b)

All values of a program have one shape: inputs are broadcast to it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from minitorch.backend.primitives import Primitives
from minitorch.dtypes import DType, computed
from minitorch.tensor_data import TensorData


class Step(NamedTuple):
    """One function of a program.

    Attributes:
        fn: of `minitorch/operators.py`; `where` chooses.
        args: what it is given: k is the result of step k, ~k (below 0) input k.
        dtype: of the result.
    """

    fn: Callable
    args: tuple[int, ...]
    dtype: DType


class Program(NamedTuple):
    """Elementwise functions in the order in which they are computed.

    Attributes:
        inputs: the types of what is read.
        steps: each uses inputs and the steps before it.
        kept: the steps whose results are written.
    """

    inputs: tuple[DType, ...]
    steps: tuple[Step, ...]
    kept: tuple[int, ...]

    def needed(self) -> Program:
        """The same without steps that nobody uses."""
        wanted, steps = set(self.kept), self.steps
        for k in reversed(range(len(steps))):
            if k in wanted:
                wanted.update(arg for arg in steps[k].args if arg >= 0)
        number = {k: i for i, k in enumerate(sorted(wanted))}
        rest = [
            step._replace(args=tuple([a if a < 0 else number[a] for a in step.args]))
            for k, step in enumerate(steps)
            if k in wanted
        ]
        return Program(self.inputs, tuple(rest), tuple([number[k] for k in self.kept]))

    def lines(self) -> list[str]:
        """Each step as Python: inputs are x0, x1, ..., and results y0, y1, ...

        A result is rounded to its type, as if it were written to memory; half types are
        float32 in between.
        """
        return [
            f"y{k} = {computed(step.dtype).name}({self.called(step)}"
            f"({', '.join(f'y{a}' if a >= 0 else f'x{~a}' for a in step.args)}))"
            for k, step in enumerate(self.steps)
        ]

    def called(self, step: Step) -> str:
        """The name of a step's function for the type that it is given: exp_float32."""
        last = step.args[-1]
        kind = self.steps[last].dtype if last >= 0 else self.inputs[~last]
        return f"{step.fn.__name__}_{computed(kind).name}"

    def head(self) -> list[str]:
        """What `lines` needs: the functions, by `scalar(name, type)`, and the types."""
        called = sorted({self.called(step) for step in self.steps})
        types = sorted({computed(step.dtype).name for step in self.steps})
        named = [f"{name} = np.{'bool_' if name == 'bool' else name}" for name in types]
        return [*named, *(f'{c} = scalar("{c}")' for c in called)]


class Fusion(Primitives):
    """Elementwise functions one after the other, or as one."""

    # Of these a backend makes one kernel; programs of other types do not come to it.
    fused_types: frozenset[DType] = frozenset()

    def fused(
        self,
        program: Program,
        inputs: Sequence[TensorData],
        outs: Mapping[int, TensorData],
    ) -> None:
        """Compute `program` of `inputs`, which broadcast to the shape of all `outs`.

        `outs` has memory for the results of each step in `program.kept`, without gaps,
        and apart from the inputs.
        """
        values: list[TensorData] = []
        shape = next(iter(outs.values())).shape
        for k, (fn, args, dtype) in enumerate(program.steps):
            given = [values[a] if a >= 0 else inputs[~a] for a in args]
            if all(a.shape != shape for a in given):
                given[0] = given[0].expand(shape)
            out = outs.get(k)
            if len(given) == 1:
                values.append(self.map(fn, given[0], dtype, out))
            elif len(given) == 2:
                values.append(self.zip(fn, given[0], given[1], dtype, out))
            else:
                values.append(self.where(given[0], given[1], given[2], out))


# ------------------------------------------------------------------ text that is made


def load(name: str, text: str) -> ModuleType:
    """The module that `text` makes, from a file of its own, as compilers want it.

    The file is in the folder of `generated_folder`, where one can read it.
    """
    name = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    path = generated_folder() / f"{name}.py"
    if not path.exists() or path.read_text() != text:
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(text)
        part.replace(path)  # at once: other processes never see half of it
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(made)
    except BaseException:
        del sys.modules[name]
        raise
    return made


@cache
def generated_folder() -> Path:
    """Where kernels are written that the compiler makes: $NUMBA_CACHE_DIR, else the
    user's cache folder; one that ends with the process where neither can be written."""
    given: Any = os.environ.get("NUMBA_CACHE_DIR")
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    base = Path(given or Path(user).expanduser() / "minitorch") / "compiled"
    try:
        base.mkdir(parents=True, exist_ok=True)
        if os.access(base, os.W_OK):
            return base
    except OSError:
        pass
    _kept.append(made := tempfile.TemporaryDirectory(prefix="minitorch-compiled-"))
    return Path(made.name)


_kept: list[Any] = []  # folders that are deleted at the end
