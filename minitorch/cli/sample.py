"""`minitorch sample RUN`: let a language model write.

With this file one can print what a model says after a prompt, while it says it: one
that `minitorch train gpt` has trained, or GPT-2 or Llama from files (`--weights`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minitorch.cli.errors import friendly

if TYPE_CHECKING:
    from minitorch.data import Tokenizer
    from minitorch.models import GPT

# The special tokens that end a text: GPT-2's, and Llama's.
ENDS = "<|endoftext|>", "</s>", "<|end_of_text|>", "<|eot_id|>"

# Options that say which model it is, and where.
Run = Annotated[
    Path | None,
    typer.Argument(help="The folder of a `minitorch train gpt`, or a checkpoint."),
]
Device = Annotated[str, typer.Option(help="Where to compute.")]
Weights = Annotated[
    Path | None,
    typer.Option(
        help="GPT-2's or Llama's safetensors, a file or folder, with config.json."
    ),
]
Words = Annotated[
    Path | None,
    typer.Option(
        help="Its tokenizer.json (or vocab.json and merges.txt), or the folder; "
        "the folder of the weights if left out."
    ),
]
Quantize = Annotated[
    str | None,
    typer.Option(
        help="int8 or int4: a byte or half a byte for a weight, for less to read."
    ),
]


def sample(
    run: Run = None,
    prompt: Annotated[
        str,
        typer.Option(
            "--prompt", "-p", help="To go on with.", show_default="an empty line"
        ),
    ] = ("\n"),
    length: Annotated[int, typer.Option("--length", "-n", help="Tokens.")] = 200,
    temperature: Annotated[
        float, typer.Option(help="Below 1 likelier, above 1 wilder; 0: the likeliest.")
    ] = 0.8,
    top_k: Annotated[
        int | None, typer.Option(help="Choose among so many tokens.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Choose among those of this probability.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Repeats a text.")] = None,
    device: Device = "cpu",
    weights: Weights = None,
    tokenizer: Words = None,
    quantize: Quantize = None,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """Let a trained model write, token by token."""
    with friendly(debug, "minitorch sample"):
        model, words = load("sample", run, weights, tokenizer, device, quantize)
        ids = words.encode(prompt)
        if not ids:
            raise ValueError("sample: the prompt is empty; give at least one character")
        from minitorch.data import decoded
        from minitorch.random import Generator

        new = model.stream(
            ids, length, temperature=temperature, top_k=top_k, top_p=top_p,
            stop=ends(words), generator=Generator(seed),
        )  # fmt: skip
        typer.echo(prompt, nl=False)
        for text in decoded(words, new):
            typer.echo(text, nl=False)  # which flushes
        typer.echo()


def load(
    command: str, run: Path | None, weights: Path | None, tokenizer: Path | None,
    device: str, quantize: str | None,
) -> tuple[GPT, Tokenizer]:  # fmt: skip
    """The model of the options, and what turns its tokens into text."""
    model, words = _load(command, run, weights, tokenizer, device)
    if quantize is not None:
        from minitorch.quantization import quantize_

        quantize_(model, quantize)
    return model, words


def ends(words: Tokenizer) -> list[int]:
    """The tokens that end a text."""
    special = getattr(words, "special_tokens", {})
    return [special[name] for name in ENDS if name in special]


def _load(
    command: str, run: Path | None, weights: Path | None, tokenizer: Path | None,
    device: str,
) -> tuple[GPT, Tokenizer]:  # fmt: skip
    if (run is None) == (weights is None):
        raise ValueError(
            f"{command}: give the folder of a run, or --weights, and not both; "
            "`minitorch train gpt` makes such a folder"
        )
    if run is not None:
        from minitorch.train.gpt import load_gpt

        model, words = load_gpt(run, device)
        return model, words if tokenizer is None else _tokenizer(tokenizer)
    from minitorch.models import from_pretrained

    assert weights is not None
    if not weights.exists():
        raise FileNotFoundError(
            f"{command}: there is no file or folder {weights}; --weights names GPT-2's "
            f"or Llama's safetensors, or their folder"
        )
    folder = weights if weights.is_dir() else weights.parent
    words = _tokenizer(folder if tokenizer is None else tokenizer)
    return from_pretrained(weights).to(device), words


def _tokenizer(path: Path) -> Tokenizer:
    """What `save` wrote, or a file or folder of Hugging Face's, or of tiktoken's."""
    from minitorch.data import BPE, TokenizerError, load_tokenizer

    if path.suffix == ".tiktoken":
        return BPE.from_tiktoken(path)
    if path.is_file():
        try:
            return load_tokenizer(path)
        except TokenizerError:
            pass  # or another library's
    return BPE.from_huggingface(path)
