"""An upstream that gives the same answer at any path, and what a policy lets through of it.

with AnyUpstream() as upstream:
    upstream.answer = Response([b'{"choices": ...}'])
    sent = send(port, "POST", "/v1//chat/completions", BODIES["chat"])
    assert SECRET not in sent
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.running.live_proxy import LiveProxy
from tests.servers.faulty_upstream import FaultyUpstream, Received, Response

Json = dict[str, Any]

SECRET = "xylophone"  # in every text and call of an answer
HOLD_ALL = "version: 1\nname: all\nmode: enforce\nrules: []\ndefault: {hold: {queue: q}}\n"
HOLD_CALLS = """
version: 1
name: calls
mode: enforce
rules:
  - {name: any call, when: {tools: any}, then: {hold: {queue: q, reply: error}}}
default: deliver
"""
PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
_MESSAGES = [{"role": "user", "content": "What is it?"}]
REQUESTS: Mapping[str, Json] = {
    "chat": {"model": "m", "messages": _MESSAGES},
    "completions": {"model": "m", "prompt": "What is it?"},
    "responses": {"model": "m", "input": "What is it?"},
    "messages": {"model": "m", "max_tokens": 99, "messages": _MESSAGES},
}
ANSWERS: Mapping[str, Json] = {
    "chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": SECRET},
                "finish_reason": "stop",
            }
        ],
    },
    "completions": {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "text": SECRET, "finish_reason": "stop", "logprobs": None}],
    },
    "responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "m",
        "output": [
            {
                "id": "msg_1",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": SECRET, "annotations": []}],
            }
        ],
    },
    "messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": SECRET}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}


class AnyUpstream(FaultyUpstream):
    """Gives `answer` at every path, to every method."""

    answer = Response([b"{}"])

    def respond(self, request: Received) -> Response:
        return self.answer


@contextmanager
def holding(
    upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory, policy: str
) -> Iterator[LiveProxy]:
    """Yield a proxy that holds by this policy and does not wait for a calibrator."""
    proxy = LiveProxy(
        upstream.base_url,
        tmp_path_factory.mktemp("holding"),
        policy=policy,
        upstream={"speaks": "both"},
        records={"keep_days": 0},
    )
    yield proxy
    proxy.stop()


def asking(surface: str, **more: Any) -> bytes:
    return json.dumps({**REQUESTS[surface], **more}).encode()


def send(port: int, method: str, target: str, body: bytes, *fields: str) -> bytes:
    """Send a request exactly as it is written; return all bytes of the answer."""
    head = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close"]
    head += ["Content-Type: application/json", f"Content-Length: {len(body)}", *fields]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode("latin-1") + body)
        parts = []
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def passed(answer: bytes) -> bool:
    """Return whether the client got anything of upstream's answer."""
    return SECRET.encode() in answer
