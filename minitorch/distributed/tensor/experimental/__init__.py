"""Sequences of which each rank has a part (`context_parallel`)."""

from minitorch.distributed.tensor.experimental.ring_attention import (
    context_parallel,
    own_part,
    ring_attention,
)
