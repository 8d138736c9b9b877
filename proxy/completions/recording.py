"""The record of a completion, written once everything is known: log line, row and result."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from proxy.completions.job import Job
from proxy.exchange.exchange import Exchange
from proxy.exchange.outcome import Outcome, join_outcomes
from proxy.formats import Json
from proxy.gate.key_hash import hash_key
from proxy.http.wire.json_splice import dumps
from proxy.scoring.scoring import Status


class CompletionRecorder:
    """Records a completion at the end of the `with` block, however it ends.

    A reply that goes on after it is returned has a block of its own (`keep_open`); the last block
    that ends counts. A live stream is recorded when its last score is there; neither its end nor a
    client that left waits for that. A whole reply has been recorded by then (`Exchange.finish`).
    """

    __slots__ = ("_blocks", "_exchange", "_job")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._job: Job | None = None  # set once the request is parsed
        self._blocks = 0

    def begin(self, job: Job) -> Job:
        """Note the parsed job and return it; calls for second opinions may begin now."""
        self._job = job
        if job.opinions is not None:
            job.opinions.begin()
        return job

    def keep_open(self) -> OpenRecording:
        """Return a block for a reply whose body goes on; it is recorded when that ends too."""
        self._blocks += 1
        return OpenRecording(self)

    def __enter__(self) -> CompletionRecorder:
        self._blocks += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Record the completion when the last of its blocks ends, also after an error.

        A stream whose scores are late is recorded by a task of its own.
        """
        self._blocks -= 1
        if self._blocks:
            return
        job = self._job
        if job is not None and job.opinions is not None:
            job.opinions.end()
        if job is None or job.stream is None:
            if not self._exchange.is_finished:
                self._exchange.__exit__(kind, error, trace)
        elif job.is_withheld:
            self._exchange.__exit__(kind, error, trace)
            keep_result(job, (self._exchange.outcome or _skipped_outcome(job)).member())
        elif all(scoring.done() for _, scoring in job.late):
            _record_stream(job)
        else:
            recording = asyncio.create_task(_record_late(job))
            job.services.recordings.add(recording)
            recording.add_done_callback(job.services.recordings.discard)


class OpenRecording:
    """A block that has already begun, and ends with the first `with` block of this object."""

    __slots__ = ("_recording",)

    def __init__(self, recording: CompletionRecorder) -> None:
        self._recording: CompletionRecorder | None = recording

    def __enter__(self) -> None:
        return None

    def __exit__(self, *raised: Any) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.__exit__(*raised)


def keep_result(job: Job, member: Json) -> None:
    """Keep a result that the client can fetch later, at `/pinocchio/v1/results/{request id}`."""
    job.services.results.keep(job.exchange.request_id, hash_key(job.http), member)


async def _record_late(job: Job) -> None:
    await asyncio.gather(*(scoring for _, scoring in job.late))
    _record_stream(job)


def _record_stream(job: Job) -> None:
    """Record a live stream whose scores are all there: outcome, result and random audit.

    Late answers are decided on first. Raises the error of a failed scoring.
    """
    for answer, scoring in job.late:
        scoring.result()
        job.decide(answer)
    outcome = join_outcomes([*job.outcomes.values()]) or _skipped_outcome(job)
    job.exchange.finish(outcome, job.exchange.status)
    has_whole_outcome = len(job.outcomes) == 1 and not (job.late or job.exchange.calls)
    keep_result(
        job,
        job.last_member if job.last_member is not None and has_whole_outcome else outcome.member(),
    )
    if job.services.audit is not None and job.stream is not None:
        assembler = job.stream.assembler
        job.services.audit.consider(
            job.exchange, job.request, outcome, lambda: dumps(assembler.completion())
        )


def _skipped_outcome(job: Job) -> Outcome:
    """Return the outcome of a stream without any scored answer, with the stream's own reason."""
    assert job.stream is not None
    calibrator = job.services.scoring.name
    return job.exchange.unscored_outcome(Status.SKIPPED, job.stream.reason, calibrator)
