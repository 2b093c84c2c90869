"""Making tensors: from Python, NumPy and DLPack, full of a value, and random."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from operations import TORCH_DTYPES, assert_same
from strategies import dtype_names, small_shapes, tensors

import minitorch
from minitorch import dtypes

# ------------------------------------------------------------------------- tensor()

DATA = [
    3,
    2.5,
    True,
    [],
    [[], []],
    [1, 2, 3],
    [1.0, 2, 3],
    [1, 2.5],
    [True, False],
    [True, 2],
    [[1, 2], [3, 4]],
    ((1.5, 2.5), (3.5, 4.5)),
    [[[1]], [[2]]],
    [math.nan, math.inf],
    2**40,
    range(4),
]


KINDS = "float32", "float64", "int64", "int32", "int8", "bool"


@pytest.mark.parametrize("data", DATA, ids=repr)
def test_from_python(device, data):
    assert_same(minitorch.tensor(data, device=device), torch.tensor(data))
    for dtype in dtypes.ALL:
        if data not in (2**40,) and not (
            isinstance(data, list) and math.nan in data and not dtype.is_floating_point
        ):
            mine = minitorch.tensor(data, dtype=dtype, device=device)
            assert_same(mine, torch.tensor(data, dtype=TORCH_DTYPES[dtype]))


@pytest.mark.parametrize("kind", KINDS)
def test_from_arrays_and_numpy_scalars(device, kind):
    array = np.arange(6).reshape(2, 3).astype(kind)
    assert_same(minitorch.tensor(array, device=device), torch.tensor(array))
    assert_same(minitorch.tensor(array.T, device=device), torch.tensor(array.T))
    assert_same(minitorch.tensor(array[0, 1], device=device), torch.tensor(array[0, 1]))


def test_tensor_copies(device):
    array = np.ones(3, np.float32)
    x = minitorch.tensor(array, device=device)
    array[0] = 5
    y = minitorch.tensor(x)
    x[1] = 7.0
    assert y.tolist() == [1.0, 1.0, 1.0] and y.device == device
    assert minitorch.tensor(x, dtype=minitorch.int64).tolist() == [1, 7, 1]
    assert minitorch.tensor(x, requires_grad=True).is_leaf


def test_lists_of_tensors(device):
    items = [minitorch.tensor(1.5, device=device), minitorch.tensor(2.5, device=device)]
    assert minitorch.tensor(items, device=device).tolist() == [1.5, 2.5]
    rows = [minitorch.tensor([1, 2], device=device), [3, 4]]
    assert minitorch.tensor(rows, device=device).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "data, error",
    [
        ([[1, 2], [3]], ValueError),
        ("text", TypeError),
        ([1, "a"], TypeError),
        ([None], TypeError),
        ([1 + 2j], TypeError),
        ({"a": 1}, TypeError),
    ],
)
def test_data_that_makes_no_tensor(data, error):
    with pytest.raises(error, match="tensor"):
        minitorch.tensor(data)


# --------------------------------------------------------------- NumPy and DLPack


def test_from_numpy_shares_memory():
    for array in (np.zeros((2, 3)), np.zeros(6, np.float32), np.zeros((3, 2), bool).T):
        x = minitorch.from_numpy(array)
        x.fill_(1)
        assert array.all()
        array[0] = 0
        assert x[0].sum().item() == 0
    for kind in (np.uint16, np.uint8, np.complex64, np.dtype("O")):
        with pytest.raises(TypeError, match="counterpart"):
            minitorch.from_numpy(np.zeros(2, kind))


def test_from_numpy_keeps_its_shape_whatever_becomes_of_the_array(device):
    array = np.arange(6.0)
    x = minitorch.from_numpy(array, device=device)
    array.shape = (2, 3)
    array.setflags(write=False)
    assert (x[2:4] * 2).tolist() == [4.0, 6.0]
    assert (x.add_(1) + 1).tolist() == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_from_numpy_refuses_memory_that_runs_backwards():
    array = np.arange(3.0)
    with pytest.raises(ValueError, match=r"array\.copy\(\)"):
        minitorch.from_numpy(array[::-1])
    assert minitorch.tensor(array[::-1]).tolist() == [2.0, 1.0, 0.0]


def test_float64_numbers_are_not_rounded_to_float32(device):
    one = minitorch.tensor(0.1, dtype=minitorch.float64, device=device)
    rows = minitorch.tensor([[0.1], [1 / 3]], dtype=minitorch.float64, device=device)
    assert one.item() == 0.1
    assert rows.tolist() == [[0.1], [1 / 3]]


@pytest.mark.parametrize("view", ["[::2]", "T", "expand", "readonly"])
def test_from_numpy_with_any_strides(view):
    base = np.arange(12.0).reshape(3, 4)
    array = {
        "[::2]": base[:, ::2],
        "T": base.T,
        "expand": np.broadcast_to(base[0], (5, 4)),
        "readonly": base.copy(),
    }[view]
    if view == "readonly":
        array.flags.writeable = False
    x = minitorch.from_numpy(array)
    assert np.array_equal(x.numpy(), array)
    assert np.array_equal((x + 1).numpy(), array + 1)
    if not array.flags.writeable:
        before = array.copy()
        x.fill_(-1)
        assert np.array_equal(array, before)


@given(data=st.data())
def test_numpy_and_back(device, data):
    x, array = data.draw(tensors(device))
    assert np.array_equal(x.numpy(), array, equal_nan=True)
    assert x.numpy().dtype == array.dtype
    assert np.array_equal(np.asarray(x), array)
    assert x.tolist() == array.tolist()
    assert np.asarray(x, dtype=np.float64).dtype == np.float64


def test_kinds_of_arrays_are_taken_as_arrays(device):
    for array in (np.ones((2, 3)).view(np.matrix), np.ma.ones((2, 3))):
        x = minitorch.from_numpy(array, device=device)
        assert x[1].shape == (3,) and (x + 1).sum().item() == 12
        assert type(x.cpu().numpy()) is np.ndarray


def test_numpy_is_told_where_it_asks_for_no_copy_and_needs_one():
    x = minitorch.zeros(2)
    assert np.shares_memory(x.__array__(copy=False), x.numpy())
    assert not np.shares_memory(x.__array__(copy=True), x.numpy())
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        with pytest.raises(ValueError, match="avoid copy"):
            np.array(x, dtype=np.int32, copy=False)


def test_numpy_shares_memory_on_the_cpu():
    x = minitorch.zeros(2, 3)
    for view in (x, x.T, x[:, ::2], x[1]):
        view.numpy()[...] += 1
    assert x.tolist() == [[3.0, 2.0, 3.0], [4.0, 3.0, 4.0]]
    np.asarray(x)[0, 0] = 9
    assert x[0, 0].item() == 9.0
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        minitorch.zeros(2, requires_grad=True).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_dlpack_without_copies(kind):
    x = minitorch.zeros(2, 3, dtype=dtypes.by_name(kind))
    for view in (x, x.T, x[:, 1:]):
        t = torch.from_dlpack(view)
        assert tuple(t.shape) == tuple(view.shape) and str(t.dtype) == f"torch.{kind}"
        t.fill_(1)
        assert view.all().item()
        a = np.from_dlpack(view)
        assert a.ctypes.data == t.data_ptr()
        x.zero_()
    source = torch.zeros(3, 4, dtype=getattr(torch, kind))
    for theirs in (source, source.T, source[1:, ::2]):
        mine = minitorch.from_dlpack(theirs)
        mine.fill_(1)
        assert bool(theirs.all()) and tuple(mine.shape) == tuple(theirs.shape)
        source.zero_()
    array = np.zeros(3)
    minitorch.from_dlpack(array).fill_(2)
    assert array.tolist() == [2.0, 2.0, 2.0]
    assert minitorch.from_dlpack(x).numpy().ctypes.data == x.numpy().ctypes.data


def test_as_tensor(device):
    x = minitorch.ones(2, device=device)
    assert minitorch.as_tensor(x) is x
    assert minitorch.as_tensor([1, 2], device=device).tolist() == [1, 2]
    assert minitorch.as_tensor(x, dtype=minitorch.int64).dtype is minitorch.int64
    array = np.zeros(2)
    minitorch.as_tensor(array).fill_(1)
    assert array.tolist() == [1.0, 1.0]


# ------------------------------------------------------------------------ constants


@given(shape=small_shapes(), dtype=dtype_names)
def test_zeros_ones_full(device, shape, dtype):
    options = {"dtype": dtype, "device": device}
    theirs = {"dtype": TORCH_DTYPES[dtype]}
    assert_same(minitorch.zeros(shape, **options), torch.zeros(shape, **theirs))
    assert_same(minitorch.ones(*shape, **options), torch.ones(shape, **theirs))
    value = 3 if dtype is not minitorch.bool else True
    full = minitorch.full(shape, value, **options)
    assert_same(full, torch.full(shape, value, **theirs))
    assert_same(minitorch.zeros_like(full), torch.zeros(shape, **theirs))
    assert_same(minitorch.ones_like(full), torch.ones(shape, **theirs))
    assert minitorch.empty(shape, **options).shape == shape
    assert minitorch.empty_like(full).dtype is dtype
    assert full.device == device


def test_full_infers_its_dtype(device):
    for value in (True, 2, 2.5):
        assert_same(minitorch.full((2,), value, device=device), torch.full((2,), value))
    x = minitorch.ones(2, dtype=minitorch.int32, device=device)
    assert_same(minitorch.full_like(x, 7), torch.full((2,), 7, dtype=torch.int32))
    assert minitorch.ones_like(x, dtype=minitorch.float64).dtype is minitorch.float64
    assert minitorch.zeros_like(x.float().requires_grad_()).requires_grad is False
    y = minitorch.zeros_like(x, dtype=minitorch.float32, requires_grad=True)
    assert y.requires_grad and y.device == device
    assert minitorch.full_like(x, 1, device="simple").device == "simple"


def test_defaults_and_requires_grad():
    x = minitorch.zeros(2, 3)
    assert x.device == "cpu" and x.dtype is minitorch.float32 and x.is_contiguous()
    for make in (minitorch.zeros, minitorch.ones, minitorch.rand, minitorch.randn):
        assert make(2, requires_grad=True).requires_grad
        assert make(size=(2, 3)).shape == minitorch.empty(size=[2, 3]).shape == (2, 3)
        with pytest.raises(TypeError, match=r"expected ints, got \(2, \(3,\)\)"):
            make(2, size=(3,))
    assert minitorch.zeros([2, 3]).shape == minitorch.zeros((2, 3)).shape == (2, 3)
    assert minitorch.zeros(minitorch.ones(2, 3).shape).shape == (2, 3)
    assert minitorch.zeros(()).shape == ()


ARANGE = [
    (5,),
    (0,),
    (2, 7),
    (1, 10, 3),
    (10, 0, -3),
    (0.5, 3),
    (0, 1, 0.25),
    (3, 3),
    (5.0,),
    (-2, 2, 0.5),
    (1, 0.3, -0.1),
]


@pytest.mark.parametrize("args", ARANGE, ids=str)
def test_arange(device, args):
    assert_same(minitorch.arange(*args, device=device), torch.arange(*args), 1e-6)


def test_tensors_of_one_element_in_a_list_are_numbers():
    def program(lib):
        one, two = lib.tensor([1.0]), lib.tensor([[2.0]])
        return lib.tensor([one, two]), lib.tensor([[one], [two]]), lib.tensor([3, two])

    assert_same(program(minitorch), program(torch))
    assert minitorch.as_tensor(minitorch.ones(1, 1)).shape == (1, 1)


def test_arange_between_tensors():
    def program(lib):
        x = lib.tensor([3.5, 1.0])
        return lib.arange(x.min(), x.max(), 0.5), lib.arange(lib.tensor(3))

    assert_same(program(minitorch), program(torch))


def test_arange_with_a_dtype(device):
    x = minitorch.arange(4, dtype=minitorch.float64, device=device)
    assert_same(x, torch.arange(4, dtype=torch.float64))
    for args in ((0, 5, 0), (0, 5, -1), (5, 0)):
        with pytest.raises(ValueError, match="arange"):
            minitorch.arange(*args)


@pytest.mark.parametrize("args", [(0, 1, 5), (-2.5, 3, 7), (1, 0, 4), (3, 9, 1)])
def test_linspace(device, args):
    assert_same(minitorch.linspace(*args, device=device), torch.linspace(*args), 1e-6)
    assert minitorch.linspace(0, 1, 0).shape == (0,)


def test_eye_and_meshgrid(device):
    for args in ((3,), (2, 4), (4, 2), (0,)):
        assert_same(minitorch.eye(*args, device=device), torch.eye(*args))
    a = minitorch.arange(3, device=device)
    b = minitorch.arange(2, device=device)
    for order in ("ij", "xy"):
        mine = minitorch.meshgrid(a, b, indexing=order)
        theirs = torch.meshgrid(torch.arange(3), torch.arange(2), indexing=order)
        assert_same(mine, theirs)


def test_new_ones_like_this(device):
    x = minitorch.ones(2, dtype=minitorch.float64, device=device)
    for made in (x.new_zeros(3), x.new_ones((3, 2)), x.new_full((2,), 5)):
        assert made.dtype is minitorch.float64 and made.device == device
    assert x.new_zeros(3, 2).shape == (3, 2)
    assert x.new_ones(2, dtype=minitorch.int64).dtype is minitorch.int64
    for data in ([1, 2], np.arange(2), minitorch.arange(2, device=device)):
        assert x.new_tensor(data).dtype is minitorch.float64
    assert x.long().new_tensor([1.5]).tolist() == [1]
    for like in (minitorch.rand_like, minitorch.randn_like):
        made = like(x.long(), dtype=minitorch.float64, requires_grad=True)
        assert made.dtype is minitorch.float64 and made.requires_grad
        assert made.shape == x.shape and made.device == device


# --------------------------------------------------------------------------- random


def test_random_numbers_are_a_function_of_the_seed(device):
    def draw() -> list:
        minitorch.manual_seed(7)
        where = {"device": device}
        return [
            minitorch.rand(3, 5, **where),
            minitorch.randn(7, dtype=minitorch.float64, **where),
            minitorch.randint(2, 9, (11,), **where),
            minitorch.randperm(6, **where),
        ]

    first, second = draw(), draw()
    assert all(a.equal(b) for a, b in zip(first, second))
    assert not minitorch.rand(3, 5, device=device).equal(first[0])
    minitorch.manual_seed(8)
    assert not minitorch.rand(3, 5, device=device).equal(first[0])


def test_devices_draw_the_same_numbers(device):
    def draw(where: str) -> list:
        minitorch.manual_seed(3)
        u, n = minitorch.rand(10, device=where), minitorch.randn(9, device=where)
        return [
            u.tolist(),
            n.tolist(),
            minitorch.randint(5, (9,), device=where).tolist(),
        ]

    mine, expected = draw(device), draw("simple")
    assert mine[0] == expected[0] and mine[2] == expected[2]
    assert np.allclose(mine[1], expected[1], atol=1e-6)


def test_distributions():
    minitorch.manual_seed(0)
    u = minitorch.rand(20_000).numpy()
    n = minitorch.randn(20_000).numpy()
    i = minitorch.randint(-3, 4, (20_000,)).numpy()
    assert 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 0.01
    assert abs(u.var() - 1 / 12) < 0.005
    assert abs(n.mean()) < 0.03 and abs(n.std() - 1) < 0.03
    assert abs((n**4).mean() - 3) < 0.3
    assert i.min() == -3 and i.max() == 3
    assert (np.abs(np.bincount(i + 3) - 20_000 / 7) < 300).all()


def test_randperm_randint_and_like(device):
    assert sorted(minitorch.randperm(20, device=device).tolist()) == list(range(20))
    assert minitorch.randperm(0, device=device).shape == (0,)
    assert set(minitorch.randint(3, (50,), device=device).tolist()) <= {0, 1, 2}
    x = minitorch.ones(2, 3, dtype=minitorch.float64, device=device)
    for made in (minitorch.rand_like(x), minitorch.randn_like(x)):
        assert made.dtype is x.dtype and made.shape == x.shape and made.device == device
    assert minitorch.randint_like(x, 0, 5).shape == x.shape
    for bad in ((5, 5, (2,)), (5, 0, (2,))):
        with pytest.raises(ValueError, match="high"):
            minitorch.randint(*bad)


def test_generators():
    a, b = minitorch.Generator(5), minitorch.Generator(5)
    x, y = minitorch.rand(3, generator=a), minitorch.rand(3, generator=b)
    assert x.equal(y) and a.initial_seed() == 5
    state = a.get_state()
    z = minitorch.rand(3, generator=a)
    a.set_state(state)
    assert minitorch.rand(3, generator=a).equal(z) and not z.equal(x)


@pytest.mark.parametrize("lib", [minitorch, torch])
def test_the_state_of_the_default_generator(lib, tmp_path):
    lib.manual_seed(2**40 + 5)
    first = lib.rand(5)
    assert lib.initial_seed() == 2**40 + 5
    lib.save({"rng": lib.get_rng_state()}, tmp_path / "state.pt")
    drawn = lib.rand(3).tolist(), lib.randint(100, (2,)).tolist(), lib.randn(4).tolist()
    lib.manual_seed(6)
    lib.set_rng_state(lib.load(tmp_path / "state.pt")["rng"])
    assert lib.initial_seed() == 2**40 + 5 and lib.rand(3).tolist() == drawn[0]
    assert lib.randint(100, (2,)).tolist() == drawn[1]
    assert lib.randn(4).tolist() == drawn[2] != first.tolist()


def test_random_in_place(device):
    minitorch.manual_seed(0)
    x = minitorch.empty(400, device=device).uniform_(2.0, 3.0)
    assert x.min().item() >= 2 and x.max().item() < 3
    y = minitorch.empty(400, device=device).normal_(5.0, 0.1)
    assert abs(y.mean().item() - 5) < 0.05 and abs(y.std().item() - 0.1) < 0.02


def test_normal_numbers_with_a_mean_and_a_deviation(device):
    minitorch.manual_seed(0)
    x = minitorch.normal(5.0, 0.1, (400,), device=device, requires_grad=True)
    assert x.requires_grad and x.is_leaf and x.device == device
    assert abs(x.mean().item() - 5) < 0.05 and abs(x.std().item() - 0.1) < 0.02
    means = minitorch.tensor([[0.0], [9.0]], device=device, requires_grad=True)
    y = minitorch.normal(means, minitorch.ones(300, device=device))
    assert y.shape == (2, 300) and not y.requires_grad and y.device == device
    assert (y.mean(1) - means[:, 0]).abs().max().item() < 0.3
    assert minitorch.normal(means, 0.0).tolist() == means.tolist()
    assert minitorch.normal(2.0, means.double() * 0).dtype is minitorch.float64
    with pytest.raises(TypeError, match=r"normal: .* say size="):
        minitorch.normal(0, 1)
    for std, size in ((-1.0, (2,)), (-means, None)):
        with pytest.raises(ValueError, match="it must be 0 or more"):
            minitorch.normal(0.0, std, size)


def test_tensors_by_their_old_names():
    for lib in (minitorch, torch):
        whole, real = lib.LongTensor, lib.FloatTensor
        assert whole([[1], [2]]).tolist() == [[1], [2]] and real((1, 2)).sum() == 3
        assert whole(np.array([3])).dtype == lib.int64
        assert real(np.ones(2)).dtype == lib.float32
        assert whole(2, 3).shape == real(lib.Size((2, 3))).shape == (2, 3)
        assert real().shape == (0,) and whole(2).dtype == lib.int64


def test_the_cache_of_no_gpu_is_empty(monkeypatch):
    minitorch.cuda.empty_cache()
    monkeypatch.setattr(minitorch.cuda, "is_available", lambda: False)
    minitorch.cuda.empty_cache()


def test_a_program_can_choose_its_device(device):
    chosen = minitorch.device(device)
    assert chosen == device and chosen.type == device and chosen.index is None
    assert minitorch.zeros(2, device=chosen).to(chosen).device == device
    assert minitorch.device(f"{device}:0") == minitorch.device(device, 0) == device
    assert minitorch.cuda.is_available() == (minitorch.cuda.device_count() > 0)
    accelerator = minitorch.accelerator
    assert accelerator.is_available() == minitorch.cuda.is_available()
    there = accelerator.current_accelerator(check_available=True)
    assert there == ("cuda" if accelerator.is_available() else None)
    built = "cuda" in minitorch.available_devices()
    assert accelerator.current_accelerator() == ("cuda" if built else None)
    with pytest.raises(ValueError, match="there is no device 'gpu'; installed are"):
        minitorch.device("gpu")
    for wrong in (("cuda:",), ("cuda:x",), ("cuda", -1), ("cuda:1", 0)):
        with pytest.raises(ValueError, match="expected a name, or a name and a number"):
            minitorch.device(*wrong)
    with pytest.raises(ValueError, match=r"leave the index out|there is no 'cuda:77'"):
        minitorch.zeros(2, device=minitorch.device(device, 77))
