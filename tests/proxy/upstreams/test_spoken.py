"""The format that an upstream speaks: where requests of the other go, and with which key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policies import InvalidDocumentError
from proxy.config.sections import load_config
from proxy.config.settings.upstreams import UpstreamConfig
from proxy.config.setup import load_setup
from proxy.errors import ExitStatus, StartupError
from proxy.http.wire.upstream import UpstreamReply, UpstreamRequest
from proxy.startup.startup import check_setup
from proxy.upstreams.router import open_upstream
from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream
from tests.running.messages_client import HEADERS, asked
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.messages_upstream import MessagesUpstream


@pytest.fixture(scope="module")
def running() -> Iterator[MessagesUpstream]:
    with MessagesUpstream() as upstream:
        yield upstream


@pytest.fixture
def messages_upstream(running: MessagesUpstream) -> MessagesUpstream:
    running.forget()
    return running


@pytest.fixture(autouse=True)
def keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-environment-canary")


# Routing of requests


def upstream_of(**fields: Any) -> Any:
    return open_upstream(UpstreamConfig.model_validate(fields))


async def sent_to(upstream: Any, path: str, model: str = "ok") -> UpstreamReply:
    body = json.dumps(asked(model=model)).encode()
    headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    headers += [(b"authorization", b"Bearer sk-client"), (b"content-type", b"application/json")]
    try:
        reply: UpstreamReply = await upstream.send(UpstreamRequest("POST", path, headers, body))
        await reply.read(10**6)
    finally:
        await upstream.aclose()
    return reply


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
@pytest.mark.parametrize("path", ["/messages", "/chat/completions"])
async def test_both_ways_to_write_the_base_url_work(
    messages_upstream: MessagesUpstream, end: str, path: str
) -> None:
    """A base URL works without `/v1`, as Anthropic's clients have it, and with it."""
    base_url = messages_upstream.base_url.removesuffix("/v1") + end
    reply = await sent_to(upstream_of(speaks="anthropic", base_url=base_url), path)
    assert (reply.status, messages_upstream.last.path) == (200, "/messages")
    assert messages_upstream.last.target.startswith("/v1/messages")


async def test_an_upstream_of_both_formats_translates_nothing(upstream: FaultyUpstream) -> None:
    """With `speaks: both` each format is relayed, with the key in that format's field."""
    for path, key in (("/messages", "x-api-key"), ("/chat/completions", "authorization")):
        both = upstream_of(speaks="both", base_url=upstream.base_url, api_key="sk-ours")
        await sent_to(both, path)
        assert upstream.last.path == path
        keys = {name: upstream.last.header(name) for name in ("x-api-key", "authorization")}
        assert keys.pop(key) in ("sk-ours", "Bearer sk-ours")
        assert list(keys.values()) == [None]


async def test_without_a_key_the_clients_headers_stay(upstream: FaultyUpstream) -> None:
    """Without a configured key the client's own headers are forwarded."""
    for speaks in ("anthropic", "both"):
        await sent_to(upstream_of(speaks=speaks, base_url=upstream.base_url), "/messages")
        assert upstream.last.header("x-api-key") == HEADERS["x-api-key"]
        assert upstream.last.header("authorization") == "Bearer sk-client"
    await sent_to(upstream_of(base_url=upstream.base_url), "/embeddings")
    assert upstream.last.header("x-api-key") == HEADERS["x-api-key"]


@pytest.mark.parametrize("model", ["ok", "anthropic/ok"])
async def test_litellms_anthropic_is_relayed(
    messages_upstream: MessagesUpstream, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """With `litellm: anthropic` messages are relayed byte for byte, with the configured key."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", messages_upstream.base_url.removesuffix("/v1"))
    reply = await sent_to(LiteLLMUpstream("anthropic"), "/messages", model)
    assert reply.status == 200
    assert messages_upstream.last.body == json.dumps(asked(model="ok")).encode()
    assert messages_upstream.last.header("x-api-key") == "sk-environment-canary"
    assert messages_upstream.last.header("authorization") is None


async def test_litellms_others_are_translated(upstream: FaultyUpstream) -> None:
    """Messages to a provider that speaks OpenAI's format are translated to a chat completion."""
    reply = await sent_to(upstream_of(litellm="deepseek", base_url=upstream.base_url), "/messages")
    assert (reply.status, upstream.last.path) == (200, "/chat/completions")


async def test_via_litellm_translates_messages_too(messages_upstream: MessagesUpstream) -> None:
    """With `via: litellm` a message to Anthropic is translated by way of OpenAI's format."""
    upstream = LiteLLMUpstream(
        "anthropic", messages_upstream.base_url.removesuffix("/v1"), "sk-ours", via="litellm"
    )
    reply = await sent_to(upstream, "/messages")
    assert (reply.status, messages_upstream.last.path) == (200, "/messages")
    assert messages_upstream.last.body != json.dumps(asked()).encode()


async def test_no_key_of_the_environment_is_sent(messages_upstream: MessagesUpstream) -> None:
    """Without `api_key` a translated request has the client's key, none of the environment."""
    for path in ("/messages", "/chat/completions"):
        anthropics = upstream_of(speaks="anthropic", base_url=messages_upstream.base_url)
        await sent_to(anthropics, path)
    keys = [request.header("x-api-key") for request in messages_upstream.requests]
    assert keys == ["sk-ant-client", "sk-client"]


# The configuration


def loaded(folder: Path, upstream: str) -> Path:
    path = folder / "proxy.yaml"
    path.write_text(f"upstreams: {{a: {upstream}}}\nmodels: [{{match: '*', upstream: a}}]\n")
    return path


@pytest.mark.parametrize(
    ("upstream", "sentence"),
    [
        ("{demo: true, speaks: both}", "'demo: true' answers by itself; remove speaks"),
        (
            "{litellm: anthropic, speaks: anthropic}",
            "litellm knows what its upstreams speak; remove speaks, or litellm",
        ),
        (
            "{base_url: 'http://x', via: litellm, speaks: anthropic}",
            "'via: litellm' translates to OpenAI's format; with 'speaks: anthropic' nothing needs "
            "it, remove one of them",
        ),
        (
            "{base_url: 'http://x', speaks: claude}",
            "must be 'openai', 'anthropic' or 'both'",
        ),
        ("{base_url: 'http://x', speak: both}", "unknown key 'speak'; did you mean 'speaks'?"),
        ("{speaks: anthropic}", "an upstream needs 'base_url', 'litellm' or 'demo: true'"),
    ],
)
def test_conflicts_are_refused(tmp_path: Path, upstream: str, sentence: str) -> None:
    """Contradictions are refused with their line and a sentence."""
    with pytest.raises(InvalidDocumentError) as raised:
        load_config(loaded(tmp_path, upstream), env={})
    (problem,) = raised.value.problems
    assert sentence in str(problem)
    assert ":1" in str(problem)


def test_the_designs_example_of_anthropic_loads(tmp_path: Path) -> None:
    """`speaks` is the format, which is OpenAI's by default."""
    path = loaded(tmp_path, "{speaks: anthropic, base_url: 'https://api.anthropic.com'}")
    assert load_config(path, env={}).upstreams["a"].speaks == "anthropic"
    assert UpstreamConfig(base_url="http://x").speaks == "openai"


@pytest.mark.parametrize(
    ("upstream", "is_lent"),
    [
        ("{speaks: anthropic, base_url: 'http://x', api_key: k}", True),
        ("{speaks: both, base_url: 'http://x', api_key: k}", True),
        ("{base_url: 'http://x', via: litellm}", True),
        ("{speaks: anthropic, base_url: 'http://x'}", False),
    ],
)
def test_no_key_is_lent_to_everyone(tmp_path: Path, upstream: str, is_lent: bool) -> None:
    """Beyond loopback a key for Anthropic is refused like one for OpenAI."""
    path = loaded(tmp_path, upstream)
    path.write_text(path.read_text() + "calibrator: {checkpoint: none}\n")
    setup = load_setup(path)
    check_setup(setup, "127.0.0.1")
    if not is_lent:
        check_setup(setup, "0.0.0.0")
        return
    with pytest.raises(StartupError) as raised:
        check_setup(setup, "0.0.0.0")
    assert raised.value.status is ExitStatus.UNSAFE
