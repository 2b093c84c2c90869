"""Recurrent layers: a state that goes along a sequence, and is all that is remembered.

With this file one can read sequences with `RNN`, `LSTM` and `GRU`, or take one step at
a time with `RNNCell`, `LSTMCell` and `GRUCell`. What the input does to the gates is
computed for all times at once, with one product; what the state does to them, time
after time. Names of parameters are PyTorch's, so that its state dicts load.
"""

from __future__ import annotations

import math
from typing import Any

import minitorch.nn.functional as F
import minitorch.nn.init as init
from minitorch.creation import empty
from minitorch.dtypes import DType
from minitorch.functions.movement import cat, stack
from minitorch.functions.operands import checked_tensor
from minitorch.nn.linear import check_sizes
from minitorch.nn.module import Module
from minitorch.nn.parameter import Parameter
from minitorch.nn.utils.rnn import PackedSequence
from minitorch.tensor import Tensor

State = tuple[Tensor, ...]


class _Recurrent(Module):
    """What the layers share; a subclass has `_step`.

    input [L, N, I] or [L, I] -> output [L, N, D * H] or [L, D * H], and the last state
    (or states) of each layer and direction [num_layers * D, N, H]; D is 2 if
    `bidirectional`, else 1.

    Args:
        input_size: I; `hidden_size`: H.
        num_layers: each reads what the one before gives.
        bias: whether there are biases.
        batch_first: whether input and output are [N, L, *].
        dropout: of what all layers but the last give, in training.
        bidirectional: whether each layer also reads from the end; outputs are joined.

    Input that is packed (`nn.utils.rnn`) gives packed output; no sequence is read
    further than it goes. Of PyTorch's arguments proj_size is missing.
    """

    _gates, _states = 1, 1  # parts of the weights' rows, and tensors of a state
    _end = "_l{}{}"  # of a parameter's name, for a layer and a direction

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_sizes(name, input_size=input_size, hidden_size=hidden_size)
        if hidden_size < 1 or num_layers < 1 or not 0.0 <= dropout <= 1.0:
            raise ValueError(
                f"{name}: hidden_size is {hidden_size}, num_layers {num_layers} and "
                f"dropout {dropout}; expected 1 or more, and 0 to 1"
            )
        self.input_size, self.hidden_size = input_size, hidden_size
        self.num_layers, self.bias, self.dropout = num_layers, bias, dropout
        self.batch_first, self.bidirectional = batch_first, bidirectional
        self._ends = ("", "_reverse")[: 1 + bidirectional]
        rows, bound = self._gates * hidden_size, 1.0 / math.sqrt(hidden_size)
        for layer in range(num_layers):
            width = len(self._ends) * hidden_size if layer else input_size
            shapes: dict[str, Any] = {"weight_ih": (rows, width)}
            shapes["weight_hh"] = rows, hidden_size
            shapes |= {"bias_ih": rows, "bias_hh": rows} if bias else {}
            for end in self._ends:
                for key, shape in shapes.items():
                    made = Parameter(empty(shape, device=device, dtype=dtype))
                    init.uniform_(made, -bound, bound)
                    self.register_parameter(key + self._end.format(layer, end), made)

    def _step(self, given: Tensor, past: Tensor, *state: Tensor) -> State:
        """The next state, from what the input and what the state before gives to the
        gates [N, gates * H], and from that state [N, H]."""
        raise NotImplementedError

    def forward(
        self, input: Tensor | PackedSequence, hx: Any = None
    ) -> tuple[Any, Any]:
        """The output, and the last state; of an LSTM, which has two, a pair.

        Args:
            hx: the states before, as they are returned; None: zeros.
        """
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        shape = checked_tensor(type(self).__name__, input).raw.shape
        if len(shape) not in (2, 3) or shape[-1] != self.input_size:
            raise ValueError(
                f"{type(self).__name__}: the input is {shape}; expected 2 or 3 "
                f"dimensions, the last of size {self.input_size}"
            )
        swap = self.batch_first and len(shape) == 3
        x = input.transpose(0, 1) if swap else input
        times, *batch, _ = x.raw.shape
        x, found = self._layers(x, self._begin(x, times, batch, hx))
        x = x.transpose(0, 1) if swap else x
        return x, found if self._states > 1 else found[0]

    def _packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        """The same for sequences that are packed; states are in the order of those."""
        x, order, back = input.data, input.sorted_indices, input.unsorted_indices
        if x.dim() != 2 or x.raw.shape[1] != self.input_size:
            raise ValueError(
                f"{type(self).__name__}: the packed input's data is {x.raw.shape}; "
                f"expected (steps of all sequences, {self.input_size})"
            )
        sizes = input.batch_sizes.tolist()
        states = self._begin(x, len(sizes), sizes[:1], hx)
        if order is not None:
            states = [s.index_select(1, order) for s in states]
        x, found = self._layers(x, states, sizes)
        if back is not None:
            found = tuple(s.index_select(1, back) for s in found)
        return input._replace(data=x), found if self._states > 1 else found[0]

    def _layers(
        self, x: Tensor, states: list[Tensor], sizes: list[int] | None = None
    ) -> tuple[Tensor, State]:
        """What the last layer gives, and the last states of all."""
        last = list[State]()
        for layer in range(self.num_layers):
            x = F.dropout(x, self.dropout, self.training and layer > 0)
            outs = []
            for end in self._ends:
                first = tuple(s[len(last)] for s in states)
                out, now = self._along(x, first, self._end.format(layer, end), sizes)
                outs.append(out)
                last.append(now)
            x = cat(outs, -1) if len(outs) > 1 else outs[0]
        return x, tuple(stack(parts) for parts in zip(*last))

    def _weights(self, end: str) -> list[Any]:
        """The weight, and the bias if there is one, for the input and for the state;
        attributes, since those that are pruned are no parameters."""
        kinds = ("weight", "bias")[: 1 + self.bias]
        return [[getattr(self, k + way + end) for k in kinds] for way in ("_ih", "_hh")]

    def _begin(self, x: Tensor, times: int, batch: list[int], hx: Any) -> list[Tensor]:
        """The states before the first time, each [num_layers * D, N, H]."""
        count = self.num_layers * len(self._ends)
        shape = (count, *batch, self.hidden_size)
        states = [hx] if self._states == 1 or hx is None else list(hx)
        if hx is None:
            states = [x.new_zeros(shape)] * self._states
        given = [s.raw.shape for s in states]
        if given != [shape] * self._states or not times:
            raise ValueError(
                f"{type(self).__name__}: there are {times} times, and hx is {given}; "
                f"expected 1 or more, and {self._states} of {shape}"
            )
        return states

    def _along(
        self, x: Tensor, state: State, end: str, sizes: list[int] | None
    ) -> tuple[Tensor, State]:
        """One layer in one direction: the state at each time, and the last one.

        With `sizes`, as many sequences as they say have a step at each time: the state
        of the others stays.
        """
        inward, onward = self._weights(end)
        given = F.linear(x, *inward)
        steps = given.split(sizes) if sizes else given.unbind(0)
        order, out = -1 if end.endswith("_reverse") else 1, []
        for now in steps[::order]:
            rest = None
            if sizes and len(now) < len(state[0]):
                rest = [s[len(now) :] for s in state]
                state = tuple(s[: len(now)] for s in state)
            state = self._step(now, F.linear(state[0], *onward), *state)
            out.append(state[0])
            if rest:
                state = tuple(map(cat, zip(state, rest)))
        return (cat if sizes else stack)(out[::order]), state

    @property
    def _flat_weights_names(self) -> list[str]:
        """All names of parameters: what d2l.ai's programs go through to begin anew."""
        return list(self._parameters)

    def flatten_parameters(self) -> None:
        """Nothing: parameters are used as they lie."""

    def extra_repr(self) -> str:
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        said = [(k, getattr(self, k)) for k in (*usual, "bidirectional")]
        other = [f", {k}={v}" for k, v in said if v != usual.get(k, False)]
        return f"{self.input_size}, {self.hidden_size}{''.join(other)}"


class RNN(_Recurrent):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu; see `_Recurrent`.

    Source: Elman, "Finding structure in time", 1990.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1,
        nonlinearity: str = "tanh", *args: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, num_layers, *args, **kwargs)
        self.nonlinearity = _checked_nonlinearity("RNN", nonlinearity)

    def _step(self, given: Tensor, past: Tensor, *state: Tensor) -> State:
        total = given + past
        return (total.tanh() if self.nonlinearity == "tanh" else total.relu(),)


def _checked_nonlinearity(name: str, nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"{name}: nonlinearity is {nonlinearity!r}, not tanh or relu")
    return nonlinearity


class LSTM(_Recurrent):
    """c = f c + i g, h = o tanh(c), for gates i, f, o and new numbers g, in this order.

    i, f, o = sigmoid(W_ih x + b_ih + W_hh h + b_hh), and g the tanh of such a sum.
    Source: Hochreiter and Schmidhuber, "Long short-term memory", 1997.
    """

    _gates, _states = 4, 2

    def _step(self, given: Tensor, past: Tensor, *state: Tensor) -> State:
        i, f, g, o = (given + past).chunk(4, -1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class GRU(_Recurrent):
    """h = (1 - z) n + z h, for gates r, z and n = tanh(W x + b + r (W h + b)).

    Source: Cho et al., "Learning phrase representations using RNN encoder-decoder for
    statistical machine translation", 2014.
    """

    _gates = 3

    def _step(self, given: Tensor, past: Tensor, *state: Tensor) -> State:
        (r, z, n), (past_r, past_z, past_n) = given.chunk(3, -1), past.chunk(3, -1)
        n = (n + (r + past_r).sigmoid() * past_n).tanh()
        return (n + (z + past_z).sigmoid() * (state[0] - n),)


class _Cell(_Recurrent):
    """What the cells share: one step of a layer, with its gates and its `_step`.

    input [N, I] or [I] -> the next state [N, H] or [H]; of an LSTM, which has two, a
    pair. Weights and biases are those of a layer, without "_l0" in their names.
    """

    _end = ""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, 1, bias, device=device, dtype=dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Args: hx: the state before, as it is returned; None: zeros."""
        shape = checked_tensor(type(self).__name__, input).raw.shape
        state = (hx,) if self._states == 1 or hx is None else tuple(hx)
        if hx is None:
            state = (input.new_zeros(*shape[:-1], self.hidden_size),) * self._states
        given = [s.raw.shape for s in state]
        wanted = (*shape[:-1], self.hidden_size)
        if len(shape) not in (1, 2) or given != [wanted] * self._states:
            raise ValueError(
                f"{type(self).__name__}: the input is {shape} and hx is {given}; "
                f"expected 1 or 2 dimensions, and {self._states} of {wanted}"
            )
        inward, onward = self._weights("")
        come, past = F.linear(input, *inward), F.linear(state[0], *onward)
        state = self._step(come, past, *state)
        return state if self._states > 1 else state[0]


class RNNCell(_Cell):
    """One step of an `RNN`; see `_Cell`."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True,
        nonlinearity: str = "tanh", *args: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, *args, **kwargs)
        self.nonlinearity = _checked_nonlinearity("RNNCell", nonlinearity)

    _step = RNN._step

    def extra_repr(self) -> str:
        usual = self.nonlinearity == "tanh"
        return super().extra_repr() + ("" if usual else ", nonlinearity=relu")


class LSTMCell(_Cell):
    """One step of an `LSTM`; see `_Cell`."""

    _gates, _states, _step = LSTM._gates, LSTM._states, LSTM._step


class GRUCell(_Cell):
    """One step of a `GRU`; see `_Cell`."""

    _gates, _step = GRU._gates, GRU._step
