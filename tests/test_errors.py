"""Every error says what was given, what was expected, and what to do."""

from __future__ import annotations

import inspect
from itertools import product
from typing import Any

import numpy as np
import pytest

import minitorch
import minitorch.nn.functional as F
from minitorch.functions import conv, norm, pool, softmax
from minitorch.functions.random import dropout

X = "simple"


def ones(*shape: int, **options: Any) -> Any:
    """Ones on the plain device: errors do not depend on it."""
    return minitorch.ones(*shape, device=X, **options)


ONE = ones(1, 1)


def ints(*shape: int) -> Any:
    """int64 ones."""
    return ones(*shape, dtype=minitorch.int64)


def bools(*shape: int) -> Any:
    """True everywhere."""
    return ones(*shape, dtype=minitorch.bool)


# What is done, the type of the error, and what its message must contain.
CASES: dict[str, tuple[Any, type[Exception], list[str]]] = {
    # operands
    "add shapes": (
        lambda: ones(2, 3) + ones(2, 4),
        ValueError,
        ["add", "(2, 3)", "(2, 4)", "3", "4", "must be equal, or 1"],
    ),
    "add list": (lambda: ones(2).add([1, 2]), TypeError, ["add", "list", "tensor"]),
    "add none": (lambda: ones(2) + None, TypeError, ["add", "NoneType"]),
    "mul text": (lambda: ones(2) * "a", TypeError, ["mul", "str", "number"]),
    "add devices": (
        lambda: ones(2) + minitorch.ones(2),
        RuntimeError,
        ["add", "'simple'", "'cpu'", ".to("],
    ),
    "neg bool": (lambda: -bools(2), TypeError, ["neg", "bool"]),
    "invert float": (lambda: ~ones(2), TypeError, ["~", "bool", "float32"]),
    "and float": (lambda: ones(2) & ones(2), TypeError, ["&", "bool", "float32"]),
    "full of a tensor": (
        lambda: minitorch.full((2,), ones(1)),
        TypeError,
        ["Tensor", "expected a Python number"],
    ),
    "arange without end": (
        lambda: minitorch.arange(float("inf")),
        ValueError,
        ["arange", "from 0 to inf"],
    ),
    "int division by 0": (
        lambda: ints(2) // (ints(2) * 0),
        ZeroDivisionError,
        ["floor_divide", "zero"],
    ),
    "int remainder by 0": (
        lambda: ints(2) % 0,
        ZeroDivisionError,
        ["remainder", "zero"],
    ),
    "int negative power": (
        lambda: ints(2) ** -1,
        ValueError,
        ["pow", "negative", ".float()"],
    ),
    "where condition": (
        lambda: minitorch.where(ones(2), ones(2), ones(2)),
        TypeError,
        ["where", "bool", "float32"],
    ),
    "where shapes": (
        lambda: minitorch.where(bools(3), ones(2), ones(2)),
        ValueError,
        ["where", "(3,)", "(2,)"],
    ),
    "clamp nothing": (lambda: ones(2).clamp(), ValueError, ["clamp", "min", "max"]),
    "gelu approximate": (
        lambda: ones(2).gelu("fast"),
        ValueError,
        ["gelu", "'fast'", '"none"', '"tanh"'],
    ),
    "masked_fill value": (
        lambda: ints(2).masked_fill(bools(2), 2.5),
        TypeError,
        ["masked_fill", "2.5", "int64", ".float()"],
    ),
    "clamp in place": (
        lambda: ints(2).clamp_(0.5),
        TypeError,
        ["clamp_", "float32", "int64", "in place"],
    ),
    "masked_fill mask": (
        lambda: ones(2).masked_fill(ones(2), 0),
        TypeError,
        ["masked_fill", "bool", "float32"],
    ),
    # in place
    "in place dtype": (
        lambda: ints(2).add_(1.5),
        TypeError,
        ["add_", "float32", "int64", "in place"],
    ),
    "in place shape": (
        lambda: ones(2).add_(ones(3, 2)),
        ValueError,
        ["add_", "(2,)", "(3, 2)", "in place"],
    ),
    "in place division": (lambda: ints(2).div_(2), TypeError, ["div_", "int64"]),
    "assignment shape": (
        lambda: ones(2, 3).__setitem__(0, ones(2)),
        ValueError,
        ["assignment", "(2,)", "(3,)"],
    ),
    # matmul
    "matmul shapes": (
        lambda: ones(3, 4) @ ones(5, 6),
        ValueError,
        ["matmul", "(3, 4)", "(5, 6)", "last dimension (4)", "second to last (5)"],
    ),
    "matmul vectors": (lambda: ones(3) @ ones(4), ValueError, ["matmul", "3", "4"]),
    "matmul batch": (
        lambda: ones(2, 3, 4) @ ones(3, 4, 5),
        ValueError,
        ["matmul", "batch", "2", "3"],
    ),
    "matmul scalar": (
        lambda: ones(()) @ ones(3),
        ValueError,
        ["matmul", "no dimensions", "*"],
    ),
    "matmul dtypes": (
        lambda: ones(2, 2) @ ints(2, 2),
        TypeError,
        ["matmul", "float32", "int64", ".to("],
    ),
    "matmul bool": (lambda: bools(2, 2) @ bools(2, 2), TypeError, ["matmul", "bool"]),
    "matmul devices": (
        lambda: ones(2, 2) @ minitorch.ones(2, 2),
        RuntimeError,
        ["matmul", "'simple'", "'cpu'"],
    ),
    "matmul list": (lambda: ones(2) @ [1, 2], TypeError, ["matmul", "list"]),
    # reductions
    "sum dim": (
        lambda: ones(2, 3).sum(2),
        IndexError,
        ["sum", "2", "2 dimension(s)", "-2 to 1"],
    ),
    "sum dims twice": (lambda: ones(2, 3).sum((0, -2)), ValueError, ["sum", "twice"]),
    "sum float dim": (lambda: ones(2).sum(1.0), TypeError, ["sum"]),
    "mean of ints": (lambda: ints(2).mean(), TypeError, ["mean", "int64", ".float()"]),
    "var of ints": (lambda: ints(2).var(), TypeError, ["var", "int64"]),
    "max of nothing": (lambda: ones(0).max(), ValueError, ["max", "(0,)", "no elem"]),
    "argmax of nothing": (
        lambda: ones(2, 0).argmax(1),
        ValueError,
        ["argmax", "(2, 0)"],
    ),
    "prod dims": (lambda: ones(2, 3).prod((0, 1)), TypeError, ["prod", "(0, 1)"]),
    "norm p": (lambda: ones(2).norm(3), ValueError, ["norm", "3", "1, 2 or inf"]),
    "softmax dim": (lambda: ones(2).softmax(1), IndexError, ["softmax", "1"]),
    "topk k": (lambda: ones(3).topk(4), ValueError, ["topk", "4", "3"]),
    # movement
    "reshape size": (
        lambda: ones(2, 3).reshape(4, 2),
        ValueError,
        ["reshape", "(2, 3)", "(4, 2)", "6"],
    ),
    "reshape two rests": (lambda: ones(2, 3).reshape(-1, -1), ValueError, ["reshape"]),
    "view strides": (
        lambda: ones(2, 3).T.view(6),
        RuntimeError,
        ["view", "(6,)", "copy", "reshape"],
    ),
    "permute": (lambda: ones(2, 3).permute(0, 0), ValueError, ["permute", "once"]),
    "permute floats": (lambda: ones(2, 3).permute(0.0, 1), TypeError, ["permute"]),
    "transpose": (lambda: ones(2, 3).transpose(0, 2), IndexError, ["transpose", "2"]),
    "t": (lambda: ones(2, 3, 4).t(), ValueError, ["t:", "(2, 3, 4)", "at most 2"]),
    "expand": (
        lambda: ones(2, 3).expand(4, 3),
        ValueError,
        ["expand", "(2, 3)", "(4, 3)", "size of 1"],
    ),
    "flatten": (lambda: ones(2, 3).flatten(1, 0), ValueError, ["flatten", "1", "0"]),
    "narrow": (lambda: ones(4).narrow(0, 2, 3), ValueError, ["narrow", "2", "3", "4"]),
    "split": (lambda: ones(4).split([1, 2]), ValueError, ["split", "[1, 2]", "3", "4"]),
    "split 0": (lambda: ones(4).split(0), ValueError, ["split", "0"]),
    "chunk 0": (lambda: ones(4).chunk(0), ValueError, ["chunk", "0"]),
    "cat shapes": (
        lambda: minitorch.cat([ones(2, 3), ones(2, 4)]),
        ValueError,
        ["cat", "(2, 3)", "(2, 4)", "dimension 0"],
    ),
    "cat nothing": (lambda: minitorch.cat([]), TypeError, ["cat", "non-empty"]),
    "cat numbers": (lambda: minitorch.cat([1, 2]), TypeError, ["cat", "tensors"]),
    "cat devices": (
        lambda: minitorch.cat([ones(2), minitorch.ones(2)]),
        RuntimeError,
        ["cat", "'simple'", "'cpu'"],
    ),
    "stack shapes": (
        lambda: minitorch.stack([ones(2), ones(3)]),
        ValueError,
        ["stack", "(2,)", "(3,)"],
    ),
    "pad": (lambda: ones(2).pad((1, 2, 3)), ValueError, ["pad", "(1, 2, 3)"]),
    "tril": (lambda: ones(2).tril(), ValueError, ["tril", "2 dims"]),
    "repeat": (lambda: ones(2, 3).repeat(2), ValueError, ["repeat", "1", "2"]),
    # indexing
    "index range": (
        lambda: ones(2, 3)[0, 3],
        IndexError,
        ["index", "3", "dimension 1", "size 3"],
    ),
    "index count": (
        lambda: ones(2)[0, 0],
        IndexError,
        ["index", "2 indices", "1 dimension(s)"],
    ),
    "index ellipses": (lambda: ones(2)[..., ...], IndexError, ["only one"]),
    "index step": (lambda: ones(4)[::-1], ValueError, ["step", "-1", "flip"]),
    "index float": (lambda: ones(4)[1.0], TypeError, ["index", "float", "ints"]),
    "index text": (lambda: ones(4)["a"], TypeError, ["index", "str"]),
    "index float tensor": (
        lambda: ones(4)[ones(2)],
        TypeError,
        ["index", "int64", "bool", "float32"],
    ),
    "index tensor range": (
        lambda: ones(4)[ints(2) * 4],
        IndexError,
        ["index", "4", "size 4"],
    ),
    "mask shape": (lambda: ones(4)[bools(3)], IndexError, ["mask", "3", "4"]),
    "gather index": (lambda: ones(2, 2).gather(0, ones(2, 2)), TypeError, ["gather"]),
    "gather dims": (lambda: ones(2, 2).gather(0, ints(2)), ValueError, ["gather"]),
    "gather range": (lambda: ones(2).gather(0, ints(1) * 5), IndexError, ["5"]),
    "gather sizes": (
        lambda: ones(2, 2).gather(0, ints(2, 3)),
        ValueError,
        ["gather", "(2, 3)", "(2, 2)"],
    ),
    "index_select": (
        lambda: ones(2).index_select(0, ints(1) * 9),
        IndexError,
        ["9", "2"],
    ),
    "scatter_add": (
        lambda: ones(3).scatter_add(0, ints(3), ones(2)),
        ValueError,
        ["scatter_add", "(3,)", "(2,)"],
    ),
    # making
    "device": (
        lambda: minitorch.ones(2, device="tpu"),
        ValueError,
        ["device", "'tpu'", "'cpu'", "'simple'"],
    ),
    "to device": (lambda: ones(2).to("tpu"), ValueError, ["'tpu'", "'cpu'"]),
    "to what": (lambda: ones(2).to(3.5), TypeError, ["to", "3.5", "float64"]),
    "dtype": (lambda: minitorch.ones(2, dtype="float32"), TypeError, ["dtype"]),
    "dtype class": (lambda: minitorch.ones(2, dtype=float), TypeError, ["dtype"]),
    "negative size": (lambda: minitorch.ones(2, -1), ValueError, ["(2, -1)"]),
    "float size": (lambda: minitorch.ones(2.0), TypeError, ["ones", "2.0", "ints"]),
    "randn ints": (
        lambda: minitorch.randn(2, dtype=minitorch.int64),
        TypeError,
        ["randn", "int64", "float32"],
    ),
    "item": (lambda: ones(2).item(), ValueError, ["item", "2 elements", "tolist"]),
    "truth": (lambda: bool(ones(2)), ValueError, ["bool", "(2,)", "any"]),
    "constructor": (lambda: minitorch.Tensor(3), TypeError, ["minitorch.tensor("]),
    "data": (
        lambda: setattr(ones(2), "data", ones(3)),
        ValueError,
        ["data", "(3,)", "(2,)"],
    ),
    # fused
    "conv channels": (
        lambda: conv.conv2d(ones(1, 3, 5, 5), ones(2, 4, 3, 3)),
        ValueError,
        ["conv2d", "3 channels", "(2, 4, 3, 3)", "groups"],
    ),
    "conv kernel": (
        lambda: conv.conv2d(ones(1, 1, 2, 5), ones(1, 1, 3, 3)),
        ValueError,
        ["conv2d", "height", "3", "2"],
    ),
    "conv stride": (
        lambda: conv.conv2d(ones(1, 1, 5, 5), ones(1, 1, 3, 3), stride=0),
        ValueError,
        ["conv2d: stride", "0", "1 or more"],
    ),
    "conv dims": (
        lambda: conv.conv2d(ones(5, 5), ones(1, 1, 3, 3)),
        ValueError,
        ["conv2d", "(5, 5)", "(N, C, H, W)"],
    ),
    "conv dtype": (
        lambda: conv.conv2d(ones(1, 1, 5, 5), ones(1, 1, 3, 3).double()),
        TypeError,
        ["conv2d", "float32", "float64"],
    ),
    "conv same": (
        lambda: conv.conv2d(ones(1, 1, 5, 5), ones(1, 1, 2, 2), padding="same"),
        ValueError,
        ["'same'", "odd"],
    ),
    "pool padding": (
        lambda: pool.max_pool2d(ones(1, 1, 5, 5), 2, padding=2),
        ValueError,
        ["max_pool2d", "half"],
    ),
    "layer norm": (
        lambda: norm.layer_norm(ones(2, 3), 4),
        ValueError,
        ["layer_norm", "(2, 3)", "(4,)"],
    ),
    "batch norm": (
        lambda: norm.batch_norm(ones(1, 3)),
        ValueError,
        ["batch_norm", "(1, 3)", "two values"],
    ),
    "cross entropy": (
        lambda: softmax.cross_entropy(ones(2, 3), ints(3)),
        ValueError,
        ["cross_entropy", "(2, 3)", "(3,)", "(N, C)"],
    ),
    "cross entropy class": (
        lambda: softmax.cross_entropy(ones(2, 3), ints(2) * 7),
        IndexError,
        ["7", "3"],
    ),
    "cross entropy target": (
        lambda: softmax.cross_entropy(ones(2, 3), ones(2)),
        TypeError,
        ["cross_entropy", "float32", "int64"],
    ),
    "dropout": (
        lambda: dropout(ones(2), 1.5),
        ValueError,
        ["dropout", "1.5", "0 to 1"],
    ),
    "state of another library": (
        lambda: minitorch.set_rng_state(ones(2)),
        TypeError,
        ["set_state", "a Tensor, tensor([1", "dict that get_state, or get_rng_state"],
    ),
    "state that lacks its place": (
        lambda: minitorch.Generator(3).set_state({"seed": 3}),
        TypeError,
        ["set_state", "{'seed': 3}"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_error(case):
    call, kind, parts = CASES[case]
    with pytest.raises(kind) as error:
        call()
    text = str(error.value)
    assert [part for part in parts if part not in text] == [], text


OPERATIONS = {
    name: list(inspect.signature(function).parameters.values())
    for name, function in vars(minitorch).items()
    if inspect.isfunction(function)
    and function.__module__.startswith("minitorch.functions.")
    and "input" in inspect.signature(function).parameters
}


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "where"])
def test_a_list_is_no_tensor(name):
    first, *others = OPERATIONS[name]
    assert first.name == "input"
    numbers = {"dims": (0,), "shape": (1,), "sizes": (1,), "mask": bools(1)}
    numbers |= dict.fromkeys(("other", "mat1", "mat2"), ones(1, 1))
    numbers |= dict.fromkeys(("vec", "vec2", "src"), ones(1)) | {"index": ints(1)}
    numbers |= dict.fromkeys(("end", "tensor1", "tensor2"), ones(1))
    needed = [p.name for p in others if p.default is p.empty]
    needed += ["min"] * (name in ("clamp", "clip"))
    with pytest.raises(TypeError, match=rf"^({name}|clamp|matmul|transpose): .*list"):
        getattr(minitorch, name)([1.0], **{p: numbers.get(p, 1) for p in needed})


LAYERS = {  # what they need besides the first tensor
    (): "relu leaky_relu elu gelu silu softplus sigmoid tanh dropout one_hot normalize",
    (1,): "softmax log_softmax max_pool2d avg_pool2d adaptive_avg_pool2d group_norm "
    "interpolate",
    ((1, 1),): "layer_norm rms_norm pad",
    (ONE,): "linear embedding conv1d conv2d bias_activation cosine_similarity mse_loss "
    "l1_loss huber_loss smooth_l1_loss nll_loss cross_entropy binary_cross_entropy "
    "binary_cross_entropy_with_logits conv_transpose1d conv_transpose2d kl_div",
}


@pytest.mark.parametrize("others", LAYERS, ids=LAYERS.get)
def test_an_array_is_no_tensor(others):
    given = [ONE, *others]
    for name, place in product(LAYERS[others].split(), range(len(given))):
        if given[place] is ONE:
            mixed = [*given[:place], np.ones((1, 1)), *given[place + 1 :]]
            with pytest.raises(TypeError, match=rf"{name}: .*ndarray"):
                getattr(F, name)(*mixed)


@pytest.mark.parametrize("returned", [ones(3), ones(2).double(), "a gradient"])
def test_a_hook_returns_a_gradient_like_the_one_it_was_given(returned):
    x = ones(2, requires_grad=True)
    x.register_hook(lambda grad: returned)
    with pytest.raises(ValueError, match=r"given float32 \(2,\), .* expected the same"):
        (x * 2).sum().backward()
    assert x.grad is None
