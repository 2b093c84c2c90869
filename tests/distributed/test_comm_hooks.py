"""Hooks that send the buckets of DistributedDataParallel in their own way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minitorch
from minitorch import distributed as dist
from minitorch import nn
from minitorch.distributed import spawn_threads
from minitorch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    powerSGD_hook,
)
from minitorch.nn.parallel import DistributedDataParallel as DDP

RNG = np.random.default_rng(7)
X = RNG.standard_normal((32, 24)).astype(np.float32)
Y = (X @ RNG.standard_normal((24, 16)) / 5).astype(np.float32)


def trained(hook: Any, state: Any = None, steps: int = 4) -> Any:
    """Gradients of the last step, losses, and the state, on each of two ranks."""

    def program() -> Any:
        kept = state() if state is not None else None
        minitorch.manual_seed(2)
        layers = nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 16)
        model = DDP(nn.Sequential(*layers), bucket_cap_mb=1 / 1024)
        if hook is not None:
            model.register_comm_hook(kept, hook)
        optimizer = minitorch.optim.SGD(model.parameters(), 0.2)
        x, y = (minitorch.from_numpy(a[dist.get_rank() :: 2]) for a in (X, Y))
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return [p.grad.numpy() for p in model.parameters()], losses, kept

    return spawn_threads(program, 2)


def by_hand(_: Any, bucket: Any) -> Any:
    """As PyTorch's documentation has it."""
    assert len(bucket.gradients()) == len(bucket.parameters())
    shapes = [p.shape for p in bucket.parameters()]
    assert [g.shape for g in bucket.gradients()] == shapes and bucket.index() >= 0
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0] / 2)


def keep_all(_: Any, bucket: Any) -> Any:
    """PowerSGD with as many columns as there are rows loses nothing."""
    state = powerSGD_hook.PowerSGDState(None, 16, 0, min_compression_rate=0)
    return powerSGD_hook.powerSGD_hook(state, bucket)


@pytest.mark.parametrize(
    "hook, digits",
    [
        (default_hooks.allreduce_hook, 6),
        (by_hand, 6),
        (keep_all, 5),
        (default_hooks.fp16_compress_hook, 3),
        (default_hooks.bf16_compress_hook, 2),
    ],
)
def test_a_hook_brings_the_mean(hook: Any, digits: int) -> None:
    expected = trained(None)
    for rank, (grads, _, _) in enumerate(trained(hook)):
        for a, b in zip(grads, expected[rank][0]):
            assert np.abs(a - b).max() < 10.0**-digits * np.abs(b).max() * 5


def test_power_sgd_learns_what_all_gradients_teach() -> None:
    """With a fifth of the numbers; its first two steps are sent whole."""
    whole = trained(None, steps=60)
    lossy = trained(
        powerSGD_hook.powerSGD_hook,
        lambda: powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2),
        steps=60,
    )
    for (_, plain, _), (grads, losses, state) in zip(whole, lossy):
        assert losses[:3] == plain[:3] and losses[3] != plain[3]
        assert losses[-1] < 1.2 * plain[-1] and plain[-1] < 0.4 * plain[0]
        assert [np.linalg.matrix_rank(g, 1e-4) for g in (grads[0], grads[2])] == [1, 1]
        rate, before, after = state.compression_stats()
        assert before == 58 * (24 * 16 + 16 * 16 + 32)
        assert after == 58 * (24 + 16 + 16 + 16 + 32) and rate == before / after


def test_what_is_lost_comes_with_the_next_gradients() -> None:
    """All that was sent, and the errors that are left, are all that there was."""
    total = np.zeros((16, 24))

    def program() -> Any:
        rng = np.random.default_rng(dist.get_rank())
        model = DDP(nn.Linear(24, 16, bias=False))
        state = powerSGD_hook.PowerSGDState(None, 2, 0)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        came, given = total.copy(), total.copy()
        for _ in range(5):
            model.zero_grad()
            x = rng.standard_normal((8, 24)).astype(np.float32)
            model(minitorch.from_numpy(x)).square().sum().backward()
            weight = model.module.weight
            came += weight.grad.numpy()
            given += 2 * (x @ weight.detach().numpy().T).T @ x
        return came, given, state.errors[0].numpy()

    came, given, errors = (sum(parts) / 2 for parts in zip(*spawn_threads(program, 2)))
    assert np.abs(came + errors - given).max() < 1e-4 * np.abs(given).max()
    assert np.abs(errors).max() > 0.1


def test_what_hooks_refuse() -> None:
    def program() -> None:
        model = DDP(nn.Linear(1, 1))
        with pytest.raises(TypeError, match="hook is a int; expected a function"):
            model.register_comm_hook(None, 3)  # type: ignore[arg-type]
        model.register_comm_hook(None, default_hooks.allreduce_hook)
        with pytest.raises(RuntimeError, match="there is a hook already"):
            model.register_comm_hook(None, default_hooks.allreduce_hook)

    spawn_threads(program, 1)
    with pytest.raises(ValueError, match="approximation_rank is 0; expected 1 or more"):
        powerSGD_hook.PowerSGDState(None, 0)
