"""One epoch on MNIST, loading included: `minitorch train mnist` against PyTorch.

With this file the benchmark can time what a user waits for (`epoch_cases`): the data
loader, the network of `minitorch train mnist`, its loss, AdamW and the learning rate's
schedule, in our library and in the same program written with PyTorch.

On the CPU PyTorch gets its images as one float32 tensor that was normalized beforehand,
which is the fastest that its own loader takes; our loader normalizes bytes as it goes.
On a GPU both keep all images there and pick the rows of a batch, and nobody reads a
loss before the epoch is over; ours replays a CUDA graph, as `minitorch train` does.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from minitorch.bench.inputs import Case, Pair, set_up, their_device, torch_module

EXAMPLES = (
    12_800  # a part of the 60,000: what an epoch costs is the same for each batch
)
BATCH = 128


def epoch_cases(device: str = "cpu") -> Iterator[Case]:
    """100 steps of `minitorch train mnist --device cpu` (or cuda)."""
    name, build = f"train mnist, {EXAMPLES:,} digits", partial(_epochs, device)
    yield Case("epoch", name, build, goal=0.5)


def _epochs(device: str) -> Pair:
    from minitorch.train.config import TrainConfig
    from minitorch.train.recipes import fill_in
    from minitorch.train.tasks import digits_task

    chosen = TrainConfig("mnist", device=device, limit=EXAMPLES, batch_size=BATCH)
    config = fill_in(chosen)
    task = digits_task(config)
    if task.notice:
        print(task.notice, file=sys.stderr)
    if device == "cpu":
        return _our_epoch(config, task), _their_epoch(config, task)
    set_up()
    return our_epoch_on_gpu(config, task), their_epoch_on_gpu(config, task)


def _our_program(config: Any, task: Any) -> tuple[Any, Any, Any]:
    """The model, the optimizer and the scheduler of `minitorch train`."""
    from minitorch.optim.lr_scheduler import LambdaLR
    from minitorch.train.models import build_model
    from minitorch.train.recipes import make_optimizer
    from minitorch.train.schedule import one_cycle

    model = build_model("mnist", config.model, config.hidden, config.device)
    steps = config.epochs * len(task.train)
    optimizer = make_optimizer(model, config, steps)
    scheduler = LambdaLR(optimizer, one_cycle(steps))
    return model, optimizer, scheduler


def _our_epoch(config: Any, task: Any) -> Callable[[], None]:
    from minitorch.train.loop import train_epoch

    model, optimizer, scheduler = _our_program(config, task)
    look = lambda loss, scores, y: loss.item()
    return lambda: train_epoch(
        model, task.train, optimizer, scheduler, config.device, look
    )


def our_epoch_on_gpu(config: Any, task: Any) -> Callable[[], float]:
    """An epoch as `minitorch train` does it on a GPU; returns the mean loss."""
    from minitorch.cuda import make_graphed_step
    from minitorch.train.loop import train_epoch, train_step
    from minitorch.train.session import Results

    model, optimizer, scheduler = _our_program(config, task)
    step = make_graphed_step(partial(train_step, model, optimizer))
    results = Results()

    def look(loss: Any, right: Any, examples: int) -> None:
        results.add(0, 0.0, examples, loss, right)

    def epoch() -> float:
        train_epoch(model, task.train, optimizer, scheduler, "cuda", look, step)
        return statistics.fmean(loss for *_, loss, _ in results.read())

    return epoch


def _their_program(config: Any, task: Any, device: str) -> tuple[Any, ...]:
    """PyTorch's images, labels, model, optimizer and scheduler."""
    from minitorch.train.schedule import one_cycle
    from minitorch.train.tasks import normalize_digits

    torch = torch_module()
    images, labels = task.train_data
    x = torch.from_numpy(normalize_digits(images).reshape(-1, 1, 28, 28)).to(device)
    y = torch.from_numpy(labels).long().to(device)
    model = their_conv_net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    schedule = one_cycle(config.epochs * len(task.train))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    return x, y, model, optimizer, scheduler


def _their_step(program: Sequence[Any], x: Any, y: Any) -> Any:
    """A step of (model, optimizer, scheduler); the loss."""
    model, optimizer, scheduler = program
    loss = torch_module().nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss.detach()


def _their_epoch(config: Any, task: Any) -> Callable[[], None]:
    torch = torch_module()
    x, y, *program = _their_program(config, task, "cpu")
    data = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)

    def epoch() -> None:
        for batch, labels in loader:
            _their_step(program, batch, labels).item()

    return epoch


def their_epoch_on_gpu(config: Any, task: Any) -> Callable[[], float]:
    """An epoch of PyTorch's with all images on the GPU; returns the mean loss."""
    torch = torch_module()
    x, y, *program = _their_program(config, task, their_device())

    def epoch() -> float:
        order, losses = torch.randperm(len(x), device=x.device), []
        for rows in order.split(config.batch_size):
            losses.append(_their_step(program, x[rows], y[rows]))
        return torch.stack(losses).mean().item()

    return epoch


def their_conv_net() -> Any:
    """`minitorch.train.models.ConvNet`, of PyTorch's layers."""
    nn = torch_module().nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(16, 32, 3), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.25), nn.Linear(32 * 5 * 5, 10),
    )  # fmt: skip
