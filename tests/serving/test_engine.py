"""The engine: every text becomes what it becomes alone, whoever else is there."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minitorch
from helpers import SIMULATED, lively_gpt
from minitorch.models import GPT
from minitorch.serving import Engine, PagedCache

SIZES = {"vocab_size": 11, "block_size": 24, "n_layer": 2, "n_head": 4, "n_embd": 16,
         "tied": False}  # fmt: skip
LLAMA = {
    "norm": "rms", "positions": "rotary", "mlp": "swiglu", "bias": False,
    "n_kv_head": 2, "n_hidden": 12,
}  # fmt: skip
SHAPES = {"gpt2": SIZES, "llama": {**SIZES, **LLAMA}}
few = settings(deadline=None, max_examples=6)
each_shape = pytest.mark.parametrize("shape", SHAPES)


@cache
def gpt(shape: str = "gpt2", device: str = "cpu") -> GPT:
    return lively_gpt(**SHAPES[shape]).to(device)


def alone(model: GPT, prompt: list[int], count: int, **how: Any) -> list[int]:
    """What `generate` writes, as far as the engine would."""
    seed, count = how.pop("seed", 0), min(count, SIZES["block_size"] - len(prompt))
    return model.generate(prompt, count, generator=minitorch.Generator(seed), **how)


WAYS: Any = st.sampled_from(
    [{"temperature": 0.0}, {"top_k": 8}, {"temperature": 0.7, "top_p": 0.9}]
)
# Few first tokens, so that prompts begin alike.
REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 2).flatmap(
            lambda first: st.lists(st.integers(0, 10), max_size=8).map(
                lambda rest: [first] * 5 + rest
            )
        ),
        st.integers(1, 14), WAYS, st.integers(0, 6),
    ),
    min_size=1, max_size=5,
)  # fmt: skip


@each_shape
@few
@given(REQUESTS, st.sampled_from([1, 3, 4, 16]), st.integers(0, 6), st.integers(1, 4))
def test_texts_that_come_at_any_time_are_as_alone(shape, requests, size, more, batch):
    """In blocks of any size, of which there are few: texts wait, and start again."""
    model = gpt(shape)
    longest = max(len(prompt) + count for prompt, count, *_ in requests)
    blocks = -(-min(longest, 24) // size) + more
    engine = Engine(model, blocks, size, batch, max_tokens_per_step=batch + 3)
    got: dict[int, list[int]] = {}
    ended: dict[int, str] = {}
    wanted = {}
    for seed, (prompt, count, how, steps) in enumerate(requests):
        id = engine.add(prompt, count, seed=seed, **how)
        got[id], wanted[id] = [], alone(model, prompt, count, seed=seed, **how)
        for _ in range(steps):
            for event in engine.step():
                got[event.id].append(event.token)
                if event.finished:
                    ended[event.id] = event.finished
            assert engine.pool.used <= blocks and len(engine.running) <= batch
    for event in engine.stream():
        got[event.id].append(event.token)
        ended |= {event.id: event.finished} if event.finished else {}
    assert got == wanted and set(ended) == set(wanted)
    assert engine.pool.references == [0] * blocks


def test_every_device_serves(device):
    """On a GPU, steps are graphs: of 4 tokens (one is nobody's), 2, 1. In the simulator
    one text is written there, too, and the others by the model on the CPU."""
    slow = device == "cuda" and SIMULATED
    count, prompts = 5 if slow else 8, [[1, 2, 3], [4], [5, 6, 7, 8, 9, 1]]
    for shape in ("gpt2", "llama")[: 1 if slow else 2]:
        model = gpt(shape, device)
        engine = Engine(model, 5, 4, 3, max_tokens_per_step=5)
        if not slow:
            engine.warm_up()
        ids = [engine.add(p, count, seed=i, top_k=8) for i, p in enumerate(prompts)]
        got = engine.run()
        for i, (id, prompt) in enumerate(zip(ids, prompts)):
            writer = gpt(shape) if slow and i != 1 else model
            assert got[id] == alone(writer, prompt, count, seed=i, top_k=8)
        if device == "cuda":
            assert any(step.graph is not None for step in engine._graphs.values())


def test_without_blocks_the_last_one_starts_again():
    engine = Engine(gpt(), 6, 4, 4)
    prompts = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    ids = [engine.add(p, 12, temperature=0) for p in prompts]
    got = engine.run()
    assert engine.stats()["preemptions"] > 0
    for id, prompt in zip(ids, prompts):
        assert got[id] == alone(gpt(), prompt, 12, temperature=0)


def test_texts_that_begin_alike_share_blocks():
    engine = Engine(gpt(), 12, 4)
    start = [1, 2, 3, 4, 5, 6, 7, 8]
    engine.add(start, 1)
    engine.run()
    assert engine.stats()["prefix_hit_tokens"] == 0
    ids = [engine.add([*start, i], 6, temperature=0) for i in (1, 2)]
    engine.step()
    assert engine.stats()["prefix_hit_tokens"] == 16
    assert engine.pool.used == 4  # two together, and the end of each
    got = engine.run()
    for i, id in zip((1, 2), ids):
        assert engine.running == [] and len(got[id]) == 5
        assert got[id] == alone(gpt(), [*start, i], 6, temperature=0)[1:]
    engine.add(start, 1)  # the last token is read in any case
    engine.run()
    assert engine.stats()["prefix_hit_tokens"] == 20


def test_long_prompts_are_read_in_pieces_beside_who_writes():
    engine = Engine(gpt(), 12, 4, 2, max_tokens_per_step=4)
    short, long = [1, 2], [3, 4, 5, 6, 7, 8, 9, 1]
    a = engine.add(short, 8, temperature=0)
    first = [token for _, token, _ in engine.step()]
    b = engine.add(long, 2, temperature=0)
    seen = [{event.id for event in engine.step()} for _ in range(3)]
    assert seen == [{a}, {a}, {a, b}]  # 3 tokens of the prompt a step
    assert engine.stats()["tokens"] == 5
    rest = engine.run()
    assert len(first + rest[a]) == 5 and len(rest[b]) == 1


def test_a_text_ends_where_the_model_sees_no_further():
    engine, prompt = Engine(gpt()), list(range(1, 11))
    id = engine.add(prompt, 100, temperature=0)
    events = list(engine.stream())
    assert [e.token for e in events] == alone(gpt(), prompt, 14, temperature=0)
    assert [e.finished for e in events] == [None] * 13 + ["length"]
    assert {e.id for e in events} == {id}


def test_texts_end_at_a_stop_token():
    whole = alone(gpt(), [1, 2, 3], 8, temperature=0)
    engine = Engine(gpt())
    engine.add([1, 2, 3], 8, temperature=0, stop=[whole[3]])
    *events, last = engine.stream()
    assert [e.token for e in events] == whole[: whole.index(whole[3])]
    assert last.token is None and last.finished == "stop"
    assert not engine.busy and engine.pool.used == 0


def test_a_model_that_is_trained_in_between_is_no_longer_when_it_writes():
    engine, model = Engine(gpt()), gpt()
    id = engine.add([1, 2, 3], 6, temperature=0)
    model.train()
    assert engine.run()[id] == alone(model.eval(), [1, 2, 3], 6, temperature=0)


def test_who_is_cancelled_gives_all_back():
    engine = Engine(gpt(), 12, 4, max_batch=2)
    ids = [engine.add([1, 2, 3, 4, 5], 9, temperature=0) for _ in range(3)]
    engine.step()
    assert engine.cancel(ids[0]) and engine.cancel(ids[2])
    assert not engine.cancel(ids[0]) and not engine.cancel(99)
    assert engine.stats()["running"] == 1 and engine.stats()["waiting"] == 0
    assert set(engine.run()) == {ids[1]}
    assert engine.pool.references == [0] * 12


@pytest.mark.parametrize("part", ["_scores", "_chosen"])
def test_a_step_that_failed_is_done_again(part, monkeypatch):
    engine, prompts = Engine(gpt(), block_size=2), [[1, 2, 3, 4], [5]]
    ids = [engine.add(p, 6, temperature=0) for p in prompts]
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(engine, part, failing)
        engine.step()
    assert engine.stats()["tokens"] == 0
    events = [event for _ in range(6) for event in engine.step()]
    assert not engine.busy
    for id, prompt in zip(ids, prompts):
        written = [e.token for e in events if e.id == id]
        assert written == alone(gpt(), prompt, 6, temperature=0)


def failing(*_: Any) -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (([], 1), "a prompt is empty"),
        (([1, 11], 1), "11 in a prompt is no token"),
        (([[1], [2]], 1), "the prompt is a list of them"),
        (([1] * 24, 1), "has 24 tokens; expected one, of less than .* 24"),
        (([1] * 10, 8), "10 tokens and 8 more need 5 blocks; the engine has 4"),
        (([1], 0), "max_new_tokens is 0"),
        (([1], 1, -1.0), "temperature is -1.0"),
        (([1], 1, 1.0, None, 2.0), "top_p is 2.0"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(given, told):
    engine = Engine(gpt(), 4, 4)
    with pytest.raises(ValueError, match=told):
        engine.add(*given)
    assert not engine.busy


def test_memory_for_who_looks_back_far(monkeypatch):
    token = 2 * 2 * 16 * 4  # layers, keys and values, numbers, bytes
    assert Engine(gpt(), block_size=5).pool.size == 16 * 5
    monkeypatch.setattr("minitorch.serving.engine.MOST_BYTES", 30 * token)
    assert Engine(gpt(), block_size=5).pool.size == 6
    assert Engine(gpt(), block_size=31).pool.size == 1
    assert Engine(gpt(), 7, block_size=5).pool.size == 7


def test_errors_of_the_parts():
    with pytest.raises(ValueError, match="max_batch is 8 and max_tokens_per_step 4"):
        Engine(gpt(), max_batch=8, max_tokens_per_step=4)
    cache = PagedCache(gpt().config, 2)
    with pytest.raises(RuntimeError, match="say which tokens come, by `reading`"):
        gpt().features(minitorch.tensor([[1]]), cache)  # type: ignore[arg-type]
