"""Requests that are not scored: relayed unchanged and labelled as such, or answered here."""

from __future__ import annotations

import gzip
import json
import re
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import StartProxy
from tests.running.live_proxy import LiveProxy, error_of, free_port, post_raw, question
from tests.servers.faulty_upstream import ENCODERS, FaultyUpstream


def without_key(proxy: LiveProxy, path: str) -> httpx.Response:
    return httpx.get(f"{proxy.url}{path}", timeout=20)


# Models


def told(upstream: FaultyUpstream, **headers: str) -> httpx.Response:
    """Return upstream's own list, asked for directly."""
    return httpx.get(f"{upstream.base_url}/models", headers={"x-faulty": "identity", **headers})


@pytest.mark.parametrize("encoding", ["identity", *ENCODERS])
def test_one_upstreams_list_is_relayed(
    proxy: LiveProxy, upstream: FaultyUpstream, encoding: str
) -> None:
    """One upstream's list is relayed byte for byte, in any encoding, without the demo."""
    headers = {"x-faulty": encoding, "authorization": "Bearer sk-client"}
    with (
        httpx.stream("GET", f"{proxy.base_url}/models?x=1", headers=headers) as response,
        httpx.stream("GET", f"{upstream.base_url}/models?x=1", headers=headers) as direct,
    ):
        assert b"".join(response.iter_raw()) == b"".join(direct.iter_raw())
        assert response.headers.get("content-encoding") == direct.headers.get("content-encoding")
    proxied = upstream.requests[0]
    assert proxied.target == "/v1/models?x=1"
    assert proxied.header("authorization") == "Bearer sk-client"


def test_models_without_a_key(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """An upstream that needs no key lists its models to clients without one."""
    assert without_key(proxy, "/v1/models").content == told(upstream).content


def test_models_with_a_configured_key(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """An upstream key in the configuration is enough to list upstream's models."""
    proxy = start_proxy(upstream={"api_key": "sk-configured"})
    ids = [model["id"] for model in without_key(proxy, "/v1/models").json()["data"]]
    assert ids == ["ok"]
    assert upstream.last.header("authorization") == "Bearer sk-configured"


def test_the_demo_is_listed_where_nothing_else_is(tmp_path: Path) -> None:
    """The demo is listed where upstream refuses for lack of a key, is away or does not exist."""
    away = LiveProxy(f"http://127.0.0.1:{free_port()}/v1", tmp_path)
    ids = [model["id"] for model in without_key(away, "/v1/models").json()["data"]]
    with_key = away.http.get("/v1/models")
    away.stop()
    assert ids == ["demo"]
    assert (with_key.status_code, error_of(with_key)["code"]) == (502, "upstream_unreachable")


def test_the_demo_is_listed_where_upstream_asks_for_a_key(proxy: LiveProxy) -> None:
    """A client that has a key gets upstream's refusal in place of the demo."""
    refusing = {"x-faulty": "status-401"}
    listing = httpx.get(f"{proxy.base_url}/models", headers=refusing).json()
    assert [model["id"] for model in listing["data"]] == ["demo"]
    assert proxy.http.get("/v1/models", headers=refusing).status_code == 401


def test_several_upstreams_make_one_list(tmp_path: Path, upstream: FaultyUpstream) -> None:
    """Several upstreams make one list: the widest route's models first, then those of
    other routes that have keys of their own. An upstream that is away is left out.
    """
    other = {"base_url": upstream.base_url, "api_key": "sk-more"}
    upstreams = {
        "wide": {"base_url": upstream.base_url},
        "other": other,
        "keyless": {"base_url": upstream.base_url},
        "away": {"base_url": f"http://127.0.0.1:{free_port()}/v1", "api_key": "sk-away"},
        "demo": {"demo": True},
    }
    routes = {
        "demo": "demo",
        "x": "away",
        "k": "keyless",
        "ok": "other",
        "more": "other",
        "*": "wide",
    }
    proxy = LiveProxy(
        upstream.base_url,
        tmp_path,
        upstreams=upstreams,
        models=tuple({"match": match, "upstream": name} for match, name in routes.items()),
    )
    listing = proxy.http.get("/v1/models").json()
    proxy.stop()
    assert listing["data"][1:] == [{"id": "more", "created": 7}]
    assert listing["data"][0]["owned_by"] == "us"
    keys = [each.header("authorization") for each in upstream.requests]
    assert keys == ["Bearer sk-client", "Bearer sk-more"]


@pytest.mark.parametrize("faulty", ["status-401", "unknown-encoding"])
def test_models_that_cannot_be_read(
    proxy: LiveProxy, upstream: FaultyUpstream, faulty: str
) -> None:
    """An upstream's error, or a list that the proxy cannot read, is relayed unchanged."""
    response = proxy.http.get("/v1/models", headers={"x-faulty": faulty})
    direct = httpx.get(f"{upstream.base_url}/models", headers={"x-faulty": faulty})
    assert (response.status_code, response.content) == (direct.status_code, direct.content)


@pytest.mark.parametrize("faulty", ["broken-gzip", "cut"])
def test_half_a_list_of_models_is_502(
    start_proxy: StartProxy, upstream: FaultyUpstream, faulty: str
) -> None:
    """Where several upstreams make one list, one that breaks off makes it an error."""
    place = {"base_url": upstream.base_url, "api_key": "sk-x"}
    upstreams = {"one": place, "two": place}
    models = ({"match": "x", "upstream": "one"}, {"match": "*", "upstream": "two"})
    proxy = start_proxy(upstreams=upstreams, models=models)
    response = proxy.http.get("/v1/models", headers={"x-faulty": faulty})
    assert response.status_code == 502
    assert error_of(response)["code"] == "upstream_broke_off"


def test_a_model_that_is_answered_here(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """`GET /v1/models/{id}` describes the models that the proxy answers itself."""
    assert proxy.http.get("/v1/models/demo").json()["id"] == "demo"
    assert upstream.requests == []


def test_one_model_is_upstreams_business(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """`GET /v1/models/{id}` is relayed, ids with slashes and colons included."""
    proxy.http.get("/v1/models/org/model:free")
    assert upstream.last.target == "/v1/models/org/model:free"


# Relayed requests


def assert_labelled(headers: httpx.Headers) -> None:
    assert headers["x-pinocchio-confidence-status"] == "not_supported"
    assert headers["x-pinocchio-confidence-reason"] == "surface"
    assert headers["x-pinocchio-request-id"].startswith("req_")
    assert "x-pinocchio-confidence" not in headers


@pytest.mark.parametrize(
    ("path", "content_type", "body"),
    [
        ("/embeddings", "application/json", b'{"model":"x","input":[1.0,1e5,"\\u00e9"] }\n'),
        ("/moderations", "application/json; charset=utf-8", b'{ "model": "x", "input": "hi" }'),
        ("/responses/compact", "application/json", b'{"model":"x"}'),
        ("/embeddings", "application/json", b"this is no JSON"),
        ("/embeddings", "application/json", b"[1, 2]"),
        ("/embeddings", "application/json", b'{"model": 5}'),
        ("/embeddings", "application/json", gzip.compress(b'{"model":"x"}', mtime=0)),
        ("/batches", "application/jsonl", b'{"a":1}\n{"a":2}\n'),
        ("/files", "multipart/form-data; boundary=x", b"--x\r\n\r\n\x00\xff\r\n--x--\r\n"),
        ("/audio/transcriptions", "audio/wav", bytes(range(256)) * 300),
        ("/a%2Fb/%C3%A4/..c;d=e", "text/plain", b"\xff\xfe"),
    ],
)
def test_any_surface_is_relayed_byte_for_byte(
    proxy: LiveProxy, upstream: FaultyUpstream, path: str, content_type: str, body: bytes
) -> None:
    """Path, content type, body and reply pass unchanged, and the reply is labelled."""
    got = post_raw(f"{proxy.base_url}{path}", body, content_type=content_type)
    assert upstream.last.target == f"/v1{path}"
    assert upstream.last.header("content-type") == content_type
    assert upstream.last.body == body
    assert (got.status, got.body) == (200, body)
    assert got.headers["content-type"] == content_type
    assert got.headers["x-request-id"] == "req_upstream_1"
    assert_labelled(got.headers)


@pytest.mark.parametrize("encoding", ENCODERS)
def test_a_relayed_body_stays_encoded(proxy: LiveProxy, encoding: str) -> None:
    """A body that is only relayed keeps its encoding."""
    got = post_raw(f"{proxy.base_url}/embeddings", b'{"model":"x"}', x_faulty=encoding)
    assert got.headers["content-encoding"] == encoding
    assert got.body == ENCODERS[encoding](b'{"model":"x"}')


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_any_method_is_relayed(proxy: LiveProxy, upstream: FaultyUpstream, method: str) -> None:
    """Every method reaches upstream, also on the paths of scored requests."""
    for path in ("/v1/files/file-1", "/v1/chat/completions"):
        response = proxy.http.request(method, path)
        assert response.status_code == 200
        assert (upstream.last.method, upstream.last.target) == (method, path)
        assert_labelled(response.headers)


def test_errors_of_surfaces_are_unchanged(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """Errors of relayed requests arrive with their status, body and fields."""
    got = post_raw(f"{proxy.base_url}/embeddings", question("x"), x_faulty="status-429")
    direct = post_raw(f"{upstream.base_url}/embeddings", question("x"), x_faulty="status-429")
    assert (got.status, got.body, got.headers["retry-after"]) == (429, direct.body, "7")


def test_a_hung_up_surface_is_502(proxy: LiveProxy) -> None:
    """A relayed request whose upstream hangs up gets 502 with a code."""
    response = proxy.http.get("/v1/files", headers={"x-faulty": "hang-up"})
    assert response.status_code == 502
    assert error_of(response)["code"] == "upstream_broke_off"


def test_the_model_decides_about_the_upstream(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """A relayed request goes where its model is routed."""
    response = proxy.http.post("/v1/embeddings", json={"model": "demo", "input": "x"})
    assert response.status_code == 404
    assert upstream.requests == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_a_model_without_a_route(start_proxy: StartProxy, path: str) -> None:
    """A model that no route matches gets 404 with OpenAI's code."""
    proxy = start_proxy(models=({"match": "ok*", "upstream": "faulty"},))
    response = proxy.http.post(path, json=question("x", "other"))
    assert response.status_code == 404
    error = error_of(response)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert proxy.ask(model="ok-2").status_code == 200


# Refused requests


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../admin",
        "/v1/files/../../admin",
        "/v1/%2e%2e/admin",
        "/v1/files/%2E./x",
        "/v1/files/..",
        "/v1/./files",
        "/v1/files/..\\x",
        "/v1/files/%2e%2e%5cx",
    ],
)
def test_paths_stay_under_v1(proxy: LiveProxy, upstream: FaultyUpstream, path: str) -> None:
    """Segments `.` and `..`, also written as escapes, are refused and reach no upstream."""
    status, headers, body = send_raw(proxy, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status in (400, 404)
    assert headers["x-pinocchio-error"] == "true"
    assert body["error"]["code"] in ("invalid_path", "unknown_url")
    assert upstream.requests == []


def test_an_unknown_path(proxy: LiveProxy) -> None:
    """A path outside the API gets 404 in OpenAI's envelope."""
    for path in ("/", "/v2/models", "/chat/completions", "/v1", "/docs", "/openapi.json"):
        response = proxy.http.get(path)
        assert response.status_code == 404
        assert error_of(response)["code"] == "unknown_url"


def send_raw(proxy: LiveProxy, request: str) -> tuple[int, dict[str, str], Any]:
    """Send the bytes of a request unchanged; return the answer's status, header fields and JSON."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection:
        connection.sendall(request.encode("latin-1"))
        answer = b""
        while part := connection.recv(65_536):
            answer += part
            head, separator, body = answer.partition(b"\r\n\r\n")
            fields = dict(
                line.lower().split(": ", 1) for line in head.decode("latin-1").split("\r\n")[1:]
            )
            if separator and len(body) >= int(fields.get("content-length", 0)):
                break
    return int(head.split()[1]), fields, json.loads(body)


# Host


@pytest.mark.parametrize("path", ["/v1/models", "/v1/files", "/livez", "/nothing"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "localhost.evil.example", "192.168.0.7", "", "[::2]"],
)
def test_a_foreign_host_is_refused(
    proxy: LiveProxy, upstream: FaultyUpstream, host: str, path: str
) -> None:
    """While the proxy is open, a request that names another machine gets 403 on every path."""
    response = proxy.http.get(path, headers={"host": host})
    assert response.status_code == 403
    assert error_of(response)["code"] == "host_not_allowed"
    assert upstream.requests == []


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "127.8.8.8", "[::1]:80", "a.localhost"]
)
def test_this_machine_is_answered(proxy: LiveProxy, host: str) -> None:
    """Every name of this machine is answered."""
    assert proxy.http.get("/livez", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("fields", ["", "Host: localhost\r\nHost: evil.example\r\n"])
def test_one_host_has_to_be_named(proxy: LiveProxy, fields: str) -> None:
    """A request without a Host, or with two, is refused: parsers could read it in two ways."""
    status, _, body = send_raw(proxy, f"GET /livez HTTP/1.1\r\n{fields}\r\n")
    assert (status, body["error"]["code"]) == (400, "invalid_http")


def test_any_host_is_answered_where_the_proxy_is_not_open(start_proxy: StartProxy) -> None:
    """Beyond loopback the Host is not checked, as others choose the names there."""
    proxy = start_proxy(is_open=False)
    assert proxy.http.get("/livez", headers={"host": "proxy.example"}).status_code == 200


# Health


def test_health(proxy: LiveProxy) -> None:
    """`/livez` says that the process answers, `/readyz` which calibrator is loaded."""
    assert proxy.http.get("/livez").json() == {"status": "ok"}
    ready = proxy.http.get("/readyz")
    facts = {"status": "ok", "calibrator": "words@1", "generation": 1, "configuration": "current"}
    body = ready.json()
    assert re.fullmatch("[0-9a-f]{12}", body.pop("configuration_digest"))
    assert (ready.status_code, body) == (200, facts)


@pytest.mark.parametrize("path", ["/", "/health", "/docs"])
def test_what_is_not_there_says_what_is(proxy: LiveProxy, path: str) -> None:
    """An unknown address gets an error that says where the API and the health checks are."""
    error = error_of(proxy.http.get(path))
    assert "/v1/" in error["message"]
    assert "/readyz" in error["message"]
