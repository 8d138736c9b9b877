"""Upstreams that make a coding agent do certain steps, over Messages and over Responses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.servers.faulty_upstream import EVENTS, JSON, FaultyUpstream, Received, Response

Json = dict[str, Any]
DONE = "All steps are done."


@dataclass(frozen=True)
class Step:
    """A call of one of the agent's tools."""

    tool: str
    input: Json | str  # a text for a custom tool of Responses


class ScriptedAgent(FaultyUpstream):
    """Answers each request that offers tools with the next step, and then with a text."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        self._steps = steps
        self.asked: list[Json] = []  # the requests that offered tools

    def respond(self, request: Received) -> Response:
        if request.method != "POST":
            return Response([b"{}"], 404, JSON)
        body = json.loads(request.body)
        if not body.get("tools"):
            return Response([*self._events({"type": "text", "text": "A title"})], headers=EVENTS)
        number = len(self.asked)
        self.asked.append(body)
        block: Json = {"type": "text", "text": DONE}
        if number < len(self._steps):
            step = self._steps[number]
            id = f"toolu_{number:02d}"
            block = {"type": "tool_use", "id": id, "name": step.tool, "input": step.input}
        return Response([*self._events(block)], headers=EVENTS)

    def _events(self, block: Json) -> list[bytes]:
        is_call = block["type"] == "tool_use"
        message: Json = {
            "id": f"msg_{len(self.asked):02d}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-5",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 1},
        }
        if is_call:
            begun = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            begun = {**block, "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        ending = {"stop_reason": "tool_use" if is_call else "end_turn", "stop_sequence": None}
        events: list[Json] = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": begun},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ]
        return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events]


class ScriptedResponsesAgent(FaultyUpstream):
    """Does the same over OpenAI's Responses."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        self._steps = steps
        self.asked: list[Json] = []

    def respond(self, request: Received) -> Response:
        if request.method != "POST":
            return Response([b"{}"], 404, JSON)
        number = len(self.asked)
        self.asked.append(json.loads(request.body))
        item = _item(number, self._steps[number] if number < len(self._steps) else None)
        response: Json = {
            "id": f"resp_{number:02d}",
            "object": "response",
            "model": "gpt-5.5",
            "status": "in_progress",
            "output": [],
        }
        usage = {"input_tokens": 10, "output_tokens": 9, "total_tokens": 19}
        whole = response | {"status": "completed", "output": [item], "usage": usage}
        events: list[Json] = [
            {"type": "response.created", "response": response},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": whole},
        ]
        for at, event in enumerate(events):
            event["sequence_number"] = at
        parts = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]
        return Response(parts, headers=EVENTS)


def _item(number: int, step: Step | None) -> Json:
    """Return the item of a response that asks for a step, or says that all steps are done."""
    if step is None:
        content = [{"type": "output_text", "text": DONE, "annotations": []}]
        message: Json = {"type": "message", "id": f"msg_{number:02d}", "role": "assistant"}
        return message | {"status": "completed", "content": content}
    call: Json = {"id": f"fc_{number:02d}", "call_id": f"call_{number:02d}", "name": step.tool}
    if isinstance(step.input, str):
        return call | {"type": "custom_tool_call", "input": step.input, "status": "completed"}
    arguments = json.dumps(step.input)
    return call | {"type": "function_call", "arguments": arguments, "status": "completed"}
