"""The evaluation of a judged reply: its confidence and action, or why there is no confidence."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from proxy.observe.traces import CallSpan, Trace
from proxy.scoring.scoring import Status

if TYPE_CHECKING:
    from proxy.exchange.exchange import Exchange

FAILURES: Final = (Status.ERROR, Status.TIMEOUT)


@dataclass(slots=True)
class Evaluation:
    """One judged reply; `call` is the call that gave it, None where its span is not sent."""

    trace: Trace
    call: CallSpan | None
    request_id: str
    status: str
    action: str
    confidence: float | None
    explanation: str | None
    error: str | None = None  # the reason, where scoring failed
    policy: str | None = None
    mode: str | None = None
    calibrator: str | None = None
    review_id: str | None = None
    basis: tuple[str, ...] = ()  # what the confidence is based on
    support: float | None = None  # how far the context supports the reply
    at_ns: int = field(default_factory=time.time_ns)

    @property
    def span_id(self) -> bytes:
        """The span of the call, else the client's span, else eight zero bytes."""
        return self.call.span_id if self.call else self.trace.parent_id or bytes(8)


def evaluation_of(exchange: Exchange, trace: Trace) -> Evaluation | None:
    """Return the evaluation of an exchange that ends, or None where nothing was to be judged.

    That is so without an outcome, and for requests that are not scored, such as embeddings.
    """
    outcome = exchange.outcome
    if outcome is None or (outcome.status is Status.NOT_SUPPORTED and outcome.reason == "surface"):
        return None
    decision = outcome.decision
    label = None if decision is None else decision.label
    absence = None if outcome.confidence is not None else outcome.reason or str(outcome.status)
    return Evaluation(
        trace,
        _judged_call(exchange, trace) if trace.is_sampled else None,
        exchange.request_id,
        str(outcome.status),
        outcome.action,
        outcome.confidence,
        f"no confidence: {absence}" if absence else label,
        (outcome.reason or str(outcome.status)) if outcome.status in FAILURES else None,
        label,
        None if decision is None else decision.mode,
        outcome.calibrator,
        outcome.review_id,
        outcome.findings.basis,
        outcome.findings.support,
    )


def _judged_call(exchange: Exchange, trace: Trace) -> CallSpan | None:
    """Return the last successful call of the model whose answer was kept.

    Without one, the last successful call, or the last call at all, or None.
    """
    model = next((call.model for call in exchange.calls if call.is_kept), None)
    good = [each for each in trace.calls if each.error is None]
    candidates = [each for each in good if model is None or each.model == model]
    return next(reversed(candidates or good or trace.calls), None)
