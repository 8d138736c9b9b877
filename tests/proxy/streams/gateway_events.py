"""Events of the three streaming formats, as bytes, and policies to try them against."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.running.live_proxy import LiveProxy
from tests.servers.undecided import PATHS, asking

Json = dict[str, Any]

CALLS = """
version: 1
name: calls
mode: enforce
rules: [{name: any call, when: {tools: any}, then: {hold: {queue: q, reply: error}}}]
default: deliver
"""
BUFFERED = """
version: 1
name: buffered
mode: enforce
rules: [{name: unsure, when: {confidence: {below: 0.000001}}, then: {hold: {queue: q}}}]
default: deliver
"""
TEXT = "The capital of France is Paris. p=0.9"


def sse(*events: Json | str, named: bool = False) -> bytes:
    """Return the bytes of events: objects, optionally named by their type, or raw data."""
    lines = []
    for each in events:
        if isinstance(each, dict) and named and "type" in each:
            lines.append(f"event: {each['type']}\n")
        data = each if isinstance(each, str) else json.dumps(each, separators=(",", ":"))
        lines.append(f"data: {data}\n\n")
    return "".join(lines).encode()


MESSAGE: Json = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
MESSAGE_EVENTS: list[Json | str] = [
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 9},
    },
]
STOP: Json = {"type": "message_stop"}
TOOL_BLOCK = {"type": "tool_use", "id": "t", "name": "send", "input": {}}
CALL_EVENTS: list[Json | str] = [
    {"type": "content_block_start", "index": 1, "content_block": TOOL_BLOCK},
    {"type": "content_block_stop", "index": 1},
]
ITEM: Json = {
    "id": "i",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
}
RESPONSE: Json = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "status": "in_progress",
    "model": "m",
    "output": [],
}
CREATED: Json = {"type": "response.created", "sequence_number": 0, "response": RESPONSE}
COMPLETED: Json = {
    "type": "response.completed",
    "sequence_number": 2,
    "response": {**RESPONSE, "status": "completed", "output": [ITEM]},
}
DONE_ITEM: Json = {
    "type": "response.output_item.done",
    "sequence_number": 1,
    "output_index": 0,
    "item": ITEM,
}
RESPONSE_EVENTS = [CREATED, DONE_ITEM, COMPLETED]


def chunk(**choice: Any) -> Json:
    """Return a chunk of a chat stream with one choice."""
    listed = [{"index": 0, "finish_reason": None, **choice}]
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": listed,
    }


CHAT_EVENTS = [
    chunk(delta={"role": "assistant", "content": TEXT}),
    chunk(delta={}, finish_reason="stop"),
]


def asked(proxy: LiveProxy, surface: str, *, is_stream: bool) -> httpx.Response:
    headers = {"content-type": "application/json", "authorization": "Bearer sk-client"}
    url = f"http://127.0.0.1:{proxy.port}{PATHS[surface]}"
    body = asking(surface, stream=is_stream)
    return httpx.post(url, content=body, headers=headers, timeout=20)
