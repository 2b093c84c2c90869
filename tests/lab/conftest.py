"""A lab that runs, and a browser that looks at its pages."""

from __future__ import annotations

import json
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minitorch.lab import Lab

Ask = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    server = Lab()
    server.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def ask(lab: Lab) -> Ask:
    """`ask("points/step", {...})` or `ask(path, headers=...)`: status and content."""

    def ask(path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        if body is not None:
            path = path if path.startswith("http") else f"api/{path}"
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        url = path if path.startswith("http") else lab.url + path
        request = urllib.request.Request(url, data=body, **more)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, kind, raw = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            status, kind, raw = error.code, error.headers, error.read()
        if kind["Content-Type"].startswith("application/json"):
            return status, json.loads(raw)
        return status, raw.decode()

    return ask


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs the extra lab")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs the program chromium")
    with api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        try:
            browser = playwright.chromium.launch(executable_path=program, args=options)
        except api.Error as error:
            pytest.skip(f"chromium does not start here: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


class Screen:
    """A page of the lab in the browser, which must not complain of anything."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def nameless(self) -> list[str]:
        """What screen readers have no name for."""
        roles = r"button|link|textbox|combobox|slider|checkbox|img|region|application"
        found = re.findall(
            rf"^ *- (?:{roles})(?=:|$| \[)", self.page.aria_snapshot(), re.M
        )
        return [line.strip() for line in found]

    def until(self, true: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, self.page.inner_text("body")
            self.page.wait_for_timeout(30)


@pytest.fixture
def visit(lab: Lab, browser: Any) -> Iterator[Callable[..., Screen]]:
    """`visit("points", ...)` opens a page; no script may fail, no host be asked."""
    contexts, problems = [], []

    def visit(name: str, **options: Any) -> Screen:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: (
                request.url.startswith((lab.url, "data:"))
                or problems.append(f"asks {request.url}")
            ),
        )
        page.goto(lab.url + name)
        return Screen(page)

    yield visit
    for context in contexts:
        context.close()
    assert not problems
