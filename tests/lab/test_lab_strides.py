"""The page Strides: windows onto a storage, and shapes that broadcast or do not."""

from __future__ import annotations

import pytest

import minitorch
from minitorch.lab.strides import broadcast, shape_of, views_of


def test_each_view_says_where_its_elements_lie():
    first, turned, view = views_of("3, 4", "t.transpose(0, 1)[1:, ::2]")["steps"]
    assert first["positions"] == first["storage"] == list(range(12))
    assert (turned["shape"], turned["strides"]) == ([4, 3], [1, 4])
    assert not turned["contiguous"] and turned["shares"]
    assert (view["shape"], view["strides"], view["offset"]) == ([3, 2], [1, 8], 1)
    t = minitorch.arange(12).view(3, 4).transpose(0, 1)[1:, ::2]
    assert [view["storage"][i] for i in view["positions"]] == t.flatten().tolist()


def test_expand_repeats_and_reshape_may_copy():
    wide = views_of("3", "t.expand(2, 3)")["steps"][-1]
    assert wide["strides"] == [0, 1] and wide["positions"] == [0, 1, 2, 0, 1, 2]
    copy = views_of("2, 3", "t.T.reshape(6)")["steps"][-1]
    assert not copy["shares"] and copy["storage"] == [0, 3, 1, 4, 2, 5]
    assert views_of("2, 3", "")["steps"][-1]["text"] == "t"
    assert views_of("0, 3", "t.T")["steps"][-1]["positions"] == []


@pytest.mark.parametrize(
    "one, other, shape",
    [
        ("5, 1, 3", "4, 1", [5, 4, 3]),
        ("", "2", [2]),
        ("(3,)", "3", [3]),
        ("2, 3", "3, 2", None),
        ("0", "1", [0]),
        ("0", "2", None),
    ],
)
def test_two_shapes(one, other, shape):
    found = broadcast(one, other)
    assert found["shape"] == shape
    differ = [row for row in found["rows"] if "differ" in row["rule"]]
    assert bool(differ) == (shape is None) == ("why" in found)
    if shape == [5, 4, 3]:
        assert found["strides"] == [[3, 0, 1], [0, 1, 0]]
        assert found["rows"][0]["rule"].startswith("missing")


def test_shapes_are_read_as_they_are_typed():
    for text in ("3,4", "(3, 4)", " 3 , 4, "):
        assert shape_of(text) == (3, 4)
    assert shape_of("") == shape_of("()") == ()


@pytest.mark.parametrize(
    "shape, text, why",
    [
        ("3, x", "t", "expected a shape"),
        ("-1", "t", "expected a shape"),
        ("1.5", "t", "expected a shape"),
        ("True", "t", "expected a shape"),
        ("100, 100", "t", "at most 512"),
        ("1,1,1,1,1,1,1", "t", "at most 6"),
        ("9" * 50, "t", "at most 512"),
        ("__import__('os')", "t", "expected a shape"),
        ("2, 3", "t.T.view(6)", "view"),
        ("2, 3", "t[5]", "index"),
        ("2, 3", "t.exp()", "not known"),
        ("2, 3", "u", "known names: t"),
        ("2, 3", "2", "expected a view"),
        ("2, 3", "t.storage", "not known"),
        ("2, 3", "t[t]", "whole number"),
        ("2, 3", "t.expand(9, 9, 9, 2, 3)", "at most 512"),
    ],
)
def test_what_makes_no_sense_is_said(ask, shape, text, why):
    status, content = ask("strides/views", {"shape": shape, "text": text})
    assert status == 400 and why in content["error"]


@pytest.mark.extras
def test_the_page_in_a_browser(visit):
    screen = visit("strides", color_scheme="light")
    page = screen.page
    cells = page.locator(".cell[data-at='2']")
    screen.until(lambda: cells.count() == 6)
    assert not screen.nameless()
    cells.first.focus()
    page.keyboard.press("ArrowDown")
    assert screen.text("#formula").endswith("(1, 0): 1 + 1 * 1 + 0 * 8 = 2")
    assert page.locator(".place.now").inner_text() == "2"
    assert page.locator(".cell.now").count() == 3  # in t, and in both of its views
    cells.last.hover()
    assert screen.text("#formula").endswith("= 11")
    screen.until(lambda: "(5, 4, 3)" in screen.text("#verdict"))
    page.get_by_label("other").fill("4, 2")
    page.get_by_label("other").press("Enter")
    screen.until(lambda: "do not broadcast" in screen.text("#verdict"))
    page.get_by_label("a view of it").fill("t.T.view(12)")
    page.get_by_role("button", name="Show").click()
    screen.until(lambda: "view" in page.get_by_role("alert").inner_text())
    assert cells.count() == 6  # what was shown stays
