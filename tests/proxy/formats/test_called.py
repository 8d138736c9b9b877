"""Calls of tools in members that no API has are found one by one."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.formats.events.called import tool_calls

PAY = {"name": "pay", "arguments": '{"amount":1}'}
SEND = {"name": "send", "arguments": '{"to":"a"}'}


@pytest.mark.parametrize(("actions", "names"), [([PAY, SEND], ["pay", "send"]), (PAY, ["pay"])])
def test_calls_in_an_unknown_member_are_each_found(actions: Any, names: list[str]) -> None:
    """A list in an unknown member is as many calls, an object is one, each with its arguments."""
    found = tool_calls({"role": "assistant", "content": "Done.", "actions": actions})
    assert [call.name for call in found] == names
    assert found[0].arguments == PAY["arguments"]
