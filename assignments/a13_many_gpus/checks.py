"""What a13 is checked with: NumPy on whole arrays, and PyTorch's gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from assignments.a13_many_gpus import calls
from assignments.checks import AnyCheck, Check, Inputs, sizes_of
from assignments.draw import Draw
from assignments.oracles import as_torch, backward

WHOLE = "the work of one process"
ENGINES = ("threads", "gloo")  # the second is run for a few sizes: it starts processes
MANY = {"threads": 12, "gloo": 0}
PADDED = 8  # numbers of eight bytes, at whose multiples gradients begin in a bucket


def _by_rank(found: Sequence[Inputs]) -> Inputs:
    return {f"rank {rank}": out for rank, out in enumerate(found)}


def _both(
    task: str,
    name: str,
    call: Callable[..., Any],
    inputs: Callable[..., Inputs],
    expected: Callable[..., Inputs],
    sizes: dict[str, tuple[int, int]],
    edges: Sequence[dict[str, int]],
    few: Sequence[dict[str, int]],
    **more: Any,
) -> list[Check]:
    """A check on ranks that are threads, of any sizes, and on processes with Gloo, of
    `few` sizes."""
    made = []
    for engine in ENGINES:

        def given(draw: Draw, engine: str = engine, **sizes: int) -> Inputs:
            return {"engine": engine, **inputs(draw, **sizes)}

        gloo = engine == "gloo"
        limits = {k: (min(e[k] for e in few), max(e[k] for e in few)) for k in sizes}
        made.append(
            Check(
                task,
                f"{name}, {'processes' if gloo else 'threads'}",
                call,
                given,
                lambda engine, **rest: expected(**rest),
                limits if gloo else sizes,
                few if gloo else edges,
                examples=MANY[engine],
                torch=gloo,
                **{"oracle": WHOLE, **more},
            )
        )
    return made


# -------------------------------------------------------------------------- a13.1

REDUCE = {"SUM": np.sum, "MAX": np.max, "MIN": np.min, "PRODUCT": np.prod}


def _cut(size: int, n: int) -> list[slice]:
    """The parts of a ring."""
    ends = [size * i // n for i in range(n + 1)]
    return [slice(*ends[i : i + 2]) for i in range(n)]


def _ring_inputs(what: str) -> Callable[..., Inputs]:
    def inputs(draw: Draw, n: int, size: int, first: int) -> Inputs:
        op = "SUM" if what == "all_gather" else draw.choice(tuple(REDUCE))
        given = [draw.array((size,), "float64") for _ in range(n + first)]
        return {"what": what, "op": op, "given": given, "first": first}

    return inputs


def _ring_expected(
    what: str, op: str, given: Sequence[np.ndarray], first: int
) -> Inputs:
    idle = {"sent": 0, "where": [], "waited": True}
    found = [{"out": x, **idle} for x in given[:first]]
    given = given[first:]
    n, size = len(given), given[0].size
    parts = _cut(size, n)
    whole = REDUCE[op](np.stack(given), 0)
    gathered = np.concatenate([x[part] for x, part in zip(given, parts)])
    left = [size - (part.stop - part.start) for part in parts]  # all parts but one
    for r in range(n):
        one, other = left[r], left[(r + 1) % n]
        out, sent = {
            "all_reduce": (whole, one + other),
            "reduce_scatter": (whole[parts[r]], one),
            "all_gather": (gathered, other),
        }[what]
        to = [f"to rank {first + (r + 1) % n}"] if sent else []
        found.append({"out": out, "sent": sent, "where": to, "waited": True})
    return _by_rank(found)


RING_HINTS = {
    "reduce_scatter": "Part p starts at rank p + 1 and ends at rank p, which is the "
    "last to add its own. What does rank r send in step 1, and what comes from r - 1?",
    "all_gather": "At first rank r has part r alone. What it got in one step it "
    "sends in the next.",
    "all_reduce": "isend and irecv first, and then wait for both. Empty parts need no "
    "message. self.ranks[i] is the number, among all ranks, of rank i of the ring.",
}
RING = [
    check
    for what, hint in RING_HINTS.items()
    for check in _both(
        *("a13.1", f"ring_{what}", calls.ring, _ring_inputs(what), _ring_expected),
        {"n": (1, 4), "size": (0, 6), "first": (0, 2)},
        sizes_of(
            "n size first", (1, 3, 0), (2, 2, 0), (3, 2, 1), (3, 7, 0), (5, 13, 2)
        ),
        sizes_of("n size first", (2, 3, 0), (3, 1000, 1)),
        hint=hint,
    )
]


# -------------------------------------------------------------------------- a13.2


def _divide_inputs(draw: Draw, n: int) -> Inputs:
    sizes = [draw.choice((1, 7, 1, 7, 40, 100_000)) for _ in range(n)]
    dtypes = [draw.choice(("float64", "float64", "float32")) for _ in range(n)]
    order = draw.array((n,), "float64").argsort(kind="stable").tolist()
    limit = draw.choice((64, 64, 1, 320, 2**20, 25 * 2**20))
    return {"sizes": sizes, "dtypes": dtypes, "order": order, "limit": limit}


def _buckets(
    sizes: Sequence[int], dtypes: Sequence[str], order: Sequence[int], limit: int
) -> list[list[int]]:
    """A bucket closes when the next of its dtype would not go in, all others at the
    end, the one that grew last as the last."""
    done: list[list[int]] = []
    growing: list[tuple[str, list[int]]] = []
    width = {"float64": 8, "float32": 4}
    for i in order:
        kind = dtypes[i]
        mine = next((b for k, b in growing if k == kind), [])
        growing = [(k, b) for k, b in growing if k != kind]
        most = limit if done else min(limit, 2**20)
        if mine and width[kind] * sum(sizes[j] for j in [*mine, i]) > most:
            done, mine = [*done, mine], []
        growing.append((kind, [*mine, i]))
    return done + [bucket for _, bucket in growing]


def _training_inputs(draw: Draw, n: int, count: int, unused: int, hook: int) -> Inputs:
    weights = [draw.array((draw.integer(1, 12),), "float64") for _ in range(count)]
    paths = []
    for _ in range(n):
        path = draw.array((count,), "float64").argsort(kind="stable").tolist()
        gone = draw.integer(0, count - 1) if unused else 0
        paths.append(path[gone:])
    return {
        "weights": weights,
        "rows": [draw.array((), "float64", 0.25, 1.0) for _ in range(n)],
        "paths": paths,
        "limit": draw.choice((1, 100, 2**16)),
        "hook": bool(hook),
    }


def _training_expected(
    weights: Sequence[np.ndarray], rows: Sequence[np.ndarray],
    paths: Sequence[Sequence[int]], limit: int, hook: bool,
) -> Inputs:  # fmt: skip
    means = {}
    used = {i for path in paths for i in path}
    for step in range(2):
        found = [_gradients(weights, x * (step + 1), p) for x, p in zip(rows, paths)]
        sums = [np.sum(gs, 0) / len(rows) * (1 + hook) for gs in zip(*found)]
        grads = [g if i in used else None for i, g in enumerate(sums)]
        means[f"gradients {step}"] = grads
    events = [_events(weights, path, paths, limit) for path in paths]
    same = {**means, "gradients are parts of buckets": True}
    return _by_rank([{"events": e, **same} for e in events])


def _gradients(weights: Any, x: np.ndarray, path: Sequence[int]) -> list[np.ndarray]:
    leaves = [as_torch(w, requires_grad=True) for w in weights]
    out = as_torch(x)
    for i in path:
        out = (out * leaves[i]).tanh().sum()
    backward(out, np.ones(()))
    zeros = [np.zeros_like(w) for w in weights]
    return [z if w.grad is None else w.grad.numpy() for z, w in zip(zeros, leaves)]


def _events(
    weights: Sequence[np.ndarray], path: Sequence[int],
    paths: Sequence[Sequence[int]], limit: int,
) -> str:  # fmt: skip
    """Gradients as they come on a rank, the last of the path first, and buckets."""
    count, sizes = len(weights), [w.size for w in weights]
    finds = any(len(p) < count for p in paths)
    buckets = _buckets(sizes, ["float64"] * count, [*range(count)][::-1], limit)
    came = {i for i in range(count) if i not in path}
    events = []
    for i in reversed(path):
        events.append(f"gradient {i}")
        came.add(i)
        while buckets and came.issuperset(buckets[0]):
            padded = [-(-sizes[j] // PADDED) * PADDED for j in buckets.pop(0)]
            events.append(f"sends {sum(padded)}")
    return ", ".join(events + [f"sends {count}"] * finds)  # who has used what


DATA_PARALLEL: list[Check] = [
    Check(
        *("a13.2", "divide", calls.divided, _divide_inputs),
        lambda **given: {"buckets": _buckets(**given)},
        *({"n": (0, 8)}, sizes_of("n", (0,), (1,), (12,), (30,))),
        examples=60,
        oracle="the handout",
        hint="A bucket is closed by the parameter that would not go in. The first one "
        "to close has at most FIRST_BYTES; dtypes do not mix.",
    ),
    *_both(
        *("a13.2", "backward", calls.trained, _training_inputs, _training_expected),
        {"n": (1, 3), "count": (1, 4), "unused": (0, 0), "hook": (0, 1)},
        sizes_of("n count unused hook", (2, 1, 0, 0), (2, 5, 0, 0), (3, 6, 0, 1)),
        sizes_of("n count unused hook", (2, 3, 0, 0), (3, 6, 0, 0)),
        tolerance=1e-9,
        oracle="PyTorch, with the mean over ranks,",
        hint="`events` has gradients and buckets as they come and go. A bucket goes "
        "when it is full and all before it have gone; one gradient can let several go. "
        "Nobody waits for one while gradients are still to come.",
    ),
    *_both(
        *("a13.2", "not all used", calls.trained, _training_inputs),
        _training_expected,
        {"n": (1, 3), "count": (2, 4), "unused": (1, 1), "hook": (0, 0)},
        sizes_of("n count unused hook", (2, 4, 1, 0), (3, 5, 1, 0)),
        sizes_of("n count unused hook", (2, 4, 1, 0)),
        tolerance=1e-9,
        oracle="PyTorch, with the mean over ranks,",
        hint="A parameter that this rank did not use counts with zeros: its place in "
        "the bucket still holds what the last step left there.",
    ),
]

# -------------------------------------------------------------------------- a13.3


def _shard_inputs(draw: Draw, n: int, count: int) -> Inputs:
    sizes = [draw.integer(1, 9) for _ in range(count)]
    frozen = [i for i in range(count) if draw.integer(0, 4) == 4]
    return {
        "size": n,
        "values": [draw.array((k,), "float64") for k in sizes],
        "grads": [draw.array((k,), "float64") for k in sizes],
        "frozen": frozen,
        "groups": [draw.integer(0, 1) for _ in range(count)],
        "as_view": draw.choice((False, True)),
    }


def _owners(sizes: Sequence[int], frozen: Any, groups: Any, n: int) -> list[int]:
    owners, loads = [0] * len(sizes), [0] * n
    for group in (0, 1):
        own = [i for i, g in enumerate(groups) if g == group]
        for i in sorted(own, key=lambda i: -sizes[i]):
            owners[i] = int(np.argmin(loads))
            loads[owners[i]] += 0 if i in frozen else sizes[i]
    return owners


def _shard_expected(
    size: int, values: Sequence[np.ndarray], grads: Sequence[np.ndarray],
    frozen: Sequence[int], groups: Sequence[int], as_view: bool,
) -> Inputs:  # fmt: skip
    learned = []
    for i, (value, grad) in enumerate(zip(values, grads)):
        rate = 0.0 if i in frozen else (0.1, 0.5)[groups[i]]
        learned.append(value - rate * grad - rate * (0.5 * grad + grad))
    owners = _owners([v.size for v in values], frozen, groups, size)
    learns = [i for i in range(len(values)) if i not in frozen]
    return _by_rank([
        {
            "values": learned,
            "owners": owners,
            "remembers": [i for i in learns if owners[i] == r],
            "in groups": [n for n in map(groups.count, (0, 1)) if n],
            "after an error": [n for n in map(groups.count, (0, 1)) if n],
        }
        for r in range(size)
    ])  # fmt: skip


SHARDED = _both(
    *("a13.3", "two steps", calls.sharded, _shard_inputs, _shard_expected),
    {"n": (1, 3), "count": (1, 5)},
    sizes_of("n count", (1, 2), (2, 2), (2, 6), (4, 3), (3, 9)),
    sizes_of("n count", (2, 4), (3, 7)),
    hint="Each step: only my parameters, by the optimizer inside; then all groups as "
    "they were; then each rank gives what it has learned to all.",
)

# -------------------------------------------------------------------------- a13.4


def _parallel_inputs(sequence: bool) -> Callable[..., Inputs]:
    def inputs(draw: Draw, n: int, hidden: int, wide: int) -> Inputs:
        rows = 2 * n if sequence else draw.integer(1, 3)
        units = n + draw.integer(0, wide)
        bias = draw.array((hidden,), "float64")
        return {
            "size": n,
            "x": draw.array((rows, hidden), "float64"),
            "up": draw.array((units, hidden), "float64"),
            "up_bias": draw.array((units,), "float64"),
            "down": draw.array((hidden, units), "float64"),
            "down_bias": bias if draw.choice((True, False)) else None,
            "grad": draw.array((rows, hidden), "float64"),
            "sequence": sequence,
        }

    return inputs


def _mine(blocks: Sequence[int], rank: int, n: int) -> list[int]:
    """The numbers of a rank's rows, of each block by itself."""
    starts = [0, *accumulate(blocks)]
    return [
        start + i
        for start, size in zip(starts, blocks)
        for i in range(rank * size // n, (rank + 1) * size // n)
    ]


def _parallel_expected(
    size: int, x: np.ndarray, grad: np.ndarray, sequence: bool, **layers: Any
) -> Inputs:
    own = as_torch(x, True)
    up, up_bias, down = (as_torch(layers[n], True) for n in ("up", "up_bias", "down"))
    bias = as_torch(layers["down_bias"], layers["down_bias"] is not None)
    y = (own @ up.T + up_bias).tanh() @ down.T
    y = y if bias is None else y + bias
    backward(y, grad)
    found = []
    for r in range(size):
        mine, rows = _mine([len(layers["up"])], r, size), len(x) // size
        part = slice(r * rows, (r + 1) * rows) if sequence else slice(None)
        grads = {
            "grad of 0.weight": up.grad.numpy()[mine],
            "grad of 0.bias": up_bias.grad.numpy()[mine],
            "grad of 2.weight": down.grad.numpy()[:, mine],
        }
        if bias is not None:
            grads["grad of 2.bias"] = bias.grad.numpy()
        found.append({
            "y": y.detach().numpy()[part], "grad_x": own.grad.numpy()[part],
            "weight": layers["up"][mine], **grads,
            "sums forward": 1, "sums": 2 + (sequence and bias is not None),
        })  # fmt: skip
    return _by_rank(found)


PARALLEL = [
    check
    for name, sequence in (("column and row", False), ("parts of a sequence", True))
    for check in _both(
        *("a13.4", name, calls.parallel, _parallel_inputs(sequence)),
        _parallel_expected,
        {"n": (1, 3), "hidden": (1, 3), "wide": (0, 4)},
        sizes_of("n hidden wide", (1, 2, 2), (2, 1, 0), (2, 3, 4), (4, 5, 9)),
        sizes_of("n hidden wide", (2, 2, 3), (3, 4, 2)),
        length=lambda x, up, **rest: x.shape[1] + len(up),
        oracle="PyTorch, on one process,",
        hint="One sum forward, where the row layer ends, and one backward, where the "
        "column layer begins; a bias that all have is added once, to the sum.",
    )
]


def _cut_inputs(draw: Draw, n: int, blocks: int) -> Inputs:
    sizes = [n + draw.integer(0, 4) for _ in range(blocks)]
    shape, dim = [2, 2], draw.choice((0, 1))
    shape[dim] = sum(sizes)
    return {"size": n, "dim": dim, "blocks": sizes, "whole": draw.array(shape)}


def _cut_expected(
    size: int, dim: int, blocks: Sequence[int], whole: np.ndarray
) -> Inputs:
    parts = [np.take(whole, _mine(blocks, r, size), dim) for r in range(size)]
    return _by_rank([{"mine": part, "whole": whole} for part in parts])


PARALLEL.append(
    Check(
        *("a13.4", "blocks", calls.cut, _cut_inputs, _cut_expected),
        *({"n": (1, 3), "blocks": (1, 3)}, sizes_of("n blocks", (2, 1), (3, 3))),
        examples=8,
        oracle=WHOLE,
        hint="Queries, keys and values lie side by side: a rank has a part of each. "
        "part(size, rank, n) says which of a block's rows; count them from the whole's "
        "first one.",
    )
)

# -------------------------------------------------------------------------- a13.5

Pass = tuple[str, int, int]  # kind, chunk, micro-batch


def _rows(name: str, stages: int, microbatches: int, chunks: int) -> list[list[Pass]]:
    """A schedule by its definition: so many forward passes, one of each, the rest."""
    order = sorted(
        ((c, m) for c in range(chunks) for m in range(microbatches)),
        key=lambda one: (one[1] // stages, one[0], one[1]),
    )
    rows = []
    for rank in range(stages):
        ahead = stages - rank - 1
        if chunks > 1:
            ahead = 2 * ahead + (chunks - 1) * stages
        ahead = min(len(order), microbatches if name == "gpipe" else ahead)
        back = [("B", chunks - 1 - c, m) for c, m in order]
        row: list[Pass] = [("F", *one) for one in order[:ahead]]
        for i, one in enumerate(order[ahead:]):
            row += [("F", *one), back[i]]
        rows.append(row + back[len(order) - ahead :])
    return rows


def _spans(rows: Sequence[Sequence[Pass]]) -> list[list[list[float]]]:
    """When passes begin and end, as far as they ever do: a backward pass takes 2."""
    n, ends, found = len(rows), dict[Any, float](), [list[Any]() for _ in rows]
    last = n * (1 + max(c for row in rows for _, c, _ in row)) - 1
    for _ in range(sum(map(len, rows))):
        for r, row in enumerate(rows):
            if len(found[r]) == len(row):
                continue
            kind, chunk, m = row[len(found[r])]
            s = chunk * n + r
            other = ("F", s - 1, m) if kind == "F" else ("B", s + 1, m)
            before = [other] if 0 <= other[1] <= last else []
            before += [("F", s, m)] if kind == "B" else []
            if all(key in ends for key in before):
                free = found[r][-1][1] if found[r] else 0
                start = max([free, *(ends[key] for key in before)])
                found[r].append([start, start + (1 if kind == "F" else 2)])
                ends[kind, s, m] = found[r][-1][1]
    return found


def _peaks(rows: Sequence[Sequence[Pass]]) -> list[int]:
    signs = [[1 if kind == "F" else -1 for kind, *_ in row] for row in rows]
    return [max(accumulate(row), default=0) for row in signs]


def _schedule_inputs(name: str) -> Callable[..., Inputs]:
    def inputs(draw: Draw, stages: int, times: int, chunks: int) -> Inputs:
        of = {"stages": stages, "microbatches": times, "chunks": 1}
        if name == "interleaved":
            of |= {"microbatches": times * stages, "chunks": chunks}
        return {"name": name, **of}

    return inputs


def _schedule_expected(**given: Any) -> Inputs:
    rows = _rows(**given)
    labels = [[f"{k}{m}{chr(ord('a') + c)}" for k, c, m in row] for row in rows]
    ends = [row[-1][1] for row in _spans(rows)]
    return {"rows": [" ".join(row) for row in labels], "peak": _peaks(rows),
            "ends": ends}  # fmt: skip


def _hand_inputs(draw: Draw, stages: int, microbatches: int, swaps: int) -> Inputs:
    """A schedule in which some passes have changed places: it can be done or not."""
    name = draw.choice(("one_f_one_b", "gpipe"))
    rows = _rows(name, stages, microbatches, 1)
    for _ in range(swaps):
        row = rows[draw.integer(0, stages - 1)]
        i = draw.integer(0, len(row) - 2)
        row[i], row[i + 1] = row[i + 1], row[i]
    return {"rows": [[list(one) for one in row] for row in rows]}


def _hand_expected(rows: Any) -> Inputs:
    spans = _spans(rows)
    stuck = [f"rank {r}" for r, s in enumerate(spans) if len(s) < len(rows[r])]
    return {"when": [] if stuck else spans, "stuck": stuck, "peak": _peaks(rows)}


SCHEDULE_HINTS = {
    "gpipe": "ahead is larger than what there is, or not; in both cases each pass "
    "comes once.",
    "one_f_one_b": "The last stage can go back at once. The one before it waits until "
    "its first micro-batch has been there and back: how many more can it take?",
    "interleaved": "stages micro-batches through chunk 0, the same through chunk 1, "
    "..., then the next stages micro-batches. Back, the chunks come the other way.",
}
SCHEDULES = [
    Check(
        *("a13.5", name, calls.schedule, _schedule_inputs(name), _schedule_expected),
        {"stages": (1, 4), "times": (1, 6), "chunks": (1, 3)},
        sizes_of("stages times chunks", (1, 1, 1), (2, 2, 2), (4, 8, 2), (4, 2, 3)),
        oracle="the definition",
        hint=hint,
    )
    for name, hint in SCHEDULE_HINTS.items()
] + [
    Check(
        *("a13.5", "who waits", calls.by_hand, _hand_inputs, _hand_expected),
        {"stages": (1, 3), "microbatches": (1, 4), "swaps": (0, 2)},
        sizes_of("stages microbatches swaps", (1, 1, 0), (2, 2, 1), (4, 6, 3)),
        oracle="the definition",
        hint="Forward needs the stage before; backward needs this stage's own forward "
        "pass and the stage behind. The first and the last stage lack one of them.",
    )
]

# -------------------------------------------------------------------------- a13.6


def _states_inputs(draw: Draw, zero: int, ranks: int) -> Inputs:
    numbers = [float(draw.integer(1, 12)) for _ in range(3)]
    return {"numbers": numbers, "zero": zero, "ranks": ranks}


def _states_expected(numbers: Sequence[float], zero: int, ranks: int) -> Inputs:
    first = (3, 2, 1)  # the stage from which each of them is dealt out
    return {"bytes": [x / (ranks if zero >= s else 1) for x, s in zip(numbers, first)]}


def _model(draw: Draw, layers: int, width: int) -> Inputs:
    kv, groups = draw.integer(1, 3), draw.integer(1, 3)
    heads = kv * groups
    gpt2 = draw.choice((True, False))
    return {
        **{"name": "drawn", "layers": layers, "hidden": 2 * width * heads},
        **{"ffn": draw.integer(4, 40), "heads": heads, "kv_heads": kv},
        **{"vocabulary": draw.integer(5, 500), "tied": draw.choice((False, True))},
        **{"shape": "gpt2" if gpt2 else "llama", "positions": 32 if gpt2 else 0},
    }


def _kept_inputs(
    draw: Draw, layers: int, width: int, pp: int, tp: int, again: int
) -> Inputs:
    names = "shared", "hidden", "keys", "units", "scores", "gathered"
    layout: Inputs = {"tp": tp, "pp": pp, "micro_batches": draw.integer(1, 6)}
    layout["virtual"] = draw.integer(1, 3) if pp > 1 else 1
    layout["recompute"] = bool(again)
    numbers: Inputs = {n: float(draw.integer(0, 9)) for n in names}
    numbers["sequence_parallel"] = draw.choice((True, False))
    return {
        "numbers": {"name": "drawn", **numbers},
        "model": _model(draw, layers, width),
        "layout": layout,
        "sequence": draw.integer(1, 64),
    }


def _kept_expected(
    numbers: Inputs, model: Inputs, layout: Inputs, sequence: int
) -> Inputs:
    from minitorch.distributed.planner.layout import split_layers
    from minitorch.distributed.planner.models import Model

    m, e, t, p = Model(**model), numbers, layout["tp"], layout["pp"]
    norms = t if e["sequence_parallel"] else 1
    terms = [
        e["shared"] * m.hidden / norms,
        e["hidden"] * m.hidden / t,
        e["keys"] * m.hidden * m.kv_heads / m.heads / t,
        e["units"] * m.ffn / t,
        e["scores"] * m.heads * sequence / t,
        e["gathered"] * m.hidden * (t > 1 and p == 1),
    ]
    layer = 2 * m.hidden / norms if layout["recompute"] else math.fsum(terms)
    layers, head = split_layers(m, p, layout["virtual"])
    tables = [int(i == 0) + int(i == head) for i in range(p)]
    if p == 1 and m.tied:
        tables = [1]
    first = m.positions * m.hidden
    held = [n * m.layer + k * m.table for n, k in zip(layers, tables)]
    v = layout["virtual"]
    # Chunks of layers, 1 / v of a stage each: the warm-up of interleaved 1F1B, and one.
    ahead = [2 * (p - i - 1) + (v - 1) * p + 1 for i in range(p)]
    flights = [n / v if v > 1 else p - i for i, n in enumerate(ahead)]
    return {
        "layer": float(layer),
        "parameters": [(n + (first if i == 0 else 0)) / t for i, n in enumerate(held)],
        "in flight": [float(min(layout["micro_batches"], n)) for n in flights],
    }


MEMORY = (
    Check(
        *("a13.6", "states", calls.states, _states_inputs, _states_expected),
        {"zero": (0, 3), "ranks": (1, 64)},
        sizes_of("zero ranks", (0, 64), (1, 64), (2, 64), (3, 64)),
        oracle="Rajbhandari et al.",
        hint="Stage 1 deals out the optimizer, stage 2 the gradients too, stage 3 the "
        "parameters too.",
    ),
    Check(
        *("a13.6", "what a layer keeps", calls.kept, _kept_inputs, _kept_expected),
        {
            "layers": (1, 9),
            "width": (1, 4),
            "pp": (1, 4),
            "tp": (1, 4),
            "again": (0, 1),
        },
        sizes_of("layers width pp tp again", (1, 1, 1, 1, 0), (12, 4, 1, 2, 0)),
        oracle="the sum of all terms",
        hint="What is split is divided by tp; `shared`, and the input that "
        "is kept alone, only where the sequence is split as well; `gathered` counts "
        "without a pipeline, for tp > 1.",
    ),
)

# Processes last: threads see the same mistakes sooner, in smaller inputs.
CHECKS: tuple[AnyCheck, ...] = tuple(
    sorted(
        (*RING, *DATA_PARALLEL, *SHARDED, *PARALLEL, *SCHEDULES, *MEMORY),
        key=lambda check: check.torch,
    )
)
