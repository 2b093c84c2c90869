"""Work by several processes, or ranks, together.

With this package a program that `torchrun` starts once for each rank can exchange
tensors. Names and meaning are those of torch.distributed, whose process groups move the
numbers; torch is imported by `init_process_group`, and not before.

init_process_group, new_group, get_rank, ...    who takes part        setup.py
DeviceMesh, init_device_mesh                    ranks in a grid       device_mesh.py
all_reduce, broadcast, all_gather, ...,         what ranks do         collectives.py
send, recv, batch_isend_irecv                   messages
all_gather_object, broadcast_object_list        what is no tensor     objects.py
spawn_threads                                   ranks as threads      threads.py
classroom                                       the same by messages  classroom.py
nn.functional                                   with gradients        nn/functional.py

Packages of it that are imported by their names: `tensor.parallel` (layers that ranks
share), `tensor.experimental` (sequences), `pipelining` (stages).
"""

from __future__ import annotations

from minitorch.distributed.collectives import (
    GroupMember,
    P2POp,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    gather,
    irecv,
    isend,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from minitorch.distributed.device_mesh import DeviceMesh, init_device_mesh
from minitorch.distributed.group import ProcessGroup, Work
from minitorch.distributed.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    scatter_object_list,
)
from minitorch.distributed.rules import ReduceOp
from minitorch.distributed.setup import (
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_initialized,
    new_group,
)
from minitorch.distributed.threads import spawn_threads

group = GroupMember  # PyTorch's group.WORLD
