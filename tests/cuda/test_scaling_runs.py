"""Runs for scaling laws on a GPU: a captured step learns what the CPU's step learns."""

from __future__ import annotations

import pytest

from minitorch.bench import scaling
from minitorch.data import UrnText
from minitorch.scaling import Run


def test_a_run_is_that_of_the_cpu(monkeypatch):
    monkeypatch.setattr(scaling, "WINDOW", 4)
    monkeypatch.setattr(scaling, "TESTED", 4)
    monkeypatch.setattr(scaling, "PART", 2)
    text = UrnText(8)
    run = Run(5e5, 8, 1600, 40, 5, 2, 0.05, 0, 8, 0.0, 0.0, "")
    found = [
        scaling.train(run, scaling.Texts(text, 2, device)) for device in ("cpu", "cuda")
    ]
    assert [one.device for one in found] == ["cpu", "cuda"]
    assert found[0].loss == pytest.approx(found[1].loss, abs=1e-4)
