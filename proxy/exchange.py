"""One request's way through the proxy: its id, its clocks, its line in the log."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from proxy.asgi import Request
from proxy.outcome import Outcome, shown
from proxy.scoring import Status

log = structlog.get_logger("pinocchio")


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
        outcome.score_ms = None if self.score_s is None else self.score_s * 1_000
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
            "score_ms": None if self.score_s is None else round(self.score_s * 1_000, 1),
        }
        if outcome is not None:
            facts |= {
                "confidence": None if outcome.confidence is None else shown(outcome.confidence),
                "confidence_status": outcome.status.value,
                "reason": outcome.reason,
                "action": outcome.action,
                "would_action": outcome.would_action,
                "policy": outcome.decision.label if outcome.decision else None,
                "review_id": outcome.review_id,
            }
        log.info("request", **{k: v for k, v in {**facts, **more}.items() if v is not None})
