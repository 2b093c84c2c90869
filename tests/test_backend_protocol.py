"""Every installed backend brings the primitives, with the contract's signatures."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

import pytest

from helpers import DEVICES, loaded
from minitorch.backend import Backend, Primitives, registry

CONTRACT = sorted(
    name
    for family in Backend.__mro__
    for name, member in vars(family).items()
    if isinstance(member, FunctionType) and not name.startswith("_")
)
PRIMITIVES = sorted(Primitives.__abstractmethods__)


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


def test_the_contract_is_small() -> None:
    assert {"map", "zip", "reduce", "matmul", "conv2d"} <= set(PRIMITIVES)
    assert 25 <= len(PRIMITIVES) <= 30
    assert set(PRIMITIVES) < set(CONTRACT)


def test_simple_cpu_and_toy_are_installed() -> None:
    assert {"simple", "cpu", "toy"} <= set(DEVICES)


def test_the_toy_brings_the_primitives_and_nothing_else() -> None:
    from toy_backend import ToyBackend

    brought = {name for name in vars(ToyBackend) if not name.startswith("_")}
    assert sorted(brought) == PRIMITIVES
    source = inspect.getsource(inspect.getmodule(ToyBackend))  # type: ignore[arg-type]
    assert len(source.splitlines()) <= 300


def test_what_to_install_for_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each package that an extra brings, and whichever of them is missed first."""

    class Missing:
        def __init__(self, name: str) -> None:
            self.name = name

        def load(self) -> Any:
            raise ModuleNotFoundError(f"No module named {self.name!r}", name=self.name)

    for name in ("numba_cuda", "cuda.bindings", "greenlet"):
        found = {"cuda": Missing(name)}
        monkeypatch.setattr(registry, "_registered", lambda path, found=found: found)
        with pytest.raises(RuntimeError, match=r"pip install -e '.\[cuda13\]'"):
            registry._load("cuda")


def test_a_backend_without_a_primitive_is_refused() -> None:
    class Incomplete(Backend):
        pass

    with pytest.raises(TypeError, match="matmul"):
        Incomplete()  # type: ignore[abstract]


def test_no_function_is_unknown(backend: Any) -> None:
    assert isinstance(backend, Backend)
    brought = {name for name in vars(type(backend)) if not name.startswith("_")}
    facts = {"fused_types", "host_memory", "takes_half", "tries_half"}
    assert brought <= {*CONTRACT, *facts}


@pytest.mark.parametrize("name", CONTRACT)
def test_parameters(backend: Any, name: str) -> None:
    expected = parameters(getattr(Backend, name))
    if ("options", inspect.Parameter.VAR_KEYWORD, inspect.Parameter.empty) in expected:
        pytest.skip(f"{name} takes any options")
    assert parameters(getattr(backend, name)) == expected


@pytest.mark.parametrize("name", CONTRACT)
def test_a_function_says_what_it_does(name: str) -> None:
    assert (getattr(Backend, name).__doc__ or "").strip()


@pytest.mark.parametrize("device", ["cpu", "mojo"])
def test_launchers_of_the_host_stand_once(device: str) -> None:
    from minitorch.backend.host import HostBackend

    backend = type(loaded(device))
    own = {"map", "zip", "reduce", "sort", "matmul"}
    for name in {*PRIMITIVES, "layer_norm", "softmax", "adam_step"} - own:
        launcher = getattr(HostBackend, name)
        assert getattr(backend, name) is launcher, name
        assert launcher.__module__.startswith("minitorch.backend.host."), name
