"""A check of a text alone: `POST /analyze`, as Envoy's Agent Router and a configured Kong send it.

No question comes with the text, so it gets no number (`no_question`): only rules that need none can
act on it.
"""

from __future__ import annotations

from typing import Final

from proxy.errors import BadRequestError
from proxy.formats import CHAT, Json
from proxy.optional.guardrails.reading import object_in, text_in
from proxy.optional.guardrails.visits import Visit, VisitResult

PATH: Final = "/analyze"
GATEWAY: Final = "analyze"
PASS: Final[Json] = {"action": "allow", "findings": []}


def read(payload: Json) -> Visit | None:
    """Return the reply to check, or None for the text of a question.

    Raises BadRequestError for a malformed payload.
    """
    text = text_in(payload, "text")
    if text is None:
        raise BadRequestError("'text' is missing", param="text", code="missing_member")
    if text_in(object_in(payload, "context") or {}, "stage") == "input":
        return None
    message = {"role": "assistant", "content": text}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    completion = {"object": "chat.completion", "model": "unknown", "choices": choices}
    return Visit(GATEWAY, CHAT, completion, None)


def answer(finding: VisitResult) -> Json:
    """Return the action that the gateway takes on the text: allow, block or modify it."""
    if finding.is_withheld:
        return {"action": "block", "findings": [], "reason": finding.reason}
    if finding.completion is None:
        return PASS
    text = finding.choices[0].message.get("content")
    return {"action": "modify", "findings": [], "replacement": text}
