"""What ranks do together, and messages from one to another.

With this file one can send tensors between ranks, by PyTorch's names. All is in place:
results are written into tensors that the caller brings, and nothing is recorded for a
backward pass. Tensors are checked here, before anything is sent: an error on one rank
alone would leave the others waiting.

With `async_op=True` a function returns a `Work` at once, and its tensors must not be
touched before `wait()`. What each function does to the numbers: `rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from minitorch.distributed.group import ProcessGroup, Work, world
from minitorch.distributed.rules import ReduceOp
from minitorch.tensor import Tensor
from minitorch.warn import warn

Group = Any  # a ProcessGroup; None: all ranks; or NON_GROUP_MEMBER


class GroupMember:
    """What stands for a group: None for that of all ranks, or for one without us."""

    WORLD = None
    NON_GROUP_MEMBER = object()


def member(caller: str, group: Group = None) -> ProcessGroup | None:
    """The group to work in; None, with a warning, if this rank is not in it.

    Raises:
        ValueError: no process group was made, or this one was destroyed.
        TypeError: `group` is no group.
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        warn(f"{caller}: this rank is not in the group, and does nothing")
        return None
    found = world() if group is None else group
    if found is None:
        raise ValueError(
            f"{caller}: there is no process group; call "
            f"minitorch.distributed.init_process_group() first"
        )
    if not isinstance(found, ProcessGroup):
        raise TypeError(
            f"{caller}: group is a {type(group).__name__}; expected what new_group "
            f"returned, or None for all ranks"
        )
    if found.closed:
        raise ValueError(f"{caller}: the group was destroyed; make one by new_group()")
    return found


def in_group(caller: str, group: ProcessGroup, rank: int, what: str) -> int:
    """The number within the group of a rank of all ranks."""
    if rank not in group.ranks:
        raise ValueError(
            f"{caller}: {what} is {rank!r}; expected one of the group's ranks, "
            f"{list(group.ranks)}"
        )
    return group.ranks.index(rank)


def check(caller: str, group: ProcessGroup, **tensors: Any) -> None:
    """Errors for what cannot be sent as it lies in memory; all of one dtype, device."""
    first: Tensor | None = None
    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{caller}: {name} is a {type(x).__name__}; expected a tensor"
            )
        if not x.is_contiguous():
            raise ValueError(
                f"{caller}: {name} has shape {tuple(x.shape)} and strides "
                f"{x.stride()}, and is not contiguous; memory is sent as it lies, so "
                f"give a tensor.contiguous()"
            )
        first = x if first is None else first
        if x is not first and (x.dtype, x.device) != (first.dtype, first.device):
            raise ValueError(
                f"{caller}: {name} is {x.dtype.name} on {str(x.device)!r}; expected "
                f"{first.dtype.name} on {str(first.device)!r}, as the tensor before it"
            )
        group.check(caller, x)


def _enter(
    caller: str, group: Group, op: ReduceOp | None = None, **tensors: Any
) -> ProcessGroup | None:
    """The group to work in, after all checks; None if this rank is not in it."""
    g = member(caller, group)
    if g is not None:
        check(caller, g, **tensors)
        if op is not None:
            _check_op(caller, op, next(iter(tensors.values())))
    return g


def _check_op(caller: str, op: Any, x: Tensor) -> None:
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{caller}: op is {op!r}; expected a ReduceOp, such as SUM")
    if op is ReduceOp.AVG and not x.dtype.is_floating_point:
        raise ValueError(
            f"{caller}: ReduceOp.AVG of {x.dtype.name}; the average of whole numbers "
            f"is none, so use ReduceOp.SUM, or tensor.float()"
        )


def _check_size(caller: str, name: str, x: Tensor, expected: int, why: str) -> None:
    if x.numel() != expected:
        raise ValueError(
            f"{caller}: {name} has {x.numel()} element(s), of shape {tuple(x.shape)}; "
            f"expected {expected}: {why}"
        )


def _named(caller: str, what: str, tensors: Any, first: Any, n: int) -> Any:
    """A list of a tensor for each rank, as large as `first`, by names for `check`."""
    if not isinstance(tensors, (list, tuple)) or len(tensors) != n:
        given = f"{len(tensors)} of them" if hasattr(tensors, "__len__") else tensors
        raise ValueError(f"{caller}: {what}: got {given}; expected a list of {n}")
    for i, x in enumerate(tensors):
        if isinstance(x, Tensor) and isinstance(first, Tensor):
            why = "every rank brings as many"
            _check_size(caller, f"{what}[{i}]", x, first.numel(), why)
    return {f"{what}[{i}]": x for i, x in enumerate(tensors)}


def _finish(work: Work, async_op: bool, *written: Tensor) -> Work | None:
    """Wait, unless the caller will; what was saved of the outputs is out of date."""
    for x in written:
        x.raw.storage.version += 1
    work.results = written
    if async_op:
        return work
    work.wait()
    return None


# -------------------------------------------------------------- one tensor each


def all_reduce(
    tensor: Tensor,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """`tensor` becomes the sum (or what `op` says) of those of all ranks."""
    g = _enter("all_reduce", group, op, tensor=tensor)
    if g is None:
        return None
    return _finish(g.all_reduce(tensor, op, async_op), async_op, tensor)


def broadcast(
    tensor: Tensor, src: int = 0, group: Group = None, async_op: bool = False
) -> Work | None:
    """`tensor` becomes that of rank `src`."""
    g = _enter("broadcast", group, tensor=tensor)
    if g is None:
        return None
    root = in_group("broadcast", g, src, "src")
    return _finish(g.broadcast(tensor, root), async_op, tensor)


def reduce(
    tensor: Tensor,
    dst: int = 0,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """On rank `dst`, `tensor` becomes the sum of those of all ranks. Elsewhere it may
    have been used as scratch memory: don't read it."""
    g = _enter("reduce", group, op, tensor=tensor)
    if g is None:
        return None
    root = in_group("reduce", g, dst, "dst")
    return _finish(g.reduce(tensor, root, op), async_op, tensor)


def barrier(
    group: Group = None, async_op: bool = False, device_ids: Any = None
) -> Work | None:
    """Go on when all ranks have come here; each waits on its current device, and
    `device_ids`, with which PyTorch is told of it, is not needed."""
    g = _enter("barrier", group)
    return None if g is None else _finish(g.barrier(), async_op)


# ------------------------------------------------------- parts for, or of, each rank


def all_gather(
    tensor_list: Sequence[Tensor],
    tensor: Tensor,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """`tensor_list[r]` becomes the tensor of rank r."""
    g = member("all_gather", group)
    if g is None:
        return None
    outs = _named("all_gather", "tensor_list", tensor_list, tensor, g.size())
    check("all_gather", g, tensor=tensor, **outs)
    return _finish(g.all_gather(tensor_list, tensor), async_op, *tensor_list)


def all_gather_into_tensor(
    output_tensor: Tensor,
    input_tensor: Tensor,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """`output_tensor` [n * k, ...] becomes all ranks' inputs [k, ...] in order."""
    name = "all_gather_into_tensor"
    g = _enter(name, group, input_tensor=input_tensor, output_tensor=output_tensor)
    if g is None:
        return None
    why = f"{g.size()} ranks give {input_tensor.numel()} each"
    count = g.size() * input_tensor.numel()
    _check_size(name, "output_tensor", output_tensor, count, why)
    work = g.all_gather_into(output_tensor, input_tensor)
    return _finish(work, async_op, output_tensor)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """`output` [k, ...] becomes our part of the sum of all inputs [n * k, ...]."""
    name = "reduce_scatter_tensor"
    g = _enter(name, group, op, output=output, input=input)
    if g is None:
        return None
    why = f"{g.size()} ranks get {output.numel()} each"
    _check_size(name, "input", input, g.size() * output.numel(), why)
    return _finish(g.reduce_scatter(output, input, op), async_op, output)


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """`output` becomes the sum of what all ranks' lists have for this one."""
    g = member("reduce_scatter", group)
    if g is None:
        return None
    parts = _named("reduce_scatter", "input_list", input_list, output, g.size())
    check("reduce_scatter", g, output=output, **parts)
    _check_op("reduce_scatter", op, output)
    work = g.reduce_scatter(output, _as_one(input_list), op)
    return _finish(work, async_op, output)


def all_to_all(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """`input_tensor_list[r]` goes to rank r; `output_tensor_list[r]` comes from it."""
    g = member("all_to_all", group)
    if g is None:
        return None
    outs, ins, n = output_tensor_list, input_tensor_list, g.size()
    named = _named("all_to_all", "input_tensor_list", ins, None, n)
    named |= _named("all_to_all", "output_tensor_list", outs, None, n)
    check("all_to_all", g, **named)
    came, went = [x.numel() for x in outs], [x.numel() for x in ins]
    flat = ins[0].new_zeros(sum(came))
    work = g.all_to_all(flat, _as_one(ins), came, went)

    def arrive() -> None:
        work.wait()
        for out, part in zip(outs, flat.split(came)):
            out.detach().copy_(part.view(out.shape))

    return _finish(Work(arrive, work.is_completed), async_op, *outs)


def _as_one(tensors: Sequence[Tensor]) -> Tensor:
    """All their numbers, one behind the other."""
    return Tensor.cat([x.detach().flatten() for x in tensors])


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Part r of `input` goes to rank r; part r of `output` comes from it.

    Args:
        output_split_sizes, input_split_sizes: rows of each part; equal parts, if None.
    """
    name = "all_to_all_single"
    g = _enter(name, group, output=output, input=input)
    if g is None:
        return None
    came = _splits(name, "output", output, output_split_sizes, g.size())
    went = _splits(name, "input", input, input_split_sizes, g.size())
    return _finish(g.all_to_all(output, input, came, went), async_op, output)


def _splits(
    caller: str, name: str, x: Tensor, sizes: Sequence[int] | None, n: int
) -> list[int]:
    """How many elements of x belong to each rank, from how many rows."""
    rows = x.shape[0] if x.dim() else 1
    if not sizes:
        if rows % n:
            raise ValueError(
                f"{caller}: {name} has {rows} row(s), and there are {n} ranks; "
                f"expected a multiple of {n}, or {name}_split_sizes"
            )
        sizes = [rows // n] * n
    if len(sizes) != n or sum(sizes) != rows or min(sizes) < 0:
        raise ValueError(
            f"{caller}: {name}_split_sizes are {list(sizes)}; expected {n} numbers "
            f"that add up to the {rows} row(s) of {name}"
        )
    return [size * (x.numel() // max(rows, 1)) for size in sizes]


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int = 0,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """`tensor` becomes `scatter_list[r]` of rank `src`; the others give no list."""
    g = member("scatter", group)
    if g is None:
        return None
    root = in_group("scatter", g, src, "src")
    parts = _roots_list("scatter", "scatter_list", scatter_list, tensor, g, root)
    return _finish(g.scatter(tensor, parts, root), async_op, tensor)


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int = 0,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """On rank `dst`, `gather_list[r]` becomes rank r's; the others give no list."""
    g = member("gather", group)
    if g is None:
        return None
    root = in_group("gather", g, dst, "dst")
    outs = _roots_list("gather", "gather_list", gather_list, tensor, g, root)
    return _finish(g.gather(tensor, outs, root), async_op, *outs)


def _roots_list(
    caller: str, what: str, given: Any, x: Tensor, g: ProcessGroup, root: int
) -> Sequence[Tensor]:
    """The list of the root, and [] elsewhere."""
    if g.rank() != root:
        if given:
            raise ValueError(
                f"{caller}: {what} is given on rank {g.ranks[g.rank()]}; only rank "
                f"{g.ranks[root]} has one"
            )
        check(caller, g, tensor=x)
        return []
    check(caller, g, tensor=x, **_named(caller, what, given, x, g.size()))
    return given


# ------------------------------------------------------------------------ messages


def isend(tensor: Tensor, dst: int, group: Group = None, tag: int = 0) -> Work | None:
    """Send to rank `dst`, which calls `recv` or `irecv`; go on at once."""
    g = _enter("isend", group, tensor=tensor)
    return None if g is None else g.send(tensor, _peer("isend", g, dst, "dst"), tag)


def irecv(
    tensor: Tensor, src: int | None = None, group: Group = None, tag: int = 0
) -> Work | None:
    """Receive what rank `src` (None: anyone) sends into `tensor`; go on at once."""
    g = _enter("irecv", group, tensor=tensor)
    if g is None:
        return None
    peer = None if src is None else _peer("irecv", g, src, "src")
    tensor.raw.storage.version += 1
    return g.receive(tensor, peer, tag)


def send(tensor: Tensor, dst: int, group: Group = None, tag: int = 0) -> None:
    """Send to rank `dst`; return when `tensor` may be changed again."""
    work = isend(tensor, dst, group, tag)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor, src: int | None = None, group: Group = None, tag: int = 0
) -> int:
    """Receive into `tensor`; the rank that sent it (-1 outside of the group)."""
    work = irecv(tensor, src, group, tag)
    if work is None:
        return -1
    work.wait()
    found = member("recv", group)
    assert found is not None
    return found.ranks[work.sender] if src is None else src


def _peer(caller: str, group: ProcessGroup, rank: int, what: str) -> int:
    peer = in_group(caller, group, rank, what)
    if peer == group.rank():
        raise ValueError(
            f"{caller}: {what} is {rank}, which is this rank; a rank does not send to "
            f"itself, so use copy_"
        )
    return peer


class P2POp(NamedTuple):
    """One message of `batch_isend_irecv`: `P2POp(isend, x, 1)`."""

    op: Callable[..., Any]
    tensor: Tensor
    peer: int
    group: Group = None
    tag: int = 0


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Start messages that go and come together, so that no order of them can hang."""
    name, messages = "batch_isend_irecv", []
    groups = {id(op.group) for op in p2p_op_list if isinstance(op, P2POp)}
    if len(groups) != 1 or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError(f"{name}: expected one or more P2POps, all of one group")
    g = member(name, p2p_op_list[0].group)
    if g is None:
        return []
    for op in p2p_op_list:
        if op.op is not isend and op.op is not irecv:
            raise ValueError(f"{name}: op is {op.op!r}; expected isend or irecv")
        check(name, g, tensor=op.tensor)
        goes, peer = op.op is isend, _peer(name, g, op.peer, "peer")
        op.tensor.raw.storage.version += not goes
        messages.append((goes, op.tensor, peer, op.tag))
    return g.batch(messages)
