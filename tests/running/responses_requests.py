"""Requests to `/v1/responses` and `/v1/completions` through a proxy, and readers of the replies."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any

import httpx

from tests.running.live_proxy import LiveProxy, RawReply, post_raw
from tests.servers.responses_upstream import ResponsesUpstream

Json = dict[str, Any]
TEXT = "p=0.7 ä🍋"
UNSURE = """
version: 1
name: desk
mode: enforce
on_score_error: %s
rules:
  - {name: unsure, when: {confidence: {below: 0.5}}, then: %s}
default: deliver
"""
TOOLS = """
version: 1
name: tools
mode: enforce
on_score_error: deliver
rules:
  - {name: unsure tools, when: {tools: any, confidence: {below: 0.5}}, then: %s}
default: deliver
"""


def ask(proxy: LiveProxy, model: str = "ok", text: Any = TEXT, **fields: Any) -> RawReply:
    return post_raw(f"{proxy.base_url}/responses", {"model": model, "input": text, **fields})


def fetch(proxy: LiveProxy, id: str, query: str = "", key: str = "sk-client") -> httpx.Response:
    return proxy.http.get(f"/v1/responses/{id}{query}", headers={"authorization": f"Bearer {key}"})


def without_member(body: bytes) -> bytes:
    """Return the bytes without the `pinocchio` member, wherever it is."""
    text = body.decode()
    while (at := text.find(',"pinocchio":')) >= 0:
        _, end = json.JSONDecoder().raw_decode(text, at + len(',"pinocchio":'))
        text = text[:at] + text[end:]
    return text.encode()


def events_in(stream: bytes) -> list[Json]:
    """Return all events; check that each is named by its type."""
    events = []
    for block in stream.replace(b": ping\n\n", b"").strip().split(b"\n\n"):
        fields = dict(line.split(b": ", 1) for line in block.splitlines())
        event: Json = json.loads(fields[b"data"])
        assert fields[b"event"].decode() == event["type"]
        events.append(event)
    return events


def numbers_in(stream: bytes) -> list[int]:
    return [event["sequence_number"] for event in events_in(stream)]


def final_of(stream: bytes) -> Json:
    response: Json = events_in(stream)[-1]["response"]
    return response


def uncounted(body: bytes) -> bytes:
    """Return the bytes without the numbers by which the upstream counts its responses."""
    return re.sub(rb"resp_\d+", b"resp_N", body)


def upstream_answer(upstream: ResponsesUpstream, request: Json) -> bytes:
    """Return the upstream's own answer."""
    return uncounted(post_raw(f"{upstream.base_url}/responses", request).body)


def release(proxy: LiveProxy, id: str, state: str = "released") -> None:
    with sqlite3.connect(proxy.store_path) as store:
        store.execute("UPDATE held_replies SET state = ? WHERE id = ?", (state, id))
    store.close()


def held_ids(proxy: LiveProxy) -> list[str]:
    with sqlite3.connect(proxy.store_path) as store:
        ids = [id for (id,) in store.execute("SELECT id FROM held_replies ORDER BY created_at")]
    store.close()
    return ids


def events_in_order(stream: bytes) -> list[Json]:
    lines = (line for line in stream.splitlines() if line.startswith(b"data:"))
    return [json.loads(line[5:]) for line in lines]


def completion(proxy: LiveProxy, prompt: Any = "p=0.7 ä", **fields: Any) -> RawReply:
    body = {"model": "ok", "prompt": prompt, **fields}
    return post_raw(f"{proxy.base_url}/completions", body)
