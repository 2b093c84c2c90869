"""A GPT that the ranks of a run share, and the steps that they take together.

With this file the training loop has a model (`SharedGPT`) and an optimizer
(`SharedOptimizer`) that look as those of one process do, whatever the layout. All ranks
are given the whole batch, and each takes its rows: so losses are those of one process.
States have this rank's parts, under the names and numbers of one process: a checkpoint
of them does not say how many ranks wrote it, and any layout can go on from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from minitorch import nn, optim
from minitorch.autodiff import no_grad
from minitorch.backend.registry import split_name
from minitorch.creation import zeros
from minitorch.distributed import (
    ReduceOp,
    all_reduce,
    broadcast,
    broadcast_object_list,
    get_rank,
    init_device_mesh,
)
from minitorch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    part,
    saved,
    set_model_state_dict,
)
from minitorch.distributed.fsdp import fully_shard
from minitorch.distributed.optim import ZeroRedundancyOptimizer
from minitorch.distributed.pipelining import (
    Schedule,
    gpipe,
    interleaved,
    one_f_one_b,
)
from minitorch.models import GPT
from minitorch.models.parallel import parallelize, pipeline
from minitorch.nn.parallel import DistributedDataParallel
from minitorch.nn.utils import clip_grad_norm_
from minitorch.random import default_generator, fork_rng, manual_seed
from minitorch.tensor import Tensor
from minitorch.train.gpt.config import GPTTrainConfig
from minitorch.train.gpt.layout import CHUNKS, microbatches
from minitorch.train.gpt.optimizers import make_optimizer

DRAWN = 2**32  # blocks of random numbers that a step may take
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Loss(nn.Module):
    """A model's loss as what a module returns, for what wraps a module's call."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        return self.model.loss(ids, targets)


def schedule_of(config: GPTTrainConfig) -> Schedule:
    """The table that `config.schedule` names; None: one forward, one backward."""
    assert config.pp is not None
    parts = microbatches(config)
    if config.schedule == "interleaved":
        return interleaved(config.pp, parts, CHUNKS)
    return (gpipe if config.schedule == "gpipe" else one_f_one_b)(config.pp, parts)


class SharedGPT:
    """This rank's part of a model, with what a loop asks of a whole one.

    Args:
        model: the whole one, with the same weights on all ranks; it is cut.
        config: all choices, as `laid_out` returns them.

    Attributes:
        optimizer: of this rank's part.
        stages: the modules that this rank has of the model, one without a pipeline.
        data: the ranks with the same parameters, and other rows or parts of sequences.
        names: of this rank's parameters, those of the whole model.
        drawing: the seed of dropout.
        groups, numbers: of all parameters, and of this rank's, in the optimizer of one
            process.
    """

    def __init__(self, model: GPT, config: GPTTrainConfig) -> None:
        c: Any = config
        self.settings, self.config, self.device = c, model.config, model.device
        self.training, kind = True, split_name(model.device)[0]
        flat = init_device_mesh(kind, (c.pp, c.dp * c.cp, c.tp), ("pp", "data", "tp"))
        grid = init_device_mesh(
            kind, (c.pp, c.dp, c.cp, c.tp), ("pp", "dp", "cp", "tp")
        )
        self.ranks, self.data = flat.mesh, flat.get_group("data")
        self.rows = grid.get_local_rank("dp")
        pp, dp, cp, _ = grid.get_coordinate() or [0] * 4
        key = np.random.SeedSequence((c.seed, pp, dp, cp))
        self.drawing = int(key.generate_state(1)[0])
        self.last = flat["pp"].mesh[-1], flat.get_group("pp")
        named, made = dict(model.named_parameters()), make_optimizer(model, config)
        every = [p for group in made.param_groups for p in group["params"]]
        numbers = {p: number for number, p in enumerate(every)}
        self.groups = [[numbers[p] for p in g["params"]] for g in made.param_groups]
        if c.tp * c.cp * c.pp > 1:
            model = parallelize(model, flat["tp"], cp_mesh=grid["cp"])
        self._cut(model, flat)
        mine = {id(p) for stage in self.stages for p in stage.parameters()}
        self.names = {p: name for name, p in named.items() if id(p) in mine}
        self.numbers = {p: numbers[p] for p in self.names}
        for group in made.param_groups:
            group["params"] = [p for p in group["params"] if id(p) in mine]
        self.optimizer = self._sharing(made)

    def _cut(self, model: Any, flat: Any) -> None:
        c = self.settings
        self.pipe: Any = None
        self.trained: Any = Loss(model)
        self.stages: list[Any] = [model]
        if c.pp > 1:
            rows = c.batch_size // c.dp // microbatches(c)
            table = schedule_of(c)
            data = self.data if self.data.size() > 1 else None
            how: Any = table, rows, c.block_size, False, data
            self.pipe = pipeline(model, flat["pp"], *how)
            self.stages = [stage.submodule for stage in self.pipe.stages]
        elif c.zero >= 2:
            options: Any = {"mesh": flat["data"], "reshard_after_forward": c.zero == 3}
            for block in model.h:
                fully_shard(block, **options)
            fully_shard(self.trained, **options)
        elif self.data.size() > 1:
            self.trained = DistributedDataParallel(
                self.trained, process_group=self.data, broadcast_buffers=False
            )

    def _sharing(self, made: optim.Optimizer) -> optim.Optimizer:
        """The optimizer, or with --zero 1 one of which each rank has a part."""
        if self.settings.zero != 1:
            return made
        groups = [dict(group) for group in made.param_groups]
        return ZeroRedundancyOptimizer(groups, type(made), self.data)

    # ------------------------------------------------------- what the loop asks for

    def parameters(self) -> Iterator[Tensor]:
        """Those of this rank, each once."""
        return iter(self.names)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The same with their names in the whole model."""
        return ((name, p) for p, name in self.names.items())

    def train(self, mode: bool = True) -> SharedGPT:
        """As a module's."""
        self.training = mode
        for stage in self.stages:
            stage.train(mode)
        return self

    def eval(self) -> SharedGPT:
        """As a module's."""
        return self.train(False)

    def seed(self, step: int) -> None:
        """Random numbers of dropout, from here on: those of a step, the same for ranks
        that share layers and others for others, also when a run was resumed."""
        manual_seed(self.drawing, sequence="philox")  # which goes to any place at once
        default_generator.offset = step * DRAWN  # a CUDA graph can follow this

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy of a batch [B, T], the same on all ranks."""
        mine = self._rows(ids), self._rows(targets)
        return self._mean((self.pipe.step if self.pipe else self.trained)(*mine))

    def step(
        self,
        x: Tensor,
        y: Tensor,
        region: AbstractContextManager[Any] | None = None,
    ) -> Tensor:
        """As `text_step`: x, y int64 [A, B, T], whole -> the mean loss []."""
        c = self.settings
        self.optimizer.zero_grad()
        losses = [
            self._learn(self._rows(ids), self._rows(targets), i == len(x) - 1, region)
            for i, (ids, targets) in enumerate(zip(x, y))
        ]
        for p in self.names if len(x) > 1 else ():
            if p.grad is not None:
                p.grad.div_(len(x))
        if c.clip:
            clip: Any = self.pipe.clip_grad_norm_ if self.pipe else None
            clip(c.clip) if clip else clip_grad_norm_(self.names, c.clip)
        self.optimizer.step()
        return Tensor.stack([self._mean(loss) for loss in losses]).mean()

    def _rows(self, x: Tensor) -> Tensor:
        return x.chunk(self.settings.dp)[self.rows].contiguous()

    def _learn(self, ids: Tensor, targets: Tensor, last: bool, region: Any) -> Any:
        """Gradients of one batch are added; they are sent with the last one."""
        work = self.pipe or self.trained
        alone = nullcontext() if last else getattr(work, "no_sync", nullcontext)()
        with alone:
            with region or nullcontext():
                loss = (self.pipe.step if self.pipe else work)(ids, targets)
            if self.pipe is None:
                loss.backward()
        return None if loss is None else loss.detach()

    @no_grad()
    def _mean(self, loss: Tensor | None) -> Tensor:
        """Of all ranks with other rows, or parts of sequences."""
        like = next(self.parameters())
        total = zeros((), dtype=like.dtype, device=self.device)
        if loss is not None:
            total.copy_(loss)
        if self.pipe is not None:
            broadcast(total, *self.last)
        all_reduce(total, ReduceOp.AVG, self.data)
        return total

    # ----------------------------------------------------------------------- states

    def state_dict(self) -> dict[str, Any]:
        """This rank's parts of the whole model's."""
        found: dict[str, Any] = {}
        for stage in self.stages:
            found |= get_model_state_dict(stage)
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take this rank's part of a whole model's state, in memory or stored."""
        for stage in self.stages:
            own = {name: state[name] for name in stage.state_dict() if name in state}
            set_model_state_dict(stage, own, options=WHOLE)

    def whole(self) -> GPT | None:
        """A model of its own with all weights, on rank 0. All ranks must call this."""
        state: dict[str, Tensor] = {}
        for stage in self.stages:
            state |= get_model_state_dict(stage, options=WHOLE)
        for rank in self.ranks[1:, 0, 0].tolist():  # the other stages
            sent: list[Any] = [state if get_rank() == rank else None]
            broadcast_object_list(sent, rank)
            state |= sent[0] if get_rank() == 0 else {}
        if get_rank() != 0:
            return None
        with fork_rng():
            model = GPT(self.config)
        model.load_state_dict(state)
        return model.to(self.device).eval()

    def generate(self, prompt: Any, max_new_tokens: int, **options: Any) -> Any:
        """What rank 0 writes; elsewhere the prompt. All ranks must call this."""
        model = self.whole()
        return model.generate(prompt, max_new_tokens, **options) if model else prompt


class SharedOptimizer:
    """The optimizer of a `SharedGPT`, whose states have this rank's parts, with the
    numbers that parameters have in one process."""

    def __init__(self, model: SharedGPT) -> None:
        self.model = model

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Groups and their options."""
        return self.model.optimizer.param_groups

    def state_dict(self) -> dict[str, Any]:
        """As an optimizer's."""
        held = self.model.optimizer.state
        state = {
            number: {key: saved(p, x) for key, x in held[p].items()}
            for p, number in self.model.numbers.items()
            if p in held
        }
        numbered = zip(self.param_groups, self.model.groups)
        groups = [{**group, "params": numbers} for group, numbers in numbered]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take this rank's part of a whole state, in memory or stored."""
        numbers, optimizer = self.model.numbers, self.model.optimizer
        owns = getattr(optimizer, "owns", lambda p: True)
        groups = [
            {**kept, "params": [numbers[p] for p in group["params"]]}
            for group, kept in zip(self.param_groups, state_dict["param_groups"])
        ]
        state = {
            number: {key: part(p, x, WHOLE) for key, x in held.items()}
            for p, number in numbers.items()
            if owns(p) and (held := state_dict["state"].get(number))
        }
        optimizer.load_state_dict({"state": state, "param_groups": groups})
