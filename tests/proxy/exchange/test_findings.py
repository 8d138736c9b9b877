"""The calibrator's findings besides the number reach the client, on every surface."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from calibrator import Item, Score, UnsupportedSentence
from tests.conftest import StartProxy
from tests.running.live_proxy import LiveProxy, WordScorer, members_in
from tests.running.messages_client import ask as ask_message
from tests.running.messages_client import asked, member_in, proxies_before
from tests.running.responses_requests import ask, completion, final_of
from tests.servers.messages_upstream import MessagesUpstream

Json = dict[str, Any]
SUPPORT, BASIS = "x-pinocchio-support", "x-pinocchio-basis"
STATUS, REASON = "x-pinocchio-confidence-status", "x-pinocchio-confidence-reason"
FOUND = (
    "p=0.2 support=0.12344 basis=context,computed act=refusal facts=needed contradicted=noon,two",
    {
        "support": 0.1234,
        "basis": ["context", "computed"],
        "act": "refusal",
        "needs_facts": True,
        "unsupported": [
            {
                "sentence": "p=0.2 support=0.12344 basis=context,computed act=refusal facts=needed "
                "contradicted=noon,two",
                "words": ["noon", "two"],
                "kind": "contradicted",
            }
        ],
    },
)
TOLD: list[tuple[str, Json]] = [
    FOUND,
    ("p=0.7", {"basis": ["likeness"]}),
    ("p=0.7 support=1.0 basis=facts,context", {"support": 1.0, "basis": ["context", "facts"]}),
    ("p=0.7 act=code", {"basis": ["likeness"], "act": "code"}),
    ("p=0.7 facts=needed", {"basis": ["likeness"], "needs_facts": True}),
]


def found_by(source: Json) -> Json:
    """Return the findings in a member or in one of its choices."""
    names = ("support", "basis", "unsupported", "needs_facts", "act")
    return {name: source[name] for name in names if name in source}


def last_seen(proxy: LiveProxy) -> Item:
    assert isinstance(proxy.scorer, WordScorer)
    return proxy.scorer.seen[-1]


def member_of_chat(reply: httpx.Response, is_stream: bool) -> Json:
    member: Json = members_in(reply.content)[0] if is_stream else reply.json()["pinocchio"]
    return member


# The member


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(("answer", "found"), TOLD)
def test_a_chat_completion_has_all_findings(
    proxy: LiveProxy, answer: str, found: Json, is_stream: bool
) -> None:
    """The member has the findings at its top and in its choice, and nothing that was not found."""
    member = member_of_chat(proxy.ask(answer, stream=is_stream), is_stream)
    [choice] = member["choices"]
    assert found_by(member) == found_by(choice) == found


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_response_has_all_findings(start_responses: StartProxy, is_stream: bool) -> None:
    """On `/v1/responses` the member has the same findings as for chat."""
    answer, found = FOUND
    body = ask(start_responses(), "ok", answer, stream=is_stream).body
    member = (final_of(body) if is_stream else json.loads(body))["pinocchio"]
    assert found_by(member) == found_by(member["choices"][0]) == found


def test_a_legacy_completion_has_all_findings(start_responses: StartProxy) -> None:
    """On `/v1/completions`, where the answer begins with a space, the findings are the same."""
    answer, found = FOUND
    member = json.loads(completion(start_responses(), answer).body)["pinocchio"]
    [quoted] = found["unsupported"]
    found = {**found, "unsupported": [{**quoted, "sentence": f" {answer}"}]}
    assert found_by(member) == found_by(member["choices"][0]) == found


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_message_has_all_findings(
    tmp_path_factory: pytest.TempPathFactory, is_stream: bool
) -> None:
    """On `/v1/messages` the findings are the same, in the finish event of a stream."""
    answer, found = FOUND
    with MessagesUpstream() as upstream, proxies_before(upstream, tmp_path_factory) as start:
        member = member_in(ask_message(start(), asked(answer, stream=is_stream)), is_stream)
    assert found_by(member) == found_by(member["choices"][0]) == found


def test_the_least_sure_choice_speaks_for_all(proxy: LiveProxy) -> None:
    """With several choices, the member's top and the headers have the least sure one's findings."""
    reply = proxy.ask("p=0.9 support=0.95|p=0.2 support=0.1 basis=context|p=0.6", n=3)
    member = reply.json()["pinocchio"]
    assert found_by(member) == {"support": 0.1, "basis": ["context"]}
    assert [each.get("support") for each in member["choices"]] == [0.95, 0.1, None]
    assert (reply.headers[SUPPORT], reply.headers[BASIS]) == ("0.1000", "context")


def test_what_is_quoted_is_bounded(start_proxy: StartProxy) -> None:
    """However much a scorer quotes, at most five sentences of 300 characters are sent."""
    proxy = start_proxy(scorer=Quoting())
    member = proxy.ask("p=0.3").json()["pinocchio"]
    assert len(member["unsupported"]) == 5
    for each in member["unsupported"]:
        assert len(each["sentence"]) == 300
        assert len(each["words"]) == 10
        assert {len(word) for word in each["words"]} == {60}
        assert each["kind"] == "missing"
    assert member["basis"] == ["context"]
    assert "support" not in member
    assert "act" not in member


class Quoting(WordScorer):
    """Quotes without end, gives unknown names, and an impossible support."""

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        found = super().score_batch(items)
        for each in found:
            each.unsupported = (
                UnsupportedSentence("x" * 10_000, ("y" * 1_000,) * 50, "rumoured"),
            ) * 100
            each.basis, each.act, each.support = ("context", "gossip\r\n"), "sings", float("nan")
        return found


# The headers


def test_headers_have_support_and_basis(proxy: LiveProxy) -> None:
    """Headers have the support with four decimals and the
    basis with commas; without context there is no support.
    """
    headers = proxy.ask("p=0.4 support=0.123456 basis=computed,context").headers
    assert (headers[SUPPORT], headers[BASIS]) == ("0.1235", "context,computed")
    plain = proxy.ask("p=0.4").headers
    assert (plain.get(SUPPORT), plain[BASIS]) == (None, "likeness")


def test_no_confidence_means_no_basis(start_proxy: StartProxy) -> None:
    """A reply without a confidence has no basis, neither in headers nor in the member."""
    reply = start_proxy(calibrator={"checkpoint": "none"}, scorer=None).ask("p=0.4")
    assert BASIS not in reply.headers
    member = reply.json()["pinocchio"]
    assert (member["confidence"], found_by(member)) == (None, {})
    assert found_by(member["choices"][0]) == {}


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        ("p=0.7 task=unfamiliar", "unfamiliar", "unfamiliar_task"),
        ("p=0.7 truncated unread=context_not_read", "truncated", "context_not_read"),
        ("p=0.7 truncated task=unfamiliar", "truncated", "long_text"),
        ("p=0.7 truncated unread=Not.a.word", "truncated", "long_text"),
    ],
)
def test_a_number_with_a_reservation_has_its_reason(
    proxy: LiveProxy, answer: str, status: str, reason: str
) -> None:
    """An unfamiliar task, or a part that was not read, is the number's status and reason."""
    reply = proxy.ask(answer)
    assert (reply.headers[STATUS], reply.headers[REASON]) == (status, reason)
    assert reply.headers["x-pinocchio-confidence"] == "0.7000"
    member = reply.json()["pinocchio"]
    assert (member["confidence"], member["status"], member["reason"]) == (0.7, status, reason)
    assert member["choices"][0]["status"] == status


# The conversation


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_scorer_gets_the_conversation(proxy: LiveProxy, is_stream: bool) -> None:
    """All messages before a chat's reply reach the scorer, instructions among them."""
    messages = [
        {"role": "system", "content": "We close at noon."},
        {"role": "user", "content": "p=0.7"},
    ]
    proxy.http.post(
        "/v1/chat/completions", json={"model": "ok", "messages": messages, "stream": is_stream}
    )
    assert last_seen(proxy).messages == messages


def test_instructions_of_other_surfaces_are_messages_too(
    start_responses: StartProxy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Responses' `instructions` and Anthropic's `system` reach the scorer as system messages."""
    proxy = start_responses()
    ask(proxy, "ok", "p=0.7", instructions="We close at noon.")
    rules = {"role": "system", "content": "We close at noon."}
    assert last_seen(proxy).messages[0] == rules
    with MessagesUpstream() as upstream, proxies_before(upstream, tmp_path_factory) as start:
        proxy = start()
        ask_message(proxy, asked("p=0.7", system="We close at noon."))
        assert [each["role"] for each in last_seen(proxy).messages] == ["system", "user"]
        assert last_seen(proxy).messages[0] == rules


def test_the_beginning_of_a_very_long_conversation_is_not_looked_at(
    start_responses: StartProxy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of a long conversation the last 100,000 characters
    count, and for a continued response what is remembered.
    """
    turns = [("user", "first " * 20_000), ("assistant", "ok"), ("user", "second " * 20_000)]
    messages = [{"role": role, "content": text} for role, text in (*turns, ("user", "p=0.7"))]
    with MessagesUpstream() as upstream, proxies_before(upstream, tmp_path_factory) as start:
        proxy = start()
        ask_message(proxy, {"model": "ok", "max_tokens": 9, "messages": messages})
        seen = repr(last_seen(proxy).messages)
    assert ("second" in seen, "first" in seen) == (True, False)
    proxy = start_responses()
    texts = ("first " * 2_000, "second " * 2_000, "p=0.7")
    opening = [{"role": "user", "content": text} for text in texts]
    id = json.loads(ask(proxy, "ok", opening).body)["id"]
    ask(proxy, "ok", "and now? p=0.7", previous_response_id=id)
    seen = repr(last_seen(proxy).messages)
    assert ("and now?" in seen, "second" in seen, "first" in seen) == (True, True, False)


def test_attach_off_sends_no_findings(start_proxy: StartProxy) -> None:
    """With `attach` off neither headers nor body have any finding."""
    proxy = start_proxy(attach={"headers": False, "body": False})
    reply = proxy.ask(FOUND[0])
    assert not [name for name in reply.headers if name.startswith("x-pinocchio")]
    assert b"pinocchio" not in reply.content
