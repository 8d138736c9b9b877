"""The objects and events of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Iterator

from tests.clients.formats.replies import MESSAGES, Call, Event, Json, Reply, halves

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


def _error(kind: str, message: str) -> Json:
    error = {"type": kind, "message": message}
    return {"type": "error", "error": error, "request_id": "req_upstream_1"}


ERROR_EVENT = Event(_error("overloaded_error", "upstream gave up"), "error")


def error(status: int) -> Json:
    return _error(TYPES.get(status, "invalid_request_error"), MESSAGES[status])


def message(body: Json, reply: Reply) -> Json:
    """Return a whole message."""
    return {
        "id": "msg_013Zva2CMHLNnjNjJJKqJ2EF",
        "type": "message",
        "role": "assistant",
        "model": f"{body['model']}-20990101",
        "content": list(_blocks(reply)),
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": _usage(15),
    }


def events(body: Json, reply: Reply) -> Iterator[Event]:
    """Yield the same message as a stream of named events."""
    for event in _events(message(body, reply)):
        kind = event["type"]
        yield Event(event, kind, is_delta=kind == "content_block_delta")


def _events(whole: Json) -> Iterator[Json]:
    opening = whole | {"content": [], "stop_reason": None, "usage": _usage(1)}
    yield {"type": "message_start", "message": opening}
    for index, block in enumerate(whole["content"]):
        place = {"index": index}
        begun, deltas = _parts(block)
        yield {"type": "content_block_start", **place, "content_block": begun}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", **place, "delta": delta}
        yield {"type": "content_block_stop", **place}
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 15}}
    yield {"type": "message_stop"}


def _parts(block: Json) -> tuple[Json, list[Json]]:
    """Return a block as it begins, and the deltas that complete it."""
    match block["type"]:
        case "tool_use":
            text = Call(block["id"], block["name"], block["input"]).text
            pieces = ["", *halves(text)]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            return block | {"input": {}}, deltas
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": t} for t in halves(block["thinking"])]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return block | {"thinking": "", "signature": ""}, [*deltas, signed]
        case _:
            deltas = [{"type": "text_delta", "text": text} for text in halves(block["text"])]
            return block | {"text": ""}, deltas


def _blocks(reply: Reply) -> Iterator[Json]:
    if reply.thought:
        yield {"type": "thinking", "thinking": reply.thought, "signature": "EqQBCgIYAhIM"}
    if reply.text:
        yield {"type": "text", "text": reply.text}
    for call in reply.calls:
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}


def _usage(output_tokens: int) -> Json:
    return {
        "input_tokens": 25,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }
