"""Pictures for a13 and for the book: a ring, buckets, layers in parts, pipelines."""

from __future__ import annotations

from typing import Any

import minitorch
from assignments.pictures import picture
from minitorch import nn
from minitorch.distributed import classroom, get_rank, spawn_threads
from minitorch.distributed.pipelining import schedules
from minitorch.distributed.planner import hardware, memory, models
from minitorch.distributed.planner.cost import AHEAD
from minitorch.distributed.planner.picture import scene
from minitorch.distributed.planner.search import Task, search
from minitorch.distributed.tensor import placement
from minitorch.nn.parallel import DistributedDataParallel
from minitorch.nn.parallel.reducer import divide
from minitorch.scenes import Part, Scene, note, part

A13 = "assignments/a13_many_gpus"


class _Snapshots(classroom.Ring):
    """A ring that keeps what each rank has before each step."""

    seen: dict[int, list[list[int]]]

    def step(self, goes: int, comes: int) -> Any:
        held = [int(p.tolist()[0]) for p in self.parts]
        self.seen.setdefault(self.me, []).append(held)
        return super().step(goes, comes)


def _steps_of_a_ring(n: int) -> list[Part]:
    """What each of n ranks has, at first and after each step."""
    before, seen, parts = classroom.Ring, {}, []

    def program() -> list[int]:
        x = minitorch.ones(n, device="simple").long() * 2 ** get_rank()  # a bit a rank
        classroom.ring_all_reduce(x)
        return x.tolist()

    _Snapshots.seen = seen
    classroom.Ring = _Snapshots  # type: ignore[misc]
    try:
        last = spawn_threads(program, n)
    finally:
        classroom.Ring = before  # type: ignore[misc]
    moments = [[seen[rank][k] for rank in range(n)] for k in range(2 * (n - 1))]
    for k, held in enumerate([*moments, last]):
        ranks = [
            ["".join(str(r) for r in range(n) if v >> r & 1) for v in row]
            for row in held
        ]
        cells = [[[who, len(who) - 1 or -1] for who in row] for row in ranks]
        rows = [f"rank {r}" for r in range(n)] if k % n == 0 else []
        caption = f"step {k}" if k else "at first"
        parts.append(part("grid", caption, cells=cells, size=(36, 24), rows=rows))
    return parts


@picture("docs/pictures/ring")
def ring() -> Scene:
    parts = _steps_of_a_ring(4)
    return [parts[:4], parts[4:]]


@picture(f"{A13}/ring")
def small_ring() -> Scene:
    parts = _steps_of_a_ring(3)
    for one in parts:
        one["cols"] = [f"part {i}" for i in range(3)]
        one["size"] = (44, 24)
    return [parts[:3], parts[3:]]


def _backward_events() -> list[Any]:
    """Gradients as they come on rank 0, and buckets as they go, by their numbers."""
    events: list[Any] = []

    def program() -> None:
        layers = [nn.Linear(8, 8, bias=False, device="simple") for _ in range(4)]
        chain = nn.Sequential(*layers)
        for i, p in enumerate(chain.parameters()):
            if get_rank() == 0:
                p.register_post_accumulate_grad_hook(lambda _, i=i: events.append(i))
        model = DistributedDataParallel(chain, bucket_cap_mb=2 * 8 * 8 * 4 / 2**20)
        send = model.reducer._send

        def sends(bucket: Any) -> None:
            if get_rank() == 0:
                events.append(list(bucket.members))
            send(bucket)

        model.reducer._send = sends  # type: ignore[method-assign]
        model(minitorch.ones(1, 8, device="simple")).sum().backward()

    spawn_threads(program, 2)
    return events


@picture(f"{A13}/buckets")
def buckets() -> Scene:
    computed, sent, now, free = [], [], 0, 0
    for event in _backward_events():
        if isinstance(event, int):
            computed.append([now, now + 3, f"grad {event}", 1])
            now += 3
        else:
            start, text = max(now, free), " ".join(map(str, event))
            free = start + 5
            sent.append([start, free, f"[{text}]", 2])
    lanes = [["backward pass", computed], ["all-reduce", sent]]
    notes = ["a bucket goes when its last gradient has come"]
    return [[part("timeline", lanes=lanes, unit=30, notes=notes)]]


@picture(f"{A13}/layers")
def layers() -> Scene:
    units, width, rows, n = 4, 3, 2, 2
    whose = [r + 1 for r in range(n) for _ in placement.part(units, r, n)]

    def grid(caption: str, down: list[int], across: list[int]) -> Part:
        cells = [[["", max(i, j)] for j in across] for i in down]
        return part("grid", caption, cells=cells, size=(24, 24))

    all_have, whole = [0] * rows, [0] * width
    return [
        [
            grid("x", all_have, whole),
            grid("A, by rows", whose, whole),
            grid("y = x Aᵀ", all_have, whose),
            grid("B, by columns", whole, whose),
            grid("z = y Bᵀ", [3] * rows, [3] * width),
        ],
        note("blue: rank 0; orange: rank 1; grey: both; green: the sum of both"),
    ]


@picture(f"{A13}/pipeline")
def pipeline() -> Scene:
    scene: Scene = []
    for name, made in (
        ("GPipe", schedules.gpipe(3, 4)),
        ("1F1B", schedules.one_f_one_b(3, 4)),
    ):
        held = ", ".join(map(str, schedules.peak(made)))
        lanes = [
            [f"rank {rank}", [
                [start, end, f"{a.kind}{a.microbatch}", 1 if a.kind == "F" else 2]
                for a, start, end in spans
            ]]
            for rank, spans in enumerate(schedules.timeline(made))
        ]  # fmt: skip
        notes = [f"micro-batches held at most, by rank: {held}"]
        scene.append([part("timeline", name, lanes=lanes, unit=34, notes=notes)])
    return scene


LAYERS, LIMIT = 6, 527_000  # bytes of a bucket


@picture("docs/pictures/buckets")
def buckets_of_two_rules() -> Scene:
    network = nn.Sequential(*[nn.Linear(256, 256) for _ in range(LAYERS)])
    named = list(network.named_parameters())
    parameters = [p for _, p in named]
    layer_of = [int(name.partition(".")[0]) for name, _ in named]
    found = divide(reversed(range(len(named))), parameters, LIMIT)
    back = [[k, k + 1, f"layer {LAYERS - k}", 1] for k in range(LAYERS)]
    sent: list[Any] = []
    for number, members in enumerate(found):
        ready = LAYERS - min(layer_of[i] for i in members)
        start = max([ready, *(end for _, end, _, _ in sent)])
        sent.append([start, start + 1.5, f"bucket {number}", 2 + number % 3])
    lanes = [["backward", back], ["sent", sent]]
    weighs = sum(parameters[i].numel() * 4 for i in found[0])
    notes = [f"a bucket: {len(found[0])} gradients, {weighs // 1000} KB"]
    return [[part("timeline", lanes=lanes, unit=72, notes=notes)]]


@picture("docs/pictures/pipelines")
def pipelines() -> Scene:
    rows = []
    for name, made in (
        ("gpipe(4, 6)", schedules.gpipe(4, 6)),
        ("one_f_one_b(4, 6)", schedules.one_f_one_b(4, 6)),
    ):
        caption = f"{name}: waits for {schedules.bubble(made):.2f} of its work"
        rows.append([schedules.scene(made, caption)])
    rows[-1][0]["notes"] = [schedules.NOTE]
    return rows


@picture("docs/pictures/plan")
def plan() -> Scene:
    model, gpu, sequence = models.named("llama-70b"), hardware.named("h100"), 4096
    engine = memory.engine("mixed", model)
    task = Task(model, gpu, 256, 2**20 // sequence, sequence, engine, AHEAD)
    return scene(task, search(task))
