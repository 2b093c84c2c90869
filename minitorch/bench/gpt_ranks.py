"""A GPT on several GPUs: steps beside PyTorch's DDP, memory beside the planner's.

With this file one can measure both, each rank a process with a GPU of its own:

    python -m minitorch.bench.gpt_ranks --ranks 4
    python -m minitorch.bench.gpt_ranks --ranks 4 --memory

The first prints the milliseconds of a step that each rank makes alone, those of ranks
whose gradients `DistributedDataParallel` averages, and how often the second goes into
the first (efficiency); PyTorch takes turns with us, on as many tokens. Our steps are
CUDA graphs, as in `minitorch train gpt`, or not with --no-graph. The second cuts GPT-2
in several ways, trains it for some steps with `minitorch train gpt`'s own parts, and
prints the loss of the last one, which all layouts share, and what the fullest rank held
at most, beside what `minitorch plan` says of the layout.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Annotated, Any

import typer

from minitorch.bench.ranks import is_rank, measured, tell, together

MODULE = "minitorch.bench.gpt_ranks"
ROWS = {"gpt2": 16, "char": 64, "tiny": 4}  # sequences of a rank
NUMBERS = {"float32": "highest", "TF32": "high", "bfloat16": "high"}
ROUNDS, STEPS, WARM_UP = 5, 5, 3
LAYOUTS: tuple[dict[str, Any], ...] = (
    {}, {"zero": 1}, {"zero": 2}, {"zero": 3}, {"tp": 4}, {"pp": 4}, {"cp": 2},
    {"cp": 4}, {"tp": 2, "pp": 2},
)  # fmt: skip
Step = Callable[[], Any]


def our_steps(size: str, numbers: str, device: str) -> Iterator[Step]:
    """A step that this rank makes alone, and one that all make together."""
    import minitorch as mt
    from minitorch.amp import autocast
    from minitorch.models import GPT
    from minitorch.nn.parallel import DistributedDataParallel
    from minitorch.optim import AdamW
    from minitorch.train.gpt.shared import Loss

    def made(wrap: Callable[[Any], Any]) -> Step:
        model = GPT.preset(size).to(device)
        shape = ROWS[size], model.config.block_size + 1
        ids = mt.randint(0, model.config.vocab_size, shape).to(device)
        x, y = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        trained, optimizer = wrap(Loss(model)), AdamW(model.parameters(), lr=1e-4)
        half = numbers == "bfloat16"

        def step() -> Any:
            optimizer.zero_grad()
            with autocast(device.partition(":")[0], mt.bfloat16, enabled=half):
                loss = trained(x, y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    # PyTorch's model has no buffers.
    whole: Any = partial(DistributedDataParallel, broadcast_buffers=False)
    yield from map(made, (lambda module: module, whole))


def their_steps(size: str, numbers: str, device: str) -> Iterator[Step]:
    """The same by PyTorch: fused attention, fused AdamW, buckets as gradients."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from minitorch.models import GPTConfig

    config: Any = GPTConfig.preset(size)
    kind, half = device.partition(":")[0], numbers == "bfloat16"

    def made(wrap: Callable[[Any], Any]) -> Step:
        model = wrap(their_gpt(config).to(device))
        shape = ROWS[size], config.block_size + 1
        ids = torch.randint(0, config.vocab_size, shape, device=device)
        x, y = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

        def step() -> Any:
            optimizer.zero_grad()
            with torch.autocast(kind, torch.bfloat16, enabled=half):
                loss = model(x, y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    ids = [int(device.partition(":")[2])] if kind == "cuda" else None
    options: Any = dict(device_ids=ids, gradient_as_bucket_view=True)
    whole = lambda module: DistributedDataParallel(module, **options)
    yield from map(made, (lambda module: module, whole))


def their_gpt(config: Any) -> Any:
    """PyTorch's GPT-2 of the same sizes: ids [B, T], targets [B, T] -> loss [].

    Its vocabulary is filled up to a multiple of 64, with which cuBLAS is faster.
    """
    import torch
    from torch import nn
    from torch.nn import functional as F

    c, bias, p = config.n_embd, config.bias, config.dropout
    classes = config.vocab_size + -config.vocab_size % 64

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = (nn.LayerNorm(c, bias=bias) for _ in range(2))
            self.qkv, self.out = nn.Linear(c, 3 * c, bias), nn.Linear(c, c, bias)
            self.up, self.down = (
                nn.Linear(c, 4 * c, bias),
                nn.Linear(4 * c, c, bias),
            )

        def forward(self, x: Any) -> Any:
            q, k, v = (
                t.unflatten(-1, (config.n_head, -1)).transpose(1, 2)
                for t in self.qkv(self.ln_1(x)).chunk(3, -1)
            )
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
            x = x + F.dropout(self.out(y.transpose(1, 2).flatten(2)), p)
            hidden = F.gelu(self.up(self.ln_2(x)), approximate="tanh")
            return x + F.dropout(self.down(hidden), p)

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte = nn.Embedding(classes, c)
            self.wpe = nn.Embedding(config.block_size, c)
            self.h = nn.ModuleList(Block() for _ in range(config.n_layer))
            self.ln_f = nn.LayerNorm(c, bias=bias)
            self.lm_head = nn.Linear(c, classes, bias=False)
            self.lm_head.weight = self.wte.weight
            nn.init.normal_(self.wte.weight, std=0.02)

        def forward(self, ids: Any, targets: Any) -> Any:
            slots = torch.arange(ids.shape[1], device=ids.device)
            x = F.dropout(self.wte(ids) + self.wpe(slots), p)
            for block in self.h:
                x = block(x)
            scores = self.lm_head(self.ln_f(x))
            return F.cross_entropy(scores.flatten(0, 1), targets.flatten())

    return GPT()


def steps(
    sizes: list[str], numbers: list[str], kind: str, graph: bool
) -> dict[str, list[float]]:
    """A rank: seconds of our step alone and together, and of PyTorch's, by model; those
    of the slowest rank, for which the others wait when they work together."""
    from minitorch.bench.inputs import set_up
    from minitorch.cuda_graphs import make_graphed_step
    from minitorch.distributed import all_gather_object, get_world_size
    from minitorch.distributed.group import world
    from minitorch.distributed.transport import COMPARED

    group: Any = world()
    device, found = own_device(kind), {}
    for size in sizes:
        for number in numbers:
            set_up(NUMBERS[number])
            ours: Any = our_steps(size, number, device)
            if graph:
                ours = map(make_graphed_step, ours)
            kinds = (*ours, *their_steps(size, number, device))
            for step in kinds:
                for _ in range(WARM_UP):
                    step()
            while not graph and group.count <= COMPARED:  # by notes, which take time
                kinds[1]()
            rounds = [
                [together(step, STEPS, device) for step in kinds] for _ in range(ROUNDS)
            ]
            medians = [statistics.median(column) for column in zip(*rounds)]
            every: list[Any] = [None] * get_world_size()
            all_gather_object(every, medians)
            found[f"{size}, {number}"] = [max(column) for column in zip(*every)]
    return found


def own_device(kind: str) -> str:
    """The device of this rank."""
    from minitorch.distributed import get_rank

    return f"cuda:{get_rank()}" if kind == "cuda" else kind


def peaks(size: str, number: str, kind: str) -> list[Any]:
    """A rank: a line for each layout that so many ranks can have."""
    from minitorch.bench.inputs import set_up
    from minitorch.distributed import get_world_size

    set_up(NUMBERS[number])
    device, ranks = own_device(kind), get_world_size()
    cuts = [cut for cut in LAYOUTS if ranks % others(cut) == 0]
    return [peak(size, number, device, cut) for cut in cuts]


def others(cut: dict[str, Any]) -> int:
    """Ranks that have the same rows of a batch."""
    return math.prod(cut.get(name, 1) for name in ("tp", "pp", "cp"))


def peak(size: str, number: str, device: str, cut: dict[str, Any]) -> list[Any]:
    """Some steps of a model that ranks share: the layout, the last loss, its seconds,
    and GiB of the fullest rank, held and planned."""
    import minitorch as mt
    from minitorch import cuda
    from minitorch.amp import autocast
    from minitorch.distributed import get_world_size
    from minitorch.distributed.objects import highest
    from minitorch.models import GPT
    from minitorch.train.gpt.config import GPTTrainConfig, fill_in
    from minitorch.train.gpt.layout import laid_out
    from minitorch.train.gpt.shared import SharedGPT

    rows = ROWS[size] * get_world_size()
    chosen = GPTTrainConfig(model=size, device=device, batch_size=rows, clip=0.0, **cut)
    config = laid_out(fill_in(replace(chosen, dropout=0.0)), get_world_size())
    mt.manual_seed(0)
    whole = GPT.preset(size, dropout=0.0)
    shape = 1, rows, whole.config.block_size + 1
    ids = mt.randint(0, whole.config.vocab_size, shape)
    x, y = (t.contiguous().to(device) for t in (ids[:, :, :-1], ids[:, :, 1:]))
    model, loss, took = SharedGPT(whole.to(device), config), 0.0, 0.0
    del whole
    for _ in range(WARM_UP):
        cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        region = autocast("cuda", mt.bfloat16, enabled=number == "bfloat16")
        loss = model.step(x, y, region).item()
        took = time.perf_counter() - began
    held = highest(cuda.max_memory_allocated()) / 2**30
    layout, said = planned(size, number, config)
    return [layout, loss, took, held, said]


def planned(size: str, number: str, config: Any) -> tuple[str, float]:
    """The planner's name of a layout, and GiB of its fullest rank."""
    from minitorch.distributed.planner import memory, models
    from minitorch.distributed.planner.layout import Layout
    from minitorch.train.gpt.layout import microbatches

    parts = microbatches(config) if config.pp > 1 else 1
    cut = {name: getattr(config, name) for name in ("dp", "tp", "pp", "cp", "zero")}
    rows = config.batch_size // config.dp // parts
    layout = Layout(**cut, micro_batch=rows, micro_batches=parts)
    model = models.named(size)
    engine = memory.engine("autocast" if number == "bfloat16" else "float32", model)
    kept = memory.memory(model, layout, config.block_size, engine)
    return str(layout), sum(kept.values())


def work(what: str, *chosen: Any) -> Any:
    """A rank: `steps` or `peaks`."""
    return steps(*chosen) if what == "steps" else peaks(*chosen)


def compare(
    ranks: Annotated[int, typer.Option(min=1, help="How many processes.")] = 2,
    sizes: Annotated[str, typer.Option(help="gpt2, char, ...")] = "gpt2",
    numbers: Annotated[str, typer.Option(help="Of products.")] = ",".join(NUMBERS),
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cuda",
    memory: Annotated[bool, typer.Option("--memory", help="Not time.")] = False,
    graph: Annotated[bool, typer.Option(help="On GPUs, capture our steps.")] = True,
) -> None:
    """Print a table of times, or of memory."""
    kinds, graph = numbers.split(","), graph and device == "cuda"
    if memory:
        print("| model | layout | loss | ms | GiB held | planned | held / planned |")
        print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
        for size, number in product(sizes.split(","), kinds):
            for row in measured(MODULE, ranks, "peaks", size, number, device):
                print(told(f"{size}, {number}", *row), flush=True)
        return
    print("| model | alone, ms | together | efficiency | PyTorch | DDP | efficiency |")
    print(f"| --- |{' ---: |' * 6}")
    found = measured(MODULE, ranks, "steps", sizes.split(","), kinds, device, graph)
    for name, times in found.items():
        pairs = zip(times[::2], times[1::2])
        cells = [f"{1e3 * a:.2f} | {1e3 * b:.2f} | {a / b:.3f}" for a, b in pairs]
        print(f"| {name} | {' | '.join(cells)} |")


def told(
    name: str, layout: str, loss: float, took: float, held: float, said: float
) -> str:
    """A line of the table of memory."""
    return (
        f"| {name} | {layout} | {loss:.5f} | {1e3 * took:.1f} | {held:.2f} "
        f"| {said:.2f} | {held / said:.3f} |"
    )


if __name__ == "__main__":
    tell(work) if is_rank() else typer.run(compare)
