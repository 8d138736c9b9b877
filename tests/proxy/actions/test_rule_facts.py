"""Rules on what a reply is like, and rules in shadow: matched, reported and recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import StartProxy
from tests.running.live_proxy import members_in, question
from tests.servers.faulty_upstream import FaultyUpstream

ACTION = "x-pinocchio-action"
Json = dict[str, Any]


def policy(when: str, more: str = "") -> str:
    """Return a policy that blocks where the condition holds."""
    rule = f"{{name: such, when: {when}, then: block{more}}}"
    return f"{{version: 1, name: facts, rules: [{rule}], default: deliver}}"


def reply(message: Json) -> Json:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {"object": "chat.completion", "model": "m", "choices": [choice]}


# --- refusal and length -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ({"content": None, "refusal": "I can't help with that."}, "block"),
        ({"content": "I can't help with that.", "refusal": None}, "deliver"),
        ({"content": "Sure.", "refusal": ""}, "deliver"),
    ],
)
def test_a_refusal_is_what_upstream_calls_one(
    start_proxy: StartProxy, upstream: FaultyUpstream, message: Json, action: str
) -> None:
    """A refusal is what upstream marks as `refusal`; the text does not count."""
    proxy = start_proxy(policy=policy("{refusal: true}"))
    response = proxy.ask("?", "told", reply=reply(message))
    assert response.headers[ACTION] == action


@pytest.mark.parametrize(("text", "action"), [("x" * 19, "deliver"), ("x" * 20, "block")])
@pytest.mark.parametrize("is_stream", [False, True])
def test_length_counts_the_characters_of_the_text(
    start_proxy: StartProxy, upstream: FaultyUpstream, text: str, action: str, is_stream: bool
) -> None:
    """Length counts characters of the text alone, of a stream once it is whole."""
    proxy = start_proxy(policy=policy("{length: {at_least: 20}}"))
    response = proxy.ask(text.replace("x", "é"), stream=is_stream)
    assert response.headers[ACTION] == action


def test_length_leaves_tool_calls_and_thoughts_aside(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """Length adds up parts of the content and leaves out arguments and reasoning."""
    proxy = start_proxy(policy=policy("{length: 4}"))
    parts = [{"type": "text", "text": "ab"}, {"type": "image"}, {"type": "text", "text": "cd"}]
    message = {"content": parts, "reasoning_content": "hm", "tool_calls": []}
    assert proxy.ask("?", "told", reply=reply(message)).headers[ACTION] == "block"
    assert proxy.ask("abcde").headers[ACTION] == "deliver"


# --- rules in shadow ----------------------------------------------------------------------------


SHADOWING = """
version: 1
name: facts
rules:
  - {name: strict, when: {confidence: {below: 0.6}}, then: block, shadow: true}
  - {name: long, when: {length: {at_least: 100}}, then: {hold: {queue: long}}, shadow: true}
  - {name: unsure, when: {confidence: {below: 0.3}}, then: clarify}
default: deliver
"""
STRICT = {"rule": "strict", "action": "block"}
LONG = {"rule": "long", "action": "hold"}


@pytest.mark.parametrize(
    ("text", "action", "shadowed"),
    [
        ("p=0.9", "deliver", None),
        ("p=0.5", "deliver", [STRICT]),
        ("p=0.1", "clarify", [STRICT]),
        ("p=0.1" + "x" * 100, "clarify", [STRICT, LONG]),
    ],
)
def test_what_a_rule_in_shadow_would_have_done_is_told_and_recorded(
    start_proxy: StartProxy,
    upstream: FaultyUpstream,
    text: str,
    action: str,
    shadowed: list[Json] | None,
) -> None:
    """The next rules decide; member and record name the rule in shadow and its action."""
    proxy = start_proxy(policy=SHADOWING)
    response = proxy.ask(text)
    member = response.json()["pinocchio"]
    assert (response.headers[ACTION], member.get("shadowed")) == (action, shadowed)
    assert proxy.recorded(member["request_id"], "shadowed") == [shadowed]


def test_rules_in_shadow_count_once_for_all_choices_and_in_streams(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A rule in shadow is reported once for all choices, and in streams alike."""
    proxy = start_proxy(policy=SHADOWING)
    completion = proxy.openai.chat.completions.create(**question("p=0.5|p=0.55|p=0.9"), n=3)
    assert (completion.model_extra or {})["pinocchio"]["shadowed"] == [STRICT]
    stream = proxy.ask("p=0.5", stream=True)
    assert members_in(stream.content)[-1]["shadowed"] == [STRICT]


def test_an_escalation_keeps_what_was_said_about_the_first_reply(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """Facts and shadows are recorded for the first reply, before the escalation."""
    text = SHADOWING.replace("then: clarify", "then: {escalate: {to: say p=0.95}}")
    proxy = start_proxy(policy=text)
    member = proxy.ask("p=0.1").json()["pinocchio"]
    assert (member["confidence"], member["escalated_from"]) == (0.95, "ok")
    assert member["shadowed"] == [STRICT]
    [facts] = proxy.recorded(member["request_id"], "facts")
    assert [(each["confidence"], each["model"]) for each in facts] == [(0.1, "ok")]


# --- the record ---------------------------------------------------------------------------------


def test_the_record_keeps_the_facts_and_no_text(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """The record has all that rules can look at, with the marks and the risk of
    calls, for a later replay; arguments of tools are text and are not in it.
    """
    proxy = start_proxy()
    tool = {"type": "function", "function": {"name": "send_email"}}
    headers = {"x-pinocchio-tags": "vip,beta", "x-pinocchio-domain": "law"}
    response = proxy.ask("secret p=0.2", "tools", headers=headers, tools=[tool])
    [facts] = proxy.recorded(response.headers["x-pinocchio-request-id"], "facts")
    assert facts == [
        {
            "finish_reason": "tool_calls",
            "tools": ["send_email"],
            "tool_marks": [[["swapped", "city"], ["not_looked_up"]]],
            "tool_risks": ["high"],
            "tags": ["beta", "vip"],
            "domain": "law",
        }
    ]
    several = proxy.ask("p=0.2|p=0.9", n=2)
    [facts] = proxy.recorded(several.headers["x-pinocchio-request-id"], "facts")
    assert [each.get("confidence") for each in facts] == [None, 0.9], "the lowest has a column"
    assert {each["n"] for each in facts} == {2}
    assert b"secret" not in proxy.store_path.read_bytes()


def test_names_that_no_database_takes_lose_nothing(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """Half a surrogate pair in a tool's name is escaped; calls beyond the limit are not kept."""
    proxy = start_proxy()
    for count, name in ((1, "\\ud83d"), (3_000, "search")):
        call = {"type": "function", "function": {"name": name, "arguments": "{}"}}
        body = json.dumps(question("?", "told", reply=reply({"tool_calls": [call] * count})))
        got = proxy.post_raw(body.replace("\\\\ud", "\\ud").encode())
        [facts] = proxy.recorded(got.headers["x-pinocchio-request-id"], "facts")
        assert (facts[0]["tools"] == ["\ud83d"]) if count == 1 else (facts is None)
