"""Edits of held replies: only what the reviewer changed differs, and the reply stays valid."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types import Completion
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from proxy.desk.decisions import schema_check
from proxy.desk.decisions.editing import edit_reply, editable
from proxy.errors import UnusableEditError
from proxy.formats.base.edits import tool_schemas
from proxy.http.wire.json_rewrite import REMOVED, rewrite_json
from proxy.store.reviews.held_replies import HeldReply
from tests.proxy.store.test_store import REPLY

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}
CHAT_TOOL = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
FUNCTION = {"type": "function", "name": "weather", "parameters": WEATHER}
CHAT = (
    b'{"id": "c", "object": "chat.completion", "created": 1, "model": "m", "x": 1.0e5,\n "choices":'
    b' [{"index": 0, "message": {"role": "assistant", "content": "o\\u0061ld", "refusal": null}, '
    b'"logprobs": null, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, '
    b'"completion_tokens": 1, "total_tokens": 2}}'
)
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


@pytest.fixture(autouse=True)
def patient_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the process that checks a schema time to start on a busy machine."""
    monkeypatch.setattr(schema_check, "LIMIT_S", 60)


def held(path: str, reply: Any, **request: Any) -> HeldReply:
    body = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
    return replace(REPLY, path=path, reply=body, request=json.dumps(request).encode())


def chat(*messages: Any, finish_reason: str = "stop", **more: Any) -> dict[str, Any]:
    choices = [
        {"index": n, "message": {"role": "assistant", **m}, "finish_reason": finish_reason, **more}
        for n, m in enumerate(messages)
    ]
    return {**json.loads(CHAT), "choices": choices}


def refusal(reply: HeldReply, content: Any) -> tuple[str, str | None]:
    with pytest.raises(UnusableEditError) as caught:
        edit_reply(reply, content)
    return caught.value.message, caught.value.param


# Texts


def test_only_the_text_changes() -> None:
    """Every other byte of the reply stays: numbers as written, white space, escapes."""
    assert edit_reply(held("/chat/completions", CHAT), "new ä\n") == CHAT.replace(
        b'"o\\u0061ld"', '"new ä\\n"'.encode()
    )


def test_what_was_about_the_old_text_goes_with_it() -> None:
    """What was about the old text is removed: log-probabilities, citations, refusal, truncation."""
    cut = chat(
        {"content": None, "refusal": "no", "annotations": [{"type": "url_citation"}]},
        finish_reason="length",
        logprobs={"content": []},
    )
    cut["choices"][0]["logprobs"] = {"content": [{"token": "n"}]}
    [choice] = json.loads(edit_reply(held("/chat/completions", cut), "yes"))["choices"]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "yes", "refusal": None, "annotations": []},
        "finish_reason": "stop",
        "logprobs": None,
    }


def test_each_choice_has_a_text() -> None:
    reply = held("/chat/completions", chat({"content": "a"}, {"content": "b"}))
    texts = [c["message"]["content"] for c in json.loads(edit_reply(reply, ["a", "c"]))["choices"]]
    assert texts == ["a", "c"]
    assert refusal(reply, "c") == ("the reply has 2 texts, not 1", "content")


def test_completions_have_their_text_in_another_place() -> None:
    choice = {"text": "old", "index": 0, "logprobs": {"tokens": []}, "finish_reason": "length"}
    reply = {"id": "x", "object": "text_completion", "created": 1, "model": "m"}
    new = edit_reply(held("/completions", reply | {"choices": [choice]}), "new")
    whole = Completion.model_validate_json(new)
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("new", "stop")


def responses(*output: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": list(output),
        **more,
    }


def spoken(*texts: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": parts,
        **more,
    }


def test_responses_keep_one_text_and_their_other_items() -> None:
    """One text replaces all messages' texts; reasoning and calls stay, a cut reply is complete."""
    thought = {"id": "rs_1", "type": "reasoning", "summary": []}
    reply = responses(
        thought,
        spoken("one", "two", status="incomplete"),
        {"id": "fc", "type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        spoken("three"),
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
        output_text="onetwothree",
    )
    new = json.loads(edit_reply(held("/responses", reply), "whole"))
    assert Response.model_validate(new).output_text == "whole"
    assert (new["status"], new["incomplete_details"], new["output_text"]) == (
        "completed",
        None,
        "whole",
    )
    assert new["output"][0] == thought
    assert new["output"][1]["status"] == "completed"
    assert new["output"][2] == reply["output"][2]
    assert new["output"][3]["content"] == []


def test_messages_keep_one_text_and_their_other_blocks() -> None:
    """One text replaces all texts of a message; calls stay, and a cut reply is complete."""
    call = {"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Oslo"}}
    reply = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "a"}, call, {"type": "text", "text": "b"}],
        "stop_reason": "max_tokens",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    new = json.loads(edit_reply(held("/messages", reply), "whole"))
    assert new["stop_reason"] == "end_turn"
    assert new["content"] == [{"type": "text", "text": "whole"}, call]
    called = {"text": "whole", "tool_calls": {"arguments": {"city": "Bergen"}}}
    both = json.loads(edit_reply(held("/messages", reply), called))
    assert both["content"][1]["input"] == {"city": "Bergen"}
    assert both["content"][0]["text"] == "whole"


@pytest.mark.parametrize(
    ("path", "request_fields"),
    [
        (
            "/chat/completions",
            {"response_format": {"type": "json_schema", "json_schema": {"schema": WEATHER}}},
        ),
        ("/responses", {"text": {"format": {"type": "json_schema", "schema": WEATHER}}}),
        ("/messages", {"output_config": {"format": {"type": "json_schema", "schema": WEATHER}}}),
    ],
)
def test_a_json_reply_must_fit_its_schema(path: str, request_fields: Any) -> None:
    """Text that is no JSON, or does not fit the schema, is refused with the mistake's place."""
    replies = {
        "/chat/completions": chat({"content": "{}"}),
        "/responses": responses(spoken("{}")),
        "/messages": {"type": "message", "content": [{"type": "text", "text": "{}"}]},
    }
    reply = held(path, replies[path], **request_fields)
    assert b"Oslo" in edit_reply(reply, '{"city": "Oslo"}')
    message, where = refusal(reply, "Oslo")
    assert (message.startswith("the client asked for JSON, which this is not"), where) == (
        True,
        "content",
    )
    assert "$.days: 0 is less than the minimum" in refusal(reply, '{"city": "x", "days": 0}')[0]


def test_a_json_object_is_any_object() -> None:
    reply = held(
        "/chat/completions", chat({"content": "{}"}), response_format={"type": "json_object"}
    )
    assert edit_reply(reply, '{"a": 1}')
    assert "asked for a JSON object" in refusal(reply, "[1]")[0]


# Calls


def test_arguments_are_edited_in_the_form_they_have() -> None:
    """Arguments stay a JSON string for OpenAI and an object for Anthropic; ids and names stay."""
    reply = held(
        "/chat/completions",
        chat({"content": None, "tool_calls": [CALL]}, finish_reason="tool_calls"),
        tools=[CHAT_TOOL],
    )
    new = ChatCompletion.model_validate_json(edit_reply(reply, {"arguments": {"city": "Oslo"}}))
    [call] = new.choices[0].message.tool_calls or []
    assert call.id == "call_1"
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("weather", '{"city":"Oslo"}')
    as_text = '{"city":  "Oslo"}'
    assert (
        as_text
        in json.loads(edit_reply(reply, [{"name": "weather", "arguments": as_text}]))["choices"][0][
            "message"
        ]["tool_calls"][0]["function"]["arguments"]
    )

    item = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
    reply = held("/responses", responses(item), tools=[FUNCTION])
    [out] = json.loads(edit_reply(reply, {"arguments": {"city": "Oslo"}}))["output"]
    assert out == item | {"arguments": '{"city":"Oslo"}'}


def test_custom_tools_take_text() -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
    reply = held("/chat/completions", chat({"content": None, "tool_calls": [custom]}))
    assert b'"SELECT 2"' in edit_reply(reply, {"arguments": "SELECT 2"})
    assert refusal(reply, {"arguments": {"a": 1}}) == ("sql takes a text", "content[0].arguments")


def test_calls_that_ran_upstream_are_not_edited() -> None:
    """Only the client's calls are offered: those of a provider's own tools have already run."""
    searched = {"type": "web_search_call", "id": "ws", "status": "completed"}
    item = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
    found = editable(held("/responses", responses(searched, item)))
    assert found is not None
    assert [call.name for call in found.calls] == ["weather"]


def test_calls_of_several_choices_are_not_edited() -> None:
    """Calls of several choices can only be released or rejected, as an edit would be ambiguous."""
    called = {"content": None, "tool_calls": [CALL]}
    reply = held("/chat/completions", chat(called, called), tools=[CHAT_TOOL])
    assert "has 0 calls that can be edited" in refusal(reply, {"arguments": {}})[0]


@pytest.mark.parametrize(
    ("content", "mistake", "where"),
    [
        ({"arguments": {}}, "'city' is a required property", "content[0].arguments"),
        ({"arguments": {"city": 5}}, "$.city: 5 is not of type 'string'", "content[0].arguments"),
        ({"arguments": "{"}, "the arguments are no JSON", "content[0].arguments"),
        ({"arguments": "[]"}, "a JSON object", "content[0].arguments"),
        ({"arguments": 5}, "a JSON object", "content[0].arguments"),
        (
            {"name": "rm", "arguments": {}},
            "the request offers no tool 'rm'",
            "content[0].name",
        ),
        ({"name": ["x"], "arguments": {}}, "the request offers no tool", "content[0].name"),
        ({"arguments": {}, "type": "x"}, "a call has no 'type'", "content[0]"),
        ([{"arguments": {}}] * 2, "the reply has 1 calls that can be edited, not 2", "content"),
        ("prose", "the reply has no text", "content"),
        ([], "content is a text", "content"),
        ({}, "content is a text", "content"),
        (5, "content is a text", "content"),
        ([{"x": 1}], "content is a text", "content"),
        ({"text": {"arguments": {}}}, "content is a text", "content"),
    ],
)
def test_an_edit_that_would_break_the_reply(content: Any, mistake: str, where: str) -> None:
    """An edit that would break the reply is refused, with what is wrong and where."""
    calls = chat({"content": None, "tool_calls": [CALL]}, finish_reason="tool_calls")
    message, place = refusal(held("/chat/completions", calls, tools=[CHAT_TOOL]), content)
    assert mistake in message
    assert place == where


def test_an_empty_text_is_no_reply() -> None:
    assert "reject it instead" in refusal(held("/chat/completions", CHAT), " \n")[0]


@pytest.mark.parametrize(
    "reply", [b"[]", b"no JSON", b"{}", b'{"choices": [{}]}', b'{"choices":5}']
)
def test_what_is_no_reply_is_not_edited(reply: bytes) -> None:
    broken = replace(REPLY, path="/chat/completions", reply=reply)
    assert "cannot be edited" in refusal(broken, "text")[0]


# A client's schema


def test_tools_in_a_namespace_have_their_schemas() -> None:
    """Tools in a namespace and a tool beside it have their schemas, each by its own name."""
    numbers, texts = {"type": "number"}, {"type": "string"}
    inner = {"type": "function", "name": "inner", "parameters": numbers}
    space = {"type": "namespace", "name": "space", "tools": [inner]}
    beside = {"type": "function", "name": "beside", "parameters": texts}
    assert tool_schemas({"tools": [space, beside]}) == {"inner": numbers, "beside": texts}


def mistake_in(value: Any, schema: Any) -> str | None:
    """Return the message about a value's mistake, or None if it fits the schema."""
    checks = schema_check.SchemaChecks()
    checks.add(value, schema, ValueError)
    try:
        checks.run()
    except ValueError as error:
        return str(error)
    return None


def test_a_schema_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that would run for years is ended, and a reference loads nothing."""
    evil = {"type": "string", "pattern": "^(a+)+$"}
    with monkeypatch.context() as patch:
        patch.setattr(schema_check, "LIMIT_S", 0.7)
        assert "could not be checked" in str(mistake_in("a" * 40 + "!", evil))
    remote = {"$ref": "http://127.0.0.1:1/schema.json"}
    assert mistake_in({}, remote) == "its schema cannot be used"
    assert mistake_in({}, {"$ref": "#"}) is not None
    assert "its schema is none" in str(mistake_in({}, {"type": "nonsense"}))
    assert mistake_in({}, True) is None


def test_many_schemas_take_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls share the time for their schemas: forty endless ones are ended at once."""
    monkeypatch.setattr(schema_check, "LIMIT_S", 1.5)
    checks = schema_check.SchemaChecks()
    for number in range(40):
        pattern = {"type": "string", "pattern": "^(a+)+$"}
        checks.add("a" * 40 + "!", pattern, partial(_Refused, number))
    began = time.monotonic()
    with pytest.raises(_Refused, match="could not be checked"):
        checks.run()
    assert time.monotonic() - began < 30  # one by one it would be a minute


def test_the_first_invalid_value_is_reported() -> None:
    """The first mistake of several is reported, with its value."""
    checks = schema_check.SchemaChecks()
    for number, value in enumerate((1, 2, "x", "y")):
        checks.add(value, {"type": "integer"}, partial(_Refused, number))
    with pytest.raises(_Refused, match="'x' is not of type") as refused:
        checks.run()
    assert refused.value.args[0] == 2


class _Refused(Exception):
    pass


# Rewriting


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def places(value: Any, here: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, below in items:
        found.append((*here, key))
        if isinstance(below, dict | list):
            found += places(below, (*here, key))
    return found


@settings(max_examples=40)
@given(st.dictionaries(st.text(), JSON, min_size=1), JSON, st.data(), st.sampled_from([None, 1]))
def test_rewriting_changes_one_value(
    value: dict[str, Any], new: Any, data: st.DataObject, indent: int | None
) -> None:
    """What is read back differs in one place only, however the text is laid out."""
    place = data.draw(st.sampled_from(places(value)))
    text = json.dumps(value, indent=indent)
    expected = json.loads(text)
    inside = expected
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = new
    assert json.loads(rewrite_json(text, {place: new})) == expected


def test_rewriting_removes_adds_and_refuses() -> None:
    """Values can be removed and members added; places that do not exist are refused."""
    text = '{"a": [1, 2 , 3], "b": 1.50}'
    assert rewrite_json(text, {("a", 1): REMOVED}) == '{"a": [1, 3], "b": 1.50}'
    assert rewrite_json(text, {("a", 0): REMOVED, ("a", 2): 4}) == '{"a": [ 2 , 4], "b": 1.50}'
    assert rewrite_json(text, {("c",): None}) == '{"a": [1, 2 , 3], "b": 1.50,"c":null}'
    assert rewrite_json("{}", {("c",): 1}) == '{"c":1}'
    for place in (("a", 9), ("b", "x"), ("z", "x")):
        with pytest.raises(ValueError, match=r"."):
            rewrite_json(text, {place: 1})
    with pytest.raises(ValueError, match="nested too deeply"):
        rewrite_json('{"a":' * 5_000 + "1" + "}" * 5_000, {("a",) * 4_999: 1})
