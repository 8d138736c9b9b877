"""The one hand-off between those who want scores and the thread that computes them.

A scorer that only waits, for a server over HTTP, may have several such threads.

Waits for nobody: what has arrived while a batch was computed forms the next batch, so an idle
scorer answers at once and a busy one fills its batches. First come, first served; a batch holds
at most `batch_characters` of text after padding, by default as many as the scorer says.

Where the next batch waits already, the scores of one are told as the next begins to compute without
Python's lock: those who hear of them, on an event loop as a rule, have much to do and run beside
the scorer then. Told earlier, they would take the lock while the scorer reads texts, which needs it
too, and nothing would be left for them to do while it computes.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from typing import Any

from calibrator.errors import CalibratorError, QueueFullError, UnavailableError
from calibrator.scorer import (
    IMAGE_CHARACTERS,
    Item,
    Score,
    Scorer,
    batch_characters_of,
    batches_at_a_time,
    nothing,
    score_meanwhile,
)


@dataclass(slots=True, eq=False)
class Ticket:
    """A score to come. What `concurrent.futures` does with a lock at every touch is done here with
    plain attributes: one thread finishes a ticket, others only look or cancel."""

    item: Item
    size: int
    on_done: Callable[[Ticket], None] | None = None  # called once, by the scorer or by `close`
    owner: Any = None  # whatever those who submit want to find it by
    is_done: bool = False
    is_cancelled: bool = False
    score: Score | None = None
    error: BaseException | None = None
    _event: threading.Event | None = None

    def cancel(self) -> bool:
        """Gives the score up; False when it is there already."""
        if not self.is_done:
            self.is_cancelled = True
        return self.is_cancelled

    def result(self, timeout_s: float | None = None) -> Score:
        """Waits; raises what the scorer raised, CancelledError or TimeoutError."""
        self._event = threading.Event()
        if not self.is_done and not self.is_cancelled and not self._event.wait(timeout_s):
            raise TimeoutError
        if self.error is not None:
            raise self.error
        if self.score is None:
            raise CancelledError
        return self.score

    def finish(self, score: Score | None = None, error: BaseException | None = None) -> None:
        self.score, self.error = score, error
        self.is_done = True
        if self.on_done is not None:
            self.on_done(self)
        if self._event is not None:
            self._event.set()


class Batcher:
    """Scores items on a thread of its own, or as many as the scorer takes batches at a time.

    `submit` may be called from any thread.
    """

    def __init__(
        self,
        scorer: Scorer,
        *,
        max_queue: int = 1_024,
        batch_characters: int | None = None,
        max_item_characters: int = 3_000,
    ) -> None:
        self.name = scorer.name
        self._scorer = scorer
        self._max_queue = max_queue
        self._batch_characters = batch_characters or batch_characters_of(scorer)
        self._max_item_characters = max_item_characters
        self._waiting: deque[Ticket] = deque()
        self._lock = threading.Lock()
        self._sizes: Counter[int] = Counter()  # of batches so far
        # The scorer's thread sleeps reading a pipe. Whoever writes to it lets go of the interpreter
        # meanwhile; woken by a lock, the thread would at once have to wait for the interpreter.
        self._bed, self._bell = os.pipe()
        self._asleep = 0  # threads; each byte in the pipe wakes one
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._run, name="scorer", daemon=True)
            for _ in range(batches_at_a_time(scorer))
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self,
        items: Sequence[Item],
        on_done: Callable[[Ticket], None] | None = None,
        owner: Any = None,
        *,
        wake: bool = True,
    ) -> list[Ticket]:
        """A ticket for each item; raises QueueFullError when they do not all fit.

        `on_done` is called for each, on another thread as a rule. A ticket that is cancelled before
        its batch starts costs nothing, no place in the queue either. Without `wake` the scorer may
        sleep on until `wake` is called: waking a thread costs more than a small request, so those
        who submit much do it once for several submissions.
        """
        most = self._max_item_characters
        tickets: list[Ticket] = []
        for item in items:  # without a function of its own, of which there are many where one is
            tickets.append(Ticket(item, _size(item, most), on_done, owner))
        with self._lock:
            if self._is_closed:
                raise CalibratorError("the scorer is closed")
            if len(self._waiting) + len(tickets) > self._max_queue:
                self._waiting = deque(t for t in self._waiting if not t.is_cancelled)
            if len(self._waiting) + len(tickets) > self._max_queue:
                raise QueueFullError(
                    f"{len(self._waiting)} items are waiting, {self._max_queue} may"
                )
            self._waiting.extend(tickets)
        if wake:
            self.wake()
        return tickets

    def wake(self) -> None:
        """Wakes one thread, which wakes the next if it leaves anything."""
        with self._lock:
            wakes = self._asleep > 0
            self._asleep -= wakes
        if wakes:
            os.write(self._bell, b"!")

    def load_figures(self) -> tuple[int, dict[int, int]]:
        """How many items wait for a batch; how many batches of each size were taken so far."""
        with self._lock:
            return len(self._waiting), dict(self._sizes)

    def close(self) -> None:
        """Cancels what is waiting and ends the threads after their current batches."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
            given_up = list(self._waiting)
            self._waiting.clear()
        if was_closed:
            return
        for _ in self._threads:
            self.wake()
        for ticket in given_up:
            ticket.cancel()
            ticket.finish()
        until = time.monotonic() + 10
        for thread in self._threads:
            thread.join(timeout=max(0.0, until - time.monotonic()))
        if not any(thread.is_alive() for thread in self._threads):  # else one may still read
            os.close(self._bed)
            os.close(self._bell)

    def _run(self) -> None:
        untold: list[tuple[Ticket, Score]] = []
        while batch := self._next_batch(untold):
            running = [ticket for ticket in batch if not ticket.is_cancelled]
            if running:
                scored = _scored(self._scorer, running, partial(_tell, untold))
                _tell(untold)
                untold = scored
        _tell(untold)

    def _next_batch(self, untold: list[tuple[Ticket, Score]]) -> list[Ticket]:
        """Waits for work, then takes from the head of the queue; empty when closed. What is
        `untold` is told before it waits."""
        while True:
            with self._lock:
                if self._waiting or self._is_closed:
                    batch = self._taken()
                    is_more = bool(self._waiting) and self._asleep > 0
                    break
                self._asleep += 1
            _tell(untold)
            os.read(self._bed, 1)
        if is_more:
            self.wake()
        return batch

    def _taken(self) -> list[Ticket]:
        batch: list[Ticket] = []
        longest = 0
        while self._waiting:
            longest = max(longest, self._waiting[0].size)
            if batch and longest * (len(batch) + 1) > self._batch_characters:
                break
            batch.append(self._waiting.popleft())
        self._sizes[len(batch)] += bool(batch)
        return batch


def score_tickets(scorer: Scorer, tickets: Sequence[Ticket]) -> None:
    """Finishes each with its score or its own error; raises nothing.

    One bad item does not take its batch along: where a batch fails, each is tried alone, once.
    """
    _tell(_scored(scorer, tickets, nothing))


def _scored(
    scorer: Scorer, tickets: Sequence[Ticket], meanwhile: Callable[[], None]
) -> list[tuple[Ticket, Score]]:
    """Tickets with their scores, which nobody was told yet; those that failed are finished."""
    try:
        scores = score_meanwhile(scorer, [ticket.item for ticket in tickets], meanwhile)
        if len(scores) != len(tickets):
            raise CalibratorError(
                f"{scorer.name} gave {len(scores)} scores for {len(tickets)} items"
            )
    except BaseException as error:  # whatever it is, those who wait must hear of it
        if len(tickets) == 1 or isinstance(error, UnavailableError):  # then no item is to blame
            for ticket in tickets:
                ticket.finish(error=error)
            return []
        for ticket in tickets:
            if not ticket.is_cancelled:  # since
                score_tickets(scorer, [ticket])
        return []
    return list(zip(tickets, scores, strict=True))


def _tell(scored: list[tuple[Ticket, Score]]) -> None:
    """Finishes tickets with their scores, each once."""
    for ticket, score in scored:
        ticket.finish(score)
    scored.clear()


def _size(item: Item, most: int) -> int:
    """What an item costs: its characters, as far as the scorer reads them, and its images."""
    characters = len(item.question) + len(item.answer)
    size = (characters if characters < most else most) + 1
    return size + IMAGE_CHARACTERS * len(item.images) if item.images else size
