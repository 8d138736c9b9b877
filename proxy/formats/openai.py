"""What all of OpenAI's formats have in common: the member, the errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.errors import ProxyError
from proxy.formats.format import MEMBER
from proxy.json_splice import add_member
from proxy.sse import DONE, Event, event_bytes


def annotated(event: Event, member: Mapping[str, Any]) -> bytes:
    """The event with the member in its object; untouched if it carries no object."""
    if event.data is None or event.data == DONE:
        return event.raw
    data = event.data.encode()
    try:
        return with_data(event, data, add_member(data, MEMBER, member))
    except ValueError:
        return event.raw


def with_data(event: Event, data: bytes, changed: bytes) -> bytes:
    """The event with other data; its other fields and line ends stay."""
    if event.raw.count(data) == 1:
        return event.raw.replace(data, changed)
    return event_bytes(changed)


def error_body(error: ProxyError) -> bytes:
    """OpenAI's envelope."""
    return error.body()


def error_event(error: ProxyError) -> bytes:
    return event_bytes(error.body())
