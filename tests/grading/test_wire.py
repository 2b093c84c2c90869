"""Messages between grader and worker: what is sent is read, the rest refused."""

from __future__ import annotations

import json
import socket
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignments.compare import same
from assignments.grading.channel import _check_reply
from assignments.grading.examine import _Asked
from assignments.grading.wire import MAGIC, START, Reader, WireError, digest, encode
from assignments.grading.worker import CHUNK, Operators, Worker

numbers = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.none()
)
dtypes = st.sampled_from(["bool", "int32", "int64", "float32", "float64"])
arrays = st.builds(
    lambda shape, dtype, seed: (
        np.random.default_rng(seed).normal(size=shape).astype(dtype)
    ),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    dtypes,
    st.integers(0, 99),
)
values = st.recursive(
    numbers | arrays,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


def same_values(a, b) -> bool:
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_values(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_values, a, b))
    return same(a, b)


@given(st.dictionaries(st.text("xyz"), values, max_size=3), st.integers(1, 50))
def test_what_is_sent_is_read(message, step):
    data, reader = encode(message), Reader(1 << 20)
    found = None
    for at in range(0, len(data), step):
        assert found is None
        found = reader.feed(data[at : at + step])
    assert same_values(message, found)


def test_special_numbers():
    message = {"x": [float("nan"), float("inf"), -0.0], "a": np.array([np.nan, -0.0])}
    found = Reader(100_000).feed(encode(message))
    assert found is not None
    assert np.array(found["x"]).tobytes() == np.array(message["x"]).tobytes()
    assert found["a"].tobytes() == message["a"].tobytes()


def test_arrays_with_strides_and_no_dimensions():
    base = np.arange(24.0).reshape(4, 6)
    message = {"t": base.T, "s": base[::2, ::-3], "zero": np.array(2.0, "float32")}
    message["yes"] = np.array(True)
    found = Reader(100_000).feed(encode(message))
    assert found is not None
    for name, array in message.items():
        assert same(found[name], np.array(array, order="C"))


class Subclass(np.ndarray):
    pass


@pytest.mark.parametrize(
    "value",
    [
        object(),
        np.float32(1),
        np.array([object()]),
        np.zeros(3, "complex64"),
        np.zeros(3, ">f4"),
        np.zeros(3).view(Subclass),
        np.zeros(2, [("a", "i4")]),
        2**63,
        {1: 2},
        b"bytes",
        lambda: None,
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_not_sent(value):
    with pytest.raises(WireError):
        encode({"value": value})


def frame(header: bytes, body: bytes = b"") -> bytes:
    return START.pack(MAGIC, len(header)) + header + body


def npy(descr: str, shape: object, body: bytes, version: bytes = b"\x01\x00") -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}\n"
    size = len(text).to_bytes(2, "little")
    return b"\x93NUMPY" + version + size + text.encode() + body


def with_array(data: bytes, times: int = 1) -> bytes:
    value = {"d": [["x", [{"a": 0}] * times if times > 1 else {"a": 0}]]}
    return frame(json.dumps({"value": value, "arrays": [len(data)]}).encode(), data)


HOSTILE = {
    "magic": b"HTTP/1.1 200 OK",
    "long header": START.pack(MAGIC, 2**32 - 1),
    "no json": frame(b"{"),
    "nan": frame(b'{"value":NaN,"arrays":[]}'),
    "nested": frame(b'{"value":' + b"[" * 10**5 + b"]" * 10**5 + b',"arrays":[]}'),
    "a bit nested": frame(b'{"value":' + b"[" * 50 + b"]" * 50 + b',"arrays":[]}'),
    "no dict": frame(b'{"value":1,"arrays":[]}'),
    "list": frame(b"[]"),
    "more fields": frame(b'{"value":1,"arrays":[],"code":"x"}'),
    "sizes": frame(b'{"value":1,"arrays":[-1]}'),
    "size is true": frame(b'{"value":1,"arrays":[true]}'),
    "too large": frame(b'{"value":1,"arrays":[1000000000000]}'),
    "array number": frame(b'{"value":{"d":[["x",{"a":0}]]},"arrays":[]}'),
    "array is true": frame(b'{"value":{"d":[["x",{"a":true}]]},"arrays":[]}'),
    "huge integer": frame(b'{"value":{"d":[["x",' + b"9" * 99 + b']]},"arrays":[]}'),
    "float": frame(b'{"value":{"d":[["x",1.5]]},"arrays":[]}'),
    "hex": frame(b'{"value":{"d":[["x",{"f":"0x1p99999999999"}]]},"arrays":[]}'),
    "two kinds": frame(b'{"value":{"d":[],"a":0},"arrays":[]}'),
    "after": frame(b'{"value":{"d":[]},"arrays":[]}') + b"x",
    "pickle": with_array(npy("|O", (1,), b"cos\nsystem\n(S'true'\ntR.")),
    "structured": with_array(npy([("a", "<f4")], (1,), bytes(4))),  # type: ignore[arg-type]
    "shape": with_array(npy("<f4", (2**62, 8), b"")),
    "empty and huge": with_array(npy("<f4", (0, 10**18, 10**18), b"")),
    "empty and too large": with_array(npy("<f4", (0, 10**17), b"")),
    "dimensions": with_array(npy("<f4", (1,) * 33, bytes(4))),
    "one array often": with_array(npy("<f4", (1,), bytes(4)), 300_000),
    "one array twice": with_array(npy("<f4", (1,), bytes(4)), 2),
    "many values": frame(
        b'{"value":{"d":[["x",[' + b"0," * 300_000 + b'0]]]},"arrays":[]}'
    ),
    "many names": frame(
        b'{"value":{"d":[' + b'["x",0],' * 300_000 + b'["x",0]]},"arrays":[]}'
    ),
    "negative": with_array(npy("<f4", (-1, 4), bytes(4))),
    "few bytes": with_array(npy("<f4", (4,), bytes(4))),
    "many bytes": with_array(npy("<f4", (1,), bytes(8))),
    "version": with_array(npy("<f4", (1,), bytes(4), b"\x03\x00")),
    "not npy": with_array(b"x" * 100),
    "code in header": with_array(npy("<f4", "__import__('os')", b"")),
    "endian": with_array(npy(">f4", (1,), bytes(4))),
    "text": with_array(npy("<U4", (1,), bytes(16))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused(name):
    with pytest.raises(WireError):
        Reader(1 << 20).feed(HOSTILE[name])


@settings(max_examples=1000)
@given(st.data())
def test_changed_bytes_never_do_more_than_fail(data):
    message = {"x": np.arange(3.0), "y": [1, 2.5, "text", None]}
    sent = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(sent) - 1))
        sent[at] = data.draw(st.integers(0, 255))
    try:
        Reader(1 << 20).feed(bytes(sent))
    except WireError:
        pass


def test_a_bool_is_zero_or_one():
    data = npy("|b1", (3,), b"\x00\x01\x02")
    found = Reader(1 << 20).feed(with_array(data))
    assert found is not None
    assert found["x"].tobytes() == b"\x00\x01\x01"


def answer(fields: str) -> dict:
    """A reply to the request "7" as the grader reads it."""
    header = f'{{"value":{{"d":[["id","7"],{fields}]}},"arrays":[]}}'.encode()
    found = Reader(100).feed(frame(header))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "fields",
    [
        '["is","ok"]',
        '["is","ok"],["value",1],["points",100]',
        '["is","ok"],["value",1],["id","8"]',
        '["is","ok"],["value",1],["id","\\ud800"]',
        '["is","ok"],["value",1],["id",7]',
        '["is","error"],["type","X"],["text",1],["where",""]',
        '["is","ask"],["questions",[]]',
        '["is",["ok"]],["value",1]',
        '["value",1]',
    ],
)
def test_replies_that_are_none(fields):
    with pytest.raises(WireError):
        _check_reply(answer(fields), "7", ("ok", "error"))


def test_replies():
    _check_reply(answer('["is","ok"],["value",1]'), "7", ("ok", "error"))
    ask = answer('["is","ask"],["questions",[["exp",[]]]]')
    _check_reply(ask, "7", ("ask",))


class Halves:
    half = staticmethod(lambda x: x / 2)


class Asking:
    """What runs of a student's tests have of a worker; counts what messages ask."""

    def __init__(self):
        self.questions, self.sent, self.grader = {}, [], _Asked(Halves, ("half",))

    def ask(self, question):
        self.sent.append(len(question["questions"]))
        return {"answers": self.grader(question["questions"])}


def test_a_run_asks_in_one_message_what_runs_before_it_asked():
    worker = Asking()
    for sent in ([1, 1, 1, 1], [3, 1], [3, 1]):
        ops, worker.sent = Operators(worker, "7", ["half"]), []
        assert [ops.half(x) for x in (1.0, 2.0, 1.0)] == [0.5, 1.0, 0.5]
        with pytest.raises(TypeError, match="half takes numbers"):
            ops.half("1")  # what is no number is not asked again before it has to be
        assert ops.half(4.0) == 2.0
        assert worker.sent == sent


@pytest.mark.parametrize("question", ["half", ["half"], [1, []], ["half", "1"], {}])
def test_questions_that_are_none(question):
    with pytest.raises(WireError, match="a name and its inputs"):
        _Asked(Halves, ("half",))([question])


def test_a_short_message_takes_no_more_memory_than_a_piece_of_a_long_one():
    """A worker's memory is filled with garbage when it is taken, which takes time."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker = Worker(ours)
        theirs.sendall(encode({"x": 1}))
        tracemalloc.start()
        try:
            assert worker.receive() == {"x": 1}
            assert tracemalloc.get_traced_memory()[1] < CHUNK + 2**14 <= 2**17
        finally:
            tracemalloc.stop()


def traced(call) -> tuple:
    """What a call returns, and how many bytes it had at once."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_arrays_are_copied_once():
    """Timed calls bring megabytes along, many times: each copy is a student's time."""
    message, size = {"a": np.ones((512, 1024), "float32")}, 2 << 20
    known, held = traced(lambda: digest(message))
    assert held < size / 8
    data, held = traced(lambda: encode(message))
    assert held < 1.1 * size
    found, held = traced(lambda: Reader(4 << 20).feed(data))
    assert same_values(found, message) and digest(found) == known
    assert held < 2.4 * size  # what has come so far, and the array
