"""Every installed backend has the functions of the protocol, and no others."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

import pytest

from helpers import DEVICES, loaded
from minitorch.backend import Backend

PROTOCOL = {
    name: member
    for name, member in vars(Backend).items()
    if isinstance(member, FunctionType) and not name.startswith("_")
}


@pytest.fixture(params=DEVICES, scope="module")
def backend(request: pytest.FixtureRequest) -> Any:
    return loaded(request.param)


def parameters(fn: Any) -> list[tuple[str, Any, Any]]:
    """(name, kind, default) of each parameter but `self`."""
    return [
        (p.name, p.kind, p.default)
        for p in inspect.signature(fn).parameters.values()
        if p.name != "self"
    ]


def public(backend: Any) -> set[str]:
    """The functions that a backend offers: `__all__`, or all without an underscore."""
    if hasattr(backend, "__all__"):
        return set(backend.__all__)
    return {n for n, f in vars(backend).items() if callable(f) and n[0] != "_"}


def test_the_protocol_is_known() -> None:
    assert {"map", "zip", "reduce", "matmul", "conv2d"} <= set(PROTOCOL)


def test_simple_and_cpu_are_installed() -> None:
    assert {"simple", "cpu"} <= set(DEVICES)


def test_no_function_is_missing_or_unknown(backend: Any) -> None:
    assert sorted(public(backend)) == sorted(PROTOCOL)


@pytest.mark.parametrize("name", PROTOCOL)
def test_parameters(backend: Any, name: str) -> None:
    assert parameters(getattr(backend, name)) == parameters(PROTOCOL[name])


@pytest.mark.parametrize("name", PROTOCOL)
def test_a_function_says_what_it_does(backend: Any, name: str) -> None:
    assert (getattr(backend, name).__doc__ or "").strip()
