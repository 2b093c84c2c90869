"""Many experts, of which each token asks a few: more weights for the same work.

With this file one can put `MixtureOfExperts(64, 256, num_experts=8)` in the place of an
MLP. Ranks can share the experts: `distributed.tensor.parallel.ExpertParallel`.

Source: Shazeer et al., "Outrageously large neural networks", 2017; Lepikhin et al.,
"GShard", 2020; Fedus et al., "Switch transformers", 2021.
"""

from __future__ import annotations

import math
from typing import Any

import minitorch.nn.functional as F
from minitorch.creation import arange, empty
from minitorch.distributed.nn.functional import all_to_all_single
from minitorch.dtypes import DType, float32, promote
from minitorch.functions.movement import cat
from minitorch.nn.init import uniform_
from minitorch.nn.linear import Linear, check_sizes
from minitorch.nn.module import Module
from minitorch.nn.parameter import Parameter
from minitorch.tensor import Tensor


class MixtureOfExperts(Module):
    """y = sum of g_e gelu(x @ up_e) @ down_e over the top_k experts e of each token

    x [B, T, d_model] -> y [B, T, d_model], and a loss [] that is 1 where experts have
    the same load, and larger elsewhere: add a hundredth of it to what is learned.

    p = softmax(gate(x)) says which experts a token asks; of one, g = p_e, and of
    several the p_e of these, by their sum. Each expert has `capacity` places for the
    tokens of a row, first choices of all first; who finds none hears 0.

    Args:
        d_hidden: units of an expert.
        capacity_factor: places, by those that would do if all experts had the same
            load.

    Attributes:
        group: the ranks that share the experts; this one has those of `up` and `down`.

    Errors: ValueError for sizes that make no sense, and an input of another shape.
    """

    _shown = ("d_model", "d_hidden", "num_experts", "top_k", "capacity_factor")

    def __init__(
        self,
        d_model: int,
        d_hidden: int,
        num_experts: int,
        top_k: int = 2,
        capacity_factor: float = 1.25,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        check_sizes("MixtureOfExperts", d_model=d_model, d_hidden=d_hidden)
        if not 1 <= top_k <= num_experts or capacity_factor <= 0:
            raise ValueError(
                f"MixtureOfExperts: top_k is {top_k}, num_experts {num_experts} and "
                f"capacity_factor {capacity_factor}; expected 1 <= top_k <= "
                f"num_experts, and a factor above 0"
            )
        self.d_model, self.d_hidden, self.num_experts = d_model, d_hidden, num_experts
        self.top_k, self.capacity_factor = top_k, capacity_factor
        options: Any = {"device": device, "dtype": dtype}
        self.gate = Linear(d_model, num_experts, bias=False, **options)
        for name, fan_in, out in (
            ("up", d_model, d_hidden),
            ("down", d_hidden, d_model),
        ):
            weight = Parameter(empty((num_experts, fan_in, out), **options))
            uniform_(weight, -(fan_in**-0.5), fan_in**-0.5)
            self.register_parameter(name, weight)
        self.group: Any = None

    def capacity(self, tokens: int) -> int:
        """Places of an expert for the tokens of a row."""
        even = self.top_k * tokens / self.num_experts
        return math.ceil(min(tokens, even * self.capacity_factor))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if x.dim() != 3 or x.shape[-1] != self.d_model:
            raise ValueError(
                f"MixtureOfExperts: x is {tuple(x.shape)}; expected (B, T, "
                f"{self.d_model})"
            )
        slots, shares, balance = self._route(x)
        batch, places, width = x.shape[0], self.capacity(x.shape[1]), self.d_model
        index = slots.unsqueeze(-1).expand(*slots.shape, width)  # [B, k T, width]
        room = x.new_zeros(batch, self.num_experts * places + 1, width)
        room = room.scatter_add(1, index, cat([x] * self.top_k, 1))
        said = self._experts(room[:, :-1].unflatten(1, (self.num_experts, places)))
        nothing = said.new_zeros(batch, 1, width)
        heard = cat([said.flatten(1, 2), nothing], 1).gather(1, index)
        heard = heard * shares.unsqueeze(-1).to(heard.dtype)
        return heard.unflatten(1, (self.top_k, -1)).sum(1), balance

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The place of each question and what share the answer has, first choices of
        all tokens first, both [B, k T]; and the loss."""
        scores = self.gate(x)
        p = F.softmax(scores.to(promote(scores.dtype, float32)), -1)  # [B, T, experts]
        asked = p.detach().topk(self.top_k, -1)[1]
        shares = p.gather(-1, asked)
        if self.top_k > 1:
            shares = shares / shares.sum(-1, keepdim=True)
        asked, shares = (a.transpose(1, 2).flatten(1) for a in (asked, shares))
        slots, load = self._slots(asked, self.capacity(x.shape[1]))
        balance = self.num_experts * (load * p.mean(1)).sum(-1).mean()
        return slots, shares, balance

    def _slots(self, asked: Tensor, places: int) -> tuple[Tensor, Tensor]:
        """For experts [B, N] that are asked, in this order, the place of each question:
        expert * places + how many came before, or behind all for one too many. And what
        share of the questions each expert gets, [B, experts]."""
        experts = arange(self.num_experts, device=asked.raw.device)
        chosen = (asked.unsqueeze(-1) == experts).long()
        before = ((chosen.cumsum(1) - 1) * chosen).sum(-1)
        slots = asked * places + before
        slots = slots.masked_fill(before >= places, self.num_experts * places)
        load = chosen.to(self.gate.weight.dtype).mean(1)
        return slots, load

    def _experts(self, x: Tensor) -> Tensor:
        """[B, experts, places, width], through each expert its part."""
        batch, _, places, _ = x.shape
        x = x.transpose(0, 1).flatten(1, 2)  # [experts, B places, width]
        if self.group is None:
            y = self._mlps(x)
        else:
            n = self.group.size()
            x = all_to_all_single(x.contiguous(), group=self.group)
            x = x.unflatten(0, (n, -1)).transpose(0, 1).flatten(1, 2)
            y = self._mlps(x)  # [experts here, n B places, width]
            y = y.unflatten(1, (n, -1)).transpose(0, 1).flatten(0, 1)
            y = all_to_all_single(y.contiguous(), group=self.group)
        return y.unflatten(1, (batch, places)).transpose(0, 1)

    def _mlps(self, x: Tensor) -> Tensor:
        """[experts, N, width]"""
        return F.gelu(x @ self.up) @ self.down
