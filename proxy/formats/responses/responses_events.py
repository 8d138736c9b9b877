"""The events of `/v1/responses` that we write, and our member in upstream's events.

They satisfy the accumulators of the official clients: items are added before their parts, parts
before their deltas, and each is done once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from proxy.errors import ProxyError
from proxy.formats.base.format import MEMBER, Json
from proxy.http.wire.json_splice import add_inner_member, dumps, json_object
from proxy.http.wire.sse import Event


def named_event(type: str, data: bytes) -> bytes:
    """Return an event with a name and data, as bytes."""
    return b"event: %b\ndata: %b\n\n" % (type.encode(), data)


def add_member(event: Event, member: Mapping[str, Any]) -> bytes:
    """Return the finish event with our member in its response, which clients keep whole.

    Returns its bytes unchanged if it has no response.
    """
    data = (event.data or "").encode()
    try:
        changed = add_inner_member(data, "response", MEMBER, member)
    except ValueError:
        return event.raw
    if event.raw.count(data) == 1:
        return event.raw.replace(data, changed)  # its other fields and line ends stay unchanged
    return named_event(str((json_object(changed) or {}).get("type")), changed)


def error_event(error: ProxyError) -> bytes:
    """Return an error as the bytes of an event named `error`.

    It has the members of the documented event, and `error`, which makes clients raise.
    """
    body = error.envelope()["error"]
    fields = {key: body[key] for key in ("code", "message", "param")}
    return named_event(
        "error", dumps({"type": "error", **fields, "sequence_number": 0, "error": body})
    )


class EventWriter:
    """Writes numbered events, worded like those of the official API."""

    def __init__(self, number: int = 0) -> None:
        self.events: list[bytes] = []
        self._number = number

    def event(self, type: str, **facts: Any) -> None:
        """Append an event `response.TYPE` with the next number and these members."""
        name = f"response.{type}"
        data = {"type": name, "sequence_number": self._number, **facts}
        self.events.append(named_event(name, dumps(data)))
        self._number += 1

    def start(self, response: Json) -> None:
        """Append the two events that begin a response, without its items, usage and our member."""
        left_out = (MEMBER, "completed_at")
        opening = {key: value for key, value in response.items() if key not in left_out}
        opening |= {
            "status": "in_progress",
            "incomplete_details": None,
            "output": [],
            "usage": None,
        }
        self.event("created", response=opening)
        self.event("in_progress", response=opening)

    def finish(self, response: Json) -> None:
        """Append the event that ends a response, completed or incomplete."""
        is_whole = response.get("status") != "incomplete"
        self.event("completed" if is_whole else "incomplete", response=response)

    def item(self, index: int, item: Any) -> None:
        """Append an item's events: added, its parts or deltas, and done.

        An item of other kinds is only added and done.
        """
        at = {"output_index": index}
        kind = item.get("type") if isinstance(item, dict) else None
        parts = {"message": "content", "reasoning": "summary"}.get(str(kind))
        streamed_member = {"function_call": "arguments", "custom_tool_call": "input"}.get(str(kind))
        if parts:
            self.event("output_item.added", **at, item={**item, **_in_progress(item), parts: []})
            self._parts(item, parts, {"item_id": item.get("id"), **at})
        elif streamed_member:
            self.event(
                "output_item.added", **at, item={**item, **_in_progress(item), streamed_member: ""}
            )
            self._write_deltas(item, streamed_member, {"item_id": item.get("id"), **at})
        else:
            self.event("output_item.added", **at, item=item)
        self.event("output_item.done", **at, item=item)

    def _write_deltas(self, item: Json, member: str, at: Json) -> None:
        """Append the delta and the end of a call's arguments or input, in one piece."""
        stem = "function_call_arguments" if member == "arguments" else "custom_tool_call_input"
        text = str(item.get(member) or "")
        name_field = (
            {"name": item["name"]} if stem.startswith("function") and "name" in item else {}
        )
        self.event(f"{stem}.delta", **at, delta=text)
        self.event(f"{stem}.done", **at, **name_field, **{member: text})

    def _parts(self, item: Json, member: str, at: Json) -> None:
        """Append the events of a message's contents or a reasoning's summary, part by part."""
        for index, part in enumerate(_list_objects(item.get(member))):
            if member == "summary":
                self._part("reasoning_summary", part, "text", {**at, "summary_index": index})
            elif part.get("type") == "output_text":
                self._part("output", part, "text", {**at, "content_index": index})
            else:
                self._part("", part, "refusal", {**at, "content_index": index})

    def _part(self, stem: str, part: Json, key: str, at: Json) -> None:
        """Append a part's events: added, one delta, its end, and done.

        `stem` is the beginning of the events' names, `key` the member with the text.
        """
        added = "reasoning_summary_part" if stem == "reasoning_summary" else "content_part"
        name = f"{stem}_{key}".lstrip("_")
        logprobs = {"logprobs": part.get("logprobs") or []} if stem == "output" else {}
        text = str(part.get(key) or "")
        empty = {**part, key: ""} | ({"annotations": []} if "annotations" in part else {})
        self.event(f"{added}.added", **at, part=empty)
        self.event(f"{name}.delta", **at, delta=text, **logprobs)
        self.event(f"{name}.done", **at, **{key: text}, **logprobs)
        self.event(f"{added}.done", **at, part=part)


def _in_progress(item: Mapping[str, Any]) -> Json:
    """Return the status of an item that has begun, for items that have one."""
    return {"status": "in_progress"} if "status" in item else {}


def _list_objects(parts: Any) -> Iterable[Json]:
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
