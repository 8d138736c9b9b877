"""Relaying to providers that litellm finds and that speak OpenAI's format."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import pytest

from proxy.errors import UnknownModelError
from proxy.http.wire.upstream import UpstreamRequest
from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream
from tests.running.translation import (
    HELLO,
    PATH,
    Json,
    Listener,
    answer,
    listening,
    opened,
    refused,
    request,
)

ODD = b'{ "temperature":1.0,  "model" : "%b", "messages":[{"content":"\\u0048"}],"x":[1]}'


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with listening() as listener:
        yield listener


@pytest.mark.parametrize("model", ["groq/openai/gpt-oss-20b", "deepseek/deepseek-chat"])
async def test_openais_kin_is_relayed(listener: Listener, model: str) -> None:
    """A provider that speaks OpenAI's format gets the client's bytes without the model's prefix."""
    listener.body = b'{"odd" :1.50,"model":"served"}'
    headers = [(b"authorization", b"Bearer client"), (b"x-custom", b"1")]
    sent = UpstreamRequest("POST", PATH, headers, ODD % model.encode(), "a=b&c")
    async with opened(LiteLLMUpstream("auto", listener.base_url, "configured")) as upstream:
        reply = await upstream.send(sent)
        assert await reply.read() == listener.body
    assert (reply.status, reply.header(b"x-request-id")) == (200, "req_1")
    ((path, received, body),) = listener.requests
    assert path == "/v1/chat/completions?a=b&c"
    assert body == ODD % model.partition("/")[2].encode()
    assert (received["authorization"], received["x-custom"]) == ("Bearer configured", "1")


async def test_a_name_without_prefix_is_relayed_untouched(listener: Listener) -> None:
    """Where there is no prefix every byte of the body stays, also on other paths."""
    async with opened(LiteLLMUpstream("groq", listener.base_url, "configured")) as upstream:
        for path in (PATH, "/embeddings"):
            await upstream.send(UpstreamRequest("POST", path, body=ODD % b"llama\\u002d3"))
    assert [(path, body) for path, _, body in listener.requests] == [
        ("/v1/chat/completions", ODD % b"llama\\u002d3"),
        ("/v1/embeddings", ODD % b"llama\\u002d3"),
    ]


async def test_relays_are_shared(listener: Listener) -> None:
    """All models of a provider share one pool of connections."""
    async with opened(LiteLLMUpstream("auto", listener.base_url, "configured")) as upstream:
        for model in ("groq/one", "groq/two"):
            await upstream.send(request(model=model))
        assert len(upstream._relays) == 1


@pytest.mark.parametrize(
    ("configured", "environment", "sent"),
    [
        ("configured", "environment", "Bearer configured"),
        ("", "environment", "Bearer environment"),
        ("", None, "Bearer client"),
    ],
)
@pytest.mark.parametrize(
    ("model", "variable"), [("groq/x", "GROQ_API_KEY"), ("openai/x", "OPENAI_API_KEY")]
)
async def test_the_relay_has_the_first_key_there_is(
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
    configured: str,
    environment: str | None,
    sent: str,
    model: str,
    variable: str,
) -> None:
    """The key is the configured one, else the provider's of the environment, else the client's."""
    monkeypatch.delenv(variable, raising=False)
    if environment:
        monkeypatch.setenv(variable, environment)
    async with opened(LiteLLMUpstream("auto", listener.base_url, configured)) as upstream:
        await upstream.send(request([(b"authorization", b"Bearer client")], model=model))
    assert listener.requests[0][1]["authorization"] == sent


async def test_a_stand_in_is_no_key(listener: Listener) -> None:
    """litellm's fake key for providers without keys does not replace the client's."""
    async with opened(LiteLLMUpstream("hosted_vllm", listener.base_url)) as upstream:
        await upstream.send(request([(b"authorization", b"Bearer client")]))
    assert listener.requests[0][1]["authorization"] == "Bearer client"


async def test_via_litellm_translates_in_any_case(listener: Listener) -> None:
    """With `via: litellm` the request is translated also for an upstream of OpenAI's format."""
    message = {"role": "assistant", "content": "Hi"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    completion = {"id": "c", "object": "chat.completion", "created": 1, "model": "served"}
    listener.body = json.dumps(completion | {"choices": [choice]}).encode()
    async with opened(
        LiteLLMUpstream("openai", listener.base_url, "configured", via="litellm")
    ) as upstream:
        body = await answer(await upstream.send(request(model="org/model:free", metadata={})))
    assert body["choices"][0]["message"]["content"] == "Hi"
    ((path, _, sent),) = listener.requests
    assert path == "/v1/chat/completions"
    assert json.loads(sent) == {"model": "org/model:free", "messages": HELLO}


def written_by_litellm(provider: str, base_url: str) -> tuple[str, Json, str]:
    """Return URL, body and authorization that litellm would send, by its internals."""
    utils: Any = import_module("litellm.utils")
    kind = import_module("litellm.types.utils").LlmProviders(provider)
    openai = import_module("litellm.llms.openai.chat.gpt_transformation").OpenAIGPTConfig()
    config = utils.ProviderConfigManager.get_provider_chat_config("org/model", kind) or openai
    common: Json = {"model": "org/model", "optional_params": {}, "litellm_params": {}}
    place = {"api_base": base_url, "api_key": "key"}
    headers = config.validate_environment(headers={}, messages=HELLO, **place, **common)
    url = config.get_complete_url(**place, **common)
    body = config.transform_request(messages=list(HELLO), headers={}, **common)
    return url, body, headers["Authorization"]


async def test_relayed_providers_need_no_translation() -> None:
    """Wherever bytes are relayed, litellm too would send the same ones to the same place."""
    base_url = "http://127.0.0.1:9/v1"
    written = (
        f"{base_url}/chat/completions",
        {"model": "org/model", "messages": HELLO},
        "Bearer key",
    )
    relayed = set()
    async with opened(LiteLLMUpstream("auto", base_url, "key")) as upstream:
        await refused(upstream, request(model="unknown"))  # loads litellm
        for provider in ["openai", *import_module("litellm").openai_compatible_providers]:
            try:
                relay = upstream._target(f"{provider}/org/model").relay
            except UnknownModelError:
                continue
            if relay is not None:
                relayed.add(provider)
                assert written_by_litellm(provider, base_url) == written, provider
    assert {"openai", "groq", "deepseek", "together_ai", "xai", "hosted_vllm"} <= relayed
    assert not {"azure_ai", "fireworks_ai", "github_copilot", "ragflow"} & relayed
