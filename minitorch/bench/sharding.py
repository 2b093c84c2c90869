"""What each rank holds, by stage of ZeRO: counted, beside the formula.

With this file one can see memory fall (`print(table(4))`). A GPT makes a step on ranks
that are threads, and then all arrays of the process are counted that were not there
before: parameters, gradients and the optimizer's state, and whatever else is held.

    stage          parameters   gradients   optimizer
    0  DDP             p            g           o          bytes a parameter
    1  its state       p            g          o/d         on each of d ranks
    2  gradients       p           g/d         o/d
    3  parameters     p/d          g/d         o/d
"""

from __future__ import annotations

import gc
from typing import Any

from minitorch.creation import zeros
from minitorch.distributed import barrier, get_rank, spawn_threads
from minitorch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from minitorch.distributed.optim import ZeroRedundancyOptimizer
from minitorch.dtypes import bfloat16, int64
from minitorch.models import GPT, GPTConfig
from minitorch.nn.parallel import DistributedDataParallel
from minitorch.optim import Adam
from minitorch.random import manual_seed
from minitorch.tensor_data import Storage

CONFIG = GPTConfig(256, 32, n_layer=4, n_head=2, n_embd=64)
STAGES = ("DDP", "ZeroRedundancyOptimizer", "fully_shard, kept", "fully_shard")
PUBLISHED = 2, 2, 12  # bytes of p, g and o: 16 bits, and Adam with float32 parameters
# Ours, by stage. What stage 2 gathers is another copy of what the optimizer changes,
# and parts of gradients are float32; stage 3 has no such copy between two passes.
FLOAT32 = (4, 4, 8), (4, 4, 8), (4, 4, 12), (4, 4, 8)
BFLOAT16 = None, None, (2, 4, 12), (0, 4, 12)


def bytes_a_parameter(
    stage: int, ranks: int, sizes: tuple[int, int, int] = PUBLISHED
) -> float:
    """Bytes on each of `ranks` for one parameter; `sizes` are p, g and o, undivided.

    Source: Rajbhandari et al., "ZeRO", 2020, figure 1.
    """
    last_first = zip((3, 2, 1), sizes)
    return sum(size / ranks if stage >= since else size for since, size in last_first)


def live_bytes() -> int:
    """Bytes of all tensors of this process."""
    gc.collect()
    every = [x for x in gc.get_objects() if type(x) is Storage]
    return sum(x.array.nbytes for x in every)


def trained(stage: int, half: bool) -> Any:
    """A model and its optimizer behind a step, at a stage."""
    manual_seed(0)
    model: Any = GPT(CONFIG)
    policy = MixedPrecisionPolicy(bfloat16 if half else None)
    if stage < 2:
        model = DistributedDataParallel(model)
    else:
        for part in (*model.h, model):
            fully_shard(part, reshard_after_forward=stage == 3, mp_policy=policy)
    zero = ZeroRedundancyOptimizer
    every = list(model.parameters())
    optimizer: Any = zero(every, Adam) if stage == 1 else Adam(every)
    ids = zeros(1, 8, dtype=int64) + get_rank()
    model(ids).float().square().mean().backward()
    optimizer.step()
    if stage == 2:
        model(ids)  # parameters of the next step
    return model, optimizer


def held(stage: int, ranks: int, half: bool = False) -> float:
    """Bytes a parameter on a rank, as counted."""
    before = live_bytes()

    def program() -> int:
        kept = trained(stage, half)
        barrier()
        counted = live_bytes() if get_rank() == 0 else 0
        barrier()
        del kept
        return counted

    counted = spawn_threads(program, ranks)[0]
    return (counted - before) / ranks / CONFIG.num_parameters()


def table(ranks: int) -> str:
    """Bytes a parameter on each rank, by the formula and as counted."""
    titles = "published", "float32", "counted", "bfloat16", "counted"
    head = "".join(f" {title:>9}" for title in titles)
    lines = [f"{f'stage, on {ranks} ranks':25}{head}"]
    for stage, name in enumerate(STAGES):
        line = f"{stage} {name:23} {bytes_a_parameter(stage, ranks):9.2f}"
        for half, sizes in ((False, FLOAT32[stage]), (True, BFLOAT16[stage])):
            if sizes is not None:
                expected = bytes_a_parameter(stage, ranks, sizes)
                line += f" {expected:9.2f} {held(stage, ranks, half):9.2f}"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(4))
