"""What the tests of `/v1/messages` share: requests, readers of replies, and proxies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.running import reviewing
from tests.running.live_proxy import LiveProxy, RawReply, post_raw, proxies
from tests.servers.messages_upstream import MessagesUpstream

Json = dict[str, Any]
Start = Callable[..., LiveProxy]

ACTION = "x-pinocchio-action"
STATUS = "x-pinocchio-confidence-status"
HEADERS = {
    "x-api-key": "sk-ant-client",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219",
    "accept-encoding": "identity",
}
TOOLS = [
    {"name": name, "description": "d", "input_schema": {"type": "object", "properties": {}}}
    for name in ("weather", "clock")
]


@contextmanager
def proxies_before(
    upstream: MessagesUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Start]:
    """Yield a function that starts a proxy in front of the upstream, or returns a running one.

    A running proxy is returned if it has the same options.
    """

    def make(key: str = "", **options: Any) -> LiveProxy:
        spoken = {"speaks": "anthropic", "api_key": key}
        folder = tmp_path_factory.mktemp("proxy")
        return LiveProxy(upstream.base_url, folder, upstream=spoken, **options)

    with proxies(make) as start:
        yield start


def asked(text: str = "p=0.9", model: str = "ok", **fields: Any) -> Json:
    messages = [{"role": "user", "content": text}]
    return {"model": model, "max_tokens": 100, "messages": messages, **fields}


def ask(where: LiveProxy | MessagesUpstream, body: Json | bytes, query: str = "") -> RawReply:
    headers = {name.replace("-", "_"): value for name, value in HEADERS.items()}
    return post_raw(f"{where.base_url}/messages{query}", body, **headers)


def policy(then: str, when: str = "confidence: {below: 0.3}", **more: str) -> str:
    lines = [f"{key}: {value}" for key, value in more.items()]
    rule = f"{{name: unsure, when: {{{when}}}, then: {then}}}"
    return "\n".join(["version: 1", "name: desk", *lines, f"rules: [{rule}]", "default: deliver"])


def error_of(body: bytes) -> Json:
    reply = json.loads(body)
    assert reply["type"] == "error"
    always = {"type", "message", "code", "param", "details"}
    assert always <= set(reply["error"]) <= always | {"review_id", "note", "retry_after_s"}
    error: Json = reply["error"]
    return error


def decide(proxy: LiveProxy, id: str, state: str) -> None:
    assert reviewing.decide(f"sqlite:///{proxy.store_path}", id, state)


def data_of(stream: bytes) -> list[Json]:
    """Return the data of all events; check that each event's name is its type."""
    events = []
    for block in stream.replace(b"\r\n", b"\n").strip().split(b"\n\n"):
        lines = dict(line.split(b": ", 1) for line in block.split(b"\n") if line[:1] != b":")
        if lines:
            events.append(json.loads(lines[b"data"]))
            assert lines[b"event"].decode() == events[-1]["type"]
    return events


def accumulated(stream: bytes) -> Json:
    """Return the message in a stream, assembled as Anthropic's SDK does; fail where it would."""
    first, *rest = data_of(stream)
    message: Json = first["message"]
    texts: dict[int, str] = {}
    assert rest[-1]["type"] == "message_stop"
    for data in rest:
        match data["type"]:
            case "content_block_start":
                assert data["index"] == len(message["content"])
                message["content"].append(data["content_block"])
            case "content_block_delta":
                block, delta = message["content"][data["index"]], data["delta"]
                if delta["type"] == "input_json_delta":
                    texts[data["index"]] = texts.get(data["index"], "") + delta["partial_json"]
                    continue
                for key, value in delta.items():
                    if key == "citation":
                        block.setdefault("citations", []).append(value)
                    elif key != "type":
                        block[key] = block.get(key, "") + value
            case "message_delta":
                message |= data["delta"]
                message["usage"] |= data["usage"]
    for index, text in texts.items():
        message["content"][index]["input"] = json.loads(text or "{}")
    return message


def member_in(reply: RawReply, is_stream: bool) -> Json:
    if not is_stream:
        member: Json = json.loads(reply.body)["pinocchio"]
        return member
    [member] = [data["pinocchio"] for data in data_of(reply.body) if "pinocchio" in data]
    return member


def text_of(message: Json) -> str:
    return "".join(block.get("text", "") for block in message["content"])


def tool_policy(then: str) -> str:
    return policy(then, when="tools: [weather, web_search], confidence: {below: 0.3}")
