"""Folding on a held reply's page, which begins with the user's last message."""

from __future__ import annotations

import json

from proxy.desk.console.display import before_the_request, show_turns
from proxy.formats.conversation import Part, Turn, read_request

RULES = "Be careful. " * 500


def turn(role: str, text: str) -> Turn:
    return Turn(role, (Part("text", text),))


def test_long_instructions_are_folded() -> None:
    """Long instructions are folded; short ones and the user's messages are not."""
    turns = [turn("system", RULES), turn("system", "Be kind."), turn("user", RULES)]
    assert [each.folded for each in show_turns(turns)] == [len(RULES), None, None]


def test_the_page_begins_at_the_last_request() -> None:
    """A long conversation before the last message is folded; a short one is not."""
    last = [turn("user", "List the files."), turn("assistant", "Looking.")]
    long = [turn("user", "a" * 2_000), turn("tool", "b" * 2_000)]
    assert before_the_request([*long, *last]) == 2
    assert before_the_request([turn("user", "Hello"), *last]) == 0
    assert before_the_request([turn("system", RULES), *last]) == 0
    assert before_the_request([]) == 0


def test_reminders_are_shown_as_system_messages() -> None:
    """Reminders in the user's message are shown in a message of the system's before it."""
    blocks = [
        {"type": "text", "text": "<system-reminder>It is Friday.</system-reminder>"},
        {"type": "text", "text": "List the files."},
    ]
    body = json.dumps({"messages": [{"role": "user", "content": blocks}]}).encode()
    assert read_request(body, "/messages", "") == [
        turn("system", "It is Friday."),
        turn("user", "List the files."),
    ]
