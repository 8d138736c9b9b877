"""The hand-off between callers who want scores and the threads that compute them.

Most scorers have one thread; one that only waits for a server over HTTP may have several. A batch
holds the items that arrived while the last one was computed, so an idle scorer answers at once and
a busy one fills its batches. Items are served in order of arrival. A batch holds at most
`batch_characters` of text after padding, by default the scorer's own limit.

Where the next batch is already waiting, the scores of a batch are delivered when the next one
begins to compute without Python's lock. Their receivers, usually on an event loop, have much to do
and then run beside the scorer. With an earlier delivery they would take the lock while the scorer
reads texts, which needs it too, and would have nothing to do while it computes.
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
    do_nothing,
    score_meanwhile,
)


@dataclass(slots=True, eq=False)
class Ticket:
    """A score to come.

    It does with plain attributes what `concurrent.futures` does with a lock at every access: one
    thread finishes a ticket, and others only look at it or cancel it.
    """

    item: Item
    size: int
    on_done: Callable[[Ticket], None] | None = None  # called once, by the scorer or by `close`
    owner: Any = None  # any value by which the submitter finds it
    is_done: bool = False
    is_cancelled: bool = False
    score: Score | None = None
    error: BaseException | None = None
    _event: threading.Event | None = None

    def cancel(self) -> bool:
        """Cancel the ticket and return True; return False where it is already finished.

        A cancelled ticket is not scored, unless its batch has begun; cancelling again returns True.
        """
        if not self.is_done:
            self.is_cancelled = True
        return self.is_cancelled

    def result(self, timeout_s: float | None = None) -> Score:
        """Wait for the score and return it; only one thread may wait for a ticket.

        Raises the scorer's error, CancelledError for a cancelled ticket, or TimeoutError after
        `timeout_s` seconds (None waits without limit).
        """
        self._event = threading.Event()
        if not self.is_done and not self.is_cancelled and not self._event.wait(timeout_s):
            raise TimeoutError
        if self.error is not None:
            raise self.error
        if self.score is None:
            raise CancelledError
        return self.score

    def finish(self, score: Score | None = None, error: BaseException | None = None) -> None:
        """Set the score or the error, call `on_done` with the ticket, and wake whoever waits.

        A cancelled ticket is finished with neither.
        """
        self.score, self.error = score, error
        self.is_done = True
        if self.on_done is not None:
            self.on_done(self)
        if self._event is not None:
            self._event.set()


class Batcher:
    """Scores items on its own thread, or on one for each batch that the scorer takes at a time.

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
        """Start the threads that score.

        `max_queue` is the most items that may wait. `batch_characters` bounds a batch after
        padding, by default by the scorer's own limit, and `max_item_characters` is the text of one
        item that counts towards it.
        """
        self.name = scorer.name
        self._scorer = scorer
        self._max_queue = max_queue
        self._batch_characters = batch_characters or batch_characters_of(scorer)
        self._max_item_characters = max_item_characters
        self._waiting: deque[Ticket] = deque()
        self._lock = threading.Lock()
        self._sizes: Counter[int] = Counter()  # number of batches so far by their size
        # The scorer's thread sleeps reading a pipe, since a write to it releases the interpreter.
        # A thread woken by a lock would at once have to wait for the interpreter.
        self._wake_reader, self._wake_writer = os.pipe()
        self._asleep = 0  # sleeping threads; each byte in the pipe wakes one
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
        """Queue items and return a ticket for each.

        `on_done` is called for each, usually on another thread. A ticket that is cancelled before
        its batch starts takes no time and no place in the queue. Without `wake` the scorer may
        sleep on until `wake` is called: waking a thread costs more than a small request, so one
        wake can serve several submissions. Raises QueueFullError where the items do not all fit,
        and CalibratorError after `close`.
        """
        most = self._max_item_characters
        tickets: list[Ticket] = []
        for item in items:  # a plain loop, since a function call for each item costs time
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
        """Wake one sleeping thread, if any; it wakes the next if it leaves work in the queue."""
        with self._lock:
            wakes = self._asleep > 0
            self._asleep -= wakes
        if wakes:
            os.write(self._wake_writer, b"!")

    def load_figures(self) -> tuple[int, dict[int, int]]:
        """Return how many items wait, and how many batches of each size were taken so far."""
        with self._lock:
            return len(self._waiting), dict(self._sizes)

    def close(self) -> None:
        """Cancel the waiting items and end the threads after their current batches.

        The tickets of waiting items are finished without a score. Waits at most 10 s for the
        threads. A second call does nothing.
        """
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
        if not any(thread.is_alive() for thread in self._threads):  # a live one may still read
            os.close(self._wake_reader)
            os.close(self._wake_writer)

    def _run(self) -> None:
        """Score batches until the batcher is closed; this is the body of each thread.

        The scores of a batch are delivered while the next one is running.
        """
        undelivered: list[tuple[Ticket, Score]] = []
        while batch := self._next_batch(undelivered):
            running = [ticket for ticket in batch if not ticket.is_cancelled]
            if running:
                scored = _score_batch(self._scorer, running, partial(_deliver_scores, undelivered))
                _deliver_scores(undelivered)
                undelivered = scored
        _deliver_scores(undelivered)

    def _next_batch(self, undelivered: list[tuple[Ticket, Score]]) -> list[Ticket]:
        """Wait for work and return a batch from the head of the queue; empty when closed and done.

        The scores in `undelivered` are delivered, and the list emptied, before it waits. Another
        thread is woken if items are left.
        """
        while True:
            with self._lock:
                if self._waiting or self._is_closed:
                    batch = self._take_batch()
                    is_more = bool(self._waiting) and self._asleep > 0
                    break
                self._asleep += 1
            _deliver_scores(undelivered)
            os.read(self._wake_reader, 1)
        if is_more:
            self.wake()
        return batch

    def _take_batch(self) -> list[Ticket]:
        """Remove the next batch from the queue and return it; the caller holds the lock.

        The longest item's characters times the number of items stay within the limit; one item
        alone may be longer. The size of the batch is counted in `load_figures`.
        """
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
    """Score the tickets' items as one batch, and finish each with its score or error.

    Nothing is raised. Where a batch fails, each item is tried alone, once, so that one bad item
    fails alone.
    """
    _deliver_scores(_score_batch(scorer, tickets, do_nothing))


def _score_batch(
    scorer: Scorer, tickets: Sequence[Ticket], meanwhile: Callable[[], None]
) -> list[tuple[Ticket, Score]]:
    """Return tickets with their scores, in order and not delivered yet; [] if the batch failed.

    Of a failed batch all tickets are finished here: each is scored alone, once, unless it was the
    only one or the scorer is unavailable; then they get the error.
    """
    try:
        scores = score_meanwhile(scorer, [ticket.item for ticket in tickets], meanwhile)
        if len(scores) != len(tickets):
            raise CalibratorError(
                f"{scorer.name} gave {len(scores)} scores for {len(tickets)} items"
            )
    except BaseException as error:  # any error has to reach those who wait
        if len(tickets) == 1 or isinstance(error, UnavailableError):  # a retry of each is useless
            for ticket in tickets:
                ticket.finish(error=error)
            return []
        for ticket in tickets:
            if not ticket.is_cancelled:
                score_tickets(scorer, [ticket])
        return []
    return list(zip(tickets, scores, strict=True))


def _deliver_scores(scored: list[tuple[Ticket, Score]]) -> None:
    """Finish each ticket with its score, and empty the list in place."""
    for ticket, score in scored:
        ticket.finish(score)
    scored.clear()


def _size(item: Item, most: int) -> int:
    """Return an item's characters, plus one, as far as the scorer reads them.

    Its text counts up to `most`; each image counts as `IMAGE_CHARACTERS`.
    """
    characters = len(item.question) + len(item.answer)
    size = (characters if characters < most else most) + 1
    return size + IMAGE_CHARACTERS * len(item.images) if item.images else size
