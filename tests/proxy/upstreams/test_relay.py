"""What the proxy need not change stays unchanged: bytes, fields and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from proxy.config.settings.upstreams import UpstreamConfig
from proxy.http.wire.upstream import UpstreamRequest
from proxy.upstreams.router import SpokenUpstream, open_upstream
from tests.conftest import StartProxy
from tests.running.live_proxy import (
    LiveProxy,
    error_of,
    free_port,
    post_raw,
    question,
    without_member,
)
from tests.servers.faulty_upstream import ENCODERS, FaultyUpstream
from tests.sharing.captured_logs import capture_logs

ODD_BODY = (
    b'\n{ "model":"ok", "temperature":1.0,"seed":1e5,"x":{"caf\\u00e9":"\xf0\x9f\x8d\x8b"},\n'
    b'"dup":1,"dup":2,"messages":[{"role":"user","content":"p=0.9 \\ud83c\\udf4b"}],'
    b'"big":123456789012345678}\n '
)
BODIES = ["ok", "vendor", "large", "split", "tools", "reasoning", "empty"]
OURS = "x-pinocchio-"


@pytest.fixture(scope="module")
def bare(start_proxy: StartProxy) -> LiveProxy:
    """Start a proxy that puts the confidence into headers only."""
    return start_proxy(attach={"body": False})


@pytest.fixture
def other_upstream() -> Iterator[FaultyUpstream]:
    with FaultyUpstream() as other:
        yield other


# Requests


def test_request_bytes_are_the_clients(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """Upstream gets the client's body byte for byte: white space, escapes, numbers, duplicates."""
    assert proxy.post_raw(ODD_BODY).status == 200
    assert upstream.last.body == ODD_BODY


def test_a_large_request_crosses(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """A request of several megabytes arrives upstream unchanged."""
    body = json.dumps(question("p=0.9 " + "ä" * 2**20)).encode()
    assert proxy.post_raw(body).status == 200
    assert upstream.last.body == body


def test_query_string_survives(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """The query string arrives upstream as it was written, on scored and relayed paths."""
    query = "api-version=2&x=%2F%20a+b&empty=&=&%C3%A4"
    proxy.http.post(f"/v1/chat/completions?{query}", json=question("hi"))
    assert upstream.last.target == f"/v1/chat/completions?{query}"
    proxy.http.post(f"/v1/embeddings?{query}", json={"model": "ok"})
    assert upstream.last.target == f"/v1/embeddings?{query}"


def test_request_headers_survive(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """Unknown and repeated header fields reach upstream with their values,
    and no other is added except for the mark by which a loop is found.
    """
    sent = [
        (b"openai-beta", b"assistants=v2"),
        (b"x-stainless-retry-count", b"0"),
        (b"x-twice", b"1"),
        (b"x-twice", b"2"),
        (b"user-agent", b"mine/1.0"),
        (b"cookie", b"a=b"),
        (b"content-type", b"application/json; charset=utf-8"),
        (b"accept", b"application/json"),
        (b"accept-encoding", b"identity"),
    ]
    body = json.dumps(question("hi")).encode()
    httpx.post(f"{proxy.base_url}/chat/completions", content=body, headers=sent)
    added = ("host", "connection", "x-pinocchio-via")
    arrived = [field for field in upstream.last.headers if field[0] not in added]
    expected = [(name.decode(), value.decode()) for name, value in sent]
    assert sorted(arrived) == sorted([*expected, ("content-length", str(len(body)))])
    assert upstream.last.header("host") == f"127.0.0.1:{upstream.port}"


def test_request_headers_in_utf8_survive(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """A field value in UTF-8 arrives upstream as the same bytes."""
    headers = [(b"x-title", "Zürich 🍋".encode())]
    httpx.post(f"{proxy.base_url}/chat/completions", json=question("hi"), headers=headers)
    assert (upstream.last.header("x-title") or "").encode("latin-1") == "Zürich 🍋".encode()


def test_own_request_headers_stay_here(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """No x-pinocchio-* field of a client is forwarded, known or not."""
    ours = {f"{OURS}domain": "x", f"{OURS}tags": "a", f"{OURS}policy": "observe", f"{OURS}new": "1"}
    assert proxy.ask(headers=ours).status_code == 200
    added = [name for name, _ in upstream.last.headers if name.startswith(OURS)]
    assert added == ["x-pinocchio-via"]  # see test_loops.py


def test_request_hop_by_hop_stays_here(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """Fields of the client's connection, and those that its Connection names, are not forwarded."""
    headers = {
        "connection": "keep-alive, x-mine",
        "x-mine": "1",
        "keep-alive": "timeout=5",
        "te": "trailers",
        "proxy-authorization": "Basic eA==",
        "proxy-connection": "keep-alive",
    }
    assert proxy.ask(headers=headers).status_code == 200
    assert not {name for name, _ in upstream.last.headers} & set(headers)


def test_without_a_key_the_clients_goes_upstream(
    proxy: LiveProxy, upstream: FaultyUpstream
) -> None:
    """Without a configured upstream key the client's own Authorization is forwarded."""
    proxy.ask(headers={"authorization": "Bearer sk-mine"})
    assert upstream.last.header("authorization") == "Bearer sk-mine"


def test_a_configured_key_goes_upstream(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """A configured upstream key replaces whatever the client sent."""
    proxy = start_proxy(upstream={"api_key": "sk-configured"})
    proxy.ask(headers={"authorization": "Bearer sk-mine"})
    values = [value for name, value in upstream.last.headers if name == "authorization"]
    assert values == ["Bearer sk-configured"]


@pytest.mark.parametrize("speaks", ["openai", "anthropic", "both"])
@pytest.mark.parametrize("api_key", ["sk-configured", ""])
async def test_the_log_says_that_the_key_of_the_configuration_was_refused(
    upstream: FaultyUpstream, speaks: str, api_key: str
) -> None:
    """A refused key of the configuration is logged once until
    it changes, as clients could take the 401 for their own.
    """
    section = {"base_url": upstream.base_url, "api_key": api_key, "speaks": speaks}
    sent = [
        UpstreamRequest("POST", "/chat/completions", body=json.dumps(question("?", each)).encode())
        for each in ("status-401", "status-401", "ok", "status-401", "status-403")
    ]
    opened = open_upstream(UpstreamConfig.model_validate(section))
    way = opened._direct if isinstance(opened, SpokenUpstream) else opened
    with capture_logs() as lines:
        for each in sent:
            reply = await way.send(each)
            await reply.read()
            await reply.aclose()
    await opened.aclose()
    refusals = [line for line in lines if line["event"] == "upstream_refused_key"]
    assert len(refusals) == (2 if api_key else 0)
    assert all(line["upstream"] in upstream.base_url for line in refusals)
    assert "sk-configured" not in str(lines)


@pytest.mark.parametrize("is_stream", [False, True])
def test_upstreams_come_from_the_configuration_only(
    proxy: LiveProxy, upstream: FaultyUpstream, other_upstream: FaultyUpstream, is_stream: bool
) -> None:
    """api_base, base_url and api_key in a body are relayed as bytes and have no effect."""
    elsewhere = other_upstream.base_url
    named = {"api_base": elsewhere, "base_url": elsewhere, "api_key": "sk-other"}
    body = json.dumps(question("hi", stream=is_stream, **named)).encode()
    assert proxy.post_raw(body).status == 200
    assert upstream.last.body == body
    assert upstream.last.header("authorization") == "Bearer sk-client"
    assert other_upstream.requests == []


# Replies


@pytest.mark.parametrize("model", BODIES)
def test_without_member_the_body_is_upstreams(
    proxy: LiveProxy, upstream: FaultyUpstream, model: str
) -> None:
    """Without the member a body has upstream's bytes."""
    asked = question("p=0.7 ä🍋", model)
    got, direct = proxy.post_raw(asked), post_raw(f"{upstream.base_url}/chat/completions", asked)
    assert b'"pinocchio"' in got.body
    assert without_member(got.body) == direct.body


@pytest.mark.parametrize("model", [*BODIES, *ENCODERS, "unknown-encoding", "html", "broken-json"])
def test_with_attach_body_off_the_body_is_identical(
    bare: LiveProxy, upstream: FaultyUpstream, model: str
) -> None:
    """With `attach.body: false` the body is byte-identical, whatever its encoding."""
    asked = question("p=0.7 ä🍋", model)
    got, direct = bare.post_raw(asked), post_raw(f"{upstream.base_url}/chat/completions", asked)
    assert got.body == direct.body
    for name in ("content-type", "content-encoding"):
        assert got.headers.get(name) == direct.headers.get(name)


@pytest.mark.parametrize("encoding", ENCODERS)
def test_an_encoded_body_is_decoded_for_the_member(
    proxy: LiveProxy, upstream: FaultyUpstream, encoding: str
) -> None:
    """An encoded body is decoded and scored for the member, and sent unencoded."""
    got = proxy.post_raw(question("p=0.7 ä", encoding))
    plain = post_raw(f"{upstream.base_url}/chat/completions", question("p=0.7 ä", encoding))
    assert "content-encoding" not in got.headers
    assert got.headers["x-pinocchio-confidence"] == "0.7000"
    assert ENCODERS[encoding](without_member(got.body)) == plain.body


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("unknown-encoding", "encoding"),
        ("html", "content_type"),
        ("broken-json", "not_a_completion"),
    ],
)
def test_what_is_no_completion_is_relayed(
    proxy: LiveProxy, upstream: FaultyUpstream, model: str, reason: str
) -> None:
    """A 200 that cannot be read is relayed unchanged and labelled as not judged."""
    got = proxy.post_raw(question("p=0.7", model))
    direct = post_raw(f"{upstream.base_url}/chat/completions", question("p=0.7", model))
    assert (got.status, got.body) == (200, direct.body)
    assert got.headers["x-pinocchio-confidence-status"] == "not_supported"
    assert got.headers["x-pinocchio-confidence-reason"] == reason
    assert "x-pinocchio-confidence" not in got.headers


def test_response_headers_survive(proxy: LiveProxy) -> None:
    """Upstream's header fields arrive with their
    values, repeated ones as often as they were sent.
    """
    got = proxy.post_raw(question("hi", "spoofed"))
    assert got.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert (b"x-vendor", b"caf\xe9") in got.headers.raw
    assert got.headers["x-request-id"] == "req_upstream_1"


@pytest.mark.parametrize("is_stream", [False, True])
def test_upstream_cannot_speak_in_our_name(proxy: LiveProxy, is_stream: bool) -> None:
    """x-pinocchio-* fields of upstream and those of its connection never reach the client."""
    got = proxy.post_raw(question("p=0.7", "spoofed", stream=is_stream))
    assert "0.9999" not in got.headers.values()
    assert got.headers.get_list("x-pinocchio-action") == ["deliver"]
    assert not {"keep-alive", "proxy-authenticate", "x-named-by-connection"} & set(got.headers)


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 409, 422, 429, 500, 503])
@pytest.mark.parametrize("is_stream", [False, True])
def test_upstream_errors_are_unchanged(
    proxy: LiveProxy, upstream: FaultyUpstream, status: int, is_stream: bool
) -> None:
    """Status, body and header fields of upstream's errors arrive unchanged, after one call."""
    asked = question("p=0.7", f"status-{status}", stream=is_stream)
    direct = post_raw(f"{upstream.base_url}/chat/completions", asked)
    upstream.forget()
    got = proxy.post_raw(asked)
    assert (got.status, got.body) == (direct.status, direct.body)
    kept = {name: value for name, value in got.headers.items() if not name.startswith(OURS)}
    assert kept == dict(direct.headers)
    assert got.headers["x-pinocchio-confidence-status"] == "skipped"
    assert "x-pinocchio-error" not in got.headers
    assert len(upstream.requests) == 1


# No answer, or half of one


def test_unreachable_upstream_is_502(tmp_path: Path) -> None:
    """Where nothing listens, the client gets OpenAI's envelope with `upstream_unreachable`."""
    proxy = LiveProxy(f"http://127.0.0.1:{free_port()}/v1", tmp_path)
    response = proxy.ask()
    proxy.stop()
    assert response.status_code == 502
    assert error_of(response)["code"] == "upstream_unreachable"


@pytest.mark.parametrize("model", ["cut", "hang-up", "not-http"])
def test_half_an_answer_is_502(proxy: LiveProxy, upstream: FaultyUpstream, model: str) -> None:
    """An answer that breaks off, or is no HTTP, becomes 502 after a single call."""
    response = proxy.ask("p=0.7", model)
    assert response.status_code == 502
    assert error_of(response)["code"] == "upstream_broke_off"
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("model", ["slow", "gated"])
def test_a_silent_upstream_is_504(
    start_proxy: StartProxy, upstream: FaultyUpstream, model: str
) -> None:
    """Silence for longer than `timeout_s`, before or between bytes, becomes 504."""
    proxy = start_proxy(upstream={"timeout_s": 0.2})
    response = proxy.ask("p=0.7", model)
    assert response.status_code == 504
    assert error_of(response)["code"] == "upstream_timeout"
    assert upstream.last.is_cut_off(within_s=2)


def test_a_broken_relayed_body_is_seen_by_the_client(proxy: LiveProxy) -> None:
    """A relayed body that breaks off does not look whole to the client."""
    with pytest.raises(httpx.RemoteProtocolError):
        proxy.http.post("/v1/embeddings", json={"model": "cut", "input": "x" * 100})
