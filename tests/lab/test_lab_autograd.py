"""The page Autograd: typed text as a graph, and the engine's own backward pass."""

from __future__ import annotations

import json

import pytest

import minitorch
from minitorch.lab.autograd import graph_of
from minitorch.lab.expressions import evaluate

TYPED = "x = 2\nw = [[1, -2], [3, 4]]\ny = tanh(x * w + 1)\nmean(y @ w) + x"


def test_the_graph_and_its_gradients_are_those_of_the_library():
    graph = graph_of(TYPED)
    x = minitorch.tensor(2.0, requires_grad=True)
    w = minitorch.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True)
    y = (x * w + 1).tanh()
    ((y @ w).mean() + x).backward()
    nodes = {node["name"] or node["text"]: node for node in graph["nodes"]}
    grads = {step["id"]: step["grad"] for step in graph["steps"]}
    assert grads[nodes["x"]["id"]] == pytest.approx(x.grad.item())
    assert minitorch.allclose(minitorch.tensor(grads[nodes["w"]["id"]]), w.grad)
    assert nodes["y"]["op"] == "Tanh" and nodes["y"]["shape"] == [2, 2]
    assert nodes["x * w"]["inputs"] == [nodes["x"]["id"], nodes["w"]["id"]]
    assert nodes["x * w"]["value"] == [[2, -4], [6, 8]]


def test_each_step_sends_what_its_inputs_have_when_they_come():
    graph = graph_of("a = 3\nb = a * a\nb * a + b")
    assert [step["id"] for step in graph["steps"]] == list(range(len(graph["nodes"])))
    arrived = dict.fromkeys(range(len(graph["nodes"])), 0.0)
    arrived[0] = 1.0
    for step in graph["steps"]:
        assert step["grad"] == arrived[step["id"]]
        for sent in step["sends"]:
            assert sent["to"] > step["id"]
            arrived[sent["to"]] += sent["grad"]
    assert arrived[len(graph["nodes"]) - 1] == 3 * 9 + 2 * 3


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "nothing was typed"),
        ("x", "there is no 'x'"),
        ("x = 2", None),
        ("1 + 2", "depends on no name"),
        ("__import__('os')", "not known"),
        ("x = 2; x.__class__", "'x.__class__' is not known"),
        ("x = 2; x.numpy()", "not known"),
        ("x = 2; x.raw.storage", "not known"),
        ("x = 2; (lambda: x)()", "cannot be called"),
        ("x = 2; x(1)", "not known"),
        ("[x for x in y]", "ListComp"),
        ("import os", "expected name = value"),
        ("x = 'text'", "expected a number"),
        ("x = f'{1}'", "JoinedStr"),
        ("x = True", "expected a number"),
        ("x = 1j", "expected a number"),
        ("x = [True]", "a list holds numbers"),
        ("x.y = 1", "expected name = value"),
        ("2.0 ** 10 ** 10", "out of range"),
        ("9" * 399, "depends on no name"),
        ("(" * 300, "no Python"),
        ("-" * 399 + "1", "depends on no name"),
        ("a" * 401, "at most 400"),
        ("x = 2; x[0]", "0 dimension"),
        ("x = [1, 2]; y = [1, 2, 3]; x + y", "do not broadcast"),
        ("x = [1, [2]]; x", "nested"),
        ("x = [1]; x.expand(10, 10, 10)", "at most 512"),
        ("x = [1]; x.expand(1000000000)", "at most 512"),
        ("x = 2\n" + "x = x + x\n" * 60, "at most 400"),
        ("x=1;x=" + "x+" * 70 + "x", "at most 60"),
        ("x = 1; 1 / 0 * x", "division"),
        ("x = ", "no Python in line 1"),
        ("\0", "no Python"),
    ],
)
def test_what_may_not_be_typed_is_said(ask, text, why):
    status, content = ask("autograd/graph", {"text": text})
    assert status == (200 if why is None else 400)
    assert why is None or why in content["error"], content


def test_numbers_that_are_none_are_null(ask):
    status, content = ask("autograd/graph", {"text": "x = -1; log(x)"})
    assert status == 200 and content["nodes"][0]["value"] is None
    assert ask("autograd/graph", {})[0] == 400
    assert ask("autograd/graph", json.dumps({"text": [1]}).encode())[0] == 400


def test_names_are_those_that_were_given():
    names = {"t": minitorch.arange(6, device="simple")}
    assert evaluate("u = t.view(2, 3)\nu[1, 0:3:1].T", names).tolist() == [3, 4, 5]
    assert set(names) == {"t", "u"}


@pytest.mark.extras
def test_the_page_in_a_browser(visit):
    screen = visit("autograd", viewport={"width": 420, "height": 800})
    page = screen.page
    screen.until(lambda: "step 0 of 8" in screen.text("#where"))
    assert page.get_by_role("button", name="Back", exact=True).is_disabled()
    assert not screen.nameless()
    page.get_by_role("button", name="Step backward").click()
    assert "sends 1 to Mean, and 1 to x" in screen.text("#said")
    assert page.text_content("#status").startswith("Step 1 of 8: Add")
    page.get_by_role("button", name="To the end").press("Enter")
    assert "in .grad" in screen.text("#said")
    assert page.locator("tr.now td").first.inner_text() in ("x", "w")
    page.get_by_role("button", name="Back", exact=True).click()
    assert "step 7 of 8" in screen.text("#where")
    typed = page.get_by_label("What to compute")
    typed.fill("x = 3\nx * x")
    typed.press("Control+Enter")
    screen.until(lambda: "step 0 of 2" in screen.text("#where"))
    page.get_by_role("button", name="To the end").click()
    assert (
        page.locator("#rows tr").last.inner_text().split() == "x given () 3 6".split()
    )
    typed.fill("x +")
    page.get_by_role("button", name="Record").click()
    screen.until(lambda: "no Python" in page.get_by_role("alert").inner_text())
    wide = page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= 420
