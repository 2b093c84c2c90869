"""Gradients as they are, or in half the bytes.

With this file the buckets of DistributedDataParallel are sent as bfloat16 or float16:
`model.register_comm_hook(None, fp16_compress_hook)`. A hook gets the state that was
registered with it, here the group or None, and a bucket; it begins to send at once.
"""

from __future__ import annotations

from minitorch.distributed.collectives import Group, all_reduce, member
from minitorch.distributed.group import Future
from minitorch.distributed.rules import ReduceOp
from minitorch.dtypes import DType, bfloat16, float16
from minitorch.nn.parallel.reducer import Bucket
from minitorch.tensor import Tensor


def mean_of_all(x: Tensor, group: Group) -> Future:
    """Begin to make x the mean of all ranks'; it holds x."""
    work = all_reduce(x, ReduceOp.AVG, group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


def allreduce_hook(process_group: Group, bucket: Bucket) -> Future:
    """The mean, as without a hook."""
    return mean_of_all(bucket.buffer(), process_group)


def bf16_compress_hook(process_group: Group, bucket: Bucket) -> Future:
    """Sent and added as bfloat16, divided before that by the number of ranks."""
    return _as(bfloat16, process_group, bucket)


def fp16_compress_hook(process_group: Group, bucket: Bucket) -> Future:
    """Sent and added as float16, divided before that: the sum is in range."""
    return _as(float16, process_group, bucket)


def _as(dtype: DType, process_group: Group, bucket: Bucket) -> Future:
    group = member("compress_hook", process_group)
    assert group is not None
    whole = bucket.buffer()
    half = (whole / group.size()).to(dtype)
    work = all_reduce(half, ReduceOp.SUM, group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0].to(whole.dtype))
