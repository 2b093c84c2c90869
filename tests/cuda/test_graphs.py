"""CUDA graphs: a replay does what the code does, and says what cannot be captured."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import minitorch
from helpers import SIMULATED
from minitorch import nn, optim
from minitorch.cuda import CUDAGraph, graph, graph_pool_handle, make_graphed_step
from minitorch.nn import functional as F
from minitorch.optim.lr_scheduler import ExponentialLR
from minitorch.profiler import ProfilerActivity, profile
from tests.test_executor import READS

pytest.importorskip("numba_cuda")
from cuda_ops.runtime.device import CaptureError

BATCH, INPUTS, HIDDEN, CLASSES = 6, 5, 7, 3
OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, 0.1),
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, 0.01),
    "adamw": lambda p: optim.AdamW(p, 0.01),
}


def tensor(values: Any) -> minitorch.Tensor:
    return minitorch.tensor(np.asarray(values), device="cuda")


def values(x: minitorch.Tensor) -> np.ndarray:
    return x.detach().cpu().numpy()


def inputs(seed: int, n: int = BATCH) -> tuple[minitorch.Tensor, minitorch.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, INPUTS), dtype=np.float32)
    return tensor(x), tensor(rng.integers(0, CLASSES, n))


class Training:
    """A small network with dropout, its optimizer and a schedule."""

    def __init__(self, make: Callable[..., Any], seed: int = 0) -> None:
        minitorch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Dropout(0.4),
            nn.Linear(HIDDEN, CLASSES),
        ).to("cuda")  # fmt: skip
        self.optimizer = make(self.model.parameters())
        self.schedule = ExponentialLR(self.optimizer, 0.8)

    def step(self, x: minitorch.Tensor, y: minitorch.Tensor) -> minitorch.Tensor:
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def end(self) -> tuple[Any, ...]:
        """All that training has changed."""
        states = [
            {k: v if isinstance(v, int) else values(v).tobytes() for k, v in s.items()}
            for s in self.optimizer.state.values()
        ]
        return (
            [values(p).tobytes() for p in self.model.parameters()],
            states,
            self.optimizer.steps_taken,
            minitorch.default_generator.get_state(),
        )


def run(training: Training, step: Callable[..., Any], sizes: list[int]) -> list[bytes]:
    losses = []
    for i, n in enumerate(sizes):
        losses.append(values(step(*inputs(i, n))).tobytes())
        training.schedule.step()
    return losses


# ------------------------------------------------------------------ what a replay does


def test_a_replay_works_on_new_numbers_in_the_old_memory() -> None:
    x = tensor(np.arange(10.0, dtype=np.float32))
    (x * 2 + 1).exp()
    g = CUDAGraph()
    with graph(g):
        y = (x * 2 + 1).relu()
    for start in (0.0, -7.0, 3.0):
        new = np.arange(start, start + 10, dtype=np.float32)
        x.copy_(tensor(new))
        g.replay()
        assert np.array_equal(values(y), np.maximum(new * 2 + 1, 0))
    assert len(g.kernels) >= 2


def test_nothing_is_computed_during_the_capture() -> None:
    x = tensor(np.zeros(5, np.float32))
    g = CUDAGraph()
    with graph(g):
        x.add_(1.0)
    assert np.array_equal(values(x), np.zeros(5))
    for i in range(3):
        g.replay()
        assert np.array_equal(values(x), np.full(5, i + 1.0))


def test_numbers_in_a_row_need_no_host() -> None:
    g = CUDAGraph()
    with graph(g):
        made = (
            minitorch.arange(2, 90, 3, device="cuda"),
            minitorch.eye(3, 5, device="cuda"),
            minitorch.linspace(0, 1, 50, device="cuda"),
        )
    g.replay()
    expected = np.arange(2, 90, 3), np.eye(3, 5), np.linspace(0, 1, 50)
    for tensor_, array in zip(made, expected):
        assert np.allclose(values(tensor_), array, rtol=1e-6)


def test_memory_taken_inside_stays() -> None:
    x = tensor(np.ones(2000, np.float32))
    g = CUDAGraph()
    with graph(g):
        y = x
        for _ in range(4):
            y = y + x  # each sum but the last is dropped at once
    kept = [minitorch.full((2000,), 7.0, device="cuda") for _ in range(8)]
    minitorch.cuda.empty_cache()
    more = [minitorch.full((2000,), 9.0, device="cuda") for _ in range(8)]
    g.replay()
    assert np.array_equal(values(y), np.full(2000, 5.0))
    assert all((values(t) == 7).all() for t in kept)
    assert all((values(t) == 9).all() for t in more)


def test_graphs_may_share_a_pool() -> None:
    x = tensor(np.ones(20, np.float32))
    pool, made, outs = graph_pool_handle(), [], []
    for i in range(2):
        g = CUDAGraph()
        with graph(g, pool=pool):
            outs.append(x + float(i))
        made.append(g)
    assert made[0].pool() is made[1].pool() is pool
    for i, g in enumerate(made):
        g.replay()
        assert np.array_equal(values(outs[i]), np.full(20, 1.0 + i))
    for g in made:
        g.reset()
    with pytest.raises(RuntimeError, match="empty"):
        made[0].replay()


def test_gradients_are_written_by_each_replay() -> None:
    w = minitorch.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    x = tensor(np.array([3.0, 4.0], np.float32))
    (w * x).sum().backward()
    g = CUDAGraph()
    with graph(g):
        w.grad = None
        (w * x * x).sum().backward()
    for factor in (1.0, 2.0):
        x.copy_(tensor(np.array([3.0, 4.0], np.float32) * np.float32(factor)))
        g.replay()
        assert w.grad is not None
        expected = np.array([9.0, 16.0]) * factor**2
        assert np.array_equal(values(w.grad), expected)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_the_same_to_the_bit(name: str) -> None:
    """Losses, weights, optimizer, generator; with a smaller batch in between."""
    sizes = [BATCH] * 4 + [2, BATCH]
    plain = Training(OPTIMIZERS[name])
    expected = run(plain, plain.step, sizes), plain.end()
    graphed = Training(OPTIMIZERS[name])
    step = make_graphed_step(graphed.step)
    assert (run(graphed, step, sizes), graphed.end()) == expected
    assert step.graph is not None
    assert len(set(expected[0])) == len(sizes)


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_clipped_gradients_are_those_of_each_replay(name: str) -> None:
    """SGD multiplies them before its step, in the graph; AdamW within its own."""

    def clipped(training: Training, x: Any, y: Any) -> minitorch.Tensor:
        params = list(training.model.parameters())
        loss = F.cross_entropy(training.model(x), y)
        training.optimizer.zero_grad()
        loss.backward()
        total = nn.utils.clip_grad_norm_(params, 0.3)
        training.optimizer.step()
        return total

    def looked_at(training: Training, step: Callable[..., Any]) -> list[Any]:
        found = []
        for i in range(5):
            norm = values(step(*inputs(i)))
            grads = [values(p.grad) for p in training.model.parameters()]
            found.append([norm.tobytes(), *[g.tobytes() for g in grads]])
            clipped_norm = sum(float((g**2).sum()) for g in grads) ** 0.5
            assert clipped_norm <= 0.3001
        return [found, training.end()]

    plain, graphed = Training(OPTIMIZERS[name]), Training(OPTIMIZERS[name])
    minitorch.manual_seed(1)
    expected = looked_at(plain, partial(clipped, plain))
    minitorch.manual_seed(1)
    step = make_graphed_step(partial(clipped, graphed))
    assert looked_at(graphed, step) == expected
    assert step.graph is not None


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_two_steps_in_one_graph(name: str) -> None:
    def twice(training: Training, x: Any, y: Any) -> minitorch.Tensor:
        training.step(x, y)
        return training.step(x, y)

    plain, graphed = Training(OPTIMIZERS[name]), Training(OPTIMIZERS[name])
    minitorch.manual_seed(1)
    expected = run(plain, partial(twice, plain), [BATCH] * 4), plain.end()
    minitorch.manual_seed(1)
    step = make_graphed_step(partial(twice, graphed))
    assert (run(graphed, step, [BATCH] * 4), graphed.end()) == expected
    assert step.graph is not None


class Lower(Training):
    """In half types: the weights themselves, or only what autocast chooses."""

    def __init__(self, weights: bool) -> None:
        super().__init__(OPTIMIZERS["adamw"])
        self.weights = weights
        if weights:
            self.model.bfloat16()

    def step(self, x: minitorch.Tensor, y: minitorch.Tensor) -> minitorch.Tensor:
        if self.weights:
            return super().step(x.bfloat16(), y)
        with minitorch.autocast("cuda", dtype=minitorch.bfloat16):
            return super().step(x, y)


@pytest.mark.parametrize("weights", [True, False])
def test_training_in_half_types_is_the_same(weights: bool) -> None:
    plain = Lower(weights)
    expected = run(plain, plain.step, [BATCH] * 4), plain.end()
    graphed = Lower(weights)
    step = make_graphed_step(graphed.step)
    assert (run(graphed, step, [BATCH] * 4), graphed.end()) == expected
    assert step.graph is not None


@pytest.mark.parametrize("dtype", [minitorch.float32, minitorch.float64], ids=str)
def test_attention_with_a_mask_and_dropout_is_captured(dtype: Any) -> None:
    """GPTs are trained with both, by a kernel; in float64 masks are made on the GPU."""
    like = {"device": "cuda", "requires_grad": True, "dtype": dtype}
    q, k, v = (minitorch.rand(2, 5, 4, **like) for _ in range(3))

    def step(x: Any) -> Any:
        out = F.scaled_dot_product_attention(q, k, v, None, 0.5, is_causal=True)
        loss = (out * x).sum()
        q.grad = k.grad = v.grad = None
        loss.backward()
        return loss.detach()

    x = minitorch.ones(2, 5, 4, device="cuda", dtype=dtype)
    minitorch.manual_seed(0)
    expected = [step(x).item() for _ in range(4)]
    minitorch.manual_seed(0)
    graphed = make_graphed_step(step)
    assert [graphed(x).item() for _ in range(4)] == expected
    assert graphed.graph is not None and len(set(expected)) == 4


def test_random_numbers_move_on_and_continue() -> None:
    def drawn(n: int) -> list[bytes]:
        parts = [minitorch.rand(5, device="cuda"), minitorch.randn(3, device="cuda")]
        parts += [F.dropout(minitorch.ones(9, device="cuda"), 0.5)]
        return [values(p).tobytes() for p in parts for _ in range(n)]

    minitorch.manual_seed(5)
    drawn(1)
    minitorch.manual_seed(5)
    expected = [drawn(1) for _ in range(5)]
    minitorch.manual_seed(5)
    before = minitorch.default_generator.get_state()
    ones = minitorch.ones(9, device="cuda")
    g = CUDAGraph()
    with graph(g):
        outs = [minitorch.rand(5, device="cuda"), minitorch.randn(3, device="cuda")]
        outs += [F.dropout(ones, 0.5)]
    assert minitorch.default_generator.get_state() == before
    seen = []
    for i in range(5):
        if i == 2:  # one that is not replayed
            seen.append(drawn(1))
            continue
        g.replay()
        seen.append([values(p).tobytes() for p in outs])
    assert seen == expected
    minitorch.manual_seed(6)
    with pytest.raises(RuntimeError, match=r"seed 5.*capture"):
        g.replay()


def test_a_learning_rate_that_was_changed_counts() -> None:
    w = minitorch.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    optimizer = optim.SGD([w], 0.5)

    def step() -> None:
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()

    step()
    g = CUDAGraph()
    with graph(g):
        step()
    expected = np.array([0.5, 1.5])
    for lr in (0.5, 0.25, 0.25, 2.0):
        optimizer.param_groups[0]["lr"] = lr
        g.replay()
        expected -= lr
        assert np.array_equal(values(w), expected)
    optimizer.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(RuntimeError, match="options"):
        g.replay()


def test_a_loaded_state_needs_a_new_capture() -> None:
    training = Training(OPTIMIZERS["adam"])
    step = make_graphed_step(training.step)
    run(training, step, [BATCH] * 3)
    training.optimizer.load_state_dict(training.optimizer.state_dict())
    with pytest.raises(RuntimeError, match=r"Adam.*load_state_dict.*capture"):
        step(*inputs(0))


def test_gradients_come_back_after_a_step_without_the_graph() -> None:
    training = Training(OPTIMIZERS["sgd"])
    step = make_graphed_step(training.step)
    run(training, step, [BATCH] * 3)
    weight = next(iter(training.model.parameters()))
    before = weight.grad
    run(training, step, [2, BATCH])
    assert weight.grad is before


# ------------------------------------------------------------ what cannot be captured

REFUSED = {
    "item": (lambda x: x.sum().item(), r"reading numbers.*item\(\).*replay"),
    "numpy": (lambda x: x.numpy(), "reading numbers on the CPU"),
    "print": (lambda x: repr(x), "reading numbers on the CPU"),
    "if": (lambda x: bool(x.sum()), "reading numbers on the CPU"),
    "cpu": (lambda x: x.cpu(), "reading numbers on the CPU"),
    "synchronize": (lambda x: minitorch.cuda.synchronize(), "synchronize.*replay"),
    "tensor": (lambda x: x + tensor([1.0]).sum(), r"from the CPU.*copy_"),
    "copy": (lambda x: x.copy_(minitorch.zeros(4)), r"from the CPU.*copy_"),
    "graph": (lambda x: CUDAGraph().capture_begin(), "another graph"),
    "replay": (lambda x: replayed(), "replaying a graph"),
    "nll": (
        lambda x: F.nll_loss(x.reshape(2, 2), tensor([0, 1])),
        "CPU",
    ),
}
ready: list[CUDAGraph] = []


def replayed() -> None:
    ready[0].replay()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_captured_is_named_and_nothing_breaks(name: str) -> None:
    x = tensor(np.arange(4, dtype=np.float32))
    ready[:] = [CUDAGraph()]
    with graph(ready[0]):
        x + 1.0
    work, message = REFUSED[name]
    g = CUDAGraph()
    state = minitorch.default_generator.get_state()
    with pytest.raises(CaptureError, match=message), graph(g):
        F.dropout(x, 0.5)
        work(x)
    assert minitorch.default_generator.get_state() == state
    assert float((x + 1).sum()) == 10.0
    with graph(g):
        y = x + 1
    g.replay()
    assert np.array_equal(values(y), [1, 2, 3, 4])


@pytest.mark.parametrize("name", READS)
def test_a_read_is_refused_by_its_name(name: str) -> None:
    x = tensor(np.arange(3, dtype=np.float32))
    READS[name](x)  # compiles
    with pytest.raises(CaptureError) as refused, graph(CUDAGraph()):
        READS[name](x)
    assert re.search(
        rf"{re.escape(name)} asks for those of a tensor of shape \(.*\), at "
        rf".*test_executor.py\(\d+\): .*after g.replay\(\)",
        str(refused.value),
    )


def test_numbers_of_the_cpu_may_be_read() -> None:
    x, scale = tensor(np.ones(3, np.float32)), minitorch.tensor([2.0, 3.0])
    g = CUDAGraph()
    with graph(g):
        y = x * scale[1].item()
    g.replay()
    assert np.array_equal(values(y), [3, 3, 3])


def test_a_step_that_is_profiled_is_not_captured() -> None:
    training = Training(OPTIMIZERS["sgd"])
    step = make_graphed_step(training.step)
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        run(training, step, [BATCH] * 3)
    assert step.graph is None
    assert sum(span.name == "SGD.step" for span in prof.events()) == 3
    with pytest.raises(RuntimeError, match="profile, is active"), profile():
        CUDAGraph().capture_begin()
    run(training, step, [BATCH] * 2)
    assert step.graph is not None


def test_other_errors_pass_through() -> None:
    x = tensor(np.arange(4, dtype=np.float32))
    g = CUDAGraph()
    with pytest.raises(ZeroDivisionError), graph(g):
        x + 1 / 0
    with graph(g):
        y = x + 1
    g.replay()
    assert np.array_equal(values(y), [1, 2, 3, 4])


def test_a_capture_that_is_given_up_adds_no_gradient() -> None:
    def losses(graphed: bool) -> list[float]:
        minitorch.manual_seed(0)
        model = nn.Linear(5, 3).to("cuda")
        optimizer = optim.SGD(model.parameters(), 0.1)

        def step(x: Any) -> Any:
            loss = model(x).square().mean()
            loss.backward()
            loss.item()
            optimizer.step()
            optimizer.zero_grad()  # behind, and not before
            return loss.detach()

        refused: list[str] = []
        run = minitorch.cuda.make_graphed_step(step, refused.append)
        inputs = [minitorch.full((4, 5), 0.1 * i, device="cuda") for i in range(4)]
        return [(run if graphed else step)(x).item() for x in inputs]

    assert losses(True) == losses(False)


def test_a_first_step_cannot_be_captured() -> None:
    for name in ("adam", "momentum"):
        training = Training(OPTIMIZERS[name])
        x, y = inputs(0)
        F.cross_entropy(training.model(x), y).backward()
        before = training.end()
        g = CUDAGraph()
        with pytest.raises(CaptureError, match="take one step before"), graph(g):
            training.step(x, y)
        assert training.end() == before
        training.step(x, y)


def test_composed_optimizers_cannot_be_captured() -> None:
    training = Training(lambda p: optim.RMSprop(p, 0.01))
    notes: list[str] = []
    step = make_graphed_step(training.step, notes.append)
    plain = Training(lambda p: optim.RMSprop(p, 0.01))
    expected = run(plain, plain.step, [BATCH] * 4), plain.end()
    training = Training(lambda p: optim.RMSprop(p, 0.01))
    step = make_graphed_step(training.step, notes.append)
    assert (run(training, step, [BATCH] * 4), training.end()) == expected
    assert len(notes) == 1 and "RMSprop.step() cannot be captured" in notes[0]
    assert step.graph is None


def test_a_step_on_the_cpu_cannot_be_captured() -> None:
    both = [minitorch.ones(2, device=d, requires_grad=True) for d in ("cuda", "cpu")]
    optimizer = optim.SGD(both, 0.1)
    for p in both:
        p.sum().backward()
    with pytest.raises(CaptureError, match="parameters on the GPU"):
        with graph(CUDAGraph()):
            optimizer.step()
    assert [p.tolist() for p in both] == [[1.0, 1.0]] * 2
    assert optimizer.steps_taken == 0


def test_only_the_default_generator_moves_on() -> None:
    x = tensor(np.ones(4, np.float32))
    other = minitorch.Generator(3)
    with pytest.raises(RuntimeError, match="default generator"), graph(CUDAGraph()):
        F.dropout(x, 0.5, generator=other)
    assert other.get_state() == {"seed": 3, "offset": 0}
    F.dropout(x, 0.5, generator=other)


def test_wrong_uses_are_explained() -> None:
    g = CUDAGraph()
    with pytest.raises(RuntimeError, match="empty"):
        g.replay()
    with pytest.raises(RuntimeError, match="capture_begin"):
        g.capture_end()
    with pytest.raises(TypeError, match="CUDAGraph"):
        graph("g")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pool"):
        g.capture_begin(pool=3)
    with graph(g):
        minitorch.ones(3, device="cuda") + 1
    with pytest.raises(RuntimeError, match=r"reset\(\)"), graph(g):
        pass
    g.reset()
    with graph(g):
        minitorch.ones(3, device="cuda") + 1


def test_a_bad_target_is_told_after_the_replay() -> None:
    scores, y = inputs(0)
    y.copy_(tensor(np.zeros(BATCH, np.int64)))
    F.cross_entropy(scores, y)
    g = CUDAGraph()
    with graph(g):
        F.cross_entropy(scores, y)
    y.copy_(tensor(np.full(BATCH, 77)))
    with pytest.raises(IndexError, match="cross_entropy: index 77"):
        g.replay()
        minitorch.cuda.synchronize()


@pytest.mark.skipif(SIMULATED, reason="the simulator has no allocator of its own")
def test_memory_comes_back() -> None:
    from cuda_ops.runtime.allocator import Pool

    pool = graph_pool_handle()
    assert isinstance(pool, Pool)
    x = minitorch.ones(1_000_000, device="cuda")
    g = CUDAGraph()
    with graph(g, pool=pool):
        y = x + 1
    held = pool.reserved
    minitorch.cuda.empty_cache()
    assert pool.reserved == held > 0
    del y
    g.reset()
    minitorch.cuda.empty_cache()
    assert pool.reserved == 0
