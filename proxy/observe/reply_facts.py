"""The facts that a reply states about itself: id, model, tokens, read from its span's bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.exchange.call import tokens
from proxy.http.wire.json_splice import json_object
from proxy.observe.traces import CallSpan


@dataclass(frozen=True, slots=True)
class ReplyFacts:
    """A reply's facts; None where the reply does not state one."""

    id: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    finish_reasons: tuple[str, ...] = ()


def facts_of(span: CallSpan) -> ReplyFacts:
    """Read a reply's facts; an encoded or unreadable reply has none."""
    if span.is_encoded or not span.head:
        return ReplyFacts()
    objects = [*_objects(span)]
    ids = (each.get("id") for each in objects)
    models = (each.get("model") for each in objects)
    used: dict[str, int] = {}
    for each in objects:
        used |= tokens(each.get("usage"))
    return ReplyFacts(
        next((each for each in ids if isinstance(each, str)), None),
        next((each for each in models if isinstance(each, str)), None),
        used.get("prompt_tokens"),
        used.get("completion_tokens"),
        tuple(dict.fromkeys(reason for each in objects for reason in _finish_reasons(each))),
    )


def _objects(span: CallSpan) -> Iterator[Mapping[str, Any]]:
    """Yield the completion, or the parts of a stream, that can be read whole."""
    if not span.is_stream:
        if span.size == len(span.head) and (found := json_object(bytes(span.head))):
            yield found
        return
    lines = bytes(span.head).split(b"\n")
    if span.size > len(span.head):
        lines = [*lines[:-1], *span.tail.split(b"\n")[1:]]
    for line in lines:
        if line.startswith(b"data:") and (event := json_object(line[5:].strip())):
            for inner in ("response", "message"):  # of Responses, of Anthropic
                if isinstance(found := event.get(inner), dict):
                    yield found
            yield {key: value for key, value in event.items() if key != "id" or "choices" in event}


def _finish_reasons(completion: Mapping[str, Any]) -> Iterator[str]:
    choices, delta = completion.get("choices"), completion.get("delta")
    found = [each.get("finish_reason") for each in choices or () if isinstance(each, dict)]
    found.append(completion.get("stop_reason"))
    if isinstance(delta, dict):
        found.append(delta.get("stop_reason"))
    return (reason for reason in found if isinstance(reason, str))
