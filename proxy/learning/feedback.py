"""Feedback on replies at `POST /pinocchio/v1/feedback`, from the asking key or a reviewer.

    {"request_id": "req_..", "correct": false, "note": "the capital is Canberra"}
    {"feedback": [{"request_id": "req_..", "correct": true}, ..]}

Feedback is kept apart from reviewers' verdicts, see proxy/store/verdicts/feedback.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import structlog

from proxy.errors import BadRequestError, NotFoundError
from proxy.store.verdicts.feedback import Feedback, FeedbackStore, Outcome

log = structlog.get_logger(__name__)

MOST_AT_ONCE: Final = 1_000
MOST_OF_A_NOTE: Final = 10_000  # characters
MOST_BYTES: Final = 16 * 2**20  # of a body
WRITTEN_WITHIN_S: Final = 3.0  # the longest wait for a record, written after its reply
_LOOK_EVERY_S: Final = 0.1
_KEYS: Final = ("request_id", "correct", "note")


def keep_feedback(
    store: FeedbackStore, body: Any, by: str, key_hash: str | None = None
) -> dict[str, Any]:
    """Store the feedback in a parsed body; return `kept`, `not_found` and `results`.

    `results` has the status of each label. `by` names who gave it; `key_hash` is that of the key
    that must have made the requests, None for any. Logs the counts. Blocks, so call it from a
    thread. Raises BadRequestError for a body of another form, NotFoundError for a single label of a
    request that is not recorded or was made by another key, and StoreError.
    """
    is_single = isinstance(body, dict) and "feedback" not in body
    labels = [read_label(body)] if is_single else _labels(_label_items(body))
    outcomes = _keep_labels(store, labels, by, key_hash)
    counts = Counter(outcomes)
    log.info("feedback", by=by, kept=counts["kept"], not_found=counts["not_found"])
    if is_single and outcomes == ["not_found"]:
        raise NotFoundError(_not_found(labels[0].id), code="request_not_found")
    results = [
        {"request_id": each.id, "status": status}
        for each, status in zip(labels, outcomes, strict=True)
    ]
    return {"kept": counts["kept"], "not_found": counts["not_found"], "results": results}


def _labels(items: Sequence[Any]) -> list[Feedback]:
    """Read all labels; raises BadRequestError for the first that is invalid."""
    return [read_label(item, f"feedback[{at}]") for at, item in enumerate(items)]


def _label_items(body: Any) -> list[Any]:
    """Return the labels in a body: a list, or the list in its member `feedback`.

    Raises BadRequestError if there is none, or more than `MOST_AT_ONCE` labels.
    """
    items = body.get("feedback") if isinstance(body, dict) else body
    if not isinstance(items, list) or not items:
        text = "send an object with request_id and correct, or a list of them as 'feedback'"
        raise BadRequestError(text, param="feedback")
    if len(items) > MOST_AT_ONCE:
        text = f"{len(items)} labels in one request; {MOST_AT_ONCE} are allowed"
        raise BadRequestError(text, param="feedback", code="too_many_labels")
    return items


def read_label(item: Any, place: str = "") -> Feedback:
    """Return the label in a JSON object: `request_id`, `correct` and `note`.

    Raises BadRequestError, which names its `place` in a list, such as `feedback[2]`.
    """
    where = f"{place}: " if place else ""
    if not isinstance(item, dict):
        raise BadRequestError(f"{where}a label must be an object", param=place or None)
    for name in item:
        if name not in _KEYS:
            hint = "; the label is called 'correct'" if name in ("label", "is_correct") else ""
            text = f"{where}unknown field {name!r}{hint} (known: {', '.join(_KEYS)})"
            raise BadRequestError(text, param=str(name))
    id, correct, note = (item.get(name) for name in _KEYS)
    if not isinstance(id, str) or not id:
        text = f"{where}no request_id; a reply has it in the header x-pinocchio-request-id"
        raise BadRequestError(text, param="request_id")
    if not (isinstance(correct, bool) or correct in (0, 1)):
        raise BadRequestError(f"{where}'correct' must be true or false", param="correct")
    if not (note is None or (isinstance(note, str) and len(note) <= MOST_OF_A_NOTE)):
        text = f"{where}'note' must be text of at most {MOST_OF_A_NOTE:,} characters"
        raise BadRequestError(text, param="note")
    return Feedback(id, bool(correct), note)


def _keep_labels(
    store: FeedbackStore, labels: Sequence[Feedback], by: str, key_hash: str | None
) -> list[Outcome]:
    """Store the labels and return their outcomes, in order.

    Waits up to `WRITTEN_WITHIN_S` for requests so young that their record may not be written yet.
    """
    outcomes = store.keep(labels, by, key_hash)
    until = time.monotonic() + WRITTEN_WITHIN_S
    while time.monotonic() < until:
        missing = [
            at
            for at, each in enumerate(labels)
            if outcomes[at] == "not_found" and _is_young(each.id)
        ]
        if not missing:
            break
        time.sleep(_LOOK_EVERY_S)
        again = store.keep([labels[at] for at in missing], by, key_hash)
        for at, status in zip(missing, again, strict=True):
            outcomes[at] = status
    return outcomes


def _is_young(id: str) -> bool:
    """Return whether an id's request was made in the last seconds; ids begin with the time.

    False for what is no id of a request.
    """
    try:
        at = int(id.removeprefix("req_")[:12], 16) / 1_000
    except ValueError:
        return False
    return abs(time.time() - at) < 2 * WRITTEN_WITHIN_S


def _not_found(id: str) -> str:
    """Return the sentence for a request that is not on record."""
    return f"there is no record of request {id[:100]!r} for this key"
