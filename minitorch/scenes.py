"""Scenes, which are plain data, become SVG.

With this file one can draw a scene (`render`): rows of parts, as lists and dicts that
JSON can hold. A part has a "kind", a "caption" above it and "notes" below:

    grid       cells[row][column]: [text, hue], or None where there is none; rows,
               cols: labels; size: of a cell; split: columns with a gap before; frame:
               whether to draw one
    layers     grids one below the other, and links[k]: [from, to, hue] between the
               cells of grid k and those of grid k + 1
    graph      nodes {name: {at: [x, y], text: [line, ...], hue, round}}; edges [from,
               to, text, hue]; step: [width, height] of a place
    curve      series [{points, hue, text, at, side, dots, open, line, dash}]; x, y:
               [first, last]; xticks, yticks: [[place, text], ...]; xlabel, ylabel;
               size; names [[x, y, text, hue], ...]: of points, in a column at the right
    bars       rows [[name, [[size, hue], ...], [[place, hue], ...], texts], ...]: parts
               one behind the other, marks across them, texts at the right; end: of
               the scale, width in pixels; ticks; xlabel
    timeline   lanes [[name, [[start, end, text, hue], ...]], ...]; ticks; unit: of 1;
               height: of a lane; a bar without text may have a fifth number, how
               strong it is: thousands of these take little room
    legend     items [[text, hue, shape], ...]: "bar", "mark", "dot", "open", "line" or
               "dash"

Hues are 0 (grey) to 6, and -1 for a place that is empty. Each picture has a ground of
its own and colours for light and for dark pages, so it can be read where a page's theme
is not the system's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

Part = dict[str, Any]
Scene = list[list[Part]]

# Ground, border, text, faint text; then fill and line of hues -1, 0, 1, 2, ...
LIGHT = ("#fff", "#d1d9e0", "#1f2328", "#59636e"), (
    ("none", "#c4ccd4"), ("#f0f2f5", "#818b98"), ("#d3e5ff", "#0969da"),
    ("#ffe3c4", "#bc4c00"), ("#cdf2d6", "#1a7f37"), ("#eddcff", "#8250df"),
    ("#c5eef0", "#1b7c83"), ("#ffd6e7", "#bf3989"),
)  # fmt: skip
DARK = ("#0d1117", "#3d444d", "#e6edf3", "#9aa4ae"), (
    ("none", "#49515b"), ("#21262d", "#7d8793"), ("#12335f", "#58a6ff"),
    ("#53290a", "#f0883e"), ("#10401f", "#3fb950"), ("#3b2168", "#bc8cff"),
    ("#0b3d40", "#39c5cf"), ("#5a1e40", "#f778ba"),
)  # fmt: skip
USUAL = 6  # pairs that each file has; the others stand where they are used
STYLE = (
    'text{font:13px system-ui,"Segoe UI",Helvetica,Arial,sans-serif;text-anchor:middle}'
    ".m{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
    ".l{text-anchor:start}.r{text-anchor:end}.s{font-size:11px}.h{font-weight:600}"
    "path{stroke-width:1.2}.w{fill:none;stroke-width:1.6}"
    ".kn,.d{stroke-dasharray:4 3}"
    ".b{paint-order:stroke;stroke-width:4px;stroke-linejoin:round}"
)
MARGIN, GAP, LINE, CELL = 16, 30, 18, (34, 28)


def part(kind: str, caption: str = "", **more: Any) -> Part:
    """A part of a scene; the names are those of this file's docstring."""
    return {"kind": kind, "caption": caption, **more}


def note(*lines: str) -> list[Part]:
    """A row of a scene with nothing but text."""
    return [part("text", notes=lines)]


class Box(NamedTuple):
    """Something drawn, from (0, 0) to (width, height)."""

    width: float
    height: float
    body: str


def render(scene: Scene, text: str) -> str:
    """The scene as the text of an SVG file; `text` is for those who do not see it."""
    inner = _below([_beside([_part(one) for one in row]) for row in scene], 22)
    width, height = (math.ceil(n) + 2 * MARGIN for n in inner[:2])
    body = _moved(inner.body, MARGIN, MARGIN)
    used = USUAL
    while used < len(LIGHT[1]) and re.search(f'[" ][kca]({used - 1}|{used})"', body):
        used += 1
    light, dark = (_colours(ground, hues[:used]) for ground, hues in (LIGHT, DARK))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="t">\n'
        f'<title id="t">{escape(text)}</title>\n'
        f"<style>{STYLE}{light}@media(prefers-color-scheme:dark){{{dark}}}</style>\n"
        f'<rect class="g" x=".5" y=".5" width="{width - 1}" height="{height - 1}" '
        f'rx="8"/>\n{body}</svg>\n'
    )


def check_svg(path: Path) -> None:
    """
    Raises:
        ValueError: the name does not end as an SVG file's.
    """
    if path.suffix != ".svg":
        raise ValueError(
            f"the picture is {str(path)!r}; pictures of scenes are SVG files, call it "
            f"{str(path.with_suffix('.svg'))!r}"
        )


def write(scene: Scene, path: Path, text: str) -> None:
    """Draw a scene into a file, which is complete or not there. Errors: `check_svg`."""
    from minitorch.data.files import atomic_write

    check_svg(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(render(scene, text).encode())


def _colours(ground: Sequence[str], hues: Sequence[tuple[str, str]]) -> str:
    ground, border, text, faint = ground
    rules = f".g{{fill:{ground};stroke:{border}}}text{{fill:{text}}}"
    rules += f".f{{fill:{faint}}}.b{{stroke:{ground}}}"
    for i, (fill, line) in enumerate(hues, start=-1):
        rules += f".{_hue('k', i)}{{fill:{fill};stroke:{line}}}"
        rules += f".{_hue('c', i)}{{stroke:{line}}}.{_hue('a', i)}{{fill:{line}}}"
    return rules


# ------------------------------------------------------------------------- small things


def _n(x: float) -> str:
    text = f"{x:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _hue(kind: str, hue: int) -> str:
    """The name of a class of the style: k fills and draws, c draws, a fills."""
    return f"{kind}{hue if hue >= 0 else 'n'}"


def _moved(body: str, x: float, y: float) -> str:
    return f'<g transform="translate({_n(x)} {_n(y)})">\n{body}</g>\n'


def _width(text: str, size: float) -> float:
    """About how wide a text is, in the widest of usual fonts."""
    return 0.6 * size * len(text)


def _text(x: float, y: float, text: Any, kind: str) -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}" class="{kind}">{escape(str(text))}</text>\n'


def _path(d: str, kind: str) -> str:
    return f'<path class="{kind}" d="{d}"/>\n'


def _rect(x: float, y: float, w: float, h: float) -> str:
    return f"M{_n(x)} {_n(y)}h{_n(w)}v{_n(h)}h{_n(-w)}z"


def _line(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)


def _arrow(x0: float, y0: float, x1: float, y1: float, hue: int) -> str:
    """A line with a head at its end."""
    angle = math.atan2(y1 - y0, x1 - x0)

    def back(length: float, turn: float) -> tuple[float, float]:
        return x1 - length * math.cos(angle + turn), y1 - length * math.sin(
            angle + turn
        )

    head = _line([(x1, y1), back(7, 0.4), back(7, -0.4)]) + "z"
    return _path(_line([(x0, y0), back(4, 0)]), f"w c{hue}") + _path(head, f"a{hue}")


def _beside(boxes: Sequence[Box]) -> Box:
    x, body = 0.0, ""
    for box in boxes:
        body += _moved(box.body, x, 0)
        x += box.width + GAP
    return Box(x - GAP, max(box.height for box in boxes), body)


def _below(boxes: Sequence[Box], gap: float) -> Box:
    y, body = 0.0, ""
    for box in boxes:
        body += _moved(box.body, 0, y)
        y += box.height + gap
    return Box(max(box.width for box in boxes), y - gap, body)


def _part(one: Part) -> Box:
    """A part with its caption and its notes."""
    boxes = [KINDS[one["kind"]](one)] if one["kind"] in KINDS else []
    if caption := one["caption"]:
        box = Box(_width(caption, 13.5), LINE + 2, _text(0, 13, caption, "l h"))
        boxes.insert(0, box)
    if notes := one.get("notes"):
        body = "".join(_text(0, 12 + LINE * i, s, "l f") for i, s in enumerate(notes))
        width = max(_width(line, 12.5) for line in notes)
        boxes.append(Box(width, LINE * len(notes), body))
    return _below(boxes, 6)


# ------------------------------------------------------------------------------- kinds


def _columns(one: Part) -> list[float]:
    """Where each column of a grid begins, and the last one ends."""
    labels = [_width(s, 12) + 8 for s in one.get("rows", ()) if s]
    at = [max([float(one.get("left", 0)), *labels])]
    for j in range(1, max(map(len, one["cells"])) + 1):
        gap = 10 if j in one.get("split", ()) else 0
        at.append(at[-1] + one.get("size", CELL)[0] + gap)
    return at


def _grid(one: Part) -> Box:
    width, height = one.get("size", CELL)
    at, top = _columns(one), 18 if one.get("cols") else 0
    end = top + height * len(one["cells"])
    hues: dict[int, str] = {}
    if one.get("frame"):
        hues[-1] = _rect(at[0], top, at[-1] - at[0], end - top)
    texts = ""
    for i, row in enumerate(one["cells"]):
        for j, (text, hue) in ((j, cell) for j, cell in enumerate(row) if cell):
            x, y = at[j], top + i * height
            hues[hue] = hues.get(hue, "") + _rect(x, y, width, height)
            small = " s" if _width(text, 13) > width - 4 else ""
            if text:
                texts += _text(x + width / 2, y + height / 2 + 4.5, text, "m" + small)
    for j, label in enumerate(one.get("cols", ())):
        texts += _text(at[j] + width / 2, 12, label, "m s f")
    for i, label in enumerate(one.get("rows", ())):
        texts += _text(at[0] - 8, top + (i + 0.5) * height + 4, label, "r f s")
    body = "".join(_path(d, _hue("k", hue)) for hue, d in sorted(hues.items()))
    return Box(at[-1] + 1, end + 1, body + texts)


def _layers(one: Part) -> Box:
    gap, body, y = one.get("gap", 44), "", 0.0
    left = max(_columns(grid)[0] for grid in one["layers"])
    grids = [{**grid, "left": left} for grid in one["layers"]]
    boxes = [_grid(grid) for grid in grids]
    for k, box in enumerate(boxes):
        if k + 1 < len(boxes):
            start, end = _centres(grids[k]), _centres(grids[k + 1])
            for i, j, hue in one["links"][k]:
                body += _arrow(
                    start[i], y + box.height, end[j], y + box.height + gap - 1, hue
                )
        body += _moved(box.body, 0, y)
        y += box.height + gap
    return Box(max(box.width for box in boxes), y - gap, body)


def _centres(grid: Part) -> list[float]:
    return [x + grid.get("size", CELL)[0] / 2 for x in _columns(grid)[:-1]]


def _graph(one: Part) -> Box:
    (dx, dy), places, boxes = one["step"], {}, ""
    h = 12 + 16 * max(len(node["text"]) for node in one["nodes"].values())
    for name, node in one["nodes"].items():
        w = max(_width(s, 13) + 14 for s in node["text"])
        x, y = node["at"][0] * dx + dx / 2, node["at"][1] * dy + h / 2 + 1
        places[name] = x, y, w / 2, h / 2
        boxes += (
            f'<rect class="k{node["hue"]}" x="{_n(x - w / 2)}" y="{_n(y - h / 2)}" '
            f'width="{_n(w)}" height="{h}" rx="{14 if node.get("round") else 4}"/>\n'
        )
        first = y + 4.5 - 8 * (len(node["text"]) - 1)
        for i, line in enumerate(node["text"]):
            boxes += _text(x, first + 16 * i, line, "m s" if i else "m")
    edges = "".join(_edge(places, *edge) for edge in one["edges"])
    width = max(x + w for x, _, w, _ in places.values())
    height = max(y + h for _, y, _, h in places.values())
    return Box(width + 2, height + 2, edges + boxes)


def _edge(places: Any, start: str, end: str, text: str, hue: int) -> str:
    """An arrow from the border of one box to that of another."""
    (x0, y0, w0, h0), (x1, y1, w1, h1) = places[start], places[end]
    dx, dy = x1 - x0, y1 - y0
    out = min(w0 / abs(dx) if dx else 9, h0 / abs(dy) if dy else 9)
    into = 1 - min((w1 + 2) / abs(dx) if dx else 9, (h1 + 2) / abs(dy) if dy else 9)
    middle = (out + into) / 2
    body = _arrow(x0 + dx * out, y0 + dy * out, x0 + dx * into, y0 + dy * into, hue)
    return body + _text(x0 + dx * middle, y0 + dy * middle + 4, text, "m s b")


def _curve(one: Part) -> Box:
    width, height = one["size"]
    (x0, x1), (y0, y1) = one["x"], one["y"]
    left = 12 + max((_width(s, 11) for _, s in one.get("yticks", ())), default=0)
    top = 20 if one.get("ylabel") else 4
    end = below = top + height + 16

    def place(x: float, y: float) -> tuple[float, float]:
        return left + (x - x0) / (x1 - x0) * width, top + (y1 - y) / (y1 - y0) * height

    body, right = _path(f"M{_n(left)} {top}v{height}h{width}", "w c0"), left + width + 8
    for x, text in one.get("xticks", ()):
        at = place(x, y0)[0]
        body += _text(at, end - 1, text, "s f")
        right = max(right, at + _width(text, 11) / 2)
    for y, text in one.get("yticks", ()):
        body += _text(left - 6, place(x0, y)[1] + 4, text, "s f r")
    for series in one["series"]:
        body += _series(series, place)
    if names := one.get("names"):
        body += _names(names, place, left + width)
        right += 20 + max(_width(name[2], 11) for name in names)
    if one.get("ylabel"):
        body += _text(0, 12, one["ylabel"], "s f l")
    if one.get("xlabel"):
        below = end + 16
        body += _text(left + width, below - 1, one["xlabel"], "s f r")
    return Box(right, below + 4, body)


def _series(one: Part, place: Callable[..., tuple[float, float]]) -> str:
    hue, body = one["hue"], ""
    points = [place(*point) for point in one["points"]]
    if one.get("line", not one.get("dots")):
        body = _path(
            _line(points), _hue("w c", hue) + (" d" if one.get("dash") else "")
        )
    for x, y in points if one.get("dots") else ():
        body += _dot(x, y, hue, one.get("open"))
    if one.get("text"):
        kind = _hue(f"{one.get('side', '')} s b a".strip(), hue)
        body += _text(*place(*one["at"]), one["text"], kind)
    return body


def _dot(x: float, y: float, hue: int, hollow: Any = False) -> str:
    kind = _hue("w c" if hollow else "a", hue)
    return f'<circle class="{kind}" cx="{_n(x)}" cy="{_n(y)}" r="4"/>\n'


def _names(names: Any, place: Callable[..., tuple[float, float]], end: float) -> str:
    """Names right of a curve, below each other, and a line from each to its point."""
    body, last = "", -math.inf
    spots = sorted((place(x, y)[::-1], text, hue) for x, y, text, hue in names)
    for (y, x), text, hue in spots:
        last = max(y, last + 15)
        body += _path(_line([(x + 6, y), (end - 4, y), (end + 10, last)]), "kn")
        body += _text(end + 14, last + 4, text, _hue("s l a", hue))
    return body


def _bars(one: Part) -> Box:
    rows, step, width = one["rows"], 26, one["width"]
    left = 10 + max(_width(row[0], 12) for row in rows)
    low, body = step * len(rows), ""
    scale, right = width / one["end"], left + width + 10
    for i, (name, parts, marks, texts) in enumerate(rows):
        x, y = left, step * i
        body += _text(left - 8, y + 16, name, "r f s")
        for size, hue in parts:
            body += _path(_rect(x, y + 3, size * scale, 18), _hue("k", hue))
            x += size * scale
        for at, hue in marks:
            body += _path(_rect(left + at * scale - 1.5, y, 3, 24), f"a{hue}")
        for j, text in enumerate(texts):
            body += _text(right + 48 * (j + 1), y + 16, text, "s r")
    body += _path(f"M{_n(left)} 0v{low}h{width}", "w c0")
    for x, text in one["ticks"]:
        body += _text(left + x * scale, low + 15, text, "s f")
    if label := one.get("xlabel"):
        body += _text(left + width, low + 31, label, "s f r")
    right += 48 * max(len(row[3]) for row in rows)
    return Box(right, low + (34 if label else 18), body)


def _legend(one: Part) -> Box:
    x, body = 0.0, ""
    for text, hue, shape in one["items"]:
        if shape in ("dot", "open"):
            body += _dot(x + 9, 9, hue, shape == "open")
        elif shape == "bar":
            body += _path(_rect(x + 2, 3, 14, 12), _hue("k", hue))
        elif shape == "mark":
            body += _path(_rect(x + 8, 0, 3, 18), f"a{hue}")
        else:
            dash = " d" if shape == "dash" else ""
            body += _path(f"M{_n(x)} 9h18", _hue("w c", hue) + dash)
        body += _text(x + 24, 13, text, "s l")
        x += 24 + _width(text, 11) + 16
    return Box(x, 18, body)


def _bar(x: float, y: float, w: float, height: float, text: str, hue: int) -> str:
    body = _path(_rect(x + 1, y, w - 2, height), _hue("k", hue))
    small = " s" if _width(text, 13) > w - 4 else ""
    if text:
        body += _text(x + w / 2, y + height / 2 + 4.5, text, "m" + small)
    return body


def _timeline(one: Part) -> Box:
    unit, height = one.get("unit", 40), one.get("height", 26)
    left = 10 + max(_width(name, 12) for name, _ in one["lanes"])
    top, body, end = 18 if one.get("ticks") else 0, "", 0.0
    for x, text in one.get("ticks", ()):
        body += _text(left + x * unit, 12, text, "s f")
        end = max(end, left + x * unit + _width(text, 11) / 2)
    many: dict[tuple[int, float], tuple[str, float, int]] = {}
    for i, (name, bars) in enumerate(one["lanes"]):
        y = top + i * (height + 8)
        body += _text(left - 8, y + height / 2 + 4, name, "r f s")
        for start, stop, text, hue, *strong in bars:
            x, w = left + start * unit, (stop - start) * unit
            end = max(end, x + w)
            if strong:
                first, long = round(x + 0.2, 1), round(w - 0.4, 1)
                d, pen, lane = many.get((hue, strong[0]), ("", 0.0, -1))
                to = f"M{_n(first)} {_n(y + height / 2)}"
                to = f"m{_n(first - pen)} 0" if lane == i else to
                many[hue, strong[0]] = f"{d}{to}h{_n(long)}", first + long, i
                continue
            body += _bar(x, y, w, height, text, hue)
    for (hue, strength), (d, *_) in many.items():
        look = f'style="stroke-width:{height}" opacity="{strength:.2g}"'
        body += f'<path class="w c{hue}" {look} d="{d}"/>\n'
    return Box(end + 1, top + len(one["lanes"]) * (height + 8) - 7, body)


KINDS: dict[str, Callable[[Part], Box]] = {
    "grid": _grid, "layers": _layers, "graph": _graph, "curve": _curve,
    "timeline": _timeline, "bars": _bars, "legend": _legend,
}  # fmt: skip
