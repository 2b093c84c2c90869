"""autocast runs each operation in its type; GradScaler moves as PyTorch's does."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

import minitorch
import minitorch.nn.functional as F
from minitorch import nn
from minitorch.amp import GradScaler, autocast, get_autocast_dtype, is_autocast_enabled
from minitorch.cuda import is_available
from minitorch.dtypes import bfloat16, float16, float32, float64
from minitorch.executor import Executor, executing
from minitorch.utils.checkpoint import checkpoint

x32 = minitorch.tensor(np.random.default_rng(0).uniform(0.1, 1, (4, 4)).astype("f4"))
image = x32.reshape(1, 1, 4, 4)
labels = minitorch.tensor([0, 1, 2, 3])
ones = minitorch.ones(4)

# What PyTorch's lists for CUDA say of operations on a half tensor and a float32 one.
LOWER = {
    "matmul": lambda x: x @ x32,
    "mm": lambda x: minitorch.mm(x, x32),
    "bmm": lambda x: minitorch.bmm(x.unsqueeze(0), x32.unsqueeze(0)),
    "mv": lambda x: minitorch.mv(x, ones),
    "linear": lambda x: F.linear(x, x32, ones),
    "conv2d": lambda x: F.conv2d(x.reshape(1, 1, 4, 4), image),
    "conv_transpose1d": lambda x: F.conv_transpose1d(x, x32.unsqueeze(-1)),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x.reshape(1, 1, 4, 4), image),
    "einsum": lambda x: minitorch.einsum("ij,jk->ik", x, x32),
    "attention": lambda x: F.scaled_dot_product_attention(x, x32, x32),
}
WIDER = {
    "exp": lambda x: x.exp(),
    "expm1": lambda x: x.expm1(),
    "log": lambda x: x.log(),
    "log1p": lambda x: x.log1p(),
    "log2": lambda x: x.log2(),
    "log10": lambda x: x.log10(),
    "acos": lambda x: x.acos(),
    "sinh": lambda x: x.sinh(),
    "cosh": lambda x: x.cosh(),
    "reciprocal": lambda x: x.reciprocal(),
    "rsqrt": lambda x: x.rsqrt(),
    "pow": lambda x: x**3,
    "square": lambda x: x**2,
    "rpow": lambda x: 2.0**x,
    "softplus": lambda x: F.softplus(x),
    "layer_norm": lambda x: F.layer_norm(x, (4,), ones, ones),
    "group_norm": lambda x: F.group_norm(x, 2, ones, ones),
    "rms_norm": lambda x: F.rms_norm(x, (4,), ones),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "sum": lambda x: x.sum(),
    "prod": lambda x: x.prod(),
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(0),
    "norm": lambda x: x.norm(),
    "normalize": lambda x: F.normalize(x),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x32),
    "mse_loss": lambda x: F.mse_loss(x, x),
    "l1_loss": lambda x: F.l1_loss(x, x),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x),
    "huber_loss": lambda x: F.huber_loss(x, x),
    "kl_div": lambda x: F.kl_div(x, x),
    "nll_loss": lambda x: F.nll_loss(x, labels),
    "cross_entropy": lambda x: F.cross_entropy(x, labels),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, x),
    # Operands of two types are in the wider one.
    "cat": lambda x: minitorch.cat([x, x32]),
    "stack": lambda x: minitorch.stack([x, x32]),
    "where": lambda x: minitorch.where(x > 0.5, x, x32),
    "add": lambda x: x + x32,
    "dot": lambda x: minitorch.dot(x[0], ones),
    "scatter_add": lambda x: x.scatter_add(0, labels.reshape(1, 4), x32[:1]),
}
KEPT = {
    "relu": lambda x: x.relu(),
    "gelu": lambda x: F.gelu(x),
    "mul": lambda x: x * 0.5,
    "mean": lambda x: x.mean(),
    "cat": lambda x: minitorch.cat([x, x]),
    "max_pool2d": lambda x: F.max_pool2d(x.reshape(1, 1, 4, 4), 2),
    "batch_norm": lambda x: F.batch_norm(x, None, None, ones, ones, True),
    "batch_norm eval": lambda x: F.batch_norm(x, ones, ones, ones, ones),
    "interpolate": lambda x: F.interpolate(x.reshape(1, 1, 4, 4), 3, mode="bilinear"),
    "dropout": lambda x: F.dropout(x, 0.5),
}


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_types_of_results(dtype):
    half = x32.to(dtype)
    with autocast("cpu", dtype=dtype):
        for name, fn in LOWER.items():
            assert fn(half).dtype is fn(x32).dtype is dtype, name
        for name, fn in WIDER.items():
            assert fn(half).dtype is fn(x32).dtype is float32, name
        for name, fn in KEPT.items():
            assert fn(half).dtype is dtype and fn(x32).dtype is float32, name
        wide = x32.double()
        assert (wide @ wide).dtype is float64 and half.double().exp().dtype is float64
        assert (labels.reshape(2, 2) @ labels.reshape(2, 2)).dtype is minitorch.int64
    assert (x32 @ x32).dtype is float32 and half.exp().dtype is dtype


def test_values_are_those_of_the_lower_type():
    bias = minitorch.tensor([0.6358, 0.6386, 0.6202, 0.5419])
    with autocast("cpu", dtype=bfloat16):
        y = F.linear(x32, x32, bias)
        z = x32.half().exp()
    b = x32.bfloat16()
    assert y.equal((b.float() @ b.float().T + bias).bfloat16())  # rounded once
    assert z.equal(x32.half().float().exp())


def test_gradients_have_the_types_of_the_forward_pass(device):
    w = nn.Parameter(minitorch.ones(3, 4, device=device))
    x = minitorch.ones(2, 4, device=device, requires_grad=True)
    gamma = nn.Parameter(minitorch.ones(3, device=device))
    bias = nn.Parameter(minitorch.ones(3, device=device))
    with autocast(device, dtype=bfloat16):
        hidden = F.linear(x, w, bias)
        hidden.retain_grad()
        normed = F.batch_norm(hidden, None, None, gamma, None, True)
        loss = F.layer_norm(hidden * 0.1 + normed, (3,), gamma).square().sum()
        loss.backward()
    assert hidden.dtype is hidden.grad.dtype is bfloat16 and loss.dtype is float32
    assert w.grad.dtype is x.grad.dtype is gamma.grad.dtype is float32
    assert bias.grad.dtype is float32 and bias.grad.equal(hidden.grad.float().sum(0))


class Copies(Executor):
    """Counts the conversions to half types."""

    count = 0

    def call(self, name, fn, args, kwargs):
        self.count += name == "copy" and args[1].half
        return fn(*args, **kwargs)


def conversions(run: Any) -> int:
    with executing(Copies()) as copies:
        run()
    return copies.count


def test_weights_are_cast_once_for_a_region():
    w, x = nn.Parameter(minitorch.ones(4, 4)), minitorch.ones(2, 4, dtype=bfloat16)

    def twice(**options: Any) -> None:
        with autocast("cpu", **options):
            F.linear(x, w)
            with autocast("cpu"):
                F.linear(x, w)

    assert conversions(lambda: twice()) == 1
    assert conversions(lambda: twice(cache_enabled=False)) == 2
    with autocast("cpu"):
        with minitorch.no_grad():
            before = F.linear(x, w)
            w.fill_(2.0)
        after = F.linear(x, w)
    after.sum().backward()
    assert before[0, 0].item() == 4 and after[0, 0].item() == 8
    assert w.grad[0, 0].item() == 2


def test_regions_nest():
    def kind() -> Any:
        return (x32 @ x32).dtype

    assert not is_autocast_enabled("cpu") and get_autocast_dtype("cpu") is bfloat16
    with autocast("cpu", dtype=float16) as outer:
        assert is_autocast_enabled("cpu") and get_autocast_dtype("cpu") is float16
        with autocast("cpu", enabled=False):
            assert kind() is float32 and not is_autocast_enabled("cpu")
            with autocast("cpu", dtype=bfloat16):
                assert kind() is bfloat16
        with autocast("simple"), outer:
            assert kind() is float16
        with pytest.raises(ZeroDivisionError), autocast("cpu", enabled=False):
            raise ZeroDivisionError
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(kind()))
        thread.start()
        thread.join()
        assert seen == [float32] and kind() is float16
    with autocast("simple"):
        assert kind() is float32
    with autocast("cpu", dtype=float32):
        assert kind() is float32
    assert kind() is float32

    @autocast("cpu", dtype=bfloat16)
    def product() -> Any:
        """Documented."""
        return kind()

    assert product() is bfloat16 and product.__doc__ == "Documented."


def test_errors_of_autocast():
    with pytest.raises(RuntimeError, match=r"'gpu'.*'cpu'"):
        autocast("gpu")
    with pytest.raises(TypeError, match="int64"):
        autocast("cpu", dtype=minitorch.int64)
    with pytest.raises(TypeError, match="linear"):
        F.linear(x32.half(), x32)
    with autocast("cpu"), pytest.raises(TypeError, match="linear"):
        F.linear(x32.double(), x32)
    with autocast("simple"), pytest.raises(TypeError, match="matmul"):
        x32.half() @ x32


def test_names():
    from minitorch.cuda.amp import GradScaler as CudaScaler
    from minitorch.cuda.amp import autocast as cuda_autocast

    assert minitorch.autocast is minitorch.amp.autocast is autocast
    assert minitorch.cuda.amp.GradScaler is CudaScaler
    assert minitorch.cuda.is_bf16_supported() is is_available()
    if is_available():
        assert cuda_autocast().enabled and CudaScaler().is_enabled()
        return
    with pytest.warns(UserWarning, match="no GPU"):
        assert not cuda_autocast(dtype=bfloat16).enabled
    with pytest.warns(UserWarning, match="no GPU"):
        scaler = CudaScaler()
    assert not scaler.is_enabled() and not CudaScaler(enabled=False).is_enabled()


def network() -> Any:
    minitorch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)
    )


def test_checkpoint_remembers_the_region():
    grads = []
    for run in (checkpoint, lambda fn, x: fn(x)):
        model = network()
        with autocast("cpu"):
            loss = F.cross_entropy(run(model, x32), labels)
        loss.backward()
        grads.append([p.grad for p in model.parameters()])
    assert all(a.equal(b) for a, b in zip(*grads))


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_training_ends_where_float32_ends(dtype):
    losses = {}
    rng = np.random.default_rng(5)
    x = minitorch.tensor(rng.standard_normal((64, 4)).astype("f4"))
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] * x[:, 2] > 0).long()
    for enabled in (False, True):
        model = network()
        optimizer = minitorch.optim.AdamW(model.parameters(), lr=0.02)
        scaler = GradScaler("cpu", growth_interval=10, enabled=dtype is float16)
        for _ in range(60):
            with autocast("cpu", dtype=dtype, enabled=enabled):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        assert {p.dtype for p in model.parameters()} == {float32}
        losses[enabled] = F.cross_entropy(model(x), y).item()
    assert losses[False] < 0.5
    assert abs(losses[True] - losses[False]) < 0.05


# ------------------------------------------------------------------- GradScaler

OPTIONS: dict[str, Any] = {
    "init_scale": 1024.0,
    "growth_factor": 3.0,
    "backoff_factor": 0.3,
    "growth_interval": 3,
}


def test_scaler_moves_as_pytorch_s():
    """Losses of which some overflow, and unscale_ before some steps."""
    p, q = nn.Parameter(minitorch.ones(3)), torch.nn.Parameter(torch.ones(3))
    mine, theirs = GradScaler("cpu", **OPTIONS), torch.amp.GradScaler("cpu", **OPTIONS)
    ours = minitorch.optim.SGD([p], lr=0.1, momentum=0.9)
    other = torch.optim.SGD([q], lr=0.1, momentum=0.9)
    factors = [1, 2, 1, 1, np.inf, 1, 1, 1, 3e37, 1, np.nan, 1, 1, 1, 1, 1, 1]
    for i, factor in enumerate(factors):
        for scaler, optimizer, w in ((mine, ours, p), (theirs, other, q)):
            optimizer.zero_grad()
            scaler.scale((w * float(factor)).sum()).backward()
            if i % 3 == 0:
                scaler.unscale_(optimizer)
            if i % 4 == 0:
                w.grad.mul_(0.5)
            scaler.step(optimizer)
            if i == 13:
                scaler.update(512.0)
            else:
                scaler.update()
        assert mine.get_scale() == theirs.get_scale(), i
        assert mine.state_dict() == theirs.state_dict(), i
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-6)
    other_scaler = GradScaler("cpu")
    other_scaler.load_state_dict(theirs.state_dict())
    assert other_scaler.state_dict() == theirs.state_dict()


def test_scaler_scales_in_float32():
    scaler = GradScaler("cpu")
    half = minitorch.tensor(100.0, dtype=float16)
    assert scaler.scale(half).item() == 100 * 2.0**16
    one, (two,) = scaler.scale([minitorch.ones(1), (minitorch.ones(1),)])
    assert one.item() == two.item() == 2.0**16
    with pytest.raises(ValueError, match="str"):
        scaler.scale("loss")


def test_a_scaler_that_is_not_enabled_does_nothing():
    p = nn.Parameter(minitorch.ones(1))
    scaler, optimizer = GradScaler("cpu", enabled=False), minitorch.optim.SGD([p], 0.5)
    loss = p.sum()
    assert scaler.scale(loss) is loss and scaler.get_scale() == 1.0
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert p.item() == 0.5 and scaler.state_dict() == {}
    scaler.load_state_dict({})


def test_errors_of_the_scaler():
    p = nn.Parameter(minitorch.ones(1))
    optimizer, scaler = minitorch.optim.SGD([p], 0.5), GradScaler("cpu")
    for method, args in (
        ("step", (optimizer,)),
        ("update", ()),
        ("unscale_", [optimizer]),
    ):
        with pytest.raises(RuntimeError, match=r"scale\(loss\)"):
            getattr(scaler, method)(*args)
    loss = scaler.scale(p.sum())
    with pytest.raises(RuntimeError, match="no parameter"):
        scaler.step(optimizer)
    loss.backward()
    with pytest.raises(RuntimeError, match="no gradients"):
        scaler.update()
    with pytest.raises(RuntimeError, match="closure"):
        scaler.step(optimizer, closure=lambda: loss)
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="once"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    for method in ("step", "unscale_"):
        with pytest.raises(RuntimeError, match="since the last"):
            getattr(scaler, method)(optimizer)
    scaler.update()
    half = nn.Parameter(minitorch.ones(1, dtype=float16))
    scaler.scale(half.sum()).backward()
    with pytest.raises(ValueError, match="float16"):
        scaler.unscale_(minitorch.optim.SGD([half], 0.5))
    with pytest.raises(RuntimeError, match="empty"):
        scaler.load_state_dict({})
    with pytest.raises(ValueError, match="growth_factor"):
        GradScaler("cpu", growth_factor=1.0)
