"""Streams that docs/limits.md lists as having no number, or as refused by a policy."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.proxy.streams.gateway_events import CALLS, CHAT_EVENTS, asked, chunk, sse
from tests.running.live_proxy import OBSERVE, LiveProxy
from tests.servers.faulty_upstream import EVENTS, JSON, Response
from tests.servers.undecided import AnyUpstream

Json = dict[str, Any]
TEXT = sse(*CHAT_EVENTS, "[DONE]")


@pytest.fixture(scope="module")
def upstream() -> Iterator[AnyUpstream]:
    with AnyUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxies(
    upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, LiveProxy]]:
    """Yield a proxy that observes, and one that holds every call."""
    started = {
        name: LiveProxy(upstream.base_url, tmp_path_factory.mktemp(name), policy=policy)
        for name, policy in (("observe", OBSERVE), ("calls", CALLS))
    }
    yield started
    for proxy in started.values():
        proxy.stop()


def of_call(id: str, name: str) -> Json:
    """Return a chunk with a piece of a call, always under the index 0."""
    function = {"name": name, "arguments": "{}"}
    return chunk(delta={"tool_calls": [{"index": 0, "id": id, "function": function}]})


def test_parallel_calls_under_one_index_are_refused_where_a_policy_decides(
    proxies: dict[str, LiveProxy], upstream: AnyUpstream
) -> None:
    """Parallel calls under one index are refused where a policy decides, and pass elsewhere."""
    events = [of_call("a", "look_up"), of_call("b", "send")]
    stream = sse(*events, chunk(delta={}, finish_reason="tool_calls"), "[DONE]")
    upstream.answer = Response([stream], headers=EVENTS)
    assert "unreadable_reply" in asked(proxies["calls"], "chat", is_stream=True).text
    assert '"name":"send"' in asked(proxies["observe"], "chat", is_stream=True).text


def test_a_stream_that_upstream_compresses_passes_without_a_number(
    proxies: dict[str, LiveProxy], upstream: AnyUpstream
) -> None:
    """A stream that upstream compresses has no number; a deciding policy asks for no encoding."""
    packed = gzip.compress(TEXT)
    upstream.answer = Response([packed], headers=(*EVENTS, ("Content-Encoding", "gzip")))
    got = asked(proxies["observe"], "chat", is_stream=True)
    assert got.content == TEXT
    assert got.headers["x-pinocchio-confidence-reason"] == "encoding"


def test_a_stream_that_does_not_say_so_has_no_number(
    proxies: dict[str, LiveProxy], upstream: AnyUpstream
) -> None:
    """A stream without `text/event-stream` has no number, as OpenAI's clients may not read it."""
    upstream.answer = Response([TEXT], headers=(("Content-Type", "text/plain"),))
    assert asked(proxies["observe"], "chat", is_stream=True).content == TEXT
    refused = asked(proxies["calls"], "chat", is_stream=True)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "unreadable_reply")


@pytest.mark.parametrize("reply", [{"detail": "gone"}, {"message": "quota"}, ["quota"], "quota"])
def test_what_is_neither_a_completion_nor_marked_as_an_error_is_refused(
    proxies: dict[str, LiveProxy], upstream: AnyUpstream, reply: object
) -> None:
    """A reply that is neither a completion nor an error is refused: some client may read it."""
    body = json.dumps(reply).encode()
    upstream.answer = Response([body], headers=JSON)
    refused = asked(proxies["calls"], "chat", is_stream=False)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "unreadable_reply")
    assert asked(proxies["observe"], "chat", is_stream=False).content == body
