"""WebSockets of scored surfaces that are refused, so that clients use HTTP and are scored."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.running.live_proxy import LiveProxy
from tests.servers.realtime_upstream import RealtimeUpstream

HOLDS = "version: 1\nname: strict\nmode: enforce\nrules: []\ndefault: {hold: {queue: review}}\n"
CODEX = (  # the handshake that Codex sends before its first request
    "GET /v1/responses HTTP/1.1\r\n"
    "Host: 127.0.0.1\r\n"
    "Connection: Upgrade\r\n"
    "Upgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    "Authorization: Bearer sk-test\r\n"
    "Openai-Beta: responses_websockets=2026-02-06\r\n"
    "Originator: codex_cli_rs\r\n"
    "User-Agent: codex_cli_rs/0.146.0\r\n"
    "\r\n"
)


def answer_to_codex(proxy: LiveProxy, path: str = "/v1/responses") -> bytes:
    """Return the bytes that answer Codex's handshake, up to the end of a WebSocket's head."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as connection:
        connection.sendall(CODEX.replace("/v1/responses", path).encode())
        answer = b""
        while not answer.startswith(b"HTTP/1.1 101") or b"\r\n\r\n" not in answer:
            if not (part := connection.recv(65_536)):
                break
            answer += part
        return answer


@pytest.mark.parametrize("options", [{"policy": HOLDS}, {"websockets": "refuse"}], ids=str)
def test_codex_gets_426(tmp_path: Path, options: dict[str, str]) -> None:
    """With an enforced policy, or the setting, Codex gets 426 with what to do."""
    with RealtimeUpstream() as upstream:
        proxy = LiveProxy(upstream.base_url, tmp_path, **options)
        try:
            answer = answer_to_codex(proxy)
            realtime = answer_to_codex(proxy, "/v1/realtime")
        finally:
            proxy.stop()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 426 ")
    assert b"\r\nupgrade: HTTP/1.1\r\n" in head + b"\r\n"
    assert b'"code": "websocket_undecided"' in body
    assert b"ask over HTTP" in body
    assert realtime.startswith(b"HTTP/1.1 101 ")  # nothing there could be asked over HTTP


def test_without_a_policy_the_websocket_is_relayed(tmp_path: Path) -> None:
    """By default, and where nothing is enforced, Codex keeps its WebSocket, unscored."""
    with RealtimeUpstream() as upstream:
        proxy = LiveProxy(upstream.base_url, tmp_path)
        try:
            answer = answer_to_codex(proxy)
        finally:
            proxy.stop()
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"x-pinocchio-confidence-status: not_supported" in answer
