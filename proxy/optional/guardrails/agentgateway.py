"""agentgateway's webhook, also kgateway's: `POST /agentgateway/request` and `/response`.

The reply arrives without its question. The header `x-request-id` joins the two, where the gateway's
configuration sends it with both.
"""

from __future__ import annotations

from typing import Final

from proxy.formats import CHAT, Json
from proxy.http.wire.http import Request
from proxy.http.wire.json_splice import dumps
from proxy.optional.guardrails.questions import Key, Questions
from proxy.optional.guardrails.reading import object_in, objects_in
from proxy.optional.guardrails.visits import Visit, VisitResult

REQUEST_PATH: Final = "/agentgateway/request"
RESPONSE_PATH: Final = "/agentgateway/response"
GATEWAY: Final = "agentgateway"
PASS: Final[Json] = {"action": {"reason": "nothing is scored before the reply"}}
WITHHELD_STATUS = 422


def keep(payload: Json, http: Request, questions: Questions) -> None:
    """Store the conversation of a request under its `x-request-id`, until its reply arrives.

    Without that header nothing is stored. Raises BadRequestError for a malformed payload.
    """
    messages = objects_in(object_in(payload, "body") or {}, "messages")
    if (key := _key(http)) is not None:
        questions.keep(key, {"model": _model(http), "messages": messages})


def read(payload: Json, http: Request, questions: Questions) -> Visit:
    """Return the reply to check, with its question where one was stored.

    Raises BadRequestError for a malformed payload.
    """
    choices = [
        {"finish_reason": "stop", **choice, "index": index}
        for index, choice in enumerate(objects_in(object_in(payload, "body") or {}, "choices"))
    ]
    key = _key(http)
    request = None if key is None else questions.find(key)
    model = _model(http) or "unknown"
    completion = {"object": "chat.completion", "model": model, "choices": choices}
    return Visit(GATEWAY, CHAT, completion, request)


def _key(http: Request) -> Key | None:
    """Return the key under which a request's question is stored; None without `x-request-id`."""
    id = http.header(b"x-request-id")
    return (GATEWAY, id) if id else None


def _model(http: Request) -> str:
    """Return the model in the header `x-model`, or an empty string."""
    return http.header(b"x-model") or ""


def answer(finding: VisitResult) -> Json:
    """Return the action that agentgateway takes on the reply: pass it, change it or refuse it."""
    outcome = finding.outcome
    if finding.is_withheld:
        error = {"message": finding.reason, "type": "policy_error", "code": "withheld"}
        text = dumps({"error": error | finding.facts()}).decode()
        return {"action": {"body": text, "status_code": WITHHELD_STATUS, "reason": finding.reason}}
    reason = "" if outcome is None else f"{outcome.status}: {outcome.action}"
    if finding.completion is None:
        return {"action": {"reason": reason}}
    choices = [{"message": each["message"]} for each in finding.completion["choices"]]
    return {"action": {"body": {"choices": choices}, "reason": reason}}
