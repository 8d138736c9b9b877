"""Nothing that a client or an upstream sends takes more than linear work.

Each case is some megabytes that a stranger can send in a second or two. Quadratic work takes
minutes for them, and linear work a second.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from calibrator import NotScorableError
from proxy.exchange.answer import Answer
from proxy.formats import CHAT, COMPLETIONS, FORMATS, MESSAGES, RESPONSES, Format, NoAnswerError
from proxy.formats.events.called import tool_calls
from proxy.http.wire.headers import to_client, to_upstream
from proxy.http.wire.json_splice import add_inner_member, replace_member, with_member
from proxy.http.wire.sse import EventReader, event_bytes

MANY = 10_000
MOST_S = 2.5  # seconds of CPU; what is linear takes a tenth of it on a quiet machine
Json = dict[str, Any]
CALL = {"name": "f", "arguments": "{}"}


def each(make: Callable[[int], Any], count: int = MANY) -> list[Any]:
    return [make(number) for number in range(count)]


REQUESTS: Mapping[str, tuple[Format, Callable[[], Json]]] = {
    "messages": (CHAT, lambda: {"messages": each(lambda n: {"role": "user", "content": "x"})}),
    "turns of calls": (
        CHAT,
        lambda: {
            "messages": each(lambda n: {"role": "assistant", "tool_calls": [{"function": CALL}]})
        },
    ),
    "parts": (
        CHAT,
        lambda: {
            "messages": [{"role": "user", "content": each(lambda n: {"type": "text", "text": "x"})}]
        },
    ),
    "tools": (
        CHAT,
        lambda: {
            "messages": [{"role": "user", "content": "x"}],
            "tools": each(lambda n: {"type": "function", "function": {"name": f"f{n}"}}),
        },
    ),
    "calls of one turn": (
        CHAT,
        lambda: {
            "messages": [{"role": "assistant", "tool_calls": each(lambda n: {"function": CALL})}]
        },
    ),
    "prompts": (COMPLETIONS, lambda: {"prompt": each(lambda n: "x")}),
    "items": (RESPONSES, lambda: {"input": each(lambda n: {"role": "user", "content": "x"})}),
    "calls in items": (
        RESPONSES,
        lambda: {
            "input": each(lambda n: {"type": "function_call", "call_id": str(n), **CALL}, 50_000)
        },
    ),
    "results in items": (
        RESPONSES,
        lambda: {"input": each(lambda n: {"type": "function_call_output", "output": "x"})},
    ),
    "namespaces": (
        RESPONSES,
        lambda: {
            "input": "x",
            "tools": each(lambda n: {"type": "namespace", "tools": [{"type": "function"}]}),
        },
    ),
    "blocks": (
        MESSAGES,
        lambda: {
            "messages": [{"role": "user", "content": each(lambda n: {"type": "text", "text": "x"})}]
        },
    ),
    "uses and results": (
        MESSAGES,
        lambda: {
            "messages": each(
                lambda n: {
                    "role": "user" if n % 2 else "assistant",
                    "content": [{"type": "tool_result" if n % 2 else "tool_use", "content": "x"}],
                }
            )
        },
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_read_in_linear_time(name: str) -> None:
    """Reading a request's question takes linear time, whatever it has very many of."""
    format, payload = REQUESTS[name]
    body = json.dumps(payload()).encode()

    def read() -> None:
        asked = json.loads(body)  # the proxy would refuse some of these for their number of values
        format.last_question(asked)
        try:
            question = format.question(asked)
        except NotScorableError:
            return
        assert question.text is not None
        question.tool_use({"tool_calls": [{"function": CALL}]})

    takes_little(read)


def chunk(**part: Any) -> bytes:
    return event_bytes(json.dumps({"choices": [{"index": 0, **part}]}).encode())


def named(**event: Any) -> bytes:
    return event_bytes(json.dumps(event).encode())


STREAMS: Mapping[str, tuple[Format, Callable[[], list[bytes]]]] = {
    "calls in one delta": (
        CHAT,
        lambda: [chunk(delta={"tool_calls": each(lambda n: {"index": n, "function": CALL})})],
    ),
    "calls without an index": (
        CHAT,
        lambda: [chunk(delta={"tool_calls": each(lambda n: {"id": str(n), "function": CALL})})],
    ),
    "calls in many deltas": (
        CHAT,
        lambda: each(lambda n: chunk(delta={"tool_calls": [{"index": n, "function": CALL}]})),
    ),
    "arguments of one call": (
        CHAT,
        lambda: each(lambda n: chunk(delta={"tool_calls": [{"index": 0, "function": CALL}]})),
    ),
    "choices": (
        CHAT,
        lambda: each(lambda n: chunk(index=n, delta={"content": "x"}, finish_reason="stop")),
    ),
    "choices in one event": (
        CHAT,
        lambda: [named(choices=each(lambda n: {"index": n, "delta": {"content": "x"}}))],
    ),
    "texts": (COMPLETIONS, lambda: each(lambda n: chunk(index=n, text="x", finish_reason="stop"))),
    "logprobs": (
        CHAT,
        lambda: each(lambda n: chunk(delta={}, logprobs={"content": [{"token": "x"}]})),
    ),
    "names": (CHAT, lambda: [chunk(delta={f"m{n}": "x" for n in range(MANY)})] * 3),
    "added": (
        RESPONSES,
        lambda: each(
            lambda n: named(
                type="response.output_item.added",
                output_index=n,
                item={"type": "function_call", "call_id": str(n), **CALL},
            )
        ),
    ),
    "deltas": (
        RESPONSES,
        lambda: each(
            lambda n: named(
                type="response.function_call_arguments.delta", output_index=n % 7, delta="x"
            )
        ),
    ),
    "blocks": (
        MESSAGES,
        lambda: [
            named(type="message_start", message={"content": []}),
            *each(
                lambda n: named(
                    type="content_block_start", index=n, content_block={"type": "tool_use"}
                )
            ),
        ],
    ),
    "block deltas": (
        MESSAGES,
        lambda: [
            named(type="message_start", message={"content": []}),
            named(type="content_block_start", index=0, content_block={"type": "text", "text": ""}),
            *each(
                lambda n: named(
                    type="content_block_delta", index=0, delta={"type": "text_delta", "text": "x"}
                )
            ),
        ],
    ),
    "message starts": (
        MESSAGES,
        lambda: [
            named(type="message_start", message={"content": each(lambda n: {"type": "text"})})
        ],
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_put_together_in_linear_time(name: str) -> None:
    """A stream of very many events, or of one event with very many parts, takes linear time."""
    format, make = STREAMS[name]
    events = make()

    def read() -> None:
        reader, assembler = EventReader(), format.assembler()
        for event in reader.feed(b"".join(events)):
            view = assembler.add(event)
            if view.finished:
                assembler.choices(view.finished)
        for choice in assembler.choices():
            tool_calls(choice.message)
        completion = assembler.completion()
        if completion.get("choices"):
            assembler.continue_stream(completion, {})

    takes_little(read)


ANSWERS: Mapping[str, tuple[Format, Callable[[], Json]]] = {
    "choices": (
        CHAT,
        lambda: {
            "choices": each(
                lambda n: {"index": n, "message": {"content": "x"}, "finish_reason": "s"}
            )
        },
    ),
    "calls": (
        CHAT,
        lambda: {"choices": [{"message": {"tool_calls": each(lambda n: {"function": CALL})}}]},
    ),
    "items": (
        RESPONSES,
        lambda: {"output": each(lambda n: {"type": "function_call", "call_id": str(n), **CALL})},
    ),
    "texts in items": (
        RESPONSES,
        lambda: {
            "output": each(
                lambda n: {"type": "message", "content": [{"type": "output_text", "text": "x"}]}
            )
        },
    ),
    "unknown items": (RESPONSES, lambda: {"output": each(lambda n: {"type": "x"})}),
    "blocks": (
        MESSAGES,
        lambda: {"type": "message", "content": each(lambda n: {"type": "tool_use", "name": "f"})},
    ),
    "texts": (
        MESSAGES,
        lambda: {"type": "message", "content": each(lambda n: {"type": "text", "text": "x"})},
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_read_in_linear_time(name: str) -> None:
    """Reading a whole answer takes linear time, whatever it has very many of."""
    format, completion = ANSWERS[name]
    body = json.dumps({"id": "x", "model": "m", **completion()}).encode()

    def read() -> None:
        read = json.loads(body)
        choices = format.choices(read)
        answer = Answer(200, [], read, choices, body)
        assert answer.has_tool_calls in (True, False)
        format.replace_text(read, "x", "stop")
        format.add_notice(read, "x")

    takes_little(read)


BYTES: Mapping[str, Callable[[], object]] = {
    "named fields to upstream": lambda: to_upstream(fields()),
    "named fields to clients": lambda: to_client(fields()),
    "a member many times": lambda: replace_member(
        b'{"model":"a",' + b'"model":"a",' * 100_000 + b'"x":1}', "model", "b"
    ),
    "blanks": lambda: replace_member(b'{"a":1,' + b" " * 10_000_000 + b'"b":2}', "model", "b"),
    "blanks at the end": lambda: with_member(b'{"a":1' + b" " * 20_000_000 + b"}", "m", b"{}"),
    "blanks behind the end": lambda: with_member(b'{"a":1}' + b"\n" * 20_000_000, "m", b"{}"),
    "blanks inside": lambda: add_inner_member(
        b'{"response":{' + b" " * 4_000_000 + b"}}", "response", "m", {}
    ),
    "blank lines": lambda: EventReader().feed(b"\n\n" * 5_000_000),
    "blank lines of CR": lambda: EventReader().feed(b"\r\r" * 5_000_000),
    "comments": lambda: EventReader().feed(b":\n\n" * 500_000),
    "a long event": lambda: fed(b"data: " + b"x" * 15_000_000, 16_384),
    "lines": lambda: EventReader().feed(b"data: x\n" * 250_000 + b"\n"),
}


def fields() -> list[tuple[bytes, bytes]]:
    names = [b"x%d" % number for number in range(MANY)]
    return [(b"connection", b",".join(names)), *((name, b"") for name in names)]


def fed(body: bytes, size: int) -> None:
    reader = EventReader()
    for at in range(0, len(body), size):
        reader.feed(body[at : at + size])


@pytest.mark.parametrize("name", BYTES)
def test_bytes_are_walked_through_once(name: str) -> None:
    """Reading header fields, members, white space and stream lines takes linear time."""
    takes_little(BYTES[name])


def takes_little(work: Callable[[], object]) -> None:
    began = time.process_time()
    work()
    assert time.process_time() - began < MOST_S


def test_every_format_is_tried() -> None:
    """The tables have cases of every format."""
    tables = (REQUESTS, STREAMS, ANSWERS)
    assert {format.name for table in tables for format, _ in table.values()} == {
        format.name for format in FORMATS
    }
    with pytest.raises(NoAnswerError):
        RESPONSES.choices({"output": [], "status": "failed"})
