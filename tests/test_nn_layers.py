"""Layers and their functional forms against PyTorch: outputs, gradients, buffers."""

from __future__ import annotations

import inspect
import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nn_oracle import (
    agree,
    backward,
    check_module,
    copy_weights,
    numbers,
    ours,
    pair,
    same,
)
from strategies import layouts

import minitorch
import minitorch.nn.functional as F
from minitorch import nn

tnn = torch.nn


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 4, 3), (2, 1, 2, 3), (0, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape, bias, device):
    check_module(nn.Linear(3, 4, bias), tnn.Linear(3, 4, bias), *shape, device=device)


def test_linear_errors():
    with pytest.raises(ValueError, match=r"input is \(2, 4\) and the weight \(1, 3\)"):
        nn.Linear(3, 1)(minitorch.ones(2, 4))
    with pytest.raises(ValueError, match="in_features is -1"):
        nn.Linear(-1, 2)
    with pytest.raises(ValueError, match="out_features"):
        nn.Linear(1, 2.0)


ACTIVATIONS = [
    (nn.ReLU(), tnn.ReLU()),
    (nn.LeakyReLU(), tnn.LeakyReLU()),
    (nn.LeakyReLU(0.2), tnn.LeakyReLU(0.2)),
    (nn.ELU(), tnn.ELU()),
    (nn.ELU(0.5), tnn.ELU(0.5)),
    (nn.GELU(), tnn.GELU()),
    (nn.GELU("tanh"), tnn.GELU("tanh")),
    (nn.SiLU(), tnn.SiLU()),
    (nn.Sigmoid(), tnn.Sigmoid()),
    (nn.Tanh(), tnn.Tanh()),
    (nn.Softplus(), tnn.Softplus()),
    (nn.Softplus(2.0, 1.0), tnn.Softplus(2.0, 1.0)),
    (nn.Softmax(dim=1), tnn.Softmax(dim=1)),
    (nn.LogSoftmax(dim=-1), tnn.LogSoftmax(dim=-1)),
    (nn.Identity(), tnn.Identity()),
    (nn.Flatten(), tnn.Flatten()),
    (nn.Flatten(0, 1), tnn.Flatten(0, 1)),
]


@pytest.mark.parametrize("mine, theirs", ACTIVATIONS, ids=lambda m: repr(m))
def test_activations(mine, theirs, device):
    check_module(mine, theirs, 3, 4, 5, device=device)
    assert repr(mine).replace("negative_", "") == repr(theirs).replace("negative_", "")


def test_functional_activations():
    x, tx = pair(3, 4, grad=False)
    x, tx = x * 10, tx * 10
    for mine, theirs in (
        (F.relu(x), TF.relu(tx)),
        (F.leaky_relu(x), TF.leaky_relu(tx)),
        (F.elu(x), TF.elu(tx)),
        (F.gelu(x), TF.gelu(tx)),
        (F.silu(x), TF.silu(tx)),
        (F.sigmoid(x), TF.sigmoid(tx)),
        (F.tanh(x), TF.tanh(tx)),
        (F.softplus(x), TF.softplus(tx)),
        (F.logsigmoid(x), TF.logsigmoid(tx)),
        (F.softmax(x, 0), TF.softmax(tx, 0)),
        (F.log_softmax(x, dim=1), TF.log_softmax(tx, dim=1)),
        (F.flatten(x), torch.flatten(tx)),
        (
            F.softmax(x, -1, dtype=minitorch.float64),
            TF.softmax(tx, -1, dtype=torch.float64),
        ),
    ):
        same(mine, theirs)


def test_activations_in_place(device):
    """The numbers and gradients are PyTorch's, and other names of the input see it."""
    found = []
    for lib in (minitorch, torch):
        net, where = lib.nn, {"device": device if lib is minitorch else "cpu"}
        x = lib.tensor([[-1.0, 2.0], [0.5, -3.0]], requires_grad=True, **where)
        layers = [net.ReLU(inplace=True), net.LeakyReLU(0.2, inplace=True)]
        layers += [net.SiLU(inplace=True), net.ELU(0.5, inplace=True)]
        kept = []
        for layer in [*layers, net.Dropout(0.5, inplace=True).eval()]:
            x.grad, a = None, x * 1.5
            view = a[0]
            out = layer(a)
            (out * (a + 1)).sum().backward()
            with lib.no_grad():
                quiet = layer(x.detach().clone())
            kept += [out, a, view, quiet, x.grad]
        with pytest.raises(RuntimeError, match="leaf"):
            layers[0](x)
        numbers = [n for a in kept for n in a.reshape(-1).tolist()]
        found.append((numbers, [repr(a) for a in layers]))
    np.testing.assert_allclose(*[numbers for numbers, _ in found], atol=1e-6)
    assert found[0][1] == found[1][1]
    x = minitorch.ones(100)
    assert nn.Dropout(0.5, inplace=True)(x) is x and 0 in x and 2 in x


def test_what_is_refused():
    x = minitorch.ones(2, 3)
    for call in (
        lambda: nn.Softmax()(x),
        lambda: nn.GELU("erf"),
        lambda: nn.MaxPool2d(2, ceil_mode=True),
        lambda: nn.AvgPool2d(2, divisor_override=3),
        lambda: F.avg_pool2d(minitorch.ones(1, 1, 4, 4), 2, ceil_mode=True),
        lambda: nn.Conv2d(1, 1, 3, padding_mode="reflect"),
        lambda: nn.Conv2d(3, 4, 3, groups=2),
        lambda: nn.Conv2d(1, 1, (3, 3, 3)),
        lambda: nn.Conv1d(1, 1, 3, stride=0),
        lambda: F.pad(x, (1, 1), mode="reflect"),
        lambda: nn.Dropout(1.5),
        lambda: F.dropout(x, -0.1),
    ):
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1},
        {"padding": "same"},
        {"padding": (1, 2), "dilation": (2, 1), "bias": False},
        {"groups": 2, "padding": "valid"},
    ],
    ids=str,
)
def test_conv2d(options, device):
    mine, theirs = nn.Conv2d(2, 4, 3, **options), tnn.Conv2d(2, 4, 3, **options)
    check_module(mine, theirs, 2, 2, 7, 6, device=device)
    if "padding" not in options or not isinstance(options["padding"], str):
        assert repr(mine) == repr(theirs)


@given(data=st.data(), layout=layouts)
def test_conv_transpose2d(data, layout, device):
    def pair_of(low, high):
        return tuple(data.draw(st.integers(low, high)) for _ in range(2))

    groups, stride = data.draw(st.sampled_from([1, 2])), pair_of(1, 3)
    kernel, spread, sizes = pair_of(1, 3), pair_of(1, 2), pair_of(1, 5)
    more = tuple(data.draw(st.integers(0, s - 1)) for s in stride)
    pad = tuple(data.draw(st.integers(0, s * (k > 1))) for s, k in zip(spread, kernel))
    channels, batch = 2 * groups, data.draw(st.integers(0, 2))
    out = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1 + m
        for n, s, p, d, k, m in zip(sizes, stride, pad, spread, kernel, more)
    ]
    assume(min(out) > 0)
    shapes = [(batch, channels, *sizes), (channels, 3, *kernel), (3 * groups,)]
    options = (stride, pad, more, groups, spread)
    agree(
        lambda m, *xs: m.nn.functional.conv_transpose2d(*xs, *options),
        shapes, device, layout,
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"stride": (2, 3), "padding": (1, 2), "output_padding": (0, 2), "bias": False},
        {"groups": 2, "dilation": 2, "padding": 1},
    ],
    ids=str,
)
def test_conv_transpose2d_layer(options, device):
    mine = nn.ConvTranspose2d(4, 6, 3, **options)
    theirs = tnn.ConvTranspose2d(4, 6, 3, **options)
    check_module(mine, theirs, 2, 4, 5, 3, device=device)
    for module in (mine, theirs):
        module.zero_grad()
    check_module(mine, theirs, 4, 5, 3, device=device)
    assert repr(mine) == repr(theirs)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 3, "padding": 1, "output_padding": 2},
        {"groups": 2, "dilation": 2},
    ],
    ids=str,
)
def test_conv_transpose1d_layer(options, device):
    mine = nn.ConvTranspose1d(4, 6, 3, **options)
    theirs = tnn.ConvTranspose1d(4, 6, 3, **options)
    for shape in ((2, 4, 5), (4, 5)):
        check_module(mine, theirs, *shape, device=device)
        mine.zero_grad(), theirs.zero_grad()
    assert repr(mine) == repr(theirs)
    x, tx = pair(1, 4, 4, device=device)
    size = (mine(x).shape[-1],)
    same(mine(x, size), theirs(tx, size))
    with pytest.raises(ValueError, match=r"input is \(2,\) and the weight \(4, "):
        mine(minitorch.ones(2, device=device))
    with pytest.raises(ValueError, match="conv_transpose1d: stride is"):
        F.conv_transpose1d(x, mine.weight, stride=(1, 2))


def test_conv_transpose2d_beginnings_sizes_and_errors():
    bound = 1 / math.sqrt(50 * 3 * 3)
    made = nn.ConvTranspose2d(4, 50, 3)
    for p in made.parameters():
        assert 0.9 * bound < p.abs().max().item() <= bound
    made, theirs = (lib.ConvTranspose2d(2, 1, 3, 2, 1) for lib in (nn, tnn))
    x, tx = pair(1, 2, 4, 4)
    copy_weights(made, theirs)
    for size in ((7, 8), (1, 1, 8, 7)):
        same(made(x, size), theirs(tx, size))
    ones = minitorch.ones
    for wrong in (
        lambda: made(x, (9, 8)),
        lambda: made(x, (6, 8)),
        lambda: F.conv_transpose2d(ones(1, 2, 3, 3), ones(3, 2, 3, 3)),
        lambda: F.conv_transpose2d(ones(1, 2, 3, 3), ones(2, 2, 3, 3), ones(3)),
        lambda: F.conv_transpose2d(ones(1, 3, 3, 3), ones(3, 2, 3, 3), groups=2),
        lambda: F.conv_transpose2d(ones(1, 1, 1, 1), ones(1, 1, 1, 1), padding=1),
        lambda: F.conv_transpose2d(ones(2, 3), ones(2, 3)),
        lambda: nn.ConvTranspose2d(1, 1, 3, padding="same")(ones(1, 1, 3, 3)),
    ):
        with pytest.raises(ValueError, match="conv_transpose2d: "):
            wrong()


@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 2, "dilation": 2}, {"groups": 2, "bias": False}],
    ids=str,
)
def test_conv1d(options, device):
    mine, theirs = nn.Conv1d(2, 4, 3, **options), tnn.Conv1d(2, 4, 3, **options)
    check_module(mine, theirs, 2, 2, 9, device=device)


@pytest.mark.parametrize(
    "mine, theirs, shape",
    [
        (nn.MaxPool2d(2), tnn.MaxPool2d(2), (2, 3, 6, 5)),
        (nn.MaxPool2d(3, 2, 1), tnn.MaxPool2d(3, 2, 1), (2, 3, 6, 5)),
        (nn.MaxPool2d((2, 3), 1, 0, 2), tnn.MaxPool2d((2, 3), 1, 0, 2), (1, 2, 6, 7)),
        (nn.MaxPool1d(3, 2, 1), tnn.MaxPool1d(3, 2, 1), (2, 3, 8)),
        (nn.AvgPool2d(2), tnn.AvgPool2d(2), (2, 3, 6, 5)),
        (
            nn.AvgPool2d(3, 2, 1, count_include_pad=False),
            tnn.AvgPool2d(3, 2, 1, count_include_pad=False),
            (2, 3, 6, 5),
        ),
        (nn.AdaptiveAvgPool2d(1), tnn.AdaptiveAvgPool2d(1), (2, 3, 5, 4)),
        (nn.AdaptiveAvgPool1d(2), tnn.AdaptiveAvgPool1d(2), (2, 3, 4)),
        (nn.AdaptiveAvgPool1d((2,)), tnn.AdaptiveAvgPool1d((2,)), (3, 4)),
        (nn.PixelShuffle(2), tnn.PixelShuffle(2), (2, 12, 3, 2)),
        (nn.PixelShuffle(3), tnn.PixelShuffle(3), (9, 2, 2)),
        (nn.AdaptiveAvgPool2d((2, None)), tnn.AdaptiveAvgPool2d((2, None)), (3, 6, 4)),
    ],
    ids=lambda value: repr(value),
)
def test_pooling(mine, theirs, shape, device):
    check_module(mine, theirs, *shape, device=device)


INTERPOLATED = {1: "linear", 2: "bilinear", 3: "trilinear"}
# None, but 2, doubles a side: PyTorch's gradient of "nearest" then is that of 2, though
# its values are not.
FACTORS = (0.5, 0.7, 1.0, 1.5, 2, 2.6, 3.0)


@given(data=st.data(), layout=layouts, mode=st.sampled_from(["nearest", "linear"]))
def test_interpolate(data, layout, mode, device):
    old = data.draw(st.lists(st.integers(2, 5), min_size=1, max_size=3))
    options = {"mode": mode if mode == "nearest" else INTERPOLATED[len(old)]}
    if mode == "linear":
        options["align_corners"] = data.draw(st.sampled_from([True, False, None]))
    kind = data.draw(st.sampled_from(["size", "scale_factor"]))
    one = st.integers(1, 9) if kind == "size" else st.sampled_from(FACTORS)
    options[kind] = data.draw(one | st.tuples(*[one] * len(old)))
    if kind == "scale_factor":
        options["recompute_scale_factor"] = data.draw(st.booleans())
    shape = (data.draw(st.integers(0, 2)), 2, *old)
    call = lambda m, x: m.nn.functional.interpolate(x, **options)
    agree(call, [shape], device, layout)


@pytest.mark.parametrize(
    "options",
    [
        {"scale_factor": 2},
        {"scale_factor": (2, 1.5), "mode": "bilinear"},
        {"size": 9},
        {"size": (7, 3), "mode": "bilinear", "align_corners": True},
    ],
    ids=str,
)
def test_upsample(options, device):
    mine, theirs = nn.Upsample(**options), tnn.Upsample(**options)
    check_module(mine, theirs, 2, 3, 5, 4, device=device)
    assert repr(mine) == repr(theirs)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_interpolate_halves(kind):
    x, tx = pair(1, 2, 5, 4)
    for mode in ("nearest", "bilinear"):
        options = {"size": (7, 9), "mode": mode}
        out = F.interpolate(x.to(getattr(minitorch, kind)), **options)
        expected = TF.interpolate(tx.to(getattr(torch, kind)), **options)
        same(out.float(), expected.float(), rtol=1e-2)
        assert out.dtype.name == kind


def test_interpolate_errors():
    x = minitorch.ones(1, 2, 3, 3)
    for options in (
        {},
        {"size": 3, "scale_factor": 2},
        {"size": (3, 3, 3)},
        {"scale_factor": (2,)},
        {"size": 3, "mode": "bicubic"},
        {"size": 3, "mode": "linear"},
        {"size": 3, "align_corners": True},
        {"size": 3, "antialias": True},
        {"size": 0},
        {"scale_factor": 0.1},
        {"scale_factor": -1},
        {"size": 3, "recompute_scale_factor": True},
    ):
        with pytest.raises(ValueError, match="interpolate: "):
            F.interpolate(x, **options)
    with pytest.raises(ValueError, match="interpolate: "):
        F.interpolate(x[0, 0], 3)
    for wrong in (lambda: F.interpolate(x, 3.5), lambda: F.interpolate(x.long(), 3)):
        with pytest.raises(TypeError, match="interpolate: "):
            wrong()
    for part, size in ((x, 3), (x[..., :1], (3, 6)), (x[..., :1, :1], 3)):
        out = F.interpolate(part, size)  # never a view
        assert out is not x and out.raw.storage is not x.raw.storage
        assert out.is_contiguous()


def test_pooling_indices_and_errors():
    x, tx = pair(2, 3, 6, 6)
    for mine, theirs in zip(
        F.max_pool2d(x, 2, return_indices=True),
        TF.max_pool2d(tx, 2, return_indices=True),
    ):
        same(mine, theirs)
    mine, theirs = (
        nn.MaxPool1d(2, return_indices=True)(x[0]),
        TF.max_pool1d(tx[0], 2, return_indices=True),
    )
    same(mine[1], theirs[1])
    with pytest.raises(ValueError, match="multiples"):
        F.adaptive_avg_pool2d(x, 4)
    with pytest.raises(ValueError, match="max_pool1d"):
        F.max_pool1d(x, 2)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (1, 3, 2)])
@pytest.mark.parametrize(
    "options", [{}, {"affine": False}, {"momentum": None}, {"momentum": 0.3}], ids=str
)
def test_batch_norm1d(shape, options, device):
    mine, theirs = nn.BatchNorm1d(3, **options), tnn.BatchNorm1d(3, **options)
    for _ in range(2):
        check_module(mine, theirs, *shape, device=device)
    check_module(mine.eval(), theirs.eval(), *shape, device=device)
    assert repr(mine).startswith("BatchNorm1d(3, eps=1e-05, momentum=")


def test_batch_norm2d(device):
    mine, theirs = nn.BatchNorm2d(3, eps=1e-3), tnn.BatchNorm2d(3, eps=1e-3)
    with torch.no_grad():
        theirs.weight.uniform_(0.5, 2)
        theirs.bias.uniform_(-1, 1)
    check_module(mine, theirs, 2, 3, 4, 5, device=device)
    theirs.zero_grad()
    mine.zero_grad()
    check_module(mine.eval(), theirs.eval(), 2, 3, 4, 5, device=device)


def test_batch_norm_without_running_statistics():
    options = {"track_running_stats": False}
    mine, theirs = nn.BatchNorm2d(2, **options), tnn.BatchNorm2d(2, **options)
    check_module(mine.eval(), theirs.eval(), 3, 2, 2, 2)


def test_batch_norm_that_tracks_no_more():
    mine, theirs = nn.BatchNorm1d(2), tnn.BatchNorm1d(2)
    check_module(mine, theirs, 3, 2)
    mine.track_running_stats = theirs.track_running_stats = False
    mine.zero_grad()
    theirs.zero_grad()
    check_module(mine, theirs, 3, 2)
    kept = {k: v.tolist() for k, v in mine.state_dict().items()}
    with minitorch.no_grad():
        mine(minitorch.full((3, 2), float("nan")))
    assert kept == {k: v.tolist() for k, v in mine.state_dict().items()}


def test_batch_norm_errors():
    with pytest.raises(ValueError, match=r"BatchNorm2d: the input is \(2, 3\)"):
        nn.BatchNorm2d(3)(minitorch.ones(2, 3))
    with pytest.raises(ValueError, match="size 3"):
        nn.BatchNorm1d(3)(minitorch.ones(2, 4))
    with pytest.raises(ValueError, match="two values"):
        nn.BatchNorm1d(3)(minitorch.ones(1, 3))
    with pytest.raises(ValueError, match="running mean"):
        F.batch_norm(minitorch.ones(2, 3), None, None)
    batch = nn.BatchNorm1d(2)
    batch(minitorch.randn(4, 2))
    batch.reset_running_stats()
    assert batch.num_batches_tracked.item() == 0 and batch.running_var.sum() == 2


@pytest.mark.parametrize("shape, size", [((4, 6), 6), ((2, 3, 4), (3, 4)), ((5,), 5)])
@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"elementwise_affine": False}]
)
def test_layer_norm(shape, size, options, device):
    mine, theirs = nn.LayerNorm(size, **options), tnn.LayerNorm(size, **options)
    for p in theirs.parameters():
        torch.nn.init.normal_(p)
    check_module(mine, theirs, *shape, device=device)


@given(
    groups=st.integers(1, 3),
    sizes=st.tuples(st.integers(0, 3), st.integers(1, 3)),
    rest=st.lists(st.integers(1, 4), max_size=2),
    layout=layouts,
)
def test_group_norm(groups, sizes, rest, layout, device):
    shape = (sizes[0], groups * sizes[1], *rest)
    assume(math.prod(shape) != groups)
    call = lambda m, x, w, b: m.nn.functional.group_norm(x, groups, w, b, 1e-3)
    agree(call, [shape, shape[1:2], shape[1:2]], device, layout)


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"bias": False}], ids=str)
def test_group_norm_layer(options, device):
    known = "bias" in inspect.signature(tnn.GroupNorm).parameters
    if "bias" in options and not known:
        pytest.skip("this PyTorch's GroupNorm has no option bias")
    mine, theirs = nn.GroupNorm(2, 4, **options), tnn.GroupNorm(2, 4, **options)
    check_module(mine, theirs, 3, 4, 5, device=device)
    assert repr(mine) == repr(theirs) or not known


@pytest.mark.parametrize("options", [{}, {"affine": True, "eps": 0.1}], ids=str)
@pytest.mark.parametrize("shape", [(2, 4, 5), (4, 5), (2, 4, 3, 2), (4, 3, 2)])
def test_instance_norm(shape, options, device):
    name = "InstanceNorm1d" if 5 in shape else "InstanceNorm2d"
    mine, theirs = (getattr(lib, name)(4, **options) for lib in (nn, tnn))
    check_module(mine, theirs, *shape, device=device)
    for layer in (mine, theirs):
        layer.zero_grad()
    check_module(mine.eval(), theirs.eval(), *shape, device=device)
    assert repr(mine) == re.sub(" bias=(True|False),", "", repr(theirs))


def test_instance_norm_errors():
    for wrong in (
        lambda: nn.InstanceNorm2d(3, track_running_stats=True),
        lambda: nn.InstanceNorm1d(3)(minitorch.ones(1, 3, 2, 2)),
        lambda: nn.InstanceNorm2d(3)(minitorch.ones(3, 2)),
        lambda: nn.InstanceNorm2d(3)(minitorch.ones(1, 2, 2, 2)),
    ):
        with pytest.raises(ValueError, match=r"InstanceNorm|group_norm"):
            wrong()


def test_group_norm_errors():
    for wrong in (
        lambda: nn.GroupNorm(2, 3),
        lambda: F.group_norm(minitorch.ones(2, 3), 2),
        lambda: F.group_norm(minitorch.ones(4), 2),
        lambda: F.group_norm(minitorch.ones(1, 4), 4),
        lambda: F.group_norm(minitorch.ones(1, 4), 2, minitorch.ones(3)),
    ):
        with pytest.raises(ValueError, match="roup"):
            wrong()


@pytest.mark.parametrize("padding_idx", [None, 1, -2])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,)])
def test_embedding(shape, padding_idx, device):
    theirs = tnn.Embedding(6, 4, padding_idx)
    mine = copy_weights(nn.Embedding(6, 4, padding_idx), theirs).to(device)
    x, tx = numbers(6, *shape, device=device)
    out, expected = mine(x), theirs(tx)
    same(out, expected)
    backward(out, expected)
    same(mine.weight.grad, theirs.weight.grad)


def test_embedding_details():
    layer = nn.Embedding(4, 3, padding_idx=2)
    assert not layer.weight[2].any() and layer.weight[1].all()
    assert repr(layer) == "Embedding(4, 3, padding_idx=2)"
    with pytest.raises(IndexError, match="from 0 to 3"):
        layer(minitorch.tensor([4]))
    with pytest.raises(TypeError, match="float32"):
        layer(minitorch.ones(1))
    with pytest.raises(ValueError, match="padding_idx"):
        nn.Embedding(2, 2, padding_idx=2)


@pytest.mark.parametrize("freeze", [True, False])
@pytest.mark.parametrize("padding_idx", [None, -2])
def test_embedding_from_pretrained(freeze, padding_idx, device):
    (table, ttable), (x, tx) = pair(6, 4, device=device), numbers(6, 9, device=device)
    before = minitorch.get_rng_state()
    mine = nn.Embedding.from_pretrained(table, freeze, padding_idx=padding_idx)
    assert minitorch.get_rng_state() == before
    theirs = tnn.Embedding.from_pretrained(ttable, freeze, padding_idx=padding_idx)
    assert repr(mine) == repr(theirs) and mine.weight.requires_grad is not freeze
    out, expected = mine(x), theirs(tx)
    same(out, expected)
    if not freeze:
        backward(out, expected)
        same(mine.weight.grad, theirs.weight.grad)
    table.detach().zero_()
    assert not mine.weight.any()


def test_embedding_from_what_is_no_table():
    with pytest.raises(ValueError, match=r"is \(3,\); expected two"):
        nn.Embedding.from_pretrained(minitorch.ones(3))
    with pytest.raises(ValueError, match="padding_idx is 3"):
        nn.Embedding.from_pretrained(minitorch.ones(3, 1), padding_idx=3)
    with pytest.raises(TypeError, match="'max_norm'"):  # one that is not offered
        nn.Embedding.from_pretrained(minitorch.ones(3, 1), max_norm=1.0)


def test_dropout(device):
    minitorch.manual_seed(0)
    layer, x = nn.Dropout(0.25), minitorch.ones(100, 100, device=device)
    x.requires_grad_()
    out = layer(x)
    values = out.detach().cpu().numpy()
    assert set(np.unique(values)) == {0.0, np.float32(1) / np.float32(0.75)}
    assert abs((values == 0).mean() - 0.25) < 0.02
    out.sum().backward()
    assert x.grad.equal(out.detach())  # zero where the output is
    assert layer.eval()(x) is x and F.dropout(x, 0.5, training=False) is x
    assert not F.dropout(x, 1.0).any() and F.dropout(x, 0.0) is x
    a = F.dropout(x, 0.5, generator=minitorch.Generator(3))
    assert a.equal(F.dropout(x, 0.5, generator=minitorch.Generator(3)))


@pytest.mark.parametrize("rest", [(), (3,), (2, 3)])
def test_dropout_of_channels(rest, device):
    """All numbers of a channel, or none, are left, and divided by what is left."""
    minitorch.manual_seed(0)
    layer, x = nn.Dropout2d(0.25), minitorch.ones(40, 50, *rest, device=device)
    out = layer(x.requires_grad_())
    lines = out.detach().cpu().numpy().reshape(2000, -1)
    assert (lines == lines[:, :1]).all() and abs((lines == 0).mean() - 0.25) < 0.03
    assert set(np.unique(lines)) == {0.0, np.float32(1) / np.float32(0.75)}
    out.sum().backward()
    assert x.grad.equal(out.detach()) and layer.eval()(x).equal(x)
    with pytest.raises(ValueError, match=r"\(3,\); expected \(N, C"):
        F.dropout2d(minitorch.ones(3))


@given(
    st.lists(st.integers(-2, 3), min_size=1, max_size=3).map(
        lambda pads: [n for p in pads for n in (p, 1)]
    )
)
@settings(max_examples=15)
def test_pad(pads):
    x, tx = pair(4, 4, 4)
    out, expected = F.pad(x, pads, value=0.5), TF.pad(tx, pads, value=0.5)
    same(out, expected)
    backward(out, expected)
    same(x.grad, tx.grad)


def test_one_hot():
    x, tx = numbers(5, 3, 4)
    same(F.one_hot(x), TF.one_hot(tx))
    same(F.one_hot(x, 7), TF.one_hot(tx, 7))
    same(F.one_hot(x[:0], 2), TF.one_hot(tx[:0], 2))
    for wrong in (lambda: F.one_hot(x, 3), lambda: F.one_hot(x - 5)):
        with pytest.raises(ValueError, match="one_hot"):
            wrong()
    with pytest.raises(TypeError, match="float32"):
        F.one_hot(minitorch.ones(2))


@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_normalize_and_cosine(p):
    x, tx = pair(3, 4)
    y, ty = pair(3, 4, seed=5)
    same(F.normalize(x, p), TF.normalize(tx, p))
    same(F.normalize(x, dim=0), TF.normalize(tx, dim=0))
    out, expected = F.cosine_similarity(x, y), TF.cosine_similarity(tx, ty)
    same(out, expected)
    backward(out, expected)
    same(x.grad, tx.grad)


def test_functional_layers():
    x, tx = pair(2, 4, 6, 6)
    w, tw = pair(3, 4, 3, 3, seed=2)
    b, tb = pair(3, seed=3)
    same(F.conv2d(x, w, b, padding=1), TF.conv2d(tx, tw, tb, padding=1))
    same(F.conv1d(x[:, :, 0], w[:, :, 0], b), TF.conv1d(tx[:, :, 0], tw[:, :, 0], tb))
    same(F.layer_norm(x, (6,)), TF.layer_norm(tx, (6,)))
    same(F.linear(x, w[0, 0, :, :].new_ones((2, 6))), TF.linear(tx, torch.ones(2, 6)))


INITS = {
    "uniform": (
        lambda t: nn.init.uniform_(t, -1, 3),
        lambda t: tnn.init.uniform_(t, -1, 3),
    ),
    "normal": (lambda t: nn.init.normal_(t, 1, 2), lambda t: tnn.init.normal_(t, 1, 2)),
    "kaiming_uniform": (nn.init.kaiming_uniform_, tnn.init.kaiming_uniform_),
    "kaiming_fan_out": (
        lambda t: nn.init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"),
        lambda t: tnn.init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"),
    ),
    "xavier_uniform": (
        lambda t: nn.init.xavier_uniform_(t, 2.0),
        lambda t: tnn.init.xavier_uniform_(t, 2.0),
    ),
    "xavier_normal": (nn.init.xavier_normal_, tnn.init.xavier_normal_),
}


@pytest.mark.parametrize("name", INITS)
def test_init_distributions(name):
    mine, theirs = INITS[name]
    a = mine(minitorch.empty(60, 40, 5)).numpy().ravel()
    b = theirs(torch.empty(60, 40, 5)).numpy().ravel()
    assert abs(a.mean() - b.mean()) < 0.05 * b.std()
    assert abs(a.std() - b.std()) < 0.03 * b.std()
    levels = np.linspace(0.05, 0.95, 19)
    spread = np.quantile(a, levels) - np.quantile(b, levels)
    assert np.abs(spread).max() < 0.1 * b.std()
    if "uniform" in name:
        assert abs(np.abs(a).max() / np.abs(b).max() - 1) < 0.01


@pytest.mark.parametrize(
    "mine, theirs",
    [
        (nn.Linear(200, 100), tnn.Linear(200, 100)),
        (nn.Conv2d(20, 100, 3), tnn.Conv2d(20, 100, 3)),
        (nn.Conv1d(20, 100, 5, groups=2), tnn.Conv1d(20, 100, 5, groups=2)),
        (nn.Embedding(100, 50), tnn.Embedding(100, 50)),
        (nn.LayerNorm(5), tnn.LayerNorm(5)),
        (nn.BatchNorm2d(5), tnn.BatchNorm2d(5)),
    ],
    ids=lambda m: repr(m),
)
def test_default_values_of_layers(mine, theirs):
    for (name, p), (_, q) in zip(mine.named_parameters(), theirs.named_parameters()):
        a, b = p.detach().numpy(), q.detach().numpy()
        allowed = 0.1 + 2 / a.size**0.5  # draws differ, small ones more
        assert abs(a.std() - b.std()) <= allowed * b.std(), name
        # Not the largest, which differs by a third from one draw of normals to another.
        most, theirs_most = (np.quantile(np.abs(x), 0.95) for x in (a, b))
        assert abs(most - theirs_most) <= allowed * theirs_most, name


def test_init_constants_and_gain():
    t = minitorch.empty(2, 3)
    assert nn.init.zeros_(t) is t and not t.any()
    assert nn.init.ones_(t).sum() == 6 and nn.init.constant_(t, 2.5).sum() == 15
    for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert nn.init.calculate_gain(name) == pytest.approx(
            tnn.init.calculate_gain(name)
        )
    assert nn.init.calculate_gain("leaky_relu", 0.3) == pytest.approx(
        tnn.init.calculate_gain("leaky_relu", 0.3)
    )
    with pytest.raises(ValueError, match="swish"):
        nn.init.calculate_gain("swish")
    with pytest.raises(ValueError, match="fan"):
        nn.init.xavier_normal_(minitorch.empty(3))
    a = nn.init.normal_(minitorch.empty(5), generator=minitorch.Generator(1))
    b = nn.init.normal_(minitorch.empty(5), generator=minitorch.Generator(1))
    assert a.equal(b)


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3), (4, 2, 3)])
def test_orthogonal(shape):
    w = nn.init.orthogonal_(minitorch.empty(*shape), gain=2.0).numpy()
    w = w.reshape(shape[0], -1)
    small = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_truncated_normal():
    w, oracle = (
        lib.nn.init.trunc_normal_(lib.empty(100, 100), 0.5, 2.0, -1.0, 2.5).numpy()
        for lib in (minitorch, torch)
    )
    assert -1 <= w.min() < -0.9 and 2.4 < w.max() <= 2.5
    assert abs(w.mean() - oracle.mean()) < 0.06 and abs(w.std() - oracle.std()) < 0.06
    with pytest.raises(ValueError, match="fewer than 1 %"):
        nn.init.trunc_normal_(minitorch.empty(2), a=3.0, b=4.0)


def test_default_generator_decides_the_weights():
    minitorch.manual_seed(5)
    first = nn.Linear(3, 4)
    minitorch.manual_seed(5)
    assert nn.Linear(3, 4).weight.equal(first.weight)


# --------------------------------------------------------------------------- utils


@pytest.mark.parametrize("norm_type", [1, 2, math.inf, "inf", 0.5, 3, 4.5])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_grad_norm(norm_type, max_norm):
    mine = copy_weights(nn.Linear(3, 4), theirs := tnn.Linear(3, 4))
    x, tx = pair(5, 3)
    backward(mine(x), theirs(tx))
    total = nn.utils.clip_grad_norm_(mine.parameters(), max_norm, norm_type)
    expected = tnn.utils.clip_grad_norm_(theirs.parameters(), max_norm, norm_type)
    same(total, expected)
    for p, q in zip(mine.parameters(), theirs.parameters()):
        same(p.grad, q.grad)


def test_clip_details():
    a, b = nn.Parameter(minitorch.ones(3)), nn.Parameter(minitorch.ones(3))
    ((a + b) * minitorch.ones(3)).sum().backward()  # both get the very same gradient
    nn.utils.clip_grad_norm_([a, b], 1.0)
    assert abs(float((a.grad**2 + b.grad**2).sum()) - 1) < 1e-5
    nn.utils.clip_grad_value_(a, 0.1)
    assert a.grad.tolist() == pytest.approx([0.1] * 3)
    a.grad = minitorch.tensor([math.nan, 1, 2])
    with pytest.raises(RuntimeError, match="finite"):
        nn.utils.clip_grad_norm_(a, 1.0, error_if_nonfinite=True)
    assert nn.utils.clip_grad_norm_([nn.Parameter(minitorch.ones(1))], 1.0) == 0
    with pytest.raises(ValueError, match="norm_type"):
        nn.utils.clip_grad_norm_(a, 1.0, norm_type=0)
    a.grad, half = minitorch.zeros(3), nn.Parameter(minitorch.ones(2).half())
    assert nn.utils.clip_grad_norm_(a, 1.0, norm_type=3) == 0 and not a.grad.any()
    half.grad = 100 * minitorch.ones(2).half()  # whose fourth power is no float16
    total = nn.utils.clip_grad_norm_([half, a], 1.0, norm_type=4)
    assert total.item() == pytest.approx(100 * 2**0.25)


def test_parameters_to_vector_and_back():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    vector = nn.utils.parameters_to_vector(net.parameters())
    assert vector.shape == (13,) and vector.requires_grad
    nn.utils.vector_to_parameters(minitorch.arange(13).float(), net.parameters())
    assert net[1].bias.item() == 12 and net[0].weight.flatten().tolist() == [*range(6)]
    with pytest.raises(ValueError, match="13 numbers"):
        nn.utils.vector_to_parameters(minitorch.ones(12), net.parameters())


def test_a_convolutional_network_as_a_whole(device):
    def build(m, base):
        class Net(base):
            def __init__(self):
                super().__init__()
                self.features = m.Sequential(
                    m.Conv2d(1, 4, 3, padding=1), m.BatchNorm2d(4), m.ReLU(),
                    m.MaxPool2d(2), m.Conv2d(4, 6, 3), m.GELU(),
                    m.AdaptiveAvgPool2d(1), m.Flatten(),
                )  # fmt: skip
                self.head = m.Sequential(m.LayerNorm(6), m.Linear(6, 3))

            def forward(self, x):
                return self.head(self.features(x))

        return Net()

    check_module(
        build(nn, nn.Module),
        build(tnn, tnn.Module),
        4,
        1,
        8,
        8,
        device=device,
        atol=1e-4,
    )


def test_ours_keeps_requires_grad():
    assert ours(torch.ones(1, requires_grad=True)).requires_grad
