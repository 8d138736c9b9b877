"""Texts of answers in whole replies of chat, completions, responses and messages."""

from __future__ import annotations

from typing import Any

import pytest

from calibrator import message_text
from calibrator.text.replies import reply_messages, response_message
from proxy.formats import FORMATS

Json = dict[str, Any]


def message(**part: Any) -> Json:
    return {"type": "message", "role": "assistant", "content": [part]}


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}
HOSTED = {"type": "web_search_call", "id": "w", "action": {"query": "\ud83d K2"}}


def test_a_completion_gives_its_first_choice() -> None:
    """A completion's first choice and a single message are read."""
    message = {"role": "assistant", "content": "a"}
    several = {"choices": [{"message": message}, {"message": {**message, "content": "b"}}]}
    for response, text in (
        *((several, "a"), (message, "a")),
        ({"choices": [{"message": {"content": None}}]}, ""),
    ):
        assert message_text(response_message(response)) == text


@pytest.mark.parametrize(
    "response", [None, 5, ["a"], {"choices": []}, {"choices": "x"}, {"choices": [None]},
                 {"choices": [{"message": "x"}]}, {"choices": [{"message": [1]}]}],
)  # fmt: skip
def test_what_is_no_response_is_refused(response: Any) -> None:
    """Anything that is no response is refused with a ValueError."""
    with pytest.raises(ValueError, match=r"must be|has no choices"):
        response_message(response)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([message(type="output_text", text="a")], "a"),
        ([{"type": "reasoning", "summary": [{"text": "hm"}]}, message(text="a")], "hm\na"),
        ([message(type="refusal", refusal="I cannot.")], "I cannot."),
        ([message(text="a"), CALL], "a\n[f(a=1)]"),
        ([HOSTED], '[web_search_call(action={"query": "\ud83d K2"})]'),
        ([], ""),
        ([None, 5], ""),
    ],
)
def test_a_response_is_read_as_the_proxy_reads_it(items: list[Any], expected: str) -> None:
    """A response of `/v1/responses` is read as the proxy reads it."""
    response = {"object": "response", "status": "completed", "output": items}
    assert [*map(message_text, reply_messages(response))] == [expected]
    [format] = (each for each in FORMATS if each.name == "responses")
    assert message_text(format.choices(response)[0].message) == expected


USE = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}], "hm\na"),
        ([{"type": "text", "text": "a"}, USE], "a\n[f(a=1)]"),
        ([USE | {"type": "server_tool_use"}], "[f(a=1)]"),
        ([], ""),
        ([None, 5], ""),
    ],
)
def test_a_message_of_anthropics_is_read_as_the_proxy_reads_it(
    blocks: list[Any], expected: str
) -> None:
    """A message of `/v1/messages` is read as the proxy reads it."""
    reply = {"type": "message", "role": "assistant", "content": blocks}
    assert [*map(message_text, reply_messages(reply))] == [expected]
    [format] = (each for each in FORMATS if each.name == "messages")
    assert message_text(format.choices(reply)[0].message) == expected


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        ({}, "neither content nor tool calls$"),
        ({"error": {"message": "overloaded"}}, "only 'error'"),
        ({"choices": [{"mesage": {"content": "a"}}]}, "only 'mesage'"),
        ({"choices": [{"finish_reason": "stop"}]}, "only 'finish_reason'"),
        ({"choices": [{"delta": {"content": "a"}, "index": 0}]}, "only 'delta', 'index'"),
        ({"choices": [{"message": {"contnet": "a"}}]}, "only 'contnet'"),
        ({"output": "a"}, "only 'output'"),
        ({"object": "response", "status": "failed", "output": []}, "the response is failed"),
        ({"object": "response", "status": "in_progress", "output": []}, "there is no answer in it"),
    ],
)
def test_a_reply_without_content_is_refused(reply: Json, sentence: str) -> None:
    """A reply without content is refused and not read as empty."""
    for read in (reply_messages, response_message):
        with pytest.raises(ValueError, match=sentence):
            read(reply)
