"""Completions and chunks: the same choices whole or streamed; no chunk raises an exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.formats import CHAT, Choice
from proxy.formats.chat import ChatAssembler
from proxy.http.wire.json_splice import dumps, json_object
from proxy.http.wire.sse import DONE, Event, EventReader, event_bytes

Json = dict[str, Any]
WITH_USAGE = {"stream_options": {"include_usage": True}}

texts = st.text(max_size=12)
calls = st.fixed_dictionaries(
    {
        "id": st.text(min_size=1, max_size=8),
        "type": st.just("function"),
        "function": st.fixed_dictionaries({"name": texts, "arguments": texts}),
    }
) | st.fixed_dictionaries(
    {
        "id": st.text(min_size=1, max_size=8),
        "type": st.just("custom"),
        "custom": st.fixed_dictionaries({"name": texts, "input": texts}),
    }
)
messages = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": texts | st.none()},
    optional={
        "refusal": texts | st.none(),
        "reasoning_content": texts,
        "tool_calls": st.lists(calls, min_size=1, max_size=3),
        "annotations": st.just([{"type": "url_citation"}]),
    },
)
logprobs = st.none() | st.builds(
    lambda tokens: {"content": [{"token": t, "logprob": -0.5} for t in tokens], "refusal": None},
    st.lists(texts, max_size=3),
)


@st.composite
def completions(draw: st.DrawFn) -> Json:
    drawn = draw(st.lists(st.tuples(messages, logprobs), min_size=1, max_size=3))
    choices = [
        {"index": i, "message": message, "logprobs": probs, "finish_reason": "stop"}
        for i, (message, probs) in enumerate(drawn)
    ]
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": draw(st.text(min_size=1, max_size=5)),
        "choices": choices,
        "usage": usage,
    }


def chunks_of(events: list[bytes]) -> list[Json]:
    reader = EventReader()
    data = [event.data for raw in events for event in reader.feed(raw)]
    assert reader.rest() == b""
    assert data[-1] == DONE
    return [json.loads(part or "") for part in data[:-1]]


def add(assembler: ChatAssembler, chunk: Json) -> list[int]:
    """Add a chunk; return the choices that it finishes.

    Checks that the format's marks find every chunk that concerns us.
    """
    raw = event_bytes(dumps(chunk))
    (event,) = EventReader().feed(raw)
    meaning = assembler.add(event)
    concerns_us = meaning.finished or meaning.is_end or meaning.is_error or meaning.calls_tool
    assert not concerns_us or CHAT.marks.search(raw)
    return list(meaning.finished)


def assembled(*chunks: Json) -> ChatAssembler:
    assembler = ChatAssembler()
    for chunk in chunks:
        add(assembler, chunk)
    return assembler


def whole(assembler: ChatAssembler) -> Choice:
    (choice,) = assembler.choices()
    return choice


def streamed(completion: Json, **payload: Any) -> list[Json]:
    return chunks_of(CHAT.events(completion, payload))


def delta(part: Json, index: int = 0, **more: Any) -> Json:
    return {"id": "c", "choices": [{"index": index, "delta": part, **more}]}


def message_of(*parts: Json) -> Json:
    (choice,) = assembled(*map(delta, parts)).choices()
    return choice.message


def tool_calls(*deltas: Any) -> Any:
    return message_of(*({"tool_calls": [each]} for each in deltas))["tool_calls"]


# --- whole and streamed -------------------------------------------------------------------------


@given(completions())
def test_streaming_a_completion_and_assembling_it_gives_it_back(completion: Json) -> None:
    """A completion written as chunks and assembled again has its choices, head and usage."""
    chunks = streamed(completion, **WITH_USAGE)
    assembler = assembled(*chunks)
    assert assembler.choices() == CHAT.choices(completion)
    assert assembler.completion() == completion


@given(completions(), st.randoms(use_true_random=False))
def test_interleaved_choices_are_separated(completion: Json, rng: Any) -> None:
    """With n > 1 the chunks of the choices may be interleaved in any way."""
    chunks = streamed(completion)
    waiting = [chunks[i : i + 2] for i in range(0, len(chunks), 2)]
    mixed = []
    while waiting:
        mixed.append(rng.choice(waiting).pop(0))
        waiting = [group for group in waiting if group]
    assert assembled(*mixed).choices() == CHAT.choices(completion)


@given(completions())
def test_the_member_and_the_usage_stand_where_clients_expect_them(completion: Json) -> None:
    """The member is in a finish chunk; usage comes last without choices, where it was asked for."""
    chunks = streamed({**completion, "pinocchio": {"a": 1}}, **WITH_USAGE)
    assert [chunk.get("pinocchio") for chunk in chunks][-2:] == [{"a": 1}, None]
    assert chunks[-2]["choices"][0]["finish_reason"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == completion["usage"]
    assert all("usage" not in chunk for chunk in streamed(completion))
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


def test_half_a_surrogate_pair_can_be_streamed() -> None:
    """Half a surrogate pair, which JSON can escape and UTF-8 cannot hold, can be streamed."""
    message = {"role": "assistant", "content": "\ud83d"}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    (back,) = assembled(*streamed({"id": "c", "choices": [choice]})).choices()
    assert back.message == message


# --- deltas -------------------------------------------------------------------------------------


def test_text_refusal_and_reasoning_grow() -> None:
    """Pieces of a message's strings are joined in order, each under its own name."""
    message = message_of(
        {"role": "assistant", "content": "", "refusal": None},
        {"reasoning_content": "hm"},
        {"reasoning_content": "m"},
        {"content": "a"},
        {"content": "b", "role": "assistant"},
        {"refusal": "no"},
        {"content": None},
    )
    assert message == {
        "role": "assistant",
        "content": "ab",
        "refusal": "no",
        "reasoning_content": "hmm",
    }


def test_unknown_members_of_a_delta_are_kept() -> None:
    """Unknown members of a delta are part of the message: objects merge, lists grow."""
    message = message_of(
        {"audio": {"id": "x", "data": "AA"}, "annotations": [1]},
        {"audio": {"id": "x", "data": "BB", "expires_at": 5}, "annotations": [2], "n": 1},
    )
    assert message == {
        "audio": {"id": "x", "data": "AABB", "expires_at": 5},
        "annotations": [1, 2],
        "n": 1,
    }


def test_parallel_calls_merge_by_index() -> None:
    """Pieces of calls with an index may alternate, and only the first has the id."""
    assert tool_calls(
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"x"'}},
        {"index": 1, "function": {"arguments": "{}"}},
        {"index": 0, "function": {"arguments": ":1}"}},
    ) == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]


def test_calls_without_an_index_are_separated_by_id() -> None:
    """Without an index another id begins another call, and no id or the same one continues it."""
    assert tool_calls(
        {"id": "a", "function": {"name": "f", "arguments": "1"}},
        {"function": {"arguments": "2"}},
        {"id": "b", "function": {"name": "g", "arguments": "3"}},
        {"id": "b", "function": {"arguments": "4"}},
        {"id": "", "function": {"arguments": "5"}},
    ) == [
        {"id": "a", "function": {"name": "f", "arguments": "12"}},
        {"id": "b", "function": {"name": "g", "arguments": "345"}},
    ]


def test_custom_tool_calls_are_kept() -> None:
    """Custom tools stream their input as text, and unknown members stay with their call."""
    assert tool_calls(
        {"index": 0, "id": "a", "type": "custom", "custom": {"name": "sh", "input": "rm"}},
        {"index": 0, "custom": {"input": " -r"}, "extra": {"signature": "x"}},
    ) == [
        {
            "id": "a",
            "type": "custom",
            "custom": {"name": "sh", "input": "rm -r"},
            "extra": {"signature": "x"},
        }
    ]


def test_indices_with_gaps_make_no_empty_calls() -> None:
    """Calls that an upstream counts from 1 have no empty call before them."""
    assert tool_calls({"index": 1, "id": "a", "function": {"name": "f"}}) == [
        {"id": "a", "function": {"name": "f"}}
    ]


@pytest.mark.parametrize("index", [10**9, 10**30, -1, "0", "x", 1.5, None, [], {}, True])
def test_hostile_call_indices_cost_nothing(index: Any) -> None:
    """A hostile index of a call builds no huge list and loses no call."""
    listed = tool_calls({"index": index, "id": "a", "function": {"name": "f", "arguments": "{}"}})
    assert listed == [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]


@pytest.mark.parametrize("index", [10**9, -1, "0", 1.5, None])
def test_hostile_choice_indices_cost_nothing(index: Any) -> None:
    """A hostile index of a choice gives one choice with its text, under a plausible index."""
    chunk = {"choices": [{"index": index, "delta": {"content": "a"}, "finish_reason": "stop"}]}
    assembler = ChatAssembler()
    (finished,) = add(assembler, chunk)
    assert whole(assembler).message == {"content": "a"}
    assert finished >= 0


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"choices": None},
        {"choices": {}},
        {"choices": "x"},
        {"choices": []},
        {"choices": [], "usage": {"total_tokens": 3}},
        {"choices": [None, 1, "x", []]},
        {"id": None, "model": 5, "usage": "x"},
    ],
)
def test_chunks_without_choices_finish_nothing(chunk: Json) -> None:
    """Chunks of usage, nulls and nonsense finish no choice."""
    assembler = ChatAssembler()
    assert add(assembler, chunk) == []
    assert assembler.choices() == []


@pytest.mark.parametrize(
    "part",
    [
        {"delta": None},
        {"delta": "x"},
        {"delta": {"tool_calls": None}},
        {"delta": {"tool_calls": "x"}},
        {"delta": {"tool_calls": [None, 1, "x"]}},
        {"delta": {"tool_calls": [{"index": 0, "function": None}]}},
        {"delta": {"tool_calls": [{"index": 0, "function": "x"}]}},
        {"delta": {"content": ["x"]}},
        {"delta": {"content": 5}},
        {"logprobs": "x"},
        {"logprobs": {"content": None}},
        {"finish_reason": 5},
    ],
)
def test_malformed_deltas_are_survived(part: Json) -> None:
    """A malformed part of a delta neither raises an exception nor hides what follows."""
    follow = {"choices": [{"index": 0, "delta": {"more": "x"}, "finish_reason": "stop"}]}
    assembler = ChatAssembler()
    assert add(assembler, {"choices": [{"index": 0, **part}]}) == []
    assert add(assembler, {"choices": [{"index": 0, **part}]}) == []
    assert add(assembler, follow) == [0]
    assert whole(assembler).message["more"] == "x"


def test_absurdly_nested_deltas_are_survived() -> None:
    """Two deltas nested to the JSON reader's limit do not exhaust the stack."""
    text = '{"a":' * 900 + "1" + "}" * 900
    chunk = {"choices": [{"delta": {"deep": json.loads(text)}, "finish_reason": None}]}
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    assembler = assembled(chunk, chunk)
    assert add(assembler, end) == [0]


def test_logprobs_grow_chunk_by_chunk() -> None:
    """The assembled completion has all log-probabilities of its chunks."""
    first = {"content": [{"token": "a"}], "refusal": None}
    second = {"content": [{"token": "b"}], "refusal": None}
    assembler = assembled(
        delta({"content": "a"}, logprobs=first),
        delta({"content": "b"}, logprobs=second),
        delta({}, logprobs=None),
    )
    (choice,) = assembler.choices()
    assert choice.logprobs == {"content": [{"token": "a"}, {"token": "b"}], "refusal": None}
    assert first == {"content": [{"token": "a"}], "refusal": None}


def test_a_choice_finishes_once() -> None:
    """A repeated finish_reason, for example on a usage chunk, is no second finish."""
    assembler = ChatAssembler()
    assert add(assembler, delta({"content": "a"}, finish_reason=None)) == []
    assert add(assembler, delta({}, finish_reason="length")) == [0]
    assert add(assembler, delta({}, finish_reason="stop")) == []
    assert whole(assembler).finish_reason == "length"


def test_the_head_is_the_first_chunks_and_the_usage_the_last() -> None:
    """id, created and unknown members are those of the first chunk that has an id."""
    assembler = assembled(
        {"choices": []},
        {"id": "x", "model": "m-2", "created": 5, "object": "chat.completion.chunk", "tier": "a"},
        {"id": "y", "model": "", "usage": {"total_tokens": 7}, "choices": []},
    )
    assert assembler.completion() == {
        "id": "x",
        "model": "m-2",
        "created": 5,
        "tier": "a",
        "object": "chat.completion",
        "choices": [],
        "usage": {"total_tokens": 7},
    }
    assert assembler.model == "m-2"


# --- whole completions --------------------------------------------------------------------------


def test_choices_of_a_completion() -> None:
    """Message, index and finish_reason are read; a choice without an index has its position."""
    completion = {
        "choices": [
            {"index": 1, "message": {"content": "a"}, "finish_reason": "stop"},
            {"message": {"content": "b"}, "finish_reason": None},
            {"index": "x", "message": {}, "finish_reason": 5},
        ]
    }
    assert CHAT.choices(completion) == [
        Choice(1, {"content": "a"}, "stop"),
        Choice(1, {"content": "b"}, None),
        Choice(2, {}, None),
    ]


@pytest.mark.parametrize(
    "completion",
    [
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{"text": "legacy"}]},
        {"choices": [{"message": "x"}]},
        {"choices": [{"message": {}}, {"message": None}]},
        {"error": {"message": "x"}},
    ],
)
def test_what_is_no_completion_has_no_choices(completion: Json) -> None:
    """A completion with one unreadable choice has no choices, so that nothing unread is scored."""
    assert CHAT.choices(completion) == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a":1}', {"a": 1}),
        (b'\xef\xbb\xbf {"a":1}\n', {"a": 1}),
        ('{"a":1}', {"a": 1}),
        (b"[1]", None),
        (b"", None),
        (b'{"a":', None),
        (b'{"a":"\xff"}', None),
        ('{"a":1}'.encode("utf-16"), None),
        ('{"a":1}'.encode("utf-16-be"), None),
        (b"[" * 100_000, None),
        (b'{"a":' + b"9" * 5_000 + b"}", None),
    ],
)
def test_json_object(data: bytes | str, expected: Json | None) -> None:
    """The reader returns an object in UTF-8, or None: nothing could be inserted into UTF-16."""
    assert json_object(data) == expected


# --- our member in a chunk ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'data: {"a":1.0}\n\n', b'data: {"a":1.0,"pinocchio":{"c":1}}\n\n'),
        (b'data:{"a":1} \r\n\r\n', b'data:{"a":1,"pinocchio":{"c":1}} \r\n\r\n'),
        (b"id: 3\ndata: {}\n: {}\n\n", b'id: 3\ndata: {"pinocchio":{"c":1}}\n: {}\n\n'),
        (b"event: x\nid: 3\ndata: {}\n\n", b'event: x\nid: 3\ndata: {"pinocchio":{"c":1}}\n\n'),
        (b'data: {\ndata: "a":1}\n\n', b'data: {\ndata: "a":1,"pinocchio":{"c":1}}\n\n'),
        (b"data: [DONE]\n\n", b"data: [DONE]\n\n"),
        (b"data: [1]\n\n", b"data: [1]\n\n"),
        (b": ping\n\n", b": ping\n\n"),
    ],
)
def test_annotating_an_event(raw: bytes, expected: bytes) -> None:
    """The member is inserted into the chunk; line ends and other fields of the event stay."""
    (event,) = EventReader().feed(raw)
    assert CHAT.annotate_event(event, {"c": 1}) == expected


def test_an_event_of_broken_utf8_can_be_annotated() -> None:
    """The member can be inserted into an event that is not UTF-8."""
    (event,) = EventReader().feed(b'data: {"a":"\xff"}\n\n')
    (annotated,) = EventReader().feed(CHAT.annotate_event(event, {"c": 1}))
    assert json.loads(annotated.data or "") == {"a": "\ufffd", "pinocchio": {"c": 1}}


def test_annotation_can_be_taken_out_again() -> None:
    """Without the member, a chunk has upstream's bytes."""
    raw = b'id: 1\r\ndata: {"id":"x", "n":1E5,"choices":[{"finish_reason":"stop"}]}\r\n\r\n'
    (event,) = EventReader().feed(raw)
    assert CHAT.annotate_event(event, {"c": 1}).replace(b',"pinocchio":{"c":1}', b"") == raw
    assert CHAT.annotate_event(Event(raw, None), {"c": 1}) == raw
