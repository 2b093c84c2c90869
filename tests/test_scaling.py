"""Scaling laws: fits find the laws that rows were made of; runs are made and kept."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

import minitorch
from minitorch.bench import scaling as bench
from minitorch.data import UrnText
from minitorch.models import GPT, GPTConfig
from minitorch.scaling import (
    Law,
    Run,
    exponent_interval,
    fit_law,
    fit_power_law,
    isoflop_laws,
    isoflop_minimum,
    objective,
    parameters,
    read_runs,
    resamples,
    tokens_for,
    training_flops,
)

ROOT = Path(minitorch.__file__).parents[1]
LAW = Law(50.0, 0.5, 400.0, 0.45, 1.4)


@given(
    layers=st.integers(1, 3), heads=st.integers(1, 3), size=st.integers(1, 5),
    vocab=st.integers(1, 30), hidden=st.none() | st.integers(1, 20),
)  # fmt: skip
@settings(max_examples=20)
def test_parameters_are_those_of_a_gpt(layers, heads, size, vocab, hidden):
    """All but norms, biases and tables that are only looked up in."""
    width = heads * size
    config = GPTConfig(
        vocab, 4, layers, heads, width, bias=False, n_hidden=hidden, tied=False
    )
    norms = (2 * layers + 1) * width
    expected = config.num_parameters(embeddings=False) - norms
    assert parameters(layers, width, vocab, hidden) == expected
    model = GPT(config)
    tables = sum(p.numel() for n, p in model.named_parameters() if n[:2] == "wt")
    tables += 4 * width
    total = sum(p.numel() for p in model.parameters())
    assert expected == total - norms - tables


def test_budgets():
    assert training_flops(10, 7) == 420
    assert tokens_for(420, 10) == 7


@given(
    factor=st.floats(1e-6, 1e6),
    exponent=st.floats(-3, 3),
    logs=st.lists(st.floats(-10, 25), min_size=2, max_size=9, unique=True),
)
def test_a_power_law_is_found_again(factor, exponent, logs):
    if min(b - a for a, b in pairwise(sorted(logs))) < 1e-3:
        return
    x = np.exp(logs)
    law = fit_power_law(x, factor * x**exponent)
    assert law.exponent == pytest.approx(exponent, abs=1e-7)
    np.testing.assert_allclose(law(x), factor * x**exponent, rtol=1e-6)


def test_power_laws_need_numbers_above_zero():
    with pytest.raises(ValueError, match=r"y has -1.0; expected finite numbers"):
        fit_power_law([1, 2], [3, -1])
    with pytest.raises(ValueError, match="2 different values of x at least"):
        fit_power_law([2, 2], [3, 1])
    with pytest.raises(ValueError, match=r"x \(2,\), y \(3,\)"):
        fit_power_law([1, 2], [3, 1, 2])
    with pytest.raises(ValueError, match="y has nan"):
        fit_power_law([1, 2], [3, math.nan])
    with pytest.raises(ValueError, match="x has inf"):
        fit_power_law([1, math.inf], [3, 2])


def test_intervals_hold_the_truth_as_often_as_they_say():
    """90 of 100 at the level 0.9, of 40 points; few samples make it a bit less."""
    random = np.random.default_rng(0)
    inside = 0
    for trial in range(100):
        x = 10 ** random.uniform(0, 3, 40)
        y = x**-0.5 * np.exp(random.normal(0, 0.3, 40))
        low, high = exponent_interval(x, y, resamples(40, 100, trial), 0.9)
        inside += low <= -0.5 <= high
    assert 78 <= inside <= 98


@given(best=st.floats(3, 25), bend=st.floats(0.01, 1), wide=st.floats(0.5, 3))
def test_a_parabola_has_its_lowest_point(best, bend, wide):
    u = best + np.linspace(-wide, 2 * wide, 5)
    n, loss = isoflop_minimum(np.exp(u), 2 + bend * (u - best) ** 2)
    assert math.log(n) == pytest.approx(best, abs=1e-6)
    assert loss == pytest.approx(2, abs=1e-6)


def test_what_has_no_minimum():
    with pytest.raises(ValueError, match="no lowest point"):
        isoflop_minimum([10, 100, 1000], [1, 2, 1])
    with pytest.raises(ValueError, match="3 different values of N"):
        isoflop_minimum([10, 100, 10], [1, 2, 1])


def test_isoflops_agree_with_the_law():
    """Between sizes that are near the best one the law is nearly a parabola."""
    rows = []
    for budget in (1e10, 1e12, 1e14):
        n, _ = LAW.optimal(budget)
        sizes = n * np.exp(np.linspace(-0.3, 0.3, 5))
        rows += [(budget, s, float(LAW(s, budget / 6 / s))) for s in sizes]
    rows += [(1e16, s, 2.0 + s / 1e9) for s in (1e5, 2e5, 3e5)]  # lowest at its end
    n, d = isoflop_laws(*np.array(rows).T)
    share = LAW.beta / (LAW.alpha + LAW.beta)
    assert n.exponent == pytest.approx(share, abs=1e-3)
    assert d.exponent == pytest.approx(1 - share, abs=1e-3)


def test_the_best_of_a_budget_is_the_best():
    for budget in (1e9, 1e15):
        n, d = LAW.optimal(budget)
        assert training_flops(n, d) == pytest.approx(budget)
        for factor in (0.9, 1.1):
            assert LAW(n * factor, d / factor) > LAW(n, d)


def made(noise: float = 0.0) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(1)
    n, d = 10 ** random.uniform(3, 5, 30), 10 ** random.uniform(5, 7, 30)
    return n, d, LAW(n, d) * np.exp(noise * random.normal(size=30))


def test_the_law_of_rows_is_found():
    n, d, loss = made()
    assert fit_law(n, d, loss) == pytest.approx(LAW, rel=1e-3)


def test_a_few_runs_that_went_wrong_do_not_matter():
    n, d, loss = made(1e-3)
    loss[[3, 20]] *= 2
    law = fit_law(n, d, loss)
    np.testing.assert_allclose(law(n, d), LAW(n, d), rtol=5e-3)
    assert law.E == pytest.approx(LAW.E, abs=0.03)


def test_starts_that_lead_nowhere():
    n, d, loss = made()
    with pytest.raises(ValueError, match="no start led to a finite objective"):
        fit_law(n, d, loss, [[math.nan] * 5])
    with pytest.raises(ValueError, match="2 different values of N"):
        fit_law(n * 0 + 5, d, loss)
    with pytest.raises(ValueError, match=r"2 different values of N at least$"):
        fit_law(n, d, loss[1:])
    with pytest.raises(ValueError, match="2 different values of D at least, and not 1"):
        fit_law(n, d * 0 + 5, loss)


def test_fewer_runs_than_unknowns_are_no_law():
    n, d, loss = (a[:5] for a in made())
    assert np.isfinite(fit_law(n, d, loss, [(3.0, 0.4, 5.0, 0.4, 0.0)])).all()
    some = [0, 1, 2, 3, 3, 3]
    for rows, count in ((some, 4), (some[:2], 2)):
        with pytest.raises(ValueError, match=f"{count} different runs .* 5 unknowns"):
            fit_law(n[rows], d[rows], loss[rows])


def test_the_objective_is_zero_at_the_truth_and_steep_elsewhere():
    logs = [minitorch.tensor(np.log(a), dtype=minitorch.float64) for a in made()]
    truth = [math.log(LAW.A), LAW.alpha, math.log(LAW.B), LAW.beta, math.log(LAW.E)]
    theta = minitorch.tensor(truth, dtype=minitorch.float64)
    assert objective(theta, *logs).item() == pytest.approx(0, abs=1e-25)
    off = objective(theta + 0.1, *logs).item()  # all logs are 0.1 higher, about
    assert 0 < off < 30 * 1e-3 * 2


# ------------------------------------------------------------------------------- runs


def rows_of(path: Path, *options: str) -> str:
    command = [sys.executable, "-m", "minitorch.bench.scaling", str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_runs_are_made_once(tmp_path):
    """Of two widths one takes too few steps; what is there is not made again."""
    path = tmp_path / "runs.csv"
    options = ("--budgets", "2e8", "--widths", "4,64", "--vocab", "8", "--batch", "4")
    first = rows_of(path, *options)
    assert "0 runs in" in first and "N 416 D 80,128" in first
    (run,) = read_runs(path)
    assert run.width == 4 and run.N == parameters(2, 4, 8) == 416
    assert run.steps * 4 * 32 == run.D and run.device == "cpu"
    entropy = UrnText(8).entropy
    assert entropy < run.loss < math.log(8)
    assert "1 runs in" in rows_of(path, *options)
    assert read_runs(path) == [run]


def test_a_run_that_ends_too_late_leaves_no_row(tmp_path):
    path = tmp_path / "runs.csv"
    options = ("--budgets", "2e9", "--widths", "4", "--vocab", "8", "--seconds", "0")
    assert "left out" in rows_of(path, *options)
    assert read_runs(path) == []


def test_a_file_with_other_columns_is_refused(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("N,D\n1,2\n")
    with pytest.raises(ValueError, match="has the columns N, D; expected budget, "):
        read_runs(path)


ROW = "1e9,4,416,640,5,4,0.02,0,8,1.5,2.5,cpu"


@pytest.mark.parametrize("half", [ROW[:20], ROW[:-4], ROW + ROW, "x" + ROW])
def test_a_row_that_is_not_whole_is_named(half, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([",".join(Run._fields), ROW, half]))
    with pytest.raises(ValueError, match=r"line 3 of .* is no whole row"):
        read_runs(path)


def test_rows_begin_on_lines_of_their_own(tmp_path):
    """Also where an editor has left out the end of the last line."""
    path = tmp_path / "runs.csv"
    path.write_text(",".join(Run._fields) + "\n" + ROW)
    rows_of(path, "--budgets", "1e8", "--widths", "4,4", "--vocab", "8", "--batch", "4")
    first, second = read_runs(path)
    assert first.D == 640 and second.budget == 1e8


@pytest.mark.parametrize("text", ["", "8,", "1e3x", "0", "-4", "4.5", "inf", "nan"])
def test_what_is_no_width(text):
    with pytest.raises(typer.BadParameter, match="expected numbers above 0 between"):
        bench._numbers("--widths", text, int)


def test_a_loss_that_is_not_finite_leaves_no_row(monkeypatch):
    monkeypatch.setattr(bench, "measured", lambda model, text: math.nan)
    (run,) = bench.plan([1e8], [4], 4, 8)
    with pytest.raises(bench.LeftOut, match="the loss became nan"):
        bench.train(run._replace(steps=2), bench.Texts(UrnText(8), 4, "cpu"))


def test_all_runs_read_the_same_text_and_none_of_it_twice():
    texts = bench.Texts(UrnText(8), 2, "cpu")
    x, y = texts(0)
    assert x.shape == y.shape == (1, 2, bench.WINDOW)
    assert (x[:, :, 1:].numpy() == y[:, :, :-1].numpy()).all()
    pieces = [texts(i)[0].numpy().tobytes() for i in (0, 1, 5, bench.PART)]
    assert len(set(pieces)) == 4
    again = bench.Texts(UrnText(8), 2, "cpu")
    assert again(bench.PART)[0].numpy().tobytes() == pieces[-1]


def test_the_program_of_the_book(capsys, tmp_path):
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import scaling_laws
    finally:
        sys.path.pop(0)
    with pytest.raises(SystemExit, match="no rows, or one budget alone"):
        scaling_laws.main(tmp_path / "runs.csv", 1000)
    law = scaling_laws.main(None, 1000)
    said = capsys.readouterr().out
    assert "| 1e+11 | 7,168 | 8,345 | 1.7569 | 0.2663 |" in said
    assert law.E == pytest.approx(UrnText(64).entropy, abs=0.02)
