"""The route from a model's name to its upstream, which the configuration alone determines.

Also what else a route says: the domain of its replies, and whether a policy's models have one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from policies import Policy, Problem, circles
from proxy.config.sections import Config
from proxy.config.settings.upstreams import FallbackConfig, UpstreamConfig
from proxy.errors import StartupError, UnknownModelError
from proxy.http.pool.pool import Pool
from proxy.http.wire.bounded_cache import remembers
from proxy.http.wire.upstream import Upstream, UpstreamReply, UpstreamRequest
from proxy.upstreams.breaker import Breaker, BreakingUpstream
from proxy.upstreams.translation.anthropic import AnthropicRelay, with_v1, without_v1

if TYPE_CHECKING:
    from proxy.upstreams.translation.litellm_upstream import LiteLLMUpstream


log = structlog.get_logger()

MOST_MODELS: Final = 1_024  # names whose ways are cached; bounded because clients choose them


Wrap = Callable[[str, UpstreamConfig, Upstream], Upstream]
"""Wraps an upstream, given its name and its section of the configuration."""

NONE_PICKS = (
    "the recalibration goes by domain and nothing says which domain a reply has: give models or "
    "teams a `domain`, or say `calibrator: {client_domains: true}` where every client may choose"
)


def unwrapped(name: str, config: UpstreamConfig, upstream: Upstream) -> Upstream:
    """Return the upstream unchanged."""
    return upstream


@dataclass(frozen=True, slots=True)
class Way:
    """The destination of requests for a model: an upstream and its name."""

    name: str
    upstream: Upstream
    fallback: FallbackConfig | None = None  # other models to try if this one fails


class Router:
    """The upstreams of a configuration, with one long-lived client each."""

    def __init__(
        self, config: Config, before: Router | None = None, wrap: Wrap = unwrapped
    ) -> None:
        """Open the upstreams; those whose section is the same in `before` are taken over.

        Their connections stay open.
        """
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
        names = [route.upstream for route in reversed(config.models)]  # widest route first
        self._listed = [each for each in dict.fromkeys(names) if not config.upstreams[each].demo]
        self._has_key = {name: upstream.lends_a_key for name, upstream in config.upstreams.items()}
        self.way_to: Callable[[str], Way] = remembers(MOST_MODELS)(self._way_to)
        """Return the way for requests for a model, or for none ("")."""

    @property
    def upstream_names(self) -> list[str]:
        """The names of the upstreams with routes, except the demo, from the widest route on."""
        return self._listed

    @property
    def local_models(self) -> list[str]:
        """The names of the demo's models, which no other upstream would list."""
        return self._local

    def name_for(self, model: str) -> str:
        """Return the name of a model's upstream; raises UnknownModelError if no route matches."""
        for pattern, name in self._routes:
            if pattern.match(model):
                return name
        raise UnknownModelError(
            f"no route of the configuration matches model {model!r}", param="model"
        )

    def route_of(self, model: str) -> str:
        """Return the pattern of the route that a model takes, as a regular expression.

        It is empty if there is none. An empty model takes the last route.
        """
        for pattern, _ in self._routes:
            if pattern.match(model):
                return pattern.pattern
        return self._routes[-1][0].pattern if self._routes and not model else ""

    def domain_of(self, model: str) -> str | None:
        """Return the domain that the model's route configures for its replies, or None."""
        return self._domains.get(self.route_of(model)) if self._domains else None

    def fallback_of(self, model: str) -> FallbackConfig | None:
        """Return the models to try when `model` fails, or None where its route names none."""
        return self._fallbacks.get(self.route_of(model)) if self._fallbacks else None

    def default_name(self) -> str | None:
        """Return the upstream's name of the last, widest route, or None if nothing is routed.

        It serves requests without a model.
        """
        return self._routes[-1][1] if self._routes else None

    def default(self) -> str:
        """Return the default upstream's name; raises UnknownModelError where nothing is routed."""
        name = self.default_name()
        if name is None:
            raise UnknownModelError("the configuration routes no model")
        return name

    def name_or_default(self, model: str) -> str:
        """Return the upstream's name for a model, or the default one's if `model` is empty.

        Raises UnknownModelError where nothing matches.
        """
        return self.name_for(model) if model else self.default()

    def _way_to(self, model: str) -> Way:
        """Return the way for requests for a model ("" for none); raises UnknownModelError."""
        name = self.name_or_default(model)
        return Way(name, self.upstream(name), self.fallback_of(model))

    def upstream(self, name: str) -> Upstream:
        """Return an open upstream by name; raises UnknownModelError if it is not configured.

        That happens for a name from an earlier configuration.
        """
        try:
            return self._upstreams[name]
        except KeyError:
            raise UnknownModelError(f"upstream {name!r} is no longer configured") from None

    @property
    def breakers(self) -> Mapping[str, Breaker]:
        """The breakers by the name of their upstream, for those upstreams that have one."""
        return {
            name: upstream.breaker
            for name, upstream in self._upstreams.items()
            if isinstance(upstream, BreakingUpstream)
        }

    @property
    def upstreams(self) -> Collection[Upstream]:
        """The open upstreams."""
        return self._upstreams.values()

    def has_key(self, name: str) -> bool:
        """Return whether the configuration has a key for the upstream of this name."""
        return self._has_key[name]

    async def aclose(self, kept: Collection[Upstream] = ()) -> None:
        """Close the upstreams, except those in `kept`, which another router uses too."""
        for upstream in self._upstreams.values():
            if not any(upstream is other for other in kept):
                await upstream.aclose()


def open_upstream(config: UpstreamConfig, name: str = "", wrap: Wrap = unwrapped) -> Upstream:
    """Build the upstream that a section of the configuration describes, wrapped and with a breaker.

    `wrap` is applied inside the breaker. No connection is opened yet. Raises StartupError, which
    names the section, for an unusable address or key.
    """
    try:
        upstream = wrap(name, config, _open_upstream(config))
    except StartupError as error:  # of an address or a key, which do not say whose they are
        message = f"upstreams.{name}: {error}" if name else str(error)
        raise StartupError(error.status, message) from error
    if config.breaker is None:
        return upstream
    return BreakingUpstream(upstream, Breaker(name, config.breaker))


def _open_upstream(config: UpstreamConfig) -> Upstream:
    """Build the upstream of a section: the demo, litellm, or a relay to `base_url`."""
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
    assert config.base_url is not None  # UpstreamConfig refuses anything else
    return _open_spoken(config, config.base_url, key)


def _open_spoken(config: UpstreamConfig, base_url: str, key: str) -> Upstream:
    """Build a relay to `base_url`, beside which litellm translates the format it does not speak.

    An upstream that speaks both formats needs no translation.
    """
    speaks, timeout_s = config.speaks, config.timeout_s
    relay = partial(Pool, timeout_s=timeout_s, has_key=bool(key))
    if speaks == "both":
        return AnthropicRelay(relay(base_url), key, is_both=True)

    def translated(provider: str, url: str) -> LiteLLMUpstream:
        """Build an upstream that litellm translates for, which loads litellm."""
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


class SpokenUpstream:
    """An upstream that sends POSTs to paths of `others` there, and everything else to `direct`.

    Each of `others` is opened by the first request that needs it, since it loads litellm.
    """

    def __init__(self, direct: Upstream, others: Mapping[str, Callable[[], Upstream]]) -> None:
        self._direct = direct
        self._others = others
        self._opened: dict[str, Upstream] = {}

    def send(self, request: UpstreamRequest) -> Coroutine[Any, Any, UpstreamReply]:
        """Send a request to the upstream that its path requires, which is opened if need be.

        Raises what that upstream raises.
        """
        path = request.path
        if path not in self._others or request.method != "POST":
            return self._direct.send(request)
        if path not in self._opened:
            self._opened[path] = self._others[path]()
        return self._opened[path].send(request)

    async def aclose(self) -> None:
        for upstream in (*self._opened.values(), self._direct):
            await upstream.aclose()


def model_problems(policy: Policy, router: Router) -> list[Problem]:
    """Return the problems of a policy: models that no route serves, and circles of escalations.

    Each has its place in the file.
    """
    return [
        *(place for model, place in policy.models if not _is_served(model, router)),
        *circles(policy),
    ]


def _is_served(model: str, router: Router) -> bool:
    """Return whether a route matches the model."""
    try:
        router.name_for(model)
    except UnknownModelError:
        return False
    return True


class Domains:
    """The domains of replies under one configuration; `router` is made from the same one.

    A domain is a fact for rules, and the key of a curve where a recalibration goes `by: domain`.
    The `domain:` of the caller's team or of the model's route comes before the client's
    `x-pinocchio-domain`. Rules see the client's domain where neither is configured. It picks a
    curve only with `calibrator.client_domains: true`, since any client can then choose its own
    confidence.
    """

    def __init__(self, config: Config, router: Router) -> None:
        self._teams = {name: team.domain for name, team in config.teams.items() if team.domain}
        self._router = router
        self._names_any = bool(self._teams) or any(route.domain for route in config.models)
        self._trusts_clients = config.calibrator.client_domains

    def fact(self, model: str, team: str | None, client_domain: str | None) -> str | None:
        """Return the domain that rules and the record get: the configured one, else the client's.

        Returns None if there is neither.
        """
        return self._domain_in_config(model, team) or client_domain

    def of_curve(self, model: str, team: str | None, client_domain: str | None) -> str | None:
        """Return the domain that may pick the curve of a recalibration, or None.

        `client_domain` counts only where clients are trusted and no domain is configured.
        """
        return self._domain_in_config(model, team) or (
            client_domain if self._trusts_clients else None
        )

    def _domain_in_config(self, model: str, team: str | None) -> str | None:
        """Return the domain of the caller's team, else of the model's route, else None."""
        if not self._names_any:
            return None
        own = self._teams.get(team) if team else None
        return own or self._router.domain_of(model)


def picks_curves(config: Config) -> bool:
    """Return whether the configuration lets any reply have a domain that picks a curve."""
    domains = [each.domain for each in config.teams.values()]
    return config.calibrator.client_domains or any([*domains, *(r.domain for r in config.models)])
