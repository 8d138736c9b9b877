"""What is written of a stream that went through live, once all is known of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from proxy.completions.live_stream import LiveStream
from proxy.completions.random_audit import Audit
from proxy.exchange.exchange import Exchange
from proxy.exchange.outcome import Outcome, joined
from proxy.exchange.request import CompletionRequest
from proxy.exchange.stream_results import Results
from proxy.gate.key_hash import hash_key
from proxy.scoring.scoring import Status
from proxy.upstreams.upstream import UpstreamReply
from proxy.wire.json_splice import dumps


class Parts(Protocol):
    """What a stream's end is written with: of all that serves completions, three parts."""

    @property
    def results(self) -> Results: ...
    @property
    def recordings(self) -> set[asyncio.Task[None]]: ...
    @property
    def audit(self) -> Audit | None: ...


class LiveRecord:
    """The line, the record and the result of one stream; `opening` is what its headers say."""

    def __init__(
        self, parts: Parts, exchange: Exchange, asked: CompletionRequest, opening: Outcome
    ) -> None:
        self._exchange = exchange
        self._asked = asked
        self._results = parts.results
        self._recordings = parts.recordings  # that are still to come
        self._audit = parts.audit
        self._calibrator = opening.calibrator
        self.keep_result(opening)

    async def recorded(self, stream: LiveStream, reply: UpstreamReply) -> AsyncIterator[bytes]:
        """The stream's bytes; its end waits for no score, and neither does a client that left."""
        try:
            async for part in stream.relay(reply.chunks, self._exchange.in_upstream):
                yield part
        finally:
            if stream.is_judged:
                self._record(stream, reply.status)
            else:
                recording = asyncio.create_task(self._record_late(stream, reply.status))
                self._recordings.add(recording)
                recording.add_done_callback(self._recordings.discard)

    async def _record_late(self, stream: LiveStream, status: int) -> None:
        await stream.judgements()
        self._record(stream, status)

    def _record(self, stream: LiveStream, status: int) -> None:
        """The request's line and result, now that all is known."""
        exchange = self._exchange
        found = exchange.outcome if stream.is_settled else joined(stream.outcomes())
        if found is None:
            found = exchange.unscored(Status.SKIPPED, stream.reason, self._calibrator)
        if stream.is_settled:  # which has written the line
            self.keep_result(found)
            return
        outcome = exchange.finish(found, status)
        self.keep_result(outcome)
        if self._audit is not None:
            self._audit.consider(
                exchange, self._asked, outcome, lambda: dumps(stream.assembler.completion())
            )

    def keep_result(self, outcome: Outcome) -> None:
        exchange = self._exchange
        self._results.keep(exchange.request_id, hash_key(exchange.request), outcome.member())
