"""A bounded queue of items for another service, sent in batches by a thread of its own.

Callers never wait for it. Items that do not fit, or cannot be sent, are dropped and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import structlog

from proxy.http.wire.http import place
from proxy.http.wire.worker_threads import ShedCounter, Worker

log = structlog.get_logger(__name__)

MOST_WAITING: Final = 10_000
AT_ONCE: Final = 200
GATHER_S: Final = 1.0
TRIES: Final = 5
FIRST_PAUSE_S: Final = 0.5  # doubled after each try

T = TypeVar("T")


class NotSentError(Exception):
    """A batch was not accepted; `may_pass` says whether another try may help."""

    def __init__(self, reason: str, *, may_pass: bool) -> None:
        super().__init__(reason)
        self.may_pass = may_pass


class Outbox(Generic[T]):
    """A queue for the service named `to`.

    `send` sends a batch on the outbox's thread and returns how many items were refused (None is 0).
    It raises NotSentError where none was accepted.
    """

    def __init__(
        self,
        to: str,
        send: Callable[[list[T]], int | None],
        *,
        most_waiting: int = MOST_WAITING,
        gather_s: float = GATHER_S,
    ) -> None:
        self.to = to
        self.sent = 0
        self._send = send
        self._most_waiting = most_waiting
        self._waiting: deque[T] = deque()
        self._dropped = ShedCounter(f"{to}_dropped")
        self._worker = Worker(f"telemetry-{to}", self._turn, gather_s=gather_s)

    @property
    def drop_count(self) -> int:
        """The number of items that were dropped or refused."""
        return self._dropped.count

    def start(self) -> None:
        self._worker.start()

    def add(self, item: T) -> None:
        """Add an item to the queue; where the queue is full, drop and count it.

        Never waits. Call it on the event loop.
        """
        if len(self._waiting) >= self._most_waiting:
            self._dropped.add(1, "queue_full")
            return
        self._waiting.append(item)
        self._worker.wake()

    def close(self) -> None:
        """Send what is still queued, without pauses for retries, and stop the thread."""
        self._worker.close()

    def _turn(self) -> None:
        """Send all waiting items, `AT_ONCE` in a batch, on the outbox's thread."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            self._try(batch)

    def _try(self, batch: list[T]) -> None:
        """Send a batch, up to `TRIES` times with growing pauses; count what was sent and dropped.

        An unexpected error is logged, and its batch dropped.
        """
        pause_s = FIRST_PAUSE_S
        for left in reversed(range(TRIES)):
            try:
                refused = self._send(batch) or 0
            except NotSentError as error:
                is_over = not error.may_pass or not left or self._worker.pause(pause_s)
                if is_over:
                    self._dropped.add(len(batch), str(error))
                    return
                pause_s *= 2
            except Exception as error:
                log.error("telemetry_failed", to=self.to, **place(error))
                self._dropped.add(len(batch), type(error).__name__)
                return
            else:
                self.sent += len(batch) - refused
                if refused:
                    self._dropped.add(refused, "refused")
                return
