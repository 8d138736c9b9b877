"""Streams, waiting requests and WebSockets of a client key end when the key does."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.running.client_keys import bearer, make_key, revoke_key, wait_until_known
from tests.running.live_proxy import LiveProxy, question
from tests.servers.raw_server import Peer, RawServer
from tests.servers.realtime_upstream import RealtimeUpstream

ALLOWED_S = 4.0  # usually half a second; other work may share the machine
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Endless:
    """An upstream whose streams go on, and whose other replies never begin."""

    def __init__(self) -> None:
        self.left = threading.Semaphore(0)

    def __call__(self, peer: Peer) -> None:
        seen = peer.request()
        if seen is None:
            return
        if seen.line.startswith(b"GET"):
            peer.send(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
        elif json.loads(seen.body).get("stream"):
            chunk = {"id": "c", "choices": [{"index": 0, "delta": {"content": "word "}}]}
            event = b"data: %b\n\n" % json.dumps(chunk).encode()
            peer.send(HEAD)
            try:
                while True:
                    peer.send(b"%x\r\n%b\r\n" % (len(event), event), pause_s=0.02)
            except OSError:
                self.left.release()
                return
        elif peer.is_left_within(30):
            self.left.release()


@pytest.fixture
def endless() -> Endless:
    return Endless()


@pytest.fixture
def proxy(endless: Endless, tmp_path: Path) -> Iterator[LiveProxy]:
    with RawServer(endless) as upstream:
        proxy = LiveProxy(
            upstream.base_url, tmp_path, keys="required", upstream={"api_key": "sk-own"}
        )
        yield proxy
        proxy.stop()


@pytest.mark.parametrize("ending", ["revoked", "expired"])
@pytest.mark.parametrize("stream", [True, False])
def test_streams_and_requests_end_with_their_key(
    proxy: LiveProxy, endless: Endless, stream: bool, ending: str
) -> None:
    """When a key is revoked its stream breaks off, its waiting request
    gets an error, and both calls to upstream end. Another key's go on.
    """
    expires_at = time.time() + 3 if ending == "expired" else None
    secret, key = make_key(proxy.store_path, expires_at=expires_at)
    other, _ = make_key(proxy.store_path)
    wait_until_known(proxy.base_url, other)
    ended: list[float] = []
    is_there = threading.Event()

    def ask() -> None:
        url = f"{proxy.base_url}/chat/completions"
        exchange = httpx.stream(
            "POST", url, json=question("hi", stream=stream), headers=bearer(secret), timeout=20
        )
        try:
            with exchange as response:
                parts = []
                for part in response.iter_raw():
                    parts.append(part)
                    is_there.set()
                assert response.status_code == 401
                assert key.id.encode() in b"".join(parts)
        except httpx.RemoteProtocolError:
            assert stream
        ended.append(time.time())

    def listen() -> None:
        url = f"{proxy.base_url}/chat/completions"
        exchange = httpx.stream(
            "POST", url, json=question("hi", stream=True), headers=bearer(other), timeout=20
        )
        with exchange as response:
            for _ in response.iter_raw():
                if ended:
                    return

    threads = [threading.Thread(target=ask), threading.Thread(target=listen)]
    for thread in threads:
        thread.start()
    if stream:
        assert is_there.wait(10)
    else:
        time.sleep(0.5)
    if expires_at is None:
        revoke_key(proxy.store_path, key.id)
    since = time.time() if expires_at is None else expires_at
    for thread in threads:
        thread.join(15)
    assert not any(thread.is_alive() for thread in threads)
    print(f"ended after {ended[0] - since:.2f} s")
    assert -0.1 < ended[0] - since < ALLOWED_S
    assert endless.left.acquire(timeout=5)


async def test_a_websocket_ends_with_its_key(tmp_path: Path) -> None:
    """A WebSocket is closed with 1008 and a reason, and upstream's end as well."""
    with RealtimeUpstream() as upstream:
        proxy = LiveProxy(
            upstream.base_url, tmp_path, keys="required", upstream={"api_key": "sk-own"}
        )
        secret, key = make_key(proxy.store_path)
        await asyncio.to_thread(wait_until_known, proxy.base_url, secret)
        url = f"ws://127.0.0.1:{proxy.port}/v1/realtime?model=echo"
        async with connect(url, additional_headers=bearer(secret), proxy=None) as session:
            await session.send("hello")
            assert await session.recv() == "hello"
            revoke_key(proxy.store_path, key.id)
            revoked_at = time.monotonic()
            with suppress(ConnectionClosed):
                while time.monotonic() - revoked_at < 10:
                    await session.send("still here")
                    await asyncio.wait_for(session.recv(), 10)
                    await asyncio.sleep(0.05)
            assert time.monotonic() - revoked_at < ALLOWED_S
            assert (session.close_code, session.close_reason) == (
                1008,
                "the client key was revoked or has expired",
            )
        await asyncio.to_thread(upstream.last.wait_for_end)
        await asyncio.to_thread(proxy.stop)


async def test_responses_over_a_websocket_count_for_the_limit(tmp_path: Path) -> None:
    """A message that creates a response counts as a request; beyond the limit it
    gets an error event and is not sent upstream. Other messages do not count.
    """
    with RealtimeUpstream() as upstream:
        proxy = LiveProxy(
            upstream.base_url, tmp_path, keys="required", upstream={"api_key": "sk-own"}
        )
        secret, _ = make_key(proxy.store_path, requests_per_minute=5)
        other, _ = make_key(proxy.store_path)
        await asyncio.to_thread(wait_until_known, proxy.base_url, other)
        url = f"ws://127.0.0.1:{proxy.port}/v1/realtime?model=echo"
        asking = '{"type":"response.cre\\u0061te"}'
        async with connect(url, additional_headers=bearer(secret), proxy=None) as session:
            events = []
            for message in [asking] * 7 + ['{"type":"input_audio_buffer.append"}'] * 20:
                await session.send(message)
                events.append(json.loads(await asyncio.wait_for(session.recv(), 10)))
        assert [each["type"] for each in events[:7]] == ["response.create"] * 4 + ["error"] * 3
        assert {each["error"]["code"] for each in events[4:7]} == {"rate_limit_exceeded"}
        assert {each["type"] for each in events[7:]} == {"input_audio_buffer.append"}
        assert upstream.last.received.count(asking) == 4
        await asyncio.to_thread(proxy.stop)
