"""One request's way through the proxy: its id, its clocks, its line in the log."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from proxy.asgi import Request
from proxy.errors import ProxyError
from proxy.outcome import Outcome, shown
from proxy.scoring import Status

log = structlog.get_logger("pinocchio")

CLIENT_LEFT = 499  # nobody gets it; what logs of web servers say of a client that did not wait
NO_SCORE_TRIED = (Status.LOADING, Status.SKIPPED, Status.NOT_SUPPORTED)


def hash_key(request: Request) -> str:
    """Who asks, as a hash: the same client key gives the same value, and nothing leads back."""
    presented = request.header("authorization") or request.header("x-api-key") or ""
    return hashlib.sha256(presented.encode()).hexdigest()


@dataclass(slots=True)
class Exchange:
    """Collects what is told and logged of one request; never message text, never a key."""

    request: Request
    request_id: str = field(default_factory=lambda: f"req_{secrets.token_hex(12)}")
    upstream: str | None = None
    model: str | None = None
    is_stream: bool = False
    status: int = 0
    upstream_s: float = 0.0
    score_s: float | None = None
    outcome: Outcome | None = None

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Writes the line of a request that ends inside in an error or without its client."""
        try:
            yield
        except ProxyError as error:
            self.status = error.status
            self.log_line(error=error.machine_code)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            self.status = CLIENT_LEFT
            self.log_line(error="client_left")
            raise

    @contextmanager
    def in_upstream(self) -> Iterator[None]:
        """What passes inside is upstream's time, not ours."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.upstream_s += time.perf_counter() - started

    @contextmanager
    def in_scoring(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.score_s = (self.score_s or 0.0) + time.perf_counter() - started

    async def timed(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The chunks, the waiting for them counted as upstream's time."""
        while True:
            with self.in_upstream():
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk

    def overhead_ms(self) -> float:
        """Time of ours so far: all of it but the waiting for upstream."""
        return max(0.0, (time.perf_counter() - self.request.started - self.upstream_s) * 1_000)

    def unscored(self, status: Status, reason: str, calibrator: str | None = None) -> Outcome:
        """The outcome of a reply that gets no number."""
        return Outcome(self.request_id, status, reason, calibrator=calibrator)

    def finish(self, outcome: Outcome, status: int) -> Outcome:
        """Stamps the clocks on the outcome and writes the request's line."""
        outcome.overhead_ms = self.overhead_ms()
        if outcome.status not in NO_SCORE_TRIED and self.score_s is not None:
            outcome.score_ms = self.score_s * 1_000
        self.outcome, self.status = outcome, status
        self.log_line()
        return outcome

    def log_line(self, **more: str) -> None:
        """One line per request, of allow-listed facts."""
        outcome = self.outcome
        facts = {
            "request_id": self.request_id,
            "method": self.request.method,
            "path": self.request.path,
            "upstream": self.upstream,
            "model": self.model,
            "stream": self.is_stream,
            "status": self.status,
            "overhead_ms": round(self.overhead_ms(), 1),
        }
        if outcome is not None:
            facts |= {
                "confidence": None if outcome.confidence is None else shown(outcome.confidence),
                "confidence_status": outcome.status.value,
                "score_ms": None if outcome.score_ms is None else round(outcome.score_ms, 1),
                "reason": outcome.reason,
                "action": outcome.action,
                "would_action": outcome.would_action,
                "policy": outcome.decision.label if outcome.decision else None,
                "review_id": outcome.review_id,
            }
        log.info("request", **{k: v for k, v in {**facts, **more}.items() if v is not None})
