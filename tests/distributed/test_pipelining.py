"""Schedules of pipelines, and stages on ranks that are threads."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import parallel_checks
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitorch
from helpers import quick
from minitorch import distributed as dist
from minitorch import nn
from minitorch.distributed import spawn_threads
from minitorch.distributed.pipelining import (
    Action,
    Pipeline,
    PipelineStage,
    Schedule,
    bubble,
    check,
    draw,
    gpipe,
    interleaved,
    one_f_one_b,
    peak,
    table,
    timeline,
)
from minitorch.distributed.pipelining.schedules import Message, program
from minitorch.distributed.threads import ThreadGroup
from minitorch.models.parallel import pipeline
from minitorch.profiler import profile


@pytest.mark.parametrize(
    "n, how",
    [
        (2, ("gpt2", "gpipe")),
        (2, ("large", "one_f_one_b")),
        (4, ("gpt2", "one_f_one_b", 1, "recompute")),
        (2, ("llama", "interleaved", 1, "zeros")),
        (4, ("llama", "one_f_one_b", 2)),  # each stage shared by two ranks
        (4, ("gpt2", "one_f_one_b", 1, "", 2)),  # on two parts of the batch
        (4, ("llama", "one_f_one_b", 1, "", 1, 2)),  # on two parts of sequences
    ],
)
def test_a_gpt_in_stages_trains_as_a_whole_one(n: int, how: Any) -> None:
    assert max(spawn_threads(parallel_checks.in_stages, n, *how)) < 1e-10


@pytest.mark.parametrize("frozen", ["the first stage", "the last", "both tables"])
def test_a_stage_may_be_frozen(frozen: str) -> None:
    """Of two, on two parts of the batch; losses are those of one process."""

    def model(seed: int) -> Any:
        made: Any = parallel_checks.gpt("gpt2", seed)
        for part in {
            "the first stage": (made.wte, made.wpe, *made.h[:2]),
            "the last": (*made.h[2:], made.ln_f, made.wte),
            "both tables": (made.wte, made.wpe),
        }[frozen]:
            part.requires_grad_(False)
        return made

    def program() -> list[float]:
        mesh = dist.init_device_mesh("cpu", (2, 2), ("pp", "data"))
        data, table = mesh.get_group("data"), one_f_one_b(2, 2)
        whole = model(dist.get_rank())  # data's first rank has the others' weights
        pipe, losses = pipeline(whole, mesh["pp"], table, 1, 8, data=data), []
        optimizer = parallel_checks.adam(pipe.parameters())
        for step in range(3):
            optimizer.zero_grad()
            mine = [x.chunk(2)[data.rank()] for x in parallel_checks.batch(step)]
            loss = pipe.step(*mine)
            pipe.clip_grad_norm_(parallel_checks.CLIP)
            optimizer.step()
            if loss is not None:
                dist.all_reduce(loss, dist.ReduceOp.AVG, data)
                losses.append(loss.item())
        return losses

    alone, expected = model(0), []
    optimizer = parallel_checks.adam(alone.parameters())
    for step in range(3):
        args = (*parallel_checks.batch(step),)
        expected.append(
            parallel_checks.learn(parallel_checks.Loss(alone), optimizer, *args)
        )
    for losses in spawn_threads(program, 4)[2:]:
        assert losses == pytest.approx(expected, rel=1e-10)


sizes = st.tuples(st.integers(1, 6), st.integers(1, 12), st.integers(1, 4))


def schedules(ranks: int, microbatches: int, chunks: int) -> dict[str, Schedule]:
    return {
        "gpipe": gpipe(ranks, microbatches),
        "1f1b": one_f_one_b(ranks, microbatches),
        "interleaved": interleaved(ranks, microbatches * ranks, chunks),
    }


@quick
@given(sizes=sizes)
def test_what_holds_for_every_schedule(sizes: Any) -> None:
    p, m, v = sizes
    made = schedules(*sizes)
    for name, schedule in made.items():
        check(schedule)
        count = m * p if name == "interleaved" else m
        for rank, row in enumerate(schedule):
            assert len(row) == len(set(row)) == 2 * (v if name[0] == "i" else 1) * count
            for kind, chunk, i in row:
                if kind == "B":
                    assert row.index(Action("F", chunk, i)) < row.index(
                        Action("B", chunk, i)
                    )
            spans = timeline(schedule)[rank]
            assert all(a.end <= b.start for a, b in pairwise(spans))
        delivered(schedule)
    assert peak(made["gpipe"]) == [m] * p
    assert peak(made["1f1b"]) == [min(p - r, m) for r in range(p)]
    for name, share in (("gpipe", (p - 1) / m), ("1f1b", (p - 1) / m)):
        assert bubble(made[name]) == pytest.approx(share)
    if p > 1:
        assert bubble(made["interleaved"]) == pytest.approx((p - 1) / (v * m * p))
        most = 2 * (p - 1) + (v - 1) * p + 1 if v > 1 else p
        assert max(peak(made["interleaved"])) == min(most, v * m * p)


def delivered(schedule: Schedule) -> None:
    """Programs end, also where a message waits until its receiver asks for it, in the
    order of messages between the two."""
    queues = [list(program(schedule, rank)) for rank in range(len(schedule))]
    moved = True
    while moved:
        moved = False
        for rank, queue in enumerate(queues):
            while queue:
                head = queue[0]
                if isinstance(head, Message):
                    other = queues[head.source + head.target - rank]
                    if not other or other[0] != head:
                        break
                    other.pop(0)
                queue.pop(0)
                moved = True
    assert not any(queues)


def test_schedules_that_cannot_be_done() -> None:
    good = one_f_one_b(2, 2)
    for change, message in (
        (lambda s: s[1].reverse(), "rank 0 before B0, rank 1 before B1: what these"),
        (lambda s: s[0].pop(), "rank 0 never does B1"),
        (lambda s: s[0].append(s[0][0]), "rank 0 must do F0 once"),
    ):
        schedule = [list(row) for row in good]
        change(schedule)
        with pytest.raises(ValueError, match=message):
            check(schedule)
    with pytest.raises(ValueError, match="3 micro-batches and 2 ranks; they go in gro"):
        interleaved(2, 3, 2)
    with pytest.raises(ValueError, match="microbatches is 0; expected 1 or more"):
        gpipe(2, 0)
    with pytest.raises(ValueError, match="chunks is 0; expected 1 or more"):
        interleaved(2, 4, 0)


def test_a_schedule_as_text_and_as_a_picture(tmp_path: Path) -> None:
    assert table(one_f_one_b(2, 2)) == (
        "rank 0  F0 F1 .  .  B0    .  B1\nrank 1  .  F0 B0    F1 B1"
    )
    assert "F1b" in table(interleaved(2, 2, 2))
    picture = tmp_path / "schedule.svg"
    draw(interleaved(4, 8, 2), picture, "interleaved")
    drawn = [text.text for text in ElementTree.parse(picture).iter() if text.text]
    held = f"rank 0: {peak(interleaved(4, 8, 2))[0]} held"
    assert {"interleaved", held, "7a", "7b"} <= {*drawn}
    with pytest.raises(ValueError, match=r"call it '.*schedule\.svg'"):
        draw(gpipe(2, 2), picture.with_suffix(".png"))


def test_what_is_refused() -> None:
    def program() -> None:
        layer, like = nn.Linear(2, 2), minitorch.ones(1, 2)
        mesh: Any = dist.init_device_mesh("cpu", (2,))
        loss: Any = lambda out, target: out.sum()
        me = dist.get_rank()
        with pytest.raises(ValueError, match="stage 1 receives; give input_args"):
            PipelineStage(layer, 1, 2)
        stage = PipelineStage(layer, me, 2, input_args=like)
        with pytest.raises(ValueError, match=r"expected stages \[.*\] here, got"):
            Pipeline([stage], interleaved(2, 2, 2), loss)
        pipe = Pipeline([stage], gpipe(2, 2), loss)
        with pytest.raises(ValueError, match="the batch has 3 rows and the schedule 2"):
            pipe.step(minitorch.ones(3, 2), minitorch.ones(3))
        pipe = pipeline(parallel_checks.gpt("gpt2"), mesh, gpipe(2, 2), 2, 8)
        ids, targets = (x[:, :6] for x in parallel_checks.batch(0))
        # Else what comes would be shorter than what the other rank waits for.
        message = r"stage 0 made .*\(2, 6, 8\).* expected .*\(2, 8, 8\)"
        if me == 0:
            with pytest.raises(ValueError, match=message):
                pipe.step(ids, targets)
        with pytest.raises(ValueError, match="6 stages of 4 blocks; each stage has"):
            pipeline(parallel_checks.gpt("gpt2"), mesh, interleaved(2, 2, 3), 1, 8)
        with pytest.raises(ValueError, match="is for 1 ranks, and the mesh has 2"):
            pipeline(parallel_checks.gpt("gpt2"), mesh, gpipe(1, 2), 1, 8)

    spawn_threads(program, 2)


@pytest.mark.parametrize("n, chunks", [(2, 1), (1, 2)])
def test_without_gradients_there_is_a_loss_alone(n: int, chunks: int) -> None:
    """And gradients of several batches add up, those of shared parameters too."""

    def program() -> Any:
        model = parallel_checks.gpt("gpt2")
        mesh: Any = dist.init_device_mesh("cpu", (n,))
        pipe = pipeline(model, mesh, interleaved(n, 2, chunks), 2, 8)
        batch = parallel_checks.batch(0)
        with minitorch.no_grad():
            losses = [pipe.step(*batch)]
        assert all(p.grad is None for p in pipe.parameters())
        losses += [pipe.step(*batch)]
        once = [p.grad.numpy().copy() for p in pipe.parameters() if p.requires_grad]
        with minitorch.no_grad():
            losses += [pipe.step(*batch)]
        losses += [pipe.step(*batch)]
        twice = [p.grad.numpy() for p in pipe.parameters() if p.requires_grad]
        assert all(abs(b - 2 * a).max() < 1e-12 for a, b in zip(once, twice))
        return [None if loss is None else loss.item() for loss in losses]

    *others, last = spawn_threads(program, n)
    assert others == [[None] * 4] * (n - 1)
    whole = parallel_checks.gpt("gpt2").loss(*parallel_checks.batch(0)).item()
    assert last == pytest.approx([whole] * 4, 1e-12)


def test_a_profile_shows_the_schedule() -> None:
    pipe_of = lambda: pipeline(
        parallel_checks.gpt("gpt2"),
        dist.init_device_mesh("cpu", (1,)),
        gpipe(1, 2),
        2,
        8,
    )

    def program() -> Any:
        pipe = pipe_of()
        with profile() as p:
            pipe.step(*parallel_checks.batch(0))
        return [e.name for e in p.events() if e.name[:2] in ("F ", "B ")]

    assert spawn_threads(program, 1) == [["F 0", "F 1", "B 0", "B 1"]]


def test_gradients_are_averaged_while_the_last_micro_batch_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of all batches since they were averaged before, tables at both ends included."""
    back, meet = PipelineStage.backward, ThreadGroup._meet
    seen: list[str] = []

    def watched(self: Any, microbatch: int, grad: Any) -> Any:
        seen.extend([f"B {microbatch}"] * (dist.get_rank() == 0))
        found = back(self, microbatch, grad)
        seen.extend(["end"] * (dist.get_rank() == 0))
        return found

    def met(self: Any, call: str, *rest: Any) -> Any:
        seen.extend([call[:10]] * (dist.get_rank() == 0 and self.ranks == (0, 1)))
        return meet(self, call, *rest)

    def program() -> None:
        mesh = dist.init_device_mesh("cpu", (2, 2), ("pp", "data"))
        model, data = parallel_checks.gpt("gpt2"), mesh.get_group("data")
        pipe = pipeline(model, mesh["pp"], one_f_one_b(2, 2), 1, 8, data=data)
        mine = [x.chunk(2)[data.rank()] for x in parallel_checks.batch(0)]
        learned = [p for p in pipe.parameters() if p.requires_grad]
        pipe.step(*mine)
        once = [p.grad.numpy().copy() for p in learned]
        for p in learned:
            p.grad = p.grad * 0  # which the other end has, too
        for first in (nullcontext, pipe.no_sync):
            seen.clear()
            with first():
                pipe.step(*mine)
            pipe.step(*mine)
            twice = [p.grad.numpy() for p in learned]
            assert all(abs(b - 2 * a).max() < 1e-12 for a, b in zip(once, twice))
            for p in learned:
                p.grad = None

    monkeypatch.setattr(PipelineStage, "backward", watched)
    monkeypatch.setattr(ThreadGroup, "_meet", met)
    spawn_threads(program, 4)
    step = ["B 0", "end", "B 1", "all_reduce", "end"]
    assert seen == ["B 0", "end", "B 1", "end", *step]
