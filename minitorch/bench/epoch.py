"""One epoch on MNIST, loading included: `minitorch train mnist` against PyTorch.

With this file the benchmark can time what a user waits for (`epoch_cases`): the data
loader, the network of `minitorch train mnist`, its loss, AdamW and the learning rate's
schedule, in our library and in the same program written with PyTorch.

PyTorch gets its images as one float32 tensor that was normalized beforehand, which is
the fastest that its own loader takes; our loader normalizes bytes as it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from minitorch.bench.cases import Case, Pair, torch_module

EXAMPLES = (
    12_800  # a part of the 60,000: what an epoch costs is the same for each batch
)
BATCH = 128


def epoch_cases() -> Iterator[Case]:
    """100 steps of `minitorch train mnist`."""
    yield Case("epoch", f"train mnist, {EXAMPLES:,} digits", _epochs, goal=0.5)


def _epochs() -> Pair:
    from minitorch.train.config import TrainConfig
    from minitorch.train.recipes import fill_in
    from minitorch.train.tasks import digits_task

    config = fill_in(TrainConfig(recipe="mnist", limit=EXAMPLES, batch_size=BATCH))
    task = digits_task(config)
    return _our_epoch(config, task), _their_epoch(config, task)


def _our_epoch(config: Any, task: Any) -> Callable[[], None]:
    from minitorch.optim.lr_scheduler import LambdaLR
    from minitorch.train.loop import train_epoch
    from minitorch.train.models import build_model
    from minitorch.train.recipes import make_optimizer
    from minitorch.train.schedule import one_cycle

    model = build_model("mnist", config.model, config.hidden, config.device)
    optimizer = make_optimizer(model, config)
    scheduler = LambdaLR(optimizer, one_cycle(config.epochs * len(task.train)))
    look = lambda loss, scores, y: loss.item()
    return lambda: train_epoch(
        model, task.train, optimizer, scheduler, config.device, look
    )


def _their_epoch(config: Any, task: Any) -> Callable[[], None]:
    from minitorch.train.schedule import one_cycle
    from minitorch.train.tasks import normalize_digits

    torch = torch_module()
    images, labels = task.train_data
    x = torch.from_numpy(normalize_digits(images).reshape(-1, 1, 28, 28))
    data = torch.utils.data.TensorDataset(x, torch.from_numpy(labels).long())
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
    model = their_conv_net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    schedule = one_cycle(config.epochs * len(loader))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)

    def epoch() -> None:
        for batch, y in loader:
            loss = torch.nn.functional.cross_entropy(model(batch), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            loss.item()

    return epoch


def their_conv_net() -> Any:
    """`minitorch.train.models.ConvNet`, of PyTorch's layers."""
    nn = torch_module().nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(16, 32, 3), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Dropout(0.25), nn.Linear(32 * 5 * 5, 10),
    )  # fmt: skip
