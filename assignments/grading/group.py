"""Several workers that do one thing together.

With this file the ranks of a group (`Group`) can be asked for their parts at the same
time. They have one deadline and one verdict: the first failure is everybody's, and
where one has ended, nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any

from assignments.grading.channel import Answer, Worker


class Group:
    """Workers that end together.

    Args:
        workers: one for each rank.
    """

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = tuple(workers)

    def __enter__(self) -> Group:
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
        messages: Sequence[dict[str, Any]],
        seconds: float,
        answer_bytes: int = 1 << 20,
    ) -> list[Answer]:
        """Ask each rank for its part; the answers, in the order of the ranks.

        Args:
            messages: one for each rank.
            seconds: that all of them together may take.
            answer_bytes: of arrays that one answer may have.

        Raises:
            Failed: the first failure of a rank; the others have been ended with it.
            ValueError: there are not as many messages as ranks.
        """
        if len(messages) != len(self.workers):
            raise ValueError(
                f"group: got {len(messages)} messages for {len(self.workers)} ranks"
            )
        with ThreadPoolExecutor(len(self.workers)) as pool:
            parts: list[Future[Answer]] = [
                pool.submit(worker.request, message, seconds, answer_bytes)
                for worker, message in zip(self.workers, messages)
            ]
            done, _ = wait(parts, return_when=FIRST_EXCEPTION)
            failure = next((e for part in done if (e := part.exception())), None)
            if failure is not None:
                for worker in self.workers:
                    worker.stop()  # the requests of the others end, too
        if failure is not None:
            self.close()
            raise failure
        return [part.result() for part in parts]

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.close()
