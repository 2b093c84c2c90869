"""The lab's server: who may ask, and what is answered to what makes no sense."""

from __future__ import annotations

import json
import urllib.request

import pytest
from typer.testing import CliRunner

from minitorch.cli.app import app
from minitorch.lab import Lab
from minitorch.lab.server import TITLES


def test_only_who_has_the_token_is_answered(lab, ask):
    port = f"http://127.0.0.1:{lab.server_port}/"
    for url in (port, f"{port}points", f"{port}{'x' * 22}/points", lab.url[:-2]):
        status, content = ask(url)
        assert status == 403 and "token" in content["error"], url
    status, content = ask(f"{port}api/points/play", b"{}")
    assert status == 403
    assert Lab(pages={}).token != lab.token and len(lab.token) >= 20
    assert lab.server_address[0] == "127.0.0.1"


def test_other_hosts_and_pages_of_others_are_refused(lab, ask):
    for host in ("evil.example", f"evil.example:{lab.server_port}", "127.0.0.1"):
        status, content = ask("points", headers={"Host": host})
        assert status == 403 and "Host" in content["error"]
    status, _ = ask("points", headers={"Host": f"localhost:{lab.server_port}"})
    assert status == 200
    status, content = ask("points/play", {}, headers={"Origin": "http://evil.example"})
    assert status == 403 and "evil.example" in content["error"]
    before = lab.pages["xray"].process
    evil = {"Origin": "null"}  # a file, or a frame in a sandbox
    assert ask("xray/look", {"kernel": "sum_shuffle"}, headers=evil)[0] == 403
    assert lab.pages["xray"].process is before  # nobody's code has run
    own = {"Origin": f"http://127.0.0.1:{lab.server_port}"}
    assert ask("points/pause", {}, headers=own)[0] == 200


def test_pages_come_with_what_they_need_and_load_nothing_from_elsewhere(lab, ask):
    assert set(lab.pages) <= set(TITLES)
    assert ask("")[1] == ask("points")[1]
    for name in lab.pages:
        status, page = ask(name)
        assert status == 200 and f"<h1>{TITLES[name]}</h1>" in page
        assert "http:" not in page and "https:" not in page and "{" not in page
        script = ask(f"static/{name}.js")[1]
        assert 'from "./lab.js"' in script and "https:" not in script
    with urllib.request.urlopen(lab.url + "static/lab.css") as answer:
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.extras
def test_keyboard_and_screen_readers_are_served(lab, visit):
    """Everything has a name, and Tab comes to all that can be used, in its order."""
    for name in lab.pages:
        screen = visit(name)
        page = screen.page
        page.locator(READY.get(name, "#main")).first.wait_for()
        assert not screen.nameless(), name
        usable = page.evaluate(USABLE)
        for number in range(usable):
            page.keyboard.press("Tab")
            assert page.evaluate("() => usable.indexOf(document.activeElement)") == (
                number
            ), name


# What has come when a page has asked its first questions.
READY = {"points": "#layers figure", "autograd": "#rows tr", "strides": ".cell"}
# What can be seen and used, in the document's order; kept for the next question.
USABLE = """() => { window.usable = [...document.querySelectorAll(
  "a, button, input, select, textarea, summary, [tabindex='0']")].filter((x) =>
  x.getClientRects().length && !x.disabled && x.tabIndex >= 0);
  return usable.length; }"""


def test_what_is_not_there_is_said(ask):
    for path in ("nothing", "static/nothing.css", "static/points.html", "api/points/x"):
        status, content = ask(path)
        assert status == 404 and content["error"].startswith("there is no"), path
    for path in ("static/..%2f..%2fserver.py", "static/../../server.py"):
        assert ask(path)[0] == 404
    assert ask("points/nothing", {})[0] == 404
    assert ask("nothing/play", {})[0] == 404


@pytest.mark.parametrize("body", [b"{", b"[1]", b"null", b"\xff", b"[" * 9000])
def test_a_question_is_a_json_object(ask, body):
    status, content = ask("points/start", body)
    assert status == 400 and content["error"].startswith("the question is")


def test_a_question_that_is_too_long_is_not_read(ask):
    status, content = ask("points/start", b"{}", headers={"Content-Length": "9" * 9})
    assert status == 413 and "bytes" in content["error"]


def test_the_command_takes_a_port_that_is_free(lab, monkeypatch):
    found = []
    monkeypatch.setattr(Lab, "serve_forever", lambda self: found.append(self.url))
    told = CliRunner().invoke(app, ["lab", "--no-open"])
    assert told.exit_code == 0 and found[0] in told.output
    told = CliRunner().invoke(app, ["lab", "--no-open", "--port", str(lab.server_port)])
    assert told.exit_code == 1 and len(found) == 1


def test_news_are_told_to_all_who_listen(lab):
    streams = [urllib.request.urlopen(lab.url + "api/points/events") for _ in range(2)]
    for stream in streams:
        assert stream.headers["Content-Type"] == "text/event-stream"
        first = stream.readline()
        assert first.startswith(b"data: ") and stream.readline() == b"\n"
        assert json.loads(first[6:])["kind"] == "start"
        stream.close()
