"""The one hand-off between those who want scores and the thread that computes them.

Waits for nobody: what has arrived while a batch was computed forms the next batch, so an idle
scorer answers at once and a busy one fills its batches. First come, first served; a batch holds
at most `batch_characters` of text after padding.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from calibrator.errors import CalibratorError, QueueFullError
from calibrator.scorer import Item, Score, Scorer


@dataclass(slots=True, eq=False)
class _Job:
    item: Item
    size: int
    future: Future[Score] = field(default_factory=Future)


class Batcher:
    """Scores items on a thread of its own; `submit` may be called from any thread."""

    def __init__(
        self,
        scorer: Scorer,
        *,
        max_queue: int = 1_024,
        batch_characters: int = 16_000,
        max_item_characters: int = 3_000,
    ) -> None:
        self._scorer = scorer
        self._max_queue = max_queue
        self._batch_characters = batch_characters
        self._max_item_characters = max_item_characters
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="scorer", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        return self._scorer.name

    def submit(self, items: Sequence[Item]) -> list[Future[Score]]:
        """A future for each item; raises QueueFullError when they do not all fit.

        A future that is cancelled before its batch starts costs nothing, no place in the queue
        either.
        """
        jobs = [_Job(item, self._size(item)) for item in items]
        with self._changed:
            if self._is_closed:
                raise CalibratorError("the scorer is closed")
            if len(self._jobs) + len(jobs) > self._max_queue:
                self._jobs = deque(job for job in self._jobs if not job.future.cancelled())
            if len(self._jobs) + len(jobs) > self._max_queue:
                raise QueueFullError(f"{len(self._jobs)} items are waiting, {self._max_queue} may")
            self._jobs.extend(jobs)
            self._changed.notify()
        return [job.future for job in jobs]

    def close(self) -> None:
        """Cancels what is waiting and ends the thread after its current batch."""
        with self._changed:
            self._is_closed = True
            for job in self._jobs:
                job.future.cancel()
            self._jobs.clear()
            self._changed.notify()
        self._thread.join(timeout=10)

    def _size(self, item: Item) -> int:
        """What an item costs: its characters, as far as the scorer reads them."""
        return min(len(item.question) + len(item.answer), self._max_item_characters) + 1

    def _run(self) -> None:
        while batch := self._next_batch():
            running = [job for job in batch if job.future.set_running_or_notify_cancel()]
            if running:
                self._score(running)

    def _next_batch(self) -> list[_Job]:
        """Waits for work, then takes from the head of the queue; empty when closed."""
        with self._changed:
            while not self._jobs and not self._is_closed:
                self._changed.wait()
            batch: list[_Job] = []
            longest = 0
            while self._jobs:
                longest = max(longest, self._jobs[0].size)
                if batch and longest * (len(batch) + 1) > self._batch_characters:
                    break
                batch.append(self._jobs.popleft())
            return batch

    def _score(self, jobs: Sequence[_Job]) -> None:
        try:
            scores = self._scorer.score_batch([job.item for job in jobs])
            if len(scores) != len(jobs):
                raise CalibratorError(
                    f"{self.name} gave {len(scores)} scores for {len(jobs)} items"
                )
        except BaseException as error:  # whatever it is, those who wait must hear of it
            self._isolate(jobs, error)
            return
        for job, score in zip(jobs, scores, strict=True):
            job.future.set_result(score)

    def _isolate(self, jobs: Sequence[_Job], error: BaseException) -> None:
        """One bad item must not take its batch along: each is tried alone, once."""
        if len(jobs) == 1:
            jobs[0].future.set_exception(error)
            return
        for job in jobs:
            self._score([job])
