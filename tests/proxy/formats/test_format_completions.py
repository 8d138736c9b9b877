"""Legacy completions: the same choices whole or streamed, and one prompt at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator import NotScorableError
from proxy.formats import COMPLETIONS
from proxy.formats.completions import CompletionsAssembler
from proxy.http.wire.json_splice import dumps
from proxy.http.wire.sse import EventReader, event_bytes

Json = dict[str, Any]
WITH_USAGE = {"stream_options": {"include_usage": True}}

logprobs = st.none() | st.builds(
    lambda tokens: {"tokens": tokens, "token_logprobs": [-0.5 for _ in tokens]},
    st.lists(st.text(max_size=3), max_size=3),
)


@st.composite
def completions(draw: st.DrawFn) -> Json:
    drawn = draw(st.lists(st.tuples(st.text(max_size=12), logprobs), min_size=1, max_size=3))
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1,
        "model": "m",
        "choices": [
            {"text": text, "index": i, "logprobs": values, "finish_reason": "stop"}
            for i, (text, values) in enumerate(drawn)
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }


def assembled(stream: list[bytes]) -> CompletionsAssembler:
    assembler = CompletionsAssembler()
    for event in EventReader().feed(b"".join(stream)):
        assembler.add(event)
    return assembler


@given(completions())
def test_a_stream_says_what_the_object_says(completion: Json) -> None:
    """A completion written as a stream and assembled again is the same completion."""
    assembler = assembled(COMPLETIONS.events(completion, WITH_USAGE))
    assert assembler.completion() == completion
    assert assembler.choices() == COMPLETIONS.choices(completion)
    assert assembler.model == "m"


@given(completions(), st.lists(st.integers(1, 40)))
def test_any_split_gives_the_same_choices(completion: Json, cuts: list[int]) -> None:
    """Choices and bytes are the same wherever the bytes are split."""
    stream = b"".join(COMPLETIONS.events(completion, {}))
    reader, assembler, seen, at = EventReader(), CompletionsAssembler(), b"", 0
    for size in [*cuts, len(stream)]:
        for event in reader.feed(stream[at : at + size]):
            assembler.add(event)
            seen += event.raw
        at += size
    assert seen == stream
    assert assembler.choices() == COMPLETIONS.choices(completion)


def test_every_relevant_event_is_found() -> None:
    """Finishes, errors and [DONE] have a mark, and pieces of text have none."""
    piece = {"choices": [{"text": "a", "index": 0, "logprobs": None, "finish_reason": None}]}
    finish = {"choices": [{"text": "", "index": 0, "finish_reason": "length"}]}
    assert not COMPLETIONS.marks.search(event_bytes(dumps(piece)))
    assert COMPLETIONS.marks.search(event_bytes(json.dumps(finish).encode()))
    assert COMPLETIONS.marks.search(event_bytes(b'{"error":{}}'))
    assert COMPLETIONS.marks.search(b"data: [DONE]\n\n")


def test_deltas_grow_choice_by_choice() -> None:
    """Texts and log-probabilities of interleaved choices grow separately; each finishes once."""
    assembler = CompletionsAssembler()
    sights = []
    for index, text, reason in [(0, "a", None), (1, "x", None), (0, "b", "stop"), (1, "y", "stop")]:
        logprobs_of_text = {"tokens": [text], "token_logprobs": [-1.0]}
        choice = {
            "index": index,
            "text": text,
            "logprobs": logprobs_of_text,
            "finish_reason": reason,
        }
        [event] = EventReader().feed(event_bytes(dumps({"id": "c", "choices": [choice]})))
        sights.append(assembler.add(event).finished)
    assert sights == [(), (), (0,), (1,)]
    assert [c.message["content"] for c in assembler.choices()] == ["ab", "xy"]
    assert assembler.choices()[1].logprobs == {
        "tokens": ["x", "y"],
        "token_logprobs": [-1.0, -1.0],
    }


@pytest.mark.parametrize(
    "chunk", ["[]", "7", "{}", '{"choices":7}', '{"choices":[7,{"index":"a","text":7}]}', "nan"]
)
def test_no_chunk_is_an_exception(chunk: str) -> None:
    """A chunk of another kind changes nothing and raises no exception."""
    assembler = assembled([event_bytes(chunk.encode())])
    assert all(choice.message["content"] == "" for choice in assembler.choices())


def test_the_question_is_the_prompt() -> None:
    """One prompt, alone or in a list, is the question and the user's last text."""
    for prompt in ("Why?", ["Why?"]):
        assert COMPLETIONS.question({"prompt": prompt}).text == "Why?"
        assert COMPLETIONS.last_question({"prompt": prompt}) == "Why?"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"prompt": ["a", "b"]}, "several_prompts"),
        ({"prompt": [[1], [2]]}, "several_prompts"),
        ({"prompt": [1, 2]}, "tokens"),
        ({"prompt": [[1, 2]]}, "tokens"),
        ({"prompt": []}, "prompt"),
        ({}, "prompt"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
    ],
)
def test_some_prompts_cannot_be_scored(payload: Json, reason: str) -> None:
    """A prompt that is no single text, or is repeated in the answer, has a reason for no number."""
    with pytest.raises(NotScorableError) as raised:
        COMPLETIONS.question(payload)
    assert raised.value.reason == reason


@pytest.mark.parametrize("completion", [{}, {"choices": 7}, {"choices": [{"message": {}}]}])
def test_what_is_no_completion_has_no_choices(completion: Json) -> None:
    """An object of another format, such as a chat completion, has no choices."""
    assert COMPLETIONS.choices(completion) == []


def test_the_placeholder_is_a_completion() -> None:
    """The placeholder has the id, the text and a filter's finish reason."""
    placeholder = COMPLETIONS.placeholder("Wait.", id="cmpl-held-1", created=5, model="m")
    [choice] = COMPLETIONS.choices(placeholder)
    assert (placeholder["id"], placeholder["object"]) == ("cmpl-held-1", "text_completion")
    assert (choice.message["content"], choice.finish_reason) == ("Wait.", "content_filter")
