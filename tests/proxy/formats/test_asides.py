"""What coding agents add beside the user's words
is no part of the question, but visible to people.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from calibrator import Item, load_scorer
from calibrator.text.asides import without_asides
from proxy.formats import CHAT, MESSAGES, RESPONSES, Format
from proxy.holds.binding import digest_of_request
from tests.proxy.holds.test_approvals import request_of

REMINDER = "<system-reminder>\nToday is Friday. Use TodoWrite.\n</system-reminder>"
BILLING = "x-anthropic-billing-header: cc_version=2.1.197; cc_entrypoint=cli; cch=1a2b3;"
BASH = [{"name": "Bash", "input_schema": {"type": "object"}}]


def claude_code(cch: str = "1a2b3") -> dict[str, Any]:
    """Return a request as Claude Code 2.1 writes it:
    with reminders, and agents listed afterwards.
    """
    return {
        "system": [
            {"type": "text", "text": BILLING.replace("1a2b3", cch)},
            {"type": "text", "text": "You are Claude Code. Working directory: /srv/app"},
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": REMINDER},
                    {"type": "text", "text": "List the files here."},
                ],
            },
            {"role": "system", "content": "Available agent types for the Agent tool: - claude"},
        ],
        "tools": BASH,
    }


def test_claude_codes_question_is_the_users_text() -> None:
    """Row, page and calibrator get the user's words without reminders or later instructions."""
    assert MESSAGES.last_question(claude_code()) == "List the files here."
    question = MESSAGES.question(claude_code())
    assert question.text.startswith("User request: List the files here.\n\n")
    assert "Friday" not in question.text
    assert "Available agent" not in question.text


def test_the_attribution_does_not_change_what_the_calibrator_reads() -> None:
    """The attribution, which changes with every request, is in no message of the conversation."""
    one, other = (MESSAGES.question(claude_code(cch)).all_messages() for cch in ("11111", "22222"))
    assert one == other
    assert "Working directory: /srv/app" in str(one)


def instructed(text: str) -> list[tuple[Format, dict[str, Any]]]:
    """Return requests with these instructions in each form in which they can be written."""
    asking: dict[str, Any] = {"role": "user", "content": "List the files here."}
    parts = [{"type": "text", "text": text}]
    found: list[tuple[Format, dict[str, Any]]] = [
        (MESSAGES, {"system": text, "messages": [asking]}),
        (MESSAGES, {"system": parts, "messages": [asking]}),
        (MESSAGES, {"messages": [asking, {"role": "system", "content": text}]}),
        (RESPONSES, {"instructions": text, "input": "List the files here."}),
        (CHAT, {"messages": [{"role": "system", "content": text}, *[asking] * 500]}),
    ]
    for role in ("system", "developer"):
        for content in (text, parts):
            turns = [{"role": role, "content": content}, asking]
            found += [(CHAT, {"messages": turns}), (RESPONSES, {"input": turns})]
    return found


@pytest.mark.parametrize("form", range(len(instructed(""))))
def test_the_attribution_counts_nowhere(form: int) -> None:
    """A changed attribution changes neither question, conversation nor digest, in any form."""
    readings: list[Any] = []
    for cch in ("1a2b3", "2b3c4"):
        text = f"{BILLING.replace('1a2b3', cch)}\nBe brief."
        format, payload = instructed(text)[form]
        question = format.question(payload)
        digest = digest_of_request(request_of(json.dumps(payload).encode(), format))
        readings.append((question.text, str(question.all_messages()), digest))
        assert format.last_question(payload) == "List the files here."
    assert readings[0] == readings[1]
    assert "billing" not in readings[0][0] + readings[0][1]


def test_additions_do_not_change_a_calls_confidence() -> None:
    """A call is scored as if reminder, attribution and later instructions were not there."""
    call = {"function": {"name": "Bash", "arguments": '{"command": "ls"}'}}
    reply = {"role": "assistant", "content": None, "tool_calls": [call]}
    plain = claude_code() | {"messages": [{"role": "user", "content": "List the files here."}]}
    plain["system"] = plain["system"][1:]
    items = []
    for payload in (plain, claude_code("11111"), claude_code("22222")):
        question = MESSAGES.question(payload)
        items.append(Item(question.text, "", tool_use=question.tool_use(reply)))
    scores = load_scorer("embedded").score_batch(items)
    assert len({score.confidence for score in scores}) == 1


def test_codexs_surroundings_are_not_the_question() -> None:
    """A message or block that describes Codex's surroundings is not the user's question."""
    around = "<environment_context>\n  <cwd>/srv/app</cwd>\n</environment_context>"
    messages = [
        {"role": "user", "content": [{"type": "input_text", "text": "Run the tests."}]},
        {"role": "user", "content": [{"type": "input_text", "text": around}]},
    ]
    assert RESPONSES.last_question({"input": messages}) == "Run the tests."
    assert RESPONSES.question({"input": messages}).text == "Run the tests."


@pytest.mark.parametrize("format", [CHAT, MESSAGES])
def test_results_after_the_question_do_not_replace_it(format: Format) -> None:
    """In the middle of a run, the user's last words stay the question."""
    result = {"type": "tool_result", "tool_use_id": "t", "content": "a.py"}
    messages = [
        {"role": "user", "content": "List the files here."},
        {"role": "assistant", "content": [{"type": "text", "text": "Looking."}]},
        {"role": "user", "content": [result, {"type": "text", "text": REMINDER}]},
    ]
    assert format.last_question({"messages": messages}) == "List the files here."


@pytest.mark.parametrize("format", [CHAT, MESSAGES])
def test_a_conversation_without_asides_is_read_as_it_is(format: Format) -> None:
    """Without anything to leave out, the calibrator gets the client's own message objects."""
    messages = [{"role": "user", "content": "Is 3 <4 and <b>bold</b>?"}]
    assert format.question({"messages": messages}).all_messages()[0] is messages[0]


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("Hello", "Hello"),
        (f"{REMINDER}\nHello", "Hello"),
        (f"a {REMINDER}{REMINDER} b", "a  b"),
        ("<system-reminder>without an end", "<system-reminder>without an end"),
        ("</system-reminder>a<system-reminder>b</system-reminder>", "</system-reminder>a"),
    ],
)
def test_the_users_own_words(text: str, own: str) -> None:
    """Whole blocks of reminders are left out; a block without an end is text."""
    assert without_asides(text) == own


def test_many_openings_take_linear_time() -> None:
    """A megabyte of openings without an end is read in linear time."""
    begun = time.perf_counter()
    without_asides("<system-reminder>" * 60_000)
    without_asides("<system-reminder></system-reminder>x" * 30_000)
    assert time.perf_counter() - begun < 1
