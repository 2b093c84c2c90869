"""Steps of a GPT that ranks share, each rank with a GPU: with a CUDA graph and without.

With this file a test can start ranks, by torch's launcher: each layout that so many can
have is trained twice, and what is told for it is whether a graph was made, and whether
all losses and all weights are equal to the bit.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np

STEPS = 5
KEPT: list[Any] = []  # a group may be destroyed while its graphs are there


def trained(cut: dict[str, Any], ranks: int, graph: bool) -> tuple[bool, list[Any]]:
    """Whether a graph was made; the losses, and the parameters of this rank."""
    import minitorch as mt
    from minitorch.cuda import make_graphed_step
    from minitorch.models import GPT
    from minitorch.train.gpt.config import GPTTrainConfig, fill_in
    from minitorch.train.gpt.layout import laid_out
    from minitorch.train.gpt.shared import SharedGPT

    chosen = GPTTrainConfig(model="tiny", device="cuda", batch_size=4 * ranks, **cut)
    config = laid_out(fill_in(chosen), ranks)
    mt.manual_seed(0)
    whole = GPT.preset("tiny", dropout=config.dropout)
    model = SharedGPT(whole.to(config.device), config)
    refused: list[str] = []
    step = make_graphed_step(model.step, refused.append) if graph else model.step
    losses = []
    for i in range(STEPS):
        rng = np.random.default_rng(i)
        shape = 1, 4 * ranks, whole.config.block_size
        ids, targets = rng.integers(0, whole.config.vocab_size, (2, *shape))
        model.seed(i)
        loss = step(*(mt.tensor(x, device=config.device) for x in (ids, targets)))
        losses.append(loss.item())
    made = getattr(step, "graph", None) is not None
    KEPT.append(step)
    return made, [losses, [p.detach().numpy() for p in model.parameters()], refused]


def compare(cut: dict[str, Any], ranks: int) -> dict[str, Any]:
    """What is told of a layout."""
    (_, plain), (made, graphed) = (trained(cut, ranks, g) for g in (False, True))
    alike = all(map(np.array_equal, plain[1], graphed[1]))
    return {
        "cut": cut, "graph": made, "equal": plain[0] == graphed[0] and alike,
        "losses": [plain[0], graphed[0]], "refused": graphed[2],
    }  # fmt: skip


def main() -> None:
    """A rank."""
    import torch

    from minitorch import cuda
    from minitorch.distributed import destroy_process_group, init_process_group

    place, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    cuda.set_device(place)
    torch.cuda.set_device(place)
    init_process_group("nccl")
    for text in sys.argv[1:]:
        told = compare(json.loads(text), ranks)
        if place == 0:
            print(json.dumps(told), flush=True)
    destroy_process_group()


if __name__ == "__main__":
    main()
