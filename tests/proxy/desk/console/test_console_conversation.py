"""Conversations as the console reads them from stored bytes, in every format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.formats.conversation import Part, read_reply, read_request, tools_of

IMAGE = "data:image/png;base64,iVBORw0KGgo="
CALL = {"function": {"name": "look_up", "arguments": '{"q":1}'}}
EXCHANGES: dict[str, tuple[Any, list[tuple[str, str, str]]]] = {
    "/chat/completions": (
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {"type": "image_url", "image_url": {"url": IMAGE}},
                    ],
                },
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "content": "a lamp"},
            ]
        },
        [
            ("system", "text", "Be brief."),
            ("user", "text", "What is this?"),
            ("user", "image", IMAGE),
            ("assistant", "call", '{"q":1}'),
            ("tool", "text", "a lamp"),
        ],
    ),
    "/completions": ({"prompt": "Once upon"}, [("user", "text", "Once upon")]),
    "/responses": (
        {
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]},
                {"type": "function_call", "name": "look_up", "arguments": "{}", "call_id": "c"},
                {"type": "function_call_output", "call_id": "c", "output": "a lamp"},
                {"type": "item_reference", "id": "x"},
            ],
        },
        [
            ("system", "text", "Be brief."),
            ("user", "image", IMAGE),
            ("assistant", "call", "{}"),
            ("tool", "text", "a lamp"),
            ("user", "note", "an item of type item_reference"),
        ],
    ),
    "/messages": (
        {
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": "iVBORw0KGgo=",
                            },
                        }
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm"},
                        {"type": "tool_use", "name": "look_up", "input": {"q": 1}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "content": "a lamp"}]},
            ],
        },
        [
            ("system", "text", "Be brief."),
            ("user", "image", IMAGE),
            ("assistant", "thought", "hm"),
            ("assistant", "call", '{"q":1}'),
            ("tool", "text", "a lamp"),
        ],
    ),
}


@pytest.mark.parametrize("path", EXCHANGES)
def test_a_request_is_read_in_its_own_format(path: str) -> None:
    """Instructions, texts, images, reasoning, calls and results are read in their order."""
    request, expected = EXCHANGES[path]
    turns = read_request(json.dumps(request).encode(), path, "")
    assert [(t.role, p.kind, p.text) for t in turns for p in t.parts] == expected


@pytest.mark.parametrize(
    ("path", "completion"),
    [
        (
            "/chat/completions",
            {"choices": [{"index": 0, "message": {"content": "A lamp.", "tool_calls": [CALL]}}]},
        ),
        (
            "/responses",
            {
                "object": "response",
                "status": "completed",
                "output": [
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "A lamp."}],
                    },
                    {"type": "function_call", "name": "look_up", "arguments": '{"q":1}'},
                ],
            },
        ),
        (
            "/messages",
            {
                "type": "message",
                "content": [
                    {"type": "text", "text": "A lamp."},
                    {"type": "tool_use", "name": "look_up", "input": {"q": 1}},
                ],
                "stop_reason": "tool_use",
            },
        ),
    ],
)
def test_a_reply_is_read_in_its_own_format(path: str, completion: Any) -> None:
    """Text and calls of a reply are read in every format."""
    [turn] = read_reply(json.dumps(completion).encode(), path)
    assert turn.parts == (Part("text", "A lamp."), Part("call", '{"q":1}', "look_up"))


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"[]", b"null", b"{", b"[" * 100_000, b'{"messages": 7}', None]
)
def test_unreadable_exchanges_are_still_shown(body: bytes | None) -> None:
    """An unreadable request is shown by its last question, an unreadable reply as it is."""
    [turn] = read_request(body, "/chat/completions", "why?")
    assert turn.parts == (Part("text", "why?"),)
    [reply] = read_reply(body or b"", "/chat/completions")
    assert [part.kind for part in reply.parts] == ["text"]


@pytest.mark.parametrize("item", [7, None, ["x"], {"role": 7, "content": {"a": 1}}, {"type": []}])
def test_a_message_of_any_shape_is_read(item: Any) -> None:
    """A message of any shape is shown to the reviewer, since upstream accepted it."""
    turns = read_request(json.dumps({"messages": [item]}).encode(), "/chat/completions", "")
    assert all(isinstance(part.text, str) for turn in turns for part in turn.parts)
    assert turns


def test_tools_are_named_in_every_format() -> None:
    """Tools are named whichever way a format writes them."""
    tools = [{"function": {"name": "a"}}, {"type": "function", "name": "b"}, {"type": "web"}, 7]
    assert tools_of(json.dumps({"tools": tools}).encode()) == ["a", "b", "web"]
