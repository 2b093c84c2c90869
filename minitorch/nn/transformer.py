"""Transformers: layers that read a sequence, and layers that write one.

With this file one can build an encoder (`TransformerEncoderLayer`,
`TransformerEncoder`), a decoder that also looks at what the encoder gives
(`TransformerDecoderLayer`, `TransformerDecoder`), and both together (`Transformer`).
Names of parameters are PyTorch's, so that its state dicts load.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import minitorch.nn.functional as F
import minitorch.nn.init as init
from minitorch.creation import full
from minitorch.dtypes import DType
from minitorch.nn.attention import MultiheadAttention
from minitorch.nn.containers import ModuleList
from minitorch.nn.dropout import Dropout
from minitorch.nn.linear import Linear
from minitorch.nn.module import Module
from minitorch.nn.norm import LayerNorm
from minitorch.tensor import Tensor

Activation = str | Callable[[Tensor], Tensor]


class _Layer(Module):
    """Attention, once or twice, then two linear layers at each position.

    Each part is added to what it was given; the sum is normalized, or with `norm_first`
    what the part is given.

    Args:
        d_model: E.
        nhead: heads of each attention.
        dim_feedforward: numbers between the two linear layers.
        dropout: of each part's result, of the weights of attention, and of the numbers
            between the two linear layers.
        activation: "relu", "gelu", or a function of a tensor.
        batch_first: sequences are [N, L, E], and not [L, N, E].
    """

    _attentions: tuple[str, ...] = ("self_attn",)
    self_attn: MultiheadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    dropout1: Dropout
    dropout2: Dropout

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        functions: dict[Any, Any] = {"relu": F.relu, "gelu": F.gelu}
        if not callable(activation) and activation not in functions:
            raise ValueError(
                f"{type(self).__name__}: activation is {activation!r}; expected "
                f'"relu", "gelu" or a function'
            )
        more: Any = {"device": device, "dtype": dtype}
        for name in self._attentions:
            attention = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, **more
            )
            self.add_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **more)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **more)
        self.norm_first = norm_first
        parts = range(1, len(self._attentions) + 2)
        for i in parts:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias, **more)
            self.add_module(f"norm{i}", norm)
        for i in parts:
            self.add_module(f"dropout{i}", Dropout(dropout))
        self.activation = functions.get(activation, activation)

    def _added(
        self, norm: LayerNorm, dropout: Dropout, x: Tensor, part: Any, *args: Any
    ) -> Tensor:
        """x + part(norm(x)); or norm(x + part(x)), in one pass over memory."""
        if self.norm_first:
            return x + dropout(part(norm(x), *args))
        if type(norm) is not LayerNorm or type(dropout) is not Dropout:  # a user's own
            return norm(x + dropout(part(x, *args)))
        return F.dropout_residual_layer_norm(
            part(x, *args), x, norm.normalized_shape, norm.weight, norm.bias, dropout.p,
            dropout.training, norm.eps,
        )  # fmt: skip

    def _look(
        self, x: Tensor, mask: Tensor | None, padding: Tensor | None, causal: bool
    ) -> Tensor:
        """Each position's look at its own sequence."""
        return self.self_attn(x, x, x, padding, False, mask, is_causal=causal)[0]

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, then two linear layers; see `_Layer`.

    src [L, N, E] -> [L, N, E]; with `batch_first` [N, L, E].

    Source: Vaswani et al., 2017; `norm_first`: Xiong et al., "On layer normalization in
    the transformer architecture", 2020.
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """`src_mask` and `src_key_padding_mask` as in `MultiheadAttention`."""
        look = self._look, src_mask, src_key_padding_mask, is_causal
        src = self._added(self.norm1, self.dropout1, src, *look)
        return self._added(self.norm2, self.dropout2, src, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself, then to another, the memory, then two linear
    layers; see `_Layer`.

    tgt [L, N, E] and memory [S, N, E] -> [L, N, E]; with `batch_first` N comes first.

    Source: Vaswani et al., 2017.
    """

    _attentions = "self_attn", "multihead_attn"
    multihead_attn: MultiheadAttention
    norm3: LayerNorm
    dropout3: Dropout

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The masks as in `MultiheadAttention`; those of `memory` are for the second
        attention, [L, S] and [N, S]."""

        def recall(x: Tensor) -> Tensor:
            masks = memory_key_padding_mask, False, memory_mask
            return self.multihead_attn(
                x, memory, memory, *masks, is_causal=memory_is_causal
            )[0]

        look = self._look, tgt_mask, tgt_key_padding_mask, tgt_is_causal
        tgt = self._added(self.norm1, self.dropout1, tgt, *look)
        tgt = self._added(self.norm2, self.dropout2, tgt, recall)
        return self._added(self.norm3, self.dropout3, tgt, self._feed_forward)


class _Stack(Module):
    """`num_layers` copies of a layer, one after the other, and a norm at the end."""

    def __init__(
        self, layer: Module, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def _through(self, x: Tensor, *args: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *args)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """`num_layers` copies of a layer, one after the other, and a norm at the end.

    Args:
        encoder_layer: what is copied.
        enable_nested_tensor, mask_check: what PyTorch leaves out where nobody looks;
            here every position is computed.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """The masks as in `MultiheadAttention`, the same ones for each layer."""
        return self._through(src, mask, src_key_padding_mask, bool(is_causal))


class TransformerDecoder(_Stack):
    """`num_layers` copies of a layer, one after the other, and a norm at the end."""

    def __init__(
        self, decoder_layer: Module, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """As of a `TransformerDecoderLayer`; each layer has all of `memory`."""
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        causal = bool(tgt_is_causal), memory_is_causal
        return self._through(tgt, memory, *masks, *causal)


class Transformer(Module):
    """An encoder reads `src`, and a decoder writes `tgt` with a look at what it gives.

    src [S, N, E] and tgt [T, N, E] -> [T, N, E]; with `batch_first` N comes first.
    Embeddings of tokens and positions come before it, a linear layer after it.

    Args:
        d_model: E; it and what is not named here is as in the layers.
        custom_encoder, custom_decoder: modules in the place of those built here.

    Source: Vaswani et al., "Attention is all you need", 2017.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        args = d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps
        more: Any = {"bias": bias, "device": device, "dtype": dtype}

        def built(stack: Any, layer: Any, number: int) -> Module:
            one = layer(*args, batch_first, norm_first, **more)
            return stack(one, number, LayerNorm(d_model, layer_norm_eps, **more))

        self.encoder = custom_encoder or built(
            TransformerEncoder, TransformerEncoderLayer, num_encoder_layers
        )
        self.decoder = custom_decoder or built(
            TransformerDecoder, TransformerDecoderLayer, num_decoder_layers
        )
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The masks as in `MultiheadAttention`, of `src`, of `tgt`, and of `tgt`'s look
        at `src` (memory)."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: str | None = None, dtype: DType | None = None
    ) -> Tensor:
        """[sz, sz]: 0 where position i may see position j <= i, else -infinity."""
        return full((sz, sz), -math.inf, device=device, dtype=dtype).triu(1)
