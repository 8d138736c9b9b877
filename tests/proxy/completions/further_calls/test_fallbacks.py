"""Fallback: another model answers where the requested one fails, and the reply says so."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from proxy.config.settings.upstreams import FallbackConfig
from tests.running.live_proxy import (
    OBSERVE,
    LiveProxy,
    error_of,
    free_port,
    members_in,
    question,
)
from tests.servers.faulty_upstream import FaultyUpstream

Json = dict[str, Any]
Start = Callable[..., LiveProxy]
SPARE = "say from the spare p=0.6"


@pytest.fixture
def start(upstream: FaultyUpstream, tmp_path: Path) -> Start:
    running: list[LiveProxy] = []

    def start(first: str | None = None, policy: str | Path = OBSERVE, **fallback: Any) -> LiveProxy:
        """Start a proxy whose models fall back to the spare, except for `say *`."""
        url = first or upstream.base_url
        routes = (
            {"match": "say *", "upstream": "spare"},
            {"match": "*", "upstream": "first", "fallback": {"to": [SPARE], **fallback}},
        )
        upstreams = {
            "first": {"base_url": url, "api_key": "sk-first"},
            "spare": {"base_url": upstream.base_url, "api_key": "sk-spare"},
        }
        proxy = LiveProxy(url, tmp_path, policy=policy, upstreams=upstreams, models=routes)
        running.append(proxy)
        return proxy

    yield start
    for proxy in running:
        proxy.stop()


def models_asked(upstream: FaultyUpstream) -> list[str]:
    return [request.json()["model"] for request in upstream.requests]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("failing", ["status-500", "status-503", "status-429", "hang-up"])
def test_another_model_answers_and_the_reply_says_so(
    start: Start, upstream: FaultyUpstream, failing: str, is_stream: bool
) -> None:
    """A failing model's request goes to the fallback
    with the fallback's key; header and member name both.
    """
    proxy = start()
    asked = question("p=0.9", failing, stream=is_stream)
    got = proxy.post_raw(asked, **{"accept-encoding": "gzip"})
    assert got.status == 200
    assert got.headers["x-pinocchio-fallback-from"] == failing
    member = members_in(got.body)[0] if is_stream else json.loads(got.body)["pinocchio"]
    assert member["confidence"] == 0.6
    assert member["fallback_from"] == failing
    first, second = member["calls"]
    assert first["model"] == failing
    assert first["error"].startswith("upstream_")
    assert second == {"model": SPARE, "confidence": 0.6, "kept": True} | (
        {"usage": second["usage"]} if "usage" in second else {}
    )
    assert models_asked(upstream)[-1] == SPARE
    sent = upstream.last
    assert sent.header("authorization") == "Bearer sk-spare"
    assert sent.json()["messages"] == question("p=0.9")["messages"]
    assert not is_stream or sent.header("accept-encoding") is None


def test_the_record_has_both_calls_and_the_model_that_answered(start: Start) -> None:
    proxy = start()
    got = proxy.ask("p=0.9", model="status-503")
    id = got.headers["x-pinocchio-request-id"]
    [calls] = proxy.recorded(id, "calls")
    assert [call["model"] for call in calls] == ["status-503", SPARE]
    with closing(sqlite3.connect(proxy.store_path)) as store:
        row = store.execute("select model, upstream from exchanges").fetchone()
    assert row == (SPARE, "spare")


def test_the_surest_call_of_a_policy_goes_on_from_the_fallback(
    start: Start, upstream: FaultyUpstream
) -> None:
    """A policy escalates from the reply of the fallback model."""
    rule = '{name: r, when: {confidence: {below: 0.7}}, then: {escalate: {to: ["say it p=0.8"]}}}'
    proxy = start(policy=f"{{version: 1, name: p, rules: [{rule}], default: deliver}}")
    member = proxy.ask("p=0.9", model="status-500").json()["pinocchio"]
    assert models_asked(upstream) == ["status-500", SPARE, "say it p=0.8"]
    assert (member["confidence"], member["escalated_from"]) == (0.8, SPARE)
    assert member["fallback_from"] == "status-500"
    assert [call.get("kept", False) for call in member["calls"]] == [False, False, True]


def test_errors_that_the_route_does_not_name_are_relayed(
    start: Start, upstream: FaultyUpstream
) -> None:
    proxy = start(on=["timeout", "5xx"])
    direct = httpx.post(
        f"{upstream.base_url}/chat/completions", json=question("x", "status-429"), trust_env=False
    )
    got = proxy.http.post("/v1/chat/completions", json=question("x", "status-429"))
    assert (got.status_code, got.content) == (429, direct.content)
    assert "x-pinocchio-fallback-from" not in got.headers
    assert (
        proxy.http.post("/v1/chat/completions", json=question("x", "status-404")).status_code == 404
    )


def test_where_nobody_answers_the_first_error_is_relayed(
    start: Start, upstream: FaultyUpstream
) -> None:
    """Where every model fails, status and body are the first model's."""
    proxy = start(to=["status-502", "say"])
    direct = httpx.post(
        f"{upstream.base_url}/chat/completions", json=question("x", "status-503"), trust_env=False
    )
    upstream.forget()
    got = proxy.http.post(
        "/v1/chat/completions", json=question("x", "status-503"), headers={"x-faulty": "status-503"}
    )
    assert (got.status_code, got.content) == (503, direct.content)
    assert len(upstream.requests) == 3


def test_an_upstream_that_is_not_there(start: Start) -> None:
    proxy = start(first=f"http://127.0.0.1:{free_port()}/v1")
    client = openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="sk-client", max_retries=0)
    answer = client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": "hello p=0.3"}]
    )
    assert answer.model.startswith(SPARE)
    assert answer.model_extra is not None
    assert answer.model_extra["pinocchio"]["calls"][0]["error"] == "upstream_unreachable"


def test_a_model_that_does_not_begin_in_time(start: Start, upstream: FaultyUpstream) -> None:
    proxy = start(within_s=0.2)
    member = proxy.ask("p=0.9", model="slow").json()["pinocchio"]
    assert member["calls"][0]["error"] == "upstream_timeout"
    assert upstream.requests[0].is_cut_off(within_s=5)
    assert proxy.ask("p=0.9", model="ok").json()["pinocchio"]["confidence"] == 0.9


def test_nobody_in_time_is_a_timeout(start: Start, upstream: FaultyUpstream) -> None:
    proxy = start(within_s=0.1)
    got = proxy.http.post(
        "/v1/chat/completions", json=question("x", "slow"), headers={"x-faulty": "slow"}
    )
    assert got.status_code == 504
    assert error_of(got)["code"] == "upstream_timeout"
    assert len(upstream.requests) == 2


def test_a_body_that_is_packed_goes_to_the_other_model_unpacked(
    start: Start, upstream: FaultyUpstream
) -> None:
    """An encoded body goes to the fallback model decoded."""
    proxy = start(first=f"http://127.0.0.1:{free_port()}/v1")
    body = gzip.compress(json.dumps(question("p=0.9", "any")).encode())
    got = proxy.http.post(
        "/v1/chat/completions",
        content=body,
        headers={
            "content-encoding": "gzip",
            "content-type": "application/json",
            "idempotency-key": "one",
        },
    )
    assert got.json()["pinocchio"]["fallback_from"] == "any"
    assert upstream.last.json()["model"] == SPARE
    assert upstream.last.header("idempotency-key") is None


def test_what_one_upstream_keeps_is_asked_of_no_other(
    start: Start, upstream: FaultyUpstream
) -> None:
    """A request that names an upstream's stored response is not sent to
    another upstream, where the id has no meaning or is somebody else's.
    """
    proxy = start()
    asked = {"model": "status-500", "input": "x", "previous_response_id": "resp_1"}
    got = proxy.http.post("/v1/responses", json=asked)
    assert got.status_code == 500
    assert len(upstream.requests) == 1
    named = question("x", "status-500") | {
        "messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}]
    }
    assert proxy.http.post("/v1/chat/completions", json=named).status_code == 500
    assert len(upstream.requests) == 2


def test_a_name_that_no_header_can_carry_is_written_in_ascii(start: Start) -> None:
    got = start().http.post("/v1/chat/completions", json=question("x", "status-500 größe\r\n%"))
    named = got.headers.get("x-pinocchio-fallback-from", "")
    assert named == "" or named == "status-500 gr%C3%B6%C3%9Fe%0D%0A%25"


def test_a_client_that_leaves_takes_both_calls_with_it(
    start: Start, upstream: FaultyUpstream
) -> None:
    """A client that leaves ends both calls: the first model's
    error stays open until it is clear whether it is relayed.
    """
    proxy = start(to=["slow"], on=["5xx"])
    body = question("x", "status-500") | {"stream": True}
    with pytest.raises(httpx.ReadTimeout):
        proxy.http.post("/v1/chat/completions", json=body, timeout=0.5)
    assert models_asked(upstream) == ["status-500", "slow"]
    assert upstream.last.is_cut_off(within_s=5)
    assert proxy.ask("p=0.9", model="ok").json()["pinocchio"]["confidence"] == 0.9


def test_a_reply_that_breaks_off_later_is_not_asked_for_again(
    start: Start, upstream: FaultyUpstream
) -> None:
    proxy = start()
    got = proxy.post_raw(question("p=0.9", "cut", stream=True))
    assert got.status == 200
    assert models_asked(upstream) == ["cut"]


@pytest.mark.parametrize("on", [["5x"], ["200"], ["sometimes"], []])
def test_a_failure_that_is_none_is_refused(on: list[str]) -> None:
    with pytest.raises(ValueError, match=r"a failure is|at least 1"):
        FallbackConfig.model_validate({"to": ["b"], "on": on})


def test_statuses_may_be_numbers() -> None:
    assert FallbackConfig.model_validate({"to": ["b"], "on": [429, "5xx"]}).on == ("429", "5xx")
