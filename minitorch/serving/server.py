"""A model behind HTTP, with OpenAI's API for completions.

With this file one can serve an engine (`Server`), and programs that know OpenAI's API
can ask it:

    POST /v1/completions   {"prompt": "To be", "max_tokens": 20, "stream": true}
    GET  /v1/models        the one that is served
    GET  /metrics          the engine's numbers, as Prometheus reads them

Each connection has a thread, which waits and writes; one thread alone talks to the
engine (`Desk`), and does between two steps what the others ask for. Who hangs up is
written for no longer.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from minitorch.data.text import Tokenizer, decoded
from minitorch.serving.engine import Engine, Event

Events = Generator[Event, None, None]

MOST_BYTES = 1 << 20  # of a request
BEAT = 0.2  # seconds after which one looks whether a client that waits is still there

# What a request may say: its types, and what it is if left out, or null.
FIELDS: Mapping[str, tuple[tuple[type, ...], Any]] = {
    "model": ((str,), None),
    "prompt": ((str, list), None),
    "max_tokens": ((int,), 16),
    "temperature": ((int, float), 1.0),
    "top_p": ((int, float), None),
    "top_k": ((int,), None),
    "stop": ((str, list), []),
    "seed": ((int,), None),
    "stream": ((bool,), False),
    "user": ((str,), None),
}
SAMPLING = "temperature", "top_k", "top_p", "seed"
# What it may say as well, where it changes nothing.
NEUTRAL: Mapping[str, Any] = {
    "n": 1, "best_of": 1, "echo": False, "suffix": "", "logprobs": None,
    "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {},
    "stream_options": {"include_usage": True},
}  # fmt: skip


class Refused(ValueError):
    """A request that is not answered; `status` is HTTP's number for why."""

    def __init__(self, message: str, status: int = 400) -> None:
        self.status = status
        super().__init__(message)


class Desk:
    """The thread of an engine, which takes requests from all others."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.readers: dict[int, SimpleQueue[Any]] = {}
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def events(self, gone: Callable[[], bool], **request: Any) -> Events:
        """What becomes of a request for `Engine.add`, while the engine works on it.

        The request ends where one stops reading, or where `gone` says so.

        Errors: those of `Engine.add`; ConnectionError if the client is gone;
        RuntimeError for what went wrong in the engine.
        """
        news: SimpleQueue[Any] = SimpleQueue()
        self.jobs.put(lambda: self._begin(news, request))
        try:
            event = None
            while event is None or not event.finished:
                try:
                    event = news.get(timeout=BEAT)
                except Empty:
                    event = None
                    if not self.thread.is_alive():
                        raise RuntimeError("the server is closing") from None
                if isinstance(event, Exception):
                    raise event
                if gone():
                    raise ConnectionAbortedError("the client hung up")
                if event is not None:
                    yield event
        finally:
            self.jobs.put(lambda: self._end(news))

    def close(self) -> None:
        """End the thread; who waits gets a RuntimeError."""
        self.jobs.put(None)
        self.thread.join()

    def _begin(self, news: SimpleQueue[Any], request: Mapping[str, Any]) -> None:
        try:
            self.readers[self.engine.add(**request)] = news
        except Exception as error:
            news.put(error)

    def _end(self, news: SimpleQueue[Any]) -> None:
        for id in [id for id, reader in self.readers.items() if reader is news]:
            self.engine.cancel(id)
            del self.readers[id]

    def _run(self) -> None:
        while True:
            while not (self.engine.busy and self.jobs.empty()):
                job = self.jobs.get()
                if job is None:
                    self._fail("the server is closing")
                    return
                job()
            try:
                for event in self.engine.step():
                    self.readers[event.id].put(event)
            except Exception as error:  # all lose their texts; the next may have luck
                self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, why: str) -> None:
        for news in list(self.readers.values()):
            news.put(RuntimeError(why))
            self._end(news)


class Completion:
    """A request that is being answered.

    Attributes:
        events: what the engine does for it.
        written: how many tokens there are.
        finished: why there are no more.
    """

    def __init__(
        self, server: Server, request: Mapping[str, Any], gone: Callable[[], bool]
    ) -> None:
        self.server, self.stop = server, request["stop"]
        prompt = request["prompt"]
        self.prompt = server.words.encode(prompt) if type(prompt) is str else prompt
        how = {name: request[name] for name in SAMPLING}
        self.events = server.desk.events(
            gone, prompt=self.prompt, max_new_tokens=request["max_tokens"],
            stop=server.ends, **how,
        )  # fmt: skip
        self.written, self.finished = 0, "stop"
        self.about = {
            "id": f"cmpl-{time.time_ns():x}", "object": "text_completion",
            "created": int(time.time()), "model": server.name,
        }  # fmt: skip

    def texts(self) -> Iterator[str]:
        """The text as soon as it is known, without what stops it."""
        yield from until(decoded(self.server.words, self._tokens()), self.stop)

    def _tokens(self) -> Iterator[int]:
        for event in self.events:
            if event.token is not None:
                self.written += 1
                yield event.token
            if event.finished:
                self.finished = event.finished

    def told(self, text: str, last: bool) -> dict[str, Any]:
        """An answer, or a part of one, as OpenAI's."""
        reason = self.finished if last else None
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}
        usage = {
            "prompt_tokens": len(self.prompt), "completion_tokens": self.written,
            "total_tokens": len(self.prompt) + self.written,
        }  # fmt: skip
        return {**self.about, "choices": [choice], **({"usage": usage} if last else {})}


class Server(ThreadingHTTPServer):
    """An engine behind HTTP, once `serve_forever` or `start` runs.

    Args:
        engine: nobody else may use it meanwhile.
        words: what turns text into tokens.
        name: of the model, for clients.
        ends: tokens that end a text.
        port: 0: one that is free.
        host: an address of this machine; 127.0.0.1 is reached from nowhere else.

    Raises:
        OSError: the port is taken, or the host is not this machine.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, engine: Engine, words: Tokenizer, name: str = "gpt",
        ends: Collection[int] = (), port: int = 0, host: str = "127.0.0.1",
    ) -> None:  # fmt: skip
        self.words, self.name, self.ends = words, name, ends
        self.desk, self.created = Desk(engine), int(time.time())
        try:
            super().__init__((host, port), Handler)  # closes what cannot listen
        except OSError as error:
            raise type(error)(
                f"Server: cannot listen at {host}:{port} ({error.strerror or error}); "
                f"give another port, or 0 for one that is free"
            ) from error
        self.url = f"http://{host}:{self.server_port}"

    def start(self) -> None:
        """Serve in a thread of its own; `shutdown` ends it."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def server_close(self) -> None:
        """Give the port back; requests that are not done end with an error."""
        super().server_close()
        self.desk.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error."""


class Handler(BaseHTTPRequestHandler):
    """One connection, with one request."""

    server: Server
    server_version, sys_version = "minitorch", ""
    timeout: ClassVar[float] = 60.0  # of a client that says nothing
    disable_nagle_algorithm = True  # a token waits for no news of the one before
    streams = False  # whether the answer has begun, in parts

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, method: Callable[[], None]) -> None:
        try:
            origin = self.headers.get("Origin")  # of a page in somebody's browser
            if origin and not ours(origin, self.headers.get("Host", "")):
                raise Refused(f"a page of {origin} may not ask this server", 403)
            method()
        except (ConnectionError, TimeoutError):
            pass
        except Refused as error:
            self._complain(error, error.status)
        except (ValueError, TypeError) as error:  # the library's words for the user
            self._complain(error, 400)
        except Exception as error:
            self._complain(error, 500)

    def _get(self) -> None:
        name = self.server.name
        if self.path in ("/v1/models", f"/v1/models/{quote(name, safe='')}"):
            model = {
                "id": name, "object": "model", "owned_by": "minitorch",
                "created": self.server.created,
            }  # fmt: skip
            listed = {"object": "list", "data": [model]}
            self._send_json(listed if self.path == "/v1/models" else model)
        elif self.path == "/metrics":
            stats = self.server.desk.engine.stats()
            lines = [f"minitorch_{name} {value}\n" for name, value in stats.items()]
            self._send("".join(lines).encode(), "text/plain; version=0.0.4")
        else:
            raise Refused(f"there is no {self.path!r}", 404)

    def _post(self) -> None:
        if self.path != "/v1/completions":
            raise Refused(f"there is no {self.path!r}; POST /v1/completions", 404)
        request, name = checked(self._body()), self.server.name
        if request["model"] not in (None, name):
            raise Refused(
                f"model is {request['model']!r}; this server has {name!r}", 404
            )
        completion = Completion(self.server, request, self._gone)
        with closing(completion.events):
            if request["stream"]:
                self._stream(completion)
            else:
                text = "".join(completion.texts())
                self._send_json(completion.told(text, True))

    def _stream(self, completion: Completion) -> None:
        """Server-sent events; errors of the request come before."""
        texts = completion.texts()
        first = next(texts, "")
        self.streams = True
        self._head("text/event-stream")
        for text in chain([first], texts):
            self._event(completion.told(text, False))
        self._event(completion.told("", True))
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, content: Mapping[str, Any]) -> None:
        self.wfile.write(b"data: %s\n\n" % json.dumps(content).encode())

    def _body(self) -> Any:
        size = self.headers.get("Content-Length", "")
        known = size.isdecimal() and len(size) < 20
        if not known or int(size) > MOST_BYTES:
            raise Refused(
                f"Content-Length is {size!r:.60}; expected a number of bytes, at most "
                f"{MOST_BYTES}",
                413 if known else 411,
            )
        try:
            return json.loads(self.rfile.read(int(size)))
        except (ValueError, RecursionError) as error:
            raise Refused(f"the body is no JSON: {error}") from None

    def _gone(self) -> bool:
        """Whether the client has hung up."""
        asked = select.poll()  # `select` itself knows 1024 connections alone
        asked.register(self.connection, select.POLLIN)
        # There is one request: nobody else reads what came behind it.
        return bool(asked.poll(0)) and not self.connection.recv(1 << 16)

    def _complain(self, error: Exception, status: int) -> None:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        told = {"message": str(error), "type": kind, "param": None, "code": None}
        if self.streams:
            self._event({"error": told})
        else:
            self._send_json({"error": told}, status)
            self._hear_out()

    def _hear_out(self) -> None:
        """Read on until the client is done: who still sends to a connection that is
        closed is told of that, and not of the answer."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(1.0)
            for _ in range(1 << 12):
                if not self.connection.recv(1 << 16):
                    break

    def _send_json(self, content: Mapping[str, Any], status: int = 200) -> None:
        self._send(json.dumps(content).encode(), "application/json", status)

    def _send(self, content: bytes, kind: str, status: int = 200) -> None:
        self._head(kind, status, {"Content-Length": str(len(content))})
        self.wfile.write(content)

    def _head(
        self, kind: str, status: int = 200, more: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        head = {"Content-Type": kind, "Cache-Control": "no-store", **(more or {})}
        for name, value in head.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what people ask is nobody else's business."""


def ours(origin: str, host: str) -> bool:
    """Whether a page comes from this server: by an address, since whoever has a name
    may let it stand for any address, later also for ours (DNS rebinding)."""
    page = urlsplit(origin)
    name = page.hostname or ""
    address = name == "localhost" or name.replace(".", "").isdecimal() or ":" in name
    return page.netloc == host and address


def checked(given: Any) -> dict[str, Any]:
    """All `FIELDS` of a request.

    Errors: Refused, with what was given and what was expected.
    """
    if not isinstance(given, dict):
        raise Refused(f"the body is {given!r:.60}; expected a JSON object")
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if name in NEUTRAL:
            if value != NEUTRAL[name]:
                raise Refused(
                    f"{name} is {value!r:.60}; only {NEUTRAL[name]!r} is served"
                )
        elif name not in FIELDS:
            raise Refused(f"there is no {name!r}; expected some of {', '.join(FIELDS)}")
        elif type(value) not in FIELDS[name][0]:
            kinds = " or ".join(kind.__name__ for kind in FIELDS[name][0])
            raise Refused(f"{name} is {value!r:.60}; expected {kinds}")
    out = {name: given.get(name, default) for name, (_, default) in FIELDS.items()}
    out["stop"] = [out["stop"]] if type(out["stop"]) is str else out["stop"]
    prompt = out["prompt"]
    if prompt is None:
        raise Refused("the prompt is missing; expected text, or a list of tokens")
    if prompt and type(prompt) is list and type(prompt[0]) in (str, list):
        if len(prompt) > 1:
            raise Refused(f"the prompt is {len(prompt)} of them; ask for each alone")
        (out["prompt"],) = prompt
    if out["max_tokens"] < 1:
        raise Refused(f"max_tokens is {out['max_tokens']}; expected 1 or more")
    if not all(isinstance(stop, str) and stop for stop in out["stop"]):
        raise Refused(f"stop is {given['stop']!r:.60}; expected text, or a list of it")
    return out


def until(pieces: Iterable[str], stops: Collection[str]) -> Iterator[str]:
    """The text of the pieces up to the first of `stops`.

    What may be the beginning of one is held back until it is known.
    """
    held = ""
    for piece in pieces:
        held += piece
        found = [at for stop in stops if (at := held.find(stop)) >= 0]
        if found:
            held = held[: min(found)]
            break
        starts = range(len(held))
        safe = next((i for i in starts if _begins(held[i:], stops)), len(held))
        if safe:
            yield held[:safe]
            held = held[safe:]
    if held:
        yield held


def _begins(text: str, stops: Iterable[str]) -> bool:
    return any(stop.startswith(text) for stop in stops)
