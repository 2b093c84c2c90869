"""Scalars: values, derivatives, long chains, and a small network trained on them."""

from __future__ import annotations

import math
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minitorch import no_grad
from minitorch.scalar import Scalar, ScalarFunction, derivative_check

small = st.floats(-5, 5)
positive = st.floats(0.1, 10)

TWO = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "pow": lambda x, y: x**y,
    "mixed": lambda x, y: (x * y + x) / (y + 2.0) - y * 3 + 1 / x,
    "reused": lambda x, y: x * x * y + y * x,
    "numbers": lambda x, y: 2 - x + 3 * y - 1.5 / x + 2**y + (-x) ** 2,
}
ONE = {
    "log": (lambda x: x.log(), torch.log, positive),
    "exp": (lambda x: x.exp(), torch.exp, small),
    "sigmoid": (lambda x: x.sigmoid(), torch.sigmoid, small),
    "relu": (lambda x: x.relu(), torch.relu, small),
    "tanh": (lambda x: x.tanh(), torch.tanh, small),
    "neg": (lambda x: -x, torch.neg, small),
}


@pytest.mark.parametrize("name", TWO)
@given(positive, positive)
def test_two_arguments_as_pytorch(name, a, b):
    x, y = Scalar(a), Scalar(b)
    out = TWO[name](x, y)
    out.backward()
    tx, ty = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (a, b))
    expected = TWO[name](tx, ty)
    expected.backward()
    assert out.item() == pytest.approx(expected.item())
    assert x.grad == pytest.approx(tx.grad.item())
    assert y.grad == pytest.approx(ty.grad.item())


@pytest.mark.parametrize("name", ONE)
@given(st.data())
def test_one_argument_as_pytorch(name, data):
    fn, oracle, values = ONE[name]
    value = data.draw(values)
    x, tx = Scalar(value), torch.tensor(value, dtype=torch.float64, requires_grad=True)
    out, expected = fn(x), oracle(tx)
    out.backward()
    expected.backward()
    assert out.item() == pytest.approx(expected.item())
    assert x.grad == pytest.approx(tx.grad.item())


@pytest.mark.parametrize("name", TWO)
@given(st.floats(0.5, 5.0), st.floats(0.1, 5.0))
def test_derivative_check_accepts(name, a, b):
    derivative_check(TWO[name], Scalar(a), Scalar(b))


def test_derivative_check_refuses():
    class Wrong(ScalarFunction):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, d_out):
            (x,) = ctx.saved_values
            return d_out * x  # should be 2 x

    with pytest.raises(ValueError, match=r"argument 0 is 3\.0 by backward\(\), but 6"):
        derivative_check(Wrong.apply, Scalar(3.0))
    derivative_check(lambda x: Scalar(1.0, requires_grad=False), Scalar(3.0))


def test_edges_of_pow_and_relu():
    zero = Scalar(0.0)
    (zero**2).backward()
    assert zero.grad == 0
    zero.relu().backward()
    assert zero.grad == 0
    assert (Scalar(0.0) ** 0).item() == 1
    assert (Scalar(1.0) / 0).item() == math.inf
    assert Scalar(1000.0).exp().item() == math.inf
    base = Scalar(-2.0)
    (base**3).backward()
    assert base.grad == 12


def test_gradients_add_up():
    x = Scalar(2.0)
    (x * 3).backward()
    (x * 4).backward(0.5)
    assert x.grad == 5


@given(small, small)
def test_comparisons_are_bools(a, b):
    x, y = Scalar(a), Scalar(b)
    assert (x < y) is (a < b) and (x > b) is (a > b) and (a == y) is (a == b)
    assert (x <= y) is (a <= b) and (x >= y) is (a >= b) and (x != y) is (a != b)
    assert bool(x) is (a != 0) and float(x) == a


def test_constants_and_no_grad():
    x = Scalar(2.0)
    c = Scalar(3.0, requires_grad=False)
    out = x * c
    out.backward()
    assert c.grad is None and x.grad == 3
    with no_grad():
        assert not (x * 2).requires_grad
    assert not (c * 2).requires_grad
    with pytest.raises(RuntimeError, match="requires_grad"):
        (c * 2).backward()


def test_names_and_errors():
    x, y = Scalar(1.0, name="x"), Scalar(2.0)
    assert y.unique_id > x.unique_id and y.name == str(y.unique_id)
    assert repr(x) == "Scalar(1.0, name='x')" and "MulBackward" in repr(x * y)
    assert len({x, y, x}) == 2
    with pytest.raises(TypeError, match="str"):
        Scalar("1")
    with pytest.raises(TypeError):
        x + "1"
    assert (x == "1") is False
    for missing in (lambda: ScalarFunction.apply(x),):
        with pytest.raises(NotImplementedError, match="forward"):
            missing()


def test_hooks_of_nodes_are_those_of_tensors():
    x = Scalar(2.0)
    seen = []
    y = x * 3
    y.node.hooks = {0: [seen.append]}
    (y * 5).backward()
    assert seen == [5.0] and x.grad == 15


def chain_time(length: int) -> float:
    x = y = Scalar(1.0)
    for _ in range(length):
        y = y * 1.0 + 0.0
    start = time.process_time()
    y.backward()
    elapsed = time.process_time() - start
    assert x.grad == 1.0
    return elapsed


def test_a_chain_of_100_000_operations_takes_linear_time():
    short = min(chain_time(5_000) for _ in range(3))
    long = min(chain_time(50_000) for _ in range(2))
    assert long < 60 * short  # ten times the operations; a square would be 100 times


def test_a_diamond_runs_each_node_once():
    x = Scalar(1.0)
    y = x
    for _ in range(40):  # 2**40 paths
        y = y + y
    y.backward()
    assert x.grad == 2.0**40


class ScalarMLP:
    """2 -> hidden -> 1 with tanh, on Scalars."""

    def __init__(self, hidden: int) -> None:
        torch.manual_seed(0)
        draw = (torch.rand(4 * hidden + 1) * 2 - 1).tolist()
        self.weights = [Scalar(value) for value in draw]
        self.hidden = hidden

    def __call__(self, a: float, b: float) -> Scalar:
        w = self.weights
        out = w[-1]
        for i in range(self.hidden):
            u, v, c, s = w[4 * i : 4 * i + 4]
            out = out + s * (u * a + v * b + c).tanh()
        return out.sigmoid()

    def step(self, lr: float) -> None:
        for weight in self.weights:
            weight.data -= lr * weight.grad
            weight.grad = None


def test_xor_on_scalars():
    net = ScalarMLP(3)
    data = [(0.0, 0.0, 0), (0.0, 1.0, 1), (1.0, 0.0, 1), (1.0, 1.0, 0)]
    for _ in range(300):
        loss = Scalar(0.0, requires_grad=False)
        for a, b, target in data:
            p = net(a, b)
            loss = loss - (p if target else 1.0 - p).log()
        loss.backward()
        net.step(0.5)
    assert all((net(a, b) > 0.5) == bool(target) for a, b, target in data)
    assert loss.item() < 0.2
