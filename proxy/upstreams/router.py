"""From a model's name to its upstream, as the configuration says; never by a name's look."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from proxy.config.sections import Config
from proxy.config.upstreams import FallbackConfig, UpstreamConfig
from proxy.errors import UnknownModelError
from proxy.upstreams.anthropic import AnthropicRelay, with_v1, without_v1
from proxy.upstreams.breaker import Breaker, BreakingUpstream
from proxy.upstreams.by_format import SpokenUpstream
from proxy.upstreams.pool.pool import Pool
from proxy.upstreams.upstream import Upstream
from proxy.wire.bounded_cache import remembers

if TYPE_CHECKING:
    from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream

log = structlog.get_logger()

MOST_MODELS: Final = 1_024  # whose ways are remembered; clients choose their names


Wrap = Callable[[str, UpstreamConfig, Upstream], Upstream]
"""Puts something around an upstream, going by its name and its section."""


def as_it_is(name: str, config: UpstreamConfig, upstream: Upstream) -> Upstream:
    """Put nothing around it."""
    return upstream


@dataclass(frozen=True, slots=True)
class Way:
    """Where a request goes."""

    name: str
    upstream: Upstream
    fallback: FallbackConfig | None = None  # other models that are asked where this one fails


class Router:
    """The upstreams of a configuration, one long-lived client each."""

    def __init__(self, config: Config, before: Router | None = None, wrap: Wrap = as_it_is) -> None:
        """What is configured as it was `before` goes on, with its connections."""
        self._sections = config.upstreams
        self._upstreams: dict[str, Upstream] = {
            name: before._upstreams[name]
            if before is not None and before._sections.get(name) == section
            else open_upstream(section, name, wrap)
            for name, section in config.upstreams.items()
        }
        self._routes = [(re.compile(translate(r.match)), r.upstream) for r in config.models]
        domains = {translate(route.match): route.domain for route in reversed(config.models)}
        self._domains = domains if any(domains.values()) else {}
        fallbacks = {translate(route.match): route.fallback for route in reversed(config.models)}
        self._fallbacks = fallbacks if any(fallbacks.values()) else {}
        self._local = [
            route.match
            for route in config.models
            if config.upstreams[route.upstream].demo and not re.search(r"[*?\[]", route.match)
        ]
        served = [route.upstream for route in reversed(config.models)]  # the widest first
        self._listed = [each for each in dict.fromkeys(served) if not config.upstreams[each].demo]
        self._has_key = {name: upstream.lends_a_key for name, upstream in config.upstreams.items()}
        self.way_to: Callable[[str], Way] = remembers(MOST_MODELS)(self._way_to)
        """The way of requests for a model, or for none; raises UnknownModelError."""

    @property
    def listed(self) -> list[str]:
        """The upstreams but the demo that models are routed to, that of the widest route first."""
        return self._listed

    @property
    def local_models(self) -> list[str]:
        """Model names that are answered here and that no other upstream would list."""
        return self._local

    def name_for(self, model: str) -> str:
        """The upstream's name; raises UnknownModelError when no route matches."""
        for pattern, name in self._routes:
            if pattern.match(model):
                return name
        raise UnknownModelError(
            f"no route of the configuration matches model {model!r}", param="model"
        )

    def route_of(self, model: str) -> str:
        """The glob of the configuration that a model's name takes; empty where there is none."""
        for pattern, _ in self._routes:
            if pattern.match(model):
                return pattern.pattern
        return self._routes[-1][0].pattern if self._routes and not model else ""

    def domain_of(self, model: str) -> str | None:
        """What the route that a model's name takes says its replies are about."""
        return self._domains.get(self.route_of(model)) if self._domains else None

    def fallback_of(self, model: str) -> FallbackConfig | None:
        """Which other models are asked where this one fails."""
        return self._fallbacks.get(self.route_of(model)) if self._fallbacks else None

    def default_name(self) -> str | None:
        """Where requests without a model go: the upstream of the last, widest route."""
        return self._routes[-1][1] if self._routes else None

    def default(self) -> str:
        """The same; raises UnknownModelError where nothing is routed."""
        name = self.default_name()
        if name is None:
            raise UnknownModelError("the configuration routes no model")
        return name

    def name_or_default(self, model: str) -> str:
        """As `name_for`; a request that names no model goes to the default."""
        return self.name_for(model) if model else self.default()

    def _way_to(self, model: str) -> Way:
        name = self.name_or_default(model)
        return Way(name, self.upstream(name), self.fallback_of(model))

    def upstream(self, name: str) -> Upstream:
        """Raises UnknownModelError for one that an earlier configuration had."""
        try:
            return self._upstreams[name]
        except KeyError:
            raise UnknownModelError(f"upstream {name!r} is no longer configured") from None

    @property
    def breakers(self) -> Mapping[str, Breaker]:
        """The breakers of those upstreams that have one, by the upstream's name."""
        return {
            name: upstream.breaker
            for name, upstream in self._upstreams.items()
            if isinstance(upstream, BreakingUpstream)
        }

    @property
    def upstreams(self) -> Collection[Upstream]:
        """Those that are open."""
        return self._upstreams.values()

    def has_key(self, name: str) -> bool:
        """Whether the configuration holds a key for this upstream."""
        return self._has_key[name]

    async def aclose(self, kept: Collection[Upstream] = ()) -> None:
        """Closes the upstreams but for those that are `kept`, being another router's too."""
        for upstream in self._upstreams.values():
            if not any(upstream is other for other in kept):
                await upstream.aclose()


def open_upstream(config: UpstreamConfig, name: str = "", wrap: Wrap = as_it_is) -> Upstream:
    """The upstream that a section of the configuration describes; opens no connection yet."""
    upstream = wrap(name, config, _opened(config))
    if config.breaker is None:
        return upstream
    return BreakingUpstream(upstream, Breaker(name, config.breaker))


def _opened(config: UpstreamConfig) -> Upstream:
    key = config.api_key.get_secret_value()
    if config.demo:
        from proxy.upstreams.demo.demo import DemoUpstream

        return DemoUpstream()
    if config.litellm or config.via == "litellm":
        from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream

        return LiteLLMUpstream(
            config.litellm or "openai",
            config.base_url,
            key,
            via=config.via,
            timeout_s=config.timeout_s,
        )
    if config.http_client is not None:
        log.warning("http_client_ignored", hint="there is one client; remove http_client")
    assert config.base_url is not None  # UpstreamConfig refuses anything else
    return _open_spoken(config, config.base_url, key)


def _open_spoken(config: UpstreamConfig, base_url: str, key: str) -> Upstream:
    """An upstream at `base_url`; the format that it does not speak is translated by litellm."""
    speaks, timeout_s = config.speaks, config.timeout_s
    relay = partial(Pool, timeout_s=timeout_s, has_key=bool(key))
    if speaks == "both":
        return AnthropicRelay(relay(base_url), key, is_both=True)

    def translated(provider: str, url: str) -> LiteLLMUpstream:
        from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream

        return LiteLLMUpstream(
            provider, url, key, via="litellm", timeout_s=timeout_s, is_exact=True
        )

    if speaks == "anthropic":
        direct = AnthropicRelay(relay(with_v1(base_url)), key)
        chat = partial(translated, "anthropic", without_v1(base_url))
        return SpokenUpstream(direct, {"/chat/completions": chat})
    messages = partial(translated, "openai", base_url)
    return SpokenUpstream(relay(base_url, key), {"/messages": messages})
