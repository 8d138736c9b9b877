"""Portkey's webhook: `POST /portkey`, with question and answer in one request.

The client receives `data` in `hook_results`. A withheld reply gets the verdict `false`, and it is
also replaced: without `deny` Portkey would deliver it all the same.
"""

from __future__ import annotations

from typing import Final

from proxy.formats import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Format, Json
from proxy.optional.guardrails.reading import object_in, text_in
from proxy.optional.guardrails.visits import Visit, VisitResult

PATH: Final = "/portkey"
GATEWAY: Final = "portkey"
PASS: Final[Json] = {"verdict": True}
FORMATS: Final[dict[str | None, Format]] = {
    "chatComplete": CHAT,
    "complete": COMPLETIONS,
    "messages": MESSAGES,
    "createModelResponse": RESPONSES,
}
SUCCESS = 200


def read(payload: Json) -> Visit | None:
    """Return the reply to check, or None for a request or reply that is not scored.

    Raises BadRequestError for a malformed payload.
    """
    format = FORMATS.get(text_in(payload, "requestType"))
    request, response = object_in(payload, "request"), object_in(payload, "response")
    is_reply = text_in(payload, "eventType") == "afterRequestHook"
    if not is_reply or format is None or response is None:
        return None
    if response.get("statusCode") not in (SUCCESS, None):
        return None
    completion = object_in(response, "json")
    return Visit(GATEWAY, format, completion or {}, object_in(request or {}, "json"))


def answer(finding: VisitResult) -> Json:
    """Return the verdict on the reply, its facts, and the completion that replaces it, if any."""
    replacement = finding.refusal if finding.is_withheld else finding.completion
    body: Json = {"verdict": not finding.is_withheld, "data": finding.facts()}
    if replacement is not None:
        body["transformedData"] = {"response": {"json": replacement}}
    return body
