"""`/v1/messages` end to end, to an upstream that speaks Anthropic's format."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.store import REJECTED, RELEASED, Store
from tests.live_proxy import LiveProxy, RawReply, post_raw, until, without_member
from tests.messages_upstream import SIGNATURE, MessagesUpstream, events_for

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
    """Starts a proxy in front of the upstream, or gives the one that has these options."""
    started: dict[str, LiveProxy] = {}

    def begin(key: str = "", **options: Any) -> LiveProxy:
        name = repr(sorted(options.items())) + key
        if name not in started:
            spoken = {"speaks": "anthropic", "api_key": key}
            folder = tmp_path_factory.mktemp("proxy")
            started[name] = LiveProxy(running.base_url, folder, upstream=spoken, **options)
        return started[name]

    yield begin
    for proxy in started.values():
        proxy.stop()


@pytest.fixture
def proxy(start: Start) -> LiveProxy:
    return start()


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
    told = json.loads(body)
    assert told["type"] == "error"
    assert set(told["error"]) == {"type", "message", "code", "param", "details"}
    error: Json = told["error"]
    return error


def decide(proxy: LiveProxy, id: str, state: str) -> None:
    async def change() -> None:
        store = Store(f"sqlite:///{proxy.store_path}")
        await store.open()
        try:
            assert await store.decide(id, state)
        finally:
            await store.aclose()

    asyncio.run(change())


def data_of(stream: bytes) -> list[Json]:
    """The data of all events, each of which has a name that is its type."""
    told = []
    for block in stream.replace(b"\r\n", b"\n").strip().split(b"\n\n"):
        lines = dict(line.split(b": ", 1) for line in block.split(b"\n") if line[:1] != b":")
        if lines:
            told.append(json.loads(lines[b"data"]))
            assert lines[b"event"].decode() == told[-1]["type"]
    return told


def accumulated(stream: bytes) -> Json:
    """The message in a stream, put together as Anthropic's SDK does; fails where that would."""
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


# The bytes


@pytest.mark.parametrize("model", [*KINDS, "large-input"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_the_bytes_are_upstreams(
    proxy: LiveProxy, upstream: MessagesUpstream, model: str, is_stream: bool
) -> None:
    """Taking the member out gives upstream's bytes; its own headers arrive as well."""
    body = asked("p=0.7 ä🍋", model, stream=is_stream, tools=TOOLS)
    got, told = ask(proxy, body), ask(upstream, body)
    assert got.body.count(b'"pinocchio"') == 1
    assert without_member(got.body) == told.body
    assert got.headers["request-id"] == told.headers["request-id"]
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
    """Bytes, query and headers go upstream as they came, the client's own key among them."""
    body = b'{ "max_tokens":1e1, "messages":[{"role":"user","content":"p=0.9"}],"model":"ok","x":1}'
    ask(proxy, body, "?beta=true")
    assert upstream.last.body == body
    assert upstream.last.target == "/v1/messages?beta=true"
    for name, value in HEADERS.items():
        assert upstream.last.header(name) == value
    assert upstream.last.header("authorization") == "Bearer sk-client"


def test_the_member_stands_in_the_finish(proxy: LiveProxy) -> None:
    """A stream's confidence is the last member of message_delta, nowhere else."""
    told = data_of(ask(proxy, asked("p=0.7", stream=True)).body)
    [finish] = [data for data in told if "pinocchio" in data]
    assert (finish["type"], list(finish)[-1]) == ("message_delta", "pinocchio")
    assert finish["pinocchio"]["choices"] == [
        {"index": 0, "confidence": 0.7, "status": "scored", "action": "deliver"}
    ]


def test_headers_tell_the_confidence(proxy: LiveProxy) -> None:
    """A message that is not streamed has it in the headers as well."""
    got = ask(proxy, asked("p=0.7"))
    assert (got.headers["x-pinocchio-confidence"], got.headers[STATUS]) == ("0.7000", "scored")
    assert "x-pinocchio-error" not in got.headers


def test_events_are_not_kept_back(proxy: LiveProxy, upstream: MessagesUpstream) -> None:
    """Deltas arrive while upstream is still writing."""
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
@settings(max_examples=20, deadline=None)
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
    told = accumulated(got)
    assert (told["content"], told["stop_reason"]) == (message["content"], "tool_use")


@pytest.fixture(scope="module")
def proxy_in_front(start: Start, running: MessagesUpstream) -> Callable[[list[bytes]], bytes]:
    """What a client gets of a stream that upstream sends in these parts."""
    proxy = start()

    def get(parts: list[bytes]) -> bytes:
        running.told = parts
        return ask(proxy, asked("x", "told", stream=True)).body

    return get


# Policies


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_held_reply_is_a_message_that_says_so(
    start: Start, upstream: MessagesUpstream, is_stream: bool
) -> None:
    """The placeholder is a valid message with an id of ours; the answer is not in it."""
    proxy = start(policy=policy("hold"))
    got = ask(proxy, asked("secret p=0.1", stream=is_stream))
    message = accumulated(got.body) if is_stream else json.loads(got.body)
    assert message["id"].startswith("msg_held_")
    assert message["id"] in text_of(message)
    assert (message["type"], message["stop_reason"]) == ("message", "refusal")
    assert message["model"] == "ok-20990101"
    assert message["usage"]["output_tokens"] == 15
    assert b"secret" not in got.body
    assert got.headers[ACTION] == "hold"
    assert member_in(got, is_stream)["review_id"] == message["id"]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_released_reply_is_fetched(
    start: Start, upstream: MessagesUpstream, is_stream: bool
) -> None:
    """Under its id there is the placeholder, then the message; for the key that asked alone."""
    proxy = start(policy=policy("hold"))
    got = ask(proxy, asked("secret p=0.1", "thinks", stream=is_stream))
    id = got.headers["x-pinocchio-review-id"]
    fetch = f"/v1/messages/{id}"
    assert proxy.http.get(fetch, headers=HEADERS).json()["stop_reason"] == "refusal"
    decide(proxy, id, RELEASED)
    message = proxy.http.get(fetch, headers=HEADERS).json()
    told = json.loads(ask(upstream, asked("secret p=0.1", "thinks")).body)
    assert message.pop("pinocchio")["action"] == "deliver"
    assert message == told | {"id": id}
    other = proxy.http.get(fetch, headers=HEADERS | {"authorization": "Bearer other"})
    assert (other.status_code, error_of(other.content)["code"]) == (404, "held_reply_not_found")
    assert error_of(other.content)["type"] == "not_found_error"


def test_the_anthropic_key_alone_says_who_asks(start: Start) -> None:
    """Without an Authorization it is `x-api-key` that a held reply belongs to."""
    proxy = start(policy=policy("hold"))
    with httpx.Client(base_url=proxy.url, headers=HEADERS, trust_env=False) as client:
        id = client.post("/v1/messages", json=asked("p=0.1")).json()["id"]
        assert client.get(f"/v1/messages/{id}").status_code == 200
        other = client.get(f"/v1/messages/{id}", headers={"x-api-key": "sk-ant-other"})
        assert other.status_code == 404


def test_a_rejected_reply_is_gone(start: Start) -> None:
    """A rejected reply is an error of Anthropic's kind, with our code."""
    proxy = start(policy=policy("hold"))
    id = json.loads(ask(proxy, asked("p=0.1")).body)["id"]
    decide(proxy, id, REJECTED)
    gone = proxy.http.get(f"/v1/messages/{id}", headers=HEADERS)
    assert error_of(gone.content)["code"] == "held_reply_rejected"


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"model": "tools"},
        {"tool_choice": {"type": "any"}},
        {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
    ],
)
def test_prose_never_stands_for_a_call_or_for_json(
    start: Start, upstream: MessagesUpstream, is_stream: bool, fields: Json
) -> None:
    """Held calls and structured outputs are errors, which official clients do not retry."""
    proxy = start(policy=policy("hold"))
    got = ask(proxy, asked("p=0.1", stream=is_stream) | fields)
    error = error_of(got.body)
    assert (got.status, error["type"], error["code"]) == (422, "policy_error", "held_for_review")
    assert got.headers["x-should-retry"] == "false"
    assert f"GET /v1/messages/{got.headers['x-pinocchio-review-id']}" in error["message"]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_blocked_reply(start: Start, is_stream: bool) -> None:
    """Blocking is a 422 in Anthropic's envelope."""
    got = ask(start(policy=policy("block")), asked("secret p=0.1", stream=is_stream))
    assert (got.status, error_of(got.body)["code"]) == (422, "blocked_by_policy")
    assert b"secret" not in got.body


@pytest.mark.parametrize("model", ["ok", "tools", "thinks"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_clarification(start: Start, model: str, is_stream: bool) -> None:
    """The policy's text replaces all blocks, and ends the turn as an answer does."""
    proxy = start(policy=policy("{clarify: {text: Which one}}"))
    got = ask(proxy, asked("secret p=0.1", model, stream=is_stream))
    message = accumulated(got.body) if is_stream else json.loads(got.body)
    assert message["content"] == [{"type": "text", "text": "Which one"}]
    assert (message["stop_reason"], message["id"][:6]) == ("end_turn", "msg_01")
    assert b"secret" not in got.body


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_escalation(start: Start, upstream: MessagesUpstream, is_stream: bool) -> None:
    """The surer answer of another model arrives as that model gave it."""
    proxy = start(policy=policy("{escalate: {to: say strong p=0.8, keep: best}}"))
    got = ask(proxy, asked("weak p=0.1", stream=is_stream))
    told = ask(upstream, asked("weak p=0.1", "say strong p=0.8", stream=is_stream))
    assert without_member(got.body) == told.body
    assert member_in(got, is_stream)["escalated_from"] == "ok"
    assert upstream.requests[1].header("x-api-key") == "sk-ant-client"


@pytest.mark.parametrize("is_stream", [False, True])
def test_shadow_changes_nothing(start: Start, upstream: MessagesUpstream, is_stream: bool) -> None:
    """In shadow mode the bytes are upstream's, and the member says what would have happened."""
    proxy = start(policy=policy("block", mode="shadow"))
    body = asked("p=0.1", stream=is_stream)
    got = ask(proxy, body)
    assert without_member(got.body) == ask(upstream, body).body
    assert member_in(got, is_stream)["would_action"] == "block"


# Calls of tools that wait


def tool_policy(then: str) -> str:
    return policy(then, when="tools: [weather, web_search], confidence: {below: 0.3}")


def test_sure_calls_go_on_as_they_came(start: Start, upstream: MessagesUpstream) -> None:
    """Where calls wait for their score and are delivered, the bytes are upstream's."""
    proxy = start(policy=tool_policy("block"))
    for model in ("tools", "large-input", "searches", "ok", "thinks"):
        body = asked("p=0.9", model, stream=True, tools=TOOLS)
        assert without_member(ask(proxy, body).body) == ask(upstream, body).body


def test_text_is_not_kept_back_with_calls(start: Start, upstream: MessagesUpstream) -> None:
    """Text goes through live where only calls have to wait."""
    proxy = start(policy=tool_policy("block"))
    body = asked("p=0.1 and more", "gated", stream=True, tools=TOOLS)
    with proxy.http.stream("POST", "/v1/messages", json=body, headers=HEADERS) as response:
        parts = response.iter_raw()
        seen = b""
        while b"text_delta" not in seen:
            seen += next(parts)
        upstream.last.proceed()
        assert b"message_stop" in b"".join(parts)


@pytest.mark.parametrize(("model", "before"), [("tools", 1), ("searches", 0), ("large-input", 0)])
def test_a_clarification_goes_on_with_the_next_block(start: Start, model: str, before: int) -> None:
    """What replaces withheld calls continues the message that the client has begun to read."""
    when = "tools: [weather, web_search, write], confidence: {below: 0.3}"
    proxy = start(policy=policy("{clarify: {text: Which one}}", when=when))
    got = ask(proxy, asked("p=0.1", model, stream=True, tools=TOOLS))
    message = accumulated(got.body)
    assert message["content"][before:] == [{"type": "text", "text": "Which one"}]
    assert message["stop_reason"] == "end_turn"
    assert message["usage"]["output_tokens"] == 15
    assert [data["type"] for data in data_of(got.body)].count("message_start") == 1
    assert member_in(got, True)["action"] == "clarify"
    assert b"tool_use" not in got.body


def test_a_held_call_ends_the_stream_in_an_error(start: Start) -> None:
    """A held call is told as an error event, after which nothing follows; it can be fetched."""
    proxy = start(policy=tool_policy("hold"))
    got = ask(proxy, asked("p=0.1", "tools", stream=True, tools=TOOLS))
    told = data_of(got.body)
    assert (told[-1]["type"], told[-1]["error"]["code"]) == ("error", "held_for_review")
    assert b"tool_use" not in got.body


def test_a_held_call_may_be_replaced_by_words(start: Start) -> None:
    """With `reply: placeholder` the stream ends as a refusal with the id of the held message."""
    proxy = start(policy=tool_policy("{hold: {reply: placeholder}}"))
    got = ask(proxy, asked("p=0.1", "tools", stream=True, tools=TOOLS))
    message = accumulated(got.body)
    assert message["stop_reason"] == "refusal"
    id = member_in(got, True)["review_id"]
    assert id in text_of(message)
    decide(proxy, id, RELEASED)
    released = proxy.http.get(f"/v1/messages/{id}", headers=HEADERS).json()
    assert [block["type"] for block in released["content"]] == ["text", "tool_use", "tool_use"]
    assert released["content"][1]["input"] == {"city": "p=0.1", "nested": {"n": [0, None]}}


def test_an_escalated_call_continues_the_stream(start: Start) -> None:
    """Another model's answer follows on the text that is out, in one message."""
    proxy = start(policy=tool_policy("{escalate: {to: say strong p=0.8, keep: last}}"))
    got = ask(proxy, asked("p=0.1", "tools", stream=True, tools=TOOLS))
    message = accumulated(got.body)
    assert text_of(message) == "Let me look that up.strong p=0.8"
    assert message["stop_reason"] == "end_turn"
    assert b"tool_use" not in got.body


# What cannot be scored, and what fails


def test_images_are_delivered_without_a_number(proxy: LiveProxy) -> None:
    """A question with an image has a reason in place of a confidence."""
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
    """Status, body and limits of an error arrive as upstream sent them, 529 too."""
    body = asked(model=f"status-{status}", stream=is_stream)
    got, told = ask(proxy, body), ask(upstream, body)
    assert (got.status, got.body) == (status, told.body)
    assert got.headers.get("retry-after") == told.headers.get("retry-after")
    assert got.headers["request-id"] == told.headers["request-id"]
    assert "x-pinocchio-error" not in got.headers


def test_upstreams_error_event_is_the_last(proxy: LiveProxy, upstream: MessagesUpstream) -> None:
    """An error of upstream's in a stream arrives as it came, and nothing follows."""
    body = asked(model="error-event", stream=True)
    assert ask(proxy, body).body == ask(upstream, body).body


@pytest.mark.parametrize("model", ["cut", "no-finish"])
def test_a_stream_that_breaks_off_ends_in_an_error(proxy: LiveProxy, model: str) -> None:
    """A stream that upstream did not finish is no message: its last event says so."""
    told = data_of(ask(proxy, asked("p=0.9 and more", model, stream=True)).body)
    assert told[-1]["type"] == "error"
    assert told[-1]["error"]["code"] == "upstream_broke_off"
    assert told[-1]["error"]["type"] == "api_error"


def test_a_reply_that_breaks_off_is_an_error(proxy: LiveProxy) -> None:
    """Half a message is an error in Anthropic's envelope, with a status that is retried."""
    got = ask(proxy, asked(model="cut"))
    assert (got.status, error_of(got.body)["code"]) == (502, "upstream_broke_off")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b"[]", "invalid_type"),
        (b'{"messages":[]}', "missing_model"),
        (b'{"model":"ok","stream":1}', "invalid_type"),
    ],
)
def test_our_errors_are_in_anthropics_envelope(proxy: LiveProxy, body: bytes, code: str) -> None:
    """What we refuse ourselves looks as Anthropic's own refusals do."""
    got = ask(proxy, body)
    assert (got.status, got.headers["x-pinocchio-error"]) == (400, "true")
    assert (error_of(got.body)["type"], error_of(got.body)["code"]) == (
        "invalid_request_error",
        code,
    )


def test_leaving_a_stream_cancels_upstream(proxy: LiveProxy, upstream: MessagesUpstream) -> None:
    """A client that leaves stops what upstream is generating."""
    body = asked("p=0.7 and more", "gated", stream=True)
    with proxy.http.stream("POST", "/v1/messages", json=body, headers=HEADERS) as response:
        next(response.iter_raw())
    assert upstream.last.is_cut_off(within_s=5)


# Other surfaces of the same API


def test_counting_and_batches_are_relayed(proxy: LiveProxy, upstream: MessagesUpstream) -> None:
    """Token counts, batches and models are upstream's, labelled as not judged."""
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
    """An id that is not ours goes upstream, which knows no such path."""
    got = proxy.http.get("/v1/messages/msg_013Zva2CMHLNnjNjJJKqJ2EF", headers=HEADERS)
    assert (got.status_code, got.json()["error"]["type"]) == (404, "not_found_error")
    assert "x-pinocchio-error" not in got.headers


def test_a_client_that_looks_whether_it_is_there(proxy: LiveProxy) -> None:
    """HEAD on the base URL and on the API answers without a body, as coding agents ask first."""
    for path in ("/", "/v1/messages"):
        assert proxy.http.head(path, headers=HEADERS).content == b""


def test_the_results_of_a_stream_belong_to_its_key(proxy: LiveProxy) -> None:
    """A stream's outcome can be fetched later with the key that asked."""
    got = ask(proxy, asked("p=0.7", stream=True))
    url = f"/pinocchio/v1/results/{got.headers['x-pinocchio-request-id']}"
    until(lambda: proxy.http.get(url, headers=HEADERS).json().get("confidence") == 0.7)


# Whose key goes upstream


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
    """A turn with a call and one with its result go through, each with its confidence."""
    proxy = start(policy=tool_policy("block"))
    cached = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": "You are a coding agent.", **cached}]
    first = [{"role": "user", "content": [{"type": "text", "text": "p=0.8", **cached}]}]
    body = {"system": system, "tools": TOOLS, "stream": True, "metadata": {"user_id": "u"}}
    got = ask(proxy, asked(model="tools", **body) | {"messages": first}, "?beta=true")
    turn = accumulated(got.body)
    assert turn["stop_reason"] == "tool_use"
    said = [{"type": "text", "text": "ok"}]
    results = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": said}
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
