"""The server of the lab: for one user, on this machine, without a network.

With this file one can serve pages that ask and listen (`Lab`). A page is a part of
`static`, with a module of JavaScript beside it, and an object here:

    class Page:
        questions = {"name": method}   POST api/page/name: a JSON object in, one out
        def listen(self): ...          GET api/page/events: objects, while they come

Who may ask: the address holds a random token, which only the user's browser knows, and
the Host header must be ours, so that no page from elsewhere reaches the lab through a
name that it made point to 127.0.0.1.
"""

from __future__ import annotations

import json
import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

STATIC = Path(__file__).parent / "static"
TITLES = {
    "points": "Points",
    "autograd": "Autograd",
    "strides": "Strides",
    "digits": "Digits",
    "text": "GPT",
    "xray": "X-ray",
    "runs": "Runs",
}
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_BYTES = 1 << 20  # of a question
BEAT = 2.0  # seconds between two signs of life in a stream
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

# What the library raises, with words for the user, where a question makes no sense.
PUBLIC = (ValueError, TypeError, IndexError, ArithmeticError, RuntimeError)

Question = Callable[[dict[str, Any]], dict[str, Any]]


class Page(Protocol):
    """What answers for a page."""

    @property
    def questions(self) -> Mapping[str, Question]:
        """What answers to each question, by its name."""

    def listen(self) -> Iterator[dict[str, Any] | None]:
        """News for one listener; None where there is none yet."""


class Channel:
    """News for any number of listeners; one that is slow misses the oldest."""

    def __init__(self, most: int = 64) -> None:
        self.most = most
        self.listeners: list[queue.Queue[dict[str, Any]]] = []

    def publish(self, news: dict[str, Any]) -> None:
        """Tell all who listen."""
        for waiting in tuple(self.listeners):
            with suppress(queue.Empty, queue.Full):  # another thread may tell, too
                if waiting.full():
                    waiting.get_nowait()
                waiting.put_nowait(news)

    def listen(
        self, so_far: Callable[[], Iterable[dict[str, Any]]] = tuple
    ) -> Iterator[dict[str, Any] | None]:
        """What there is `so_far`, then the news; None every `BEAT` seconds without."""
        waiting: queue.Queue[dict[str, Any]] = queue.Queue(self.most + 1)
        self.listeners.append(waiting)
        try:
            yield from so_far()
            while True:
                try:
                    yield waiting.get(timeout=BEAT)
                except queue.Empty:
                    yield None
        finally:
            self.listeners.remove(waiting)


class Refused(ValueError):
    """A request that is not answered; `status` is HTTP's number for why."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class Lab(ThreadingHTTPServer):
    """The lab, at `url`, once `serve_forever` or `start` runs.

    Args:
        port: where on 127.0.0.1; 0: one that is free.
        pages: what answers, by the name of the page; None: all that there are.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True

    def __init__(self, port: int = 0, pages: Mapping[str, Page] | None = None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.pages = all_pages() if pages is None else pages
        self.token = secrets.token_urlsafe(16)
        self.hosts = {f"{n}:{self.server_port}" for n in ("127.0.0.1", "localhost")}
        self.url = f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def start(self) -> None:
        """Serve in a thread of its own; `shutdown` ends it."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error."""


def all_pages(
    digits: str | Path | None = None,
    text: str | Path | None = None,
    runs: Sequence[Path] = (Path("runs"),),
) -> dict[str, Page]:
    """The pages of the lab, by name.

    Args:
        digits: a checkpoint (or the folder) of a `minitorch train mnist` to show.
        text: one of `minitorch train gpt`.
        runs: folders of runs to compare.
    """
    from minitorch.lab.autograd import AutogradPage
    from minitorch.lab.digits import DigitsPage
    from minitorch.lab.points import PointsPage
    from minitorch.lab.runs import RunsPage
    from minitorch.lab.strides import StridesPage
    from minitorch.lab.text import TextPage
    from minitorch.lab.xray import XRayPage

    return {
        "points": PointsPage(),
        "autograd": AutogradPage(),
        "strides": StridesPage(),
        "digits": DigitsPage(digits),
        "text": TextPage(text),
        "xray": XRayPage(),
        "runs": RunsPage(runs),
    }


class Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: Lab
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "minitorch", ""
    disable_nagle_algorithm = True
    timeout: ClassVar[float] = 60.0  # of a connection that says nothing

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, method: Callable[[list[str]], None]) -> None:
        try:
            method(self._allowed())
        except Refused as error:
            self._send_json({"error": str(error)}, error.status)
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except PUBLIC as error:
            self._send_json({"error": str(error)}, 400)
        except Exception as error:  # a mistake of ours; the page says so
            self._send_json({"error": f"{type(error).__name__}: {error}"}, 500)

    def _allowed(self) -> list[str]:
        """The parts of the path behind the token, for those who may ask."""
        host = self.headers.get("Host", "")
        if host not in self.server.hosts:
            raise Refused(403, f"the Host header is {host!r}; expected 127.0.0.1")
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc not in self.server.hosts:
            raise Refused(403, f"a page of {origin} may not ask the lab")
        _, token, *rest = [*urlsplit(self.path).path.split("/"), ""][:6]
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            raise Refused(
                403, "the token is missing or wrong; open the address that "
                "`minitorch lab` printed"
            )  # fmt: skip
        return [part for part in rest if part]

    # --------------------------------------------------------------------- answers

    def _get(self, parts: list[str]) -> None:
        match parts:
            case []:
                first = next(iter(self.server.pages))
                self._head(303, {"Location": f"/{self.server.token}/{first}"})
            case [name] if name in self.server.pages:
                self._send(self._page(name).encode(), "text/html")
            case ["static", name]:
                self._send_file(name)
            case ["api", name, "events"] if name in self.server.pages:
                self._stream(self.server.pages[name])
            case _:
                raise Refused(404, f"there is no page {'/'.join(parts)!r}")

    def _post(self, parts: list[str]) -> None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > MOST_BYTES:
            self.close_connection = True  # what it sends is not read
            raise Refused(413, f"a question has at most {MOST_BYTES:,} bytes")
        body = self.rfile.read(int(size))
        match parts:
            case ["api", name, question] if name in self.server.pages:
                known = self.server.pages[name].questions
                if question not in known:
                    raise Refused(404, f"{name}: there is no question {question!r}")
                self._send_json(known[question](_json_object(body)))
            case _:
                raise Refused(404, f"there is no page {'/'.join(parts)!r}")

    def _page(self, name: str) -> str:
        links = "".join(
            f'<a href="{key}"{" aria-current=page" if key == name else ""}>{title}</a>'
            for key, title in TITLES.items()
            if key in self.server.pages
        )
        frame = (STATIC / "page.html").read_text(encoding="utf-8")
        main = (STATIC / f"{name}.html").read_text(encoding="utf-8")
        for field, text in (
            ("links", links), ("title", TITLES[name]), ("name", name), ("main", main)
        ):  # fmt: skip
            frame = frame.replace(f"{{{field}}}", text)
        return frame

    def _send_file(self, name: str) -> None:
        kind = TYPES.get(Path(name).suffix)
        file = STATIC / name
        if kind is None or name != file.name or not file.is_file():
            raise Refused(404, f"there is no file {name!r}")
        self._send(file.read_bytes(), kind)

    def _stream(self, page: Page) -> None:
        """Server-sent events, until the browser goes away."""
        self.close_connection = True
        self._head(200, {"Content-Type": "text/event-stream"}, length=None)
        for news in page.listen():
            line = ":" if news is None else f"data: {_dumps(news)}"
            self.wfile.write(f"{line}\n\n".encode())

    def _send_json(self, content: dict[str, Any], status: int = 200) -> None:
        self._send(_dumps(content).encode(), "application/json", status)

    def _send(self, content: bytes, kind: str, status: int = 200) -> None:
        text = {"Content-Type": f"{kind}; charset=utf-8"}
        self._head(status, text, len(content))
        self.wfile.write(content)

    def _head(self, status: int, more: dict[str, str], length: int | None = 0) -> None:
        if status >= 400:
            self.close_connection = True
        self.send_response(status)
        size = {} if length is None else {"Content-Length": str(length)}
        last = {"Connection": "close"} if self.close_connection else {}
        for name, value in {**HEADERS, **more, **size, **last}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the token would stand in each line."""


def _dumps(content: dict[str, Any]) -> str:
    """JSON as browsers read it, which know no NaN: it is null."""
    try:
        return json.dumps(content, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(content))


def _without_nan(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: _without_nan(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [_without_nan(value) for value in x]
    return None if isinstance(x, float) and x - x != 0 else x


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the question is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused(400, f"the question is {found!r:.40}; expected a JSON object")
    return found
