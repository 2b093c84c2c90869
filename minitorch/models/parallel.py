"""A GPT whose layers, or tokens, are shared between ranks.

With this file one can train a `GPT` with tensor parallel layers:

    mesh = init_device_mesh("cpu", (2, 2), ("dp", "tp"))
    model = parallelize(GPT(config), mesh["tp"], sequence_parallel=True)
    loss = model.loss(ids, targets)     # the same on all ranks of mesh["tp"]

The classes of its modules change, and nothing else: names and `model.loss` stay.
"""

from __future__ import annotations

import copy
from itertools import islice
from typing import Any

import minitorch.nn.functional as F
from minitorch import nn
from minitorch.autodiff import no_grad
from minitorch.creation import empty
from minitorch.distributed.collectives import broadcast
from minitorch.distributed.device_mesh import DeviceMesh
from minitorch.distributed.group import ProcessGroup
from minitorch.distributed.pipelining import (
    Pipeline,
    PipelineStage,
    Schedule,
    chunks_of,
)
from minitorch.distributed.planner.layout import split_layers
from minitorch.distributed.planner.models import described
from minitorch.distributed.tensor.experimental import context_parallel, own_part
from minitorch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
    vocab_parallel_cross_entropy,
)
from minitorch.distributed.tensor.parallel.layers import own_numbers
from minitorch.distributed.tensor.parallel.operators import Leave, enter
from minitorch.distributed.tensor.placement import Placement, Replicate, Shard, part
from minitorch.functions.attention import substituted
from minitorch.functions.movement import pad
from minitorch.models.cache import KVCache, Places, places
from minitorch.models.config import GPTConfig
from minitorch.models.gpt import GPT, Attention
from minitorch.tensor import Tensor
from minitorch.utils.checkpoint import checkpoint


def gpt_plan(
    config: GPTConfig, sequence_parallel: bool = False
) -> dict[str, ParallelStyle]:
    """How each layer of a GPT is shared, for `parallelize_module`.

    Args:
        sequence_parallel: between the shared layers each rank has a part of each
            sequence; else each does the same there.
    """
    between: Placement = Shard(1) if sequence_parallel else Replicate()
    heads, kv_heads, size = config.n_head, config.kv_heads, config.head_size
    queries_keys_values = heads * size, kv_heads * size, kv_heads * size
    gates = (config.hidden,) * (2 if config.mlp == "swiglu" else 1)
    plan: dict[str, ParallelStyle] = {
        "wte": RowwiseParallel(between),
        "h.*.attn.c_attn": ColwiseParallel(between, queries_keys_values),
        "h.*.attn.c_proj": RowwiseParallel(between),
        "h.*.mlp.c_fc": ColwiseParallel(between, gates),
        "h.*.mlp.c_proj": RowwiseParallel(between),
        "lm_head": ColwiseParallel(between),
    }
    if sequence_parallel:
        names = "h.*.ln_1", "h.*.ln_2", "ln_f", "dropout", "h.*.*.dropout"
        plan |= dict.fromkeys(names, SequenceParallel())
        if config.positions == "learned":
            plan["wpe"] = RowwiseParallel(between)
    return plan


def parallelize(
    model: GPT,
    tp_mesh: DeviceMesh | None = None,
    sequence_parallel: bool = False,
    cp_mesh: DeviceMesh | None = None,
) -> ParallelGPT:
    """Let this rank have its part of a GPT: some heads, hidden units and tokens.

    Args:
        tp_mesh: the ranks that share each layer, a mesh of one dimension.
        sequence_parallel: also norms, residuals and dropout are shared, each rank with
            a part of each sequence.
        cp_mesh: the ranks that share each sequence, in all layers (`ring_attention`).
            As with data parallel all have the same weights, and the loss is the mean of
            theirs: let DistributedDataParallel average their gradients.

    Errors: ValueError where heads are no multiple of the number of ranks.
    """
    if tp_mesh is not None:
        _check_heads(model.config, tp_mesh.size())
    model.__class__ = ParallelGPT
    assert isinstance(model, ParallelGPT)
    if tp_mesh is not None and tp_mesh.size() > 1:
        plan = gpt_plan(model.config, sequence_parallel)
        parallelize_module(model, tp_mesh, plan)
        for block in model.h:
            block.attn.__class__, block.attn.mesh = OwnHeads, tp_mesh
            block.attn.heads //= tp_mesh.size()
            block.attn.kv_heads //= tp_mesh.size()
        model.tp = tp_mesh.get_group()
        model.parts = tp_mesh.size() if sequence_parallel else 1
    if cp_mesh is not None and cp_mesh.size() > 1:
        model.cp = cp_mesh.get_group()
        for block in model.h:
            block.attn.__class__, block.attn.mesh = RingAttention, cp_mesh
    return model


def _check_heads(config: GPTConfig, n: int) -> None:
    for name in ("n_head", "kv_heads"):
        if getattr(config, name) % n:
            raise ValueError(
                f"parallelize: {name} is {getattr(config, name)}, and there are {n} "
                f"ranks; each rank has whole heads, so use a number of ranks that "
                f"divides it, or a model with other heads"
            )


class OwnHeads(Attention):
    """Attention of some heads, whose weights are dropped apart from those of others."""

    mesh: DeviceMesh

    def forward(self, *args: Any) -> Tensor:
        with substituted(self._attend):
            return super().forward(*args)

    def _attend(self, *args: Any) -> Tensor:
        with substituted(None), own_numbers(self.mesh.get_group()):
            return F.scaled_dot_product_attention(*args)


class RingAttention(Attention):
    """Attention of a part of a sequence to all of it."""

    mesh: DeviceMesh

    def forward(self, *args: Any) -> Tensor:
        with context_parallel(self.mesh):
            return super().forward(*args)


class ParallelGPT(GPT):
    """One rank's part of a GPT; see `parallelize` and `pipeline`.

    Attributes:
        tp: the ranks that share each layer, if any do.
        parts: in how many parts a sequence is between shared layers.
        cp: the ranks that share each sequence in all layers, if any do. All are given
            whole sequences, and take their part.
    """

    tp: ProcessGroup | None = None
    parts: int = 1
    cp: ProcessGroup | None = None

    def features(
        self, ids: Tensor, cache: KVCache | None = None, padding: Tensor | None = None
    ) -> Tensor:
        """As of a `GPT`; of a stage that is not the first, from what comes in."""
        if cache is not None or padding is not None:
            raise ValueError(
                "ParallelGPT: there is no cache, and no padding; write with a GPT that "
                "has the weights of get_model_state_dict"
            )
        if ids.dim() == 2:
            return super().features(ids if self.cp is None else own_part(ids, self.cp))
        x, tokens = ids, self.slots[: ids.shape[1] * self.parts]
        where = self._where(tokens.unsqueeze(0), None, None)
        for block in self.h:
            x = checkpoint(block, x, where) if self.recompute else block(x, where)
        return self.ln_f(x)

    def _where(
        self, ids: Tensor, cache: KVCache | None, padding: Tensor | None
    ) -> Places:
        """The places of this rank's tokens in the whole sequence."""
        if self.cp is None:
            return super()._where(ids, cache, padding)
        length, most = ids.shape[1] * self.cp.size(), self.config.block_size
        if length > most:
            raise ValueError(
                f"ParallelGPT: {length} tokens; the model has {most} positions"
            )
        slots = own_part(self.slots[:length], self.cp, 0)
        return self._turned(places(slots, slots, None))

    def forward(
        self, ids: Tensor, cache: KVCache | None = None, padding: Tensor | None = None
    ) -> Tensor:
        """Scores [B, T, vocab_size] of this rank's tokens."""
        scores = super().forward(ids, cache, padding)
        if self.tp is None:
            return scores
        vocab = self.config.vocab_size
        mine = part(vocab, self.tp.rank(), self.tp.size())
        around: Any = (mine.start, vocab - mine.stop)
        return Leave.apply(pad(scores, around), self.tp)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy of targets [B, T], but where they are -1; where ranks
        share sequences, that is the mean over these ranks."""
        return self.loss_sum(self.features(ids), targets) / _counted(targets)

    def loss_sum(self, features: Tensor, targets: Tensor) -> Tensor:
        """The sum of the cross entropies of targets [B, T], from what `features`
        returned; where ranks share sequences, that is the mean over these ranks."""
        share = 1 if self.cp is None else self.cp.size()
        flat = (targets if self.cp is None else own_part(targets, self.cp)).flatten()
        if self.tp is None:
            return share * F.linear_cross_entropy(
                features.flatten(0, 1), self.lm_head.weight, flat,
                ignore_index=-1, reduction="sum",
                options=nn.LinearCrossEntropyOptions(),
            )  # fmt: skip
        head, vocab = self.lm_head, self.config.vocab_size
        x = enter(features, head.inputs, self.tp).flatten(0, 1)
        whole: Any = flat, vocab, self.tp, -1
        return vocab_parallel_cross_entropy(x, head.weight, *whole) * share


def pipeline(
    model: GPT,
    pp_mesh: DeviceMesh,
    schedule: Schedule,
    batch_size: int,
    length: int,
    recompute: bool = False,
    data: ProcessGroup | None = None,
) -> Pipeline:
    """The stages of a GPT that this rank has. The last one has fewer blocks where a
    large vocabulary makes the head worth some: see the planner's `split_layers`.

        pipe = pipeline(model, mesh["pp"], one_f_one_b(2, 8), 4, 1024)
        loss = pipe.step(ids, targets)

    Args:
        model: a whole one, or what `parallelize` made of it; that of the mesh's first
            rank goes to all.
        batch_size, length: of a micro-batch.
        recompute: keep the inputs of stages only (`model.recompute`: those of blocks).
        data: the ranks with the same stages and other rows, or parts of sequences.

    Errors: ValueError for more stages than blocks, or a schedule of other ranks.
    """
    model = model if isinstance(model, ParallelGPT) else parallelize(model)
    config, rank, chunks = model.config, pp_mesh.get_local_rank(), chunks_of(schedule)
    count = len(schedule) * chunks
    if len(schedule) != pp_mesh.size():
        raise ValueError(
            f"pipeline: the schedule is for {len(schedule)} ranks, and the mesh has "
            f"{pp_mesh.size()}"
        )
    if count > config.n_layer:
        raise ValueError(
            f"pipeline: {count} stages of {config.n_layer} blocks; each stage has one "
            f"at least, so use fewer ranks or chunks"
        )
    group = pp_mesh.get_group()
    with no_grad():
        for parameter in model.parameters():
            broadcast(parameter, group.ranks[0], group)
    tokens = length // model.parts // (1 if model.cp is None else model.cp.size())
    like = empty(
        (batch_size, tokens, config.n_embd),
        dtype=model.ln_f.weight.dtype,
        device=model.device,
    )
    dealt, _ = split_layers(described("", config), count, chunks)
    order = iter(range(config.n_layer))
    blocks = [list(islice(order, many)) for many in dealt]
    shared = rank in (0, len(schedule) - 1) and config.tied
    tables = [model.wte.weight] if shared else []
    stages = [
        PipelineStage(
            _stage(model, index, blocks),
            index,
            count,
            input_args=like,
            output_args=None if index == count - 1 else like,
            recompute=recompute,
        )
        for index in range(rank, count, len(schedule))
    ]
    last: Any = stages[-1].submodule
    how = last.loss_sum, group, tables, _counted, data
    return Pipeline(stages, schedule, *how)


def _counted(targets: Tensor) -> Tensor:
    """How many targets are not left out."""
    return (targets != -1).sum()


class GPTStage(ParallelGPT):
    """Some blocks of a GPT; the first stage has the tables as well, the last the head.

    ids [B, T], or [B, T, n_embd] of the stage before -> [B, T, n_embd]
    """

    def forward(
        self, ids: Tensor, cache: KVCache | None = None, padding: Tensor | None = None
    ) -> Tensor:
        return self.features(ids, cache, padding)


def _stage(model: ParallelGPT, index: int, blocks: list[list[int]]) -> GPTStage:
    """Stage `index`, with modules and names of the model's, and those of its blocks."""
    stage: Any = copy.copy(model)
    stage.__class__ = GPTStage
    stage._modules = dict(model._modules)
    stage.h = nn.ModuleList()
    for i in blocks[index]:
        stage.h.add_module(str(i), model.h[i])
    if index > 0:
        stage.wte = stage.wpe = None
    if index < len(blocks) - 1:
        stage.ln_f, stage.lm_head = nn.Identity(), None
    return stage
