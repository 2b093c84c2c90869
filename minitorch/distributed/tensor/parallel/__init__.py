"""Layers that ranks share, each with a part of the weights (tensor parallel).

ColwiseParallel, RowwiseParallel, SequenceParallel,     who has what   style.py
ExpertParallel, parallelize_module
ColumnParallelLinear, RowParallelLinear, ...            the layers     layers.py
Enter, Leave, GatheredLinear, ...                       what is sent   operators.py
vocab_parallel_cross_entropy                            the loss       loss.py
"""

from minitorch.distributed.tensor.parallel.layers import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from minitorch.distributed.tensor.parallel.loss import vocab_parallel_cross_entropy
from minitorch.distributed.tensor.parallel.style import (
    ColwiseParallel,
    ExpertParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
