"""An upstream that does not speak OpenAI's format, and that litellm translates for.

Only this package knows litellm and uses its term "provider". The first request loads litellm in a
thread, because its import takes seconds. If a model's provider speaks OpenAI's format after all,
nothing is translated: litellm finds its address, and a Pool sends the request there.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from dataclasses import dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Literal

import httpx

from proxy.errors import BadRequestError, NotFoundError, UnknownModelError, UpstreamError
from proxy.http.pool.pool import CONNECT_TIMEOUT_S, Pool
from proxy.http.wire.bounded_cache import remembers
from proxy.http.wire.headers import VIA, header
from proxy.http.wire.json_splice import parse_json_object, replace_member
from proxy.http.wire.upstream import Upstream, UpstreamReply, UpstreamRequest
from proxy.upstreams.translation.anthropic import AnthropicRelay, with_v1
from proxy.upstreams.translation.clients import collect_responses, shared_clients
from proxy.upstreams.translation.errors import error_reply
from proxy.upstreams.translation.messages import MESSAGES, MessagesUpstream
from proxy.upstreams.translation.replies import (
    Wants,
    last_response,
    relayed_reply,
    translated_reply,
    usable_response,
)

Json = dict[str, Any]

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or a price list is fetched at import
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",  # or a list of header values is fetched
    "LITELLM_MODE": "PRODUCTION",  # or a `.env` of the working directory is read
}
# Translated fields. The others steer litellm (`api_base`, `metadata` ..) or are unknown.
_FIELDS: dict[str, type | UnionType] = {
    name: kind
    for kind, names in {
        list: "functions messages modalities tools",
        dict: "audio logit_bias prediction response_format stream_options thinking "
        "web_search_options",
        bool: "logprobs parallel_tool_calls store stream",
        int: "max_completion_tokens max_tokens n seed top_k top_logprobs",
        int | float: "frequency_penalty presence_penalty temperature top_p",
        str: "model prompt_cache_key prompt_cache_retention reasoning_effort safety_identifier "
        "service_tier user verbosity",
        str | dict: "function_call tool_choice",
        str | list: "stop",
    }.items()
    for name in names.split()
}
# On litellm's list of compatible providers, but with URLs, authentication or names of their own.
_NOT_QUITE_OPENAI = ("azure_ai", "clarifai", "docker_model_runner", "fireworks_ai", "ragflow")
_OPENAI = ".api.openai.com"
_INTERACTIVE = ("chatgpt", "github_copilot")  # looking up their key starts a login
_STAND_INS = ("dummy-key", "fake-api-key")  # litellm's placeholders for providers without keys


@cache
def load_litellm() -> Any:
    """Import litellm, silence it and return it; cached. The import opens no connection.

    Sets environment variables that are missing, so that it fetches and reads nothing.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    litellm: Any = importlib.import_module("litellm")
    shared_clients()
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    for name in ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router"):  # their lines quote messages
        logger = logging.getLogger(name)
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
    return litellm


@dataclass(frozen=True, slots=True)
class _Target:
    """The destination of a model's name; `relay` is None if litellm has to translate."""

    name: str  # the model's name for litellm, with the provider's prefix
    model: str  # the model's name for the provider
    relay: Upstream | None
    anthropic: Upstream | None = None  # speaks Anthropic's format
    is_openais: bool = False  # answers in OpenAI's format, whatever the format of requests

    def way(self, path: str) -> Upstream | None:
        """Return the upstream that can get the client's bytes unchanged, or None."""
        return self.anthropic if path.startswith(MESSAGES) else self.relay


class LiteLLMUpstream:
    """An upstream that litellm finds and, if necessary, translates for.

    `provider` applies to all model names; with "auto" each name begins with its own, as in
    `anthropic/...`. `base_url` and `api_key` take precedence over what litellm finds in the
    environment; without any key the client's own goes upstream. `via="litellm"` translates in all
    cases. With `is_exact` a name is always without a provider, and the environment is not searched.
    """

    def __init__(
        self,
        provider: str,
        base_url: str | None = None,
        api_key: str = "",
        *,
        via: Literal["relay", "litellm"] = "relay",
        timeout_s: float = 600,
        is_exact: bool = False,
    ) -> None:
        self._is_exact = is_exact
        self._prefix = "" if provider == "auto" else f"{provider}/"
        self._base_url = base_url
        self._api_key = api_key
        self._may_relay = via == "relay"
        self._timeout_s = timeout_s
        self._litellm: Any = None
        self._relays: dict[tuple[str, str], Upstream] = {}
        self._target = remembers(1_024)(self._find_target)

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        """Send a request to its model's provider, unchanged where that is possible.

        Otherwise it is translated. The body's model loses the provider's prefix. Raises
        UpstreamError where there is no answer, and another ProxyError for a request that is
        refused.
        """
        await self.load()
        body = parse_json_object(request.body) if request.body else {}
        model = body.get("model")
        target = self._target(model) if isinstance(model, str) else None
        way = target.way(request.path) if target else None
        if target is not None and way is not None:
            if target.model != model:
                cut = replace_member(request.body, "model", target.model)
                request = replace(request, body=cut)
            return await way.send(request)
        if (request.method, request.path) == ("POST", MESSAGES):
            return await MessagesUpstream(self).send(request)
        return await self.translate(request)

    async def load(self) -> None:
        """Load litellm on a thread at the first call, and share its clients."""
        if self._litellm is None:
            self._litellm = await asyncio.to_thread(load_litellm)
            shared_clients().join(self)

    async def translate(self, request: UpstreamRequest) -> UpstreamReply:
        """Send a request for a chat completion through litellm, which must be loaded.

        Raises what `send` raises, and NotFoundError for any other request.
        """
        if (request.method, request.path) != ("POST", "/chat/completions"):
            text = f"only completions are translated, not {request.method} {request.path}"
            raise NotFoundError(text, code="unknown_url")
        body = parse_json_object(request.body) if request.body else {}
        if not isinstance(model := body.get("model"), str):
            raise BadRequestError("the body names no model", param="model")
        target = self._target(model)
        marks = header(request.headers, VIA) if self._base_url else None
        return await self._translate(body, target, self._key(request, target), marks)

    async def aclose(self) -> None:
        """Close the relays, and litellm's connections if no other upstream shares them."""
        for relay in self._relays.values():
            await relay.aclose()
        if self._litellm is not None:
            await shared_clients().leave(self)

    def _find_target(self, model: str) -> _Target:
        """Return the destination that litellm finds for a model's name.

        Raises UnknownModelError for a name without a known provider, one whose provider would log
        in, and URLs.
        """
        is_whole = model.startswith(self._prefix) and not self._is_exact
        name = model if is_whole else self._prefix + model
        if name.partition("/")[0] in _INTERACTIVE or "://" in name:  # some accept URLs as models
            raise UnknownModelError(f"model {model!r} cannot be used here", param="model")
        try:
            own, provider, key, base_url = self._litellm.get_llm_provider(
                name, api_base=self._base_url, api_key=self._api_key or None
            )
        except self._litellm.BadRequestError as error:
            text = f"model {model!r} names no provider that litellm knows, as 'anthropic/...' does"
            raise UnknownModelError(text, param="model") from error
        anthropic = self._anthropic() if provider == "anthropic" and self._may_relay else None
        place = self._place(provider, base_url, key)
        relay = self._relay(*place) if place and self._may_relay else None
        is_openais = provider in ("openai", "azure", *self._litellm.openai_compatible_providers)
        return _Target(name, own, relay, anthropic, is_openais=is_openais)

    def _anthropic(self) -> Upstream:
        """Return the relay to Anthropic itself, with the environment's key if none is set here."""
        info = self._litellm.AnthropicModelInfo
        base_url = with_v1(info.get_api_base(self._base_url))
        relay = self._relays.setdefault((base_url, ""), Pool(base_url, "", self._timeout_s))
        return AnthropicRelay(relay, self._api_key or info.get_api_key() or "")

    def _place(
        self, provider: str, base_url: str | None, key: str | None
    ) -> tuple[str, str] | None:
        """Return (URL, key) of a provider that speaks OpenAI's format, or None for any other."""
        litellm = self._litellm
        if provider == "openai":
            key = litellm.OpenAIGPTConfig.get_api_key()
            base_url = litellm.OpenAIGPTConfig.get_api_base(self._base_url)
        elif provider not in litellm.openai_compatible_providers or provider in _NOT_QUITE_OPENAI:
            return None
        if not base_url:
            return None
        return base_url, self._api_key or ("" if key in _STAND_INS else key or "")

    def _relay(self, base_url: str, key: str) -> Upstream:
        """Return the relay to a URL with a key, one for each pair."""
        place = (base_url, key)
        return self._relays.setdefault(place, Pool(base_url, key, self._timeout_s))

    def _is_openai_itself(self, target: _Target) -> bool:
        """Return whether OpenAI itself serves a target, not a server that speaks its format."""
        url = httpx.URL(self._litellm.OpenAIGPTConfig.get_api_base(self._base_url) or "")
        return target.name.startswith("openai/") and f".{url.host}".endswith(_OPENAI)

    async def _translate(
        self, body: Json, target: _Target, key: str | None, marks: str | None
    ) -> UpstreamReply:
        """Let litellm send a request to `target`, and return the reply in OpenAI's format.

        `marks` are those of the proxies passed. If upstream speaks that format, its own bytes are
        kept. Errors of litellm become replies, or raise UpstreamError.
        """
        arguments = self._arguments(body) | {
            "model": target.name,
            "api_base": self._base_url,
            "api_key": key,
            "timeout": httpx.Timeout(self._timeout_s, connect=CONNECT_TIMEOUT_S),
            "max_retries": 0,
            "num_retries": 0,
            "_skip_mcp_handler": True,  # or litellm itself would call a client's MCP tools
        }
        if marks:  # the proxies that the request has passed: upstream may be one of them
            arguments["extra_headers"] = {VIA.decode(): marks}
        if target.is_openais:
            arguments["allowed_openai_params"] = ["user"]  # litellm drops it for unknown models
            if body.get("stream") and self._is_openai_itself(target):
                # Otherwise litellm requests the usage.
                arguments.setdefault("stream_options", {"include_usage": False})
        options = body.get("stream_options") or {}
        wants = Wants(body.get("stream") is True, options.get("include_usage") is True)
        failure: Exception | None = None
        with collect_responses() as responses:
            try:
                answer = await self._litellm.acompletion(**arguments)
            except Exception as error:
                failure = error
            if target.is_openais and (response := usable_response(responses, wants)):
                return await relayed_reply(response, wants)
            try:
                if failure is not None:
                    raise failure
                return await translated_reply(answer, responses, wants)
            except UpstreamError:
                raise
            except Exception as error:
                return error_reply(error, last_response(responses, wants))

    def _arguments(self, body: Json) -> Json:
        """Return the body's fields that litellm translates; those that would steer it are dropped.

        Raises BadRequestError for an unknown field, and for a value whose type would make litellm
        fail as if upstream could not be reached.
        """
        steering = self._litellm.all_litellm_params + self._litellm.OPENAI_CHAT_COMPLETION_PARAMS
        fields = {name: value for name, value in body.items() if value is not None}
        for name, value in fields.items():
            if name not in _FIELDS and name not in steering:
                text = f"'{name}' cannot be translated for this upstream"
                raise BadRequestError(text, param=name, code="unsupported_parameter")
            if not isinstance(value, _FIELDS.get(name, object)):
                raise BadRequestError(f"Invalid type for '{name}'", param=name, code="invalid_type")
        messages = fields.get("messages")
        if not messages or not all(isinstance(message, dict) for message in messages):
            raise BadRequestError("'messages' must be a list of objects", param="messages")
        return {name: value for name, value in fields.items() if name in _FIELDS}

    def _key(self, request: UpstreamRequest, target: _Target) -> str | None:
        """Return the configured key, or the client's if litellm misses one in the environment.

        Returns None if the environment has one. With `is_exact` it is never None.
        """
        if self._api_key:
            return self._api_key
        presented = (header(request.headers, b"authorization") or "").removeprefix("Bearer ")
        if self._is_exact:  # litellm accepts any key, but none at all fails
            return presented or header(request.headers, b"x-api-key") or "none"
        missing = self._litellm.validate_environment(target.name)["missing_keys"]
        return presented if any(name.endswith("API_KEY") for name in missing) else None
