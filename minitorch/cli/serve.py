"""`minitorch serve RUN`: a language model for programs that know OpenAI's API.

With this file one can serve what `minitorch sample` reads, to many at once:

    minitorch serve runs/gpt-... --port 8000
    curl localhost:8000/v1/completions -d '{"prompt": "To be", "max_tokens": 40}'
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minitorch.cli.errors import friendly
from minitorch.cli.sample import Device, Quantize, Run, Weights, Words, ends, load


def serve(
    run: Run = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0: one that is free.")
    ] = 8000,
    host: Annotated[
        str, typer.Option(help="127.0.0.1 is reached from this machine alone.")
    ] = "127.0.0.1",
    batch: Annotated[int, typer.Option(min=1, help="Texts at once.")] = 16,
    blocks: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Blocks of keys and values.",
            show_default="enough for a batch of the longest texts, 4 GiB at most",
        ),
    ] = None,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens in a block.")] = 16,
    tokens: Annotated[
        int, typer.Option(min=1, help="Tokens that are read in a step, at most.")
    ] = 256,
    device: Device = "cpu",
    weights: Weights = None,
    tokenizer: Words = None,
    quantize: Quantize = None,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Serve a model over HTTP, with OpenAI's API for completions."""
    with friendly(debug, "minitorch serve"):
        model, words = load("serve", run, weights, tokenizer, device, quantize)
        from minitorch.serving.engine import Engine
        from minitorch.serving.server import Server

        engine = Engine(model, blocks, block_size, batch, tokens)
        engine.warm_up()
        name = Path(run or weights or "").resolve().name
        with Server(engine, words, name, ends(words), port, host) as server:
            typer.echo(f"{name} is at {server.url}/v1/completions\nCtrl-C ends it.")
            server.serve_forever()
