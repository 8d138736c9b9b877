"""The upstreams, and the routes from models' names to them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from proxy.config.settings.section import Secret, Section

_FAILURE = re.compile(r"[45](\d\d|xx)|timeout|unreachable")


def _failures(value: Any) -> Any:
    """Convert a list of failures such as `[5xx, 429, timeout]` to a tuple of texts.

    Anything but a list is returned unchanged. Raises ValueError for an unknown failure.
    """
    if not isinstance(value, list | tuple):
        return value
    for each in value:
        if not _FAILURE.fullmatch(str(each)):
            raise ValueError(
                "a failure is 'timeout', 'unreachable', '5xx' or a status such as 429, "
                f"not {each!r}"
            )
    return tuple(map(str, value))


class BreakerConfig(Section):
    """A pause of `open_s` seconds for an upstream after `failures` failures in a row."""

    failures: int = Field(default=5, gt=0)
    open_s: float = Field(default=30, gt=0)


class FallbackConfig(Section):
    """The models that are tried in turn where the requested one fails."""

    to: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    on: Annotated[tuple[str, ...], BeforeValidator(_failures), Field(min_length=1)] = (
        *("unreachable", "timeout"),
        *("5xx", "429"),
    )
    within_s: float | None = Field(default=None, gt=0)  # for each model's reply to begin


class UpstreamConfig(Section):
    """An upstream: `base_url`, `litellm` (with or without `base_url`) or `demo` says which kind."""

    base_url: str | None = None
    api_key: Secret = SecretStr("")
    demo: bool = False
    speaks: Literal["openai", "anthropic", "both"] = "openai"
    litellm: str | None = None
    via: Literal["relay", "litellm"] = "relay"
    timeout_s: float = Field(default=600, gt=0)
    breaker: BreakerConfig | None = None

    @property
    def lends_a_key(self) -> bool:
        """Whether requests may go upstream with a key that is not the client's.

        litellm also finds keys in the environment, so any of its upstreams counts.
        """
        is_litellms = self.litellm is not None or self.via == "litellm"
        return bool(self.api_key.get_secret_value()) or is_litellms

    @model_validator(mode="after")
    def _is_one_kind(self) -> UpstreamConfig:
        """Raise ValueError for an upstream without a kind, or with keys that contradict each other.

        It needs `base_url`, `litellm` or `demo`. `demo` excludes the others, `speaks` fits some
        kinds, `litellm: auto` without `base_url` must have no `api_key`, and `base_url` is http or
        https.
        """
        if self.demo and (self.base_url or self.litellm or self.via == "litellm"):
            raise ValueError("'demo: true' answers by itself; remove base_url, litellm and via")
        if not (self.demo or self.base_url or self.litellm):
            raise ValueError("an upstream needs 'base_url', 'litellm' or 'demo: true'")
        if self.speaks != "openai":
            self._check_speaks()
        if self.litellm == "auto" and self.api_key.get_secret_value() and not self.base_url:
            raise ValueError(
                "with 'litellm: auto' the client names the provider, which would then get api_key; "
                "name the provider here, or leave the key to its own environment variable"
            )
        if self.base_url and not re.match(r"https?://[^/\s]+", self.base_url):
            raise ValueError(f"base_url must begin with http:// or https://, not {self.base_url!r}")
        return self

    def _check_speaks(self) -> None:
        """Raise ValueError for `demo`, `litellm` or `via: litellm`, which exclude `speaks`."""
        if self.demo:
            raise ValueError("'demo: true' answers by itself; remove speaks")
        if self.litellm:
            raise ValueError("litellm knows what its upstreams speak; remove speaks, or litellm")
        if self.via == "litellm":
            raise ValueError(
                f"'via: litellm' translates to OpenAI's format; with 'speaks: {self.speaks}' "
                "nothing needs it, remove one of them"
            )


class ModelRoute(Section):
    """A route: model names that match the glob go to the upstream. The first match wins."""

    match: str
    upstream: str
    domain: str | None = Field(default=None, min_length=1)  # the domain of their questions
    fallback: FallbackConfig | None = None


def fallback_problems(
    routes: Sequence[ModelRoute], upstreams: Mapping[str, UpstreamConfig]
) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the problems of fallbacks, each as (place, sentence); [] where there are none.

    A place is the path of keys and indexes in the file, such as `("models", 0, "fallback", "to")`.
    A fallback model needs a route, and an upstream with a key of its own where that upstream is not
    the route's.
    """
    found: list[tuple[tuple[str | int, ...], str]] = []
    for i, route in enumerate(routes):
        for model in route.fallback.to if route.fallback else ():
            target = next((each for each in routes if fnmatchcase(model, each.match)), None)
            place = ("models", i, "fallback", "to")
            if target is None:
                found.append((place, f"no route matches the fallback model {model!r}"))
            elif target.upstream != route.upstream and not _has_own_key(upstreams[target.upstream]):
                found.append(
                    (
                        place,
                        f"{model!r} would be sent the client's key for upstream "
                        f"{route.upstream!r}: set api_key of upstream {target.upstream!r} "
                        "(any word, where it asks for none)",
                    )
                )
    return found


def _has_own_key(upstream: UpstreamConfig) -> bool:
    """Return whether the upstream is a demo, or needs no key of the client."""
    return upstream.demo or upstream.lends_a_key
