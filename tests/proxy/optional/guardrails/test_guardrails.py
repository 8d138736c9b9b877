"""Guardrails for other gateways: each contract, with payloads in the shape of its source.

LiteLLM and Portkey also run themselves, in `test_litellm_guardrail.py` and
`test_portkey_guardrail.py`; agentgateway, Envoy's Agent Router and Kong do not.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

import httpx
import pytest

from proxy.config.settings.guardrails import GuardrailsConfig
from proxy.errors import ExitStatus, StartupError
from proxy.optional.guardrails.application import GuardrailsApplication
from proxy.optional.guardrails.listening import bind_guardrails, check_guardrails
from proxy.optional.guardrails.questions import OVERHEAD, Questions
from tests.conftest import StartProxy
from tests.running.desk_client import DESK, decide, scraped, value
from tests.running.live_proxy import LiveProxy, error_of

Json = dict[str, Any]
TOKEN = "a-token-of-the-guardrails"
POLICY = """
version: 1
name: gate
mode: enforce
on_score_error: deliver
rules:
  - {name: calls, when: {tools: [refund], confidence: {below: 0.9}}, then: {hold: {queue: oncall}}}
  - {name: team, when: {team: strict}, then: {block: {message: not for this team}}}
  - {name: tagged, when: {tags: [strict]}, then: block}
  - name: shown
    when: {confidence: {below: 0.1}}
    then: {hold: {queue: review, reply: placeholder}}
  - {name: unsure, when: {confidence: {below: 0.3}}, then: {hold: {queue: review, reply: error}}}
  - {name: unclear, when: {confidence: {below: 0.4}}, then: {clarify: {text: "What do you mean?"}}}
default: deliver
"""
LITELLM = "/beta/litellm_basic_guardrail_api"
CALL = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 7}'}}
TOOL = {"type": "function", "function": {"name": "refund", "parameters": {}}}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(name="gate")
def running_gate(start_proxy: StartProxy) -> LiveProxy:
    """Start a proxy that gateways ask with a token; all tests share it."""
    return start_proxy(policy=POLICY, guardrails={"port": 0, "token": TOKEN}, **DESK)


def ask(proxy: LiveProxy, path: str, payload: Any, **headers: str) -> httpx.Response:
    fields = {"authorization": f"Bearer {TOKEN}"} | headers
    named = {name.replace("_", "-"): field for name, field in fields.items()}
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    url = f"{proxy.guardrails_url}{path}"
    return httpx.post(url, content=content, headers=named, trust_env=False, timeout=20)


def of_litellm(kind: str, id: str, **members: Any) -> Json:
    """Return a guardrail request as LiteLLM 1.106.2 sends it, with all members of its model."""
    payload: Json = {
        "input_type": kind,
        "litellm_call_id": id,
        "litellm_trace_id": f"trace-{id}",
        "structured_messages": None,
        "images": None,
        "tools": None,
        "texts": [],
        "request_data": {"user_api_key_hash": "88dc", "user_api_key_alias": "app"},
        "request_headers": {"user-agent": "OpenAI/Python", "authorization": "[present]"},
        "litellm_version": "1.106.2",
        "additional_provider_specific_params": {},
        "tool_calls": None,
        "model": "gpt-5",
    }
    return payload | members


def visit(proxy: LiveProxy, id: str, text: str, first: Json | None = None, **reply: Any) -> Json:
    """Return the answer about a reply after the one about its question, as LiteLLM asks."""
    beside = first or {}
    messages = [{"role": "user", "content": f"{QUESTION[0]['content']} ({id})"}]
    tools = [TOOL] if "tool_calls" in reply else None
    texts = [messages[0]["content"]]
    members = {"structured_messages": messages, "texts": texts, "tools": tools, **beside}
    first = of_litellm("request", id, **members)
    assert ask(proxy, LITELLM, first).json() == {"action": "NONE"}
    second = of_litellm("response", id, texts=[text], **reply)
    answered = ask(proxy, LITELLM, second)
    assert answered.status_code == 200, answered.text
    found: Json = answered.json()
    return found


# --- LiteLLM --------------------------------------------------------------------------------------


def test_a_reply_is_joined_to_its_question_and_scored_with_it(gate: LiveProxy) -> None:
    """The calibrator scores reply and question together, as if the proxy had relayed them."""
    assert visit(gate, "joined", "Paris p=0.8") == {"action": "NONE"}
    [item] = [each for each in gate.scorer.seen if each.answer == "Paris p=0.8"]  # type: ignore[attr-defined]
    assert "capital of France? (joined)" in str(item)


def test_a_reply_below_the_threshold_is_held_and_blocked_with_the_id_of_its_review(
    gate: LiveProxy,
) -> None:
    """A held reply is blocked with its review's id, and fetched by it after the release."""
    answer = visit(gate, "held", "London p=0.2")
    assert answer["action"] == "BLOCKED"
    id = answer["blocked_reason"].split("/")[-1]
    assert id.startswith("chatcmpl-held-")
    place = f"{gate.guardrails_url}/v1/chat/completions/{id}"
    headers = {"x-api-key": TOKEN}
    waiting = httpx.get(place, headers=headers, trust_env=False).json()
    assert waiting["choices"][0]["finish_reason"] == "content_filter"
    assert decide(gate, id, verdict="approve").status_code == 200
    fetched = httpx.get(place, headers=headers, trust_env=False).json()
    assert fetched["choices"][0]["message"]["content"] == "London p=0.2"
    assert fetched["pinocchio"]["confidence"] == 0.2
    assert httpx.get(place, trust_env=False).status_code == 401


def test_what_a_placeholder_would_stand_for_is_blocked_too(gate: LiveProxy) -> None:
    """A hold with a placeholder is blocked, since LiteLLM would show the reply of a stream."""
    answer = visit(gate, "placeholder", "p=0.05")
    assert answer["action"] == "BLOCKED"
    assert "held for review" in answer["blocked_reason"]
    assert "chatcmpl-held-" in answer["blocked_reason"]


def test_a_question_to_the_user_takes_the_place_of_the_text(gate: LiveProxy) -> None:
    answer = visit(gate, "unclear", "p=0.35")
    assert answer == {"action": "GUARDRAIL_INTERVENED", "texts": ["What do you mean?"]}


def test_a_call_that_is_approved_passes_once_the_model_makes_it_again(gate: LiveProxy) -> None:
    """An approved call passes once for its question; any other call or time it is held anew."""
    first = visit(gate, "call", "p=0.5", tool_calls=[CALL])
    assert first["action"] == "BLOCKED"
    again = visit(gate, "call", "p=0.5", tool_calls=[CALL])
    assert again["blocked_reason"] == first["blocked_reason"]
    other = {**CALL, "function": {"name": "refund", "arguments": '{"order": 8}'}}
    assert visit(gate, "call", "p=0.5", tool_calls=[other]) not in (first, {"action": "NONE"})
    id = first["blocked_reason"].split("/")[-1]
    assert decide(gate, id, verdict="approve").status_code == 200
    renamed = {**CALL, "id": "c2"}
    assert visit(gate, "call", "p=0.5", tool_calls=[renamed]) == {"action": "NONE"}


@pytest.mark.parametrize(
    "other", [{"user_api_key_alias": "mallory"}, {"user_api_key_team_alias": "t"}]
)
def test_an_approval_is_that_of_the_gateways_client(gate: LiveProxy, other: Json) -> None:
    """An approval is the gateway's client's: another key or team needs its own."""
    id = f"whose {other}"
    first = visit(gate, id, "p=0.5", tool_calls=[CALL])
    decide(gate, first["blocked_reason"].split("/")[-1], verdict="approve")
    members = {"request_data": {"user_api_key_hash": "88dc", "user_api_key_alias": "app"} | other}
    elsewhere = visit(gate, id, "p=0.5", first=members, tool_calls=[CALL], **members)
    assert elsewhere["action"] == "BLOCKED"
    assert elsewhere["blocked_reason"] != first["blocked_reason"]
    assert visit(gate, id, "p=0.5", tool_calls=[CALL]) == {"action": "NONE"}


def test_no_reply_is_judged_as_the_answer_to_another_question(gate: LiveProxy) -> None:
    """Two questions under one id of a call, which clients choose, leave both unknown."""
    first = visit(gate, "swapped", "p=0.5", tool_calls=[CALL])
    decide(gate, first["blocked_reason"].split("/")[-1], verdict="approve")
    other = of_litellm("request", "shared", texts=["Refund to my card"], tools=[TOOL])
    other["structured_messages"] = [{"role": "user", "content": "Refund to my card"}]
    assert ask(gate, LITELLM, other).json() == {"action": "NONE"}
    approved = [{"role": "user", "content": f"{QUESTION[0]['content']} (swapped)"}]
    again = of_litellm("request", "shared", structured_messages=approved, tools=[TOOL])
    assert ask(gate, LITELLM, again | {"texts": [approved[0]["content"]]}).json()
    answer = of_litellm("response", "shared", texts=["p=0.97"], tool_calls=[CALL])
    before = value(
        scraped(gate.desk), "pinocchio_scores_total", status="skipped", reason="no_question"
    )
    ask(gate, LITELLM, answer)
    after = value(
        scraped(gate.desk), "pinocchio_scores_total", status="skipped", reason="no_question"
    )
    assert after == (before or 0) + 1


def test_the_token_is_compared_in_constant_time() -> None:
    """The token is compared in constant time, which is checked in the code, not measured."""
    source = inspect.getsource(GuardrailsApplication._is_token)
    assert "hmac.compare_digest(presented, self._secret)" in source
    assert "==" not in source


def test_a_reply_without_its_question_has_no_number(gate: LiveProxy) -> None:
    """A reply without its question has no number, and the reason says what is missing."""
    answer = of_litellm("response", "never-asked", texts=["p=0.2"])
    assert ask(gate, LITELLM, answer).json() == {"action": "NONE"}
    reasons = scraped(gate.desk)
    assert value(reasons, "pinocchio_scores_total", status="skipped", reason="no_question") >= 1
    assert (
        value(
            reasons,
            "pinocchio_guardrail_visits_total",
            gateway="litellm",
            told="passed",
            scored="false",
        )
        >= 1
    )


def test_rules_see_the_team_that_the_gateway_names_and_tags_that_its_operator_sets(
    gate: LiveProxy,
) -> None:
    """Rules can use the gateway's team, and tags in a header that its operator sets."""
    named = {"user_api_key_team_alias": "strict", "user_api_key_alias": "app"}
    answer = of_litellm("response", "team", texts=["p=0.9"], request_data=named)
    blocked = ask(gate, LITELLM, answer).json()
    assert blocked == {"action": "BLOCKED", "blocked_reason": "not for this team"}
    tagged = of_litellm("response", "tags", texts=["p=0.9"])
    assert ask(gate, LITELLM, tagged, x_pinocchio_tags="strict").json()["action"] == "BLOCKED"


def test_several_choices_are_each_scored(gate: LiveProxy) -> None:
    """The least sure of several choices decides."""
    first = of_litellm("request", "two", structured_messages=QUESTION)
    ask(gate, LITELLM, first)
    answer = of_litellm("response", "two", texts=["p=0.9", "p=0.2"])
    assert ask(gate, LITELLM, answer).json()["action"] == "BLOCKED"


# --- Portkey --------------------------------------------------------------------------------------


def of_portkey(text: str, event: str = "afterRequestHook", **members: Any) -> Json:
    """Return a request as the webhook plugin of @portkey-ai/gateway 1.15.2 sends it."""
    message = {"role": "assistant", "content": text}
    completion = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    request = {"model": "gpt-5", "messages": QUESTION}
    return {
        "request": {"json": request, "text": QUESTION[0]["content"], "isStreamingRequest": False},
        "response": {"json": completion, "text": text, "statusCode": 200},
        "provider": "openai",
        "requestType": "chatComplete",
        "metadata": {},
        "eventType": event,
        **members,
    }


def test_portkey_gets_a_verdict_and_the_confidence(gate: LiveProxy) -> None:
    answer = ask(gate, "/portkey", of_portkey("p=0.85")).json()
    assert answer["verdict"] is True
    assert (answer["data"]["confidence"], answer["data"]["status"]) == (0.85, "scored")
    assert "transformedData" not in answer


@pytest.mark.parametrize("text", ["p=0.05", "p=0.2"])
def test_what_portkey_must_not_deliver_is_replaced_too(gate: LiveProxy, text: str) -> None:
    """A denied reply is also replaced by one that says so, for Portkey without `deny`."""
    answer = ask(gate, "/portkey", of_portkey(text)).json()
    assert answer["verdict"] is False
    assert answer["data"]["review_id"].startswith("chatcmpl-held-")
    [choice] = answer["transformedData"]["response"]["json"]["choices"]
    assert choice["finish_reason"] == "content_filter"
    assert text not in choice["message"]["content"]


def test_portkey_hears_nothing_of_questions_errors_and_embeddings(gate: LiveProxy) -> None:
    failed = {"json": {"error": {"message": "no"}}, "text": "", "statusCode": 500}
    for payload in (
        of_portkey("p=0.05", "beforeRequestHook"),
        of_portkey("p=0.05", requestType="embed"),
        of_portkey("p=0.05", response=failed),
    ):
        assert ask(gate, "/portkey", payload).json() == {"verdict": True}


def test_a_reply_that_cannot_be_read_is_withheld_where_a_policy_decides(gate: LiveProxy) -> None:
    odd = of_portkey("", response={"json": {"outputs": []}, "text": "", "statusCode": 200})
    answer = ask(gate, "/portkey", odd).json()
    assert (answer["verdict"], answer["data"]["code"]) == (False, "unreadable_reply")


# --- agentgateway, Envoy's Agent Router, Kong -----------------------------------------------------


def test_agentgateway_passes_changes_and_refuses(gate: LiveProxy) -> None:
    """Question and reply are joined by `x-request-id`, and a held reply is refused."""
    fields = {"x_request_id": "r1", "x_model": "gpt-5"}
    first = {"body": {"messages": QUESTION}}
    assert "body" not in ask(gate, "/agentgateway/request", first, **fields).json()["action"]

    def reply(text: str, **headers: str) -> Json:
        message = {"role": "assistant", "content": text}
        second = {"body": {"choices": [{"message": message}]}}
        found: Json = ask(gate, "/agentgateway/response", second, **headers).json()["action"]
        return found

    assert reply("p=0.9", **fields) == {"reason": "scored: deliver"}
    assert reply("p=0.9") == {"reason": "skipped: deliver"}
    changed = reply("p=0.35", **fields)["body"]["choices"][0]["message"]["content"]
    assert changed == "What do you mean?"
    refused = reply("p=0.2", **fields)
    assert refused["status_code"] == 422
    assert json.loads(refused["body"])["error"]["code"] == "held_for_review"


def test_a_text_alone_has_no_number_and_rules_that_need_none_act(gate: LiveProxy) -> None:
    """A text alone, as Agent Router and Kong send it, has
    no number; rules without one apply, and questions pass.
    """
    reply = {"text": "p=0.05", "context": {"stage": "output"}}
    assert ask(gate, "/analyze", reply).json() == {"action": "allow", "findings": []}
    blocked = ask(gate, "/analyze", reply, x_pinocchio_tags="strict").json()
    assert blocked["action"] == "block"
    question = {"text": "p=0.05", "context": {"stage": "input"}}
    assert ask(gate, "/analyze", question, x_pinocchio_tags="strict").json()["action"] == "allow"


# --- who may ask, and what is refused -------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (LITELLM, b"{", (400, "invalid_json")),
        (LITELLM, b"[]", (400, "invalid_type")),
        (LITELLM, {"input_type": "other"}, (400, "invalid_type")),
        (LITELLM, of_litellm("response", "x", texts=[1]), (400, "invalid_type")),
        (LITELLM, of_litellm("response", "x", tool_calls=["f"]), (400, "invalid_type")),
        (LITELLM, of_litellm("request", "x", structured_messages={}), (400, "invalid_type")),
        (LITELLM, b'{"a":' * 100_000, (400, "invalid_json")),
        ("/portkey", {"request": []}, (400, "invalid_type")),
        ("/analyze", {}, (400, "missing_member")),
        ("/agentgateway/response", {"body": {"choices": [3]}}, (400, "invalid_type")),
        ("/unknown", {}, (404, "unknown_url")),
    ],
)
def test_what_has_another_shape_is_refused(
    gate: LiveProxy, path: str, body: Any, expected: tuple[int, str]
) -> None:
    """A body of another shape is refused with the member's name."""
    response = ask(gate, path, body)
    assert (response.status_code, error_of(response)["code"]) == expected


def test_a_body_over_the_limit_is_refused(start_proxy: StartProxy) -> None:
    small = start_proxy(guardrails={"port": 0}, limits={"max_body": 2_000})
    response = ask(small, "/analyze", {"text": "a" * 3_000})
    assert (response.status_code, error_of(response)["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("token", ["", "Bearer", "Bearer wrong", f"Bearer {TOKEN}x", TOKEN[:-1]])
def test_without_the_token_nobody_is_answered(gate: LiveProxy, token: str) -> None:
    response = ask(gate, "/analyze", {"text": "p=0.9"}, authorization=token)
    assert (response.status_code, error_of(response)["code"]) == (401, "invalid_api_key")
    assert httpx.get(f"{gate.guardrails_url}/livez", trust_env=False).status_code == 200


def test_without_a_token_only_programs_of_this_machine_are_answered(
    start_proxy: StartProxy,
) -> None:
    """Without a token only programs of this machine are answered, and no page in a browser."""
    open_gate = start_proxy(guardrails={"port": 0})
    body = {"text": "p=0.9"}
    assert ask(open_gate, "/analyze", body, authorization="").status_code == 200
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        assert ask(open_gate, "/analyze", body, **headers).status_code == 403


def test_beyond_loopback_a_token_is_needed() -> None:
    """Beyond loopback a strong token is required, as for the review desk."""
    for token in ("", "short"):
        config = GuardrailsConfig.model_validate({"host": "0.0.0.0", "port": 0, "token": token})
        with pytest.raises(StartupError) as refused:
            check_guardrails(config)
        assert refused.value.status == ExitStatus.UNSAFE
    check_guardrails(GuardrailsConfig.model_validate({"host": "0.0.0.0", "token": "t" * 16}))


def test_port_in_use_is_reported() -> None:
    first = bind_guardrails(GuardrailsConfig(port=0))
    assert first is not None
    with first, pytest.raises(StartupError, match="is taken") as refused:
        bind_guardrails(GuardrailsConfig(port=first.getsockname()[1]))
    assert refused.value.status == ExitStatus.PORT_TAKEN


# --- questions that wait --------------------------------------------------------------------------


def test_oldest_questions_are_dropped() -> None:
    """The oldest questions are dropped first, and one larger than the room is not kept."""
    now = [0.0]
    size = OVERHEAD + len(b'{"m":"aaaa"}')
    questions = Questions(keep_s=10, most=2 * size, now=lambda: now[0])
    for id in ("a", "b", "c"):
        assert questions.keep(("g", id), {"m": id * 4})
    assert [questions.find(("g", id)) for id in ("a", "b", "c")] == [
        None,
        {"m": "bbbb"},
        {"m": "cccc"},
    ]
    assert questions.keep(("g", "b"), {"m": "bbbb"})
    assert questions.find(("g", "b")) == {"m": "bbbb"}
    for other in ("BBBB", "bbbb"):  # whichever of two it answers
        assert questions.keep(("g", "b"), {"m": other})
        assert questions.find(("g", "b")) is None
    assert not questions.keep(("g", "large"), {"m": "x" * 3 * size})
    assert not questions.keep(("g", "i" * 1_000), {})
    now[0] = 10.0
    assert questions.find(("g", "b")) is None
    assert questions.keep(("g", "d"), {})
    assert len(questions) == 1


def test_record_names_the_gateway(gate: LiveProxy) -> None:
    """The record names the gateway, with the same facts as for any reply."""
    answer = ask(gate, "/portkey", of_portkey("p=0.77")).json()
    columns = ("json_quote(upstream)", "json_quote(path)", "json_quote(confidence)")
    assert gate.recorded(answer["data"]["request_id"], *columns) == ["portkey", "/portkey", 0.77]
