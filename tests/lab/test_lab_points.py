"""The page Points: the worker is the training loop, and does what it is told."""

from __future__ import annotations

import base64
import time

import numpy as np
import pytest

from minitorch.lab.points import Choices, PointsPage, PointsRun, build, draw
from minitorch.lab.server import Channel
from minitorch.train import loop

SMALL = {"points": 64, "layers": 1, "width": 4, "noise": 0.0}


def wait_for(news, true, seconds=60):
    end = time.monotonic() + seconds
    for item in news:
        if item is not None and true(item):
            return item
        assert time.monotonic() < end
    raise AssertionError("the news ended")


@pytest.fixture
def page():
    page = PointsPage()
    yield page
    page.newest.tell(stopped=True)


def test_the_worker_trains_as_the_loop_does(page):
    page.start(SMALL)
    news = page.listen()
    assert next(news)["choices"]["width"] == 4
    assert page.step({"steps": 5})["playing"] is False
    look = wait_for(news, lambda item: item.get("step") == 5)
    choices = Choices.of(SMALL)
    other = PointsRun(choices, Channel())  # never started: its parts are used here
    other._prepare()
    model = other.model
    for _ in range(2):
        for x, y in other.loader:
            loop.train_step(model, other.optimizer, x, y)
        other._end_epoch()
    x, y = next(iter(other.loader))
    loop.train_step(model, other.optimizer, x, y)
    np.testing.assert_array_equal(
        model[0].weight.detach().numpy(), page.newest.model[0].weight.detach().numpy()
    )
    assert look["layers"][0]["shape"] == [4, 2] and look["epoch"] == 2.5
    assert look["layers"][0]["grad"]["rms"] > 0
    assert len(base64.b64decode(look["grid"])) == 48 * 48
    assert look["test"]["accuracy"] == other.test["accuracy"]


def test_a_run_that_was_replaced_is_silent():
    """Its last look may be done when the next run has shown itself."""
    run = PointsRun(Choices.of(SMALL), Channel())
    told = []
    run.channel.publish = told.append
    run._prepare()
    assert [look["step"] for look in told] == [0]
    run.tell(stopped=True)
    run._look()
    run.reporter.warn("too late")
    assert len(told) == 1


def test_it_plays_pauses_and_begins_again(page):
    page.start({**SMALL, "speed": 1000})
    assert page.questions["play"]({}) == {"playing": True, "step": 0}
    time.sleep(0.05)
    assert page.newest.steps == 0  # nobody looks
    news = page.listen()
    wait_for(news, lambda item: item.get("step", 0) > 3)
    assert page.change({"lr": 0.5})["choices"]["lr"] == 0.5
    wait_for(news, lambda item: page.newest.optimizer.param_groups[0]["lr"] == 0.5)
    page.questions["pause"]({})
    wait_for(news, lambda item: item.get("playing") is False)
    steps = page.newest.steps
    time.sleep(0.05)
    assert page.newest.steps <= steps + 1
    before = page.newest
    answer = page.start({**SMALL, "dataset": "xor"})
    assert answer["playing"] is False and answer["choices"]["dataset"] == "xor"
    wait_for(news, lambda item: item.get("step") == 0)
    before.join(60)
    assert not before.is_alive()
    news.close()
    assert page.channel.listeners == []


def test_a_loss_that_is_not_finite_is_told(page):
    page.start(SMALL)
    news = page.listen()
    page.newest.change(lr=1e30, speed=1000)
    page.step({"steps": 10_000})
    found = wait_for(news, lambda item: item["kind"] == "error")
    assert "smaller learning rate" in found["error"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"points": 10_001}, {"points": 2.5}, {"points": True}, {"noise": -1},
        {"lr": "0.1"}, {"lr": float("nan")}, {"layers": 7}, {"width": 0},
        {"dataset": "rings"}, {"activation": None}, {"optimizer": ["sgd"]},
        {"speed": 0},
    ],
)  # fmt: skip
def test_what_cannot_be_chosen_is_said(ask, wrong):
    (name,) = wrong
    for question in ("points/start", "points/change"):
        status, content = ask(question, wrong)
        assert status == 400 and content["error"].startswith(f"{name}: got")


def test_networks_and_points_are_as_chosen():
    model = build(Choices(layers=3, width=5, activation="relu"))
    shapes = [p.shape for p in model.parameters() if p.dim() == 2]
    assert shapes == [(5, 2), (5, 5), (5, 5), (2, 5)]
    assert len(list(build(Choices(layers=0)))) == 1
    clean, _ = draw(Choices(noise=0.0, points=200))
    noisy, test = draw(Choices(noise=0.1, points=200))
    assert 0.05 < np.abs(clean.x - noisy.x).mean() < 0.1
    assert ((noisy.x >= 0) & (noisy.x < 1)).all() and len(test) == 500


@pytest.mark.extras
def test_the_page_in_a_browser(visit):
    """Sliders, buttons, keys, and frames that do not wait for the training."""
    screen = visit("points", color_scheme="dark")
    page = screen.page
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"

    def steps():
        text = screen.text("#steps").replace(",", "")
        return int(text) if text.isdecimal() else -1

    screen.until(lambda: steps() >= 0)
    page.select_option("#dataset", "xor")
    width = page.get_by_label("width")
    width.focus()
    page.keyboard.press("ArrowRight")
    screen.until(lambda: screen.text("#layers figcaption") == "layer 1: 2 to 9")
    assert width.get_attribute("aria-valuetext") == "9"
    screen.until(lambda: steps() == 0)
    page.get_by_role("button", name="Step").click()
    screen.until(lambda: steps() == 1)
    assert float(screen.text("#loss")) > 0 and not screen.nameless()
    page.get_by_role("button", name="Play").press("Space")
    screen.until(lambda: steps() > 30)
    assert page.evaluate("() => intervals.length") > 10
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Play").wait_for()
    screen.until(lambda: "training points right" in page.text_content("#status"))
    page.get_by_role("button", name="Reset").click()
    screen.until(lambda: steps() == 0)
    page.get_by_role("button", name="Light colours").click()
    assert page.evaluate("() => document.documentElement.dataset.theme") == "light"
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
