"""LiteLLM's HTTP guardrail: `POST /beta/litellm_basic_guardrail_api`.

It sends the question before the call (`pre_call`) and the reply alone after it (`post_call`), both
with the same call id. The answer can tell LiteLLM to block, or to change texts; a change does not
reach streams, so a withheld reply is always blocked.

Its Python class (`pinocchio.litellm`) sends both together, to `POST /litellm`.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.errors import BadRequestError
from proxy.formats import CHAT, Json
from proxy.http.wire.caller import Caller
from proxy.optional.guardrails.questions import Key, Questions
from proxy.optional.guardrails.reading import name_in, object_in, objects_in, text_in, texts_in
from proxy.optional.guardrails.visits import Visit, VisitResult

PATH: Final = "/beta/litellm_basic_guardrail_api"
WHOLE_PATH: Final = "/litellm"
GATEWAY: Final = "litellm"
PASS: Final[Json] = {"action": "NONE"}


def read(payload: Json, questions: Questions) -> Visit | None:
    """Return the reply to check, or store a question and return None.

    Raises BadRequestError for a malformed payload.
    """
    kind, call_id = text_in(payload, "input_type"), text_in(payload, "litellm_call_id")
    key: Key = (GATEWAY, call_id or "")
    if kind == "request":
        if call_id:
            questions.keep(key, _read_request(payload))
        return None
    if kind != "response":
        raise BadRequestError(
            "'input_type' must be 'request' or 'response'", param="input_type", code="invalid_type"
        )
    request = questions.find(key) if call_id else None
    caller = _caller(object_in(payload, "request_data") or {})
    return Visit(GATEWAY, CHAT, _completion(payload, call_id), request, caller)


def read_whole(payload: Json) -> Visit:
    """Return the reply that the Python class sends: a chat completion with its request.

    Raises BadRequestError for a malformed payload.
    """
    request, completion = object_in(payload, "request"), object_in(payload, "response")
    return Visit(GATEWAY, CHAT, completion or {}, request, _caller(payload))


def _caller(metadata: Json) -> Caller:
    """Return the caller with the key's and the team's alias that LiteLLM names."""
    return Caller(
        key=name_in(metadata, "user_api_key_alias"),
        team=name_in(metadata, "user_api_key_team_alias"),
    )


def _read_request(payload: Json) -> Json:
    """Return the request that LiteLLM is about to send, with the members that it reports."""
    messages = objects_in(payload, "structured_messages")
    if not messages:
        messages = [{"role": "user", "content": text} for text in texts_in(payload, "texts")]
    request: Json = {"model": text_in(payload, "model") or "", "messages": messages}
    if tools := objects_in(payload, "tools"):
        request["tools"] = tools
    return request


def _completion(payload: Json, call_id: str | None) -> Json:
    """Return the reply as a completion, with a choice for each text.

    With tool calls there is one choice, and the texts are joined in it.
    """
    texts, calls = texts_in(payload, "texts"), objects_in(payload, "tool_calls")
    messages: list[Json] = [{"role": "assistant", "content": text} for text in texts]
    if calls:
        content = "\n".join(texts) or None
        messages = [{"role": "assistant", "content": content, "tool_calls": calls}]
    choices = [
        {"index": index, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        for index, message in enumerate(messages)
    ]
    model = text_in(payload, "model") or "unknown"
    return {"id": call_id, "object": "chat.completion", "model": model, "choices": choices}


def answer_whole(finding: VisitResult) -> Json:
    """Return the verdict for the Python class, and the facts that it attaches to the reply."""
    return {"verdict": not finding.is_withheld, "data": finding.facts()}


def answer(finding: VisitResult) -> Json:
    """Return the action that LiteLLM takes on the reply: none, new texts, or a block.

    A change that cannot be expressed in texts is a block.
    """
    if finding.is_withheld:
        return {"action": "BLOCKED", "blocked_reason": finding.reason}
    if finding.completion is None:
        return PASS
    texts: list[Any] = [each.message.get("content") for each in finding.choices]
    before = finding.visit.completion["choices"]
    is_text = not any(each["message"].get("tool_calls") for each in before)
    if is_text and len(texts) == len(before) and all(isinstance(text, str) for text in texts):
        return {"action": "GUARDRAIL_INTERVENED", "texts": texts}
    return {"action": "BLOCKED", "blocked_reason": finding.reason}
