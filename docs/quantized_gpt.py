"""Round a GPT's weights to bytes, or half of one: what it loses, and what it gains.

Run it: `python docs/quantized_gpt.py` (some minutes). It

1. trains a small GPT on the characters of the shipped text, and prints its loss on text
   that it has not seen, with the weights as they are, with those of `quantize_`, and
   rounded to fewer bits;
2. lets a GPT of GPT-2's size with random weights write, with floats, with bytes and
   with four bits in turns, and prints tokens a second, the ratios to floats, and the
   bytes read for a token. `--device cuda --dtype bfloat16` does so on a GPU.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

import minitorch
from minitorch import enable_grad, manual_seed, nn, no_grad
from minitorch.models import GPT
from minitorch.quantization import GROUP_SIZES, KINDS, QuantizedLinear, quantize_
from minitorch.train.gpt import GPTTrainConfig, train_gpt
from minitorch.train.gpt.task import open_task

BITS = (6, 5, 4, 3)


@no_grad()
def rounded(model: GPT, bits: int) -> GPT:
    """A copy whose linear weights have 2^bits - 1 values in a row; still floats."""
    model, most = copy.deepcopy(model), 2 ** (bits - 1) - 1
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            w = layer.weight.detach()
            scale = w.abs().amax(1, keepdim=True) / most
            layer.weight = nn.Parameter((w / scale).round() * scale)
    return model


@no_grad()
def losses(steps: int) -> dict[str, float]:
    """Train, round, and print a table; returns the losses by row."""
    with TemporaryDirectory() as folder:
        config = GPTTrainConfig(
            dataset="alice", steps=steps, sample=0, quiet=True, out=folder
        )
        with enable_grad():
            result = train_gpt(config)
        unseen = open_task(result.config, result.folder).val
        x, y = unseen.get_batch(np.arange(0, len(unseen), unseen.block_size))
    result.model.eval()
    made = {"float32": result.model, "int8": quantize_(copy.deepcopy(result.model))}
    for size in GROUP_SIZES:
        four = quantize_(copy.deepcopy(result.model), "int4", group_size=size)
        made[f"int4, {size}"] = four
    made |= {f"{bits} bits": rounded(result.model, bits) for bits in BITS}
    print(f"| weights | loss | perplexity |\n|{' ---: |' * 3}")
    found = {name: model.loss(x, y).item() for name, model in made.items()}
    for name, loss in found.items():
        print(f"| {name} | {loss:.4f} | {math.exp(loss):.3f} |", flush=True)
    return found


def bytes_read(model: GPT) -> int:
    """Of the weights that a token is multiplied with."""
    total = 0
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            total += layer.weight.numel() * layer.weight.dtype.itemsize
        elif isinstance(layer, QuantizedLinear):
            total += layer.q.numel() + layer.scale.numel() * layer.scale.dtype.itemsize
    return total


def speeds(
    preset: str, tokens: int, rounds: int, device: str = "cpu", dtype: str = "float32"
) -> list[list[float]]:
    """Let them write in turns, and print a table; returns the ratios to floats."""
    manual_seed(0)
    floats = GPT.preset(preset).to(device, getattr(minitorch, dtype)).eval()
    models = floats, *(quantize_(copy.deepcopy(floats), kind) for kind in KINDS)
    megabytes = ", ".join(f"{bytes_read(m) / 1e6:,.0f}" for m in models)
    print(f"\n{preset}: MB of weights a token: {megabytes}\n")
    print(f"| texts | {dtype}, tokens/s | int8 | int4 | ratio of int8 | of int4 |")
    print("|" + " ---: |" * 6)
    ratios = []
    for batch in (1, 2, 4, 8):
        prompts, times = [[1, 2, 3]] * batch, []
        for _ in range(rounds + 1):
            seen = []
            for model in models:
                start = time.perf_counter()
                model.generate(prompts, tokens, temperature=0)
                seen.append(time.perf_counter() - start)
            times.append(seen)
        floats_, *others = zip(*times[1:])  # the first round compiles
        ratios.append(
            [median(a / b for a, b in zip(floats_, other)) for other in others]
        )
        rates = [batch * tokens / median(each) for each in (floats_, *others)]
        cells = *(f"{rate:,.1f}" for rate in rates), *(f"{r:.2f}" for r in ratios[-1])
        print(f"| {batch} | {' | '.join(cells)} |", flush=True)
    return ratios


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000, help="of training")
    parser.add_argument("--preset", default="gpt2", help="the size of what writes")
    parser.add_argument("--tokens", type=int, default=16, help="of each text")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--device", default="cpu", help="where they write")
    parser.add_argument("--dtype", default="float32", help="of what is not quantized")
    given = parser.parse_args()
    if given.steps:
        losses(given.steps)
    speeds(given.preset, given.tokens, given.rounds, given.device, given.dtype)
