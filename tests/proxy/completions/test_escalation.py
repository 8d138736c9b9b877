"""Escalation over several models: which are asked, which reply is kept, what the member says."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

import policies
from tests.builders.scripted_streams import recorded
from tests.conftest import StartProxy
from tests.running.live_proxy import (
    LiveProxy,
    RawReply,
    error_of,
    free_port,
    members_in,
    post_raw,
    question,
    streaming,
    text_in,
    until,
    without_member,
)
from tests.running.messages_client import ask as ask_for_message
from tests.running.messages_client import asked as message_asked
from tests.running.messages_client import member_in, proxies_before
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.messages_upstream import MessagesUpstream
from tests.servers.responses_upstream import ResponsesUpstream

Json = dict[str, Any]
PACKS = Path(policies.__file__).parent / "packs"
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
ID = "x-pinocchio-request-id"


def ladder(*models: str, keep: str = "best", otherwise: str = "") -> str:
    """Return a policy that escalates what is below 0.5 to these models, one after the other."""
    more = f", otherwise: {otherwise}" if otherwise else ""
    then = f"{{escalate: {{to: {json.dumps(models)}, keep: {keep}{more}}}}}"
    rule = f"{{name: unsure, when: {{confidence: {{below: 0.5}}}}, then: {then}}}"
    return f"{{version: 1, name: desk, rules: [{rule}], default: deliver}}"


def asked_in_turn(upstream: FaultyUpstream) -> list[str]:
    return [request.json()["model"] for request in upstream.requests]


def member_of(reply: RawReply, is_stream: bool) -> Json:
    member: Json = members_in(reply.body)[0] if is_stream else json.loads(reply.body)["pinocchio"]
    return member


# Which models are asked


@pytest.mark.parametrize("is_stream", [False, True])
def test_models_are_asked_until_a_reply_is_sure(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """The first sure reply arrives unchanged, no further model is asked, calls are listed."""
    proxy = start_proxy(policy=ladder("say b p=0.2", "say c p=0.8", "say d p=0.9"))
    got = proxy.post_raw(question("a p=0.1", stream=is_stream))
    assert asked_in_turn(upstream) == ["ok", "say b p=0.2", "say c p=0.8"]
    direct = post_raw(
        f"{upstream.base_url}/chat/completions",
        question("a p=0.1", "say c p=0.8", stream=is_stream),
    )
    assert without_member(got.body) == direct.body
    assert got.headers["x-pinocchio-action"] == "escalate"
    member = member_of(got, is_stream)
    assert (member["confidence"], member["escalated_from"]) == (0.8, "ok")
    assert [(call["model"], call["confidence"]) for call in member["calls"]] == [
        ("ok", 0.1),
        ("say b p=0.2", 0.2),
        ("say c p=0.8", 0.8),
    ]
    assert [call.get("kept", False) for call in member["calls"]] == [False, False, True]


def test_a_sure_reply_asks_nobody_else(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """A sure first reply takes one call, and the member lists none."""
    proxy = start_proxy(policy=ladder("say b p=0.2", "say c p=0.8"))
    assert "calls" not in proxy.ask("p=0.9").json()["pinocchio"]
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("keep", "text", "confidence"), [("best", "a p=0.4", 0.4), ("last", "c p=0.3", 0.3)]
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_best_or_last_is_kept_where_none_is_sure(
    start_proxy: StartProxy, keep: str, text: str, confidence: float, is_stream: bool
) -> None:
    """Where no reply is sure, `best` keeps the surest of all and `last` the last one."""
    proxy = start_proxy(policy=ladder("say b p=0.2", "say c p=0.3", keep=keep))
    got = proxy.post_raw(question("a p=0.4", stream=is_stream))
    answer = json.loads(got.body) if not is_stream else None
    content = answer["choices"][0]["message"]["content"] if answer else text_in(got.body)
    assert content == text
    member = member_of(got, is_stream)
    assert (member["confidence"], member["action"]) == (confidence, "escalate")


@pytest.mark.parametrize("is_stream", [False, True])
def test_otherwise_comes_after_the_last(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """`otherwise` applies only where every model stays unsure, and to the surest reply."""
    proxy = start_proxy(policy=ladder("say b p=0.4", "say c p=0.2", otherwise="block"))
    response = proxy.ask("a p=0.1", stream=is_stream)
    assert error_of(response)["code"] == "blocked_by_policy"
    assert response.headers["x-pinocchio-confidence"] == "0.4000"
    assert len(upstream.requests) == 3
    row = recorded(proxy, response.headers[ID])
    assert (row["action"], row["escalated_from"], row["model"]) == ("block", "ok", "say b p=0.4")


def test_a_model_is_asked_once(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """The model that the client asked for is skipped in the ladder."""
    proxy = start_proxy(policy=ladder("say a p=0.1", "say b p=0.2", otherwise="block"))
    assert error_of(proxy.ask("?", "say a p=0.1"))["code"] == "blocked_by_policy"
    assert asked_in_turn(upstream) == ["say a p=0.1", "say b p=0.2"]


def test_every_choice_is_decided_again(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """With n > 1 one unsure choice escalates all; the reply whose lowest is higher is kept."""
    proxy = start_proxy(policy=ladder("say b p=0.3", "say c p=0.6"))
    member = proxy.ask("p=0.9|p=0.2", n=2).json()["pinocchio"]
    assert [choice["confidence"] for choice in member["choices"]] == [0.6, 0.6]
    assert [call["confidence"] for call in member["calls"]] == [0.2, 0.3, 0.6]
    assert [request.json()["n"] for request in upstream.requests] == [2, 2, 2]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_ladder_may_end_in_a_tool_call(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """A tool call of the kept reply arrives whole, as that model sent it."""
    proxy = start_proxy(policy=ladder("say b p=0.05", "tools", keep="last"))
    asked = question("p=0.1", tools=[TOOL], stream=is_stream)
    got = proxy.post_raw(asked)
    expected = post_raw(f"{upstream.base_url}/chat/completions", asked | {"model": "tools"})
    assert without_member(got.body) == expected.body
    assert b"get_weather" in got.body


# What is recorded


def test_what_was_paid_for_is_recorded(start_proxy: StartProxy) -> None:
    """The record has every call with its tokens, and the model whose reply was delivered."""
    proxy = start_proxy(policy=ladder("status-500", "say c p=0.8"))
    response = proxy.ask("a p=0.1")
    row = recorded(proxy, response.headers[ID])
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    assert json.loads(row["calls"]) == [
        {"model": "ok", "confidence": 0.1, "usage": usage},
        {"model": "status-500", "error": "upstream_status_500"},
        {"model": "say c p=0.8", "confidence": 0.8, "usage": usage, "kept": True},
    ]
    assert (row["model"], row["escalated_from"], row["action"]) == ("say c p=0.8", "ok", "escalate")
    assert recorded(proxy, proxy.ask("p=0.9").headers[ID])["calls"] is None


def test_a_client_that_left_is_on_record_with_its_calls(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A client that leaves cancels the running call; the record lists the models asked."""
    proxy = start_proxy(policy=ladder("say b p=0.2", "slow"))
    with pytest.raises(httpx.ReadTimeout):
        proxy.http.post("/v1/chat/completions", json=question("a p=0.1"), timeout=0.5)
    assert upstream.wait_for_request(3).is_cut_off(within_s=2)
    left = "status = 499"
    until(lambda: rows(proxy, left))
    [row] = rows(proxy, left)
    assert [(call["model"], call.get("error")) for call in json.loads(row["calls"])] == [
        ("ok", None),
        ("say b p=0.2", None),
        ("slow", "unfinished"),
    ]


def rows(proxy: LiveProxy, where: str) -> list[Json]:
    with sqlite3.connect(proxy.store_path) as database:
        database.row_factory = sqlite3.Row
        found = [dict(row) for row in database.execute(f"SELECT * FROM exchanges WHERE {where}")]
    database.close()
    return found


# Failures


@pytest.mark.parametrize("to", ["status-500", "hang-up", "cut", "html", "not-http", "no-finish"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_failed_call_is_passed_over(
    start_proxy: StartProxy, upstream: FaultyUpstream, to: str, is_stream: bool
) -> None:
    """Where a call fails the next model is asked, and the failed call is listed with its error."""
    failing = "broken-json" if (to, is_stream) == ("no-finish", False) else to
    proxy = start_proxy(policy=ladder(failing, "say c p=0.8"))
    got = proxy.post_raw(question("a p=0.1", stream=is_stream))
    assert got.headers["x-pinocchio-confidence"] == "0.8000"
    assert asked_in_turn(upstream) == ["ok", failing, "say c p=0.8"]
    _, failed, kept = member_of(got, is_stream)["calls"]
    assert failed["error"]
    assert kept["kept"]


@pytest.mark.parametrize("is_stream", [False, True])
def test_where_all_others_fail_the_first_reply_is_decided_again(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """Where all others fail the first reply is decided on, after one call of each model."""
    proxy = start_proxy(policy=ladder("status-500", "hang-up", keep="last"))
    got = proxy.post_raw(question("a p=0.1", stream=is_stream))
    direct = post_raw(
        f"{upstream.base_url}/chat/completions", question("a p=0.1", stream=is_stream)
    )
    assert without_member(got.body) == direct.body
    assert "escalated_from" not in member_of(got, is_stream)
    assert asked_in_turn(upstream)[:3] == ["ok", "status-500", "hang-up"]


def test_a_silent_model_is_passed_over(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """A model that is silent for the upstream's `timeout_s` is skipped."""
    proxy = start_proxy(policy=ladder("slow", "say c p=0.8"), upstream={"timeout_s": 0.3})
    calls = proxy.ask("a p=0.1").json()["pinocchio"]["calls"]
    assert [call.get("error") for call in calls] == [None, "upstream_timeout", None]
    assert upstream.wait_for_request(2).is_cut_off(within_s=2)


def test_a_refused_connection_is_passed_over(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A model whose upstream refuses connections is skipped."""
    proxy = start_proxy(
        policy=ladder("gone", "say c p=0.8"),
        upstreams={
            "gone": {"base_url": f"http://127.0.0.1:{free_port()}/v1"},
            "faulty": {"base_url": upstream.base_url},
        },
        models=({"match": "gone", "upstream": "gone"}, {"match": "*", "upstream": "faulty"}),
    )
    calls = proxy.ask("a p=0.1").json()["pinocchio"]["calls"]
    assert [call.get("error") for call in calls] == [None, "upstream_unreachable", None]


def test_a_slow_ladder_is_waited_for_with_pings(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """After the status is out, a later model's kept reply still arrives whole."""
    policy = ladder("say b p=0.2", "gated", keep="last")
    proxy = start_proxy(policy=policy, limits={"commit_after_s": 0.05})
    with streaming(proxy, "a p=0.1", "ok") as (_, parts):
        assert next(parts) == b": ping\n\n"
        upstream.wait_for_request(3).proceed()
        rest = b"".join(parts)
    assert text_in(rest) == "a p=0.1"
    assert members_in(rest)[0]["escalated_from"] == "ok"


# Other formats, and streams that have begun


@pytest.mark.parametrize("is_stream", [False, True])
def test_responses(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream, is_stream: bool
) -> None:
    """On `/v1/responses` the models are asked in the same order."""
    proxy = start_responses(policy=ladder("status-500", "say b p=0.2", "say c p=0.8"))
    body = {"model": "ok", "input": "a p=0.1", "stream": is_stream}
    got = post_raw(f"{proxy.base_url}/responses", body)
    models = [request.json()["model"] for request in responses_upstream.received]
    assert models == ["ok", "status-500", "say b p=0.2", "say c p=0.8"]
    assert got.headers["x-pinocchio-confidence"] == "0.8000"
    assert b'"escalated_from":"ok"' in got.body
    assert b"c p=0.8" in got.body


def test_a_fetched_response_asks_nobody(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """A fetched response goes to `otherwise` at once: there is no request to escalate."""
    proxy = start_responses(policy=ladder("say b p=0.8", otherwise="block"))
    asked = {"model": "ok", "input": "p=0.1", "background": True}
    made = proxy.http.post("/v1/responses", json=asked).json()
    proxy.http.get(f"/v1/responses/{made['id']}")
    fetched = proxy.http.get(f"/v1/responses/{made['id']}")
    assert error_of(fetched)["code"] == "blocked_by_policy"
    assert recorded(proxy, fetched.headers[ID])["calls"] is None
    assert [r.method for r in responses_upstream.received] == ["POST", "GET", "GET"]


@pytest.mark.parametrize("is_stream", [False, True])
def test_messages(
    running_messages: MessagesUpstream,
    tmp_path_factory: pytest.TempPathFactory,
    is_stream: bool,
) -> None:
    """On `/v1/messages` the bytes are the kept message's."""
    running_messages.forget()
    with proxies_before(running_messages, tmp_path_factory) as start:
        proxy = start(policy=ladder("status-529", "say b p=0.2", "say c p=0.8"))
        got = ask_for_message(proxy, message_asked("a p=0.1", stream=is_stream))
        direct = message_asked("a p=0.1", "say c p=0.8", stream=is_stream)
        assert without_member(got.body) == ask_for_message(running_messages, direct).body
        member = member_in(got, is_stream)
        errors = [call.get("error") for call in member["calls"]]
        assert errors == [None, "upstream_status_529", None, None]


# The pack, through the official client


@pytest.fixture
def cascade(start_proxy: StartProxy) -> LiveProxy:
    """Start a proxy with the pack and another strong model, as the pack's first lines explain."""
    text = (PACKS / "cascade.yaml").read_text()
    return start_proxy(policy=text.replace("gpt-5.6", '"say strong p=0.9"'))


def test_the_cascade_asks_the_strong_model_where_the_first_is_unsure(
    cascade: LiveProxy, upstream: FaultyUpstream
) -> None:
    """A sure reply takes one call; an unsure completion, stream or tool call is replaced."""
    create = cascade.openai.chat.completions.create
    assert create(**question("p=0.6")).choices[0].message.content == "p=0.6"
    assert len(upstream.requests) == 1
    completion = create(**question("p=0.5"))
    assert completion.choices[0].message.content == "strong p=0.9"
    assert (completion.model_extra or {})["pinocchio"]["escalated_from"] == "ok"
    chunks = list(create(**question("p=0.5"), stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "strong p=0.9"
    assert (chunks[-1].model_extra or {})["pinocchio"]["escalated_from"] == "ok"
    called = create(**question("p=0.5", "tools", tools=[TOOL]))
    assert called.choices[0].message.tool_calls is None
    sure = create(**question("p=0.7", "tools", tools=[TOOL]), stream=True)
    calls = [c for chunk in sure for c in chunk.choices[0].delta.tool_calls or []]
    assert "".join((c.function and c.function.arguments) or "" for c in calls)


def test_the_cascade_takes_choices_together(cascade: LiveProxy, upstream: FaultyUpstream) -> None:
    """With n = 2 one unsure choice is enough for one more call to the strong model."""
    create = cascade.openai.chat.completions.create
    choices = create(**question("p=0.9|p=0.1", n=2)).choices
    assert [choice.message.content for choice in choices] == ["strong p=0.9"] * 2
    upstream.forget()
    assert create(**question("?", "say strong p=0.9")).choices
    assert len(upstream.requests) == 1
