"""Weights of one byte, or four bits: rounding, products, layers, models that write."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import minitorch
from helpers import FLOATS, LAYOUTS, SIMULATED, array_of, make, numbers
from minitorch import Tensor, bfloat16, float16, float32, float64, int8, nn
from minitorch.dtypes import finfo
from minitorch.models import GPT, GPTConfig, from_pretrained, save_weights
from minitorch.nn import functional as F
from minitorch.quantization import (
    QuantizedLinear,
    dequantize,
    pack,
    quantize,
    quantize_,
)
from minitorch.serialization import load_file, save_file

DOCS = Path(minitorch.__file__).parents[1] / "docs"
SIZES = {"vocab_size": 11, "block_size": 12, "n_layer": 2, "n_head": 2, "n_embd": 8}
LLAMA = {
    "norm": "rms", "positions": "rotary", "mlp": "swiglu", "bias": False,
    "n_kv_head": 1, "n_hidden": 6,
}  # fmt: skip


# ----------------------------------------------------------------------- rounding

matrices = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
    elements=st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False),
)


@given(matrices)
def test_a_weight_is_off_by_half_a_step(w):
    q, scale = (array_of(x.raw) for x in quantize(minitorch.tensor(w)))
    assert (
        q.dtype == np.int8 and scale.dtype == np.float32 and scale.shape == w.shape[:1]
    )
    largest = np.abs(w).max(1)
    np.testing.assert_allclose(scale, largest / 127, rtol=1e-6, atol=1e-44)
    off = np.abs(w - scale[:, None].astype(float) * q)
    assert (off <= scale[:, None] * (0.5 + 1e-4) + 1e-42).all()
    at = np.abs(w).argmax(1)  # the largest of a row is one that bytes have
    assert (np.abs(q[range(len(q)), at]) == np.where(scale > 0, 127, 0)).all()


def test_rows_of_zeros_and_no_numbers(device):
    w = minitorch.tensor([[0.0, -0.0], [1.0, -0.5]], device=device)
    q, scale = quantize(w)
    assert q.tolist() == [[0, 0], [127, -64]]  # halves go to the even neighbour
    assert scale.tolist()[0] == 0 and q.device == scale.device == device
    for shape in ((0, 3), (3, 0), (0, 0)):
        q, scale = quantize(minitorch.zeros(*shape, device=device))
        assert (q.dtype, q.shape, scale.tolist()) == (int8, shape, [0.0] * shape[0])


@pytest.mark.parametrize("dtype", [float16, bfloat16, float64], ids=lambda d: d.name)
def test_scales_of_other_types(dtype):
    w = minitorch.tensor(numbers((3, 5))).to(dtype)
    q, scale = quantize(w)
    assert scale.dtype is (float64 if dtype is float64 else float32)
    again, same = quantize(w.to(scale.dtype))
    assert q.equal(again) and scale.equal(same)


# ------------------------------------------------------------------------ product

# Around four rows of x at a time, 32 rows of the weight in a task, and vectors of k.
SHAPES = [
    (1, 1, 1), (1, 33, 17), (2, 31, 16), (3, 5, 64), (4, 64, 31), (5, 65, 33),
    (8, 7, 15), (9, 32, 40), (32, 3, 5), (33, 34, 5), (0, 3, 4), (2, 0, 4), (2, 3, 0),
]  # fmt: skip


def operands(R, N, K, dtype, device, layout="contiguous"):
    """x, q, scale and bias as tensors, and the product in float64."""
    x, b = numbers((R, K), dtype, layout=layout), numbers((N,), dtype, 1)
    scale = np.abs(numbers((N,), dtype, 2)) / 100
    q = np.random.default_rng(R * N + K).integers(-127, 128, (N, K)).astype(np.int8)
    right = x.astype(float) @ (scale.astype(float)[:, None] * q).T + b
    made = make(x, device, layout), *(make(a, device) for a in (q, scale, b))
    return [Tensor(raw) for raw in made], right


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_product_is_that_of_the_weight_it_stands_for(shape, dtype, device):
    (x, q, scale, b), right = operands(*shape, dtype, device)
    for bias, wanted in ((b, right), (None, right - array_of(b.raw))):
        out = F.quantized_linear(x, q, scale, bias)
        assert out.dtype is dtype and out.shape == right.shape
        error = 1e-12 if dtype is float64 else 3e-6 * (1 + np.abs(right).max(initial=0))
        np.testing.assert_allclose(array_of(out.raw), wanted, 0, error)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_input_in_any_layout(layout, device):
    (x, q, scale, b), right = operands(6, 5, 4, float64, device, layout)
    out = F.quantized_linear(x, q, scale, b)
    np.testing.assert_allclose(array_of(out.raw), right, 0, 1e-12)
    turned = F.quantized_linear(x, q.t().contiguous().t(), scale, b)
    np.testing.assert_allclose(array_of(turned.raw), right, 0, 1e-12)


def test_dims_in_front_and_none(device):
    (x, q, scale, b), right = operands(6, 5, 4, float64, device)
    out = F.quantized_linear(x.reshape(2, 3, 4), q, scale, b)
    np.testing.assert_allclose(array_of(out.raw), right.reshape(2, 3, 5), 0, 1e-12)
    out = F.quantized_linear(x[1], q, scale, b)
    np.testing.assert_allclose(array_of(out.raw), right[1], 0, 1e-12)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=lambda d: d.name)
def test_half_types_are_rounded_once(dtype, rows, device):
    (x, q, scale, b), _ = operands(rows, 5, 36, float32, device)
    x = x.to(dtype)
    for scales, bias in ((scale, b), (scale.to(dtype), b.to(dtype))):
        w = array_of(scales.float().raw).astype(float)[:, None] * array_of(q.raw)
        right = array_of(x.float().raw) @ w.T + array_of(bias.float().raw)
        out = F.quantized_linear(x, q, scales, bias)
        assert out.dtype is dtype
        error = finfo(dtype).eps / 2 * np.abs(right) + 1e-5 * np.abs(right).max()
        assert (np.abs(array_of(out.float().raw) - right) <= error).all()


def test_no_gradient_for_what_is_fixed():
    (x, q, scale, b), _ = operands(2, 3, 4, float64, "cpu")
    out = F.quantized_linear(x.requires_grad_(), q, scale, b.requires_grad_())
    out.sum().backward()
    assert repr(out.grad_fn) == "<QuantizedLinearBackward>"
    assert x.grad is not None and b.grad.tolist() == [2.0] * 3
    with pytest.raises(ValueError, match="the scale is fixed"):
        F.quantized_linear(x, q, scale.requires_grad_(), b)


WRONG = {
    "the input is float32 and the weight float32": lambda x, q, s, b: (x, q.float(), s),
    "the input is int8": lambda x, q, s, b: (q, q, s),
    "a scale or bias is float64": lambda x, q, s, b: (x, q, s.double(), b),
    "a scale or bias is float16": lambda x, q, s, b: (x, q, s, b.half()),
    "the input is \\(2, 3\\)": lambda x, q, s, b: (x[:, :3], q, s),
    "the weight is \\(4,\\)": lambda x, q, s, b: (x, q[0], s),
    "the scale \\(2,\\)": lambda x, q, s, b: (x, q, s[:2]),
    "the bias \\(2,\\)": lambda x, q, s, b: (x, q, s, b[:2]),
    "'simple'": lambda x, q, s, b: (x, q.to("simple"), s),
}


@pytest.mark.parametrize("message", WRONG)
def test_operands_that_do_not_fit(message):
    given, _ = operands(2, 3, 4, float32, "cpu")
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        F.quantized_linear(*WRONG[message](*given))


# ---------------------------------------------------------------------- four bits

fours = hnp.arrays(
    np.int8,
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.sampled_from([2, 8, 32, 64])),
    elements=st.integers(-8, 7),
)


@given(fours)
def test_what_is_packed_comes_back(numbers):
    """Each of 16 numbers, in each half of a byte."""
    packed = pack(minitorch.tensor(numbers))
    half = numbers.shape[2] // 2
    bytes_ = 16 * numbers[..., half:] + numbers[..., :half] + 8
    np.testing.assert_array_equal(array_of(packed.raw), bytes_)
    ones = np.ones(numbers.shape[:2], np.float32)
    found = dequantize(packed, minitorch.tensor(ones))
    np.testing.assert_array_equal(array_of(found.raw), numbers.reshape(len(ones), -1))


@given(matrices, st.sampled_from([32, 64, 128, 256]), st.integers(1, 9))
def test_a_number_of_a_group_is_off_by_half_a_step(w, size, times):
    w = np.tile(w, (1, 5 * times)) / 4
    w *= np.linspace(1, 2, w.shape[1], dtype=np.float32)
    q, scale = quantize(minitorch.tensor(w), "int4", size)
    groups = -(-w.shape[1] // size)
    assert (q.dtype, q.shape) == (int8, (len(w), groups, size // 2))
    room = np.zeros((len(w), groups * size), np.float32)
    room[:, : w.shape[1]] = w
    parts = room.reshape(len(w), groups, size)
    step = np.abs(parts).max(2) / np.float32(7)
    np.testing.assert_allclose(array_of(scale.raw), step, rtol=1e-6, atol=1e-44)
    found = array_of(dequantize(q, scale).raw).reshape(parts.shape)
    off = np.abs(found.astype(float) - parts)
    assert (off <= step[..., None] * (0.5 + 1e-5) + 1e-42).all()
    assert not found.reshape(room.shape)[:, w.shape[1] :].any()


# Around groups, rows of x that are multiplied at once, and what kernels are for.
FOURS = [
    (1, 1, 1, 32), (1, 33, 64, 64), (2, 5, 63, 64), (3, 5, 65, 32), (4, 3, 256, 128),
    (5, 4, 96, 32), (8, 9, 192, 64), (9, 2, 64, 32), (17, 3, 130, 64), (33, 5, 257, 64),
    (0, 3, 4, 32), (2, 0, 4, 32), (2, 3, 0, 32),
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", FOURS, ids=str)
def test_the_product_of_four_bits(shape, dtype, device):
    R, N, K, size = shape
    x, w, b = (numbers(s, dtype, i) for i, s in enumerate([(R, K), (N, K), (N,)]))
    q, scale = quantize(minitorch.tensor(w, device=device), "int4", size)
    stands_for = array_of(dequantize(q, scale, K).raw).astype(float)
    right = x.astype(float) @ stands_for.T
    given = Tensor(make(x, device)), q, scale
    for bias, wanted in ((None, right), (Tensor(make(b, device)), right + b)):
        out = F.quantized_linear(*given, bias)
        assert out.dtype is dtype and out.shape == (R, N)
        error = 1e-12 if dtype is float64 else 3e-6 * (1 + np.abs(right).max(initial=0))
        np.testing.assert_allclose(array_of(out.raw), wanted, 0, error)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=lambda d: d.name)
def test_four_bits_beside_half_types(dtype, rows, device):
    """Sums are float32; of many rows, weights are rounded, too."""
    x = minitorch.tensor(numbers((rows, 64)), device=device).to(dtype)
    w = minitorch.tensor(numbers((5, 64), seed=1), device=device).to(dtype)
    q, scale = quantize(w, "int4", 32)
    floats = array_of(dequantize(q, scale).raw).astype(float)
    right = array_of(x.float().raw) @ floats.T
    out = array_of(F.quantized_linear(x, q, scale).float().raw)
    each = np.abs(array_of(x.float().raw)) @ np.abs(floats).T
    assert (np.abs(out - right) <= finfo(dtype).eps * each).all()


def test_a_group_in_any_layout(device):
    x, w = numbers((3, 70), float64), minitorch.tensor(numbers((4, 70), seed=1))
    q, scale = (a.to(device) for a in quantize(w.double(), "int4", 32))
    right = x @ array_of(dequantize(q, scale, 70).raw).T
    turned = q.transpose(0, 2).contiguous().transpose(0, 2)
    x = Tensor(make(x, device, "permuted"))
    out = F.quantized_linear(x, turned, scale)
    np.testing.assert_allclose(array_of(out.raw), right, 0, 1e-12)


def test_inputs_learn_through_four_bits():
    x = minitorch.tensor(numbers((3, 40)), requires_grad=True)
    q, scale = quantize(minitorch.tensor(numbers((2, 40), seed=1)), "int4", 32)
    F.quantized_linear(x, q, scale).sum().backward()
    right = array_of(dequantize(q, scale, 40).raw).sum(0)
    np.testing.assert_allclose(x.grad.numpy(), np.tile(right, (3, 1)), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("columns", "scales", "message"),
    [
        (33, (2, 1), r"the input is \(1, 33\) and the weight \(2, 32\)"),
        (0, (2, 1), r"the input is \(1, 0\)"),
        (20, (2,), r"the scale \(2,\); expected \(2, 1\)"),
    ],
)
def test_groups_that_do_not_fit(columns, scales, message):
    q = minitorch.zeros(2, 1, 16, dtype=int8)
    with pytest.raises(ValueError, match=message):
        F.quantized_linear(minitorch.zeros(1, columns), q, minitorch.zeros(*scales))


def test_a_layer_of_four_bits_comes_back(device):
    linear = nn.Linear(70, 4, device=device).eval()
    layer = QuantizedLinear.from_float(linear, "int4", 32)
    assert "bias=True, weight=int4, group_size=32)" in repr(layer)
    assert layer.q.shape == (4, 3, 16) and layer.scale.shape == (4, 3)
    fresh = QuantizedLinear(70, 4, device=device, kind="int4", group_size=32)
    x = minitorch.tensor(numbers((3, 70)), device=device)
    assert fresh.weight.abs().sum().item() == 0
    assert fresh(x).equal(fresh.bias.expand(3, 4))
    fresh.load_state_dict(layer.state_dict())
    assert fresh(x).equal(layer(x)) and fresh.weight.equal(layer.weight)
    right = F.linear(x, layer.weight, layer.bias)
    np.testing.assert_allclose(array_of(layer(x).raw), array_of(right.raw), 0, 1e-5)
    with pytest.raises(RuntimeError, match=r"'scale' is .4, 3"):
        QuantizedLinear(70, 4, kind="int4").load_state_dict(layer.state_dict())


# ------------------------------------------------------------------ layer and model


def test_a_layer(device):
    linear = nn.Linear(6, 4, device=device).eval()
    layer = QuantizedLinear.from_float(linear)
    assert repr(layer) == (
        "QuantizedLinear(in_features=6, out_features=4, bias=True, weight=int8)"
    )
    assert layer.bias is linear.bias and not layer.training
    assert set(layer.state_dict()) == {"q", "scale", "bias"}
    off = (layer.weight - linear.weight).abs()
    assert (off <= layer.scale.unsqueeze(1) * 0.501).all()
    x = minitorch.tensor(numbers((3, 6)), device=device)
    right = F.linear(x, layer.weight, layer.bias)
    np.testing.assert_allclose(array_of(layer(x).raw), array_of(right.raw), 0, 1e-5)


def test_the_state_comes_back(tmp_path):
    layer = QuantizedLinear.from_float(nn.Linear(6, 4))
    save_file(layer.state_dict(), tmp_path / "layer")
    fresh = QuantizedLinear(6, 4)
    assert fresh.weight.abs().sum().item() == 0
    fresh.load_state_dict(load_file(tmp_path / "layer"))
    x = minitorch.tensor(numbers((3, 6)))
    assert fresh(x).equal(layer(x)) and fresh.q.dtype is int8
    assert copy.deepcopy(fresh)(x).equal(layer(x))
    with pytest.raises(RuntimeError, match="unexpected: 'weight'"):
        fresh.load_state_dict(nn.Linear(6, 4).state_dict())
    half = QuantizedLinear(6, 4, bias=False, dtype=bfloat16)
    assert half.scale.dtype is float32 and half.bias is None
    assert half(x.bfloat16()).dtype is bfloat16


def test_which_layers_are_replaced():
    class Own(nn.Linear):
        pass

    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, nn.Sequential(Own(3, 3), shared), nn.Linear(3, 2))
    assert quantize_(model, filter_fn=lambda linear, name: name != "2") is model
    assert type(model[0]) is QuantizedLinear and model[0] is model[1][1]
    assert type(model[1][0]) is Own and type(model[2]) is nn.Linear
    before = model[0]
    assert type(quantize_(model)[2]) is QuantizedLinear and model[0] is before


def test_what_quantize_refuses():
    with pytest.raises(ValueError, match="kind is 'int2'; expected one of 'int8', 'i"):
        quantize_(nn.Sequential(), "int2")
    with pytest.raises(ValueError, match="group_size is 48; expected one of 32, 64,"):
        quantize_(nn.Sequential(), "int4", group_size=48)
    with pytest.raises(ValueError, match="which nothing can replace"):
        quantize_(nn.Linear(2, 2))
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    handle = model[1].register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="1 has hooks"):
        quantize_(model)
    handle.remove()
    with minitorch.no_grad():
        model[1].weight[0, 1] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        quantize_(model)
    assert all(type(layer) is nn.Linear for layer in model)
    with pytest.raises(TypeError, match="int64"):
        quantize(minitorch.ones(2, 2, dtype=minitorch.int64))
    with pytest.raises(ValueError, match=r"\(3,\)"):
        quantize(minitorch.ones(3))


def gpt(kind="int8", **changes):
    """A model that says other things after other texts, quantized; and the same with
    the weights that its bytes stand for."""
    minitorch.manual_seed(6)
    model = GPT(GPTConfig(**{**SIZES, **changes}))
    with minitorch.no_grad():
        for p in model.parameters():
            p.add_(minitorch.randn_like(p) * 0.4)
    floats = copy.deepcopy(model)
    quantize_(model, kind)
    floats.lm_head.weight = nn.Parameter(model.lm_head.weight)
    with minitorch.no_grad():
        for (_, mine), (_, theirs) in zip(
            model.named_modules(), floats.named_modules()
        ):
            if type(mine) is QuantizedLinear:
                theirs.weight.copy_(mine.weight)
    return model, floats


@pytest.mark.parametrize(
    "changes", [{}, LLAMA, {"kind": "int4"}], ids=["gpt2", "llama", "gpt2, int4"]
)
def test_a_model_writes_what_its_floats_write(changes, device):
    model, floats = (m.to(device) for m in gpt(**changes))
    assert all(type(m) is not nn.Linear for m in model.modules())
    prompts, steps = [[1, 2, 3], [5]], 4 if SIMULATED else 11
    new = model.generate(prompts, steps, temperature=0)
    assert new == floats.generate(prompts, steps, temperature=0)
    assert new == model.generate(prompts, steps, temperature=0, use_cache=False)
    assert len(set(map(tuple, new))) == 2


def test_a_head_gets_bytes_of_its_own():
    model, floats = gpt()
    table = model.wte.weight
    assert table.dtype is float32 and table.equal(floats.wte.weight)
    assert model.lm_head.q.dtype is int8
    assert model.num_parameters() == floats.num_parameters()
    ids = minitorch.tensor([[1, 2, 3, 4]])
    mine, theirs = (m.loss(ids, ids).item() for m in (model, floats))
    assert mine == pytest.approx(theirs, rel=1e-5)


def test_what_was_frozen_lets_gradients_pass():
    """As under adapters: the embedding learns through all layers."""
    model, floats = gpt()
    ids = minitorch.tensor([[1, 2, 3, 4]])
    for m in (model, floats):
        m(ids).logsumexp(-1).sum().backward()
    mine, theirs = model.wpe.weight.grad, floats.wpe.weight.grad
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), 1e-3, 1e-5)


def test_published_files_have_floats(tmp_path):
    model, _ = gpt()
    with pytest.raises(ValueError, match="the model is quantized"):
        save_weights(model, tmp_path / "model.safetensors")
    save_weights(GPT(GPTConfig(**SIZES)), tmp_path / "model.safetensors")
    loaded = quantize_(from_pretrained(tmp_path / "model.safetensors", model.config))
    minitorch.save(model.state_dict(), tmp_path / "quantized")
    loaded.load_state_dict(minitorch.load(tmp_path / "quantized"))
    ids = minitorch.tensor([[1, 2, 3, 4]])
    assert loaded(ids).equal(model(ids))


def test_the_program_of_the_docs(capsys):
    program = runpy.run_path(str(DOCS / "quantized_gpt.py"))
    found = program["losses"](30)
    assert abs(found["int8"] - found["float32"]) < 0.01 and found["float32"] < 4
    assert abs(found["int4, 32"] - found["float32"]) < 0.05
    (ratios, *_) = program["speeds"]("tiny", 3, 1)
    assert len(ratios) == 2 and min(ratios) > 0
    assert "MB of weights a token: 0, 0, 0" in capsys.readouterr().out
    model = GPT.preset("gpt2", n_layer=1)
    floats = program["bytes_read"](model)
    bytes_ = program["bytes_read"](quantize_(model))
    rows = 50_257 + 768 * (3 + 1 + 4 + 1)
    assert floats == 4 * 768 * (50_257 + 768 * 12) and bytes_ == floats // 4 + 4 * rows
    fours = program["bytes_read"](quantize_(GPT.preset("gpt2", n_layer=1), "int4"))
    assert fours == floats // 32 * 4.5
