"""How a tensor lies on the ranks of a group (`Shard`, `Replicate`).

With this package one can cut layers over ranks: `tensor.parallel`; and sequences:
`tensor.experimental`. Names are those of torch.distributed.tensor. There is no DTensor
here: a rank's tensors are its parts, and what stands where is said to the layers; a
state that is saved has a `ShardedTensor` for each part.
"""

from minitorch.distributed.tensor.placement import (
    Cut,
    Placement,
    Replicate,
    Shard,
    ShardedTensor,
)
