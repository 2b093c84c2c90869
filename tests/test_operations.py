"""Every operation of the library has torch's gradient, or refuses where torch does.

The list of operations is what `minitorch`, `minitorch.nn.functional` and `Tensor`
offer; `operations.py` says how each is called. One without an entry there fails here.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from operations import (
    KINDS,
    OPERATIONS,
    WITHOUT_GRADIENT,
    Calls,
    Operation,
    as_torch,
    assert_same,
    check_backward,
    check_differences,
    check_forward,
    check_refusal,
    each,
    elements,
    public_operations,
    samples,
)

import minitorch
from minitorch import dtypes
from minitorch.bench import tiny
from minitorch.dtypes import DType
from minitorch.tensor_data import Shape

EVERY = [op for family in OPERATIONS.values() for op in family]
here = pytest.mark.parametrize("device", ["simple", "cpu"])


def first_sample(op: Operation) -> list[Any]:
    """The operands of one call of `op`, on the plain device."""
    dtype = KINDS[op.kinds[0]][0]
    return next(iter(samples(op, "simple", dtype, "contiguous")))[0]


def test_every_public_operation_has_an_entry():
    """One that nobody gave an entry in operations.py is named here."""
    public = public_operations()
    excused = {name for names in WITHOUT_GRADIENT.values() for name in names.split()}
    with Calls(public) as calls:
        for op in EVERY:
            op.fn(minitorch, *first_sample(op))
            if as_function := getattr(op.fn, "as_function", None):
                as_function(minitorch, *first_sample(op))
    # What has two names is one operation: __radd__ and __add__, clip and clamp.
    names = defaultdict(set)
    for name, value in public.items():
        names[id(getattr(value, "__func__", value))].add(name)
    called = {n for same in names.values() if same & calls.seen for n in same}
    assert sorted(public.keys() - called - excused) == [], "give these an entry"
    assert sorted(excused - public.keys()) == [], "these are gone"


def test_the_tiny_family_times_every_operation():
    """Both sides of each case run, and give results of one shape."""
    for name, value in public_operations().items():
        fn, short = getattr(value, "__func__", value), name.partition(".")[2]
        if inspect.isfunction(fn) and "input" in inspect.signature(fn).parameters:
            assert tiny.arguments(short, fn, dim=True), f"{name}: give it arguments"
    for case in tiny.tiny_cases("simple"):
        ours, theirs = (fn() for fn in case.build())
        assert shapes(ours) == shapes(theirs), case.name


def shapes(result: Any) -> Any:
    """The shape of a result, or of each of several."""
    if isinstance(result, (tuple, list)):
        return [shapes(one) for one in result]
    return tuple(result.shape) if hasattr(result, "shape") else type(result)


def operands_left_out():
    """Each operation with None for one of its tensors that must be given."""
    for full, value in public_operations().items():
        space, _, name = full.partition(".")
        fn = getattr(value, "__func__", value)
        if not inspect.isfunction(fn) or name in tiny.UNTIMED:
            continue
        given, parameters = tiny.arguments(name, fn), inspect.signature(fn).parameters
        for i, (value, told) in enumerate(zip(given or (), parameters.values())):
            needed = told.default is told.empty and told.kind is not told.VAR_POSITIONAL
            own = space == "Tensor" and i == 0
            if isinstance(value, np.ndarray) and needed and not own:
                yield pytest.param(fn, given, i, id=f"{full} {told.name}")


@pytest.mark.parametrize("fn, given, missing", [*operands_left_out()])
def test_none_is_no_operand(fn, given, missing):
    """As where a function forgot to return what it made: the error names who was given
    what."""
    arrays = (isinstance(x, np.ndarray) for x in given)
    call = [minitorch.tensor(x) if is_ else x for x, is_ in zip(given, arrays)]
    call[missing] = None
    with pytest.raises((TypeError, ValueError)) as told:
        fn(*call)
    said = str(told.value)
    assert ":" in said and ("NoneType" in said or "needed" in said), said
    assert "object" not in said, said


@here
@pytest.mark.parametrize("op", [op for op in EVERY if not op.differentiable], ids=str)
def test_refusal(op, device):
    if "f" in op.kinds:
        check_refusal(op, device)


# The edges: no dimensions, no elements, and every dtype. Where torch answers, we give
# its answer or say why not; where it refuses, we do so too.
EDGES = [(), (0,), (1,), (3,), (2, 0), (1, 1, 3)]
OUR_ERRORS = (ValueError, TypeError, RuntimeError, IndexError, ZeroDivisionError)


def answer(fn: Any, library: Any, operands: list[Any]) -> Any:
    """What `fn` returns or raises."""
    try:
        return fn(library, *operands)
    except Exception as error:
        return error


def compare_edge(op: Operation, dtype: DType, shape: Shape) -> str | None:
    """None, or how we differ from torch for operands of one shape and dtype."""
    arrays = [elements(op, shape, dtype, i, "") for i in range(len(op.shapes[0]))]
    mine = [minitorch.tensor(a, device="simple") for a in arrays]
    ours = answer(op.fn, minitorch, mine)
    theirs = answer(op.oracle or op.fn, torch, [as_torch(a) for a in arrays])
    if isinstance(ours, Exception):
        told = isinstance(ours, OUR_ERRORS) and ":" in str(ours)
        return None if told else f"raises {ours!r}"
    if isinstance(theirs, Exception):
        return f"answers where torch says {str(theirs)[:60]}"
    try:
        assert_same(ours, theirs, 3 * dtypes.finfo(dtype).eps if dtype.half else 1e-5)
    except AssertionError as error:
        return str(error)
    return None


@pytest.mark.parametrize("op", EVERY, ids=str)
def test_edges(op):
    differences = {}
    for dtype in dtypes.ALL:
        for shape in EDGES:
            how = compare_edge(op, dtype, shape)
            if how:
                differences[dtype.name, shape] = how
    assert differences == {}


TENSORS = "elementwise", "reduce", "movement", "matmul", "index"


@each(*TENSORS)
def test_forward(op, device):
    check_forward(op, device)


@each(*TENSORS, differentiable=True)
def test_backward(op, device):
    check_backward(op, device)


@each(*TENSORS, differentiable=True)
def test_differences(op, device):
    check_differences(op, device)


@here
@each("forms")
def test_other_names(op, device):
    check_forward(op, device)


@here
@each("forms", differentiable=True)
def test_gradients_of_other_names(op, device):
    check_backward(op, device)


@here
@each("in place")
def test_in_place(op, device):
    check_forward(op, device)


@here
@each("in place", differentiable=True)
def test_gradients_in_place(op, device):
    check_backward(op, device)


@here
@each("functional")
def test_functional(op, device):
    check_forward(op, device)


@here
@each("functional", differentiable=True)
def test_gradients_of_functional(op, device):
    check_backward(op, device)
