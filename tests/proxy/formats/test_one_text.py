"""The usual completion is recognized by its shape, and any other is looked through."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.formats.events.readings import (
    differs_by_case,
    has_stray_call,
    is_ambiguous,
    is_one_text,
)

Json = dict[str, Any]
CALL = {"id": "c", "type": "function", "function": {"name": "refund", "arguments": "{}"}}


def answer(
    around: Json | None = None, beside: Json | None = None, in_message: Json | None = None
) -> Json:
    message = {"role": "assistant", "content": "Paris.", "refusal": None} | (in_message or {})
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
    completion = {
        "id": "a",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "usage": {"n": 1},
    }
    return completion | {"choices": [choice | (beside or {})]} | (around or {})


@pytest.mark.parametrize("logprobs", [None, {"content": [{"token": "Paris"}]}])
def test_one_message_of_text_is_clear(logprobs: Any) -> None:
    completion = answer(beside={"logprobs": logprobs})
    assert is_one_text(completion)
    assert not has_stray_call(completion)
    assert not differs_by_case(completion)


@pytest.mark.parametrize(
    "completion",
    [
        answer({"tool_calls": [CALL]}),
        answer({"id": {"tool_calls": [CALL]}}),
        answer(beside={"tool_calls": [CALL]}),
        answer(beside={"index": [CALL]}),
        answer({"Choices": []}),
        answer(beside={"Message": {"content": "no"}}),
        answer(in_message={"Content": "no"}),
    ],
)
def test_what_readers_could_take_for_two_things_is_not_passed_over(completion: Json) -> None:
    assert not is_one_text(completion)
    assert is_ambiguous(completion)


@pytest.mark.parametrize(
    "completion",
    [
        answer(in_message={"tool_calls": [CALL]}),
        answer(in_message={"content": [{"type": "text", "text": "Paris."}]}),
        answer({"choices": answer()["choices"] * 2}),
        answer({"x_provider": "p"}),
        {"choices": None},
        {},
    ],
)
def test_what_has_another_shape_is_looked_through(completion: Json) -> None:
    assert not is_one_text(completion)
    assert is_ambiguous(completion) == (has_stray_call(completion) or differs_by_case(completion))
