"""Who takes part: how ranks find each other, and groups of some of them.

With this file a program that was started once for each rank (`torchrun
--nproc_per_node=4 program.py`) begins to work together (`init_process_group`), asks
which of the ranks it is (`get_rank`), and makes groups of its own (`new_group`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from minitorch.distributed.collectives import Group, GroupMember, in_group, member
from minitorch.distributed.group import ProcessGroup, everywhere, world


def is_available() -> bool:
    """Whether torch, whose process groups move the numbers, is installed. (Ranks that
    are threads, `spawn_threads`, need none.)"""
    from importlib.util import find_spec

    return find_spec("torch") is not None


def is_initialized() -> bool:
    """Whether there is a group of all ranks."""
    return world() is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    device_id: Any = None,
) -> None:
    """Meet the other ranks; torch is imported here.

    Args:
        backend: "gloo" between CPUs, "nccl" between GPUs; both, if None.
        init_method: where to meet: "env://" (the default), the address in the
            variables that torchrun sets; "file:///shared/name", a file that is not
            there yet; "tcp://host:port", of rank 0.
        timeout: seconds (or a timedelta) after which a rank that has waited gives up.
        world_size, rank: how many ranks, and which one this is; not for "env://".
        device_id: the GPU that this rank works on, for NCCL to connect at once.

    Raises:
        RuntimeError: torch is missing, there is a group already, a variable is not
            set, or the others did not come.
        ValueError: there is no such rank, no such backend, or no time.
    """
    if world() is not None:
        raise RuntimeError(
            "init_process_group: there is a process group already; call "
            "destroy_process_group() first"
        )
    if (init_method or "env://").startswith("env://"):
        _look_for_variables(world_size, rank)
    elif not 0 <= rank < world_size:
        raise ValueError(
            f"init_process_group: rank is {rank} and world_size {world_size}; expected "
            f"a rank from 0 to world_size - 1"
        )
    limit = _limit(timeout)
    try:
        from minitorch.distributed import transport
    except ImportError as error:
        raise RuntimeError(
            "init_process_group: torch is not installed, whose process groups move the "
            "numbers; pip install torch, or try spawn_threads, which needs none"
        ) from error
    where = {"init_method": init_method, "world_size": world_size, "rank": rank}
    options = {**where, **limit}
    everywhere.group = transport.start(backend, device_id, **options)


def _look_for_variables(world_size: int, rank: int) -> None:
    needed = ["MASTER_ADDR", "MASTER_PORT"]
    needed += ["RANK"] if rank < 0 else []
    needed += ["WORLD_SIZE"] if world_size < 0 else []
    missing = [name for name in needed if name not in os.environ]
    if missing:
        raise RuntimeError(
            f"init_process_group: the variables {', '.join(missing)} are not set; "
            f"start the program with torchrun, which sets them, or give init_method, "
            f"world_size and rank"
        )


def _limit(timeout: timedelta | float | None) -> dict[str, timedelta]:
    if timeout is None:
        return {}
    limit = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
    if limit <= timedelta(0):  # for torch: without end
        raise ValueError(f"timeout is {timeout}; expected more than 0 seconds")
    return {"timeout": limit}


def destroy_process_group(group: Group = None) -> None:
    """Leave a group, or all of them (None), when nothing is under way any more."""
    found = member("destroy_process_group", group)
    if found is None:
        return
    found.close()
    if found is everywhere.group:
        everywhere.group = None


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
) -> Any:
    """A group of some ranks. All ranks must call this, also those that are not in it.

    Returns:
        what the functions here take as `group`; `GroupMember.NON_GROUP_MEMBER` on a
        rank that is not in it.
    """
    everyone = member("new_group")
    assert everyone is not None
    chosen = sorted(everyone.ranks if ranks is None else ranks)
    for rank in chosen:
        in_group("new_group", everyone, rank, "a rank")
    if not chosen or len(set(chosen)) != len(chosen):
        raise ValueError(f"new_group: ranks are {chosen}; expected some, each once")
    options = _limit(timeout) | ({} if backend is None else {"backend": backend})
    group = everyone.subgroup(tuple(chosen), **options)
    return GroupMember.NON_GROUP_MEMBER if group is None else group


def get_rank(group: Group = None) -> int:
    """Which rank of the group this is, from 0 on; -1 if it is not in it."""
    found = _of("get_rank", group)
    return -1 if found is None else found.rank()


def get_world_size(group: Group = None) -> int:
    """How many ranks the group has; -1 if this is none of them."""
    found = _of("get_world_size", group)
    return -1 if found is None else found.size()


def get_backend(group: Group = None) -> str:
    """What moves the numbers: "gloo", "nccl", "threads"."""
    found = member("get_backend", group)
    return "" if found is None else found.backend


def get_process_group_ranks(group: Group = None) -> list[int]:
    """The group's ranks, by their numbers among all."""
    found = member("get_process_group_ranks", group)
    return [] if found is None else list(found.ranks)


def get_group_rank(group: Group, global_rank: int) -> int:
    """The number within the group of a rank of all ranks."""
    found = member("get_group_rank", group)
    assert found is not None
    return in_group("get_group_rank", found, global_rank, "global_rank")


def get_global_rank(group: Group, group_rank: int) -> int:
    """The number among all ranks of one of the group."""
    ranks = get_process_group_ranks(group)
    if group_rank not in range(len(ranks)):
        raise ValueError(
            f"get_global_rank: group_rank is {group_rank!r}; expected a number from 0 "
            f"to {len(ranks) - 1}"
        )
    return ranks[group_rank]


def _of(caller: str, group: Group) -> ProcessGroup | None:
    """As `member`, without a warning."""
    return None if group is GroupMember.NON_GROUP_MEMBER else member(caller, group)
