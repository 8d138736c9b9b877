"""WebSockets through the proxy: what one side says or does arrives at the other."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from openai import AsyncOpenAI, OpenAI
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.frames import Close
from websockets.sync.client import connect as blocking_connect
from websockets.typing import Subprotocol

from proxy.config.sections import Config
from proxy.http.wire.http import Message, Scope
from proxy.optional.websockets.websocket_session import End, relay_messages
from proxy.optional.websockets.websockets import Realtime
from proxy.upstreams.router import Router
from tests.running.live_proxy import LiveProxy, ProxyProcess, free_port, until
from tests.servers.realtime_upstream import PART, RealtimeUpstream, refusal

LIMIT = 2 * 2**20  # limits.max_body of the proxies here
ENFORCE = """
version: 1
name: strict
mode: enforce
rules: []
default: {hold: {queue: review}}
"""


@pytest.fixture(scope="module")
def running() -> Iterator[RealtimeUpstream]:
    with RealtimeUpstream() as upstream:
        yield upstream


@pytest.fixture
def upstream(running: RealtimeUpstream) -> RealtimeUpstream:
    """Return the realtime API, which remembers only the sessions of this test."""
    running.forget()
    return running


def start(folder: Path, base_url: str, **options: Any) -> LiveProxy:
    return LiveProxy(base_url, folder, limits={"max_body": LIMIT}, **options)


@pytest.fixture(scope="module")
def proxy(
    running: RealtimeUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveProxy]:
    proxy = start(tmp_path_factory.mktemp("proxy"), running.base_url)
    yield proxy
    proxy.stop()


@pytest.fixture
def new_proxy(tmp_path: Path, upstream: RealtimeUpstream) -> Iterator[Callable[..., LiveProxy]]:
    """Yield a function that starts a proxy with its own options."""
    started: list[LiveProxy] = []

    def open_proxy(base_url: str | None = None, **options: Any) -> LiveProxy:
        started.append(start(tmp_path, base_url or upstream.base_url, **options))
        return started[-1]

    yield open_proxy
    for proxy in started:
        proxy.stop()


async def end_of(session: ClientConnection) -> Close | None:
    """Return the close frame that the client receives, or None if the connection breaks."""
    try:
        while True:
            await asyncio.wait_for(session.recv(), 5)
    except ConnectionClosed as closed:
        return closed.rcvd


class NoRedirect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def dial(
    proxy: LiveProxy, query: str = "model=echo", path: str = "/v1/realtime", **options: Any
) -> connect:
    options.setdefault("additional_headers", {"authorization": "Bearer sk-client"})
    url = f"ws://127.0.0.1:{proxy.port}{path}?{query}"
    return NoRedirect(url, proxy=None, open_timeout=5, close_timeout=1, **options)


async def refusal_of(attempt: connect) -> tuple[int, httpx.Headers, bytes]:
    with pytest.raises(InvalidStatus) as caught:
        await attempt
    answer = caught.value.response
    return answer.status_code, httpx.Headers(list(answer.headers.raw_items())), bytes(answer.body)


async def error_of(attempt: connect) -> tuple[int, str]:
    """Return status and code of a refusal in the proxy's own envelope."""
    status, headers, body = await refusal_of(attempt)
    assert headers["x-pinocchio-error"] == "true"
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return status, error["code"]


def records(proxy: LiveProxy) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(proxy.store_path)) as database:
        database.row_factory = sqlite3.Row
        rows = database.execute("SELECT * FROM exchanges ORDER BY started_at").fetchall()
    return [dict(row) for row in rows]


# Messages


@pytest.mark.parametrize(
    "message",
    [
        "hello",
        "",
        "caf\u00e9 \U0001f34b \u0000 \u2028 \U0001f468\u200d\U0001f469",
        '{"type": 1e5, "type": 1.0 }\n',
        b"\x00\xff binary \x80",
        b"",
        "x" * 2**20,
        bytes(range(256)) * 4096,
    ],
    ids=["text", "empty", "unicode", "json", "binary", "empty binary", "1 MB", "1 MB binary"],
)
async def test_messages_cross_as_they_are(
    proxy: LiveProxy, upstream: RealtimeUpstream, message: str | bytes
) -> None:
    """Text arrives as that text and bytes as those bytes, in both directions, also 1 MB of them."""
    async with dial(proxy, max_size=None) as session:
        await session.send(message)
        assert await session.recv() == message
    assert upstream.last.received == [message]


async def test_fragments_become_the_message_that_they_are(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """A message in fragments arrives whole in both directions, even if cut inside a character."""
    lemon = "\U0001f34b".encode()
    async with dial(proxy) as session:
        await session.send([b"caf\xc3", b"\xa9 ", b"", lemon[:1], lemon[1:]], text=True)
        assert await session.recv() == "caf\u00e9 \U0001f34b"
        await session.send("parts caf\u00e9| |\U0001f34b")
        assert await session.recv() == "caf\u00e9 \U0001f34b"
    assert upstream.last.received[0] == "caf\u00e9 \U0001f34b"


async def test_order_is_kept_in_both_directions_at_once(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """A thousand messages sent without waiting come back in their order."""
    messages = [f"message {number}" for number in range(1_000)]
    async with dial(proxy) as session:
        sending = asyncio.create_task(_send_all(session, messages))
        assert [await session.recv() for _ in messages] == messages
        await sending


async def _send_all(session: ClientConnection, messages: list[str]) -> None:
    for message in messages:
        await session.send(message)


async def test_pings_are_answered_on_their_own_connection(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """The client's ping and upstream's ping both get their pong on their own connection."""
    async with dial(proxy) as session:
        assert await asyncio.wait_for(await session.ping(), 5) >= 0
        await session.send("ping")
        assert await session.recv() == "pong after True"


# The handshake


async def test_the_handshake_crosses_with_its_query_and_fields(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """Path, query and the client's fields reach upstream; those of the proxy and the hop do not."""
    fields = {
        "authorization": "Bearer sk-client",
        "openai-beta": "realtime=v1",
        "user-agent": "app/1.0",
        "x-name": "caf\u00e9",
        "x-pinocchio-tags": "a",
        "x-hop": "1",
        "te": "trailers",
    }
    query = "model=gpt%2Drealtime&x=a%20b&x=%C3%A9&empty="
    async with dial(
        proxy, query, "/v1/realtime/a%2Fb", additional_headers=fields, user_agent_header=None
    ) as session:
        response = session.response
    assert upstream.last.target == f"/v1/realtime/a%2Fb?{query}"
    got = {name.lower(): value for name, value in upstream.last.headers}
    assert got["host"] == f"127.0.0.1:{upstream.port}"
    assert {name: got.get(name) for name in fields} == {
        **fields,
        "x-pinocchio-tags": None,
        "te": None,
    }
    assert len(upstream.last.all("sec-websocket-key")) == 1
    assert response is not None
    assert response.headers["x-pinocchio-confidence-status"] == "not_supported"
    assert response.headers["x-pinocchio-confidence-reason"] == "surface"
    assert response.headers["x-pinocchio-request-id"].startswith("req_")
    assert response.headers["x-request-id"] == "req_upstream_1"
    assert response.headers.get_all("set-cookie") == ["a=1", "b=2"]
    assert "x-pinocchio-confidence" not in response.headers
    assert "sec-websocket-extensions" not in response.headers


async def test_subprotocols_are_offered_upstream_and_its_choice_is_answered(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """A browser's key goes upstream as a subprotocol, and upstream's choice comes back."""
    offered = ["realtime", "openai-insecure-api-key.sk-browser", "openai-beta.realtime-v1"]
    named = [Subprotocol(name) for name in offered]
    async with dial(proxy, subprotocols=named, additional_headers=None) as session:
        assert session.subprotocol == "realtime"
    assert upstream.last.offered == offered
    async with dial(proxy, subprotocols=[Subprotocol("other")]) as session:
        assert session.subprotocol is None
    async with dial(proxy) as session:
        assert session.subprotocol is None
    assert upstream.last.offered == []


async def test_a_configured_key_replaces_the_clients(
    upstream: RealtimeUpstream, new_proxy: Callable[..., LiveProxy]
) -> None:
    """With `api_key` upstream gets only that key, wherever the client puts its own."""
    proxy = new_proxy(upstream={"api_key": "sk-configured"})
    names = [Subprotocol("realtime"), Subprotocol("openai-insecure-api-key.sk-browser")]
    async with dial(proxy, subprotocols=names):
        assert upstream.last.all("authorization") == ["Bearer sk-configured"]
        assert upstream.last.offered == ["realtime"]


@pytest.mark.parametrize("status", [307, 400, 401, 403, 404, 429, 500, 503])
async def test_a_refusal_is_answered_as_it_is(
    proxy: LiveProxy, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """Status, body and fields of upstream's refusal reach the client; no redirect is followed."""
    got, headers, body = await refusal_of(dial(proxy, f"model=refuse-{status}", compression=None))
    direct = refusal(status)
    assert (got, body) == (status, direct.body)
    for name in ("content-type", "x-request-id", "retry-after", "location"):
        assert headers.get(name) == direct.headers.get(name)
    assert headers["x-pinocchio-confidence-status"] == "not_supported"
    assert "x-pinocchio-error" not in headers
    await asyncio.sleep(0.05)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("not-http", (502, "upstream_broke_off")),
        ("hang-up", (502, "upstream_broke_off")),
        ("silent", (504, "upstream_timeout")),
    ],
)
async def test_an_upstream_that_does_not_answer_is_a_gateway_error(
    new_proxy: Callable[..., LiveProxy], model: str, expected: tuple[int, str]
) -> None:
    """Without a handshake from upstream the client gets 502 or 504 in OpenAI's envelope."""
    proxy = new_proxy(upstream={"timeout_s": 0.3})
    assert await error_of(dial(proxy, f"model={model}")) == expected


@pytest.mark.parametrize("url", ["http://127.0.0.1:{closed}/v1", "https://127.0.0.1:{plain}/v1"])
async def test_an_unreachable_upstream_is_a_502(
    upstream: RealtimeUpstream, new_proxy: Callable[..., LiveProxy], url: str
) -> None:
    """Where nothing listens, or nothing speaks TLS, the client gets 502 and the record says why."""
    proxy = new_proxy(url.format(closed=free_port(), plain=upstream.port))
    assert await error_of(dial(proxy)) == (502, "upstream_unreachable")
    until(lambda: records(proxy))
    row = records(proxy)[0]
    assert (row["status"], row["error"], row["model"]) == (502, "upstream_unreachable", "echo")


async def test_what_is_no_websocket_upstream_is_answered_as_http(proxy: LiveProxy) -> None:
    """A plain 200 in place of the handshake is relayed as HTTP."""
    status, _, body = await refusal_of(dial(proxy, "model=not-websocket"))
    assert status == 200
    assert b"says 200" in body


async def test_forward_proxies_of_the_environment_are_left_alone(
    proxy: LiveProxy, upstream: RealtimeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream is reached without the environment's forward proxies, as for relayed requests."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ws_proxy", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    async with dial(proxy):
        assert upstream.last.model == "echo"


# Routing


@pytest.mark.parametrize(
    ("query", "path", "code"),
    [
        ("model=demo", "/v1/realtime", "unknown_url"),
        ("model=echo", "/realtime", "unknown_url"),
        ("model=echo", "/v1/../admin", "invalid_path"),
        ("model=echo", "/v1/%2e%2e/admin", "invalid_path"),
    ],
)
async def test_what_no_upstream_serves_is_refused_in_openais_words(
    proxy: LiveProxy, upstream: RealtimeUpstream, query: str, path: str, code: str
) -> None:
    """The demo, other paths and dot segments get a code of ours, and nothing goes upstream."""
    status, refusal = await error_of(dial(proxy, query, path))
    assert (status, refusal) == (400 if code == "invalid_path" else 404, code)
    assert upstream.sessions == []


async def test_the_querys_model_chooses_the_upstream(
    upstream: RealtimeUpstream, new_proxy: Callable[..., LiveProxy]
) -> None:
    """The first `model` of the query is routed like a body's; else the default route counts."""
    proxy = new_proxy(
        models=({"match": "demo", "upstream": "demo"}, {"match": "echo*", "upstream": "faulty"})
    )
    for query in ("model=echo", "model=%65cho&model=demo", "", "x=1", "model="):
        async with dial(proxy, query) as session:
            await session.send("hello")
            assert await session.recv() == "hello"
    assert await error_of(dial(proxy, "model=other")) == (404, "model_not_found")
    assert await error_of(dial(proxy, "model=demo&model=echo")) == (404, "unknown_url")


@pytest.mark.parametrize("query", ["%", "%zz&&&==", "model=%FF%FE", "model=" + "e" * 9_000])
async def test_an_odd_query_reaches_upstream_as_it_is(
    proxy: LiveProxy, upstream: RealtimeUpstream, query: str
) -> None:
    """An odd query, with broken escapes or 9 KB, reaches upstream unchanged."""
    async with dial(proxy, query) as session:
        await session.send("hello")
        assert await session.recv() == "hello"
    assert upstream.last.target == f"/v1/realtime?{query}"


async def test_an_enforcing_policy_does_not_change_a_session(
    upstream: RealtimeUpstream, new_proxy: Callable[..., LiveProxy]
) -> None:
    """A WebSocket is relayed and labelled even if the policy would hold every reply."""
    async with dial(new_proxy(policy=ENFORCE)) as session:
        await session.send("hello")
        assert await session.recv() == "hello"
        assert session.response is not None
        assert session.response.headers["x-pinocchio-confidence-status"] == "not_supported"


# How sessions end


@pytest.mark.parametrize(
    ("code", "reason"),
    [(1000, ""), (1000, "caf\u00e9"), (1001, "bye"), (3000, "x" * 123), (4999, "")],
)
async def test_the_clients_close_reaches_upstream(
    proxy: LiveProxy, upstream: RealtimeUpstream, code: int, reason: str
) -> None:
    """Upstream gets the client's close code and reason after all of its messages."""
    async with dial(proxy) as session:
        for number in range(100):
            await session.send(f"message {number}")
        await session.close(code, reason)
    assert upstream.last.wait_for_end() == Close(code, reason)
    assert upstream.last.received == [f"message {number}" for number in range(100)]


@pytest.mark.parametrize(
    ("code", "reason"),
    [(1000, ""), (1000, "caf\u00e9"), (1008, "policy"), (1011, ""), (1014, ""), (4000, "x" * 123)],
)
async def test_upstreams_close_reaches_the_client(
    proxy: LiveProxy, upstream: RealtimeUpstream, code: int, reason: str
) -> None:
    """The client gets upstream's last messages, then its close code and reason."""
    async with dial(proxy) as session:
        await session.send(f"close {code} {reason}")
        assert await session.recv() == "last words"
        assert await end_of(session) == Close(code, reason)


async def test_last_words_arrive_while_the_client_keeps_sending(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """Upstream's last message and close code arrive although the client is still sending."""
    async with dial(proxy) as session:
        talking = asyncio.create_task(_talk(session))
        await session.send("close 4008 enough")
        while (word := await session.recv()) == "talk":
            pass
        assert word == "last words"
        assert await end_of(session) == Close(4008, "enough")
        talking.cancel()


async def _talk(session: ClientConnection) -> None:
    while True:
        await session.send("talk")
        await asyncio.sleep(0)


async def test_last_words_are_delivered_before_upstreams_end_counts() -> None:
    """Upstream's last messages are delivered to a slow client,
    although its own message to the closed upstream fails.
    """

    class SlowClient:
        received: list[str | bytes] = []  # noqa: RUF012  # one test, one client

        async def receive(self) -> Message:
            await asyncio.sleep(0.01)
            return {"type": "websocket.receive", "text": "talk"}

        async def send(self, data: str | bytes) -> None:
            await asyncio.sleep(0.1)
            self.received.append(data)

        async def close(self, end: End) -> None:
            self.received.append(f"{end.code} {end.reason}")

    class ClosedUpstream:
        words = iter(("last", "words"))
        closed = ConnectionClosedError(Close(4008, "enough"), Close(4008, "enough"), True)

        async def recv(self) -> str:
            try:
                return next(self.words)
            except StopIteration:
                raise self.closed from None

        async def send(self, _: object) -> None:
            raise self.closed

    client: Any = SlowClient()
    upstream: Any = ClosedUpstream()
    assert await relay_messages(client, upstream) == End(4008, "enough")
    assert client.received == ["last", "words", "4008 enough"]


async def test_a_close_without_a_code_has_none_on_the_other_side(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """An empty close frame stays empty in both directions."""
    async with dial(proxy) as session:
        await session.close(None)  # type: ignore[arg-type]  # a close frame without a code
    assert upstream.last.wait_for_end() == Close(1005, "")
    async with dial(proxy) as session:
        await session.send("close-without-code")
        assert await end_of(session) == Close(1005, "")


async def test_a_client_that_vanishes_ends_upstreams_session(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """When the client vanishes without a close frame, upstream gets 1001 within two seconds."""
    session = await dial(proxy)
    await session.send("hello")
    await session.recv()
    session.transport.abort()
    closed = await asyncio.to_thread(upstream.last.wait_for_end, 2)
    assert closed is not None
    assert closed.code == 1001
    until(lambda: any(row["error"] == "client_left" for row in records(proxy)))


async def test_a_client_that_leaves_during_the_handshake_ends_it(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """When the client leaves during the handshake, upstream's handshake is given up."""

    async def open() -> None:
        await dial(proxy, "model=slow")

    opening = asyncio.create_task(open())
    await asyncio.to_thread(until, lambda: upstream.sessions)
    opening.cancel()
    await asyncio.to_thread(upstream.last.wait_for_end, 2)
    until(lambda: any(row["status"] == 499 for row in records(proxy)))


@pytest.mark.parametrize("how", ["vanish", "bad-frame", "not-utf8"])
async def test_an_upstream_that_breaks_off_ends_the_session_with_1011(
    proxy: LiveProxy, upstream: RealtimeUpstream, how: str
) -> None:
    """When upstream breaks off, the client gets 1011, on which clients reconnect."""
    async with dial(proxy) as session:
        await session.send(how)
        closed = await end_of(session)
    assert closed == Close(1011, "upstream broke off the connection")


async def test_a_proxy_that_stops_says_so_to_both(
    upstream: RealtimeUpstream, new_proxy: Callable[..., LiveProxy]
) -> None:
    """When the proxy stops, the client gets 1012, upstream 1001, and the record is written."""
    proxy = new_proxy()
    async with dial(proxy) as session:
        await session.send("hello")
        await session.recv()
        proxy.ask_to_stop()
        assert await end_of(session) == Close(1012, "")
    closed = await asyncio.to_thread(upstream.last.wait_for_end, 2)
    assert closed is not None
    assert closed.code == 1001
    proxy.stop()
    assert [row["status"] for row in records(proxy)] == [101]


async def test_a_session_leaves_one_record(
    upstream: RealtimeUpstream, new_proxy: Callable[..., LiveProxy]
) -> None:
    """The record has the session's upstream, model, label and length, and none of its text."""
    proxy = new_proxy()
    async with dial(proxy) as session:
        await session.send("secret words")
        await session.recv()
        await asyncio.sleep(0.2)
        assert records(proxy) == []
    until(lambda: records(proxy))
    (row,) = records(proxy)
    fields = {name: row[name] for name in ("path", "upstream", "model", "is_stream", "status")}
    assert fields == {
        "path": "/v1/realtime",
        "upstream": "faulty",
        "model": "echo",
        "is_stream": 1,
        "status": 101,
    }
    assert (row["confidence_status"], row["reason"]) == ("not_supported", "surface")
    assert (row["error"], row["confidence"]) == (None, None)
    assert row["total_ms"] >= 200
    assert row["overhead_ms"] < 150
    assert "secret" not in str(row)


# Bounds


async def test_a_client_that_does_not_read_stops_upstream(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """Upstream can send no more than fits into the
    sockets, and all of it arrives in order later.
    """
    async with dial(proxy, "model=flood", max_queue=1) as session:
        sent = await _settled(lambda: upstream.last.sent)
        assert sent * PART < 48 * 2**20
        for number in range(sent + 10):
            assert (await session.recv())[:10] == b"%010d" % number


async def test_an_upstream_that_does_not_read_stops_the_client(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """The client can send no more than fits into the sockets, and all of it arrives later."""
    sent = 0

    async def flood() -> None:
        nonlocal sent
        while True:
            await session.send(b"%010d" % sent + b"." * PART)
            sent += 1

    async with dial(proxy, "model=stall") as session:
        flooding = asyncio.create_task(flood())
        assert await _settled(lambda: sent) * PART < 48 * 2**20
        flooding.cancel()
        upstream.last.proceed()
        for number in range(sent):
            assert (await session.recv())[:10] == b"%010d" % number


async def _settled(count: Callable[[], int]) -> int:
    """Return the count once it has not changed for half a second."""
    last, since = -1, time.monotonic()
    deadline = since + 8
    while time.monotonic() - since < 0.5:
        assert time.monotonic() < deadline, "it never stops"
        if count() != last:
            last, since = count(), time.monotonic()
        await asyncio.sleep(0.02)
    return last


@pytest.mark.parametrize("parts", [1, 8])
async def test_an_oversize_message_of_the_client_ends_with_1009(
    proxy: LiveProxy, upstream: RealtimeUpstream, parts: int
) -> None:
    """A client's message beyond `limits.max_body`, also in
    fragments, ends both sides with 1009, unsent upstream.
    """
    part = b"x" * ((4 * LIMIT) // parts)
    async with dial(proxy) as session:
        with suppress(ConnectionClosed):
            await session.send([part] * parts)
        refused = await end_of(session)
        assert refused is not None
        assert refused.code == 1009
    closed = upstream.last.wait_for_end()
    assert closed is not None
    assert closed.code == 1009
    assert upstream.last.received == []


async def test_clients_that_are_still_sending_can_read_why_they_are_refused(
    proxy: LiveProxy,
) -> None:
    """A client that is still sending gets the close code of its refusal at once."""
    url = f"ws://127.0.0.1:{proxy.port}/v1/realtime?model=echo"
    started = time.monotonic()
    async with aiohttp.ClientSession() as http, http.ws_connect(url) as session:
        await session.send_bytes(b"x" * (8 * LIMIT))
        await session.receive(5)
        assert session.close_code == 1009
    assert await asyncio.to_thread(_refused_code, url) == 1009
    assert time.monotonic() - started < 4.5  # neither waited until it gave up


def _refused_code(url: str) -> int | None:
    """Return the close code that OpenAI's blocking client, built on this library, would see."""
    with blocking_connect(url, proxy=None) as session:
        try:
            session.send(b"x" * (8 * LIMIT))
            session.recv(5)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else None
    return None


async def test_an_oversize_message_of_upstream_ends_with_1009(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """An upstream's message beyond `limits.max_body` ends both sides; one of that size passes."""
    async with dial(proxy, max_size=None) as session:
        await session.send(f"large {LIMIT}")
        assert len(await session.recv()) == LIMIT
        await session.send(f"large {LIMIT + 1}")
        closed = await end_of(session)
    assert closed == Close(1009, "upstream's message is larger than limits.max_body")
    close = upstream.last.wait_for_end()
    assert close is not None
    assert close.code == 1009


# Hostile and broken clients


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1.evil.example", "http://[", "file://"],
)
async def test_a_page_from_elsewhere_is_refused(
    proxy: LiveProxy, upstream: RealtimeUpstream, origin: str
) -> None:
    """A browser's cross-site WebSocket gets 403 while the proxy is open on loopback."""
    attempt = dial(proxy, additional_headers={"origin": origin})
    assert await error_of(attempt) == (403, "origin_not_allowed")
    assert upstream.sessions == []


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "http://[::1]:80"])
async def test_a_page_of_this_machine_is_served(
    proxy: LiveProxy, upstream: RealtimeUpstream, origin: str
) -> None:
    """A page with an Origin on loopback may connect, and its Origin reaches upstream."""
    async with dial(proxy, additional_headers={"origin": origin}):
        assert upstream.last.all("origin") == [origin]


async def test_hosts_and_origins_are_free_where_the_proxy_is_not_open(
    upstream: RealtimeUpstream, new_proxy: Callable[..., LiveProxy]
) -> None:
    """Where the proxy is not open any Origin is served."""
    proxy = new_proxy(is_open=False)
    async with dial(proxy, additional_headers={"origin": "https://app.example"}):
        assert upstream.last.all("origin") == ["https://app.example"]


HANDSHAKE = (
    "GET {target} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{more}\r\n"
)


def shake(
    proxy: LiveProxy, target: str = "/v1/realtime", host: str = "127.0.0.1", more: str = ""
) -> bytes:
    """Return the answer to a handmade handshake, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as connection:
        text = HANDSHAKE.format(target=target, host=host, more=more)
        connection.sendall(text.encode("latin-1"))
        return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.mark.parametrize(
    ("fields", "status", "expected"),
    [
        ({"host": "evil.example"}, b"403", b"host_not_allowed"),
        ({"more": "Host: 127.0.0.1\r\n"}, b"400", b"invalid_http"),
        ({"more": "Sec-WebSocket-Version: 12\r\n"}, b"400", b""),
        ({"more": "Sec-WebSocket-Protocol: not a token\r\n"}, b"400", b""),
        ({"more": f"Cookie: {'x' * 80_000}\r\n"}, b"431", b"header_too_large"),
        ({"more": "Content-Length: 4\r\n"}, b"400", b"invalid_handshake"),
        ({"target": "/v1/realtime?x=\xe9"}, b"400", b""),
        ({"target": "http://127.0.0.1/v1/realtime"}, b"404", b"unknown_url"),
    ],
    ids=[
        "host",
        "two hosts",
        "version",
        "subprotocol",
        "long field",
        "body",
        "raw byte",
        "absolute",
    ],
)
def test_a_broken_handshake_is_answered(
    proxy: LiveProxy,
    upstream: RealtimeUpstream,
    fields: dict[str, str],
    status: bytes,
    expected: bytes,
) -> None:
    """Any broken handshake gets an answer, and the connection ends."""
    answer = shake(proxy, **fields)
    assert answer.split()[1] == status
    assert expected in answer
    assert upstream.sessions == []


async def test_frames_against_the_protocol_end_the_session(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """Text that is no UTF-8 closes the client with 1007, and invalid frames with 1002."""
    for sent, code in ((b"\x81\x82\0\0\0\0\xff\xff", 1007), (b"\xff\xff\xff\xff", 1002)):
        async with dial(proxy) as session:
            session.transport.write(sent)
            closed = await end_of(session)
            assert closed is not None
            assert closed.code == code
        assert upstream.last.wait_for_end() is not None


@pytest.mark.parametrize("broken", ["path_after_v1", "relay_messages"])
async def test_proxy_fault_is_reported(
    proxy: LiveProxy, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """A fault of the proxy gives 500 before the handshake and 1011 after it."""

    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(f"proxy.optional.websockets.websockets.{broken}", fail)
    if broken == "path_after_v1":
        assert await error_of(dial(proxy)) == (500, "internal_error")
        return
    async with dial(proxy) as session:
        assert await end_of(session) == Close(1011, "the proxy failed; its log says where")


async def test_a_server_that_cannot_refuse_in_http_closes() -> None:
    """Without ASGI's extension for refusals the handshake is refused by closing."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    scope: Scope = {"type": "websocket", "path": "/x", "query_string": b"", "headers": []}
    config = Config()
    app = Realtime(config, Router(config), None, is_open=True)
    await app({**scope, "subprotocols": []}, receive, send)
    assert sent == [{"type": "websocket.close"}]


# With official clients

# OpenAI's blocking client opens its connection with a function that `websockets` 17.1 has renamed.
openais_way = pytest.mark.filterwarnings("ignore:connect.. must be used as a:DeprecationWarning")


async def test_openais_client_holds_a_conversation(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """`client.realtime.connect` gets upstream's events, typed and in order."""
    client = AsyncOpenAI(base_url=proxy.base_url, api_key="sk-client")
    async with client.realtime.connect(model="gpt-realtime") as connection:
        assert (await connection.recv()).type == "session.created"
        update: Any = {"type": "realtime", "instructions": "Bonjour le caf\u00e9 \U0001f34b"}
        await connection.session.update(session=update)
        assert (await connection.recv()).type == "session.updated"
        await connection.response.create()
        words, done = [], None
        async for event in connection:
            if event.type == "response.output_text.delta":
                words.append(event.delta)
            elif event.type == "response.done":
                done = event.response.status
                break
        await connection.input_audio_buffer.clear()
        assert (await connection.recv()).type == "error"
    assert words == ["Bonjour", "le", "caf\u00e9", "\U0001f34b"]
    assert done == "completed"
    assert upstream.last.all("authorization") == ["Bearer sk-client"]
    assert upstream.last.wait_for_end() == Close(1000, "")
    await client.close()


@openais_way
def test_openais_blocking_clients_talk_through_the_proxy(
    proxy: LiveProxy, upstream: RealtimeUpstream
) -> None:
    """OpenAI's synchronous client and `client.responses.connect` work through the proxy."""
    with OpenAI(base_url=proxy.base_url, api_key="sk-client") as client:
        with client.realtime.connect(model="gpt-realtime") as connection:
            assert connection.recv().type == "session.created"
        with client.responses.connect() as responses:
            responses.response.create(model="gpt-5.6", input="Hello?")
            assert responses.recv().type == "response.completed"
    assert upstream.last.target == "/v1/responses"


@openais_way
def test_the_served_proxy_relays_websockets(upstream: RealtimeUpstream, tmp_path: Path) -> None:
    """`pinocchio serve` relays WebSockets without configuration, with one log line each."""
    config = f"""
upstreams: {{there: {{base_url: "{upstream.base_url}"}}}}
models: [{{match: "*", upstream: there}}]
calibrator: {{checkpoint: none}}
store: sqlite:///{tmp_path}/held.db
"""
    with ProxyProcess(tmp_path, config) as process:
        with (
            OpenAI(base_url=process.base_url, api_key="sk-canary") as client,
            client.realtime.connect(model="gpt-realtime") as connection,
        ):
            assert connection.recv().type == "session.created"
        until(lambda: process.lines())
        (line,) = process.lines()
    fields = (line["path"], line["model"], line["status"], line["confidence_status"])
    assert fields == ("/v1/realtime", "gpt-realtime", 101, "not_supported")
    assert "sk-canary" not in process.stderr()
