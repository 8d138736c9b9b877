"""The objects and typed events of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterator

from tests.clients.formats.replies import CREATED, Call, Event, Json, Reply, halves

ERROR_EVENT = Event(
    {
        "type": "error",
        "sequence_number": 9,
        "code": "server_error",
        "message": "upstream gave up",
        "param": None,
    },
    "error",
)
ECHOED: Json = {  # what the API repeats of a request, and its defaults
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


def response(body: Json, reply: Reply) -> Json:
    """Return a whole response."""
    return _response(body, "completed", list(_items(reply))) | {"usage": _usage()}


def events(body: Json, reply: Reply) -> Iterator[Event]:
    """Yield the same response as a stream of numbered events."""
    for number, event in enumerate(_events(body, reply)):
        kind = event["type"]
        event["sequence_number"] = number
        yield Event(event, kind, is_delta=kind.endswith(("text.delta", "ts.delta")))


def _events(body: Json, reply: Reply) -> Iterator[Json]:
    opening = _response(body, "in_progress", []) | {"usage": None}
    yield {"type": "response.created", "response": opening}
    yield {"type": "response.in_progress", "response": opening}
    for index, item in enumerate(_items(reply)):
        place = {"item_id": item["id"], "output_index": index}
        begun = {"type": "response.output_item.added", "output_index": index}
        yield begun | {"item": _begun(item)}
        if item["type"] == "function_call":
            yield from _argument_events(item, place)
        elif item["type"] == "reasoning":
            yield from _summary_events(item, place)
        else:
            yield from _text_events(item, place | {"content_index": 0})
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": response(body, reply)}


def _text_events(item: Json, place: Json) -> Iterator[Json]:
    [part] = item["content"]
    yield {"type": "response.content_part.added", **place, "part": part | {"text": ""}}
    for text in halves(part["text"]):
        delta = {"delta": text, "logprobs": [], "obfuscation": "aB3"}
        yield {"type": "response.output_text.delta", **place, **delta}
    yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}


def _argument_events(item: Json, place: Json) -> Iterator[Json]:
    for part in halves(item["arguments"]):
        yield {"type": "response.function_call_arguments.delta", **place, "delta": part}
    call = {"name": item["name"], "arguments": item["arguments"]}
    yield {"type": "response.function_call_arguments.done", **place, **call}


def _summary_events(item: Json, place: Json) -> Iterator[Json]:
    [part] = item["summary"]
    place = place | {"summary_index": 0}
    begun = "response.reasoning_summary_part.added"
    yield {"type": begun, **place, "part": part | {"text": ""}}
    for text in halves(part["text"]):
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": text}
    yield {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]}
    yield {"type": "response.reasoning_summary_part.done", **place, "part": part}


def _items(reply: Reply) -> Iterator[Json]:
    if reply.thought:
        summary = [{"type": "summary_text", "text": reply.thought}]
        yield {"id": "rs_1", "type": "reasoning", "summary": summary}
    for call in reply.calls:
        yield _call(call)
    if reply.text:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        message = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant"}
        yield message | {"content": [part]}


def _call(call: Call) -> Json:
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "status": "completed",
        "arguments": call.text,
        "call_id": call.id,
        "name": call.name,
    }


def _begun(item: Json) -> Json:
    """Return an item as it is when it begins, still without content."""
    match item["type"]:
        case "function_call":
            return item | {"status": "in_progress", "arguments": ""}
        case "reasoning":
            return item | {"summary": []}
        case _:
            return item | {"status": "in_progress", "content": []}


def _response(body: Json, status: str, output: list[Json]) -> Json:
    echoed = {name: body.get(name, usual) for name, usual in ECHOED.items()}
    return {
        "id": "resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": f"{body['model']}-2099",
        "output": output,
        "service_tier": "default",
        **echoed,
    }


def _usage() -> Json:
    return {
        "input_tokens": 36,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 87,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 123,
    }
