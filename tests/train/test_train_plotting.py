"""Pictures come out for ordinary runs and for odd ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minitorch import plotting
from minitorch.train import Epoch

PNG = b"\x89PNG\r\n\x1a\n"


def pixels(path: Path) -> np.ndarray:
    from matplotlib.image import imread

    assert path.read_bytes().startswith(PNG)
    image = imread(path)
    assert image.std() > 0.01, "the picture is empty"
    return image


def history(epochs: int, loss: float = 0.5) -> list[Epoch]:
    return [
        Epoch(i + 1, loss / (i + 1), 0.9, loss / (i + 1), 0.8, 0.01, 1.0, 1000.0)
        for i in range(epochs)
    ]


@pytest.mark.parametrize("epochs", [1, 2, 200])
@pytest.mark.parametrize("loss", [0.0, 0.5])
def test_curves(epochs: int, loss: float, tmp_path: Path) -> None:
    plotting.plot_curves(history(epochs, loss), tmp_path / "c.png", "test")
    pixels(tmp_path / "c.png")


@pytest.mark.parametrize("constant", [None, 0.0, 1.0])
def test_boundary(constant: float | None, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((30, 2), dtype=np.float32)
    y = (x[:, 0] > 0.5).astype(np.int64)

    def probability(places: np.ndarray) -> np.ndarray:
        if constant is not None:
            return np.full(len(places), constant, dtype=np.float32)
        return 1 / (1 + np.exp(-20 * (places[:, 0] - 0.5)))

    plotting.plot_boundary(probability, x, y, tmp_path / "b.png", "test")
    pixels(tmp_path / "b.png")


@pytest.mark.parametrize("wrong", [0, 1, 7, 100])
def test_digits(wrong: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 100)
    guesses = labels.copy()
    guesses[:wrong] = (guesses[:wrong] + 1) % 10
    probabilities = np.full((100, 10), 0.01, dtype=np.float32)
    probabilities[np.arange(100), guesses] = 0.91
    images = rng.integers(0, 256, (100, 28, 28)).astype(np.uint8)
    plotting.plot_confusion(labels, guesses, tmp_path / "c.png", "test")
    plotting.plot_mistakes(images, labels, probabilities, tmp_path / "m.png", "test")
    pixels(tmp_path / "c.png")
    pixels(tmp_path / "m.png")


def test_no_window_and_no_state() -> None:
    """pyplot, which keeps figures and may open windows, is not used."""
    import subprocess
    import sys

    code = (
        "import sys, pathlib, minitorch.plotting as p\n"
        "assert 'matplotlib' not in sys.modules\n"
        "p.new_figure(2, 2)\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
