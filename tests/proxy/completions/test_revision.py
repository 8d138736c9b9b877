"""Revision: a model answers again after it is shown what is wrong with its reply."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from policies import PolicyError, parse_policy
from tests.conftest import StartProxy
from tests.running.live_proxy import members_in, post_raw, question
from tests.running.messages_client import ask as ask_for_message
from tests.running.messages_client import asked as message_asked
from tests.running.messages_client import member_in, proxies_before
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.messages_upstream import MessagesUpstream
from tests.servers.responses_upstream import ResponsesUpstream

Json = dict[str, Any]
SURER = "say better p=0.9"


def revising(options: str) -> str:
    """Return a policy that has replies below 0.5 revised."""
    rule = f"{{name: unsure, when: {{confidence: {{below: 0.5}}}}, then: {{revise: {options}}}}}"
    return f"{{version: 1, name: desk, rules: [{rule}], default: deliver}}"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_better_reply_is_delivered(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """The model sees its own reply and the reasons for doubt, and its second reply is delivered."""
    proxy = start_proxy(policy=revising(f"{{to: {SURER}}}"))
    got = proxy.post_raw(question("a p=0.1", stream=is_stream))
    first, second = (request.json() for request in upstream.requests)
    added = second["messages"][len(first["messages"]) :]
    assert [each["role"] for each in added] == ["assistant", "user"]
    assert added[0]["content"] == "a p=0.1"
    assert "a check found that it may be wrong" in added[1]["content"]
    member = members_in(got.body)[0] if is_stream else json.loads(got.body)["pinocchio"]
    assert (member["revised"], member["confidence"]) == (True, 0.9)
    assert got.headers["x-pinocchio-action"] == "escalate"
    assert b"better p=0.9" in got.body


def test_a_reply_that_is_not_better_is_dropped(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A model is asked up to `times` times; if no reply is better, the first is decided on."""
    proxy = start_proxy(policy=revising("{times: 2, otherwise: {annotate: {label: unsure}}}"))
    got = proxy.post_raw(question("a p=0.1", "say worse p=0.05"))
    assert [request.json()["model"] for request in upstream.requests] == ["say worse p=0.05"] * 3
    member = json.loads(got.body)["pinocchio"]
    assert "revised" not in member
    assert (member["label"], member["confidence"]) == ("unsure", 0.05)


def test_calls_are_answered_with_what_is_wrong(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """Each call of the reply gets a result that says that it was not executed."""
    proxy = start_proxy(policy=revising(f"{{to: {SURER}}}"))
    asked = question("p=0.1", "tools", tools=[{"type": "function", "function": {"name": "f"}}])
    got = proxy.http.post("/v1/chat/completions", json=asked)
    assert got.status_code == 200
    reply, *results = upstream.last.json()["messages"][len(asked["messages"]) :]
    ids = [call["id"] for call in reply["tool_calls"]]
    assert [(each["role"], each["tool_call_id"]) for each in results] == [("tool", i) for i in ids]
    assert all("Not executed" in each["content"] for each in results)


def test_several_choices_are_not_revised(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """A reply of several choices meets `otherwise` at once: none is the one to correct."""
    proxy = start_proxy(policy=revising("{otherwise: block}"))
    got: httpx.Response = proxy.http.post(
        "/v1/chat/completions", json=question("a p=0.1|b p=0.2", n=2)
    )
    assert got.json()["error"]["code"] == "blocked_by_policy"
    assert len(upstream.requests) == 1


def test_responses_are_revised(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """For `/v1/responses` an input of text becomes the first of several items."""
    proxy = start_responses(policy=revising(f"{{to: {SURER}}}"))
    got = post_raw(f"{proxy.base_url}/responses", {"model": "ok", "input": "a p=0.1"})
    items = responses_upstream.received[-1].json()["input"]
    assert [each["role"] for each in items] == ["user", "assistant", "user"]
    assert json.loads(got.body)["pinocchio"]["revised"]


def test_messages_are_revised(
    running_messages: MessagesUpstream, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """For `/v1/messages` the reply's blocks become the assistant's turn unchanged."""
    running_messages.forget()
    with proxies_before(running_messages, tmp_path_factory) as start:
        proxy = start(policy=revising(f"{{to: {SURER}}}"))
        got = ask_for_message(proxy, message_asked("a p=0.1"))
        first, second = (request.json() for request in running_messages.requests)
        reply, problems = second["messages"][len(first["messages"]) :]
        assert reply["content"][0]["text"] == "a p=0.1"
        assert "a check found" in problems["content"]
        assert member_in(got, is_stream=False)["revised"]


@pytest.mark.parametrize("options", ["{times: 0}", "{times: 4}", "{times: yes}", "{again: 1}"])
def test_invalid_revisions_are_refused(options: str) -> None:
    """A revision that makes no sense is refused with its place in the file."""
    with pytest.raises(PolicyError, match=r"then\.revise"):
        parse_policy(revising(options), "desk.yaml")
