"""What tests let each rank do, as threads and as processes.

With this file every engine is held to the same: collectives against NumPy, and against
torch; training by several ranks against training by one.
"""

from __future__ import annotations

from time import sleep
from typing import Any

import numpy as np

import minitorch
from minitorch import distributed as dist
from minitorch import nn
from minitorch.distributed import ReduceOp
from minitorch.distributed.nn import functional as F
from minitorch.nn.parallel import DistributedDataParallel as DDP
from minitorch.tensor import Tensor

DTYPES = (minitorch.float32, minitorch.float64, minitorch.int64, minitorch.int32)
SIZES = (0, 1, 2, 7, 31)
REDUCE = {
    ReduceOp.SUM: lambda xs: np.sum(xs, 0),
    ReduceOp.PRODUCT: lambda xs: np.prod(xs, 0),
    ReduceOp.MAX: lambda xs: np.max(xs, 0),
    ReduceOp.MIN: lambda xs: np.min(xs, 0),
    ReduceOp.AVG: lambda xs: np.mean(xs, 0),
}


def given(size: int, dtype: Any, n: int) -> list[np.ndarray]:
    """What each of n ranks has."""
    rngs = [np.random.default_rng((size, r)) for r in range(n)]
    return [rng.integers(1, 5, size).astype(dtype.numpy) for rng in rngs]


def same(x: Tensor, expected: Any) -> None:
    np.testing.assert_allclose(x.numpy(), np.asarray(expected), rtol=1e-6)


def collectives() -> None:
    """Each collective, against NumPy."""
    n, r = dist.get_world_size(), dist.get_rank()
    last = n - 1
    for size in SIZES:
        for dtype in DTYPES:
            xs = given(size, dtype, n)
            x = minitorch.from_numpy(xs[r].copy())
            wide = given(size * n, dtype, n)
            w = minitorch.from_numpy(wide[r].copy())
            for op, fn in REDUCE.items():
                if op is ReduceOp.AVG and not dtype.is_floating_point:
                    continue
                y, part = x.clone(), x.new_zeros(size)
                dist.all_reduce(y, op)
                same(y, fn(xs))
                dist.reduce_scatter_tensor(part, w, op)
                same(part, fn(wide)[r * size : (r + 1) * size])
                dist.reduce_scatter(part.zero_(), list(w.reshape(n, size)), op)
                same(part, fn(wide)[r * size : (r + 1) * size])
                y = x.clone()
                dist.reduce(y, last, op)
                same(y, fn(xs) if r == last else y.numpy())
            y = x.clone()
            dist.broadcast(y, last)
            same(y, xs[last])
            several(x, w, xs, wide)


def several(x: Tensor, w: Tensor, xs: Any, wide: Any) -> None:
    """Those that bring one tensor, or part, for each rank."""
    n, r, size = dist.get_world_size(), dist.get_rank(), x.numel()
    out = x.new_zeros(n, size)
    dist.all_gather_into_tensor(out, x)
    same(out, xs)
    outs = [x.new_zeros(size) for _ in range(n)]
    dist.all_gather(outs, x)
    same(minitorch.stack(outs), xs)
    out = w.new_zeros(n * size)
    dist.all_to_all_single(out, w)
    same(out, np.concatenate([row.reshape(n, -1)[r] for row in wide]))
    outs = [x.new_zeros(size) for _ in range(n)] if r == n - 1 else []
    dist.gather(x, outs, dst=n - 1)
    if outs:
        same(minitorch.stack(outs), xs)
    parts = list(w.reshape(n, size)) if r == 0 else None
    out = x.new_zeros(size)
    dist.scatter(out, parts, src=0)
    same(out, wide[0].reshape(n, size)[r])


def uneven_parts() -> None:
    """Rank s sends s + r rows to rank r."""
    n, r = dist.get_world_size(), dist.get_rank()
    went, came = [r + i for i in range(n)], [i + r for i in range(n)]
    x = minitorch.full((sum(went), 2), float(r))
    out = minitorch.zeros(sum(came), 2)
    dist.all_to_all_single(out, x, came, went)
    same(out[:, 1], np.repeat(np.arange(n), came))
    outs = [minitorch.zeros(2, rows) for rows in came]
    work = dist.all_to_all(outs, x.split(went), async_op=True)
    assert work is not None and work.wait()
    for i, y in enumerate(outs):
        same(y, np.full((2, came[i]), i))


def messages() -> None:
    """Around the ring, in every way; tags and empty messages."""
    n, r = dist.get_world_size(), dist.get_rank()
    if n == 1:
        return
    right, left = (r + 1) % n, (r - 1) % n
    x, y = minitorch.full((3,), float(r)), minitorch.zeros(3)
    work = dist.isend(x, right)
    assert dist.recv(y, left) == left
    assert work is not None and work.wait() and work.is_completed()
    same(y, [left] * 3)
    empty = minitorch.zeros(0)
    ops = [dist.P2POp(dist.isend, 10 * x, right), dist.P2POp(dist.irecv, y, left)]
    ops += [dist.P2POp(dist.isend, empty, right), dist.P2POp(dist.irecv, empty, left)]
    for each in dist.batch_isend_irecv(ops):
        each.wait()
    same(y, [10.0 * left] * 3)
    if r == 0:
        senders = [dist.recv(y) for _ in range(n - 1)]
        assert sorted(senders) == list(range(1, n))
    else:
        dist.send(x, 0)
    dist.barrier()
    if r == 0:
        sent = [dist.isend(x + tag, 1, tag=tag) for tag in (5, 6)]
        assert all(work is not None and work.wait() for work in sent)
    if r == 1:
        for tag in (6, 5):
            dist.recv(y, 0, tag=tag)
            same(y, [tag] * 3)


def at_once() -> None:
    """Several collectives under way, waited for in another order."""
    n, r = dist.get_world_size(), dist.get_rank()
    tensors = [minitorch.full((k + 1,), float(r)) for k in range(4)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    for work in reversed(works):
        assert work is not None and work.wait()
    for k, x in enumerate(tensors):
        same(x, [n * (n - 1) / 2] * (k + 1))
    work = dist.barrier(async_op=True)
    assert work is not None
    while not work.is_completed():
        pass


def groups() -> None:
    """A group of the even ranks; objects; the numbers of ranks."""
    n, r = dist.get_world_size(), dist.get_rank()
    even = dist.new_group(range(0, n, 2))
    x = minitorch.tensor([float(r)])
    if r % 2 == 0:
        assert dist.get_rank(even) == r // 2
        dist.all_reduce(x, group=even)
        same(x, [sum(range(0, n, 2))])
        last = dist.get_process_group_ranks(even)[-1]
        x = minitorch.tensor([float(r)])
        dist.broadcast(x, last, group=even)
        same(x, [last])
        assert dist.get_group_rank(even, last) == dist.get_world_size(even) - 1
    else:
        assert even is dist.GroupMember.NON_GROUP_MEMBER
        assert dist.get_rank(even) == dist.get_world_size(even) == -1
    found: list[Any] = [None] * n
    dist.all_gather_object(found, {"rank": r, "text": "x" * r})
    assert [each["rank"] for each in found] == list(range(n))
    objects = [r, "of", r]
    dist.broadcast_object_list(objects, src=n - 1)
    assert objects == [n - 1, "of", n - 1]
    dist.gather_object(r, found if r == n - 1 else None, dst=n - 1)
    assert r < n - 1 or found == list(range(n))
    dist.scatter_object_list(objects, list("abcdefgh"[:n]) if r == 0 else None)
    assert objects == ["abcdefgh"[r], "of", n - 1]


def mesh() -> None:
    """A grid of all ranks: sums along its rows and columns."""
    n, r = dist.get_world_size(), dist.get_rank()
    rows = 2 if n % 2 == 0 else 1
    grid = dist.init_device_mesh("cpu", (rows, n // rows), ("dp", "tp"))
    numbers = np.arange(n).reshape(rows, -1)
    place = grid.get_coordinate()
    assert place is not None and numbers[tuple(place)] == r
    for dim, name in enumerate(("dp", "tp")):
        x = minitorch.tensor([float(r)])
        dist.all_reduce(x, group=grid.get_group(name))
        same(x, [np.moveaxis(numbers, dim, -1)[place[1 - dim]].sum()])
        assert grid[name].get_local_rank() == grid.get_local_rank(dim) == place[dim]
        assert grid[name].size() == grid.size(name) == grid.shape[dim]
    cube = dist.init_device_mesh("cpu", (rows, 1, n // rows), ("dp", "pp", "tp"))
    plane = cube["tp", "dp"]
    assert plane.mesh.tolist() == numbers.T.tolist()
    assert [plane.get_local_rank(name) for name in ("dp", "tp")] == place
    dist.barrier(device_ids=[r])


CHECKS = (collectives, uneven_parts, messages, at_once, groups, mesh)


def as_torch(name: str, op: str, size: int, dtype: str, root: int, seed: int) -> None:
    """One collective, ours and torch's own on the same numbers: to the last bit."""
    import torch
    import torch.distributed as theirs

    n, r = dist.get_world_size(), dist.get_rank()
    whole = size * n if name in ("reduce_scatter_tensor", "all_to_all_single") else size
    rng = np.random.default_rng((seed, r))
    a = rng.standard_normal(whole) * 9
    results = []
    for lib, library in ((dist, minitorch), (theirs, torch)):
        kind = getattr(library, dtype)
        x = library.tensor(a, dtype=library.float64).to(kind)
        y = library.zeros(size * n if "gather" in name else whole, dtype=kind)
        if name == "reduce_scatter_tensor":
            y = library.zeros(size, dtype=kind)
        how = getattr(lib.ReduceOp, op)
        if name in ("all_gather_into_tensor", "all_to_all_single"):
            getattr(lib, name)(y, x)
        elif name == "reduce_scatter_tensor":
            lib.reduce_scatter_tensor(y, x, how)
        elif name == "broadcast":
            lib.broadcast(x, root)
        elif name == "reduce":
            lib.reduce(x, root, how)
        else:
            lib.all_reduce(x, how)
        kept = name != "reduce" or r == root
        results.append((x.double().tolist() if kept else None, y.double().tolist()))
    (x, y), (x_torch, y_torch) = results
    np.testing.assert_array_equal(y, y_torch)
    np.testing.assert_array_equal(x, x_torch)


def unlike_models() -> str:
    """What a rank is told whose model is another."""
    try:
        DDP(nn.Linear(3, 4 + dist.get_rank()))
    except RuntimeError as error:
        return str(error)
    return "no error"


def _alone_again(folder: Any, i: int) -> None:
    """Leave all groups, and meet in another place."""
    n, r = dist.get_world_size(), dist.get_rank()
    dist.destroy_process_group()
    dist.init_process_group("gloo", f"file://{folder}/{i}", 60.0, n, r)


def unlike_calls(folder: Any, seen: bool) -> list[str]:
    """What ranks are told that differ in a size, a dtype, an operation, a root, a group
    or a message: before anything is sent; or in the call, when they have waited.

    They cannot go on then, so each time they meet again.
    """
    from minitorch.distributed import transport

    r, x = dist.get_rank(), minitorch.ones(3)
    double, four = minitorch.ones(3, dtype=minitorch.float64), minitorch.ones(4)
    cases = (
        lambda: dist.all_reduce(minitorch.ones(3 + r)),
        lambda: dist.all_reduce((x, double)[r]),
        lambda: dist.all_reduce(x, (ReduceOp.SUM, ReduceOp.MAX)[r]),
        lambda: dist.broadcast(x, r),
        lambda: [dist.new_group([r]) for _ in iter(lambda: sleep(0.05), 0)],
        lambda: message(minitorch.ones(4), x),
        lambda: message(minitorch.ones(2), x),
        lambda: message(double, x),
        lambda: message(x, double, batched=True),
        lambda: dist.all_to_all_single(four, four, [2, 2], ([1, 3], [2, 2])[r]),
        # Who sends goes on, and waits in the call behind it.
        lambda: (dist.broadcast(x) if r == 0 else dist.all_reduce(x), dist.barrier()),
        lambda: (dist.all_reduce(minitorch.ones(3 + r)), dist.barrier()),
        lambda: (dist.all_reduce, dist.broadcast)[r](x),
    )

    def message(sent: Tensor, wanted: Tensor, batched: bool = False) -> None:
        op, y = ((dist.isend, sent), (dist.irecv, wanted))[r]
        if batched:
            dist.batch_isend_irecv([dist.P2POp(op, y, 1 - r)])[0].wait()
        else:
            op(y, 1 - r).wait()
        dist.barrier()

    kept, told = (transport.COMPARED, transport.PATIENCE), []
    transport.PATIENCE = transport.timedelta(seconds=0.2)
    for i, case in enumerate(cases[-3:] if seen else cases):
        _alone_again(folder, i)
        for _ in range(3):
            dist.all_reduce(x)
        transport.COMPARED = 0 if seen else kept[0]
        try:
            case()
        except RuntimeError as error:
            told.append(str(error))
    transport.COMPARED, transport.PATIENCE = kept
    _alone_again(folder, len(cases))
    return told


def groups_come_and_go(folder: Any) -> None:
    """One that was destroyed is refused, and what was sent in it is forgotten."""
    from torch.distributed import FileStore

    x = minitorch.ones(3)
    group = dist.new_group([0, 1])
    group.slow = dist.new_group([0, 1])  # as `beside` makes one, by NCCL
    dist.destroy_process_group(group)
    for call in (
        lambda: dist.barrier(group.slow),
        lambda: dist.all_reduce(x, group=group),
        lambda: dist.barrier(group),
        lambda: dist.get_rank(group),
    ):
        try:
            call()
        except ValueError as error:
            assert "the group was destroyed" in str(error)
        else:
            raise AssertionError
    # Twice in one file, which is held: torch deletes one that nobody holds, and a rank
    # that has just opened it would look for the others in a file that is gone.
    held = FileStore(f"{folder}/0", dist.get_world_size())
    for i in range(2):
        _alone_again(folder, 0)
        (dist.all_reduce, dist.broadcast)[i](x)
    same(x, [2.0] * 3)
    del held


def no_copy() -> None:
    """torch works on our memory, which stays while work is under way."""
    from minitorch.distributed.transport import lend

    x = minitorch.ones(1000)
    assert lend(x).data_ptr() == x.numpy().ctypes.data
    half = minitorch.ones(4, dtype=minitorch.bfloat16)
    assert lend(half[2:]).tolist() == [1.0, 1.0]
    tensors = [minitorch.full((100_000,), float(i)) for i in range(8)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    arrays = [t.numpy() for t in tensors]
    del tensors  # the work holds them
    for i, work in enumerate(works):
        assert work is not None and work.wait()
        assert (arrays[i] == 2 * i).all()


def add_up_for_ever(count: int) -> None:
    """All-reduces, one after the other, until one fails."""
    x = minitorch.ones(count)
    while True:
        dist.all_reduce(x)


# ------------------------------------------------------------------------ training


class Tied(nn.Module):
    """A small language model whose first and last weights are one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.frozen = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.sometimes = nn.Linear(6, 6)
        self.never = nn.Linear(2, 3)
        self.frozen.requires_grad_(False)

    def forward(self, tokens: Any, extra: bool) -> Any:
        x = self.norm(self.frozen(self.embed(tokens)).tanh())
        return {"logits": [self.head(x + self.sometimes(x) if extra else x)]}


def batches(step: int, size: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(step)
    tokens = minitorch.from_numpy(rng.integers(0, 11, (size, 3)))
    return tokens, minitorch.from_numpy(rng.integers(0, 11, size * 3))


def loss_of(model: Any, step: int, rows: slice, extra: bool, whole: int = 8) -> Any:
    """The sum over some rows of a batch, by the number of all."""
    tokens, targets = batches(step, whole)
    logits = model(tokens[rows], extra)["logits"][0].view(-1, 11)
    losses = nn.functional.cross_entropy(
        logits, targets.view(whole, 3)[rows].reshape(-1), reduction="none"
    )
    return losses.sum() / (3 * whole)


def trains_as_one(
    cap: float = 25, micro: int = 1, to_none: bool = True, whole: int = 8
) -> float:
    """20 steps by all ranks on parts of a batch, and by one on all of it.

    One layer is frozen, one is never used, and one by some ranks in some steps; the
    embedding is the head. Returns the largest relative difference of a parameter.
    """
    n, r = dist.get_world_size(), dist.get_rank()
    minitorch.manual_seed(5)
    alone = Tied().double()
    minitorch.manual_seed(100 + r)
    model = DDP(Tied().double(), bucket_cap_mb=cap, find_unused_parameters=True)
    copy = {f"module.{k}": v for k, v in alone.state_dict().items()}
    model.load_state_dict(copy)
    both = [minitorch.optim.AdamW(m.parameters(), lr=0.01) for m in (alone, model)]
    parts = [slice(k, None, n * micro) for k in range(n * micro)]
    for step in range(20):
        extra = [(step + k // micro) % 3 == 0 for k in range(n * micro)]
        for optimizer in both:
            optimizer.zero_grad(set_to_none=to_none)
        for k, rows in enumerate(parts):
            loss_of(alone, step, rows, extra[k], whole).backward()
        for k in range(micro):
            model.require_backward_grad_sync = k == micro - 1
            mine = r * micro + k
            loss = loss_of(model, step, parts[mine], extra[mine], whole)
            (loss * n).backward()
        for optimizer in both:
            optimizer.step()
    assert all(p.grad is None for p in model.module.frozen.parameters())
    pairs = zip(alone.parameters(), model.parameters())
    return max(_apart(a.detach().numpy(), b.detach().numpy()) for a, b in pairs)


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.max(np.abs(a - b)) / np.max(np.abs(a)))


def plain_training(seed: int = 1) -> float:
    """As above, all parameters used: buckets are made again after the first step."""
    n, r = dist.get_world_size(), dist.get_rank()
    make = lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    minitorch.manual_seed(seed)
    alone = make()
    minitorch.manual_seed(seed if r == 0 else 77)
    model = DDP(make(), bucket_cap_mb=100 / 2**20)  # rank 0's state goes to all
    both = [minitorch.optim.SGD(m.parameters(), 0.1, 0.9) for m in (alone, model)]
    for step in range(20):
        data = np.random.default_rng(step).standard_normal((4 * n, 5))
        x = minitorch.from_numpy(data)
        for optimizer in both:
            optimizer.zero_grad()
        alone(x).square().mean().backward()
        model(x[r::n]).square().mean().backward()
        for optimizer in both:
            optimizer.step()
    assert len(model.reducer.buckets) == 4
    assert model.reducer.settled
    pairs = zip(alone.parameters(), model.parameters())
    return max(_apart(a.detach().numpy(), b.detach().numpy()) for a, b in pairs)


def homeless(model: Any) -> Any:
    """The model, whose gradients are all made elsewhere and copied into buckets."""
    model.reducer._offer = lambda i: None
    for p in model.parameters():
        p.home = None
    return model


def gpt_at_home(kind: str) -> tuple[bool, set[str]]:
    """A GPT, whose table of tokens is its head, too: whether gradients are what they
    are without homes, to the bit, and which were copied, when buckets had settled."""
    from minitorch.amp import autocast
    from minitorch.models import GPT
    from minitorch.train.gpt.shared import Loss

    copied: set[str] = set()

    def trained(how: Any) -> list[np.ndarray]:
        minitorch.manual_seed(0)
        model = GPT.preset("tiny", dropout=0.0)
        model = model.bfloat16() if kind == "bfloat16" else model
        whole = how(DDP(Loss(model), bucket_cap_mb=0.05))
        optimizer = minitorch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        found = []
        for step, micro in enumerate((1, 1, 1, 2, 1)):
            optimizer.zero_grad(set_to_none=step != 1)
            for k in range(micro):  # all but the last under no_sync()
                rng = np.random.default_rng((step, k, dist.get_rank()))
                ids = minitorch.from_numpy(rng.integers(0, 65, (2, 17)))
                whole.require_backward_grad_sync = k == micro - 1
                with autocast("cpu", minitorch.bfloat16, enabled=kind == "autocast"):
                    loss = whole(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
                if (step, k) == (2, 0):
                    _watch(whole.reducer, copied)
                loss.backward()
            found += [p.grad.float().numpy().copy() for p in model.parameters()]
            optimizer.step()
        return found

    right = trained(homeless)
    assert "model.wte.weight" in copied
    copied.clear()
    alike = all(map(np.array_equal, right, trained(lambda model: model)))
    return alike, copied


def _watch(reducer: Any, copied: set[str]) -> None:
    """Note the names of parameters whose gradient is not in its place."""
    fill = reducer._fill

    def noting(bucket: Any) -> None:
        for i, place in bucket.places.items():
            if reducer.parameters[i].grad.raw is not place.raw:
                copied.add(reducer.names[i])
        fill(bucket)

    reducer._fill = noting


def times_of_sums() -> Any:
    """What the bench of all-reduces measures, of small ones."""
    from minitorch.bench import collectives

    collectives.SECONDS = 0.0
    return collectives.work("cpu", 4 * collectives.KIB)


def times_of_steps() -> Any:
    """What the bench of a GPT on several ranks measures, of a small one."""
    from minitorch.bench import gpt_ranks

    gpt_ranks.ROUNDS = gpt_ranks.STEPS = gpt_ranks.WARM_UP = 1
    return gpt_ranks.work("steps", ["tiny"], ["float32"], "cpu", False)


def waits_of_pipelines() -> Any:
    """What the bench of pipelines measures, of a small one."""
    from minitorch.bench import pipeline

    pipeline.ROUNDS = 1
    return pipeline.rank(2, 3)


def profiled() -> list[str]:
    """What a profile shows of a backward pass with three buckets."""
    from minitorch.profiler import profile

    layers = [nn.Linear(4, 4, bias=False) for _ in range(3)]
    model = DDP(nn.Sequential(*layers), bucket_cap_mb=1e-6)
    loss = model(minitorch.ones(2, 4)).sum()
    with profile() as found:
        loss.backward()
    seen = sorted((e for e in found.events()), key=lambda e: e.start)
    return [e.name for e in seen if "all_reduce" in e.name or "Linear" in e.name]


def uneven_numbers_of_batches(find_unused: bool = False) -> float:
    """In each of two epochs rank r has 2 + r batches; one process adds up the gradients
    of those at work. At last all take one step more."""
    n, r = dist.get_world_size(), dist.get_rank()
    make = lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    minitorch.manual_seed(3)
    alone = make().double()
    model = DDP(make().double(), find_unused_parameters=find_unused)
    model.module.load_state_dict(alone.state_dict())
    both = [minitorch.optim.SGD(m.parameters(), 0.1) for m in (alone, model)]
    data = np.random.default_rng(4).standard_normal((n, n + 1, 3, 5))

    def learn(module: Any, rank: int, step: int, scale: float = 1.0) -> None:
        loss = module(minitorch.from_numpy(data[rank, step])).square().sum()
        (loss * scale).backward()

    def step_alone(step: int, first: int) -> None:
        both[0].zero_grad()
        for rank in range(first, n):
            learn(alone, rank, step, 1 / n)
        both[0].step()

    for _ in range(2):
        with model.join():
            for step in range(2 + r):
                both[1].zero_grad()
                learn(model, r, step)
                both[1].step()
        for step in range(n + 1):
            step_alone(step, max(step - 1, 0))
    both[1].zero_grad()
    learn(model, r, 0)
    both[1].step()
    step_alone(0, 0)
    pairs = zip(alone.parameters(), model.parameters())
    return max(_apart(a.detach().numpy(), b.detach().numpy()) for a, b in pairs)


def buffers() -> list[float]:
    """The running mean of a batch norm is rank 0's, on all ranks."""
    model = DDP(nn.BatchNorm1d(2))
    for _ in range(2):
        model(minitorch.ones(3, 2) * dist.get_rank()).sum().backward()
    model.eval()
    model(minitorch.ones(3, 2))
    return model.module.running_mean.tolist()


def gradients_through_collectives() -> None:
    """Those of the sum of all losses, against one process that has all inputs."""
    n, r = dist.get_world_size(), dist.get_rank()
    rng = np.random.default_rng(8)
    inputs = [minitorch.from_numpy(a) for a in rng.standard_normal((n, n, 2))]
    weights = [minitorch.from_numpy(a) for a in rng.standard_normal((n, n * n, 2))]
    cat, total = minitorch.cat, lambda xs: minitorch.stack(list(xs)).sum(0)
    row = lambda xs, k: cat([x[k : k + 1] for x in xs])
    cases = {
        F.all_reduce: lambda xs, k: total(xs),
        F.broadcast: lambda xs, k: xs[0],
        F.all_gather_into_tensor: lambda xs, k: cat(list(xs)),
        F.reduce_scatter_tensor: lambda xs, k: total(xs)[k : k + 1],
        F.all_to_all_single: row,
        (lambda x: F.all_reduce(x, ReduceOp.AVG)): lambda xs, k: total(xs) / n,
        (lambda x: minitorch.stack(list(F.all_gather(x))).sum(0)): (
            lambda xs, k: total(xs)
        ),
    }
    for ours, whole in cases.items():
        x = inputs[r].clone().requires_grad_()
        out = ours(x.T.contiguous().T)  # any strides
        (out.square() * weights[r][: len(out)]).sum().backward()
        xs = [a.clone().requires_grad_() for a in inputs]
        for k in range(n):
            expected = whole(xs, k)
            (expected.square() * weights[k][: len(expected)]).sum().backward()
        same(out.detach(), whole(xs, r).detach().numpy())
        grad = xs[r].grad
        same(x.grad, np.zeros((n, 2)) if grad is None else grad.numpy())
    same(F.all_gather_into_tensor(minitorch.tensor(float(r))), range(n))
