"""Responses: items as chat messages, and streams as the official accumulator reads them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._models import construct_type
from openai._types import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

from calibrator import NotScorableError
from proxy.completions.call_upstream import live_pieces
from proxy.completions.sending.live_stream import FinishEvent, LiveStream
from proxy.errors import HeldForReviewError
from proxy.formats import RESPONSES, Choice, NoAnswerError
from proxy.formats.responses.responses_items import as_items, chat_messages, recent
from proxy.formats.responses.responses_stream import ResponsesAssembler
from proxy.http.wire.sse import DONE, Event, EventReader, event_bytes
from tests.servers.responses_upstream import (
    events_of,
    function_call,
    message,
    output_of,
    response_to,
)

Json = dict[str, Any]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
items = st.one_of(
    st.builds(message, texts),
    st.builds(message, texts, st.just("refusal")),
    st.builds(function_call, texts, st.text("abc", min_size=1, max_size=5)),
    st.sampled_from(output_of("many", "x")),
)


@st.composite
def responses(draw: st.DrawFn) -> Json:
    response = response_to({"model": "m", "input": ""}, "resp_1")
    return {**response, "output": draw(st.lists(items, min_size=1, max_size=4))}


def read(stream: bytes) -> list[Event]:
    return EventReader().feed(stream)


def assembled(stream: bytes) -> ResponsesAssembler:
    assembler = ResponsesAssembler()
    for event in read(stream):
        assembler.add(event)
    return assembler


def accumulated(stream: bytes) -> Any:
    """Return the state of the official client's accumulator after a stream.

    It raises if events are out of order.
    """
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in read(stream):
        value: Any = construct_type(
            type_=ResponseStreamEvent,
            value=json.loads(event.data or ""),
        )
        state.handle_event(value)
    return state


# Streams


@given(responses())
def test_a_stream_says_what_the_object_says(response: Json) -> None:
    """A response that is written, or sent by upstream, as a stream is the same response."""
    for stream in (RESPONSES.events(response, {}), events_of(response)):
        assembler = assembled(b"".join(stream))
        assert assembler.completion() == response
        assert assembler.choices() == RESPONSES.choices(response)
        assert assembler.model == response["model"]


@given(responses())
def test_the_official_accumulator_reads_what_we_write(response: Json) -> None:
    """Items precede their parts and parts their deltas; the accumulated response is the whole."""
    state = accumulated(b"".join(RESPONSES.events(response, {})))
    final = state._completed_response
    assert final is not None
    assert [item.type for item in final.output] == [item["type"] for item in response["output"]]
    snapshot = state._ResponseStreamState__current_snapshot
    for item, seen in zip(response["output"], snapshot.output, strict=True):
        if item["type"] == "function_call":
            assert seen.arguments == item["arguments"]
        if item["type"] == "message" and item["content"][0]["type"] == "output_text":
            assert seen.content[0].text == item["content"][0]["text"]


@given(responses(), st.lists(st.integers(1, 200)))
def test_any_split_gives_the_same_response(response: Json, cuts: list[int]) -> None:
    """Bytes and response are the same wherever the bytes are split."""
    stream = b"".join(events_of(response))
    reader, assembler, seen, at = EventReader(), ResponsesAssembler(), b"", 0
    for size in [*cuts, len(stream)]:
        for event in reader.feed(stream[at : at + size]):
            assembler.add(event)
            seen += event.raw
        at += size
    assert seen == stream
    assert assembler.completion() == response


@given(responses(), st.lists(st.integers(1, 400), max_size=30), st.booleans())
async def test_any_split_passes_live_with_the_same_bytes(
    response: Json, cuts: list[int], is_gated: bool
) -> None:
    """A live stream's bytes are unchanged however they arrive, and are judged as a whole."""
    stream = b"".join(events_of(response))
    judged: list[list[Choice]] = []

    live = LiveStream(RESPONSES, max_bytes=2**20, gates_calls=is_gated)
    got = b""
    async for piece in live_pieces(live, split(stream, cuts), nullcontext()):
        if isinstance(piece, FinishEvent):
            judged.append(live.assembler.choices(piece.choices))
            piece = piece.event.raw
        got += piece if isinstance(piece, bytes) else b""
    if live.withholds():
        judged.append(live.assembler.choices())
        got += b"".join(event.raw for event in live.waiting_events()[0])
    assert got == stream
    assert judged == [RESPONSES.choices(response)]


async def split(stream: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    at = 0
    for size in [*cuts, len(stream)]:
        if part := stream[at : at + size]:
            yield part
        at += size


@given(responses())
def test_items_are_enough(response: Json) -> None:
    """Items in earlier events give the answer where the last
    event has no output, or where no item was done before.
    """
    written_events = [json.loads(event.data or "") for event in read(b"".join(events_of(response)))]
    written_events[-1]["response"] = {**written_events[-1]["response"], "output": []}
    assert assembled(written(written_events)).choices() == RESPONSES.choices(response)
    deltas = [e for e in written_events if not e["type"].endswith("item.done")]
    seen = assembled(written(deltas)).choices()[0].message
    whole = RESPONSES.choices(response)[0].message
    for key in ("content", "refusal"):
        assert (seen.get(key) or "") == (whole.get(key) or "")
    assert [c["function"]["arguments"] for c in functions(seen)] == [
        c["function"]["arguments"] for c in functions(whole)
    ]


def functions(message: Json) -> list[Json]:
    return [c for c in message.get("tool_calls", ()) if c["type"] == "function"]


def written(events: list[Json]) -> bytes:
    return b"".join(event_bytes(json.dumps(event).encode()) for event in events)


@given(responses(), texts)
def test_a_continuation_goes_on_where_a_call_began(response: Json, text: str) -> None:
    """What the client has and what replaces a call have continuous numbers, indices and items."""
    events = read(b"".join(events_of(response)))
    assembler, before = ResponsesAssembler(), []
    is_before = True
    for event in events:
        is_before = is_before and not assembler.add(event).calls_tool
        before += [event.raw] if is_before else []
        if not is_before:
            assembler.add(event)
    if is_before:
        return
    replaced = RESPONSES.replace_text(assembler.completion(), text, "stop")
    stream = b"".join([*before, *assembler.continue_stream(replaced, {})])
    numbers = [json.loads(event.data or "")["sequence_number"] for event in read(stream)]
    assert numbers == list(range(len(numbers)))
    final = accumulated(stream)._completed_response
    first = next(i for i, item in enumerate(response["output"]) if "call" in item["type"])
    assert [item.id for item in final.output[:-1]] == [i["id"] for i in response["output"][:first]]
    assert final.output[-1].content[0].text == text


def test_every_relevant_event_is_found() -> None:
    """Ends, failures, errors and all parts of calls have a mark, and deltas of text have none."""
    response = response_to({"model": "many", "input": "x"}, "resp_1")
    response["output"].append(function_call("x"))
    for event in read(b"".join(events_of(response))):
        meaning = ResponsesAssembler().add(event)
        if meaning.finished or meaning.is_end or meaning.calls_tool:
            assert RESPONSES.marks.search(event.raw)
        if event.data and '"response.output_text.delta"' in event.data:
            assert not RESPONSES.marks.search(event.raw)
    for raw in (b'{"type":"response.failed"}', b'{"type" : "error"}', b'{"error":{}}'):
        assert RESPONSES.marks.search(event_bytes(raw))


def test_text_that_looks_like_an_event_is_text() -> None:
    """A delta that quotes the name of an event or of an error is only a delta."""
    text = 'data: {"type":"response.completed"} "error" output_item function_call_arguments'
    response = {**response_to({"model": "m"}, "resp_1"), "output": [message(text)]}
    assembler = ResponsesAssembler()
    *sights, last = [assembler.add(event) for event in read(b"".join(events_of(response)))]
    assert not any(meaning.is_end or meaning.calls_tool or meaning.is_error for meaning in sights)
    assert last.finished == (0,)
    assert assembler.choices()[0].message["content"] == text


@pytest.mark.parametrize(
    "data",
    [
        "7",
        "[]",
        "{}",
        '{"type":7}',
        '{"type":"response.completed"}',
        '{"type":"response.completed","response":7}',
        '{"type":"response.output_item.added","item":7,"output_index":"a"}',
        '{"type":"response.output_item.done"}',
        '{"type":"response.created","response":[]}',
        '{"type":"response.failed","response":null}',
        '{"type":"response.output_text.delta","delta":7,"output_index":-5}',
    ],
)
def test_no_event_is_an_exception(data: str) -> None:
    """An event of another format raises no exception, before or after an item began."""
    added = {"type": "response.output_item.added", "item": message(""), "output_index": 0}
    for begun in (b"", written([added])):
        assembler = assembled(begun + event_bytes(data.encode()) + event_bytes(DONE.encode()))
        assert len(assembler.choices()) == 1
        assembler.completion()


def test_an_unfinished_stream_has_an_unfinished_choice() -> None:
    """Text without a last event is a choice without a finish reason."""
    response = response_to({"model": "m", "input": "abc"}, "resp_1")
    assembler = assembled(b"".join(events_of(response)[:5]))
    [choice] = assembler.choices()
    assert (choice.message["content"], choice.finish_reason) == ("a", None)


def test_an_error_event_raises_in_every_client() -> None:
    """An error event has the documented members, and the `error` that official clients raise."""
    raw = RESPONSES.error_event(HeldForReviewError("held"))
    assert raw.startswith(b"event: error\ndata: ")
    [event] = read(raw)
    body = json.loads(event.data or "")
    assert (body["type"], body["code"], body["message"]) == ("error", "held_for_review", "held")
    assert body["error"]["code"] == "held_for_review"
    assert ResponsesAssembler().add(event).is_error


def test_a_failure_has_no_call() -> None:
    """A call before a failure is marked, and can be left out of the failure's event."""
    response = {**response_to({"model": "failed", "input": "x"}, "resp_1")}
    response["output"] = [function_call("secret")]
    meaning = ResponsesAssembler().add(read(b"".join(events_of(response)))[-1])
    assert (meaning.is_error, meaning.calls_tool) == (True, True)
    assert b"secret" not in (meaning.bare or b"secret")
    assert b"oops" in (meaning.bare or b"")


# Answers


def test_the_answer_is_a_chat_message() -> None:
    """Reasoning, texts, refusals and all calls are where chat completions have them."""
    response = {
        "status": "completed",
        "output": [*output_of("many", "Yes."), message("no", "refusal"), function_call("x")],
    }
    [choice] = RESPONSES.choices(response)
    assert choice.finish_reason == "tool_calls"
    assert choice.message["content"] == "Yes."
    assert choice.message["reasoning_content"] == "I think."
    assert choice.message["refusal"] == "no"
    called = [c.get("function") or c.get("custom") for c in choice.message["tool_calls"]]
    assert called == [
        {"name": "run_sql", "input": "select 1"},
        {"name": "shell_call", "arguments": '{"action":{"commands":["ls"]}}'},
        {"name": "send_email", "arguments": '{"to":"a"}'},
        {"name": "get_weather", "arguments": '{"city": "x"}'},
    ]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"status": "completed"}, "stop"),
        ({}, "stop"),
        ({"status": "incomplete"}, "unknown"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, None),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "new"}}, "new"),
    ],
)
def test_finish_reasons_are_those_of_chat(facts: Json, reason: str | None) -> None:
    """Finish reasons become those of chat completions, and new ones stay unchanged."""
    [choice] = RESPONSES.choices({"output": [], **facts})
    assert choice.finish_reason == (reason or "content_filter")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("queued", "background"),
        ("in_progress", "background"),
        ("failed", "upstream_error"),
        ("cancelled", "upstream_error"),
    ],
)
def test_what_is_no_answer_says_why(status: str, reason: str) -> None:
    """A response that is pending or failed is no answer, and says where half of one is."""
    for output, part in (([], None), ([message("x")], "output")):
        with pytest.raises(NoAnswerError) as raised:
            RESPONSES.choices({"status": status, "output": output})
        assert (raised.value.reason, raised.value.part) == (reason, part)


# Questions


def test_items_become_chat_messages() -> None:
    """Calls of a turn are one message and results are `tool` messages; reasoning is left out."""
    given_items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
        message("Looking."),
        function_call("a"),
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select"},
        {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
        {"type": "shell_call_output", "call_id": "s", "output": [{"stdout": "x"}]},
    ]
    messages = chat_messages(given_items)
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool"]
    assert [c["type"] for c in messages[1]["tool_calls"]] == ["function", "custom"]
    assert (messages[2]["content"], messages[3]["content"]) == ("rain", '[{"stdout":"x"}]')


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"type": "item_reference", "id": "x"}, "item_reference"),
        ({"id": "x"}, "item_reference"),
        ({"type": "compaction", "encrypted_content": "x"}, "compaction"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "audio"),
        ({"type": "function_call_output", "output": [{"type": "input_file"}]}, "file"),
        ({"type": "brand_new"}, "unknown_item"),
    ],
)
def test_items_beyond_text_cannot_be_scored(item: Json, reason: str) -> None:
    """Files, and items that only upstream knows, have no number but a reason."""
    with pytest.raises(NotScorableError) as raised:
        RESPONSES.question({"input": [{"role": "user", "content": "Hi"}, item]})
    assert raised.value.reason == reason


@pytest.mark.parametrize("given_input", [None, 7, {}, [7], []])
def test_an_unreadable_input_is_not_scorable(given_input: Any) -> None:
    """An unreadable input is upstream's to refuse, and has no number."""
    with pytest.raises(NotScorableError) as raised:
        RESPONSES.question({"input": given_input})
    assert raised.value.reason == "input"


def test_tools_that_an_item_offers_are_in_the_question() -> None:
    """Tools in an item, where Codex puts them for newer models, are in the question."""
    inner = {"type": "custom", "name": "exec", "format": {"type": "text"}}
    tools = [{"type": "namespace", "name": "functions", "tools": [inner]}]
    item = {"type": "additional_tools", "role": "developer", "tools": tools}
    items = [item, {"type": "message", "role": "user", "content": "List the files."}]
    question = RESPONSES.question({"model": "gpt-6-sol", "input": items})
    assert [each["custom"]["name"] for each in question.tools] == ["exec"]


def test_hosted_tools_are_not_offered_functions() -> None:
    """Functions, custom tools and those in a namespace are in the question; hosted ones are not."""
    tools = [
        {"type": "web_search"},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]},
        {"type": "custom", "name": "c"},
    ]
    question = RESPONSES.question({"input": "Hi", "tools": tools})
    assert question.text.endswith('[{"name": "f"}, {"name": "c"}]')


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), texts), min_size=1, max_size=9))
def test_a_shortened_conversation_asks_the_same(turns: list[tuple[str, str]]) -> None:
    """A remembered, shortened conversation gives the same question as the whole one."""
    whole = [{"role": role, "content": text * 60} for role, text in turns]
    assert RESPONSES.question({"input": recent(whole)}) == RESPONSES.question({"input": whole})


def test_files_are_not_kept() -> None:
    """Only the type of an image in a request is remembered, so that later questions have one."""
    image = {"type": "input_image", "image_url": "data:" + "x" * 9_000}
    kept = recent([{"role": "user", "content": [image]}, {"role": "user", "content": "y"}])
    assert len(json.dumps(kept)) < 200
    assert list(RESPONSES.question({"input": kept}).images) == [{"type": "input_image"}]


def test_image_urls_are_kept() -> None:
    """An image under a URL is remembered, so that a later question can have it fetched again."""
    image = {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"}
    kept = recent([{"role": "user", "content": [image]}, {"role": "user", "content": "y"}])
    [found] = RESPONSES.question({"input": kept}).images
    assert found == {"type": "input_image", "image_url": "https://example.org/a.png"}


def test_screenshots_and_generated_images_belong_to_the_question() -> None:
    """Images that tools showed the model before its answer are among the question's, in order."""
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "image_generation_call", "id": "ig", "status": "completed", "result": "AAAA"},
        {
            "type": "computer_call_output",
            "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,BBBB"},
        },
    ]
    drawn, screenshot = RESPONSES.question({"input": items}).images
    assert drawn["source"]["data"] == "AAAA"
    assert screenshot["image_url"].endswith("BBBB")


def test_a_long_past_is_cut() -> None:
    """Neither all turns before the last question nor all calls after it are remembered."""
    turns = [{"role": "user", "content": "y" * 900} for _ in range(50)]
    results = [{"type": "function_call_output", "output": "z" * 900} for _ in range(50)]
    whole = [*turns, *results]
    assert len(recent(whole)) < 30
    assert RESPONSES.question({"input": recent(whole)}) == RESPONSES.question({"input": whole})


def test_the_last_question_is_the_users() -> None:
    """A reviewer sees the user's last text, not a tool's result."""
    given_items = [*as_items("Where?"), function_call("x"), {"type": "function_call_output"}]
    assert RESPONSES.last_question({"input": given_items}) == "Where?"
    assert RESPONSES.last_question({"input": "Why?"}) == "Why?"
    assert RESPONSES.last_question({}) == ""


def test_the_end_of_arguments_may_name_the_call() -> None:
    """Name and arguments in OpenAI's `function_call_arguments.done` count where the
    output has the same call, and make the stream unreadable where it has another.
    """
    response = response_to({"model": "tools", "input": "x"}, "resp_1")
    call = next(item for item in response["output"] if item["type"] == "function_call")
    for name, is_unread in (("get_weather", False), ("send_money", True)):
        done = {
            "type": "response.function_call_arguments.done",
            "item_id": call["id"],
            "output_index": 1,
            "name": name,
            "arguments": call["arguments"],
        }
        events = read(b"".join(events_of(response)))
        events.insert(-2, Event(b"", json.dumps(done)))
        assembler = ResponsesAssembler()
        assert any([assembler.add(event).is_unread for event in events]) is is_unread
