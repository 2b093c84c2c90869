"""The server: OpenAI's API, streams, errors, many clients, and those who hang up."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import minitorch
from minitorch.data import CharTokenizer
from minitorch.models import GPT, GPTConfig
from minitorch.serving import Engine
from minitorch.serving.server import Server, until

LETTERS = "abcdefghij é"
PROMPT = "abc"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    minitorch.manual_seed(6)
    config = GPTConfig(len(LETTERS), 400, n_layer=2, n_head=2, n_embd=16, tied=False)
    model = GPT(config)
    with minitorch.no_grad():
        for p in model.parameters():
            p.add_(minitorch.randn_like(p) * 0.4)
    engine = Engine(model, 120, 4, max_batch=4)
    server = Server(engine, CharTokenizer(LETTERS), "letters")
    server.start()
    yield server
    server.shutdown()
    server.server_close()


def opened(server: Server, path: str, body: Any = None) -> Any:
    body = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(server.url + path, body, timeout=30)


def ask(server: Server, **body: Any) -> Any:
    with opened(server, "/v1/completions", body) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        return json.load(answer)


def refused(server: Server, path: str = "/v1/completions", body: Any = None) -> Any:
    with pytest.raises(urllib.error.HTTPError) as told:
        opened(server, path, body)
    return told.value.code, json.load(told.value)["error"]


def alone(server: Server, count: int, prompt: str = PROMPT, **how: Any) -> str:
    words = server.words
    return words.decode(
        server.desk.engine.model.generate(words.encode(prompt), count, **how)
    )


def quiet(server: Server) -> dict[str, float]:
    """The engine's numbers, once nobody is served."""
    end = time.monotonic() + 20
    while (stats := server.desk.engine.stats())["running"] + stats["waiting"]:
        assert time.monotonic() < end, stats
        time.sleep(0.01)
    assert stats["blocks_used"] == 0
    return stats


def slow_down(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a text of 390 tokens take seconds."""
    step = engine.step
    monkeypatch.setattr(engine, "step", lambda: time.sleep(0.005) or step())


def test_a_completion(server):
    answer = ask(server, prompt=PROMPT, max_tokens=8, temperature=0)
    (choice,) = answer["choices"]
    assert choice["text"] == alone(server, 8, temperature=0)
    assert choice["finish_reason"] == "length" and choice["index"] == 0
    assert answer["object"] == "text_completion" and answer["model"] == "letters"
    usage = {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}
    assert answer["usage"] == usage
    ids = server.words.encode(PROMPT)
    again = ask(server, prompt=ids, max_tokens=8, temperature=0, model="letters", n=1)
    assert again["choices"] == answer["choices"] and again["id"] != answer["id"]
    for one in ([PROMPT], [ids]):  # a list of one, as some clients always send
        again = ask(server, prompt=one, max_tokens=8, temperature=0)
        assert again["choices"] == answer["choices"]
    drawn = ask(server, prompt=PROMPT, max_tokens=8, top_p=0.9, seed=5)
    generator = minitorch.Generator(5)
    assert drawn["choices"][0]["text"] == alone(
        server, 8, top_p=0.9, generator=generator
    )


def test_a_stream(server):
    body = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}  # fmt: skip
    with opened(server, "/v1/completions", body) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        lines = answer.read().decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    parts = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert [p["choices"][0]["text"] for p in parts[:-1]] == [
        *alone(server, 6, temperature=0)
    ]
    reasons = [p["choices"][0]["finish_reason"] for p in parts]
    assert reasons == [None] * 6 + ["length"]
    assert parts[-1]["usage"]["completion_tokens"] == 6


def test_texts_stop_where_the_client_says(server):
    whole = alone(server, 40, temperature=0)
    stop = whole[7:10]
    how = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0}
    (choice,) = ask(server, **how, stop=stop)["choices"]
    assert choice["text"] == whole[: whole.index(stop)]
    assert choice["finish_reason"] == "stop"
    (choice,) = ask(server, **how, stop=["no such text", stop])["choices"]
    assert choice["text"] == whole[: whole.index(stop)]
    quiet(server)


def test_a_text_ends_with_the_models_own_tokens(server):
    whole = alone(server, 40, temperature=0)
    server.ends = server.words.encode(whole[5])
    try:
        answer = ask(server, prompt=PROMPT, max_tokens=40, temperature=0)
    finally:
        server.ends = ()
    assert answer["choices"][0]["text"] == whole[: whole.index(whole[5])]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_what_may_begin_a_stop_is_held_back():
    def cut(text: str, *stops: str) -> list[str]:
        return list(until(iter(text), stops))

    assert cut("abcd") == ["a", "b", "c", "d"]
    assert cut("abcabd", "abd") == ["abc"]
    assert cut("xaab", "ab") == ["x", "a"]
    assert cut("aba", "abc") == ["ab", "a"]
    assert cut("one two", "no such", "two") == ["o", "ne", " "]
    assert list(until(["hello wor", "ld, bye"], ["world", "lo"])) == ["hel"]


def test_clients_at_once_get_what_each_gets_alone(server):
    prompts = ["a", "ab", "abc", "hgf", "jjj", "c a"]
    expected = [alone(server, 12, p, temperature=0) for p in prompts]
    before = quiet(server)

    def one(prompt: str) -> str:
        answer = ask(server, prompt=prompt, max_tokens=12, temperature=0)
        return answer["choices"][0]["text"]

    with ThreadPoolExecutor(len(prompts)) as pool:
        assert list(pool.map(one, prompts)) == expected
    assert quiet(server)["requests"] == before["requests"] + len(prompts)


@pytest.mark.parametrize("stream", [False, True])
def test_who_hangs_up_is_written_for_no_longer(server, stream, monkeypatch):
    before = quiet(server)
    slow_down(server.desk.engine, monkeypatch)
    body = json.dumps({"prompt": PROMPT, "max_tokens": 390, "stream": stream}).encode()
    with socket.create_connection(server.server_address, timeout=20) as client:
        head = f"POST /v1/completions HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        if stream:
            assert b"200 OK" in client.recv(99)
        else:
            while not server.desk.engine.running:
                time.sleep(0.001)
        client.sendall(b"\r\n")  # which nobody wants to know
    after = quiet(server)
    assert after["tokens"] - before["tokens"] < 390


def test_models_and_numbers(server):
    with opened(server, "/v1/models") as answer:
        (model,) = json.load(answer)["data"]
    assert model["id"] == "letters" and model["object"] == "model"
    with opened(server, "/v1/models/letters") as answer:
        assert json.load(answer) == model
    assert refused(server, "/v1/models/digits")[0] == 404
    ask(server, prompt=PROMPT, max_tokens=2)
    with opened(server, "/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        numbers = dict(line.split() for line in answer.read().decode().splitlines())
    assert float(numbers["minitorch_tokens"]) >= 2
    assert numbers["minitorch_blocks"] == "120"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ([1], r"the body is \[1\]; expected a JSON object"),
        ({}, "the prompt is missing"),
        ({"prompt": 3}, "prompt is 3; expected str or list"),
        ({"prompt": ""}, "a prompt is empty"),
        ({"prompt": "xyz"}, "'x'"),
        ({"prompt": ["a", "b"]}, "the prompt is 2 of them; ask for each alone"),
        ({"prompt": [[1], [2]]}, "the prompt is 2 of them"),
        ({"prompt": [1, "a"]}, "'a' in a prompt is no token"),
        ({"prompt": [["a"]]}, "'a' in a prompt is no token"),
        ({"stream_options": {"other": 1}}, "only {'include_usage': True} is served"),
        ({"prompt": [1, 99]}, "99 in a prompt is no token; expected ints from 0 to 11"),
        ({"prompt": "a" * 400}, "has 400 tokens; expected one, of less than"),
        ({"max_tokens": 0}, "max_tokens is 0; expected 1 or more"),
        ({"max_tokens": "9"}, "max_tokens is '9'; expected int"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"temperature": -1}, "temperature is -1; expected 0 or more"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 2}, "top_p is 2; expected above 0"),
        ({"stop": [""]}, r"stop is \[''\]"),
        ({"stream": 1}, "stream is 1; expected bool"),
        ({"n": 2}, "n is 2; only 1 is served"),
        ({"best": 1}, "there is no 'best'; expected some of model, prompt"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests(server, body, told, stream):
    if isinstance(body, dict) and body:
        body = {"prompt": PROMPT, "stream": stream, **body}
    status, error = refused(server, body=body)
    assert status == 400 and re.search(told, error["message"]), error
    assert error["type"] == "invalid_request_error"


def test_pages_of_others_may_not_ask(server):
    def asked(origin: str, host: str) -> int:
        head = {"Origin": origin, "Host": host}
        request = urllib.request.Request(server.url + "/metrics", None, head)
        return urllib.request.urlopen(request, timeout=30).status

    own = server.url.removeprefix("http://")
    for name in (own, "localhost:80", "[::1]:80"):
        assert asked(f"http://{name}", name) == 200
    # The last name was made to stand for this machine's address.
    for name, host in [("evil.example", own), ("1.2.3.4", own), ("evil:80", "evil:80")]:
        with pytest.raises(urllib.error.HTTPError) as told:
            asked(f"http://{name}", host)
        assert told.value.code == 403
        assert f"a page of http://{name} may" in told.value.read().decode()


def test_what_is_not_there(server):
    status, error = refused(server, body={"prompt": "a", "model": "other"})
    assert status == 404 and "'other'; this server has 'letters'" in error["message"]
    assert refused(server, "/v2")[0] == refused(server, "/v2", {})[0] == 404
    url = server.url + "/v1/completions"
    with pytest.raises(urllib.error.HTTPError) as told:
        urllib.request.urlopen(url, b"{", timeout=30)
    assert told.value.code == 400 and "no JSON" in told.value.read().decode()
    with pytest.raises(urllib.error.HTTPError) as told:  # no broken pipe
        urllib.request.urlopen(url, b" " * 5_000_000, timeout=30)
    assert told.value.code == 413 and "'5000000'; exp" in told.value.read().decode()
    with pytest.raises(urllib.error.HTTPError) as told:
        urllib.request.urlopen(url, iter([b"{}"]), timeout=30)  # in chunks
    assert told.value.code == 411 and "is ''; exp" in told.value.read().decode()


def test_an_error_of_the_engine_is_told_and_forgotten(server, monkeypatch):
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(server.desk.engine, "_chosen", broken)
        status, error = refused(server, body={"prompt": PROMPT})
    assert status == 500 and "ZeroDivisionError: no luck" in error["message"]
    assert ask(server, prompt=PROMPT, max_tokens=2)["usage"]["completion_tokens"] == 2
    quiet(server)


def test_who_waits_when_the_server_ends_is_told(server, monkeypatch):
    engine = Engine(server.desk.engine.model, 120, 4)
    slow_down(engine, monkeypatch)
    other = Server(engine, server.words)
    other.start()
    told: list[Any] = []
    body = {"prompt": PROMPT, "max_tokens": 390}
    thread = threading.Thread(target=lambda: told.append(refused(other, body=body)))
    thread.start()
    while not engine.running:
        time.sleep(0.001)
    other.shutdown()
    other.server_close()
    thread.join(20)
    assert told[0][0] == 500 and "closing" in told[0][1]["message"]
    assert engine.pool.used == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid", "::1"])
def test_where_nobody_can_listen(server, host):
    threads, told = threading.active_count(), rf"cannot listen at {host}:\d+ \("
    with pytest.raises(OSError, match=told):
        Server(server.desk.engine, server.words, port=server.server_port, host=host)
    assert threading.active_count() <= threads


def test_the_command(tmp_path):
    from minitorch.train.gpt import GPTTrainConfig, train_gpt

    train_gpt(
        GPTTrainConfig(
            dataset="alice", layers=1, heads=1, width=8, block_size=16, batch_size=1,
            steps=1, eval_batches=1, sample=0, out=tmp_path, quiet=True,
        )
    )  # fmt: skip
    command = [sys.executable, "-m", "minitorch.cli", "serve", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        url = re.search(r"http://\S+", process.stdout.readline())[0]
        body = json.dumps({"prompt": "To", "max_tokens": 3}).encode()
        with urllib.request.urlopen(url, body, timeout=60) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 3
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
