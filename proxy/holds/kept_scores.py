"""The score of a stored reply: what a client was told of it, and a reviewer has to know.

It quotes the reply, so it is stored where the reply is, and forgotten with it.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.exchange.outcome import Outcome
from proxy.scoring.findings import findings_from, findings_values
from proxy.scoring.scoring import Confidence, Status
from proxy.store.reviews.held_replies import HeldReply
from proxy.wire.json_splice import dumps, json_object

HELD_BEFORE: Final = "held_before"  # the reason where no number was kept


def score_to_keep(outcome: Outcome) -> str | None:
    """Return the least sure choice's status, reason, doubts and findings, as JSON."""
    if (least := outcome.least) is None:
        return None
    values: dict[str, Any] = {"status": outcome.status.value, **findings_values(least.findings)}
    if outcome.reason is not None:
        values["reason"] = outcome.reason
    if least.because:
        values["because"] = list(least.because)
    return dumps(values).decode()


def kept_score(held: HeldReply) -> Confidence:
    """Return the score of a stored reply; one of an older version has its number alone."""
    if held.confidence is None:
        return Confidence(None, Status.SKIPPED, HELD_BEFORE)
    values = json_object(held.findings.encode()) if held.findings else None
    if not values:
        return Confidence(held.confidence, Status.SCORED)
    found = Confidence(held.confidence, Status(values["status"]), values.get("reason"))
    found.because = tuple(values.get("because", ()))
    found.findings = findings_from(values)
    return found
