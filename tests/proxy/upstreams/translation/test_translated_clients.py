"""The HTTP clients that litellm makes follow no redirect, and live as long as they are needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from proxy.errors import UpstreamBrokenError
from proxy.upstreams.translation.clients import collect_responses, shared_clients
from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream
from tests.running.translation import Listener, answer, listening, opened, refused, request
from tests.servers.anthropic_server import KEY, AnthropicServer, serving

# One of each kind: OpenAI's SDK, Azure's, litellm's own handler, and its client for streams.
PROVIDERS = ["openai", "azure", "groq", "anthropic", "gemini", "mistral", "cohere"]


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with serving() as server:
        yield server


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with listening() as listener:
        yield listener


def translating(provider: str, listener: Listener) -> LiteLLMUpstream:
    return LiteLLMUpstream(provider, listener.base_url, "configured", via="litellm")


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_redirect_is_followed(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, provider: str, is_stream: bool
) -> None:
    """Whatever the provider, a redirect is an error of ours after a single call."""
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")
    listener.status, listener.body = 307, b"moved"
    listener.headers["location"] = "/v1/elsewhere"
    async with opened(translating(provider, listener)) as upstream:
        error = await refused(upstream, request(stream=is_stream))
    assert error["kind"] is UpstreamBrokenError
    assert "307" in error["message"]
    assert len(listener.requests) == 1


@pytest.mark.parametrize("provider", ["openai", "azure", "groq"])
async def test_a_later_upstream_has_clients_of_its_own(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    """A client that one upstream closed is not used by the next one of the process."""
    monkeypatch.setenv("AZURE_API_VERSION", "2024-10-21")
    listener.body = b'{"choices":[]}'
    for _ in range(3):
        async with opened(translating(provider, listener)) as upstream:
            assert await answer(await upstream.send(request())) == {"choices": []}


async def test_leaving_closes_nothing_that_others_use(server: AnthropicServer) -> None:
    """Closing an upstream leaves the streams of another one open."""
    async with (
        opened(LiteLLMUpstream("anthropic", server.base_url, KEY)) as staying,
        opened(LiteLLMUpstream("anthropic", server.base_url, KEY)) as leaving,
    ):
        await leaving.send(request())
        reply = await staying.send(request(model="claude-slow", stream=True))
        await anext(reply.chunks)
        await leaving.aclose()
        with pytest.raises(TimeoutError):  # still waited for, and not broken off
            await asyncio.wait_for(anext(reply.chunks), 0.2)
        await reply.aclose()


async def test_upstreams_answers_are_watched(listener: Listener) -> None:
    """Each call sees what upstream answers to it, and no other answer."""
    listener.body = b'{"choices":[]}'
    seen: list[list[httpx.Response]] = []

    async def call(upstream: LiteLLMUpstream, model: str) -> None:
        with collect_responses() as responses:
            await upstream._litellm.acompletion(
                model=f"openai/{model}",
                messages=[{"role": "user", "content": "x"}],
                api_base=listener.base_url,
                api_key="key",
            )
        seen.append(responses)

    async with opened(translating("openai", listener)) as upstream:
        await upstream.load()
        await asyncio.gather(*(call(upstream, str(number)) for number in range(5)))
    assert [len(responses) for responses in seen] == [1] * 5
    assert len({id(responses[0]) for responses in seen}) == 5


def test_clients_of_a_loop_that_is_gone_are_nobodys() -> None:
    """A new event loop with the id of a closed one does not
    get its clients, although litellm finds them by the id.
    """
    found, user = shared_clients(), asyncio.Event()
    store = found._store
    others = f"anthropic-{id(user)}"

    async def join() -> None:
        key = store.update_cache_key_with_event_loop("anthropic")
        store.cache_dict.update({key: "a client", others: "a client"})
        found.join(user)
        assert key not in store.cache_dict
        assert store.cache_dict.pop(others) == "a client"
        await found.leave(user)

    asyncio.run(join())
