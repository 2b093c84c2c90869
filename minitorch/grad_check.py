"""Are the gradients right? Compare `backward` with differences of values.

With this file one can check any function of tensors, and a `Function` of one's own:

    x = minitorch.randn(3, dtype=minitorch.float64, requires_grad=True)
    gradcheck(lambda x: (x * x).sum(0), [x])        # d out / d x
    gradgradcheck(lambda x: (x * x).sum(0), [x])    # and the gradient of that gradient

Both return True, or raise `GradientError`, which says for which input and element the
two numbers differ. The differences are central ones in float64: their error
is O(eps^2) from the curvature, and about 1e-16 / eps from rounding, so that eps = 1e-6
leaves some nine digits.

Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, chapter 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import minitorch.dtypes as dtypes
from minitorch.autodiff import enable_grad, no_grad
from minitorch.tensor import Tensor, grad

FULL_JACOBIAN = 32  # outputs up to which each one is checked by itself
PROJECTIONS = 2  # random combinations of the outputs that are checked otherwise


class GradientError(RuntimeError):
    """A gradient differs from the differences of the function's values."""


def gradcheck(
    fn: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    eps: float = 1e-6,
    atol: float = 1e-6,
    rtol: float = 1e-5,
    raise_exception: bool = True,
) -> bool:
    """Check the gradient of every input that requires grad.

    Args:
        fn: a function of `inputs` that returns a tensor or several.
        inputs: its arguments; those that require grad must be float64.
        eps: how far an element is moved up and down.
        atol: see rtol.
        rtol: the two gradients may differ by atol + rtol * |numeric|.
        raise_exception: False: return False where a gradient is wrong.

    Raises:
        GradientError: a gradient is wrong; the message shows the first one.
        TypeError: an input that requires grad is not float64.
        ValueError: no input requires grad.
    """
    if not raise_exception:
        try:
            return gradcheck(fn, inputs, eps, atol, rtol)
        except GradientError:
            return False
    args = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    checked = _checked_inputs(args)
    with enable_grad():
        outputs = _floating_outputs(fn(*args))
    directions = _directions(sum(out.numel() for out in outputs))
    analytic = _analytic(outputs, [args[i] for i in checked], directions)
    for i, by_backward in zip(checked, analytic):
        numeric = directions @ _jacobian(fn, args, i, eps)
        _compare(i, args[i], by_backward, numeric, atol, rtol)
    return True


def gradgradcheck(
    fn: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    eps: float = 1e-6,
    atol: float = 1e-6,
    rtol: float = 1e-5,
) -> bool:
    """Check the gradient of the gradient: `gradcheck` of the recorded backward pass.

    The backward pass is a function of the inputs and of the gradients that it starts
    from, which are random numbers here; both are checked. Input numbers in an error
    message count the inputs that require grad first, then the starting gradients.
    """
    args = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    checked = _checked_inputs(args)
    with enable_grad():
        outputs = _floating_outputs(fn(*args))
    rng = np.random.default_rng(1)
    starts = [out.new_tensor(rng.standard_normal(out.shape)) for out in outputs]

    def backward(*values: Tensor) -> tuple[Tensor, ...]:
        given = list(args)
        for i, value in zip(checked, values):
            given[i] = value if value.requires_grad else value.requires_grad_()
        return _first_gradients(fn, given, checked, values[len(checked) :])

    values = [args[i] for i in checked] + [s.requires_grad_() for s in starts]
    return gradcheck(backward, values, eps, atol, rtol)


def _first_gradients(
    fn: Callable[..., Any],
    args: list[Any],
    checked: list[int],
    starts: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """The recorded gradients of fn for `checked` arguments, 0 where it has none."""
    wanted = [args[i] for i in checked]
    with enable_grad():
        outputs = _floating_outputs(fn(*args))
        pairs = [(o, s) for o, s in zip(outputs, starts) if o.requires_grad]
        if not pairs:
            return tuple(x.new_zeros(x.shape) for x in wanted)
        found = grad(
            [o for o, _ in pairs],
            wanted,
            [s for _, s in pairs],
            create_graph=True,
            allow_unused=True,
        )
    return tuple(
        x.new_zeros(x.shape) if g is None else g for x, g in zip(wanted, found)
    )


def _checked_inputs(args: Sequence[Any]) -> list[int]:
    """The numbers of the arguments that require grad."""
    found = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.requires_grad]
    if not found:
        raise ValueError(
            "gradcheck: no input requires grad; make one with requires_grad=True"
        )
    for i in found:
        if args[i].dtype is not dtypes.float64:
            raise TypeError(
                f"gradcheck: input {i} is {args[i].dtype.name}; differences need "
                f"float64; use .double()"
            )
    return found


def _floating_outputs(result: Any) -> list[Tensor]:
    outputs = [result] if isinstance(result, Tensor) else list(result)
    return [out for out in outputs if out.dtype.is_floating_point]


def _directions(count: int) -> np.ndarray:
    """Combinations of the outputs that are differentiated: [combinations, count]."""
    if count <= FULL_JACOBIAN:
        return np.eye(count)
    return np.random.default_rng(0).standard_normal((PROJECTIONS, count))


def _analytic(
    outputs: list[Tensor], inputs: list[Tensor], directions: np.ndarray
) -> list[np.ndarray]:
    """For each input, the gradient of each combination of outputs [combinations, n]."""
    found = [np.zeros((len(directions), x.numel())) for x in inputs]
    if not any(out.requires_grad for out in outputs):
        return found
    for row, direction in enumerate(directions):
        ends = np.cumsum([out.numel() for out in outputs])
        pieces = np.split(direction, ends[:-1])
        pairs = [(o, p) for o, p in zip(outputs, pieces) if o.requires_grad]
        grads = grad(
            [out for out, _ in pairs],
            inputs,
            [out.new_tensor(piece.reshape(out.shape)) for out, piece in pairs],
            retain_graph=True,
            allow_unused=True,
        )
        for table, x, g in zip(found, inputs, grads):
            if g is not None:
                _check_like(x, g)
                table[row] = np.asarray(g.detach().numpy()).reshape(-1)
    return found


def _check_like(x: Tensor, g: Tensor) -> None:
    if g.shape != x.shape or g.dtype is not x.dtype:
        raise GradientError(
            f"gradcheck: a gradient is {tuple(g.shape)} {g.dtype.name}, but its input "
            f"is {tuple(x.shape)} {x.dtype.name}"
        )


def _jacobian(
    fn: Callable[..., Any], args: list[Any], number: int, eps: float
) -> np.ndarray:
    """d outputs / d args[number] by central differences: [outputs, n]."""
    x = args[number].detach()
    columns = []
    for i in range(x.numel()):
        step = np.zeros(x.numel())
        step[i] = eps
        moved = x.new_tensor(step.reshape(x.shape))
        above = _values(fn, args, number, x + moved)
        below = _values(fn, args, number, x - moved)
        columns.append((above - below) / (2.0 * eps))
    if not columns:
        return np.zeros((len(_values(fn, args, number, x)), 0))
    return np.stack(columns, axis=1)


def _values(
    fn: Callable[..., Any], args: list[Any], number: int, x: Tensor
) -> np.ndarray:
    """All outputs, one after the other, with `x` as argument `number`."""
    given = [a.detach() if isinstance(a, Tensor) else a for a in args]
    given[number] = x
    with no_grad():
        outputs = _floating_outputs(fn(*given))
    flat = [np.array(out.detach().numpy(), np.float64).reshape(-1) for out in outputs]
    return np.concatenate(flat) if flat else np.zeros(0)


def _compare(
    number: int,
    x: Tensor,
    analytic: np.ndarray,
    numeric: np.ndarray,
    atol: float,
    rtol: float,
) -> None:
    close = np.isclose(analytic, numeric, rtol=rtol, atol=atol, equal_nan=True)
    if close.all():
        return
    row, column = (int(i) for i in np.argwhere(~close)[0])
    index = tuple(int(i) for i in np.unravel_index(column, tuple(x.shape)))
    raise GradientError(
        f"gradcheck: the gradient for input {number} at index {index} is wrong: "
        f"differences give {numeric[row, column]:.10g} (numeric), backward gives "
        f"{analytic[row, column]:.10g} (analytic); {int((~close).sum())} of "
        f"{close.size} numbers differ; the input is {tuple(x.shape)}, the output "
        f"or combination of outputs is number {row}"
    )


__all__ = ["GradientError", "gradcheck", "gradgradcheck"]
