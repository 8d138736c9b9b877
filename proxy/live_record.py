"""What is written of a stream that went through live, once all is known of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from proxy.exchange import Exchange, hash_key
from proxy.live_stream import LiveStream
from proxy.outcome import Outcome, joined
from proxy.results import Results
from proxy.scoring import Status
from proxy.upstream import UpstreamReply


class LiveRecord:
    """The line, the record and the result of one stream."""

    def __init__(
        self,
        exchange: Exchange,
        results: Results,
        calibrator: str | None,
        recordings: set[asyncio.Task[None]],
    ) -> None:
        self._exchange = exchange
        self._results = results
        self._calibrator = calibrator
        self._recordings = recordings  # that are still to come

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
        unscored = exchange.unscored(Status.SKIPPED, stream.reason, self._calibrator)
        if stream.is_settled:  # which has written the line
            self.keep_result(exchange.outcome or unscored)
        else:
            self.keep_result(exchange.finish(joined(stream.outcomes()) or unscored, status))

    def keep_result(self, outcome: Outcome) -> None:
        exchange = self._exchange
        self._results.keep(exchange.request_id, hash_key(exchange.request), outcome.member())
