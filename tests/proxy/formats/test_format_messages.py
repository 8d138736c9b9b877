"""Anthropic's messages and events: the same choice whole or streamed; no event raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrator import NotScorableError
from calibrator.text import transcript
from proxy.errors import BlockedByPolicyError, ProxyError, UpstreamTimeoutError
from proxy.formats import MESSAGES
from proxy.formats.base.format import EventMeaning
from proxy.formats.messages.messages import AFTER_LOOKED_AT, HISTORY_LOOKED_AT
from proxy.formats.messages.messages_stream import MessagesAssembler
from proxy.http.wire.sse import Event, EventReader
from tests.servers.messages_upstream import VENDOR_EVENTS, events_for

Json = dict[str, Any]

texts = st.text(max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(
    lambda kind, id, name, given: {"type": kind, "id": id, "name": name, "input": given},
    st.sampled_from(["tool_use", "server_tool_use"]),
    texts,
    texts,
    st.dictionaries(texts, values, max_size=3),
)
blocks = (
    st.builds(lambda text: {"type": "text", "text": text}, texts)
    | st.builds(
        lambda text, signature: {"type": "thinking", "thinking": text, "signature": signature},
        texts,
        texts,
    )
    | st.just({"type": "redacted_thinking", "data": "EmwKAhgB"})
    | st.just({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"url": "u"}]})
    | st.just({"type": "text", "text": "cited", "citations": [{"type": "c", "cited_text": "x"}]})
    | calls
)


@st.composite
def messages(draw: st.DrawFn) -> Json:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": draw(st.text(min_size=1, max_size=5)),
        "content": draw(st.lists(blocks, max_size=4)),
        "stop_reason": draw(st.sampled_from(["end_turn", "tool_use", "max_tokens", "refusal"])),
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": draw(st.integers(2, 99))},
    }


def read(raw: bytes, assembler: MessagesAssembler | None = None) -> MessagesAssembler:
    """Read a stream's bytes and return the assembler.

    Checks that the format's marks find every event that concerns us.
    """
    assembler = assembler or MessagesAssembler()
    for event in EventReader().feed(raw):
        meaning = assembler.add(event)
        concerns_us = meaning.finished or meaning.is_end or meaning.is_error or meaning.calls_tool
        assert MESSAGES.marks.search(event.raw) or not concerns_us
    return assembler


def sights(raw: bytes) -> list[EventMeaning]:
    assembler = MessagesAssembler()
    return [assembler.add(event) for event in EventReader().feed(raw)]


# Whole and streamed


@given(messages())
def test_a_stream_is_the_message(message: Json) -> None:
    """A streamed message, assembled, has the whole message's members and choice."""
    assembler = read(b"".join(events_for(message)))
    assert assembler.completion() == message
    assert list(assembler.completion()) == list(message)
    assert assembler.model == message["model"]
    (streamed,), (whole,) = assembler.choices(), MESSAGES.choices(message)
    assert streamed.finish_reason == whole.finish_reason
    for call in streamed.message.get("tool_calls", []) + whole.message.get("tool_calls", []):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    assert streamed == whole


@given(messages())
def test_our_events_are_the_message(message: Json) -> None:
    """A message that we write as events is read as the same message."""
    assert read(b"".join(MESSAGES.events(message, {}))).completion() == message


@given(messages(), st.lists(st.integers(1, 40), min_size=1))
@settings(max_examples=50)
def test_any_split_gives_the_same_events(message: Json, sizes: list[int]) -> None:
    """However the bytes of a stream are cut, events and message are the same."""
    raw = b"".join(events_for(message))
    reader, assembler, events, at = EventReader(), MessagesAssembler(), b"", 0
    while at < len(raw):
        size = sizes[at % len(sizes)]
        for event in reader.feed(raw[at : at + size]):
            assembler.add(event)
            events += event.raw
        at += size
    assert events + reader.rest() == raw
    assert assembler.completion() == message


@given(messages(), messages())
def test_a_continuation_follows_on_what_was_sent(message: Json, other: Json) -> None:
    """A replacement of withheld calls continues with the next block, and ends the message."""
    raw = events_for(message)
    found = [meaning.calls_tool for meaning in sights(b"".join(raw))]
    if not any(found):
        return
    sent = b"".join(raw[: found.index(True)])
    continued = b"".join(read(b"".join(raw)).continue_stream({**other, "pinocchio": {"x": 1}}, {}))
    assembler = read(sent + continued)
    kept = [block["type"].endswith("tool_use") for block in message["content"]].index(True)
    expected = [*message["content"][:kept], *other["content"]]
    assert assembler.completion()["content"] == expected
    assert assembler.completion()["stop_reason"] == other["stop_reason"]
    data = [json.loads(event.data or "") for event in EventReader().feed(continued)]
    indices = [part["index"] for part in data if part["type"] == "content_block_start"]
    assert indices == list(range(kept, kept + len(other["content"])))
    assert [part["type"] for part in data[-2:]] == ["message_delta", "message_stop"]
    assert data[-2]["pinocchio"] == {"x": 1}


def test_a_continuation_closes_the_open_block() -> None:
    """A block that upstream left open before the calls is closed, as clients expect."""
    start = b'data: {"type":"content_block_start","index":%d,"content_block":{"type":"%b"}}\n\n'
    assembler = read(start % (0, b"text") + start % (1, b"tool_use"))
    first = assembler.continue_stream({"content": [], "stop_reason": "end_turn"}, {})[0]
    assert json.loads(first.splitlines()[1][6:]) == {"type": "content_block_stop", "index": 0}


# Meaning of events


def test_the_finish_is_the_message_delta() -> None:
    """The event with the stop reason finishes the choice; message_stop ends the stream."""
    message = {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "id": "m"}
    found = sights(b"".join(MESSAGES.events(message, {})))
    assert [meaning.finished for meaning in found[-2:]] == [(0,), ()]
    assert [meaning.is_end for meaning in found] == [False] * (len(found) - 1) + [True]


def test_the_member_is_the_last_of_the_finish() -> None:
    """The member is the last of message_delta's object, and the rest of the event stays."""
    event = EventReader().feed(VENDOR_EVENTS[6])[0]
    annotated = MESSAGES.annotate_event(event, {"confidence": 0.5})
    assert annotated == VENDOR_EVENTS[6].replace(b"2 }", b'2 ,"pinocchio":{"confidence":0.5}}')


def test_an_event_of_several_lines_keeps_its_name() -> None:
    """An event whose data has several lines keeps its name, without which clients skip it."""
    raw = b'event: message_delta\ndata: {"type":"message_delta",\ndata: "delta":{}}\n\n'
    (event,) = EventReader().feed(raw)
    assert MESSAGES.annotate_event(event, {"x": 1}) == (
        b'event: message_delta\ndata: {"type":"message_delta",\n'
        b'data: "delta":{},"pinocchio":{"x":1}}\n\n'
    )


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("brand_new", "brand_new"),
        (None, None),
    ],
)
def test_stop_reasons_are_those_of_chat(stop_reason: str | None, finish_reason: str) -> None:
    """Stop reasons become chat's, so that policies have one vocabulary."""
    (choice,) = MESSAGES.choices({"type": "message", "content": [], "stop_reason": stop_reason})
    assert choice.finish_reason == finish_reason


@pytest.mark.parametrize(
    "data",
    ['{"type":"error","error":{"type":"overloaded_error"}}', '{"error":{"message":"x"}}'],
)
def test_an_error_ends_the_stream(data: str) -> None:
    """An upstream's error, also in another server's form, ends the answer."""
    (meaning,) = sights(f"event: error\ndata: {data}\n\n".encode())
    assert meaning.is_error
    assert meaning.is_end
    assert MESSAGES.marks.search(data.encode())


@pytest.mark.parametrize("data", ["", "[1]", "null", "{", '{"type":["x"]}', "[" * 10_000])
def test_any_event_is_read(data: str) -> None:
    """An event of another format changes nothing, and is reported as such."""
    is_unread = data.startswith('{"') or len(data) > 10  # its meaning to others is unknown
    assert sights(f"data: {data}\n\n".encode()) == [EventMeaning(is_unread=is_unread)]


@given(st.dictionaries(st.sampled_from(["index", "delta", "usage", "content_block"]), values))
def test_odd_events_do_no_harm(members: Json) -> None:
    """Members of another type than the API's are skipped."""
    assembler = MessagesAssembler()
    for kind in ("content_block_start", "content_block_delta", "message_delta", "message_start"):
        assembler.add(Event(b"", json.dumps({"type": kind, **members})))
    assembler.choices()
    assembler.completion()


def test_an_escaped_kind_is_found() -> None:
    """An event's type is found in any spelling that JSON allows."""
    raw = b'data: {"type":"content_block_start","content_block":{"type":"\\u0074ool_use"}}\n\n'
    assert sights(raw)[0].calls_tool
    assert MESSAGES.marks.search(raw)


def test_text_is_no_mark() -> None:
    """Words of an answer are not taken for marks."""
    text = 'say {"type":"tool_use","error":1}'
    message = {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
    for event in MESSAGES.events(message, {})[:-2]:
        assert not MESSAGES.marks.search(event)


def test_unfinished_arguments_are_kept() -> None:
    """A call that max_tokens cut keeps its text for rules and reviewers."""
    start = (
        '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":{}}}'
    )
    delta = {"type": "input_json_delta", "partial_json": '{"a": "b'}
    part = json.dumps({"type": "content_block_delta", "index": 0, "delta": delta})
    head = '{"type":"message_start","message":{"id":"m","type":"message"}}'
    raw = "".join(f"data: {data}\n\n" for data in (head, start, part)).encode()
    assembler = read(raw)
    (choice,) = assembler.choices()
    assert choice.message["tool_calls"][0]["function"]["arguments"] == '{"a": "b'
    assert assembler.completion()["content"][0]["input"] == {"INVALID_JSON": '{"a": "b'}


def test_what_is_no_message_has_no_choices() -> None:
    """Other objects of the API have no choices."""
    for body in ({}, {"type": "error", "content": []}, {"type": "message", "content": "x"}):
        assert MESSAGES.choices(body) == []


# The question


def question(*messages: Json, **fields: Any) -> str:
    return MESSAGES.question({"messages": list(messages), **fields}).text


def user(*blocks: Json | str) -> Json:
    return {"role": "user", "content": blocks[0] if isinstance(blocks[0], str) else list(blocks)}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def test_the_question_is_the_users_last_turn() -> None:
    """Blocks and strings give the same question, and the system prompt is no part of it."""
    blocks = question(user(text("Capital"), text("of France?")), system="You are terse.")
    assert blocks == question(user("Capital\nof France?")) == "Capital\nof France?"


def test_tools_are_part_of_the_question() -> None:
    """Offered tools, calls and their results are written into the question as for chat."""
    call = {"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Paris"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [text("18 degrees")]}
    tool = {"name": "weather", "description": "d", "input_schema": {"type": "object"}}
    thinking = {"type": "thinking", "thinking": "secret", "signature": "s"}
    written = question(
        user("How warm is it?"),
        {"role": "assistant", "content": [thinking, text("Let me see."), call]},
        user(result),
        tools=[tool, {"type": "web_search_20250305", "name": "web_search"}],
    )
    assert "User request: How warm is it?" in written
    assert '[assistant] Let me see. [weather(city="Paris")]' in written
    assert "[tool] 18 degrees" in written
    assert '"parameters": {"type": "object"}' in written
    assert "web_search" in written
    assert "secret" not in written


def test_a_text_beside_a_result_is_the_question() -> None:
    """A turn with results and a text, as coding agents write it, has the text as its question."""
    result = {"type": "tool_result", "tool_use_id": "t", "content": "18 degrees"}
    written = question(user(result, text("And tomorrow?")))
    assert written.endswith("And tomorrow?")
    assert "18 degrees" in written


def test_the_question_of_a_long_session_is_found() -> None:
    """A question many calls ago is found, and what came long before it is not looked at."""
    call = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
    loop = [
        {"role": "assistant", "content": [call]},
        user({"type": "tool_result", "tool_use_id": "t", "content": "x" * 1_000}),
    ] * 200
    image = {"type": "image", "source": {"type": "url", "url": "x"}}
    earlier = [user("y" * 1_000), {"role": "assistant", "content": "z" * 1_000}]
    before = [user(image), *earlier * 200]
    written = question(*before, user("Why?"), *loop, tools=[{"name": "read", "input_schema": {}}])
    assert "User request: Why?" in written
    assert len(written) < 40_000
    assert transcript.HISTORY_CHARACTERS < HISTORY_LOOKED_AT
    assert transcript.AFTER_CHARACTERS < AFTER_LOOKED_AT


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ({"type": "document", "source": {"type": "base64", "data": "x"}}, "file"),
        ({"type": "document", "source": {"type": "file", "file_id": "x"}}, "file"),
        ({"type": "container_upload", "file_id": "x"}, "file"),
        ({"type": "tool_result", "content": [{"type": "document", "source": {}}]}, "file"),
    ],
)
def test_what_is_no_text_cannot_be_scored(block: Json, reason: str) -> None:
    """A file in the question is a reason for having no number."""
    with pytest.raises(NotScorableError) as raised:
        question(user(text("What is this?"), block))
    assert raised.value.reason == reason


def test_documents_of_text_are_read() -> None:
    """A document or search result that is text is part of the question."""
    plain = {"type": "document", "source": {"type": "text", "data": "Plain."}}
    nested = {"type": "document", "source": {"type": "content", "content": [text("Nested.")]}}
    found = {"type": "search_result", "source": "u", "title": "t", "content": [text("Found.")]}
    written = question(user(plain, nested, found, text("Summarise.")))
    assert written.splitlines() == ["Plain.", "Nested.", "Found.", "Summarise."]


@pytest.mark.parametrize(
    "messages", [None, [], "x", [1], [None], [{"role": "user", "content": [1]}], [{"content": 5}]]
)
def test_a_question_that_cannot_be_read_is_a_reason(messages: Any) -> None:
    """A question that cannot be read has no number, and raises no other error."""
    with pytest.raises(NotScorableError):
        MESSAGES.question({"messages": messages})


def test_the_last_question_is_what_a_reviewer_sees() -> None:
    """A reviewer sees the last turn's text, that of results too, or nothing where there is none."""
    result = {"type": "tool_result", "content": [text("18 degrees")]}
    asked = {"messages": [user(result, text("And now?"))]}
    assert MESSAGES.last_question(asked) == "And now?"
    assert MESSAGES.last_question({"messages": [user("Hello")]}) == "Hello"
    assert MESSAGES.last_question({}) == MESSAGES.last_question({"messages": [1]}) == ""


@pytest.mark.parametrize(
    ("fields", "wants"),
    [
        ({}, False),
        ({"tool_choice": {"type": "auto"}}, False),
        ({"output_config": {"effort": "low"}}, False),
        ({"tool_choice": {"type": "tool", "name": "x"}}, True),
        ({"tool_choice": {"type": "any"}}, True),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, True),
        ({"output_format": {"type": "json_schema", "schema": {}}}, True),
    ],
)
def test_who_wants_a_schema_gets_no_prose(fields: Json, wants: bool) -> None:
    """Requests for structured outputs or required tools expect a reply that can be parsed."""
    assert MESSAGES.wants_schema(fields) is wants


# Replacements of an answer


def test_a_placeholder_is_a_message() -> None:
    """The placeholder has every member of a message, and ends as a refused one."""
    placeholder = MESSAGES.placeholder("Held.", id="msg_held_1", created=5, model="m")
    assert placeholder == {
        "id": "msg_held_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Held."}],
        "stop_reason": "refusal",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BlockedByPolicyError("no"), "policy_error"),
        (UpstreamTimeoutError("late"), "timeout_error"),
        (ProxyError("fault"), "api_error"),
    ],
)
def test_errors_are_in_anthropics_envelope(error: ProxyError, kind: str) -> None:
    """Errors have type and message where Anthropic's API has them, and our code besides."""
    envelope = json.loads(MESSAGES.error_body(error))
    assert envelope["type"] == "error"
    assert envelope["error"]["type"] == kind
    assert envelope["error"]["message"] == error.message
    assert envelope["error"]["code"] == error.machine_code
    assert envelope["error"]["details"] == {"error_code": error.machine_code}
    event = MESSAGES.error_event(error)
    assert event.startswith(b"event: error\ndata: ")
    assert event.endswith(b"\n\n")
