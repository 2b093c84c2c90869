"""The pages Digits and GPT: what is shown of a model is what it computes."""

from __future__ import annotations

import base64
import time
from typing import Any

import numpy as np
import pytest

import minitorch
from minitorch.autodiff import no_grad
from minitorch.lab.digits import DigitsPage, centred, load_model, seen
from minitorch.lab.text import TextPage, attention_of
from minitorch.lab.training import Trainer
from minitorch.models import GPT, GPTConfig
from minitorch.train import ConvNet, TrainConfig, train
from minitorch.train.gpt import GPTTrainConfig, train_gpt
from minitorch.train.tasks import normalize_digits


def small_gpt(**options: Any) -> GPT:
    minitorch.manual_seed(0)
    sizes = {"n_layer": 1, "n_head": 4, "n_embd": 16, "dropout": 0.0}
    return GPT(GPTConfig(20, 16, **sizes, **options))


@pytest.mark.parametrize(
    "options", [{}, {"positions": "rotary", "n_kv_head": 2, "norm": "rms"}]
)
@no_grad()
def test_attention_is_what_the_layer_computes_with(options):
    model = small_gpt(**options)
    outs = []
    model.h[0].attn.register_forward_hook(lambda m, args, out: outs.append((args, out)))
    maps, probabilities = attention_of(model, [3, 1, 4, 1, 5])
    assert maps.shape == (1, 4, 5, 5)
    np.testing.assert_allclose(maps.sum(-1), 1, rtol=1e-5)
    assert (np.triu(maps[0], 1) == 0).all()
    ((args, out),) = outs
    attn = model.h[0].attn
    kv = attn.kv_heads
    heads = attn.c_attn(args[0]).unflatten(-1, (4 + 2 * kv, 4)).transpose(1, 2)
    v = heads[:, 4 + kv :].repeat_interleave(4 // kv, 1).numpy()[0]
    mixed = minitorch.tensor((maps[0] @ v).transpose(1, 0, 2).reshape(1, 5, 16))
    assert minitorch.allclose(attn.c_proj(mixed), out, atol=1e-5)
    scores = model(minitorch.tensor([[3, 1, 4, 1, 5]]))[0, -1].numpy()
    expected = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(probabilities, expected, rtol=1e-4)


@no_grad()
def test_planes_are_those_of_the_convolutions():
    minitorch.manual_seed(0)
    model = ConvNet()
    image = np.random.default_rng(0).integers(0, 256, (28, 28)).astype(np.uint8)
    found = seen(model, image)
    x = minitorch.tensor(normalize_digits(image[None]))
    inner = model.conv1(x).relu()[0].numpy()
    first, second = found["planes"]
    assert first["shape"] == [16, 24, 24] and second["shape"] == [32, 10, 10]
    shades = np.frombuffer(base64.b64decode(first["data"]), np.int8)
    np.testing.assert_allclose(
        shades.reshape(inner.shape) * inner.max() / 127, inner, atol=inner.max() / 126
    )
    scores = model.eval()(x)
    assert found["probabilities"] == pytest.approx(scores.softmax(1)[0].tolist())
    assert seen(model, image) == found  # the hooks are gone, and nothing has changed


def test_a_digit_is_moved_to_the_middle():
    image = np.zeros((28, 28), np.uint8)
    image[2:6, 20:24] = 255
    assert centred(image)[12:16, 12:16].min() == 255
    with pytest.raises(ValueError, match="nothing is drawn"):
        centred(np.zeros((28, 28), np.uint8))


def test_models_of_runs_are_shown(tmp_path, monkeypatch):
    monkeypatch.delenv("MINITORCH_DATA", raising=False)
    run = TrainConfig(
        recipe="mnist", dataset="drawn", limit=64, epochs=1, out=tmp_path / "digits",
        plots=False, quiet=True,
    )  # fmt: skip
    trained = train(run).model
    page = DigitsPage(tmp_path / "digits")
    question = {"pixels": page.example({"number": 3})["pixels"]}
    image = np.frombuffer(base64.b64decode(question["pixels"]), np.uint8)
    expected = seen(trained, centred(image.reshape(28, 28)))
    assert page.guess(question)["probabilities"] == expected["probabilities"]
    assert next(page.listen()) == {"ready": True, "training": False, "line": ""}
    result = train_gpt(
        GPTTrainConfig(
            dataset="alice", layers=1, heads=2, width=8, block_size=8, batch_size=1,
            steps=1, eval_batches=1, sample=0, out=tmp_path / "gpt", quiet=True,
        )
    )  # fmt: skip
    answer = TextPage(tmp_path / "gpt").look({"text": "Alice was here"})
    assert "".join(answer["tokens"]) == "was here" and answer["shape"] == [1, 2, 8, 8]
    assert len(answer["next"]) == 10 and answer["next"][0][1] >= answer["next"][9][1]
    with pytest.raises(ValueError, match="minitorch train gpt"):
        load_model(tmp_path / "gpt")
    with pytest.raises(ValueError, match="text is empty"):
        TextPage(tmp_path / "gpt").look({"text": ""})
    assert result.tokenizer.vocab_size > 10


def test_a_recipe_tells_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("minitorch.lab.digits.EXAMPLES", 64)
    page = DigitsPage()
    page.examples = type("Drawn", (), {"source": "drawn"})()
    monkeypatch.setattr(
        "minitorch.lab.digits.train",
        lambda config, reporter: train(
            TrainConfig(**{**vars(config), "limit": 64}), reporter=reporter
        ),
    )
    news = page.listen()
    assert next(news) == {"ready": False, "training": False, "line": ""}
    with pytest.raises(ValueError, match="press Train"):
        page.guess({"pixels": ""})
    page.train({})
    lines, end = [], time.monotonic() + 120
    for state in news:
        lines += [state["line"]] if state else []
        if state and state["ready"] and not state["training"]:
            break
        assert time.monotonic() < end
    assert lines[0] == "loading the data" and "of 64 examples: loss" in " ".join(lines)
    assert "the library drew" in lines[-1]


def test_a_recipe_that_fails_says_why():
    def fails(folder: Any, reporter: Any) -> None:
        raise RuntimeError("the disk is full")

    trainer = Trainer(fails)
    news = trainer.listen()
    next(news)
    trainer.train({})
    while True:
        state = next(news)
        if state and not state["training"] and state["line"]:
            break
    assert state["line"] == "the training failed: the disk is full"
    assert not state["ready"]


@pytest.mark.parametrize(
    "question, body, why",
    [
        ("digits/guess", {"pixels": "AAAA"}, "press Train"),
        ("digits/example", {"number": -1}, "whole number"),
        ("text/look", {"text": "Alice"}, "press Train"),
    ],
)
def test_what_makes_no_sense_is_said(ask, question, body, why):
    status, content = ask(question, body)
    assert status == 400 and why in content["error"]


@pytest.mark.parametrize(
    "pixels, why", [("AAAA", "got 3 bytes"), ("-", "base64"), (None, "text")]
)
def test_pixels_are_784_bytes(pixels, why):
    page = DigitsPage()
    page.model = ConvNet()
    with pytest.raises(ValueError, match=why):
        page.guess({"pixels": pixels})


INK = """() => document.getElementById("pad").getContext("2d")
  .getImageData(0, 0, 280, 280).data.reduce((a, b) => a + b)"""


@pytest.mark.extras
def test_the_pages_in_a_browser(lab, visit, monkeypatch):
    minitorch.manual_seed(0)
    digits, text = lab.pages["digits"], lab.pages["text"]
    monkeypatch.setattr(digits, "model", ConvNet())
    words = minitorch.data.CharTokenizer.train("abcdefghij klmnopqrs")
    monkeypatch.setattr(text, "model", (small_gpt(), words))

    screen = visit("digits")
    page = screen.page
    screen.until(lambda: "loaded" in screen.text("#line"))
    box = page.locator("#pad").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 200, steps=4)
    page.mouse.up()
    screen.until(lambda: page.locator(".planes canvas").count() == 48)
    assert page.locator(".bar").count() == 10
    screen.until(lambda: "takes it for a" in page.text_content("#status"))
    assert "planes of 24 x 24; planes" in screen.text("#planes")
    before = page.evaluate(INK)
    page.locator("#pad").focus()
    for key in ("ArrowLeft", "Space", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert "pen down at column 13, row 16" in page.text_content("#status")
    page.keyboard.press("Space")
    screen.until(lambda: "takes it for a" in page.text_content("#status"))
    assert page.evaluate(INK) > before and not screen.nameless()

    screen = visit("text", color_scheme="dark")
    page = screen.page
    page.get_by_label("Text").fill("abc d")
    screen.until(lambda: page.locator("#map rect").count() == 15)
    assert "token 4" in screen.text("#told")
    page.get_by_label("token", exact=True).press("ArrowLeft")
    assert "token 3" in screen.text("#told") and not screen.nameless()
    page.get_by_role("combobox", name="head").select_option("3")
    page.locator(".bar").first.click()
    screen.until(lambda: len(page.get_by_label("Text").input_value()) == 6)
