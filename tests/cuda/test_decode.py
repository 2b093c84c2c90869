"""A step of generation on the GPU: its kernels, and that it writes what the CPU writes.

It is one graph.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minitorch
from backends.test_attention import expected
from helpers import array_of, loaded, make
from minitorch import operators
from minitorch.backend.attention import KEEP_ALL
from minitorch.dtypes import bfloat16, finfo, float16, float32, int8
from minitorch.models import GPT, GPTConfig, Sampling
from minitorch.models.cache import KVCache
from minitorch.models.generation import _Writer
from minitorch.quantization import dequantize, quantize, quantize_
from minitorch.tensor import Tensor
from tests.cuda.sizes import met, pick

pytest.importorskip("numba_cuda")
from cuda_ops import linear
from cuda_ops.attention import attention, decode
from cuda_ops.block.intrinsics import WARP

SIZES = {"vocab_size": 11, "block_size": 12, "n_layer": 1, "n_head": 2, "n_embd": 4}
GPT2, LLAMA = SIZES, {
    **SIZES, "n_embd": 8, "norm": "rms", "positions": "rotary", "mlp": "swiglu",
    "n_kv_head": 1, "n_hidden": 4, "bias": False,
}  # fmt: skip


DRAWN = Sampling(0.9, top_k=5, top_p=0.9)


@met("made, kind", [(GPT2, Sampling(0.0)), (LLAMA, DRAWN)], ["float32", "int8", "int4"])
def test_a_step_is_a_graph_that_writes_the_same(made, kind):
    config, sampling = made
    minitorch.manual_seed(0)
    if kind == "int4":  # rows of whole groups
        config = {**config, "n_embd": 32}
    model = GPT(GPTConfig(**config))
    with minitorch.no_grad():
        for p in model.parameters():
            p.mul_(20.0)
    if kind != "float32":
        quantize_(model, kind, group_size=32)
    written = []
    for device in ("cpu", "cuda"):
        model.to(device)
        rows, random = [[1, 2, 3], [5, 6]], minitorch.Generator(1)
        writer = _Writer(model, rows, 9, sampling, random, True)
        written.append([writer.step() for _ in range(9)])
    assert written[0] == written[1]
    assert len(set(map(tuple, written[0]))) > 2
    kernels = writer.decode.graph.kernels
    assert (len(kernels) == 12) == (kernels[0] == "begin_step") == sampling.greedy
    assert any(name.startswith("attention_split") for name in kernels)
    if sampling.greedy:  # the product writes to the cache, the end to the beginning
        assert kernels[-1] == "hand_on" and "put_few" not in kernels
        assert writer.ahead.started == 12 == writer.ids.shape[1]
    else:
        assert kernels[-1].startswith("first_in_rows")
        assert "put_few" in kernels and "claim_slices" not in kernels


def test_who_stops_early_leaves_steps_that_nobody_reads():
    minitorch.manual_seed(0)
    model = GPT(GPTConfig(**GPT2)).to("cuda")
    whole = list(model.stream([[1, 2], [3]], 8, temperature=0))
    some = model.stream([[1, 2], [3]], 8, temperature=0)
    assert [next(some) for _ in range(5)] == whole[:5]
    some.close()
    assert list(model.stream([[1, 2], [3]], 8, temperature=0)) == whole


PROGRAM = """
import minitorch
from minitorch.models import GPT, GPTConfig

text = GPT(GPTConfig(**{sizes})).to("cuda").stream([1, 2], 8, temperature=0)
Event, device = minitorch.cuda.Event, minitorch.cuda._device
wait = Event.synchronize
Event.synchronize = lambda self: device() and wait(self)  # in the simulator, too
print(*[next(text) for _ in range(5)])
"""


def test_a_program_may_end_within_a_text():
    code = PROGRAM.format(sizes=GPT2)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr, len(done.stdout.split())) == (0, "", 5)


def step_after_three(ids, size=2, dropout=0.0, **options):
    """The scores of a second step, with a cache for `size` texts of [1, 2, 3]."""
    minitorch.manual_seed(0)
    model = GPT(GPTConfig(**GPT2, dropout=dropout)).to("cuda").eval()
    model.dropout.training = bool(dropout)
    cache = KVCache(model.config, size, device="cuda", **options)
    with minitorch.no_grad():
        model(minitorch.tensor([[1, 2, 3]] * size, device="cuda"), cache)
        return model(minitorch.tensor(ids, device="cuda"), cache)


def test_padding_may_be_a_column_of_a_table():
    table = minitorch.tensor([[0, 7], [1, 7]], device="cuda")
    found = [
        step_after_three([[4], [5]], padding=x)
        for x in (table[:, 0], table[:, 0].clone())
    ]
    assert found[0].tolist() == found[1].tolist()


def test_what_does_not_fit_a_cache_is_found_by_the_layers():
    with pytest.raises(ValueError, match=r"the source is \(3, 4, 1, 2\)"):
        step_after_three([[4], [5], [6]])
    with pytest.raises(TypeError, match="one tensor is float32 and another float16"):
        step_after_three([[4], [5]], dtype=float16)


def test_a_layer_that_still_drops_is_asked():
    drawn = step_after_three([[4], [5]], dropout=0.9)
    assert drawn.tolist() != step_after_three([[4], [5]]).tolist()


# ------------------------------------------------------------ attention of few queries

BLOCK = decode.lanes_for(16, 4, "").keys  # keys that a block takes
HEADS = (16, 16), (5, 7), (64, 64), (24, 48), (128, 128)
MASKS = "", "bool", "numbers", "causal"
# Each is a kernel or two: any two of head, mask and type meet, but not any three.
FORMS = [
    (head, mask, (float32, bfloat16, float16)[(i + j) % 3])
    for (i, head), (j, mask) in product(enumerate(HEADS), enumerate(MASKS))
]


@settings(max_examples=pick(6, 200))
@given(
    sizes=st.tuples(
        st.integers(1, 2), st.sampled_from([(1, 1), (12, 12), (4, 2), (6, 1)]),
        st.sampled_from([1, 1, 1, 3]),
        st.sampled_from([1, BLOCK - 1, BLOCK, BLOCK + 1, pick(3 * BLOCK, 1000)]),
    ),
    form=st.sampled_from(FORMS),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_few_queries_share_keys_among_blocks(sizes, form, seed):
    """Texts of unequal lengths; NaN where nothing may be read."""
    (b, (heads, few), queries, keys), ((e, v), kind, dtype) = sizes, form
    random = np.random.default_rng(seed)
    shapes = (b, heads, queries, e), (b, few, keys, e), (b, few, keys, v)
    arrays = [random.standard_normal(s, np.float32) for s in shapes]
    arrays = [a.astype(dtype.numpy).astype(np.float32) for a in arrays]
    mask = given_mask = None
    if kind in ("bool", "numbers"):
        first, end = random.integers(0, keys, b), random.integers(0, keys + 1, b)
        places = np.arange(keys)
        mask = (places >= first[:, None]) & (places < end[:, None])
        unseen = ~mask
        mask = np.broadcast_to(mask[:, None, None], (b, heads, queries, keys))
        if kind == "numbers":
            numbers = np.where(mask, places % 3, -np.inf).astype(dtype.numpy)
            mask = numbers.astype(np.float32)
        given_mask = make(numbers if kind == "numbers" else mask.copy(), "cuda")
    right = expected(
        [*arrays, np.zeros((*shapes[0][:3], v))], 0.3, kind == "causal", mask
    )
    if mask is not None:
        for a in arrays[1:]:
            a[np.broadcast_to(unseen[:, None], a.shape[:3])] = np.nan
    operands = [make(a.astype(dtype.numpy), "cuda") for a in arrays]
    out = make(np.zeros((*shapes[0][:3], v), dtype.numpy), "cuda")
    total = make(np.zeros(shapes[0][:3], np.float32), "cuda")
    options = 0.3, kind == "causal", given_mask, KEEP_ALL
    assert attention.attention_of_few(out, total, *operands, *options)
    np.testing.assert_allclose(array_of(total), right[1], rtol=0, atol=1e-4)
    error = max(1e-5, finfo(dtype).eps) if dtype.half else 1e-5
    got = array_of(out).astype(np.float32)
    np.testing.assert_allclose(got, right[0], rtol=0, atol=4 * error)


@pytest.mark.parametrize("dtype", [float32, bfloat16])
@pytest.mark.parametrize(
    ("heads", "few", "queries", "width", "size"),
    [(4, 2, 1, 16, 4), (3, 3, 2, 64, 16), (6, 1, 1, 5, 3)],
)
def test_few_queries_find_keys_by_tables(heads, few, queries, width, size, dtype):
    """Blocks and slots that no text has hold NaN."""
    lengths = queries, BLOCK + 3, BLOCK - 1
    random, most = np.random.default_rng(width), -(-max(lengths) // size)
    tables = random.permutation(3 * most).reshape(3, most)
    shapes = (3, heads, queries, width), (3 * most, size, 2 * few, width)
    query, memory = (random.standard_normal(s, np.float32) for s in shapes)
    query, memory = (a.astype(dtype.numpy).astype(np.float32) for a in (query, memory))
    right = np.empty_like(query)
    for row, table, count, q in zip(right, tables, lengths, query):
        texts = memory[table].reshape(-1, 2 * few, width)
        k, v = np.split(texts[None, :count].swapaxes(1, 2), 2, 1)
        seen = np.tri(queries, count, count - queries, dtype=bool)
        row[:] = expected([q[None], k, v, q[None]], 0.3, False, seen)[0][0]
        texts[count:] = np.nan
        memory[table] = texts.reshape(most, size, 2 * few, width)
    out, *operands = (
        make(a.astype(dtype.numpy), "cuda") for a in (query, query, memory)
    )
    numbers = make(tables, "cuda"), make(np.array(lengths), "cuda")
    assert attention.paged_attention(out, *operands, *numbers, 0.3)
    error = max(1e-5, finfo(dtype).eps) if dtype.half else 1e-5
    got = array_of(out).astype(np.float32)
    np.testing.assert_allclose(got, right, rtol=0, atol=4 * error)


# ------------------------------------------------------------------ layers of few rows


@pytest.mark.parametrize("kind", ["floats", "bytes"])
@pytest.mark.parametrize("dtype", [float32, bfloat16])
@pytest.mark.parametrize(
    ("rows", "k", "n", "parts"),
    [
        (1, pick(36, 768), 9, "bias fn residual norm"),
        (1, pick(200, 3072), 5, "bias residual"),
        (1, pick(132, 1600), 7, "norm"),
        (3, 5, 4, "bias norm fn"),
        (2, 130, 3, ""),
    ],
)
def test_a_layer_of_few_rows_is_one_kernel(rows, k, n, parts, dtype, kind):
    random = np.random.default_rng(rows + k)
    shapes = (rows, k), (n, k), (n,), (rows, n), (k,), (k,)
    arrays = [random.standard_normal(s, np.float32) for s in shapes]
    given = [make(a.astype(dtype.numpy), "cuda") for a in arrays]
    x, w, b, more, scale, shift = (array_of(a).astype(np.float64) for a in given)
    norm = (given[4], given[5], 1e-5) if "norm" in parts else None
    if norm:
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        x = x * scale + shift
    steps = None
    if kind == "bytes":
        numbers = random.integers(-127, 128, (n, k), np.int8)
        given[1], steps = make(numbers, "cuda"), make(np.abs(arrays[2]) / 99, "cuda")
        w = array_of(steps).astype(np.float64)[:, None] * numbers
    right = x @ w.T + (b if "bias" in parts else 0)
    fn = operators.gelu_tanh if "fn" in parts else None
    right = np.vectorize(fn)(right) if fn else right
    right = right + (more if "residual" in parts else 0)
    bias = given[2] if "bias" in parts else None
    residual = given[3] if "residual" in parts else None
    out = loaded("cuda").linear(*given[:2], bias, fn, residual, norm, scale=steps)
    assert out is not None and out.dtype is dtype
    error = (finfo(dtype).eps if dtype.half else 1e-6) * abs(right).max()
    np.testing.assert_allclose(array_of(out).astype(float), right, 0, 4 * error)


# (group, lines, loads): threads for rows of the weight, and what they load at once.
@pytest.mark.parametrize("cut", [(32, 1, 2), (64, 2, 1), (32, 4, 3), (64, 4, 2)])
@pytest.mark.parametrize("dtype", [float32, bfloat16, float16, int8])
def test_any_cut_of_a_weight_gives_the_same(cut, dtype, monkeypatch):
    """Rows of x and of the weight, and numbers of a row, around what a cut has."""
    group, lines, loads = cut
    chosen, chunk = linear.few_cut, 4 * group * loads

    def forced(dtype, width, rows, n, k, norm, pack):
        at_once = {"loads": loads, "whole": k == chunk}
        found = chosen(dtype, width, rows, n, k, norm, pack)
        return found._replace(group=group, lines=lines, **at_once)

    monkeypatch.setattr(linear, "few_cut", forced)
    cases = [(1, chunk, 9), (2, chunk + 4, 4), (3, 2 * chunk - 4, 5), (8, 4, 1)]
    cases += [(1, chunk + 1, 3), (5, 8, 4 * lines + 1)]
    random = np.random.default_rng(group + lines)
    floating = float32 if dtype is int8 else dtype
    for rows, k, n in cases:
        x = random.standard_normal((rows, k), np.float32).astype(floating.numpy)
        w = (random.standard_normal((n, k), np.float32) * 9).astype(dtype.numpy)
        steps = make(np.ones(n, np.float32), "cuda") if dtype is int8 else None
        out = loaded("cuda").linear(make(x, "cuda"), make(w, "cuda"), scale=steps)
        right = x.astype(np.float64) @ w.astype(np.float64).T
        error = (finfo(floating).eps if floating.half else 1e-6) * abs(right).max()
        np.testing.assert_allclose(array_of(out).astype(float), right, 0, 4 * error)


def fours(n, k, size):
    """A weight of four bits and its scales on the GPU, and its floats."""
    w = Tensor(make(np.random.default_rng(k).standard_normal((n, k), "f"), "cuda"))
    q, scale = quantize(w, "int4", size)
    return q.raw, scale.raw, array_of(dequantize(q, scale).raw).astype(np.float64)


@pytest.mark.parametrize("dtype", [float32, bfloat16, float16])
@pytest.mark.parametrize(
    ("rows", "k", "n", "size", "parts"),
    [
        (1, pick(64, 768), 9, 64, "bias fn residual norm"),
        (1, pick(288, 3072), 5, 32, "bias residual"),
        (1, pick(256, 4096), 7, 256, "norm"),
        (3, 128, 4, 128, "bias norm fn"),
        (8, 320, 3, 64, ""),
    ],
)
def test_a_layer_of_four_bits_is_one_kernel(rows, k, n, size, parts, dtype):
    random = np.random.default_rng(rows + k)
    shapes = (rows, k), (n,), (rows, n), (k,), (k,)
    arrays = [random.standard_normal(s, np.float32) for s in shapes]
    given = [make(a.astype(dtype.numpy), "cuda") for a in arrays]
    x, b, more, gain, shift = (array_of(a).astype(np.float64) for a in given)
    weight, scale, w = fours(n, k, size)
    norm = (given[3], given[4], 1e-5) if "norm" in parts else None
    if norm:
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        x = x * gain + shift
    right = x @ w.T + (b if "bias" in parts else 0)
    fn = operators.gelu_tanh if "fn" in parts else None
    right = np.vectorize(fn)(right) if fn else right
    right = right + (more if "residual" in parts else 0)
    bias, residual = (
        a if part in parts else None
        for a, part in ((given[1], "bias"), (given[2], "residual"))
    )
    out = loaded("cuda").linear(given[0], weight, bias, fn, residual, norm, scale=scale)
    assert out is not None and out.dtype is dtype
    error = (finfo(dtype).eps if dtype.half else 1e-6) * abs(right).max()
    np.testing.assert_allclose(array_of(out).astype(float), right, 0, 4 * error)


@pytest.mark.parametrize("cut", [(32, 1, 2), (64, 2, 1), (32, 4, 3), (64, 4, 2)])
def test_any_cut_of_four_bits_gives_the_same(cut, monkeypatch):
    """Rows of x and of the weight, and groups of a row, around what a cut has."""
    group, lines, loads = cut
    chosen, chunk = linear.few_cut, 8 * group * loads

    def forced(*sizes):
        at_once = {"loads": loads, "whole": sizes[4] == chunk}
        return chosen(*sizes)._replace(group=group, lines=lines, **at_once)

    monkeypatch.setattr(linear, "few_cut", forced)
    cases = [(1, chunk, 9, 64), (2, chunk + 32, 4, 32), (3, 2 * chunk - 64, 5, 64)]
    for rows, k, n, size in [*cases, (8, 32, 1, 32), (1, chunk + 256, 3, 256)]:
        x = np.random.default_rng(k).standard_normal((rows, k), np.float32)
        weight, scale, w = fours(n, k, size)
        out = loaded("cuda").linear(make(x, "cuda"), weight, scale=scale)
        right = x.astype(np.float64) @ w.T
        np.testing.assert_allclose(array_of(out), right, 0, 4e-6 * abs(right).max())


def test_four_bits_that_no_kernel_takes():
    """A group that is cut off, and more rows than a few: the weight becomes floats."""
    weight, scale, w = fours(3, 64, 64)
    for rows, k in ((1, 63), (9, 64)):
        x = make(np.ones((rows, k), np.float32), "cuda")
        assert loaded("cuda").linear(x, weight, scale=scale) is None
        out = array_of(loaded("cuda").quantized_linear(x, weight, scale))
        np.testing.assert_allclose(out, np.tile(w[:, :k].sum(1), (rows, 1)), 0, 1e-5)
    for dtype in (float32, bfloat16, float16):
        made = array_of(loaded("cuda").dequantize(weight, scale, 50, dtype))
        error = finfo(dtype).eps / 2 * abs(w[:, :50])
        assert made.dtype == dtype.numpy
        assert (abs(made.astype(float) - w[:, :50]) <= error).all()


@pytest.mark.parametrize("dtype", [bfloat16, float16])
@pytest.mark.parametrize(
    ("rows", "k", "n", "group", "loads"),
    [(2, 8, 1, 1, 1), (8, 64, 16, 2, 1), (9, 72, 33, 1, 2), (16, 200, 31, 2, 3)],
)
def test_tensor_cores_have_up_to_sixteen_rows(
    rows, k, n, group, loads, dtype, monkeypatch
):
    """The last numbers of a row stand beside none, whatever the first ones are."""
    chosen = linear.halves_cut

    def forced(*sizes):
        whole = k % (32 * group * loads) == 0
        return chosen(*sizes)._replace(group=group, loads=loads, whole=whole)

    cut = Mock(side_effect=forced)
    monkeypatch.setattr(linear, "halves_cut", cut)
    monkeypatch.setattr(linear, "suits", lambda *_: True)
    random = np.random.default_rng(k)
    shapes = (rows, k), (n, k), (n,), (rows, n)
    x, w, b, more = (random.standard_normal(s, np.float32) for s in shapes)
    w[0, 0], x[:, 0] = np.inf, abs(x[:, 0])
    old, slot = np.zeros((rows, 1, 3, n), np.float32), make(np.array([1]), "cuda")
    x, w, b, more, old = (
        make(a.astype(dtype.numpy), "cuda") for a in (x, w, b, more, old)
    )
    fn = operators.gelu_tanh
    out = loaded("cuda").linear(x, w, b, fn, more, settled=True, kept=(old, slot))
    assert cut.called
    x, w, b, more = (array_of(a).astype(np.float64) for a in (x, w, b, more))
    right = np.vectorize(fn)(x @ w.T + b) + more
    got = array_of(out).astype(np.float64)
    assert np.all(np.isposinf(got[:, 0]))
    error = 4 * finfo(dtype).eps * abs(right[:, 1:]).max(initial=0)
    np.testing.assert_allclose(got[:, 1:], right[:, 1:], 0, error)
    np.testing.assert_array_equal(array_of(old)[:, 0, 1], array_of(out))
    assert not array_of(old)[:, 0, [0, 2]].any()


@pytest.mark.parametrize("dtype", [bfloat16, float16])
@pytest.mark.parametrize(
    ("rows", "k", "n", "pack", "group", "loads"),
    [
        (2, 16, 1, 0, 1, 1), (9, 208, 33, 0, 2, 2), (16, 128, 16, 0, 1, 2),
        (3, 64, 1, 64, 1, 1), (16, 320, 17, 64, 2, 2), (8, 256, 31, 128, 2, 1),
    ],
)  # fmt: skip
def test_tensor_cores_take_whole_numbers(
    rows, k, n, pack, group, loads, dtype, monkeypatch
):
    """Each byte, also as two numbers of four bits; scales of a row and of a group."""
    chosen = linear.halves_cut

    def forced(*sizes):
        whole = k % ((pack or 64) * group * loads) == 0
        return chosen(*sizes)._replace(group=group, loads=loads, whole=whole)

    cut = Mock(side_effect=forced)
    monkeypatch.setattr(linear, "halves_cut", cut)
    monkeypatch.setattr(linear, "suits", lambda *_: True)
    random = np.random.default_rng(k)
    shapes = (rows, k), (n,), (rows, n), (n, k // pack) if pack else (n,)
    x, b, more, scale = (random.standard_normal(s, np.float32) for s in shapes)
    x, b, more, scale = (
        make(a.astype(dtype.numpy), "cuda") for a in (x, b, more, abs(scale) / 99)
    )
    q = (np.arange(n * k).reshape(n, k) * 37 + 128).astype(np.int8)
    if pack:
        q = q.reshape(n, k // pack, pack // 2, 2)[..., 0]
    floats = Tensor(make(array_of(scale).astype(np.float32), "cuda"))
    w = array_of(dequantize(Tensor(make(q, "cuda")), floats).raw).astype(np.float64)
    fn = operators.gelu_tanh
    given = x, make(q, "cuda"), b, fn, more
    out = loaded("cuda").linear(*given, settled=True, scale=scale)
    assert cut.called
    x, b, more = (array_of(a).astype(np.float64) for a in (x, b, more))
    right = np.vectorize(fn)(x @ w.T + b) + more
    error = finfo(dtype).eps / 2 * abs(right) + 1e-5 * abs(right).max()
    assert (abs(array_of(out).astype(np.float64) - right) <= error).all()


def test_cuts_leave_no_row_out():
    """Whatever the sizes, all loads of a row are made, and their words fit."""
    for dtype in (float32, bfloat16, int8):
        sizes = product((1, 2, 8), (1, 768, 50257), (4, 768, 14336))
        for rows, n, k in sizes:
            cut = linear.few_cut(dtype, 4, rows, n, k, norm=rows == 1 and k <= 4096)
            assert cut.rows * cut.group == cut.threads * cut.lines
            assert cut.loads * cut.lines * cut.words <= linear.WORDS
            assert cut.whole == (cut.loads * 4 * cut.group == k)
            assert cut.many >= rows and cut.lines * cut.many <= WARP
            assert not cut.part or cut.part * cut.threads >= k
    for rows, n, k in product((1, 2, 8), (1, 768, 50257), (64, 768, 14336)):
        cut = linear.few_cut(int8, 8, rows, n, k, rows == 1 and k <= 4096, 64)
        assert cut.loads * cut.lines * cut.words <= linear.WORDS and cut.loads
        assert cut.whole == (cut.loads * 8 * cut.group == k)
    for rows, n, k in product((2, 9, 16), (1, 768, 50257), (8, 768, 3080)):
        shared = linear.halves_cut(bfloat16, rows, n, k)
        assert shared.tiles * 8 >= rows and shared.rows % 16 == 0
        assert shared.whole == (k % (32 * shared.group * shared.loads) == 0)


@pytest.mark.parametrize("dtype", [float32, bfloat16])
def test_a_layer_keeps_its_last_columns_in_a_slot(dtype):
    random = np.random.default_rng(0)
    x, w, old = (
        make(random.standard_normal(s, np.float32).astype(dtype.numpy), "cuda")
        for s in ((2, 20), (14, 20), (2, 2, 5, 3))
    )
    before, slot = array_of(old).copy(), make(np.array([4]), "cuda")
    out = array_of(loaded("cuda").linear(x, w, kept=(old, slot)))
    before[:, :, 4] = out[:, 8:].reshape(2, 2, 3)
    np.testing.assert_array_equal(array_of(old), before)
    with pytest.raises(IndexError, match="index_copy_"):
        loaded("cuda").linear(x, w, kept=(old, make(np.array([5]), "cuda")))
        loaded("cuda").synchronize()
    np.testing.assert_array_equal(array_of(old), before)
    turned = old.permute((1, 0, 2, 3))
    assert loaded("cuda").linear(x, w, kept=(turned, slot)) is None


def test_a_layer_that_no_kernel_fits_is_composed():
    function = loaded("cuda").linear
    many = np.zeros((9, 4), np.float32)
    for x in (many, np.zeros((1, 4)), many[:0]):
        w = np.zeros((3, x.shape[1]), x.dtype)
        assert function(make(x, "cuda"), make(w, "cuda")) is None
        numbers, steps = make(w.astype(np.int8), "cuda"), make(w[:, 0], "cuda")
        assert function(make(x, "cuda"), numbers, steps, scale=steps) is None
