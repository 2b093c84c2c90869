"""A step of generation is one graph on the GPU, and writes what the CPU writes."""

from __future__ import annotations

import pytest

import minitorch
from minitorch.models import GPT, GPTConfig, Sampling
from minitorch.models.generation import _Writer

pytest.importorskip("numba_cuda")

SIZES = {"vocab_size": 11, "block_size": 12, "n_layer": 1, "n_head": 2, "n_embd": 4}
GPT2, LLAMA = SIZES, {
    **SIZES, "n_embd": 8, "norm": "rms", "positions": "rotary", "mlp": "swiglu",
    "n_kv_head": 1, "n_hidden": 4, "bias": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "sampling"),
    [(GPT2, Sampling(0.0)), (LLAMA, Sampling(0.9, top_k=5, top_p=0.9))],
    ids=["gpt2", "llama"],
)
def test_a_step_is_a_graph_that_writes_the_same(config, sampling):
    minitorch.manual_seed(0)
    model = GPT(GPTConfig(**config))
    with minitorch.no_grad():
        for p in model.parameters():
            p.mul_(20.0)
    written = []
    for device in ("cpu", "cuda"):
        model.to(device)
        rows, random = [[1, 2, 3], [5, 6]], minitorch.Generator(1)
        writer = _Writer(model, rows, 6, sampling, random, True)
        written.append([writer.step() for _ in range(6)])
    assert written[0] == written[1]
    assert len(set(map(tuple, written[0]))) > 2
    kernels = writer.decode.graph.kernels
    assert len(kernels) > 40  # from the embedding to the chosen token
    assert kernels[-1].startswith("first_in_rows")
    assert "put_slice" in kernels and "claim_slices" not in kernels
