"""Chat completions as OpenAI's API sends them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.clients.formats.replies import CREATED, MESSAGES, Call, Event, Json, Reply, halves

TYPES = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error"}
CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
ERROR_EVENT = Event({"error": {"message": "upstream gave up", "type": "server_error"}})


def completion(body: Json, reply: Reply) -> Json:
    message: Json = {
        "role": "assistant",
        "content": reply.text or None,
        "refusal": None,
        "annotations": [],
    }
    if reply.thought:
        message["reasoning_content"] = reply.thought
    if reply.calls:
        message["tool_calls"] = [_call(call) for call in reply.calls]
    reason = "tool_calls" if reply.calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion",
        "created": CREATED,
        "model": f"{body['model']}-2099",
        "choices": [choice],
        "usage": _usage(),
        "service_tier": "default",
        "system_fingerprint": "fp_50cad350e4",
    }


def events(body: Json, reply: Reply) -> Iterator[Event]:
    """Yield the same completion in chunks, with padding as if against traffic analysis."""
    whole = completion(body, reply)
    head = {key: whole[key] for key in ("id", "created", "model", "service_tier")}
    head |= {"object": "chat.completion.chunk", "system_fingerprint": "fp_50cad350e4"}
    place: Json = {"index": 0, "logprobs": None, "finish_reason": None}
    for number, delta in enumerate(_deltas(reply)):
        choices = [{**place, "delta": delta}]
        yield Event({**head, "choices": choices, "obfuscation": "aB3"}, is_delta=number > 0)
    reason = whole["choices"][0]["finish_reason"]
    yield Event({**head, "choices": [{**place, "delta": {}, "finish_reason": reason}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        yield Event({**head, "choices": [], "usage": _usage()})
    yield Event("[DONE]")


def error(status: int) -> Json:
    """Return an error's body, which Responses shares."""
    kind = TYPES.get(status, "invalid_request_error")
    code = CODES.get(status, "c")
    fields = {"message": MESSAGES[status], "type": kind, "param": "p", "code": code, "vendor": 1.0}
    return {"error": fields}


def _deltas(reply: Reply) -> Iterator[Json]:
    content = "" if reply.text else None
    yield {"role": "assistant", "content": content, "refusal": None}
    for part in halves(reply.thought or ""):
        yield {"reasoning_content": part}
    for part in halves(reply.text):
        yield {"content": part}
    for index, call in enumerate(reply.calls):
        opening = _call(call)
        opening["function"]["arguments"] = ""
        yield {"tool_calls": [{"index": index, **opening}]}
        for part in halves(call.text):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def _call(call: Call) -> Json:
    function = {"name": call.name, "arguments": call.text}
    return {"id": call.id, "type": "function", "function": function}


def _usage() -> Json:
    return {
        "prompt_tokens": 19,
        "completion_tokens": 10,
        "total_tokens": 29,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
