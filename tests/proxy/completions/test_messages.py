"""`/v1/messages` end to end, to an upstream that speaks Anthropic's format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.running.live_proxy import LiveProxy, until, without_member
from tests.running.messages_client import (
    HEADERS,
    STATUS,
    TOOLS,
    Start,
    accumulated,
    ask,
    asked,
    data_of,
    error_of,
    member_in,
    proxies_before,
    tool_policy,
)
from tests.servers.messages_upstream import SIGNATURE, MessagesUpstream, events_for

KINDS = ["ok", "thinks", "tools", "searches", "refuses", "pauses", "too-long", "vendor", "split"]


@pytest.fixture(scope="module")
def running() -> Iterator[MessagesUpstream]:
    with MessagesUpstream() as upstream:
        yield upstream


@pytest.fixture
def upstream(running: MessagesUpstream) -> MessagesUpstream:
    running.forget()
    return running


@pytest.fixture(scope="module")
def start(running: MessagesUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    with proxies_before(running, tmp_path_factory) as start:
        yield start


@pytest.fixture
def proxy(start: Start) -> LiveProxy:
    return start()


# The bytes


@pytest.mark.parametrize("model", [*KINDS, "large-input"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_the_bytes_are_upstreams(
    proxy: LiveProxy, upstream: MessagesUpstream, model: str, is_stream: bool
) -> None:
    """Without the member the bytes are upstream's, and upstream's own headers arrive as well."""
    body = asked("p=0.7 ä🍋", model, stream=is_stream, tools=TOOLS)
    got, direct = ask(proxy, body), ask(upstream, body)
    assert got.body.count(b'"pinocchio"') == 1
    assert without_member(got.body) == direct.body
    assert got.headers["request-id"] == direct.headers["request-id"]
    assert got.headers["anthropic-ratelimit-requests-remaining"] == "999"
    member, confidence = member_in(got, is_stream), 0.42 if model == "vendor" else 0.7
    assert (member["confidence"], member["action"]) == (confidence, "deliver")


@pytest.mark.parametrize("is_stream", [False, True])
def test_with_attach_off_nothing_is_added(
    start: Start, upstream: MessagesUpstream, is_stream: bool
) -> None:
    """With `attach.body: false` every byte is upstream's."""
    proxy = start(attach={"body": False})
    for model in KINDS:
        body = asked("p=0.7", model, stream=is_stream, tools=TOOLS)
        assert ask(proxy, body).body == ask(upstream, body).body


def test_the_request_is_the_clients(proxy: LiveProxy, upstream: MessagesUpstream) -> None:
    """Bytes, query and headers go upstream unchanged, the client's own key among them."""
    body = b'{ "max_tokens":1e1, "messages":[{"role":"user","content":"p=0.9"}],"model":"ok","x":1}'
    ask(proxy, body, "?beta=true")
    assert upstream.last.body == body
    assert upstream.last.target == "/v1/messages?beta=true"
    for name, value in HEADERS.items():
        assert upstream.last.header(name) == value
    assert upstream.last.header("authorization") == "Bearer sk-client"


def test_the_member_stands_in_the_finish(proxy: LiveProxy) -> None:
    """A stream's confidence is the last member of message_delta, and nowhere else."""
    events = data_of(ask(proxy, asked("p=0.7", stream=True)).body)
    [finish] = [data for data in events if "pinocchio" in data]
    assert (finish["type"], list(finish)[-1]) == ("message_delta", "pinocchio")
    assert finish["pinocchio"]["choices"] == [
        {
            "index": 0,
            "confidence": 0.7,
            "status": "scored",
            "basis": ["likeness"],
            "action": "deliver",
        }
    ]


def test_headers_tell_the_confidence(proxy: LiveProxy) -> None:
    """A message that is not streamed has its confidence in the headers as well."""
    got = ask(proxy, asked("p=0.7"))
    assert (got.headers["x-pinocchio-confidence"], got.headers[STATUS]) == ("0.7000", "scored")
    assert "x-pinocchio-error" not in got.headers


def test_events_are_not_kept_back(proxy: LiveProxy, upstream: MessagesUpstream) -> None:
    """Deltas reach the client while upstream is still writing."""
    body = asked("p=0.7 and more", "gated", stream=True)
    with proxy.http.stream("POST", "/v1/messages", json=body, headers=HEADERS) as response:
        parts = response.iter_raw()
        seen = b""
        while b"text_delta" not in seen:
            seen += next(parts)
        assert b"message_delta" not in seen
        upstream.last.proceed()
        assert b'"pinocchio"' in b"".join(parts)


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    sizes=st.lists(st.integers(1, 64), min_size=1, max_size=5),
)
@settings(max_examples=20)
def test_any_split_gives_the_same_bytes(
    proxy_in_front: Callable[[list[bytes]], bytes], text: str, sizes: list[int]
) -> None:
    """However upstream cuts its bytes, in a character too, the client gets them all."""
    thinking = {"type": "thinking", "thinking": text, "signature": SIGNATURE}
    call = {"type": "tool_use", "id": "t", "name": "n", "input": {"text": text}}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [thinking, {"type": "text", "text": text}, call],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 5},
    }
    raw = b"".join(events_for(message))
    parts, at = [], 0
    while at < len(raw):
        size = sizes[len(parts) % len(sizes)]
        parts.append(raw[at : at + size])
        at += size
    got = proxy_in_front(parts)
    assert without_member(got) == raw
    received = accumulated(got)
    assert (received["content"], received["stop_reason"]) == (message["content"], "tool_use")


@pytest.fixture(scope="module")
def proxy_in_front(start: Start, running: MessagesUpstream) -> Callable[[list[bytes]], bytes]:
    """Return a function that streams parts from the upstream and returns what a client gets."""
    proxy = start()

    def get(parts: list[bytes]) -> bytes:
        running.told = parts
        return ask(proxy, asked("x", "told", stream=True)).body

    return get


# Messages that cannot be scored, and failures


def test_images_are_delivered_without_a_number(proxy: LiveProxy) -> None:
    """A question with an image gets a reason in place of a confidence."""
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    content = [image, {"type": "text", "text": "What is this? p=0.9"}]
    got = ask(proxy, asked() | {"messages": [{"role": "user", "content": content}]})
    assert (got.status, got.headers[STATUS]) == (200, "not_supported")
    assert got.headers["x-pinocchio-confidence-reason"] == "image"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 529])
@pytest.mark.parametrize("is_stream", [False, True])
def test_upstreams_errors_are_its_own(
    proxy: LiveProxy, upstream: MessagesUpstream, status: int, is_stream: bool
) -> None:
    """Status, body and limits of an upstream's error arrive unchanged, 529 too."""
    body = asked(model=f"status-{status}", stream=is_stream)
    got, direct = ask(proxy, body), ask(upstream, body)
    assert (got.status, got.body) == (status, direct.body)
    assert got.headers.get("retry-after") == direct.headers.get("retry-after")
    assert got.headers["request-id"] == direct.headers["request-id"]
    assert "x-pinocchio-error" not in got.headers


def test_upstreams_error_event_is_the_last(proxy: LiveProxy, upstream: MessagesUpstream) -> None:
    """An error in upstream's stream arrives unchanged, and nothing follows it."""
    body = asked(model="error-event", stream=True)
    assert ask(proxy, body).body == ask(upstream, body).body


def test_a_stream_that_breaks_off_ends_in_an_error(proxy: LiveProxy) -> None:
    """A stream that upstream breaks off ends with an error event."""
    events = data_of(ask(proxy, asked("p=0.9 and more", "cut", stream=True)).body)
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["code"] == "upstream_broke_off"
    assert events[-1]["error"]["type"] == "api_error"


def test_a_stream_without_its_finish_has_no_confidence(
    proxy: LiveProxy, upstream: MessagesUpstream
) -> None:
    """A stream that upstream ends too early arrives unchanged, without a confidence."""
    body = asked("p=0.9 and more", "no-finish", stream=True)
    got = ask(proxy, body).body
    assert got.startswith(ask(upstream, body).body)
    assert b'"pinocchio"' not in got
    assert b"message_stop" not in got


def test_a_reply_that_breaks_off_is_an_error(proxy: LiveProxy) -> None:
    """Half a message becomes an error in Anthropic's envelope, with a status that clients retry."""
    got = ask(proxy, asked(model="cut"))
    assert (got.status, error_of(got.body)["code"]) == (502, "upstream_broke_off")


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"{", "invalid_json"), (b"[]", "invalid_type")],
)
def test_our_errors_are_in_anthropics_envelope(proxy: LiveProxy, body: bytes, code: str) -> None:
    """An error of the proxy's own has Anthropic's envelope."""
    got = ask(proxy, body)
    assert (got.status, got.headers["x-pinocchio-error"]) == (400, "true")
    assert (error_of(got.body)["type"], error_of(got.body)["code"]) == (
        "invalid_request_error",
        code,
    )


def test_leaving_a_stream_cancels_upstream(proxy: LiveProxy, upstream: MessagesUpstream) -> None:
    """When a client leaves its stream, the call to upstream ends."""
    body = asked("p=0.7 and more", "gated", stream=True)
    with proxy.http.stream("POST", "/v1/messages", json=body, headers=HEADERS) as response:
        next(response.iter_raw())
    assert upstream.last.is_cut_off(within_s=5)


# Other paths of the same API


def test_counting_and_batches_are_relayed(proxy: LiveProxy, upstream: MessagesUpstream) -> None:
    """Token counts, batches and models are relayed and labelled as not judged."""
    for method, path in (
        ("POST", "/messages/count_tokens"),
        ("POST", "/messages/batches"),
        ("GET", "/messages/batches"),
        ("GET", "/models"),
    ):
        content = json.dumps(asked()) if method == "POST" else None
        url = f"/v1{path}?beta=true"
        got = proxy.http.request(method, url, headers=HEADERS, content=content)
        assert (got.status_code, got.headers[STATUS]) == (200, "not_supported")
        assert upstream.last.target == url
        assert upstream.last.header("x-api-key") == "sk-ant-client"


def test_other_ids_are_upstreams_business(proxy: LiveProxy, upstream: MessagesUpstream) -> None:
    """An id that is not the proxy's goes upstream, which knows no such path."""
    got = proxy.http.get("/v1/messages/msg_013Zva2CMHLNnjNjJJKqJ2EF", headers=HEADERS)
    assert (got.status_code, got.json()["error"]["type"]) == (404, "not_found_error")
    assert "x-pinocchio-error" not in got.headers


def test_a_client_that_looks_whether_it_is_there(proxy: LiveProxy) -> None:
    """HEAD on the base URL and on the API gets an answer without a body, as coding agents need."""
    for path in ("/", "/v1/messages"):
        assert proxy.http.head(path, headers=HEADERS).content == b""


def test_the_results_of_a_stream_belong_to_its_key(proxy: LiveProxy) -> None:
    """A stream's outcome can be fetched later, with the key that asked."""
    got = ask(proxy, asked("p=0.7", stream=True))
    url = f"/pinocchio/v1/results/{got.headers['x-pinocchio-request-id']}"
    until(lambda: proxy.http.get(url, headers=HEADERS).json().get("confidence") == 0.7)


# Keys for upstream


def test_a_configured_key_stands_where_anthropic_has_it(
    start: Start, upstream: MessagesUpstream
) -> None:
    """With `api_key` upstream gets that one, and no key of the client's."""
    proxy = start(key="sk-ant-ours")
    ask(proxy, asked())
    proxy.http.get("/v1/models", headers=HEADERS)
    for request in upstream.requests:
        assert request.header("x-api-key") == "sk-ant-ours"
        assert request.header("authorization") is None
        assert request.header("anthropic-beta") == HEADERS["anthropic-beta"]


# A coding agent


def test_a_session_of_a_coding_agent(start: Start, upstream: MessagesUpstream) -> None:
    """A turn with a call and one with its result pass, each with its confidence."""
    proxy = start(policy=tool_policy("block"))
    cached = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": "You are a coding agent.", **cached}]
    first = [{"role": "user", "content": [{"type": "text", "text": "p=0.8", **cached}]}]
    body = {"system": system, "tools": TOOLS, "stream": True, "metadata": {"user_id": "u"}}
    got = ask(proxy, asked(model="tools", **body) | {"messages": first}, "?beta=true")
    turn = accumulated(got.body)
    assert turn["stop_reason"] == "tool_use"
    answer = [{"type": "text", "text": "ok"}]
    results = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": answer}
        for call in turn["content"]
        if call["type"] == "tool_use"
    ]
    second = [*first, {"role": "assistant", "content": turn["content"]}]
    second.append({"role": "user", "content": [*results, {"type": "text", "text": "p=0.6"}]})
    got = ask(proxy, asked(model="thinks", **body) | {"messages": second}, "?beta=true")
    turn = accumulated(got.body)
    assert turn["content"][0]["signature"] == SIGNATURE
    assert member_in(got, True)["confidence"] == 0.6
    assert json.loads(upstream.last.body)["system"] == system
    assert "[tool] ok" in proxy.scorer.seen[-1].question
