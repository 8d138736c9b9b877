"""A policy's `ask`: several replies at once, the surest of which is the completion."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import policies
from tests.builders.scripted_streams import recorded
from tests.conftest import StartProxy
from tests.running.live_proxy import (
    FailingScorer,
    LiveProxy,
    RawReply,
    error_of,
    events_in,
    free_port,
    members_in,
    post_raw,
    question,
    streaming,
    text_in,
    without_member,
)
from tests.running.messages_client import HEADERS, member_in, proxies_before
from tests.running.messages_client import ask as ask_for_message
from tests.running.messages_client import asked as message_asked
from tests.running.responses_requests import without_member as without_any_member
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.messages_upstream import MessagesUpstream
from tests.servers.responses_upstream import ResponsesUpstream

Json = dict[str, Any]
PACKS = Path(policies.__file__).parent / "packs"
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
ID = "x-pinocchio-request-id"
MODELS = ["say sure p=0.8", "say unsure p=0.2", "say half p=0.5"]


def asking(ask: str, *rules: str, mode: str = "enforce", default: str = "deliver") -> str:
    return f"""
version: 1
name: several
mode: {mode}
on_score_error: deliver
ask: {ask}
rules: [{", ".join(rules)}]
default: {default}
"""


def of(*models: str) -> str:
    return asking(json.dumps({"models": models}))


def member_of(reply: RawReply | httpx.Response, is_stream: bool) -> Json:
    body = reply.body if isinstance(reply, RawReply) else reply.content
    member: Json = members_in(body)[0] if is_stream else json.loads(body)["pinocchio"]
    return member


def models_asked(upstream: FaultyUpstream) -> list[str]:
    """Return the models in the upstream's requests, sorted since the calls run at the same time."""
    return sorted(request.json()["model"] for request in upstream.requests)


# The surest reply


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_surest_of_several_models_is_the_completion(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """Each model is asked once; the surest reply arrives unchanged, and all calls are listed."""
    proxy = start_proxy(policy=of(*MODELS))
    got = proxy.post_raw(question("?", stream=is_stream))
    assert models_asked(upstream) == sorted(MODELS)
    direct = post_raw(
        f"{upstream.base_url}/chat/completions", question("?", MODELS[0], stream=is_stream)
    )
    assert without_member(got.body) == direct.body
    assert got.headers["x-pinocchio-confidence"] == "0.8000"
    assert got.headers["x-pinocchio-action"] == "deliver"
    member = member_of(got, is_stream)
    assert [(call["model"], call["confidence"]) for call in member["calls"]] == [
        (MODELS[0], 0.8),
        (MODELS[1], 0.2),
        (MODELS[2], 0.5),
    ]
    assert [call.get("kept") for call in member["calls"]] == [True, None, None]
    assert "escalated_from" not in member


@pytest.mark.parametrize("is_stream", [False, True])
def test_one_model_is_asked_several_times(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """The same bytes go upstream as often as the policy says, and the surest reply is delivered."""
    proxy = start_proxy(policy=asking("{n: 3}"))
    got = proxy.post_raw(question("p=0.2|p=0.9|p=0.5", "in-turn", stream=is_stream))
    assert len({request.body for request in upstream.requests}) == 1
    assert len(upstream.requests) == 3
    member = member_of(got, is_stream)
    assert (member["confidence"], len(member["calls"])) == (0.9, 3)
    assert b"p=0.9" in got.body or text_in(got.body) == "p=0.9"


def test_all_are_asked_at_the_same_time(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """The calls run at the same time: no model waits for another's answer."""
    proxy = start_proxy(policy=asking("{n: 3}"), limits={"commit_after_s": 0.05})
    with streaming(proxy, "p=0.7", "gated") as (response, parts):
        assert response.headers["x-pinocchio-confidence-status"] == "pending"
        assert next(parts) == b": ping\n\n"
        upstream.wait_for_request(3)
        for request in list(upstream.requests):
            request.proceed()
        rest = b"".join(parts)
    assert text_in(rest) == "p=0.7"
    assert rest.endswith(b"data: [DONE]\n\n")


def test_what_was_paid_for_is_recorded(start_proxy: StartProxy) -> None:
    """The member and the record have the tokens of every call, the delivered one's included."""
    proxy = start_proxy(policy=of("say sure p=0.8", "status-500"))
    response = proxy.ask("?")
    calls = response.json()["pinocchio"]["calls"]
    assert calls == [
        {
            "model": "say sure p=0.8",
            "confidence": 0.8,
            "usage": {"prompt_tokens": 3, "completion_tokens": 4},
            "kept": True,
        },
        {"model": "status-500", "error": "upstream_status_500"},
    ]
    row = recorded(proxy, response.headers[ID])
    assert json.loads(row["calls"]) == calls
    assert (row["model"], row["upstream"], row["confidence"]) == ("say sure p=0.8", "faulty", 0.8)


def test_a_stream_tells_its_cost_only_to_who_asks(start_proxy: StartProxy) -> None:
    """A stream without `include_usage` tells no tokens: the proxy asks upstream for none."""
    proxy = start_proxy(policy=of(*MODELS))
    for fields, expected in (({}, False), ({"stream_options": {"include_usage": True}}, True)):
        got = proxy.post_raw(question("?", stream=True, **fields))
        assert ["usage" in call for call in member_of(got, True)["calls"]] == [expected] * 3


def test_without_scores_the_first_reply_is_as_good_as_any(start_proxy: StartProxy) -> None:
    """Where no reply could be scored, the first model's is delivered."""
    proxy = start_proxy(policy=of(*MODELS), scorer=FailingScorer("failing"))
    assert proxy.ask("?").json()["choices"][0]["message"]["content"] == "sure p=0.8"


@pytest.mark.parametrize("is_stream", [False, True])
def test_calls_of_tools_are_compared_too(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """A reply that calls a tool competes by its confidence too, and arrives whole."""
    proxy = start_proxy(policy=of("say text p=0.3", "tools"))
    asked = question("p=0.8", tools=[TOOL], stream=is_stream)
    got = proxy.post_raw(asked)
    expected = post_raw(f"{upstream.base_url}/chat/completions", asked | {"model": "tools"})
    assert without_member(got.body) == expected.body
    assert b"get_weather" in got.body


def test_the_keys_of_idempotence_stay_with_the_first(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """Only the first call has the client's idempotency
    key; with it, further calls would get the same reply.
    """
    proxy = start_proxy(policy=asking("{n: 3}"))
    proxy.ask("p=0.5", headers={"idempotency-key": "k1"})
    keys = [request.header("idempotency-key") for request in upstream.requests]
    assert sorted(map(str, keys)) == ["None", "None", "k1"]


def test_an_encoded_request_is_put_to_other_models(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """An encoded body goes on plain to a model whose name is put into it, else unchanged."""
    proxy = start_proxy(policy=of("ok", "say sure p=0.8"))
    body = gzip.compress(json.dumps(question("p=0.4")).encode())
    got = proxy.post_raw(body, content_encoding="gzip")
    assert got.headers["x-pinocchio-confidence"] == "0.8000"
    sent = {request.header("content-encoding"): request for request in upstream.requests}
    assert sent["gzip"].body == body
    assert sent[None].json() == question("p=0.4", "say sure p=0.8")


# Rules


def test_the_rules_look_at_the_surest(start_proxy: StartProxy) -> None:
    """A rule about unsure replies matches only where all replies are unsure."""
    rule = "{name: unsure, when: {confidence: {below: 0.3}}, then: block}"
    proxy = start_proxy(policy=asking("{n: 2}", rule))
    assert proxy.ask("p=0.1|p=0.9", "in-turn").status_code == 200
    assert error_of(proxy.ask("p=0.1|p=0.2", "in-turn"))["code"] == "blocked_by_policy"


def test_escalations_follow_on_the_surest(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """An unsure surest reply is escalated, but not to a model that was asked already."""
    to = "[say b p=0.2, say c p=0.7]"
    rule = f"{{name: up, when: {{confidence: {{below: 0.5}}}}, then: {{escalate: {{to: {to}}}}}}}"
    proxy = start_proxy(policy=asking("{models: [say a p=0.3, say b p=0.2]}", rule))
    response = proxy.ask("?")
    assert models_asked(upstream) == ["say a p=0.3", "say b p=0.2", "say c p=0.7"]
    member = response.json()["pinocchio"]
    assert (member["action"], member["escalated_from"]) == ("escalate", "say a p=0.3")
    assert [call["model"] for call in member["calls"] if call.get("kept")] == ["say c p=0.7"]


def test_only_such_requests_are_asked_several_times(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """`when` limits which requests are asked several times; others are handled as without `ask`."""
    proxy = start_proxy(policy=asking("{n: 2, when: {domain: law}}"))
    assert "calls" not in proxy.ask("p=0.5").json()["pinocchio"]
    assert len(upstream.requests) == 1
    proxy.ask("p=0.5", headers={"x-pinocchio-domain": "law"})
    assert len(upstream.requests) == 3


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_that_wants_several_choices_is_asked_once(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """A request with n > 1 is asked once, and its stream does not wait."""
    proxy = start_proxy(policy=asking("{n: 3}"))
    got = proxy.post_raw(question("p=0.9|p=0.4", n=2, stream=is_stream))
    assert len(upstream.requests) == 1
    assert "calls" not in member_of(got, is_stream)
    expected = "pending" if is_stream else "scored"
    assert got.headers["x-pinocchio-confidence-status"] == expected


@pytest.mark.parametrize("is_stream", [False, True])
def test_shadow_asks_once(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """In shadow mode a request is asked once, and streams are live."""
    proxy = start_proxy(policy=asking("{n: 3}", mode="shadow"))
    got = proxy.post_raw(question("p=0.5", stream=is_stream))
    direct = post_raw(f"{upstream.base_url}/chat/completions", question("p=0.5", stream=is_stream))
    assert without_member(got.body) == direct.body
    assert len(upstream.requests) == 2  # the second is this test's own
    assert got.headers["x-pinocchio-confidence-status"] == ("pending" if is_stream else "scored")


# Failures


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("is_stream", [False, True])
def test_one_reply_is_enough(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool, place: int
) -> None:
    """Refusals, broken connections and garbage are listed in `calls`; one reply is enough."""
    failing = ["status-500", "hang-up", "cut", "html", "not-http"]
    failing += ["error-event" if is_stream else "broken-json"]
    models = [*failing[:place], "say fine p=0.4", *failing[place:]]
    got = start_proxy(policy=of(*models)).post_raw(question("?", stream=is_stream))
    assert got.status == 200
    assert got.headers["x-pinocchio-confidence"] == "0.4000"
    calls = {call["model"]: call.get("error") for call in member_of(got, is_stream)["calls"]}
    assert list(calls) == models
    assert calls["say fine p=0.4"] is None
    assert calls["status-500"] == "upstream_status_500"
    assert calls["cut"] == "upstream_broke_off"
    assert calls["html"] == "content_type"
    assert all(calls[model] for model in failing)


@pytest.mark.parametrize("is_stream", [False, True])
def test_where_all_fail_the_first_error_arrives_as_it_came(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """Where all calls fail, the client gets status, body and limits of the first model's error."""
    proxy = start_proxy(policy=of("status-429", "status-500", "hang-up"))
    got = proxy.post_raw(question("?", stream=is_stream))
    direct = post_raw(f"{upstream.base_url}/chat/completions", question("?", "status-429"))
    assert (got.status, got.body) == (429, direct.body)
    assert got.headers["retry-after"] == "7"
    assert "x-pinocchio-error" not in got.headers
    row = recorded(proxy, got.headers[ID])
    assert [call["error"] for call in json.loads(row["calls"])] == [
        "upstream_status_429",
        "upstream_status_500",
        "upstream_broke_off",
    ]


@pytest.mark.parametrize(
    ("models", "status", "code"),
    [
        (["hang-up", "status-429"], 502, "upstream_broke_off"),
        (["cut", "status-429"], 502, "upstream_broke_off"),
        (["broken-json", "status-429"], 422, "unreadable_reply"),
    ],
)
def test_the_first_failure_may_be_no_reply_at_all(
    start_proxy: StartProxy, models: list[str], status: int, code: str
) -> None:
    """Where the first call brought no reply at all, the error is the same as with a single call."""
    hold = "{name: low, when: {confidence: {below: 0.5}}, then: hold}"
    proxy = start_proxy(policy=asking(json.dumps({"models": models}), hold))
    response = proxy.ask("?")
    assert (response.status_code, error_of(response)["code"]) == (status, code)


def test_a_refused_connection_is_one_failure(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A refused connection leaves the other models' replies."""
    proxy = start_proxy(
        policy=of("gone", "say fine p=0.6"),
        upstreams={
            "gone": {"base_url": f"http://127.0.0.1:{free_port()}/v1"},
            "faulty": {"base_url": upstream.base_url},
        },
        models=({"match": "gone", "upstream": "gone"}, {"match": "*", "upstream": "faulty"}),
    )
    calls = proxy.ask("?").json()["pinocchio"]["calls"]
    assert [call.get("error") for call in calls] == ["upstream_unreachable", None]


def test_a_silent_model_is_not_waited_for_without_end(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A model that is silent for the upstream's `timeout_s`
    is given up, and the other replies are compared.
    """
    proxy = start_proxy(policy=of("slow", "say fine p=0.6"), upstream={"timeout_s": 0.3})
    calls = proxy.ask("?").json()["pinocchio"]["calls"]
    assert [call.get("error") for call in calls] == ["upstream_timeout", None]
    slow = next(request for request in upstream.requests if request.behaviour == "slow")
    assert slow.is_cut_off(within_s=2)


def test_leaving_cancels_every_call(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """A client that leaves cancels all calls under way; the record lists the models asked."""
    proxy = start_proxy(policy=of("slow", "say quick p=0.6", "slow"))
    with pytest.raises(httpx.ReadTimeout):
        proxy.http.post("/v1/chat/completions", json=question("p=0.1"), timeout=0.5)
    slow = [request for request in upstream.requests if request.behaviour == "slow"]
    assert len(slow) == 2
    assert all(request.is_cut_off(within_s=2) for request in slow)


def test_an_unused_body_is_not_left_open(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """A reply that is no completion is closed, also the first model's."""
    proxy = start_proxy(policy=of("endless-html", "say fine p=0.6"))
    assert proxy.ask("?").status_code == 200
    endless = next(r for r in upstream.requests if r.behaviour == "endless-html")
    assert endless.is_cut_off(within_s=2)


@pytest.mark.parametrize("models", [["status-500", "gated-cut"], ["gated-cut", "status-500"]])
def test_when_all_fail_late_the_stream_ends_in_an_error(
    start_proxy: StartProxy, upstream: FaultyUpstream, models: list[str]
) -> None:
    """When all calls fail after the status is out, the stream ends with one error event."""
    proxy = start_proxy(policy=of(*models), limits={"commit_after_s": 0.05})
    with streaming(proxy, "p=0.7", "ok") as (_, parts):
        assert next(parts) == b": ping\n\n"
        upstream.wait_for_request(2)
        for request in list(upstream.requests):
            request.proceed()
        rest = b"".join(parts)
    [event] = events_in(rest)
    assert event["error"]["code"] == "upstream_broke_off"
    assert b"[DONE]" not in rest


@pytest.mark.parametrize(
    ("models", "kind"),
    [
        (["always-stream", "html"], "text/event-stream"),
        (["always-stream", "say whole p=0.1"], "application/json"),
    ],
)
def test_a_reply_of_the_other_kind_is_the_last_resort(
    start_proxy: StartProxy, models: list[str], kind: str
) -> None:
    """A stream in reply to a plain request is delivered only if no model sent one object."""
    response = start_proxy(policy=of(*models)).ask("p=0.9")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith(kind)


# Other formats


@pytest.mark.parametrize("is_stream", [False, True])
def test_responses(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream, is_stream: bool
) -> None:
    """On `/v1/responses` the surest response is delivered, and its id can be continued."""
    proxy = start_responses(policy=of("say weak p=0.2", "say sure p=0.8"))
    body = {"model": "ok", "input": "?", "stream": is_stream}
    got = post_raw(f"{proxy.base_url}/responses", body)
    assert b"sure p=0.8" in got.body
    assert b"weak" not in without_any_member(got.body)
    models = sorted(request.json()["model"] for request in responses_upstream.received)
    assert models == ["say sure p=0.8", "say weak p=0.2"]
    assert got.headers["x-pinocchio-confidence"] == "0.8000"
    if not is_stream:
        response = json.loads(got.body)
        usage = {"prompt_tokens": 3, "completion_tokens": 4}
        assert [call["usage"] for call in response["pinocchio"]["calls"]] == [usage, usage]
        more = {"model": "ok", "input": "more", "previous_response_id": response["id"]}
        after = json.loads(post_raw(f"{proxy.base_url}/responses", more).body)
        assert after["pinocchio"]["status"] == "scored"


def test_what_runs_in_the_background_is_asked_once(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream
) -> None:
    """A background response cannot be compared, so it is asked for once and then fetched."""
    proxy = start_responses(policy=asking("{n: 3}"))
    body = {"model": "ok", "input": "p=0.6", "background": True}
    made = proxy.http.post("/v1/responses", json=body).json()
    assert len(responses_upstream.received) == 1
    for _ in range(2):
        fetched = proxy.http.get(f"/v1/responses/{made['id']}").json()
    assert fetched["pinocchio"]["confidence"] == 0.6
    assert "calls" not in fetched["pinocchio"]


@pytest.mark.parametrize("is_stream", [False, True])
def test_completions(start_responses: StartProxy, is_stream: bool) -> None:
    """`/v1/completions` delivers the surest reply as well."""
    proxy = start_responses(policy=of("say weak p=0.2", "say sure p=0.8"))
    body = {"model": "ok", "prompt": "?", "stream": is_stream}
    got = post_raw(f"{proxy.base_url}/completions", body)
    assert got.headers["x-pinocchio-confidence"] == "0.8000"
    texts = "".join(
        choice["text"]
        for body_or_chunk in (events_in(got.body) if is_stream else [json.loads(got.body)])
        for choice in body_or_chunk["choices"]
    )
    assert texts == " sure p=0.8"


@pytest.mark.parametrize("is_stream", [False, True])
def test_messages(
    running_messages: MessagesUpstream,
    tmp_path_factory: pytest.TempPathFactory,
    is_stream: bool,
) -> None:
    """On `/v1/messages` the surest message's bytes arrive, and cached tokens are counted."""
    running_messages.forget()
    with proxies_before(running_messages, tmp_path_factory) as start:
        proxy = start(policy=of("say weak p=0.2", "say sure p=0.8"))
        got = ask_for_message(proxy, message_asked("?", stream=is_stream))
        direct = message_asked("?", "say sure p=0.8", stream=is_stream)
        expected = ask_for_message(running_messages, direct)
        assert without_member(got.body) == expected.body
        calls = member_in(got, is_stream)["calls"]
        usage = {"prompt_tokens": 28, "completion_tokens": 15}
        assert [call["usage"] for call in calls] == [usage, usage]
        assert running_messages.requests[1].header("x-api-key") == HEADERS["x-api-key"]


# The pack, through the official client


@pytest.fixture
def best_of_n(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=(PACKS / "best-of-n.yaml").read_text())


def test_best_of_n_delivers_the_surest(best_of_n: LiveProxy, upstream: FaultyUpstream) -> None:
    """The pack asks three times and delivers the surest completion, stream or tool call."""
    create = best_of_n.openai.chat.completions.create
    asked = question("p=0.3|p=0.8|p=0.5", "in-turn")
    completion = create(**asked)
    assert completion.choices[0].message.content == "p=0.8"
    assert (completion.model_extra or {})["pinocchio"]["confidence"] == 0.8
    upstream.forget()
    chunks = list(create(**asked, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "p=0.8"
    assert (chunks[-1].model_extra or {})["pinocchio"]["confidence"] == 0.8
    assert len(upstream.requests) == 3
    [call] = create(**question("p=0.6", "tools", tools=[TOOL])).choices[0].message.tool_calls or []
    assert call.type == "function"
    assert json.loads(call.function.arguments) == {"city": "p=0.6", "number": 0}


def test_best_of_n_holds_what_stays_unsure(best_of_n: LiveProxy, upstream: FaultyUpstream) -> None:
    """Where all three replies are very unsure, the surest
    of them is held; a request with n = 2 is asked once.
    """
    create = best_of_n.openai.chat.completions.create
    held = create(**question("a p=0.1|b p=0.15|c p=0.05", "in-turn"))
    assert held.id.startswith("chatcmpl-held-")
    upstream.forget()
    assert len(create(**question("p=0.9|p=0.8", n=2)).choices) == 2
    assert len(upstream.requests) == 1
