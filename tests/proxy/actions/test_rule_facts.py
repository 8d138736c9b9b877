"""Rules on what a reply is like, and rules in shadow: matched, told to the client, recorded."""

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
    """The text of a reply is not guessed at: its member `refusal` counts."""
    proxy = start_proxy(policy=policy("{refusal: true}"))
    told = proxy.ask("?", "told", reply=reply(message))
    assert told.headers[ACTION] == action


@pytest.mark.parametrize(("text", "action"), [("x" * 19, "deliver"), ("x" * 20, "block")])
@pytest.mark.parametrize("is_stream", [False, True])
def test_length_counts_the_characters_of_the_text(
    start_proxy: StartProxy, upstream: FaultyUpstream, text: str, action: str, is_stream: bool
) -> None:
    """Characters, not bytes, of the text alone; of a stream, once it is whole."""
    proxy = start_proxy(policy=policy("{length: {at_least: 20}}"))
    told = proxy.ask(text.replace("x", "é"), stream=is_stream)
    assert told.headers[ACTION] == action


def test_length_leaves_tool_calls_and_thoughts_aside(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """Content in parts is added up; arguments and reasoning are not the text."""
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
    """The rules below decide; the member and the record name the rule and its action."""
    proxy = start_proxy(policy=SHADOWING)
    told = proxy.ask(text)
    member = told.json()["pinocchio"]
    assert (told.headers[ACTION], member.get("shadowed")) == (action, shadowed)
    assert proxy.recorded(member["request_id"], "shadowed") == [shadowed]


def test_rules_in_shadow_count_once_for_all_choices_and_in_streams(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """With several choices, what is said about any of them is said once; streams say the same."""
    proxy = start_proxy(policy=SHADOWING)
    completion = proxy.openai.chat.completions.create(**question("p=0.5|p=0.55|p=0.9"), n=3)
    assert (completion.model_extra or {})["pinocchio"]["shadowed"] == [STRICT]
    stream = proxy.ask("p=0.5", stream=True)
    assert members_in(stream.content)[-1]["shadowed"] == [STRICT]


def test_an_escalation_keeps_what_was_said_about_the_first_reply(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """Facts and shadows of the reply that the policy was first asked about are recorded."""
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
    """What rules can look at is there for a later replay, with the marks and the risk of calls;
    arguments of tools are text.
    """
    proxy = start_proxy()
    tool = {"type": "function", "function": {"name": "send_email"}}
    headers = {"x-pinocchio-tags": "vip,beta", "x-pinocchio-domain": "law"}
    told = proxy.ask("secret p=0.2", "tools", headers=headers, tools=[tool])
    [facts] = proxy.recorded(told.headers["x-pinocchio-request-id"], "facts")
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
    """Half a surrogate pair in a tool's name is escaped; too many calls are not kept."""
    proxy = start_proxy()
    for count, name in ((1, "\\ud83d"), (3_000, "search")):
        call = {"type": "function", "function": {"name": name, "arguments": "{}"}}
        body = json.dumps(question("?", "told", reply=reply({"tool_calls": [call] * count})))
        told = proxy.post_raw(body.replace("\\\\ud", "\\ud").encode())
        [facts] = proxy.recorded(told.headers["x-pinocchio-request-id"], "facts")
        assert (facts[0]["tools"] == ["\ud83d"]) if count == 1 else (facts is None)
