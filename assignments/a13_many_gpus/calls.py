"""What a13 runs in the student's process, and there on several ranks: rings, buckets,
shards, layers in parts; and schedules and memory, which need none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assignments import ranks
from assignments.calling import read, tensor
from assignments.ranks import Log

Rows = Sequence[Sequence[Any]]


def _numbers(log: Log, *names: str) -> list[int]:
    """How many numbers each call of one of these had."""
    return [size for name, size, *_ in log if name in names]


# -------------------------------------------------------------------------- a13.1


def ring(
    device: str,
    engine: str,
    what: str,
    op: str,
    given: Sequence[np.ndarray],
    first: int,
) -> dict[str, Any]:
    """A collective of the classroom on as many ranks as there are arrays.

    Args:
        what: "all_reduce", "reduce_scatter" (what each rank gets) or "all_gather".
        first: the first rank that takes part; others keep what they have.
    """

    def program(log: Log) -> dict[str, Any]:
        from minitorch.distributed import ReduceOp, classroom, get_rank, new_group

        x, how = tensor(device, given[get_rank()]), ReduceOp[op]
        group = new_group(range(first, len(given))) if first else None
        out: Any = x
        if get_rank() < first:
            pass
        elif what == "reduce_scatter":
            out = classroom.ring_reduce_scatter(x, how, group)
        elif what == "all_gather":
            classroom.ring_all_gather(x, group)
        else:
            classroom.ring_all_reduce(x, how, group)
        to = {f"to rank {peer + first}" for name, _, peer, _ in log if name == "send"}
        sent = {"sent": sum(_numbers(log, "send")), "where": sorted(to)}
        return {"out": read(out), **sent, "waited": all(call[3] for call in log)}

    return _by_rank(ranks.run(engine, len(given), program))


def _by_rank(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """{"rank 0": what came out there, ...}"""
    return {f"rank {rank}": out for rank, out in enumerate(found)}


# -------------------------------------------------------------------------- a13.2


def divided(
    device: str, sizes: Sequence[int], dtypes: Sequence[str], order: Sequence[int],
    limit: int,
) -> dict[str, Any]:  # fmt: skip
    """`divide`"""
    import minitorch
    from minitorch.nn import Parameter
    from minitorch.nn.parallel.reducer import divide

    kinds = [getattr(minitorch, name) for name in dtypes]
    made = [minitorch.empty(n, dtype=k, device=device) for n, k in zip(sizes, kinds)]
    buckets = divide(list(order), [Parameter(x) for x in made], limit)
    return {"buckets": [list(bucket) for bucket in buckets]}


def trained(
    device: str,
    engine: str,
    weights: Sequence[np.ndarray],
    rows: Sequence[np.ndarray],
    paths: Rows,
    limit: int,
    hook: bool,
) -> dict[str, Any]:
    """Two backward passes of a model of vectors, under DistributedDataParallel.

    Args:
        rows: each rank's input, a number.
        paths: the vectors that each rank's input goes through, by their numbers.
        hook: send by a communication hook, which takes the double of the mean.
    """

    def program(log: Log) -> dict[str, Any]:
        from minitorch.distributed import get_rank

        x, path = tensor(device, rows[get_rank()]), paths[get_rank()]
        chain, events = _chain(device, weights), list[str]()
        for i, p in enumerate(chain.parameters()):  # before those of the reducer
            p.register_post_accumulate_grad_hook(
                lambda _, i=i: events.extend([*_launches(log, True), f"gradient {i}"])
            )
        model = _data_parallel(chain, paths, limit)
        if hook:
            model.register_comm_hook(None, _doubling)
        out: dict[str, Any] = {}
        for step in range(2):
            log.clear()
            model.zero_grad()
            model(x * (step + 1), path).backward()
            if step == 0:
                out["events"] = ", ".join([*events, *_launches(log)])
            out[f"gradients {step}"] = [read(p.grad) for p in chain.parameters()]
        return {**out, "gradients are parts of buckets": _are_views(model)}

    return _by_rank(ranks.run(engine, len(rows), program))


def _chain(device: str, weights: Sequence[np.ndarray]) -> Any:
    """A model that takes a path through its vectors: x becomes sum(tanh(x w))."""
    from minitorch import nn

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i, w in enumerate(weights):
                setattr(self, f"w{i}", nn.Parameter(tensor(device, w)))

        def forward(self, x: Any, path: Sequence[int]) -> Any:
            for i in path:
                x = (x * getattr(self, f"w{i}")).tanh().sum()
            return x

    return Chain()


def _data_parallel(chain: Any, paths: Rows, limit: int) -> Any:
    from minitorch.nn.parallel import DistributedDataParallel

    count = len(list(chain.parameters()))
    unused = any(len(path) < count for path in paths)
    return DistributedDataParallel(
        chain, bucket_cap_mb=limit / 2**20, find_unused_parameters=unused
    )


def _launches(log: Log, early: bool = False) -> list[str]:
    """What was sent since somebody asked last; `early`: nobody should wait yet."""
    sent = [
        f"sends {size}" + " and waits" * (early and waited)
        for name, size, _, waited in log
        if name == "all_reduce"
    ]
    log.clear()
    return sent


def _doubling(state: Any, bucket: Any) -> Any:
    from minitorch.distributed import ReduceOp, all_reduce

    work = all_reduce(bucket.buffer(), ReduceOp.AVG, async_op=True)
    return work.get_future().then(lambda future: future.value()[0] * 2)


def _are_views(model: Any) -> bool:
    """Whether each gradient is a part of a bucket, and no copy of it."""
    homes = {id(bucket.flat.raw.storage) for bucket in model.reducer.buckets}
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return all(id(grad.raw.storage) in homes for grad in grads)


# -------------------------------------------------------------------------- a13.3


def sharded(
    device: str,
    engine: str,
    size: int,
    values: Sequence[np.ndarray],
    grads: Sequence[np.ndarray],
    frozen: Sequence[int],
    groups: Sequence[int],
    as_view: bool,
) -> dict[str, Any]:
    """Two steps of SGD with momentum by ZeroRedundancyOptimizer; in a third one there
    is an error.

    Args:
        size: how many ranks.
        frozen: numbers of parameters that learn nothing.
        groups: each parameter's group; the learning rate is 0.1 or 0.5.
    """

    def program(log: Log) -> dict[str, Any]:
        from minitorch import nn, optim
        from minitorch.distributed.optim import ZeroRedundancyOptimizer

        made = [nn.Parameter(tensor(device, value)) for value in values]
        for i in frozen:
            made[i].requires_grad = False
        some = [[p for p, g in zip(made, groups) if g == n] for n in (0, 1)]
        given = [{"params": ps, "lr": lr} for ps, lr in zip(some, (0.1, 0.5)) if ps]
        optimizer = ZeroRedundancyOptimizer(
            given, optim.SGD, parameters_as_bucket_view=as_view, momentum=0.5
        )
        log.clear()
        for _ in range(2):
            for p, grad in zip(made, grads):
                p.grad = tensor(device, grad) if p.requires_grad else None
            optimizer.step()
        kept = [len(group["params"]) for group in optimizer.param_groups]
        optimizer.optim._step = _fails
        try:
            optimizer.step()
        except ArithmeticError:
            pass
        return {
            "values": [read(p) for p in made],
            "owners": [optimizer.owners[id(p)] for p in made],
            "remembers": [i for i, p in enumerate(made) if p in optimizer.state],
            "in groups": kept,
            "after an error": [len(g["params"]) for g in optimizer.param_groups],
        }

    return _by_rank(ranks.run(engine, size, program))


def _fails() -> None:
    """A step that does not come to its end."""
    raise ArithmeticError


# -------------------------------------------------------------------------- a13.4


def parallel(
    device: str,
    engine: str,
    size: int,
    x: np.ndarray,
    up: np.ndarray,
    up_bias: np.ndarray,
    down: np.ndarray,
    down_bias: np.ndarray | None,
    grad: np.ndarray,
    sequence: bool,
) -> dict[str, Any]:
    """A column layer, tanh and a row layer on some ranks, and gradients.

    Args:
        sequence: whether each rank has a part of x, and gets a part of y, along dim 0.
    """

    def program(log: Log) -> dict[str, Any]:
        from minitorch import nn
        from minitorch.distributed import get_rank, init_device_mesh
        from minitorch.distributed.tensor import Replicate, Shard
        from minitorch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        lies = Shard(0) if sequence else Replicate()
        a, b = _linear(device, up, up_bias), _linear(device, down, down_bias)
        plan = {"0": ColwiseParallel(lies), "2": RowwiseParallel(lies)}
        model = nn.Sequential(a, nn.Tanh(), b)
        mesh = init_device_mesh("cpu", (size,))
        parallelize_module(model, mesh, plan)
        rows = len(x) // size if sequence else len(x)
        first = get_rank() * rows if sequence else 0
        own = tensor(device, x[first : first + rows], requires_grad=True)
        log.clear()
        y = model(own)
        forward = _numbers(log, "all_reduce", "reduce_scatter")
        y.backward(tensor(device, grad[first : first + rows]))
        grads = {f"grad of {n}": read(p.grad) for n, p in model.named_parameters()}
        out = {"y": read(y), "grad_x": read(own.grad), "weight": read(a.weight)}
        sums = len(_numbers(log, "all_reduce", "reduce_scatter"))
        return {**out, **grads, "sums forward": len(forward), "sums": sums}

    return _by_rank(ranks.run(engine, size, program))


def cut(
    device: str, size: int, dim: int, blocks: Sequence[int], whole: np.ndarray
) -> dict[str, Any]:
    """Each rank's part of a parameter, and whether all parts make the whole again."""

    def program(log: Log) -> dict[str, Any]:
        from minitorch.distributed.group import here
        from minitorch.distributed.tensor import Cut

        x, group = tensor(device, whole), here.group
        assert group is not None
        made = Cut(dim, tuple(blocks), group).layout(x)
        mine = made.part(x)
        return {"mine": read(mine), "whole": read(made.whole(mine))}

    return _by_rank(ranks.run("threads", size, program))


def _linear(device: str, weight: np.ndarray, bias: np.ndarray | None) -> Any:
    from minitorch import nn, no_grad

    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
    layer = layer.to(device).double()
    with no_grad():
        layer.weight.copy_(tensor(device, weight))
        if bias is not None:
            layer.bias.copy_(tensor(device, bias))
    return layer


# -------------------------------------------------------------------------- a13.5


def _labels(schedule: Any) -> list[str]:
    """ "F0a F1a B0a" for each rank; the letter is the chunk."""
    return [
        " ".join(f"{kind}{m}{chr(ord('a') + chunk)}" for kind, chunk, m in row)
        for row in schedule
    ]


def schedule(
    device: str, name: str, stages: int, microbatches: int, chunks: int
) -> dict[str, Any]:
    """A schedule of the library's, what it costs, and when its last pass ends."""
    from minitorch.distributed.pipelining import schedules

    sizes = (stages, microbatches, chunks)[: 3 if name == "interleaved" else 2]
    made = getattr(schedules, name)(*sizes)
    ends = [row[-1].end for row in schedules.timeline(made)]
    return {"rows": _labels(made), "peak": schedules.peak(made), "ends": ends}


def by_hand(device: str, rows: Sequence[Rows]) -> dict[str, Any]:
    """What a schedule that somebody wrote waits for: [start, end] of each pass, or the
    ranks that wait for ever."""
    from minitorch.distributed.pipelining import schedules

    given = [[schedules.Action(*action) for action in row] for row in rows]
    try:
        spans = schedules.timeline(given)
    except ValueError as error:
        stuck = [f"rank {r}" for r in range(len(rows)) if f"rank {r} " in str(error)]
        return {"when": [], "stuck": stuck, "peak": schedules.peak(given)}
    when = [[[span.start, span.end] for span in row] for row in spans]
    return {"when": when, "stuck": [], "peak": schedules.peak(given)}


# -------------------------------------------------------------------------- a13.6


def _models(model: dict[str, Any], layout: dict[str, Any]) -> tuple[Any, Any]:
    from minitorch.distributed.planner.layout import Layout
    from minitorch.distributed.planner.models import Model

    return Model(**model), Layout(**layout)


def states(
    device: str, numbers: Sequence[float], zero: int, ranks: int
) -> dict[str, Any]:
    """`Engine.states`"""
    from minitorch.distributed.planner.memory import Engine

    found = Engine("given", *numbers).states(zero, ranks)
    return {"bytes": [float(number) for number in found]}


def kept(
    device: str,
    numbers: dict[str, Any],
    model: dict[str, Any],
    layout: dict[str, Any],
    sequence: int,
) -> dict[str, Any]:
    """`Engine.layer`, and for each stage what it has and holds."""
    from minitorch.distributed.planner import memory

    (m, cut), e = _models(model, layout), memory.Engine(**numbers)
    stages = range(cut.pp)
    return {
        "layer": float(e.layer(m, cut, sequence)),
        "parameters": [float(memory.stage_parameters(m, cut, e, i)) for i in stages],
        "in flight": [float(memory.in_flight(cut, i)) for i in stages],
    }
