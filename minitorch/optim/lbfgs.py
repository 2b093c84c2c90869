"""An optimizer that learns how the gradient bends: L-BFGS.

With this file one can minimize a smooth loss of all data to many digits in tens of
steps: `LBFGS(params, line_search_fn="strong_wolfe").step(closure)`. A closure computes
the loss and its gradients anew, at each point that a step tries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, NamedTuple

from minitorch.autodiff import enable_grad, no_grad
from minitorch.executor import advance
from minitorch.nn.utils import parameters_to_vector, vector_to_parameters
from minitorch.optim.optimizer import (
    Group,
    Optimizer,
    check_numbers,
    gradient,
    whole_with_grad,
)
from minitorch.tensor import Tensor

SEARCHES = (None, "strong_wolfe")
ENOUGH, FLATTER, TRIES = 1e-4, 0.9, 25  # c1, c2 of Wolfe's conditions; points tried


class LBFGS(Optimizer):
    """x += t * d with d = -H g, where H, of the last changes of x and g, is nearly the
    inverse of the second derivatives.

    One step takes up to max_iter of these. x and g are all parameters, and all
    gradients, as one vector [N]; the memory is 2 * history_size * N numbers. The host
    reads a few numbers in each iteration, so CUDA graphs cannot hold it.

    Args:
        params: parameters, in one group.
        lr: t; the first iteration's, and that of a search's first point, as well.
        max_iter: iterations of one step.
        max_eval: how many calls of the closure end a step, and a search in it (which
            may take one more); None: max_iter * 5 // 4.
        tolerance_grad: a step ends where no gradient is larger,
        tolerance_change: or where neither a parameter nor the loss changes by more.
        history_size: how many changes are remembered.
        line_search_fn: None, or "strong_wolfe": look for a t where the loss is
            smaller, and flatter along d.

    Raises:
        ValueError: there are several groups.
        TypeError: `step` gets no closure.

    Source: Nocedal and Wright, "Numerical optimization", 2nd edition, 2006: algorithms
    7.4 and 7.5, with the initial matrix of equation 7.20.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)

    def check(self, group: Group) -> None:
        if self.param_groups:
            raise ValueError(
                "LBFGS: all parameters share one direction and one t; give them in one "
                "group"
            )
        check_numbers("LBFGS", group, *list(self.defaults)[:-1])
        if group["history_size"] < 1:
            raise ValueError("LBFGS: history_size is 0; it must be 1 or more")
        if group["line_search_fn"] not in SEARCHES:
            raise ValueError(
                f"LBFGS: line_search_fn is {group['line_search_fn']!r}; expected None "
                f'or "strong_wolfe"'
            )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take up to max_iter iterations.

        Args:
            closure: sets gradients to zero, computes the loss and its gradients.

        Returns:
            What the closure returned first, before any change.
        """
        if closure is None:
            raise TypeError(
                "LBFGS.step: got no closure; a step computes the loss several times, "
                "by a function of yours: zero_grad(), backward(), return loss"
            )
        return advance("LBFGS.step", self._minimize, closure)

    @no_grad()
    def _minimize(self, closure: Callable[[], Any]) -> Any:
        group, self.steps_taken = self.param_groups[0], self.steps_taken + 1
        state = self.state[group["params"][0]]
        if not state:
            state.update(func_evals=0, n_iter=0)
        begun, first = state["func_evals"], self._evaluate(closure)
        loss, g = float(first), self._gradient()
        x, least = parameters_to_vector(group["params"]), group["tolerance_change"]

        def at(t: float) -> Point:
            vector_to_parameters(x + t * d, group["params"])
            loss, g = float(self._evaluate(closure)), self._gradient()
            return Point(t, loss, float(g.dot(d)), g)

        for left in reversed(range(group["max_iter"])):
            if _largest(g) <= group["tolerance_grad"]:
                break
            d = self._direction(state, g)
            slope, t = float(g.dot(d)), group["lr"]
            if state["n_iter"] == 1:
                t *= min(1.0, 1.0 / float(g.abs().sum()))
            state.update(d=d, t=t, prev_flat_grad=g, prev_loss=loss)
            if slope >= -least:
                break
            if group["line_search_fn"]:
                start = Point(0.0, loss, slope, g)
                calls = group["max_eval"] - state["func_evals"] + begun
                tries, shortest = min(TRIES, calls), least / _largest(d)
                t, loss, _, g = strong_wolfe(at, start, t, shortest, tries)
            elif left:
                _, loss, _, g = at(t)
            x, state["t"] = x + t * d, t
            if (
                state["func_evals"] - begun >= group["max_eval"]
                or t * _largest(d) <= least
                or abs(loss - state["prev_loss"]) < least
            ):
                break
        vector_to_parameters(x, group["params"])
        return first

    def _evaluate(self, closure: Callable[[], Any]) -> Any:
        self.state[self.param_groups[0]["params"][0]]["func_evals"] += 1
        with enable_grad():
            return closure()

    def _gradient(self) -> Tensor:
        """All gradients, one after the other; 0 where there is none."""
        whole_with_grad("LBFGS", self.param_groups[0])  # or its error
        grads = [
            p.new_zeros(p.raw.shape) if p.grad is None else gradient(p)
            for p in self.param_groups[0]["params"]
        ]
        return parameters_to_vector(grads)

    def _direction(self, state: dict[str, Any], g: Tensor) -> Tensor:
        """-H g, after the last change of x and g is remembered if g rose along it."""
        state["n_iter"] += 1
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
        else:
            y, s = g - state["prev_flat_grad"], state["d"] * state["t"]
            ys = y.dot(s)
            if float(ys) > 1e-10:  # else H would not stay positive
                for name, value in (("old_dirs", y), ("old_stps", s), ("ro", 1 / ys)):
                    kept = [*state[name], value]
                    state[name] = kept[-self.param_groups[0]["history_size"] :]
                state["H_diag"] = ys / y.dot(y)
        return two_loops(state, -g)

    def _loaded(self, p: Tensor, key: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._loaded(p, key, one) for one in value]
        if not isinstance(value, Tensor):
            return deepcopy(value)
        total = sum(p.numel() for p in self.param_groups[0]["params"])
        if value.dim() and value.raw.shape != (total,):
            raise ValueError(
                f"load_state_dict: {key!r} is {value.raw.shape}; the parameters have "
                f"{total} numbers"
            )
        return value.detach().to(p.device).clone()


def two_loops(state: dict[str, Any], q: Tensor) -> Tensor:
    """H q [N], by products of vectors: H is applied, and never made.

    Source: Nocedal and Wright, algorithm 7.4.
    """
    changes = [*zip(state["old_stps"], state["old_dirs"], state["ro"])]
    shares = []
    for s, y, ro in reversed(changes):
        shares.append(s.dot(q) * ro)
        q = q - shares[-1] * y
    r = q * state["H_diag"]
    for s, y, ro in changes:
        r = r + (shares.pop() - y.dot(r) * ro) * s
    return r


class Point(NamedTuple):
    """Where x + t d is: the loss there, its slope along d, and the gradient [N]."""

    t: float
    loss: float
    slope: float
    grad: Tensor


def strong_wolfe(
    at: Callable[[float], Point],
    start: Point,
    t: float,
    shortest: float,
    most: int = TRIES,
) -> Point:
    """A point whose loss is small enough, and flat enough, for Wolfe's conditions:

        loss <= start.loss + 1e-4 * t * start.slope  and  |slope| <= 0.9 |start.slope|

    or the best one, after `most` tries or where an interval is below `shortest`.
    Intervals end at a `low` that is small enough and a `high`, with a minimum between.

    Source: Nocedal and Wright, algorithms 3.5 and 3.6. What they leave open is chosen
    as in PyTorch, so that both try the same points.
    """

    def too_high(p: Point) -> bool:
        return not p.loss <= start.loss + ENOUGH * p.t * start.slope  # or NaN

    low, now = start, at(t)
    for tries in range(most):  # longer and longer
        if too_high(now) or (tries and now.loss >= low.loss):
            high = now
            break
        if abs(now.slope) <= -FLATTER * start.slope:
            return now
        if now.slope >= 0:
            low, high = now, low
            break
        least, farthest = now.t + 0.01 * (now.t - low.t), 10 * now.t
        farther = cubic(low, now, (least + farthest) / 2)
        low, now = now, at(max(least, min(farther, farthest)))
    else:
        return now if now.loss < low.loss else low
    stalled = False
    while tries < most and high.t != low.t and abs(high.t - low.t) >= shortest:
        t, stalled = within(low, high, stalled)
        now, tries = at(t), tries + 1
        if too_high(now) or now.loss >= low.loss:
            high = now
            continue
        if abs(now.slope) <= -FLATTER * start.slope:
            return now
        if now.slope * (high.t - low.t) >= 0:
            high = low
        low = now
    return low


def within(low: Point, high: Point, stalled: bool) -> tuple[float, bool]:
    """Where to look between two points, and whether that is near an end.

    The second time in a row it is a tenth of the interval away from the end.
    """
    left, right = sorted((low.t, high.t))
    margin = 0.1 * (right - left)
    t = max(left, min(cubic(low, high, (left + right) / 2), right))
    near = min(t - left, right - t) < margin
    if near and (stalled or not left < t < right):
        return (right - margin if right - t < t - left else left + margin), False
    return t, near


def cubic(a: Point, b: Point, without: float) -> float:
    """Where the cubic through two points, with their slopes, has its minimum; or
    `without`, if it has none.

    Source: Nocedal and Wright, equation 3.59.
    """
    if a.t > b.t:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not 0 <= square < math.inf:
        return without
    d2 = math.sqrt(square)
    share, of = b.slope + d2 - d1, b.slope - a.slope + 2 * d2
    if not of:  # a straight line, which falls without an end
        return -math.copysign(math.inf, share) if share else without
    return b.t - (b.t - a.t) * (share / of)


def _largest(x: Tensor) -> float:
    return float(x.abs().max())
