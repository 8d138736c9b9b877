"""Bad input: a client gets OpenAI's envelope with a code, and the log gets no traceback."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import StartProxy
from tests.running.live_proxy import LiveProxy, ProxyProcess, error_of, question, until
from tests.servers.faulty_upstream import FaultyUpstream

MESSAGES = b'"messages":[{"role":"user","content":"hi"}]'
BAD_BODIES = {
    "empty": (b"", "invalid_json"),
    "no JSON": (b"what?", "invalid_json"),
    "half JSON": (b'{"model":"ok",' + MESSAGES, "invalid_json"),
    "JSON and more": (b'{"model":"ok",' + MESSAGES + b"} x", "invalid_json"),
    "NUL bytes": (b'{"model":"ok\x00"}', "invalid_json"),
    "only NUL bytes": (b"\x00" * 8, "invalid_json"),
    "array": (b"[" + MESSAGES[11:] + b"]", "invalid_type"),
    "string": (b'"ok"', "invalid_type"),
    "null": (b"null", "invalid_type"),
    "Latin-1": ('{"model":"caf\xe9"}'.encode("latin-1"), "invalid_encoding"),
    "UTF-16": ('{"model":"ok"}'.encode("utf-16"), "invalid_encoding"),
    "surrogates in UTF-8": (b'{"model":"\xed\xa0\x80"}', "invalid_encoding"),
    "nested deeply": (b'{"model":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid_json"),
    "a huge number": (b'{"model":"ok","n":' + b"9" * 10_000 + b"}", "invalid_json"),
}


@pytest.fixture(scope="module")
def small(start_proxy: StartProxy) -> LiveProxy:
    """Start a proxy that accepts bodies of at most a kilobyte."""
    return start_proxy(limits={"max_body": "1KB"})


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_is_400(proxy: LiveProxy, upstream: FaultyUpstream, name: str) -> None:
    """A body that cannot be read or routed gets 400 with a code, and reaches no upstream."""
    body, code = BAD_BODIES[name]
    response = proxy.http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    error = error_of(response)
    assert error["code"] == code
    assert error["type"] == "invalid_request_error"
    assert upstream.requests == []


def test_a_place_in_the_json_is_named(proxy: LiveProxy) -> None:
    """An error about JSON names the place where it breaks."""
    response = proxy.http.post("/v1/chat/completions", content=b'{"model":\n "ok",\n oops}')
    assert "line 3, column 2" in error_of(response)["message"]


def test_an_encoded_request_is_read(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """A gzip request is routed and scored by its content, and reaches upstream unchanged."""
    body = gzip.compress(json.dumps(question("p=0.6")).encode())
    sent = {"content-encoding": "gzip"}
    response = proxy.http.post("/v1/chat/completions", content=body, headers=sent)
    assert upstream.last.body == body
    assert upstream.last.header("content-encoding") == "gzip"
    assert "x-pinocchio-confidence-status" in response.headers


@pytest.mark.parametrize(
    ("encoding", "code"), [("gzip", "invalid_encoding"), ("lzma", "unsupported_encoding")]
)
def test_an_encoding_that_cannot_be_read_is_refused(
    proxy: LiveProxy, upstream: FaultyUpstream, encoding: str, code: str
) -> None:
    """An encoding with which a body can be neither routed nor scored gets 400 with a code."""
    body, sent = json.dumps(question("hi")).encode(), {"content-encoding": encoding}
    response = proxy.http.post("/v1/chat/completions", content=body, headers=sent)
    assert response.status_code == 400
    assert error_of(response)["code"] == code
    assert upstream.requests == []


@pytest.mark.parametrize(
    "model", ["", '"model":null,', '"model":"",', '"model":5,', '"model":"ok","stream":1,']
)
def test_a_model_that_is_missing_is_upstreams_business(
    proxy: LiveProxy, upstream: FaultyUpstream, model: str
) -> None:
    """A request without a model goes upstream, which may need none or name the mistake."""
    body = b"{" + model.encode() + MESSAGES + b"}"
    response = proxy.post_raw(body)
    assert upstream.last.body == body
    assert response.headers["x-pinocchio-confidence-status"] in ("scored", "skipped")


@pytest.mark.parametrize(
    "body",
    [
        b'\xef\xbb\xbf{"model":"ok",' + MESSAGES + b"}",
        b'{"model":"ok\\u0000",' + MESSAGES + b"}",
        b'{"model":"\\ud800",' + MESSAGES + b"}",
        b'{"model":"ok","x":1e999,"y":NaN,' + MESSAGES + b"}",
        b'{"model":"no","model":"ok","stream":null,' + MESSAGES + b"}",
        b'{"model":"ok","stream_options":5,"tools":{"a":1},"response_format":"x",'
        + MESSAGES
        + b"}",
    ],
    ids=["byte order mark", "NUL escape", "half a pair", "infinity", "duplicates", "wrong types"],
)
def test_odd_but_readable_bodies_go_upstream(
    proxy: LiveProxy, upstream: FaultyUpstream, body: bytes
) -> None:
    """A body that can be routed goes upstream byte for byte, however odd it is."""
    assert proxy.post_raw(body).status == 200
    assert upstream.last.body == body


def test_upstreams_own_refusal_is_passed_on(proxy: LiveProxy) -> None:
    """Upstream's refusal of `messages` that are a string arrives in its own words."""
    response = proxy.ask("", "demo", messages="hello")
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages"
    assert "x-pinocchio-error" not in response.headers


# Size


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_a_body_over_the_limit_is_413(
    small: LiveProxy, upstream: FaultyUpstream, path: str
) -> None:
    """A body over `limits.max_body` gets 413 with a code and reaches no upstream."""
    response = small.http.post(path, json=question("x" * 2_000))
    assert response.status_code == 413
    error = error_of(response)
    assert error["code"] == "body_too_large"
    assert "limits.max_body" in error["message"]
    assert upstream.requests == []


def test_a_chunked_body_over_the_limit_is_413(small: LiveProxy, upstream: FaultyUpstream) -> None:
    """A body that does not announce its size is cut off at the limit."""

    def chunks() -> Iterator[bytes]:
        yield from [b"x" * 400] * 4

    response = small.http.post("/v1/chat/completions", content=chunks())
    assert response.status_code == 413
    assert error_of(response)["code"] == "body_too_large"
    assert upstream.requests == []


def test_a_chunked_body_within_the_limit(small: LiveProxy, upstream: FaultyUpstream) -> None:
    """A chunked body is joined and sent upstream with its length."""
    body = json.dumps(question("p=0.7")).encode()
    response = small.http.post("/v1/chat/completions", content=iter([body[:9], body[9:]]))
    assert response.status_code == 200
    assert upstream.last.body == body
    assert upstream.last.header("content-length") == str(len(body))
    assert upstream.last.header("transfer-encoding") is None


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_reply_over_the_limit_is_502(
    start_proxy: StartProxy, small: LiveProxy, is_stream: bool
) -> None:
    """A reply that has to be read whole is bounded; a live stream passes in parts."""
    holding = start_proxy(policy="{version: 1, name: a, default: hold}", limits={"max_body": "1KB"})
    response = holding.ask("x" * 800, stream=is_stream)
    assert response.status_code == 502
    assert "limits.max_body" in error_of(response)["message"]
    assert small.ask("x" * 800, stream=True).content.endswith(b"data: [DONE]\n\n")


def test_a_client_that_waits_for_100(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """The proxy answers `Expect: 100-continue` itself and does not forward it."""
    body = json.dumps(question("p=0.7")).encode()
    fields = f"Host: localhost\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + fields.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    assert upstream.last.body == body
    assert upstream.last.header("expect") is None


def test_a_declared_size_is_refused_before_it_is_sent(small: LiveProxy) -> None:
    """A request that announces too large a body is refused before the body arrives."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n"
    with socket.create_connection(("127.0.0.1", small.port), timeout=5) as connection:
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_leaves_within_its_body(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """Half a request is dropped when its client leaves; the next request is answered."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as connection:
        connection.sendall(head)
    assert proxy.ask().status_code == 200
    assert len(upstream.requests) == 1


# The log


def test_no_traceback(server: ProxyProcess, upstream: FaultyUpstream) -> None:
    """No bad input and no broken upstream leaves a traceback on
    stderr, and each request that was read has its line in the log.
    """
    url = f"{server.base_url}/chat/completions"
    bodies = [body for body, _ in BAD_BODIES.values()]
    models = ["ok", "cut", "no-finish", "hang-up", "not-http", "broken-gzip", "broken-json"]
    models += ["html", "unknown-encoding", "error-event", "status-500", "vendor", "split"]
    before = len(server.lines())
    with httpx.Client(timeout=20) as client:
        for body in bodies:
            assert client.post(url, content=body).status_code == 400
        for model in models:
            for is_stream in (False, True):
                with contextlib.suppress(httpx.DecodingError):  # it is relayed undecoded
                    client.post(url, json=question("p=0.7", model, stream=is_stream))
        with pytest.raises(httpx.RemoteProtocolError):
            client.post(f"{server.base_url}/files", content=b"xy", headers={"x-faulty": "cut"})
        for model in ("slow", "endless"):
            with pytest.raises(httpx.ReadTimeout):
                client.post(url, json=question("x", model), timeout=0.2)
        client.post(url, content=b"x", headers={"content-encoding": "gzip"})
        client.get(f"{server.base_url}/../x", headers={"host": "evil.example"})
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"what?\r\n\r\n")
        assert b"400" in connection.recv(100)
    expected = len(bodies) + 2 * len(models) + 1 + 2 + 1
    until(lambda: len(server.lines()) - before == expected)
    assert "Traceback" not in server.stderr()
    assert server.lines("internal_error") == []
