"""Memory for time: what the backward pass needs is computed again, not kept.

With this file one can run a part of a network, a block of a transformer for example,
so that only its inputs stay in memory until the backward pass:

    x = checkpoint(block, x)

The forward pass records as always, but nodes keep nothing of what they save. When the
backward pass asks the first of them, the function runs once more with the same random
numbers, and each node gets what it would have saved.

Source: Chen et al., "Training deep nets with sublinear memory cost", 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minitorch.autodiff import grad_mode, set_grad_mode
from minitorch.function import Context
from minitorch.random import default_generator, fork_rng
from minitorch.tensor import Tensor
from minitorch.tensor_data import TensorData

Saved = tuple[Any, ...]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool = False,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, which runs once more in the backward pass.

    Args:
        function: does the same work each time: its result may depend on its arguments,
            on parameters and on random numbers, and on nothing that changes meanwhile.
        use_reentrant: as in PyTorch, where there are two ways; here is one, in which
            gradients also go to what `function` knows besides its arguments.
        preserve_rng_state: whether the second run draws the same random numbers.

    Errors: RuntimeError in the backward pass, if the second run saved other tensors
    than the first, if an argument was changed in place between them, and for gradients
    of gradients.
    """
    if grad_mode.enabled is False:
        return function(*args, **kwargs)
    region = Region(lambda: function(*args, **kwargs), (*args, *kwargs.values()))
    region.random = default_generator.get_state() if preserve_rng_state else None
    with set_grad_mode(region):  # type: ignore[arg-type]
        return function(*args, **kwargs)


def checkpoint_sequential(
    functions: Sequence[Callable[[Any], Any]], segments: int, input: Any, **kwargs: Any
) -> Any:
    """Functions one after the other, each of `segments` parts of them checkpointed.

    Args:
        functions: modules or functions of one argument; an `nn.Sequential` is one too.
        kwargs: for `checkpoint`.
    """
    functions = list(functions)
    if not 1 <= segments <= len(functions):
        raise ValueError(
            f"checkpoint_sequential: segments is {segments}; expected 1 to "
            f"{len(functions)}, the number of functions"
        )

    def run(part: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
        def through(x: Any) -> Any:
            for function in part:
                x = function(x)
            return x

        return through

    size = len(functions) // segments
    for first in range(0, size * (segments - 1), size):
        input = checkpoint(run(functions[first : first + size]), input, **kwargs)
    # As in PyTorch the last part is kept: its backward pass comes at once.
    return run(functions[size * (segments - 1) :])(input)


class Region:
    """A run of a function whose nodes keep nothing, and how to get it back.

    As the mode of gradients it is true, so that operations are recorded.
    """

    def __init__(self, run: Callable[[], Any], arguments: Saved) -> None:
        self.run = run
        self.random: dict[str, int] | None = None
        # Types alone: the region around keeps casts, whose nodes know this one.
        self.autocast = grad_mode.autocast and grad_mode.autocast.afresh()
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        self.versions = [(x, x.raw.storage.version) for x in tensors]
        self.shapes: list[Any] = []  # of what each node would have saved
        self.again: dict[int, Saved] = {}

    def record(self, ctx: Context) -> None:
        """A node is made: it shall keep nothing."""
        ctx.__class__ = Forgetful
        ctx.region = self

    def forget(self, saved: Saved) -> int:
        """The number of what a node has to save."""
        self.shapes.append(shapes_of(saved))
        return len(self.shapes) - 1

    def recall(self, number: int) -> Saved:
        """What that node would have saved; kept no longer."""
        if grad_mode.enabled:
            raise RuntimeError(
                "checkpoint: no gradients of gradients are taken; leave out "
                "create_graph=True, or checkpoint"
            )
        if number not in self.again:
            self._run_again()
        return self.again.pop(number)

    def _run_again(self) -> None:
        for x, version in self.versions:
            if x.raw.storage.version != version:
                raise RuntimeError(
                    f"checkpoint: an argument of shape {tuple(x.shape)} was changed in "
                    f"place since the forward pass; give a clone() of it"
                )
        second = SecondRun()
        before = grad_mode.autocast
        grad_mode.autocast = self.autocast and self.autocast.afresh()
        try:
            again = self.random is not None
            with fork_rng(enabled=again), set_grad_mode(second):  # type: ignore[arg-type]
                if self.random is not None:
                    default_generator.set_state(self.random)
                self.run()
        finally:
            grad_mode.autocast = before
        if second.shapes != self.shapes:
            raise RuntimeError(
                f"checkpoint: the second run of the function saved "
                f"{len(second.shapes)} times, the first {len(self.shapes)} times, or "
                f"tensors of other shapes; it must do the same each time"
            )
        # Kept here alone: in the second run they would be held by their own nodes.
        self.again, second.saved = dict(enumerate(second.saved)), []


class SecondRun(Region):
    """The run in the backward pass, in which what nodes save is collected."""

    def __init__(self) -> None:
        super().__init__(lambda: None, ())
        self.saved: list[Saved] = []

    def forget(self, saved: Saved) -> int:
        self.saved.append(saved)
        return super().forget(saved)


class Forgetful(Context):
    """A node of a region."""

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep a number, by which the region finds these tensors again."""
        if self.edges:
            self.place = self.region.forget(tensors)

    @property
    def saved_tensors(self) -> Saved:
        """The tensors of a second run, as constants."""
        saved = self.region.recall(self.place)
        return tuple([self._wrap(t) if type(t) is TensorData else t for t in saved])


def shapes_of(saved: Saved) -> list[Any]:
    """The shapes and dtypes of tensors, of which some may be None."""
    return [None if t is None else (tuple(t.shape), t.dtype) for t in saved]
