"""What a connection remembers of a head is forgotten when a key or the configuration changes.

A client asks on one connection, with the same head each time.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.generations.test_reload import HOLD, Running
from tests.running.client_keys import OWN_KEY, bearer, make_key, revoke_key, wait_until_known
from tests.running.live_proxy import LiveProxy, question, until
from tests.servers.faulty_upstream import FaultyUpstream

TIMES = 4  # the head is known from the second on, its evaluation from the third


class Kept:
    """One connection to a proxy."""

    def __init__(self, connection: HTTPConnection, secret: str | None) -> None:
        self._connection = connection
        self._headers = {"content-type": "application/json", **(bearer(secret) if secret else {})}

    def ask(self, text: str = "p=0.9") -> tuple[HTTPResponse, Any]:
        sock = self._connection.sock
        body = json.dumps(question(text, "ok"))
        self._connection.request("POST", "/v1/chat/completions", body, self._headers)
        response = self._connection.getresponse()
        parsed = json.loads(response.read())
        assert sock is None or self._connection.sock is sock
        return response, parsed

    def statuses(self, times: int = TIMES) -> list[int]:
        return [self.ask(f"p=0.{number}")[0].status for number in range(1, times + 1)]


@contextmanager
def kept(port: int, secret: str | None = None) -> Iterator[Kept]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    with closing(connection):
        yield Kept(connection, secret)


@pytest.fixture
def proxy(upstream: FaultyUpstream, tmp_path: Path) -> Iterator[LiveProxy]:
    proxy = LiveProxy(upstream.base_url, tmp_path, keys="required", upstream={"api_key": OWN_KEY})
    yield proxy
    proxy.stop()


def known_key(proxy: LiveProxy, **fields: Any) -> tuple[str, str]:
    """Return the secret and the id of a new key, once the proxy accepts it."""
    secret, key = make_key(proxy.store_path, **fields)
    wait_until_known(proxy.base_url, secret)
    return secret, key.id


def test_each_request_is_its_own(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """Each request has its own body, number and id, and upstream never gets the client's key."""
    secret, _ = known_key(proxy)
    with kept(proxy.port, secret) as client:
        replies = [client.ask(f"p=0.{number}") for number in range(1, TIMES + 1)]
        sent = upstream.requests[-TIMES:]
    for number, (response, body) in enumerate(replies, start=1):
        assert body["choices"][0]["message"]["content"] == f"p=0.{number}"
        assert response.headers["x-pinocchio-confidence"] == f"0.{number}000"
    assert len({response.headers["x-pinocchio-request-id"] for response, _ in replies}) == TIMES
    for request in sent:
        names = [name for name, _ in request.headers]
        assert len({*names}) == len(names)
        assert request.header("authorization") == f"Bearer {OWN_KEY}"
        assert request.header("content-length") == str(len(request.body))
        assert secret not in str(request.headers)
        assert request.header("x-pinocchio-via") == sent[0].header("x-pinocchio-via")


def test_a_revoked_key_is_refused(proxy: LiveProxy) -> None:
    secret, id = known_key(proxy)
    with kept(proxy.port, secret) as client:
        assert client.statuses() == [200] * TIMES
        revoke_key(proxy.store_path, id)
        until(lambda: client.ask()[0].status == 401, 5)
        assert id in client.ask()[1]["error"]["message"]


def test_a_key_expires(proxy: LiveProxy) -> None:
    ends = time.time() + 3
    secret, _ = known_key(proxy, expires_at=ends)
    with kept(proxy.port, secret) as client:
        assert client.statuses() == [200] * TIMES
        time.sleep(max(0.0, ends - time.time()))
        assert client.ask()[0].status == 401


def test_each_request_counts(proxy: LiveProxy) -> None:
    """Requests on one connection count for the key's limit, and are refused beyond it."""
    secret, _ = known_key(proxy, requests_per_minute=TIMES + 1)  # one makes the key known
    with kept(proxy.port, secret) as client:
        assert client.statuses(TIMES + 2) == [200] * TIMES + [429] * 2


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_body_over_the_limit_is_refused_at_once(
    upstream: FaultyUpstream, tmp_path: Path, is_whole: bool
) -> None:
    """A body that a head, known or not, announces as too large is refused without being read."""
    proxy = LiveProxy(upstream.base_url, tmp_path, limits={"max_body": 1_000})
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    body = json.dumps(question("p=0.9", "ok")).encode()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client:
        for _ in range(TIMES):
            client.sendall(head % len(body) + body)
            assert client.recv(2**16).startswith(b"HTTP/1.1 200")
        client.sendall(head % 9_999 + b"x" * (9_999 if is_whole else 1))
        reply = client.recv(2**16)
    proxy.stop()
    assert reply.startswith(b"HTTP/1.1 413")
    assert b"the body has 9999 bytes, 1000 are allowed" in reply


def test_a_change_of_the_configuration_holds_for_the_next(
    tmp_path: Path, upstream: FaultyUpstream
) -> None:
    """A changed policy decides about the next request, and keys may be required from then on."""
    running = Running(tmp_path, upstream.base_url)
    with running.process:
        port = int(running.process.base_url.rsplit(":")[2].partition("/")[0])
        with kept(port) as client:
            assert client.statuses() == [200] * TIMES
            running.write("house.yaml", HOLD)
            running.wait_for(2)
            assert client.ask()[0].headers["x-pinocchio-policy"].startswith("desk/")
            running.configure(more="keys: required\n")
            running.wait_for(3)
            assert client.ask()[0].status == 401
