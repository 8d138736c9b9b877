"""One request on its way through the proxy: its id, its clocks, its log line and its record."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, Final

import structlog

from proxy.errors import ProxyError
from proxy.exchange.outcome import Outcome, round_confidence
from proxy.exchange.polls import PolledReply
from proxy.gate.key_hash import hash_key, read_credentials
from proxy.http.wire.http import Request
from proxy.http.wire.json_splice import dumps
from proxy.scoring.engines.findings import NOTHING, Findings
from proxy.scoring.scoring import Status
from proxy.store.record.facts import facts_json
from proxy.store.record.writer import Records
from proxy.store.reviews.polls import Poll

if TYPE_CHECKING:
    from proxy.exchange.call import Call
    from proxy.exchange.request import CompletionRequest

log = structlog.get_logger("pinocchio")

CLIENT_LEFT = 499  # only for logs, as web servers write it for a client that did not wait
LONGEST_MODEL: Final = 1_024  # characters of a name in lines and rows
NO_SCORE_TRIED = (Status.LOADING, Status.SKIPPED, Status.NOT_SUPPORTED)


def is_known(request: Request) -> bool:
    """Return whether a request has an admitted client key or credentials for upstream."""
    return request.caller.id is not None or bool(read_credentials(request))


def cut(name: str | None) -> str | None:
    """Shorten a model's name or path to 1,024 characters and `..`; None and shorter ones stay."""
    return name if name is None or len(name) <= LONGEST_MODEL else f"{name[:LONGEST_MODEL]}.."


class Clock:
    """A clock that adds up the time spent inside it, or from `start` to `stop`, in seconds.

    `s` is None before the first stop.
    """

    __slots__ = ("_started", "s")

    def __init__(self) -> None:
        self.s: float | None = None
        self._started = 0.0

    def start(self) -> None:
        """Begin to measure the time from now; a second call begins anew."""
        self._started = time.perf_counter()

    def stop(self) -> None:
        """Add the seconds since the last start to `s`."""
        self.s = (self.s or 0.0) + time.perf_counter() - self._started

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class SharedClock(Clock):
    """A clock for several calls: time that they spend inside together counts once."""

    __slots__ = ("_inside",)

    def __init__(self) -> None:
        super().__init__()
        self._inside = 0

    def start(self) -> None:
        """Begin to measure, if no other call is inside."""
        if not self._inside:
            super().start()
        self._inside += 1

    def stop(self) -> None:
        """Add the elapsed seconds to `s`, if no other call is inside any more."""
        self._inside -= 1
        if not self._inside:
            super().stop()


_random: list[str] = []


def new_request_id() -> str:
    """Return a new id that sorts by time, so that the record grows at its end, and is unguessable.

    It has milliseconds since the epoch (48 bits) and 80 random bits. These are fetched in bulk,
    because each fetch is a system call.
    """
    if not _random:
        _random.extend(os.urandom(10 * 256).hex(" ", 10).split())
    return f"req_{int(time.time() * 1_000):012x}{_random.pop()}"


@dataclass(slots=True)
class Exchange:
    """The facts of one request for its response, log line and record; no message text, and no key.

    As a context manager it writes the log line and record of a request that ends inside it with an
    error or because its client left.
    """

    request: Request
    records: Records | None = None
    request_id: str = field(default_factory=new_request_id)
    upstream: str | None = None
    model: str | None = None
    is_stream: bool = False
    status: int = 0  # 0 until the reply is on its way to the client
    in_upstream: Clock = field(default_factory=Clock)  # time that is not the proxy's own
    scoring_s: float | None = None  # seconds of all scorings
    calls: tuple[Call, ...] = ()  # set where there is more than one
    fallback_from: str | None = None  # the model that was called first and failed
    outcome: Outcome | None = None
    conversation: str | None = None  # its digest, see openings.py
    polled_reply: PolledReply | None = None  # set where it is a poll for a held reply
    stream_mode: str | None = None  # which part of a stream waits for a decision
    is_score_late: bool = False  # the client got the end of its stream before the score
    is_finished: bool = False  # its line and record are written, or about to be

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        """Record and log a request that ended with a ProxyError or a cancellation."""
        if self.is_finished:
            return
        if isinstance(error, ProxyError):
            self.close(self.status or error.status, error.machine_code)
        elif isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.close(CLIENT_LEFT, "client_left")

    def overhead_ms(self) -> float:
        """Return the proxy's own time so far in milliseconds: all but the waiting for upstream."""
        passed_s = time.perf_counter() - self.request.started
        return max(0.0, (passed_s - (self.in_upstream.s or 0.0)) * 1_000)

    def note_scoring(self, began: float) -> None:
        """Add the time of a scoring that began at `began`, by `time.perf_counter`, and ends now."""
        self.scoring_s = (self.scoring_s or 0.0) + time.perf_counter() - began

    def unscored_outcome(
        self, status: Status, reason: str, calibrator: str | None = None
    ) -> Outcome:
        """Return an outcome without a number, with this status and `reason`, a machine word."""
        outcome = Outcome(self.request_id, status, reason, calibrator=calibrator)
        outcome.fallback_from = self.fallback_from
        return outcome

    def stamp(self, outcome: Outcome) -> Outcome:
        """Set overhead, scoring time and calls of an outcome; keep it here and return it."""
        outcome.overhead_ms = self.overhead_ms()
        if self.scoring_s is not None and outcome.status not in NO_SCORE_TRIED:
            outcome.score_ms = self.scoring_s * 1_000
        if self.calls:
            self.add_calls(outcome)
        self.outcome = outcome
        return outcome

    def add_calls(self, outcome: Outcome) -> None:
        """Add to an outcome which calls were made and which model failed first."""
        outcome.calls, outcome.fallback_from = self._calls(), self.fallback_from

    def note_held(self, outcome: Outcome, review_id: str) -> None:
        """Record that the reply is held, also for a client that leaves while a reviewer decides."""
        outcome.review_id, outcome.action = review_id, "hold"
        self.stamp(outcome)

    def note_poll(self, request: CompletionRequest, polled_reply: PolledReply) -> None:
        """Mark the request as a poll for a held reply, which is no exchange of its own."""
        self.model, self.is_stream, self.polled_reply = (
            request.model,
            request.is_stream,
            polled_reply,
        )

    def finish(self, outcome: Outcome, status: int) -> Outcome:
        """Stamp the outcome and return it; `close` is called in the next turn of the event loop."""
        self.stamp(outcome)
        self.status, self.is_finished = status, True
        asyncio.get_running_loop().call_soon(self.close, status)
        return outcome

    def close(self, status: int, error: str | None = None) -> None:
        """Count the request, and write its record and its log line.

        `error` is a machine word, such as `client_left`. A repeated request for a held reply is
        recorded as a poll, and logged only if it is news.
        """
        self.status = status
        passed_s = time.perf_counter() - self.request.started
        if self.request.metrics is not None:
            self.request.metrics.note(self, passed_s)
        if self.records is not None:
            is_new = self.polled_reply is None
            self.records.add(self._row(error, passed_s) if is_new else self._poll(error))
        if self.polled_reply is not None and not self.polled_reply.is_news(self._action, error):
            return
        line = log.bind()  # bound once: each use of `log` itself looks its attributes up
        if line.is_enabled_for(logging.INFO):
            facts = self._facts() | ({"error": error} if error else {})
            line.info("request", **{k: v for k, v in facts.items() if v is not None})

    @property
    def _action(self) -> str | None:
        return None if self.outcome is None else self.outcome.action

    def _poll(self, error: str | None) -> Poll:
        """Return the row for a repeated request for a held reply."""
        assert self.polled_reply is not None
        review_id, at = self.polled_reply.review_id, time.time()
        return Poll(self.request_id, review_id, at, self.status, self._action, error)

    def _facts(self) -> dict[str, Any]:
        """Return the facts of the log line by their names; None where one is unknown."""
        outcome, caller = self.outcome, self.request.caller
        facts: dict[str, Any] = {
            "request_id": self.request_id,
            "method": self.request.method,
            "path": cut(self.request.path),
            "upstream": self.upstream,
            "model": cut(self.model),
            "stream": self.is_stream,
            "status": self.status,
            "overhead_ms": round(self.overhead_ms(), 1),
            "key": caller.id,
            "team": caller.team,
            "generation": caller.generation,
            "calls": self._calls() or None,
            "polls": self.polled_reply.count if self.polled_reply else None,
        }
        if outcome is None:
            return facts
        return facts | {
            "confidence": None
            if outcome.confidence is None
            else round_confidence(outcome.confidence),
            "confidence_status": outcome.status.value,
            "score_ms": None if outcome.score_ms is None else round(outcome.score_ms, 1),
            "reason": outcome.reason,
            "basis": ",".join(outcome.findings.basis) or None,
            "support": None
            if (support := outcome.findings.support) is None
            else round_confidence(support),
            "action": outcome.action,
            "would_action": outcome.would_action,
            "policy": outcome.decision.label if outcome.decision else None,
            "review_id": outcome.review_id,
            "standing_approval": outcome.standing_approval,
            "label": outcome.label,
            "shadowed": outcome.shadowed_values() or None,
        }

    def _calls(self) -> Sequence[dict[str, Any]]:
        """Return each call as JSON if there was more than one, else an empty tuple."""
        return [call.member_json() for call in self.calls] if len(self.calls) > 1 else ()

    def _row(self, error: str | None, passed_s: float) -> tuple[Any, ...]:
        """Return a value for each column of `exchanges` (`store/record/writer.py`), in order."""
        request, caller, model = self.request, self.request.caller, cut(self.model)
        outcome: Any = self.outcome or _NO_OUTCOME
        findings: Findings = outcome.findings or NOTHING
        # the facts of a single reply that was not escalated only repeat the columns
        others = outcome.facts and (len(outcome.facts) > 1 or outcome.escalated_from is not None)
        would = policy = label = None
        if (decision := outcome.decision) is not None:
            would, policy, label = decision.would_action, decision.label, decision.annotation
        return (
            self.request_id,
            time.time() - passed_s,
            hash_key(request),
            cut(request.path),
            self.upstream,
            model,
            int(self.is_stream),
            self.status,
            error,
            outcome.confidence,
            outcome.status and str(outcome.status),  # drivers adapt subclasses of str slowly
            outcome.reason,
            outcome.action,
            would,
            policy,
            outcome.calibrator,
            outcome.review_id,
            outcome.escalated_from,
            label,
            passed_s * 1_000,
            max(0.0, passed_s - (self.in_upstream.s or 0.0)) * 1_000,
            outcome.score_ms,
            dumps(self._calls()).decode() if len(self.calls) > 1 else None,
            caller.team,
            caller.key,
            caller.generation,
            facts_json(outcome.facts, self.model, outcome.confidence, findings if others else None)
            if outcome.facts
            else None,
            json.dumps(outcome.shadowed_values()) if outcome.facts and outcome.shadowed else None,
            outcome.score,
            self.conversation,
            outcome.standing_approval,
            *findings.columns,
        )


_NO_OUTCOME: Final = SimpleNamespace(**dict.fromkeys(each.name for each in fields(Outcome)))
"""Used instead of an outcome where the client got none."""
