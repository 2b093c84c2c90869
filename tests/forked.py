"""What tests let other processes do; a spawned one must be able to import it.

With this file a test can run a function in a child of fork() (`in_child`), and ask any
process for one of each kind of parallel work (`large_work`).
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

import minitorch
from minitorch import nn, optim


def in_child(work: Callable[[], object]) -> int:
    """The exit status of a child of fork() that runs `work`; 0 if nothing is raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def large_work(device: str = "cpu", n: int = 300) -> list[bytes]:
    """A product, a map, a sum and a training step on n x n numbers, as bytes."""
    minitorch.manual_seed(3)
    a = minitorch.rand(n, n, device=device)
    model = nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 10)).to(device)
    optimizer = optim.Adam(model.parameters())
    targets = (minitorch.arange(n) % 10).to(device)
    loss = nn.functional.cross_entropy(model(a), targets)
    loss.backward()
    optimizer.step()
    made = [a @ a, (a * a + 1).exp(), a.sum(), a.sum(0), loss, *model.parameters()]
    return [tensor.detach().numpy().tobytes() for tensor in made]
