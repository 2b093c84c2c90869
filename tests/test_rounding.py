"""Rounding with error feedback and learning from a teacher, as they are defined."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from assignments.a17_compression import smaller
from minitorch import nn
from minitorch.distillation import distillation_loss
from minitorch.quantization import quantize
from minitorch.rounding import feedback_factor, round_to_bits, round_with_feedback

SIZES = {
    "n": st.integers(1, 4),
    "k": st.integers(1, 6),
    "m": st.integers(1, 9),
    "bits": st.integers(2, 8),
    "seed": st.integers(0, 99),
}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([*shape, seed]).standard_normal(shape)


def correlated(m: int, k: int, seed: int = 0) -> np.ndarray:
    """Inputs [m, k], nearly of two dimensions."""
    few = numbers(m, 2, seed=seed) @ numbers(2, k, seed=seed)
    return few + 0.2 * numbers(m, k, seed=seed + 1)


def off(w: np.ndarray, x: np.ndarray, q, scale) -> float:
    """How far outputs are from what they were."""
    rounded = q.numpy() * scale.numpy()[:, None]
    return float(np.linalg.norm(x @ (rounded - w).T))


@given(**SIZES)
def test_each_number_is_off_by_half_a_step(n, k, m, bits, seed):
    w = numbers(n, k, seed=seed)
    w[-1] *= seed % 2
    q, scale = round_to_bits(minitorch.tensor(w), bits)
    assert q.dtype == minitorch.int8 and scale.dtype == minitorch.float64
    most = 2 ** (bits - 1) - 1
    assert np.abs(q.numpy()).max(1).tolist() == [most if row.any() else 0 for row in w]
    error = np.abs(q.numpy() * scale.numpy()[:, None] - w)
    assert (error <= scale.numpy()[:, None] / 2 + 1e-12).all()


def test_eight_bits_are_those_of_quantize():
    w = minitorch.tensor(numbers(5, 33).astype(np.float32))
    for mine, other in zip(round_to_bits(w, 8), quantize(w)):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine.numpy(), other.numpy(), 1e-6)


@given(**SIZES)
def test_the_factor_is_that_of_the_inverse(n, k, m, bits, seed):
    x = correlated(m, k, seed)
    x[:, 0] *= seed % 3 > 0 or k == 1
    u = feedback_factor(x, 0.05)
    h = x.T @ x
    h += 0.05 * np.trace(h) / k * np.eye(k)
    assert (np.tril(u, -1) == 0).all() and (np.diag(u) > 0).all()
    np.testing.assert_allclose(u.T @ u @ h, np.eye(k), atol=1e-8)


@given(**SIZES)
def test_columns_behind_make_up_for_those_before(n, k, m, bits, seed):
    """Step by step they are what least squares would make them."""
    w, x = numbers(n, k, seed=seed), correlated(m, k, seed)
    q, scale = round_with_feedback(minitorch.tensor(w), minitorch.tensor(x), bits)
    plain, same = round_to_bits(minitorch.tensor(w), bits)
    assert scale.equal(same) and q[:, 0].equal(plain[:, 0])
    h = x.T @ x
    h += 0.01 * np.trace(h) / k * np.eye(k)
    most, unit = 2 ** (bits - 1) - 1, scale.numpy()
    for i in range(1, k):
        lost = w[:, :i] - q.numpy()[:, :i] * unit[:, None]
        now = w[:, i:] + np.linalg.solve(h[i:, i:], h[i:, :i] @ lost.T).T
        steps = np.clip(now[:, 0] / unit, -most, most)
        assert (np.abs(q.numpy()[:, i] - steps) <= 0.5 + 1e-6).all()


def test_equal_inputs_share_an_error():
    """Two inputs are always equal: 2.4 + 2.4 steps are nearly 5, and not 4."""
    w = minitorch.tensor([[7.0, 2.4, 2.4]], dtype=minitorch.float64)
    x = minitorch.tensor([[1.0, 0, 0], [0, 1, 1], [0, 2, 2]], dtype=minitorch.float64)
    assert round_to_bits(w, 4)[0].tolist() == [[7, 2, 2]]
    assert round_with_feedback(w, x, 4, damping=1e-6)[0].tolist() == [[7, 2, 3]]


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_outputs_are_nearer(bits):
    w, x = numbers(32, 24), correlated(200, 24)
    given = minitorch.tensor(w), minitorch.tensor(x)
    fed, plain = round_with_feedback(*given, bits), round_to_bits(given[0], bits)
    assert off(w, x, *fed) < 0.6 * off(w, x, *plain)


def test_independent_inputs_have_nothing_to_share():
    """H is diagonal: each number goes to its nearest."""
    w, x = minitorch.tensor(numbers(4, 6)), minitorch.eye(6, dtype=minitorch.float64)
    assert round_with_feedback(w, x, 3)[0].equal(round_to_bits(w, 3)[0])


def test_rounding_on_devices(device):
    w = minitorch.tensor(numbers(3, 4).astype(np.float32), device=device)
    x = minitorch.tensor(numbers(5, 4).astype(np.float32), device=device)
    q, scale = round_with_feedback(w, x)
    assert (q.device, scale.device, scale.dtype) == (device, device, w.dtype)


@pytest.mark.parametrize(
    ("shape", "given", "more", "said"),
    [
        ((3,), (2, 3), {}, "the weight is"),
        ((0, 3), (2, 3), {}, "the weight is"),
        ((2, 3), (2, 3), {"bits": 1}, "2 to 8"),
        ((2, 3), (2, 4), {}, r"expected \(M, 3\)"),
        ((2, 3), (3,), {}, r"expected \(M, 3\)"),
        ((2, 3), (0, 3), {}, "not all 0"),
        ((2, 3), (2, 3), {"damping": 0.0}, "damping above 0"),
    ],
)
def test_what_rounding_refuses(shape, given, more, said):
    with pytest.raises(ValueError, match=said):
        round_with_feedback(minitorch.ones(*shape), minitorch.ones(*given), **more)
    with pytest.raises(ValueError, match="not finite"):
        round_to_bits(minitorch.tensor([[1.0, float("nan")]]))


# ---------------------------------------------------------------------------- a teacher


@given(
    n=st.integers(1, 4),
    classes=st.integers(1, 5),
    temperature=st.sampled_from([0.5, 1.0, 4.0, 20.0]),
    alpha=st.sampled_from([0.0, 0.3, 1.0]),
    far=st.sampled_from([1.0, 200.0]),
)
def test_the_loss_and_its_slope_are_pytorchs(n, classes, temperature, alpha, far):
    s, t = far * numbers(n, classes), far * numbers(n, classes, seed=1)
    y = np.random.default_rng(0).integers(0, classes, n)
    a, b = minitorch.tensor(s, requires_grad=True), torch.tensor(s, requires_grad=True)
    teacher = minitorch.tensor(t, requires_grad=True)
    mine = distillation_loss(a, teacher, minitorch.tensor(y), temperature, alpha)
    soft = torch.nn.functional.kl_div(
        (b / temperature).log_softmax(1),
        (torch.tensor(t) / temperature).softmax(1),
        reduction="batchmean",
    )
    hard = torch.nn.functional.cross_entropy(b, torch.tensor(y))
    (alpha * temperature**2 * soft + (1 - alpha) * hard).backward()
    mine.backward()
    np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), 1e-7, 1e-9)
    assert mine.shape == () and teacher.grad is None


def test_hot_slopes_are_half_of_the_differences_squares():
    """Hinton et al.: for a large T, matching shares is matching scores, less means."""
    s, t = numbers(3, 5), numbers(3, 5, seed=1)
    leaf = minitorch.tensor(s, requires_grad=True)
    target = minitorch.tensor([0, 1, 2])
    distillation_loss(leaf, minitorch.tensor(t), target, 1e4, 1.0).backward()
    apart = (s - s.mean(1, keepdims=True)) - (t - t.mean(1, keepdims=True))
    np.testing.assert_allclose(leaf.grad.numpy(), apart / (3 * 5), atol=1e-4)


def test_what_a_student_refuses():
    ones, target = minitorch.ones(2, 3), minitorch.tensor([0, 1])
    for more in ({"temperature": 0.0}, {"alpha": 1.5}):
        with pytest.raises(ValueError, match="expected a number above 0, and a share"):
            distillation_loss(ones, ones, target, **more)
    with pytest.raises(ValueError, match=r"expected both \(N, C\)"):
        distillation_loss(ones, minitorch.ones(2, 4), target)


# ------------------------------------------------------------------------- the program


def test_layers_are_fed_by_those_that_are_rounded():
    minitorch.manual_seed(0)
    model = smaller.mlp(6, 8, 3)
    x = minitorch.tensor(correlated(40, 6).astype(np.float32))
    made = smaller.round_linears(model, x, 2)
    first, second = made[0], made[2]
    assert first.q.equal(round_with_feedback(model[0].weight, x, 2)[0])
    wanted = round_with_feedback(model[2].weight, first(x).relu(), 2)
    assert second.q.equal(wanted[0]) and second.bias is model[2].bias
    assert isinstance(model[0], nn.Linear) and len(made) == len(model)


def test_the_program_prints_its_table(capsys):
    (found,) = smaller.main(count=512, epochs=1, drawn=True)
    sizes = {name: kilobytes for name, (kilobytes, _) in found.items()}
    assert (
        sizes["int8"] * 4 == sizes["dense"]
        and sizes["2 bits, nearest"] * 16 == (sizes["dense"])
    )
    assert all(0 <= share <= 1 for _, share in found.values())
    assert found["dense"][1] > 0.3
    printed = capsys.readouterr().out
    assert all(f"| {name} |" in printed for name in found)
