"""A simulation of one proxy process: what waits where, for how long.

    run = simulate(Process(loop_in_s=0.0002, loop_out_s=0.0004, score_s=lambda n: 0.005 * n), asked)

Requests arrive, wait for the event loop, wait for upstream, wait for the loop again, then for the
scorer, which takes all that wait at once, as `calibrator/batching.py` does, and for the loop a last
time. The loop is one server, first come, first served; the scorer has a core of its own unless
`shares_core`: then it computes in what time the loop leaves it.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

TAIL: Final = 0.99


@dataclass(frozen=True, slots=True)
class Request:
    """When it arrives, and how long upstream takes for it, in seconds."""

    at_s: float
    upstream_s: float
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    """Times of the process in seconds; `score_s` is that of a batch of so many replies."""

    loop_in_s: float  # until upstream is asked
    loop_out_s: float  # with what upstream sent, until it is to be scored
    stream_out_s: float | None = None  # the same of a stream; None: no other
    end_s: float = 0.0  # with the score, until all is written
    score_s: Callable[[int], float] | None = None
    most_at_once: int = 64
    max_queue: int = 1_024
    score_timeout_s: float = 2.0
    stream_wait_s: float = 0.3
    shares_core: bool = False


@dataclass(slots=True)
class Run:
    """What came of it; times in seconds."""

    took_s: float = 0.0
    busy_s: float = 0.0  # of the event loop
    scoring_s: float = 0.0
    times_s: list[float] = field(default_factory=list)  # of whole requests
    own_s: list[float] = field(default_factory=list)  # of them, without upstream
    waits_s: list[float] = field(default_factory=list)  # from the hand-off to the score
    batches: list[int] = field(default_factory=list)
    unscored: int = 0  # the queue was full, or time was up
    late: int = 0  # scores of streams that had ended

    @property
    def in_flight(self) -> float:
        """How many were under way, on average."""
        return sum(self.times_s) / self.took_s if self.took_s else 0.0

    @property
    def cores(self) -> float:
        """How many were busy, on average."""
        return (self.busy_s + self.scoring_s) / self.took_s if self.took_s else 0.0


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def tail(values: list[float], share: float = TAIL) -> float:
    """What so many of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def arriving(
    per_s: float,
    number: int,
    upstream_s: float,
    stream_share: float = 0.5,
    spread: float = 0.5,
    seed: int = 20261124,
) -> Iterator[Request]:
    """So many requests that know nothing of each other; upstream's times are lognormal.

    `spread` is their standard deviation over their mean.
    """
    chance, at_s = random.Random(seed), 0.0
    variance = math.log(1 + spread**2)
    middle = math.log(upstream_s) - variance / 2 if upstream_s > 0 else 0.0
    for _ in range(number):
        at_s += chance.expovariate(per_s)
        takes_s = chance.lognormvariate(middle, math.sqrt(variance)) if upstream_s > 0 else 0.0
        yield Request(at_s, takes_s, chance.random() < stream_share)


def simulate(process: Process, asked: Iterable[Request]) -> Run:
    """Let the requests go through the process."""
    return _Simulation(process).run(asked)


@dataclass(slots=True, eq=False)
class _Job:
    request: Request
    step: int = 0  # of the event loop: in, out, end
    handed_s: float = 0.0
    is_given_up: bool = False


class _Simulation:
    """Events in the order of time; ties in that of their making."""

    def __init__(self, process: Process) -> None:
        self._process, self._found = process, Run()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._now = 0.0
        self._loop: deque[_Job] = deque()
        self._is_loop_busy = self._is_scoring = False
        self._waiting: deque[_Job] = deque()
        self._steps_s = (process.loop_in_s, process.loop_out_s, process.end_s)

    def run(self, asked: Iterable[Request]) -> Run:
        for each in asked:
            self._at(each.at_s, partial(self._arrive, _Job(each)))
        while self._events:
            self._now, _, happen = heapq.heappop(self._events)
            happen()
        return self._found

    def _at(self, when_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when_s, next(self._numbers), happen))

    # the event loop

    def _arrive(self, job: _Job) -> None:
        self._loop.append(job)
        if not self._is_loop_busy:
            self._turn()

    def _turn(self) -> None:
        if not self._loop:
            self._is_loop_busy = False
            return
        self._is_loop_busy = True
        job = self._loop.popleft()
        process, takes_s = self._process, self._steps_s[job.step]
        if job.step == 1 and job.request.is_stream and process.stream_out_s is not None:
            takes_s = process.stream_out_s
        if job.step == 1 and process.score_s is None:
            takes_s += process.end_s  # nothing to wait for in between
        self._found.busy_s += takes_s
        self._at(self._now + takes_s, partial(self._went_on, job))

    def _went_on(self, job: _Job) -> None:
        job.step += 1
        if job.step == 1:
            self._at(self._now + job.request.upstream_s, partial(self._arrive, job))
        elif job.step == 2 and self._process.score_s is not None:
            self._hand_over(job)
        else:
            time_s = self._now - job.request.at_s
            self._found.times_s.append(time_s)
            self._found.own_s.append(time_s - job.request.upstream_s)
            self._found.took_s = self._now
        self._turn()

    # the scorer

    def _hand_over(self, job: _Job) -> None:
        job.handed_s = self._now
        if len(self._waiting) >= self._process.max_queue:
            self._found.unscored += 1
            self._arrive(job)
        else:
            self._waiting.append(job)
            self._at(self._now + self._patience_s(job), partial(self._give_up, job))
            if not self._is_scoring:
                self._score()

    def _patience_s(self, job: _Job) -> float:
        """How long the reply waits for its score."""
        timeout_s = self._process.score_timeout_s
        return min(timeout_s, self._process.stream_wait_s) if job.request.is_stream else timeout_s

    def _give_up(self, job: _Job) -> None:
        if job.is_given_up:  # it was scored
            return
        job.is_given_up = True
        if job.request.is_stream:
            self._found.late += 1  # it is scored later all the same
        else:
            self._found.unscored += 1
            if job in self._waiting:
                self._waiting.remove(job)
        self._arrive(job)

    def _score(self) -> None:
        self._is_scoring = bool(self._waiting)
        if not self._waiting:
            return
        at_once = min(len(self._waiting), self._process.most_at_once)
        batch = [self._waiting.popleft() for _ in range(at_once)]
        assert self._process.score_s is not None
        computes_s = self._process.score_s(at_once)
        self._found.scoring_s += computes_s
        self._found.batches.append(at_once)
        self._at(self._now + computes_s / self._left_over(), partial(self._scored, batch))

    def _left_over(self) -> float:
        """The share of a core that the scorer has."""
        if not self._process.shares_core or not self._now:
            return 1.0
        return max(0.05, 1 - self._found.busy_s / self._now)

    def _scored(self, batch: list[_Job]) -> None:
        for job in batch:
            self._found.waits_s.append(self._now - job.handed_s)
            if not job.is_given_up:
                job.is_given_up = True
                self._arrive(job)
        self._score()
