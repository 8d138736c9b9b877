"""The score of a stored reply, as the client received it and the reviewer sees it.

It quotes the reply, so it is stored with the reply and forgotten with it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from calibrator import read_notes
from proxy.exchange.outcome import Outcome
from proxy.http.wire.json_splice import dumps, json_object
from proxy.scoring.engines.findings import findings_from, findings_values
from proxy.scoring.scoring import Confidence, Status

BELOW: Final = "below"
HELD_BEFORE: Final = "held_before"  # the reason where no number was stored


def score_to_keep(outcome: Outcome) -> str | None:
    """Return the least certain choice's status, reason, marks and findings as JSON text.

    None if nothing was scored.
    """
    if (least := outcome.least) is None:
        return None
    values: dict[str, Any] = {"status": outcome.status.value, **findings_values(least.findings)}
    if outcome.reason is not None:
        values["reason"] = outcome.reason
    if least.because:
        values["because"] = list(least.because)
    if least.notes is not None:
        values["notes"] = [asdict(each) for each in least.notes]
    return dumps(values).decode()


def threshold_to_keep(below: float) -> str:
    """Return JSON text with the confidence below which an agent's framework stops its calls."""
    return dumps({"status": Status.SCORED.value, BELOW: below}).decode()


def kept_threshold(text: str | None) -> float | None:
    """Return the threshold that `threshold_to_keep` stored; None for a text without one."""
    threshold = kept_values(text).get(BELOW) if text and BELOW in text else None
    return float(threshold) if isinstance(threshold, int | float) else None


def kept_values(text: str | None) -> dict[str, Any]:
    """Return the values that were stored; empty for None (older versions) and for a broken text."""
    return (json_object(text.encode()) if text else None) or {}


def kept_score(confidence: float | None, text: str | None) -> Confidence:
    """Return the confidence of a stored reply from its number and the text of `score_to_keep`.

    Without a number its status is `skipped`; without the text (older versions) it has the number
    alone.
    """
    if confidence is None:
        return Confidence(None, Status.SKIPPED, HELD_BEFORE)
    values = kept_values(text)
    if not values:
        return Confidence(confidence, Status.SCORED)
    score = Confidence(confidence, Status(values["status"]), values.get("reason"))
    score.because = tuple(values.get("because", ()))
    score.findings = findings_from(values)
    if "notes" in values:
        score.notes = read_notes(values["notes"])
    return score
