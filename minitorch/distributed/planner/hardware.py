"""GPUs and what connects them, in numbers of their makers.

With this file one can take a GPU by name (`named("h100")`) or from a JSON or TOML file,
and ask how long a collective takes on its link (`Gpu.collective`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from minitorch.distributed.planner.models import check_number, read


@dataclass(frozen=True)
class Gpu:
    """A GPU in a node of several, in a cluster of nodes.

    Attributes:
        flops: dense products in bfloat16, a second.
        memory: GiB that a program may fill.
        bandwidth: bytes a second, of its memory.
        nvlink, network: bytes a second that it can send at once, within its node and
            to other nodes.
        node: GPUs of a node.
        sustained: how much more of `flops` is reached than on an H100, which has to
            lower its clock under load.
    """

    name: str
    flops: float
    memory: float
    bandwidth: float
    nvlink: float
    network: float
    node: int = 8
    sustained: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            kind = int if field.name == "node" else float
            value = getattr(self, field.name)
            check_number(f"gpu {self.name}: {field.name}", value, kind)

    def nodes(self, gpus: int) -> int:
        """Nodes that so many neighbouring GPUs stand in."""
        return -(-gpus // self.node)

    def collective(self, size: float, ranks: int, step: int, rounds: int = 1) -> float:
        """Seconds for a ring to gather or scatter `size` bytes: (N - 1) / N S / W.

        Args:
            size: bytes of what is gathered, on each rank.
            ranks: N; `step` is how far neighbours in the ring are apart.
            rounds: 2 for an all-reduce, which scatters and gathers.

        Rings of which several ranks are in a node cross its border once, and share the
        cards of the node only with the rings that its other ranks are in.
        """
        if ranks == 1:
            return 0.0
        send = rounds * size * (ranks - 1) / ranks
        if ranks * step <= self.node:
            return send / self.nvlink
        together = max(1, self.node // step)
        return max(send / self.nvlink, send / (self.network * together))


# Dense bfloat16, memory that CUDA shows, and the links of the usual machines of 8: for
# "h100" and "h200" NVLink 4 and a network card of 400 Gbit/s a GPU, for "a100" NVLink 3
# and 200 Gbit/s. Sources: NVIDIA's data sheets; `sustained` of an A100 after pairs of
# one run on both, a round number (MosaicML's llm-foundry, benchmarks of MPT).
GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("h100", 989e12, 79.1, 3.35e12, 450e9, 50e9),
        Gpu("h200", 989e12, 139.7, 4.8e12, 450e9, 50e9),
        Gpu("a100", 312e12, 79.1, 2.04e12, 300e9, 25e9, sustained=1.3),
    )
}


def named(name: str) -> Gpu:
    """A GPU by name, or from a file."""
    return GPUS.get(name) or read(Gpu, name, GPUS)
