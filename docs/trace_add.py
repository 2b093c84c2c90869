"""Follow `a + b` from the operator to the kernel, with everything that happens printed.

Run it: `python docs/trace_add.py`. It walks the four hops that every operation of the
library travels, checks at each that it is where it should be, and then walks back with
the gradient. The test-suite runs it, so it cannot go out of date.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import FrameType, ModuleType

import minitorch
from minitorch import operators
from minitorch.autodiff import topological_sort
from minitorch.backend import get_backend
from minitorch.functions.elementwise import Add
from minitorch.functions.operands import operands

ROOT = Path(minitorch.__file__).parent.parent


def where(thing: object) -> str:
    """The file and line at which `thing` is defined."""
    target = inspect.unwrap(thing) if callable(thing) else thing  # type: ignore[arg-type]
    file = Path(inspect.getsourcefile(target) or "")  # type: ignore[arg-type]
    line = inspect.getsourcelines(target)[1]  # type: ignore[arg-type]
    return f"{file.relative_to(ROOT)}:{line}"


def show(hop: str, thing: object, lines: int = 4) -> None:
    """Print a hop: where it is, and how it begins."""
    print(f"\n{hop}\n  {where(thing)}")
    source = inspect.getsource(thing).rstrip().splitlines()  # type: ignore[arg-type]
    for text in source[:lines]:
        print(f"  | {text}")
    if len(source) > lines:
        print("  | ...")


def forward(a: minitorch.Tensor, b: minitorch.Tensor) -> minitorch.Tensor:
    """The four hops of a + b."""
    print(f"a is {tuple(a.shape)}, b is {tuple(b.shape)}, both on {a.device!r}")

    show("1. The operator gets its operands ready", minitorch.Tensor.__add__)
    a, b = operands("add", a, b)  # one device, one dtype, shapes that broadcast

    show("2. One operation is one class: the formula", Add, 5)
    show("   Its forward asks the backend for the values", Add.forward, 5)

    backend = get_backend(a.device)
    show("3. The backend's zip applies a scalar function to all pairs", backend.zip, 8)
    show("   The scalar function is plain Python, written once", operators.add)

    out = backend.zip(operators.add, a.raw, b.raw)
    print(f"\n4. The kernel has filled a flat storage: {out.storage.array}")
    print(f"   which {out!r} shows as")
    result = a + b
    assert result.tolist() == minitorch.Tensor(out).tolist()
    print("   " + repr(result).replace("\n", "\n   "))
    return result


def backward(a: minitorch.Tensor, b: minitorch.Tensor, out: minitorch.Tensor) -> None:
    """The way back: from the recorded graph to the gradients."""
    print("\nThe way back")
    print(f"  out was made by {out.grad_fn!r}, whose edges lead to the leaves:")
    order = topological_sort([out.grad_fn])
    for item in order:
        kind = "leaf of shape" if isinstance(item, minitorch.Tensor) else "node"
        name = tuple(item.shape) if isinstance(item, minitorch.Tensor) else repr(item)
        print(f"    {kind} {name}")
    out.backward(minitorch.ones_like(out))
    assert a.grad is not None and b.grad is not None
    print(f"  a.grad = {a.grad.tolist()}: each element of a was used once")
    print(f"  b.grad = {b.grad.tolist()}: broadcasting used each element of b twice,")
    print("  so its gradients were added up (functions/operands.py: unbroadcast)")
    assert a.grad.tolist() == [[1.0] * 3] * 2
    assert b.grad.tolist() == [2.0] * 3


MOST = 9


def visits(a: minitorch.Tensor, b: minitorch.Tensor) -> list[str]:
    """The Python functions that a + b enters on its way to the kernel, in order."""
    entered: list[str] = []
    after = minitorch.Tensor.wrap.__code__  # makes a tensor of what the kernel wrote

    def note(frame: FrameType, event: str, _: object) -> None:
        name, file = frame.f_code.co_name, Path(frame.f_code.co_filename)
        if event != "call" or "" in entered:
            return
        if name == "loop" or frame.f_code is after:  # the kernel is a loop of Python
            entered.append("")
        elif frame.f_code is not visits.__code__:
            entered.append(f"{file.stem}.{name}")

    sys.setprofile(note)
    try:
        a + b
    finally:
        sys.setprofile(None)
    return entered[: entered.index("")]


def count_visits() -> None:
    """Print what stands between `a + b` and its kernel, where nothing broadcasts."""
    a = minitorch.ones(2, 3, requires_grad=True)
    a + a  # compiles the kernel
    names = visits(a, a)
    print(
        f"\na + b of one shape enters {len(names)} Python functions before the kernel:"
    )
    print("  " + "\n  ".join(names))
    assert len(names) <= MOST


def hops(device: str) -> list[ModuleType | None]:
    """The modules of the trail, in order."""
    zip_ = get_backend(device).zip
    things = [minitorch.Tensor.__add__, Add.forward, zip_, operators.add]
    return [inspect.getmodule(thing) for thing in things]


def main() -> None:
    """Walk the trail on every CPU backend."""
    for device in ("simple", "cpu"):
        print(f"\n{'=' * 24} device {device!r} {'=' * 24}")
        a = minitorch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=device)
        b = minitorch.tensor([10.0, 20.0, 30.0], device=device)
        a.requires_grad_()
        b.requires_grad_()
        out = forward(a, b)
        assert out.tolist() == [[11.0, 22.0, 33.0], [14.0, 25.0, 36.0]]
        backward(a, b, out)
        names = [module.__name__ for module in hops(device) if module is not None]
        print(f"\n  the trail: {' -> '.join(names)}")
    count_visits()


if __name__ == "__main__":
    main()
