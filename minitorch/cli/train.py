"""`minitorch train xor | points | mnist | gpt`.

With this file one can start a recipe of `minitorch.train` from the command line; the
options are the fields of `TrainConfig` (for gpt, of `GPTTrainConfig`), and what is left
out is chosen by the recipe.
"""

from __future__ import annotations

from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from minitorch.cli.errors import LONELY, RANK, friendly

app = typer.Typer(help="Train a network.", no_args_is_help=True)

MODEL = "What the network is made of: "
DRAWN = "How many training points to draw."

# For each option: its type, its help, and the default that is shown, which is that of
# `minitorch.train.recipes` (not imported here: `--help` should be quick). Where recipes
# differ, a dict says it for each; one that is not in it has no such option.
CHOICES: dict[str, tuple[Any, Any, Any]] = {
    "dataset": (
        str,
        {
            "points": "simple, diagonal, split, xor, circle, spiral or moons.",
            "mnist": "mnist, or drawn for digits that the computer draws.",
        },
        {"points": "spiral", "mnist": "mnist"},
    ),
    "device": (
        str,
        "Where to compute, for example cuda:1; see minitorch devices.",
        "cpu",
    ),
    "model": (
        str,
        {
            "xor": MODEL + "mlp, linear.",
            "points": MODEL + "mlp, linear.",
            "mnist": MODEL + "cnn, lenet, mlp.",
        },
        {"xor": "mlp", "points": "mlp", "mnist": "cnn"},
    ),
    "hidden": (
        int,
        "Units in each hidden layer of an mlp.",
        {"xor": "64", "points": "64", "mnist": "256"},
    ),
    "epochs": (
        int,
        "How often to go through the training examples.",
        {"xor": "30", "points": "60", "mnist": "5"},
    ),
    "batch_size": (
        int,
        "Examples in a step.",
        {"xor": "50", "points": "25", "mnist": "128"},
    ),
    "lr": (float, "The highest learning rate; ten times the default with sgd.", "0.01"),
    "optimizer": (str, "adamw, adam, sgd or schedule-free.", "adamw"),
    "seed": (int, "Of the weights, the order, dropout.", "0"),
    "limit": (
        int,
        {"xor": DRAWN, "points": DRAWN, "mnist": "Train on only so many digits."},
        {"xor": "400", "points": "500", "mnist": "all"},
    ),
    "data_dir": (
        Path,
        {"mnist": "Folder with MNIST's files; else $MINITORCH_DATA, the cache."},
        {"mnist": False},
    ),
    "out": (Path, "Folder for checkpoints, numbers, pictures.", "runs/RECIPE-TIME"),
    "track": (
        str,
        "tensorboard, wandb or trackio: what metrics.jsonl gets, there too.",
        False,
    ),
    "resume": (
        Path,
        "Go on with the run in this folder, or from this checkpoint.",
        False,
    ),
}

# The same for gpt, whose recipe counts in steps and not in epochs.
GPT_CHOICES: dict[str, tuple[Any, Any, Any]] = {
    "dataset": (
        str,
        "tinyshakespeare, alice (comes with minitorch), or a file of text.",
        "tinyshakespeare",
    ),
    "tokenizer": (str, "char, bpe, or a file that a tokenizer's save wrote.", "char"),
    "vocab_size": (int, "How many tokens bpe is to have.", "512"),
    "model": (
        str,
        "char-small, char, gpt2, ...: names of minitorch.models.PRESETS.",
        "char-small; on a GPU, char",
    ),
    "layers": (int, "Other sizes than the model's: blocks,", "4; char: 6"),
    "heads": (int, "heads in each,", "4; char: 6"),
    "width": (int, "numbers for a token,", "128; char: 384"),
    "block_size": (int, "tokens that it sees at a time,", "64; char: 256"),
    "dropout": (float, "the share that dropout takes.", "0.0; char: 0.2"),
    "device": CHOICES["device"],
    "steps": (int, "How often to change the weights.", "2000; char: 5000"),
    "batch_size": (int, "Pieces of text in a batch.", "12; char: 64"),
    "accumulate": (int, "Batches in a step, one after the other.", "1"),
    "lr": (float, "The highest learning rate.", "0.001; lion: 0.0002; lamb: 0.01"),
    "min_lr": (float, "The last one.", "a tenth of lr"),
    "warm_up": (int, "Steps in which it rises.", "100, at most a tenth"),
    "decay_steps": (int, "The step from which on it is min-lr.", "steps"),
    "weight_decay": (float, "How much of each matrix a step at lr 1 takes.", "0.1"),
    "beta2": (float, "What remains of AdamW's mean of squares.", "0.99"),
    "clip": (float, "The largest norm of the gradients; 0: any.", "1.0"),
    "optimizer": (
        str,
        "adamw, lion, lamb, muon (the rest: adamw) or schedule-free.",
        "adamw",
    ),
    "dtype": (str, "Of products: float32, bfloat16 or float16.", "float32"),
    "eval_every": (int, "Steps between measurements of the loss.", "250"),
    "eval_batches": (int, "Batches in each measurement.", "20; char: 200"),
    "sample": (int, "Tokens to write after each; 0: none.", "200"),
    "seed": (int, "Of weights, dropout, pieces of text, samples.", "0"),
    "data_dir": (
        Path,
        "Folder with tinyshakespeare; else $MINITORCH_DATA, the cache.",
        False,
    ),
    "dp": (int, "Ranks (torchrun) with other rows of a batch,", "what remains"),
    "tp": (int, "with parts of each layer,", "1"),
    "pp": (int, "with some of the layers,", "1"),
    "cp": (int, "with parts of each sequence.", "1"),
    "zero": (int, "What dp ranks deal out, too: stage 1, 2 or 3.", "0"),
    "schedule": (str, "Of pp: 1f1b, gpipe or interleaved.", "1f1b"),
    "out": CHOICES["out"],
    "track": CHOICES["track"],
    "resume": CHOICES["resume"],
}

# Options with defaults of their own: help, default, and a short name.
SETTINGS: dict[str, tuple[str, Any, str]] = {
    "graph": ("On a GPU, replay each step as one CUDA graph.", True, ""),
    "profile": ("Profile five steps: print a table, write trace.json.", False, ""),
    "checkpoint_every": ("Seconds between checkpoints in an epoch; 0: none.", 30.0, ""),
    "checkpoint_steps": ("Steps between checkpoints in an epoch; 0: none.", 0, ""),
    "plots": ("Draw pictures at the end.", True, ""),
    "quiet": ("Print only the result.", False, "-q"),
    "verbose": ("Print timings, too.", False, "-v"),
    "debug": ("Show tracebacks of errors.", False, ""),
}
# The same for gpt, which draws no pictures and measures as it goes.
GPT_SETTINGS: dict[str, tuple[str, Any, str]] = {
    "recompute": ("Keep less for the backward pass; compute it again.", False, ""),
    **{name: SETTINGS[name] for name in SETTINGS if name != "plots"},
    "checkpoint_every": (
        "Seconds between checkpoints beside those at measurements; 0: none.",
        300.0,
        "",
    ),
    "checkpoint_steps": ("Steps between them; 0: none.", 0, ""),
}


def _parameters(recipe: str) -> list[Parameter]:
    """The options of a recipe, as parameters of a function for Typer."""
    found = []
    choices = GPT_CHOICES if recipe == "gpt" else CHOICES
    settings = GPT_SETTINGS if recipe == "gpt" else SETTINGS
    for name, (kind, text, shown) in choices.items():
        text, shown = (
            x.get(recipe) if isinstance(x, dict) else x for x in (text, shown)
        )
        if text is not None:
            names = ["--limit", "--points"] if text == DRAWN else []
            option = typer.Option(*names, help=text, show_default=shown or False)
            found.append(_parameter(name, Annotated[kind | None, option], None))
    for name, (text, default, short) in settings.items():
        flag = f"--{name.replace('_', '-')}"
        names = [flag, short] if short else [flag] if default is False else []
        option = typer.Option(*names, help=text)
        found.append(_parameter(name, Annotated[type(default), option], default))
    return found


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    kind = Parameter.KEYWORD_ONLY
    return Parameter(name, kind, default=default, annotation=annotation)


def _add_command(recipe: str, text: str) -> None:
    """Let `minitorch train RECIPE` train, and print the result in one line."""

    def run(**options: Any) -> None:
        with friendly(options.pop("debug"), f"minitorch train {recipe}"):
            from minitorch.cli import STARTED
            from minitorch.train import GPTTrainConfig, TrainConfig, train, train_gpt

            result = (
                train_gpt(GPTTrainConfig(**options), STARTED)
                if recipe == "gpt"
                else train(TrainConfig(recipe=recipe, **options), STARTED)
            )
            if RANK == "0":
                typer.echo(result.summary())
            if not LONELY:
                from minitorch.distributed import destroy_process_group, is_initialized

                if is_initialized():
                    destroy_process_group()

    vars(run)["__signature__"] = Signature(_parameters(recipe))
    app.command(recipe, help=text)(run)


_add_command(
    "xor",
    "Learn which of two opposite quarters a point is in (seconds).\n\n"
    "No single layer can: try --model linear.",
)
_add_command(
    "points",
    "Learn two classes of points in the plane, such as two spirals (seconds).",
)
_add_command(
    "mnist",
    "Learn to read handwritten digits (minutes).\n\nWhere MNIST cannot be had, digits "
    "that are drawn by the computer take its place.",
)
_add_command(
    "gpt",
    "Learn to write, a GPT on Shakespeare (minutes).\n\nSettings are nanoGPT's for a "
    "processor; with --model char, the default on a GPU, those for one. Without a "
    "network it learns from Alice in Wonderland.",
)
