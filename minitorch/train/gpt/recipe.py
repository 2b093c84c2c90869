"""The recipe: train a GPT on a text, from the first step to the last sample.

With this file one can run `train_gpt`, a function of a `GPTTrainConfig` that returns a
`GPTResult`, as `minitorch train gpt` does; and take the model and the tokenizer out of
a run's folder (`load_gpt`).

    >>> result = train_gpt(GPTTrainConfig(dataset="alice", steps=200))
    >>> result.tokenizer.decode(result.model.generate([0], 100))
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from minitorch.amp import GradScaler
from minitorch.backend import get_backend
from minitorch.backend.registry import split_name
from minitorch.data import Tokenizer, load_tokenizer
from minitorch.models import GPT, GPTConfig
from minitorch.optim import AdamWScheduleFree
from minitorch.optim.lr_scheduler import LambdaLR
from minitorch.random import Generator, manual_seed
from minitorch.train.checkpoint import CheckpointError, find_checkpoint, load_checkpoint
from minitorch.train.config import with_checkpoint
from minitorch.train.folder import default_folder, prepare_folder
from minitorch.train.gpt.config import (
    FIXED,
    INHERITED,
    GPTTrainConfig,
    fill_in,
    model_config,
)
from minitorch.train.gpt.layout import join, laid_out, restarted
from minitorch.train.gpt.optimizers import make_optimizer
from minitorch.train.gpt.session import (
    STEPS,
    TRAIN_LOSS,
    VAL_LOSS,
    GPTSession,
    Row,
    lowered,
    mean_loss,
    text_step,
)
from minitorch.train.gpt.task import (
    TOKENIZER,
    TextTask,
    open_task,
    prepare_task,
    read_text,
    take_along,
)
from minitorch.train.progress import Reporter, SilentReporter, make_reporter
from minitorch.train.report import write_json
from minitorch.train.running import explained, prepared
from minitorch.train.schedule import constant, warm_up_cosine
from minitorch.train.tracking import tracked


@dataclass(frozen=True)
class GPTResult:
    """What came out of a run: all choices, the measurements, the folder with the
    checkpoints, the trained model (where ranks shared it, None but on rank 0) and its
    tokenizer."""

    config: GPTTrainConfig
    history: list[Row]
    folder: Path
    model: Any
    tokenizer: Tokenizer

    def summary(self) -> str:
        """What there is to say, in one line."""
        last = self.history[-1]
        best = min(self.history, key=lambda row: row.val_loss)
        lower = f" (best {best.val_loss:.4f} at step {best.step:,})"
        return (
            f"{self.config.dataset}, {self.tokenizer.vocab_size} tokens: validation "
            f"loss {last.val_loss:.4f}{'' if best is last else lower}, training loss "
            f"{last.train_loss:.4f}, after {last.step:,} steps; files in {self.folder}"
        )


def train_gpt(
    config: GPTTrainConfig | None = None,
    started: float | None = None,
    reporter: Reporter | None = None,
) -> GPTResult:
    """Train a GPT on a text. Arguments and errors as `train`'s."""
    started = time.perf_counter() if started is None else started
    asked = restarted(config or GPTTrainConfig())
    chosen, saved = with_checkpoint(asked, FIXED, INHERITED)
    config = fill_in(chosen)
    rank, ranks = join(config)
    config = laid_out(config, ranks)
    reporter = reporter or make_reporter(config.quiet)
    reporter = reporter if rank == 0 else SilentReporter()
    if rank == 0:
        config, folder = _begin(config, saved is not None, reporter)
    if ranks > 1:
        from minitorch.distributed import broadcast_object_list

        told: list[Any] = [(config.dataset, folder)] if rank == 0 else [None]
        broadcast_object_list(told)
        config, folder = replace(config, dataset=told[0][0]), told[0][1]
    task = open_task(config, folder)
    session = _session(config, task, folder, reporter, rank, ranks)
    if session.writes:
        write_json(folder / "config.json", _choices(session, folder))
    if saved is None:
        session.save()  # so that there is something to resume from the first step on
    else:
        _restore(session, saved, find_checkpoint(Path(str(config.resume))))
        reporter.note(f"resuming after step {session.step:,}")
    with tracked(reporter, session) if session.writes else nullcontext():
        _fit(session, task, reporter)
    if config.verbose and session.first_step is not None:
        first = session.first_step - started
        reporter.note(f"first step done {first:.1f} s after the start")
    if isinstance(session.optimizer, AdamWScheduleFree):
        session.optimizer.eval()  # the average is what was measured
    model = session.model if ranks == 1 else session.model.whole()
    return GPTResult(config, session.history, folder, model, task.tokenizer)


def _begin(
    config: GPTTrainConfig, resuming: bool, reporter: Reporter
) -> tuple[GPTTrainConfig, Path]:
    """Get the folder and the text in it ready: what one rank does for all."""
    folder = Path(config.out or default_folder(config.recipe))
    get_backend(str(config.device))  # without it, or without a text, no folder is made
    text = None if resuming else read_text(config)
    prepare_folder(folder, resuming)
    if text is None:
        take_along(find_checkpoint(Path(str(config.resume))).parent, folder)
        return config, folder
    if text.notice:
        reporter.warn(f"{text.notice}. On the command line: --data-dir FOLDER")
    config = replace(config, dataset=text.source)
    prepare_task(config, text, folder)
    return config, folder


def _restore(session: GPTSession, saved: dict[str, Any], path: Path) -> None:
    """Go on from a checkpoint, of which each rank reads what it needs."""
    if session.ranks == 1 and not path.is_dir():
        session.restore(saved)
        return
    from minitorch.distributed import checkpoint

    def go_on() -> None:
        if path.is_dir():
            checkpoint.check(path)
        session.restore(checkpoint.whole(saved) if session.ranks == 1 else saved)

    checkpoint.together("resume", go_on)


def load_gpt(path: str | Path, device: str | None = None) -> tuple[GPT, Tokenizer]:
    """The model and the tokenizer of a run: of its folder, or of one checkpoint in it.

    Raises:
        CheckpointError: there is none, or it is not that of a GPT.
    """
    file = find_checkpoint(Path(path))
    state = load_checkpoint(file)
    if "model_config" not in state:
        raise CheckpointError(f"checkpoint: {file} is not one of minitorch train gpt")
    model = GPT(GPTConfig(**state["model_config"]))
    model.load_state_dict(state["model"])
    model = model.eval() if device is None else model.to(device).eval()
    return model, load_tokenizer(file.parent / TOKENIZER)


def _choices(session: GPTSession, folder: Path) -> dict[str, Any]:
    choices = {**session.config.to_json(), "out": str(folder)}
    return {**choices, "model_config": asdict(session.model.config)}


# ----------------------------------------------------------------- before training


def _session(
    config: GPTTrainConfig,
    task: TextTask,
    folder: Path,
    reporter: Reporter,
    rank: int,
    ranks: int,
) -> GPTSession:
    """A model with fresh weights and all that it takes to train it."""
    assert config.device and config.lr and config.seed is not None
    assert config.warm_up is not None and config.decay_steps is not None
    assert config.min_lr is not None
    get_backend(config.device)
    manual_seed(config.seed)
    model: Any = GPT(model_config(config, task.tokenizer.vocab_size))
    model = model.to(config.device)
    model.recompute = config.recompute
    optimizer: Any = None
    if ranks == 1:
        optimizer = scheduled = make_optimizer(model, config)
    else:
        from minitorch.train.gpt.shared import SharedGPT, SharedOptimizer

        model = SharedGPT(model, config)
        optimizer, scheduled = SharedOptimizer(model), model.optimizer
    cosine = warm_up_cosine(
        config.warm_up, config.decay_steps, config.min_lr / config.lr
    )
    free = isinstance(optimizer, AdamWScheduleFree)
    return GPTSession(
        config=config,
        model=model,
        optimizer=optimizer,
        scheduler=LambdaLR(scheduled, constant if free else cosine),
        scaler=GradScaler(
            split_name(config.device)[0], enabled=config.dtype == "float16"
        ),
        folder=folder,
        peak=None
        if config.quiet or rank > 0
        else peak_flops(config.device, config.dtype or "float32"),
        ranks=ranks,
        writes=rank == 0,
        on_look=lambda session: _look(session, reporter),
    )


def peak_flops(device: str, dtype: str = "float32") -> float | None:
    """Operations a second that the device can do with such numbers, measured; None
    where that is not known: in the simulator, and in plain Python."""
    kind = split_name(device)[0]
    if kind in ("cpu", "mojo"):
        from fast_ops.limits import peak_flops

        return peak_flops()
    if kind != "cuda":
        return None
    from cuda_ops import limits
    from cuda_ops.simulator import SIMULATED
    from minitorch.precision import state

    if SIMULATED:
        return None
    half = dtype != "float32"  # of which tensor cores do twice as many as of TF32
    rate = (1 + half) * limits.tensor_rate() if half or state.allow_tf32 else 1.0
    return limits.peak_flops() * max(1.0, rate)


# ------------------------------------------------------------------------- training


def _fit(session: GPTSession, task: TextTask, reporter: Reporter) -> None:
    """All steps that are left to do, with a measurement every so often."""
    config, model = session.config, session.model
    assert config.steps and config.clip is not None and config.eval_every
    step = partial(
        text_step,
        model,
        session.optimizer,
        config.clip,
        scaler=session.scaler,
        region=lowered(config),
    )
    if session.ranks > 1:
        step = partial(model.step, region=lowered(config))
    reporter.begin(f"step {session.step}/{config.steps}", config.steps)
    model.train()
    try:
        with (
            explained(config, session.folder),
            session.stoppable(reporter.note),
            prepared(step, config, session.folder, reporter.note) as run,
        ):
            _measure(session, task, reporter)
            while session.step < config.steps:
                _take(session, task, run)
                if session.step % config.eval_every == 0:
                    _measure(session, task, reporter)
            _measure(session, task, reporter)
    finally:
        reporter.stop()


def _take(session: GPTSession, task: TextTask, run: Any) -> None:
    """One step, on windows that follow from the seed and the number of the step."""
    config, device = session.config, session.model.device
    assert config.accumulate and config.batch_size and config.seed is not None
    shape = config.accumulate, config.batch_size
    x, y = task.train.draw(shape, config.seed, STEPS, session.step)
    if session.ranks > 1:
        session.model.seed(session.step)
    loss = run(x.to(device), y.to(device))
    session.scheduler.step()
    session.after_step(loss)


def _measure(session: GPTSession, task: TextTask, reporter: Reporter) -> None:
    """Losses on both texts, a sample, and a checkpoint; once for a step."""
    config, model, step = session.config, session.model, session.step
    if session.history and session.history[-1].step == step:
        return
    session.look()
    reporter.draw(f"step {step}/{config.steps}", step, "measuring")
    with session.averaged():
        row = session.measured(
            mean_loss(model, task.train, config, TRAIN_LOSS),
            mean_loss(model, task.val, config, VAL_LOSS),
        )
        reporter.note(row_line(row, config.steps or 0))
        if config.sample and not config.quiet:
            reporter.note(_sample(session, task))
    content = {
        "recipe": config.recipe,
        "parameters": model.config.num_parameters(),
        "complete": step == config.steps,
        "rows": [asdict(row) for row in session.history],
    }
    if session.writes:
        write_json(session.folder / "metrics.json", content)
    session.start_clock()


def _sample(session: GPTSession, task: TextTask) -> str:
    """What the model writes now. Its random numbers are its own, so that a run is the
    same with samples and without."""
    config = session.config
    assert config.sample and config.seed is not None
    generator = Generator(config.seed + session.step)
    ids = session.model.generate(
        task.prompt(), config.sample, temperature=0.8, top_k=200, generator=generator
    )
    lines = task.tokenizer.decode(ids).splitlines()
    return "\n".join(f"    {line}".rstrip() for line in lines)


def _look(session: GPTSession, reporter: Reporter) -> None:
    steps = session.config.steps or 0
    if not session.step or math.isnan(session.loss):
        return
    left = (steps - session.step) * _tokens(session) / max(session.rate, 1e-9)
    text = f"loss {session.loss:.4f}  {_speed(session.rate, session.utilization)}"
    text += f"  {left:,.0f} s left" if session.rate else ""
    reporter.draw(f"step {session.step}/{steps}", session.step, text)


def _tokens(session: GPTSession) -> int:
    """Tokens in a step."""
    c = session.config
    return (c.batch_size or 0) * (c.accumulate or 0) * (c.block_size or 0)


def _speed(rate: float, utilization: float | None) -> str:
    share = "-" if utilization is None else f"{utilization:.1%}"
    return f"{rate:,.0f} tokens/s  MFU {share}" if rate else "- tokens/s  MFU -"


def row_line(row: Row, steps: int) -> str:
    """The numbers of a measurement in one line."""
    return (
        f"step {row.step:{len(str(steps))}}/{steps}  loss {row.train_loss:.4f}  "
        f"validation loss {row.val_loss:.4f}  lr {row.lr:.2e}  {row.seconds:.1f} s  "
        f"{_speed(row.tokens_per_second, row.utilization)}"
    )
