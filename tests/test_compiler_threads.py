"""Compiled functions in several threads, and what one thread noted in another."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minitorch
from minitorch import Tensor, compiler
from minitorch.backend import fusion
from minitorch.executor import active


def test_threads_at_once() -> None:
    """Each thread has a recorder of its own, which no other one meets."""
    errors: list[BaseException] = []

    def work(k: int) -> None:
        x, w = minitorch.full((3, 4), float(k)), minitorch.ones(4, 4)
        compiled = minitorch.compile(lambda: ((x @ w).tanh() * 2.0 + 1.0).sum())
        expected = ((x @ w).tanh() * 2.0 + 1.0).sum().item()
        w.requires_grad_()
        try:
            for _ in range(100):
                y = compiled()
                y.backward()
                assert y.item() == expected and compiler.is_compiling() is False
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors and active.executor is None


def test_many_threads() -> None:
    """All get their numbers."""

    @minitorch.compile
    def program(x: Tensor) -> Tensor:
        return (x * 2.0).tanh().sum(-1) + x.sum(-1)

    found: dict[int, list[Any]] = {}

    def rank(k: int) -> None:
        x = minitorch.full((3, 5), float(k), requires_grad=True)
        made = []
        for _ in range(30):
            y = program(x)
            y.sum().backward()
            made.append(y.tolist())
        found[k] = [made, x.grad.tolist()]

    threads = [threading.Thread(target=rank, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(6):
        x = minitorch.full((3, 5), float(k))
        y = (x * 2.0).tanh().sum(-1) + x.sum(-1)
        assert found[k][0] == 30 * [y.tolist()]
    assert active.executor is None


def test_other_threads_use_what_is_noted() -> None:
    """By a read, by an operation, and in a compiled function of their own."""

    def program(x: Tensor) -> Tensor:
        with ThreadPoolExecutor(1) as other:
            y = x * 2.0 + 1.0
            total = other.submit(y.sum().item).result()
            z = y * 3.0 - 1.0
            product = other.submit(lambda: z @ z).result()
            w = z * 0.5 + 2.0
            f = minitorch.compile(lambda: (w * w).tanh() + minitorch.cat([w, w])[:2])
            return product * total + other.submit(f).result()

    x = minitorch.randn(2, 2)
    made, expected = minitorch.compile(program)(x), program(x)
    np.testing.assert_array_equal(made.numpy(), expected.numpy())


def test_threads_that_make_one_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is written once, and no thread finds a module that is half made."""
    monkeypatch.setattr(fusion, "generated_folder", lambda: tmp_path)
    start = threading.Barrier(4)

    def work(number: int) -> int:
        start.wait(60)
        return fusion.load("test_threads", f"number = {number}").number

    with ThreadPoolExecutor(4) as pool:
        for number in range(20):
            assert list(pool.map(work, [number] * 4)) == [number] * 4
