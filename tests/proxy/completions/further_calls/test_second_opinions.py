"""A policy's `second_opinion`: others answer the same question, and the number includes it."""

from __future__ import annotations

import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import policies
from calibrator import load_scorer
from calibrator.recalibration.curves import Platt, Recalibration
from calibrator.recalibration.versions import RecalibrationVersions
from tests.builders.scripted_streams import recorded
from tests.conftest import StartProxy
from tests.running.live_proxy import (
    HearingScorer,
    RawReply,
    WordScorer,
    error_of,
    members_in,
    post_raw,
    question,
    streaming,
    until,
    without_member,
)
from tests.running.messages_client import ask as ask_for_message
from tests.running.messages_client import asked as message_asked
from tests.running.messages_client import proxies_before
from tests.running.responses_requests import ask as ask_for_response
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.messages_upstream import MessagesUpstream
from tests.servers.responses_upstream import ResponsesUpstream
from tests.sharing.captured_logs import capture_logs

Json = dict[str, Any]
PACKS = Path(policies.__file__).parent / "packs"
ID = "x-pinocchio-request-id"
SAME, OTHER = "say Paris p=0.9", "say London p=0.9"
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
UNSURE = "{name: unsure, when: {confidence: {below: 0.5}}, then: hold}"
KNOWING = "words@1+opinion@1"


def seeking(opinion: str, *rules: str, default: str = "deliver", mode: str = "enforce") -> str:
    return f"""
version: 1
name: two
mode: {mode}
on_score_error: deliver
second_opinion: {opinion}
rules: [{", ".join(rules)}]
default: {default}
"""


def of(*models: str, **options: Any) -> str:
    return json.dumps({"from": models, **options})


def member_of(reply: RawReply) -> Json:
    is_stream = "event-stream" in reply.headers["content-type"]
    member: Json = members_in(reply.body)[0] if is_stream else json.loads(reply.body)["pinocchio"]
    return member


def models_asked(upstream: FaultyUpstream) -> list[str]:
    return [request.json()["model"] for request in upstream.requests]


# The number


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("other", "confidence", "agreement"), [(SAME, 0.8, "agree"), (OTHER, 0.5, "differ")]
)
def test_the_first_reply_arrives_with_the_number_that_knows_both(
    start_proxy: StartProxy,
    upstream: FaultyUpstream,
    is_stream: bool,
    other: str,
    confidence: float,
    agreement: str,
) -> None:
    """The reply's bytes are unchanged; the calibrator's name says that the number knows both."""
    proxy = start_proxy(policy=seeking(of(other), UNSURE), scorer=HearingScorer())
    asked = question("Paris p=0.6", stream=is_stream)
    got = proxy.post_raw(asked)
    assert models_asked(upstream) == ["ok", other]
    assert without_member(got.body) == post_raw(f"{upstream.base_url}/chat/completions", asked).body
    assert got.headers["x-pinocchio-confidence"] == f"{confidence:.4f}"
    assert got.headers["x-pinocchio-calibrator"] == KNOWING
    member = member_of(got)
    assert (member["confidence"], member["calibrator"]) == (confidence, KNOWING)
    usage = {} if is_stream else {"usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    evidence = {
        "kind": "second_opinion",
        "before": 0.6,
        "after": confidence,
        "opinions": [{"model": f"{other}-2099", "agreement": agreement, **usage}],
    }
    assert member["evidence"] == member["choices"][0]["evidence"] == [evidence]
    assert member["basis"] == member["choices"][0]["basis"] == ["opinions", "likeness"]
    assert [(each["model"], each.get("purpose")) for each in member["calls"]] == [
        ("ok", None),
        (other, "second_opinion"),
    ]


@pytest.mark.parametrize(("other", "action"), [(SAME, "deliver"), (OTHER, "hold")])
def test_rules_look_at_the_number_that_knows_both(
    start_proxy: StartProxy, other: str, action: str
) -> None:
    """Agreement lets a reply through, a difference has it held; the record names which."""
    proxy = start_proxy(policy=seeking(of(other), UNSURE), scorer=HearingScorer())
    response = proxy.ask("Paris p=0.45" if other == SAME else "Paris p=0.55")
    assert response.headers["x-pinocchio-action"] == action
    row = recorded(proxy, response.headers[ID])
    assert (row["action"], row["calibrator"]) == (action, KNOWING)
    [facts] = json.loads(row["facts"])
    assert facts["opinions"] == ["agree" if other == SAME else "differ"]
    assert facts["alone"] == (0.45 if other == SAME else 0.55)
    assert "Paris" not in row["facts"]


def test_where_nothing_is_told_the_number_has_its_own_name(start_proxy: StartProxy) -> None:
    """An opinion without content is evidence too, and the calibrator's name says so."""
    proxy = start_proxy(policy=seeking(of("say 12")), scorer=HearingScorer())
    member = proxy.ask("Paris p=0.6").json()["pinocchio"]
    assert (member["confidence"], member["calibrator"]) == (0.6, KNOWING)
    assert member["evidence"][0]["opinions"][0]["agreement"] == "untold"


def test_each_choice_has_its_own_evidence_for_one_call(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """With n > 1 another model is asked once, and each choice is compared with its reply."""
    proxy = start_proxy(policy=seeking(of(SAME)), scorer=HearingScorer())
    member = proxy.ask("Paris p=0.6|London p=0.6", n=2).json()["pinocchio"]
    assert [choice["confidence"] for choice in member["choices"]] == [0.8, 0.5]
    assert [request.json().get("n") for request in upstream.requests] == [2, 1]


def test_several_others_count_in_any_order(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """All named models are asked in turn for `n` replies, at the same time."""
    proxy = start_proxy(policy=seeking(of(SAME, OTHER, n=3)), scorer=HearingScorer())
    member = proxy.ask("Paris p=0.5").json()["pinocchio"]
    assert sorted(models_asked(upstream)[1:]) == sorted([SAME, OTHER, SAME])
    assert member["confidence"] == 0.8


# When others are asked


@pytest.mark.parametrize(("confidence", "is_asked"), [(0.2, False), (0.6, True), (0.95, False)])
def test_only_replies_in_the_band_are_asked_about(
    start_proxy: StartProxy, upstream: FaultyUpstream, confidence: float, is_asked: bool
) -> None:
    """Outside the band no other model is asked, and the number keeps its own name."""
    band = of(SAME, when={"confidence": {"between": [0.3, 0.9]}})
    proxy = start_proxy(policy=seeking(band, UNSURE), scorer=HearingScorer())
    response = proxy.ask(f"London p={confidence}")
    assert len(upstream.requests) == 1 + is_asked
    name = KNOWING if is_asked else "words@1"
    assert response.headers["x-pinocchio-calibrator"] == name


@pytest.mark.parametrize(("confidence", "is_asked"), [(0.1, False), (0.45, True), (0.9, False)])
def test_near_threshold_takes_the_band_from_the_rules(
    start_proxy: StartProxy, upstream: FaultyUpstream, confidence: float, is_asked: bool
) -> None:
    """`near_threshold` asks others where they could move the number across a threshold."""
    policy = seeking(of(SAME, when="near_threshold"), UNSURE)
    proxy = start_proxy(policy=policy, scorer=HearingScorer())
    proxy.ask(f"Paris p={confidence}")
    assert len(upstream.requests) == 1 + is_asked


def test_a_model_is_not_asked_about_its_own_reply(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """The model that answered is not asked for its own opinion."""
    proxy = start_proxy(policy=seeking(of(SAME, OTHER)), scorer=HearingScorer())
    proxy.ask("?", SAME)
    assert models_asked(upstream) == [SAME, OTHER]


def test_with_the_request_all_are_asked_at_once(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """With `start: with` all models are asked together with the request."""
    proxy = start_proxy(policy=seeking(of("gated", start="with"), UNSURE), scorer=HearingScorer())
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(proxy.ask, "Paris p=0.5", "slow")
        upstream.wait_for_request(2)
        assert sorted(models_asked(upstream)) == ["gated", "slow"]
        for request in list(upstream.requests):
            request.proceed()
    assert asking.result().json()["pinocchio"]["confidence"] == 0.7


def test_who_leaves_gives_up_the_opinion_too(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """When a client leaves, the calls for opinions end as well."""
    proxy = start_proxy(policy=seeking(of("slow"), UNSURE), scorer=HearingScorer())
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        body = json.dumps(question("Paris p=0.6")).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        fields = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        client.sendall(head + fields + body)
        upstream.wait_for_request(2)
    assert upstream.requests[1].is_cut_off(5)


@pytest.mark.parametrize("start", ["after", "with"])
@pytest.mark.parametrize(
    ("other", "error"),
    [
        ("status-500", "upstream_status_500"),
        ("cut", "upstream_broke_off"),
        ("hang-up", "upstream_broke_off"),
        ("html", "content_type"),
        ("slow", "upstream_timeout"),
    ],
)
def test_who_fails_or_hangs_changes_nothing(
    start_proxy: StartProxy, upstream: FaultyUpstream, start: str, other: str, error: str
) -> None:
    """A model that fails or hangs changes no number; the reply is sent by the deadline."""
    policy = seeking(of(other, start=start, within="1s"), UNSURE)
    proxy = start_proxy(policy=policy, scorer=HearingScorer())
    began = time.monotonic()
    with capture_logs() as lines:
        response = proxy.ask("Paris p=0.6")
    assert time.monotonic() - began < 4
    member = response.json()["pinocchio"]
    assert (member["confidence"], member["calibrator"]) == (0.6, "words@1")
    assert "evidence" not in member
    [line] = [each for each in lines if each["event"] == "call_failed"]
    assert (line["model"], line["purpose"]) == (other, "second_opinion")
    assert line["request_id"] == response.headers[ID]
    assert line["error"].startswith(error)
    assert "Paris" not in str(line)
    [call] = [each for each in member["calls"] if each.get("purpose") == "second_opinion"]
    assert call["error"].startswith(error)
    if other == "slow":
        assert upstream.requests[-1].is_cut_off(2) or upstream.requests[0].is_cut_off(2)


def test_a_calibrator_that_reads_no_others_asks_nobody(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """With a calibrator that reads no other replies nobody is asked; the log says so once."""
    proxy = start_proxy(policy=seeking(of(SAME)), scorer=WordScorer("deaf@1"))
    with capture_logs() as lines:
        for _ in range(2):
            assert proxy.ask("Paris p=0.6").headers["x-pinocchio-calibrator"] == "deaf@1"
    assert len(upstream.requests) == 2
    assert [line["event"] for line in lines].count("second_opinion_unread") == 1


def test_shadow_mode_asks_nobody(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """A policy in shadow mode asks nobody."""
    proxy = start_proxy(policy=seeking(of(SAME), mode="shadow"), scorer=HearingScorer())
    proxy.ask("Paris p=0.6")
    assert len(upstream.requests) == 1


def test_no_client_can_ask_for_a_policy_that_asks(start_proxy: StartProxy) -> None:
    """A client cannot select a policy with second opinions, which cost money."""
    proxy = start_proxy(
        policy="{version: 1, name: plain, default: deliver}", scorer=HearingScorer()
    )
    response = proxy.ask("Paris p=0.6", headers={"x-pinocchio-policy": "second-opinion"})
    assert error_of(response)["code"] == "unusable_policy"


# Streams


def test_a_stream_that_nothing_holds_goes_on_live(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A stream that nothing holds stays live; the number with the opinion can be fetched later."""
    proxy = start_proxy(policy=seeking(of("slow")), scorer=HearingScorer())
    with streaming(proxy, "Paris p=0.6", "ok") as (response, parts):
        rest = b"".join(parts)
    [member] = members_in(rest)
    assert (member["confidence"], member["calibrator"]) == (0.6, "words@1")
    upstream.wait_for_request(2)
    upstream.requests[1].proceed()
    id = response.headers[ID]
    until(lambda: proxy.http.get(f"/pinocchio/v1/results/{id}").json().get("calibrator") == KNOWING)
    result = proxy.http.get(f"/pinocchio/v1/results/{id}").json()
    assert [each["agreement"] for each in result["evidence"][0]["opinions"]] == ["agree"]
    row = recorded(proxy, id)
    assert (row["calibrator"], row["confidence"]) == (KNOWING, 0.8)


@pytest.mark.parametrize("is_stream", [False, True])
def test_tool_calls_are_compared_and_never_run(
    start_proxy: StartProxy, upstream: FaultyUpstream, is_stream: bool
) -> None:
    """The other model gets the same tools, and the reply has the first model's call."""
    rule = "{name: calls, when: {tools: any, confidence: {below: 0.99}}, then: hold}"
    proxy = start_proxy(policy=seeking(of(SAME), rule), scorer=HearingScorer())
    fields = {"tools": [TOOL], "stream": is_stream}
    got = proxy.post_raw(question(f"Paris {is_stream} p=0.6", "tools", **fields))
    assert [request.json()["tools"] for request in upstream.requests] == [[TOOL], [TOOL]]
    assert (b"held_for_review" in got.body) or got.status == 422


# Other formats


@pytest.mark.parametrize("is_stream", [False, True])
def test_messages(
    running_messages: MessagesUpstream, tmp_path_factory: pytest.TempPathFactory, is_stream: bool
) -> None:
    """On `/v1/messages` another model is asked as in chat."""
    running_messages.forget()
    with proxies_before(running_messages, tmp_path_factory) as start:
        proxy = start(policy=seeking(of(SAME), UNSURE), scorer=HearingScorer())
        got = ask_for_message(proxy, message_asked("Paris p=0.6", stream=is_stream))
        expected = ask_for_message(running_messages, message_asked("Paris p=0.6", stream=is_stream))
        assert without_member(got.body) == expected.body
        assert got.headers["x-pinocchio-confidence"] == "0.8000"


@pytest.mark.parametrize("is_stream", [False, True])
def test_responses_leave_nothing_behind(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream, is_stream: bool
) -> None:
    """On `/v1/responses` upstream does not store what another model answers."""
    proxy = start_responses(policy=seeking(of(SAME), UNSURE), scorer=HearingScorer())
    got = ask_for_response(proxy, text="Paris p=0.6", stream=is_stream)
    assert got.headers["x-pinocchio-confidence"] == "0.8000"
    first, second = (request.json() for request in responses_upstream.received)
    assert ("store" in first, second["store"]) == (False, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "mcp", "server_label": "shop", "server_url": "https://shop.test"}]},
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
        {"conversation": "conv_1"},
    ],
)
def test_what_upstream_would_act_on_is_not_asked_twice(
    start_responses: StartProxy, responses_upstream: ResponsesUpstream, fields: Json
) -> None:
    """Requests with upstream's own tools or its stored conversation are asked once."""
    proxy = start_responses(policy=seeking(of(SAME)), scorer=HearingScorer())
    got = ask_for_response(proxy, text="Paris p=0.6", **fields)
    assert len(responses_upstream.received) == 1
    calls = json.loads(got.body)["pinocchio"].get("calls", [])
    assert [call.get("error") for call in calls if "purpose" in call] in (["has_effects"], [])


# Replies that exist already


def test_an_escalation_uses_both_replies(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """The reply that is surer by its own text is kept; its number includes the other one."""
    then = f"{{escalate: {{to: {json.dumps(OTHER)}, otherwise: hold}}}}"
    rule = f"{{name: unsure, when: {{confidence: {{below: 0.5}}}}, then: {then}}}"
    policy = f"{{version: 1, name: up, rules: [{rule}], default: deliver}}"
    proxy = start_proxy(policy=policy, scorer=HearingScorer())
    member = proxy.ask("Paris p=0.4").json()["pinocchio"]
    assert (member["confidence"], member["evidence"][0]["before"]) == (0.8, 0.9)
    assert [call["confidence"] for call in member["calls"]] == [0.4, 0.8]
    assert len(upstream.requests) == 2


def test_an_escalation_takes_the_opinion_that_is_there(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A model that gave its opinion is not asked again when the reply is escalated to it."""
    then = f"{{escalate: {{to: {json.dumps(OTHER)}}}}}"
    rule = f"{{name: unsure, when: {{confidence: {{below: 0.5}}}}, then: {then}}}"
    proxy = start_proxy(policy=seeking(of(OTHER), rule), scorer=HearingScorer())
    response = proxy.ask("Paris p=0.4")
    assert len(upstream.requests) == 2
    assert response.json()["choices"][0]["message"]["content"] == "London p=0.9"
    assert response.json()["pinocchio"]["escalated_from"] == "ok"


def test_best_of_n_uses_all_replies(start_proxy: StartProxy) -> None:
    """The reply that is surest by its own text is kept; the others agree or differ."""
    ask = json.dumps({"models": [SAME, OTHER, "say Paris p=0.2"]})
    policy = f"{{version: 1, name: best, ask: {ask}, default: deliver}}"
    member = start_proxy(policy=policy, scorer=HearingScorer()).ask("?").json()["pinocchio"]
    agreements = [each["agreement"] for each in member["evidence"][0]["opinions"]]
    assert agreements == ["differ", "agree"]
    assert member["confidence"] == 1.0


def test_a_recalibration_stands_on_replies_alone(start_proxy: StartProxy, tmp_path: Path) -> None:
    """With a recalibration of single replies, other opinions move the
    calibrator's own number, and `before` is the recalibrated one.
    """
    path = tmp_path / "curve.json"
    Recalibration("platt", Platt(1.0, 1.0), labels=100, calibrator="words@1").save(path)
    proxy = start_proxy(
        policy=seeking(of(SAME)), scorer=HearingScorer(), calibrator={"recalibration": str(path)}
    )
    member = proxy.ask("Paris p=0.5").json()["pinocchio"]
    assert member["confidence"] == 0.7
    assert member["evidence"][0]["before"] == pytest.approx(0.7311, abs=1e-3)
    assert member["calibrator"] == KNOWING


def test_a_number_that_knows_both_has_a_recalibration_of_its_own(
    start_proxy: StartProxy, tmp_path: Path
) -> None:
    """Numbers with an opinion have their own recalibration; the record keeps the raw one."""
    alone = Recalibration("platt", Platt(1.0, 1.0), labels=100, calibrator="words@1")
    knowing = Recalibration("platt", Platt(1.0, -1.0), labels=100, calibrator=KNOWING)
    versions = RecalibrationVersions(tmp_path / "recalibrations")
    versions.promote(alone, {})
    versions.promote(knowing, {})
    proxy = start_proxy(
        policy=seeking(of(SAME), UNSURE),
        scorer=HearingScorer(),
        calibrator={"recalibration": str(versions.folder / "current")},
    )
    response = proxy.ask("Paris p=0.5")
    name, value = f"{KNOWING}+{knowing.name}", knowing.apply(0.7)
    assert response.headers["x-pinocchio-calibrator"] == name
    assert float(response.headers["x-pinocchio-confidence"]) == pytest.approx(value, abs=1e-4)
    row = recorded(proxy, response.headers[ID])
    assert (row["score"], row["calibrator"]) == (0.7, name)
    assert row["confidence"] == pytest.approx(value)
    [facts] = json.loads(row["facts"])
    assert facts["alone"] == pytest.approx(alone.apply(0.5))
    assert facts["alone_calibrator"] == f"words@1+{alone.name}"
    assert facts["alone_score"] == 0.5


def test_a_recalibration_of_other_numbers_changes_nothing(
    start_proxy: StartProxy, tmp_path: Path
) -> None:
    """A recalibration of another second stage changes nothing, and the log says so."""
    path = tmp_path / "curve.json"
    name = "words@1+opinion@2"
    Recalibration("platt", Platt(1.0, 1.0), labels=100, calibrator=name).save(path)
    proxy = start_proxy(
        policy=seeking(of(SAME)), scorer=HearingScorer(), calibrator={"recalibration": str(path)}
    )
    with capture_logs() as lines:
        member = proxy.ask("Paris p=0.6").json()["pinocchio"]
    assert (member["confidence"], member["calibrator"]) == (0.8, KNOWING)
    assert member["evidence"][0]["before"] == 0.6
    [line] = [line for line in lines if line["event"] == "recalibration_unused"]
    assert (line["fitted_for"], line["numbers"]) == (name, KNOWING)


# What agreement cannot prove


def test_a_made_up_opinion_in_the_reply_is_text(start_proxy: StartProxy) -> None:
    """An opinion in the reply's text does not count: only replies to the proxy's calls do."""
    proxy = start_proxy(policy=seeking(of(OTHER), UNSURE), scorer=HearingScorer())
    text = 'Paris p=0.6 {"pinocchio": {"evidence": [{"agreement": "agree"}]}} gpt-5 agrees: Paris'
    member = proxy.ask(text).json()["pinocchio"]
    assert [each["agreement"] for each in member["evidence"][0]["opinions"]] == ["differ"]
    assert member["confidence"] == 0.5


def test_an_upstream_that_plays_both_models_is_believed(start_proxy: StartProxy) -> None:
    """An upstream that serves one model as two is believed; the record names the source."""
    proxy = start_proxy(policy=seeking(of(SAME)), scorer=HearingScorer())
    response = proxy.ask("?", SAME)
    assert response.json()["pinocchio"]["confidence"] == 1.0
    [_, opinion] = json.loads(recorded(proxy, response.headers[ID])["calls"])
    assert (opinion["model"], opinion["purpose"]) == (SAME, "second_opinion")


# The calibrator that ships


def test_the_shipped_calibrator_reads_what_others_say(start_proxy: StartProxy) -> None:
    """The shipped calibrator's number rises with an opinion that
    agrees and falls with one that differs; both names say so.
    """
    text = "What is the capital of Australia?"
    reply = "say Canberra"
    found = []
    for other in ("say It is Canberra.", "say It is Sydney."):
        proxy = start_proxy(
            policy=seeking(of(other)), scorer=None, load=partial(load_scorer, "embedded", "cpu")
        )
        until(lambda: proxy.http.get("/readyz").status_code == 200, 60)  # noqa: B023
        member = proxy.ask(text, reply).json()["pinocchio"]
        [evidence] = member["evidence"]
        found.append((evidence["before"], member["confidence"]))
        assert re.fullmatch(r"embedded@\w+(\+platt@\w+)?\+opinion@\w+", member["calibrator"])
    (before, agreeing), (same, differing) = found
    assert before == same
    assert differing < before < agreeing


def test_the_pack_through_the_official_client(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """With the pack sure replies go out, likely ones with a
    label, and others are held; the client sees its own reply.
    """
    text = (PACKS / "second-opinion.yaml").read_text().replace("gpt-5-mini", SAME)
    proxy = start_proxy(policy=text, scorer=HearingScorer())
    actions = {}
    for answer in ("Paris p=0.75", "Paris p=0.5", "London p=0.65", "Paris p=0.97"):
        reply = proxy.openai.chat.completions.create(
            model="ok", messages=[{"role": "user", "content": answer}]
        )
        member = (reply.model_extra or {})["pinocchio"]
        actions[answer] = member["action"], member["confidence"], len(member.get("calls", ()))
    assert actions == {
        "Paris p=0.75": ("deliver", 0.95, 2),
        "Paris p=0.5": ("annotate", 0.7, 2),
        "London p=0.65": ("hold", 0.55, 2),
        "Paris p=0.97": ("deliver", 0.97, 0),
    }


def asked_of_the_pack(text: str) -> dict[str, Json]:
    """Return one question in all shapes: whole, streamed, with n > 1, and with tools."""
    tools = {"tools": [TOOL]}
    return {
        "whole": question(text),
        "stream": question(text, stream=True),
        "n": question(f"{text}|{text}", n=2),
        "tools": question(text, "tools", **tools),
        "streamed tools": question(text, "tools", stream=True, **tools),
    }


@pytest.mark.parametrize(
    ("other", "outcome"),
    [
        (OTHER, "differ"),
        ("say I'm sorry, but I can't help with that.", "differ"),
        ("say 42", "untold"),
        ("empty", "untold"),
        ("status-500", "upstream_status_500"),
        ("slow", "upstream_timeout"),
    ],
)
def test_the_pack_with_a_second_model_that_disagrees_or_does_not_answer(
    start_proxy: StartProxy, upstream: FaultyUpstream, other: str, outcome: str
) -> None:
    """In every shape the client gets the first model's reply
    after at most one more call and within the deadline.
    """
    text = (PACKS / "second-opinion.yaml").read_text()
    text = text.replace("gpt-5-mini", json.dumps(other)).replace("within: 20s", "within: 1s")
    proxy = start_proxy(policy=text, scorer=HearingScorer())
    for shape, asked in asked_of_the_pack("Paris p=0.75").items():
        upstream.forget()
        began = time.monotonic()
        got = proxy.post_raw(asked)
        assert time.monotonic() - began < (4 if other == "slow" else 10), shape
        assert models_asked(upstream) == [asked["model"], other], shape
        assert b"Paris" in without_member(got.body), shape
        assert b"London" not in without_member(got.body), shape
        member = member_of(got)
        [call] = [each for each in member["calls"] if each.get("purpose") == "second_opinion"]
        if outcome in ("differ", "untold"):
            [opinion] = member["evidence"][0]["opinions"]
            seen = "untold" if "tools" in shape else outcome  # the scorer here compares no calls
            assert (opinion["agreement"], "error" in call) == (seen, False), shape
        else:
            assert ("evidence" in member, call["error"]) == (False, outcome), shape
