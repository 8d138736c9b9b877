"""Answers that are more than text are not scored as if their text were all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.running.live_proxy import LiveProxy
from tests.servers.faulty_upstream import JSON, Response
from tests.servers.undecided import ANSWERS, PATHS, AnyUpstream, asking

Json = dict[str, Any]
AUDIO = {"id": "audio_1", "data": "AAAA", "transcript": "hm", "expires_at": 1}
CASES: dict[str, tuple[str, Json, str]] = {
    "audio": ("chat", {"content": None, "audio": AUDIO}, "audio"),
    "audio beside a text": ("chat", {"content": "hm", "audio": AUDIO}, "audio"),
    "drawn images": ("chat", {"content": "hm", "images": [{"type": "image_url"}]}, "image"),
    "a part of sound": ("chat", {"content": [{"type": "output_audio"}]}, "audio"),
    "a call of a new type": (
        "chat",
        {"content": None, "tool_calls": [{"id": "c", "type": "mcp", "mcp": {"name": "f"}}]},
        "unknown_call",
    ),
    "a call that is two": (
        "chat",
        {"tool_calls": [{"function": {"name": "f"}, "custom": {"name": "g"}}]},
        "unknown_call",
    ),
    "sound in a response": ("responses", {"type": "output_audio", "data": "AAAA"}, "audio"),
    "an image in a message": ("messages", {"type": "image", "source": {}}, "image"),
    "a block of a new type": ("messages", {"type": "hologram", "text": "hm"}, "unknown_call"),
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[AnyUpstream]:
    with AnyUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxy(upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProxy]:
    """Yield a proxy that only observes."""
    folder = tmp_path_factory.mktemp("proxy")
    proxy = LiveProxy(upstream.base_url, folder, upstream={"speaks": "both"})
    yield proxy
    proxy.stop()


def answer_with(surface: str, part: Json) -> Json:
    """Return a surface's answer that contains this message, or this part of one."""
    answer: Json = json.loads(json.dumps(ANSWERS[surface]))
    if surface == "chat":
        answer["choices"][0]["message"] = {"role": "assistant", **part}
    elif surface == "responses":
        answer["output"][0]["content"] = [part]
    else:
        answer["content"] = [part]
    return answer


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_text_is_not_scored(proxy: LiveProxy, upstream: AnyUpstream, name: str) -> None:
    """An answer that is more than text has no confidence but a reason, and arrives unchanged."""
    surface, part, reason = CASES[name]
    body = json.dumps(answer_with(surface, part)).encode()
    upstream.answer = Response([body], headers=JSON)
    fields = {"content-type": "application/json"}
    got = proxy.http.post(PATHS[surface], content=asking(surface), headers=fields)
    assert got.headers["x-pinocchio-confidence-status"] == "not_supported"
    assert got.headers["x-pinocchio-confidence-reason"] == reason
    assert "x-pinocchio-confidence" not in got.headers
    assert got.json() | {"pinocchio": None} == json.loads(body) | {"pinocchio": None}


@pytest.mark.parametrize("surface", PATHS)
def test_a_text_is_scored(proxy: LiveProxy, upstream: AnyUpstream, surface: str) -> None:
    """An answer of text alone has a number."""
    upstream.answer = Response([json.dumps(ANSWERS[surface]).encode()], headers=JSON)
    fields = {"content-type": "application/json"}
    got = proxy.http.post(PATHS[surface], content=asking(surface), headers=fields)
    assert got.headers["x-pinocchio-confidence-status"] == "scored"
