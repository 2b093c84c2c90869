"""The grader's end of a worker.

With this file one can start a worker (`Worker`), ask it for things within limits of
time, memory and output (`Worker.request`), and be sure that nothing of it is left
afterwards (`Worker.close`). Whatever goes wrong there is a `Failed` here.
"""

from __future__ import annotations

import math
import os
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from assignments.grading import sandbox
from assignments.grading.launch import text
from assignments.grading.processes import Tree, busy, cores, send
from assignments.grading.wire import Reader, WireError, encode

KEPT_OUTPUT = 4000  # bytes of what a worker prints that are kept, from the beginning
MOST_WAITING = 4.0  # times the limit of a call, for which it may wait for a processor
WATCH_EVERY = 0.05  # seconds between two looks at a worker's memory
# Seconds between two looks at what it waited for when calls begin: that reads about all
# processes of the machine, which takes longer than a small call.
BEGIN_EVERY = 0.25
FROZEN_SECONDS = 0.02  # that clocks may have been late with when all stood still
CHUNK = 1 << 20

Ask = Callable[[list[Any]], list[dict[str, Any]]]


class Failed(Exception):
    """A request that was not answered as it should be.

    Attributes:
        kind: "raised" (the worker can go on), "crashed", "time", "memory", "output",
            "protocol" (it cannot).
        text: for the student.
        type: of the exception, if the call raised one.
        where: lines of the student's that it went through, the last one last.
    """

    def __init__(self, kind: str, text: str, type: str = "", where: str = "") -> None:
        super().__init__(text)
        self.kind, self.text, self.type, self.where = kind, text, type, where


@dataclass(frozen=True)
class Answer:
    """What a request gave.

    Attributes:
        value: the result.
        seconds: from the first byte sent to the last one read, by the grader's clock.
    """

    value: Any
    seconds: float


class Worker:
    """A process with a student's code.

    Args:
        view: what it sees.
        limits: what it may use up.
        mode: how it is shut in, see `sandbox`.
        output: takes the beginning of what it prints.
    """

    def __init__(
        self,
        view: sandbox.View,
        limits: sandbox.Limits,
        mode: str,
        output: bytearray | None = None,
    ) -> None:
        self.limits = limits
        self.dead = ""
        self.printed = 0
        self.output = bytearray() if output is None else output
        self._watched = 0.0
        self._begun = -math.inf, 0.0, 0.0  # when waiting was looked at, and that
        self._frozen: float | None = None
        self._started = self._start(view, limits, mode)
        self._process = self._started.process
        self.tree = self._started.tree or Tree(self._process.pid, alone=True)
        self._socket = self._started.socket
        self._socket.setblocking(False)
        assert self._process.stdout is not None and self._process.stderr is not None
        self._pipes = {
            pipe.fileno(): pipe for pipe in (self._process.stdout, self._process.stderr)
        }
        for number in self._pipes:
            os.set_blocking(number, False)

    def _start(
        self, view: sandbox.View, limits: sandbox.Limits, mode: str
    ) -> sandbox.Started:
        return sandbox.start(view, limits, mode)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def request(
        self,
        message: dict[str, Any],
        seconds: float,
        answer_bytes: int = 1 << 20,
        ask: Ask | None = None,
    ) -> Answer:
        """Ask for one thing, and take exactly one answer to it.

        Args:
            message: "do" and what belongs to it.
            seconds: time it may take, with all it asks back.
            answer_bytes: of arrays that the answer may have.
            ask: computes what the worker asks for meanwhile; None: it may not ask.

        Raises:
            Failed: an error of the call, or the end of the worker.
        """
        if self.dead:
            raise Failed("crashed", self.dead)
        number = secrets.token_hex(16)
        # With its random number, an answer belongs to this request alone.
        data = encode({"id": number, **message})
        end = self._deadline(seconds)
        try:
            self._refuse_early_bytes()
            self._watch(WATCH_EVERY / 2)  # now, and not in the midst of what is timed
            start = time.perf_counter()
            reply = self._exchange(data, end, answer_bytes)
            while reply.get("is") == "ask" and ask is not None:
                _check_reply(reply, number, ("ask",))
                answer = {"id": number, "answers": ask(reply["questions"])}
                reply = self._exchange(encode(answer), end, answer_bytes)
            took = time.perf_counter() - start
            _check_reply(reply, number, ("ok", "error"))
            self._drain()
        except WireError as error:
            raise self._end(
                "protocol", f"the worker broke the protocol: {error}"
            ) from None
        if reply["is"] == "error":
            raise Failed("raised", reply["text"], reply["type"], reply["where"])
        return Answer(reply["value"], took)

    def _refuse_early_bytes(self) -> None:
        """Nothing may have been sent since the last answer."""
        try:
            data = self._socket.recv(1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            raise WireError("bytes that nothing had asked for")
        raise self._ended()

    def _deadline(self, seconds: float) -> Callable[[], float]:
        """A function that says how much of some seconds is left.

        Where other programs keep the processors busy, the time for which the worker had
        to wait for one does not count, within limits. Its own processes are none of
        them: what they use, nobody has taken from it.
        """
        start = time.perf_counter()
        if start - self._begun[0] > BEGIN_EVERY:
            self._begun = start, *self._kept_from()
        _, waited, others = self._begun

        def left() -> float:
            rest = start + seconds - time.perf_counter()
            if rest > 0:
                return rest
            more, taken = self._kept_from()
            lost = min(more - waited, taken - others)
            return rest + min(max(lost, 0.0), MOST_WAITING * seconds)

        return left

    def _kept_from(self) -> tuple[float, float]:
        """For how long it had to wait, and others had the processors."""
        return self.tree.waited(), busy() - self._share()

    def _share(self) -> float:
        """Seconds that our processors were busy with this worker, each on average."""
        return self.tree.cpu() / len(cores())

    def freeze(self) -> float:
        """Let all that the worker has started stand still, until `thaw`.

        Returns:
            Seconds of processors that all that had used by then.

        Raises:
            Failed: something of it does not.
        """
        if self.dead:
            return 0.0
        if not self.tree.freeze():
            raise self._end("crashed", "it has processes that cannot be stopped")
        self._frozen = self.tree.cpu()
        return self._frozen

    def thaw(self) -> float:
        """Let it go on; the seconds of processors that it has used so far.

        Raises:
            Failed: it has worked meanwhile.
        """
        used = 0.0 if self.dead else self.tree.cpu()
        if self.dead or self._frozen is None:
            return used
        worked, self._frozen = used - self._frozen, None
        if worked > FROZEN_SECONDS:
            raise self._end("crashed", "it worked while it had to stand still")
        self.tree.thaw()
        return used

    def _exchange(
        self, data: bytes, end: Callable[[], float], answer_bytes: int
    ) -> dict[str, Any]:
        """Send a message, read one; what the worker prints is read all the while."""
        reader = Reader(answer_bytes)
        unsent = memoryview(data)
        poll = select.poll()
        for number in self._pipes:
            poll.register(number, select.POLLIN)
        link = self._socket.fileno()
        poll.register(link, select.POLLIN | select.POLLOUT)
        while True:
            left = end()
            if left <= 0:
                raise self._end("time", "it took longer than it may")
            events = dict(poll.poll(1000 * min(left, WATCH_EVERY)))
            if events.get(link, 0) & select.POLLOUT:
                unsent = self._send(unsent)
                if not unsent:
                    poll.modify(link, select.POLLIN)
            if events.get(link, 0) & (select.POLLIN | select.POLLHUP | select.POLLERR):
                message = self._receive(reader)
                if message is not None and unsent:
                    raise WireError("an answer before the end of the request")
                if message is not None:
                    return message
            for number in events.keys() & self._pipes.keys():
                if not self._read_output(number):
                    poll.unregister(number)
            self._watch()

    def _send(self, unsent: memoryview) -> memoryview:
        try:
            return unsent[self._socket.send(unsent[:CHUNK]) :]
        except BlockingIOError:
            return unsent
        except OSError:
            raise self._ended() from None

    def _receive(self, reader: Reader) -> dict[str, Any] | None:
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            raise self._ended()
        return reader.feed(data)

    def _read_output(self, number: int) -> bool:
        """Take what the worker has printed; False at the end of it."""
        try:
            data = os.read(number, 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.printed += len(data)
        self.output += data[: max(0, KEPT_OUTPUT - len(self.output))]
        if self.printed > self.limits.output_bytes:
            raise self._end(
                "output", f"it printed {self.printed:,} bytes, which is too much"
            )
        return True

    def _watch(self, every: float = WATCH_EVERY) -> None:
        """End a worker whose processes together take more memory than one may."""
        now = time.perf_counter()
        if now - self._watched < every:
            return
        self._watched = now
        used = self.tree.memory(self.limits.memory)
        if used > self.limits.memory:
            raise self._end("memory", f"it took {used >> 20} MiB of memory")

    def _ended(self) -> Failed:
        """The worker has closed its socket: find out why."""
        try:
            code = self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return self._end("crashed", "it closed its connection to the grader")
        self._drain()
        if code > 128 or code < 0:
            number = code - 128 if code > 128 else -code
            return self._end("crashed", f"the process was ended by {_signal(number)}")
        return self._end("crashed", f"the process ended with code {code}")

    def _drain(self) -> None:
        for number in self._pipes:
            try:
                while (data := os.read(number, 1 << 16)) and self.printed < 1 << 24:
                    self.printed += len(data)
                    self.output += data[: max(0, KEPT_OUTPUT - len(self.output))]
            except BlockingIOError:
                pass

    def _end(self, kind: str, text: str) -> Failed:
        self.dead = f"not run, since an earlier check ended the process: {text}"
        self.close()
        return Failed(kind, text)

    def close(self) -> None:
        """End the worker and everything that it has started."""
        self.dead = self.dead or "the process was closed"
        self._socket.close()
        self._end_processes()
        for pipe in self._pipes.values():
            pipe.close()

    def _end_processes(self) -> None:
        """`launch.py` ends what is below it when its standard input is closed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self.tree.kill()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._started.user is not None:
            _kill_all_of(self._started.user)
        self.tree.remove()


REPLIES: dict[str, dict[str, type]] = {
    "ok": {"value": object},
    "error": {"type": str, "text": str, "where": str},
    "ask": {"questions": list},
}


def _check_reply(reply: dict[str, Any], number: str, kinds: tuple[str, ...]) -> None:
    """A reply must belong to the request and have just what replies have."""
    kind = reply.get("is")
    fields = REPLIES[kind] if type(kind) is str and kind in kinds else None
    if reply.get("id") != number:
        raise WireError("an answer to another request")
    if fields is None or reply.keys() != {"id", "is", *fields}:
        raise WireError("an answer without the fields that answers have")
    if not all(isinstance(reply[name], kind) for name, kind in fields.items()):
        raise WireError("an answer with fields of other types")


def _kill_all_of(user: int) -> None:
    """End every process of a user that only one worker has."""
    for _ in range(100):
        left = [
            name
            for name in os.listdir("/proc")
            if name.isdigit() and _is_of(name, user)
        ]
        if not left:
            return
        for name in left:
            send(int(name), signal.SIGKILL)
        time.sleep(0.005)


def _is_of(name: str, user: int) -> bool:
    lines = text(f"/proc/{name}/status").split("\n")
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if "Uid" not in fields:
        return False  # it has gone
    return fields["Uid"].split()[0] == str(user) and "Z" not in fields["State"]


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
