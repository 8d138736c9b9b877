"""OpenAI's client for Azure works through the proxy if only `azure_endpoint` is changed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncAzureOpenAI, AzureOpenAI, OpenAI

from tests.conftest import StartProxy
from tests.running.client_keys import OWN_KEY, make_key, wait_until_known
from tests.running.live_proxy import LiveProxy, question
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.realtime_upstream import RealtimeUpstream
from tests.servers.responses_upstream import ResponsesUpstream

VERSION = "2024-10-21"
HOLD_ALL = "version: 1\nname: all\nmode: enforce\nrules: []\ndefault: {hold: {queue: q}}\n"
HOLD_MODEL = """
version: 1
name: production
mode: enforce
rules: [{name: production, when: {model: "prod-*"}, then: {hold: {queue: q, reply: error}}}]
default: deliver
"""


def azure(proxy: LiveProxy, **options: Any) -> AzureOpenAI:
    where = {"azure_endpoint": proxy.url, "api_version": VERSION, "api_key": "azure-key"}
    return AzureOpenAI(**{**where, **options}, max_retries=0, timeout=20)


def test_chat(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """A completion is scored, and upstream gets the path, the key and the body of its own API."""
    client = azure(proxy)
    for deployment in ("ok", "ok", "say a/model p=0.7"):  # the second is known by its head
        completion = client.chat.completions.create(**question("p=0.7", deployment))
        assert (completion.model_extra or {})["pinocchio"]["confidence"] == 0.7
        assert upstream.last.target == "/v1/chat/completions"
        assert upstream.last.json()["model"] == deployment
        fields = dict(upstream.last.headers)
        assert fields["authorization"] == "Bearer azure-key"
        assert "api-key" not in fields


def test_a_streamed_chat(proxy: LiveProxy) -> None:
    """A stream arrives whole, with its confidence at the end; also with the asynchronous client."""
    stream = azure(proxy).chat.completions.create(**question("Paris p=0.7"), stream=True)
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Paris p=0.7"
    assert any("pinocchio" in (chunk.model_extra or {}) for chunk in chunks)

    async def ask() -> str:
        where: dict[str, Any] = {
            "azure_endpoint": proxy.url,
            "api_version": VERSION,
            "api_key": "k",
        }
        async with AsyncAzureOpenAI(**where) as client:
            stream = await client.chat.completions.create(**question("Rome"), stream=True)
            pieces = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
            return "".join(piece or "" for piece in pieces)

    assert asyncio.run(ask()) == "Rome"


def test_completions(responses_upstream: ResponsesUpstream, start_responses: StartProxy) -> None:
    """The older API is scored, whole and streamed."""
    client = azure(start_responses())
    completion = client.completions.create(model="ok", prompt="p=0.7")
    assert (completion.model_extra or {})["pinocchio"]["confidence"] == 0.7
    assert responses_upstream.last.path == "/completions"
    pieces = client.completions.create(model="ok", prompt="Paris", stream=True)
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices).strip() == "Paris"


def test_responses(responses_upstream: ResponsesUpstream, start_responses: StartProxy) -> None:
    """Responses are scored, whole and streamed, and can be fetched and continued."""
    for deployment in (None, "ok"):
        client = azure(start_responses(), azure_deployment=deployment)
        first = client.responses.create(model="ok", input="p=0.7")
        assert (first.model_extra or {})["pinocchio"]["confidence"] == 0.7
        assert (responses_upstream.last.path, responses_upstream.last.query) == (
            "/responses",
            "",
        )
        assert client.responses.retrieve(first.id).output_text == "p=0.7"
        client.responses.create(model="ok", input="p=0.7", previous_response_id=first.id)
        events = list(client.responses.create(model="ok", input="Paris", stream=True))
        assert events[-1].type == "response.completed"
        assert events[-1].response.output_text == "Paris"


def test_what_is_not_scored_is_relayed(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """Embeddings, audio files and the list of models reach their paths under `/v1`."""
    client = azure(proxy)
    got = client.embeddings.with_raw_response.create(model="small", input="x")
    assert got.headers["x-pinocchio-confidence-status"] == "not_supported"
    assert upstream.last.target == "/v1/embeddings"
    assert upstream.last.json()["model"] == "small"
    azure(proxy, azure_deployment="w").audio.transcriptions.with_raw_response.create(
        model="w", file=("a.wav", b"RIFF")
    )
    assert upstream.last.target == "/v1/audio/transcriptions"
    assert b"RIFF" in upstream.last.body
    client.models.with_raw_response.list()
    assert upstream.last.target == "/v1/models"


@pytest.mark.parametrize("body_model", ["gpt-4o", None, "prod-1"])
def test_the_deployment_is_the_model(
    upstream: FaultyUpstream, start_proxy: StartProxy, body_model: str | None
) -> None:
    """The deployment is the model for rules and for upstream, whatever model the body names."""
    proxy = start_proxy(policy=HOLD_MODEL)
    body = {**question("x"), "model": body_model} if body_model else {"messages": [], "n": 1.0}
    url = f"{proxy.url}/openai/deployments/prod%2D1/chat/completions?api-version={VERSION}&a=1"
    held = httpx.post(url, json=body, trust_env=False, timeout=20)
    assert (held.status_code, held.json()["error"]["code"]) == (422, "held_for_review")
    assert upstream.last.json() == {**body, "model": "prod-1"}
    assert upstream.last.target == "/v1/chat/completions?a=1"
    if body_model is None:
        assert b'"n":1.0' in upstream.last.body.replace(b" ", b"")


def test_azure_itself_is_relayed_to(upstream: FaultyUpstream, start_proxy: StartProxy) -> None:
    """If the upstream is Azure's `/openai/v1`, the configured key replaces the client's."""
    there = upstream.base_url.removesuffix("/v1") + "/openai/v1"
    proxy = start_proxy(upstream={"base_url": there, "api_key": OWN_KEY})
    azure(proxy).embeddings.with_raw_response.create(model="small", input="x")
    fields = dict(upstream.last.headers)
    assert upstream.last.target == "/openai/v1/embeddings"
    assert fields["authorization"] == f"Bearer {OWN_KEY}"
    assert "azure-key" not in str(fields)


def test_clients_of_the_next_generation(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """Azure's `/openai/v1` works with OpenAI's own class and with Azure's."""
    base = f"{proxy.url}/openai/v1/"
    with OpenAI(
        base_url=base, api_key="azure-key", default_query={"api-version": "preview"}
    ) as own:
        own.chat.completions.create(**question("p=0.7"))
        assert upstream.last.target == "/v1/chat/completions?api-version=preview"
    with AzureOpenAI(base_url=base, api_key="azure-key", api_version="preview") as other:
        other.chat.completions.create(**question("p=0.7"))
    assert upstream.last.target == "/v1/chat/completions"
    httpx.get(f"{proxy.url}/openai/v1/models?a=1", trust_env=False)
    assert upstream.last.target == "/v1/models?a=1"


@pytest.mark.parametrize("body", [b"{bad", b"[]", b"", b'{"messages": [}'])
def test_a_body_that_cannot_be_read_is_refused_as_elsewhere(proxy: LiveProxy, body: bytes) -> None:
    """A body into which the deployment cannot be written gets the same error as on `/v1`."""
    headers = {"content-type": "application/json"}
    one, other = (
        httpx.post(f"{proxy.url}/{path}/chat/completions", content=body, headers=headers)
        for path in ("openai/deployments/d", "v1")
    )
    assert one.status_code == 400
    assert one.json() == other.json()


def test_the_key_is_the_clients(upstream: FaultyUpstream, start_proxy: StartProxy) -> None:
    """Where keys are required, `api-key` holds a key of this proxy, and any other is refused."""
    proxy = start_proxy(keys="required", upstream={"api_key": OWN_KEY})
    secret, _ = make_key(proxy.store_path, name="azure")
    wait_until_known(proxy.base_url, secret)
    completion = azure(proxy, api_key=secret).chat.completions.create(**question("p=0.7"))
    assert completion.choices[0].message.content == "p=0.7"
    assert secret not in str(upstream.last.headers)
    with pytest.raises(openai.AuthenticationError):
        azure(proxy).chat.completions.create(**question("p=0.7"))


def test_a_surface_that_is_off_stays_off(start_proxy: StartProxy) -> None:
    """`surfaces` names paths under `/v1`, and also applies to Azure's spelling of them."""
    proxy = start_proxy(surfaces=["chat"])
    azure(proxy).chat.completions.create(**question("p=0.7"))
    with pytest.raises(openai.PermissionDeniedError):
        azure(proxy).embeddings.create(model="small", input="x")


def test_a_held_reply_is_fetched(start_proxy: StartProxy) -> None:
    """A held reply is a placeholder, and its id finds it under Azure's path."""
    proxy = start_proxy(policy=HOLD_ALL)
    client = azure(proxy)
    held = client.chat.completions.create(**question("p=0.7"))
    assert held.choices[0].finish_reason == "content_filter"
    headers = {"api-key": "azure-key"}
    path = f"{proxy.url}/openai/chat/completions/{held.id}?api-version={VERSION}"
    fetched = httpx.get(path, headers=headers, trust_env=False)
    assert fetched.json()["id"] == held.id
    assert httpx.get(path, headers={"api-key": "other"}, trust_env=False).status_code == 404


def test_realtime(tmp_path: Path) -> None:
    """A session names its deployment in the query, and upstream gets it as the model."""
    with RealtimeUpstream() as there:
        proxy = LiveProxy(there.base_url, tmp_path)

        async def converse() -> None:
            where: dict[str, Any] = {"azure_endpoint": proxy.url, "api_version": VERSION}
            where["api_key"] = "k"
            address = f"ws://127.0.0.1:{proxy.port}/openai"
            async with (
                AsyncAzureOpenAI(**where, websocket_base_url=address) as client,
                client.realtime.connect(model="echo") as session,
            ):
                await session.send({"type": "response.create"})
                await session.recv()

        try:
            asyncio.run(converse())
        finally:
            proxy.stop()
        assert there.last.target.endswith("/realtime?model=echo")
