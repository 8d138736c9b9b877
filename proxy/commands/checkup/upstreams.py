"""The installation that `doctor` examines, its findings, and the check of the upstreams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from proxy.errors import ProxyError

if TYPE_CHECKING:
    from proxy.config.settings.upstreams import UpstreamConfig
    from proxy.config.setup import Setup
    from proxy.store.condition import Condition
    from proxy.upstreams.router import Router

Level = Literal["ok", "skip", "warn", "fail"]
UPSTREAM_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The finding on one part; only `fail` changes the exit status."""

    level: Level
    about: str
    text: str


@dataclass(slots=True)
class Patient:
    """The installation to examine; checks add facts that later checks use."""

    setup: Setup
    url: str
    skews_s: dict[str, float] = field(default_factory=dict)  # by the owner of the other clock
    calibrator: str | None = None  # the name of its numbers, once it has scored
    calibrator_bytes: int | None = None  # of memory, once it is loaded here
    store: Condition | None = None


def check_upstreams(patient: Patient) -> Iterator[Diagnosis]:
    """Yield a finding for each upstream; all are asked at the same time."""
    yield from asyncio.run(_ask_upstreams(patient))


async def _ask_upstreams(patient: Patient) -> list[Diagnosis]:
    """Return a finding for each configured upstream, in their order."""
    from proxy.upstreams.router import Router

    config = patient.setup.config
    router = Router(config)
    try:
        findings = [_ask(patient, router, *each) for each in config.upstreams.items()]
        return await asyncio.gather(*findings)
    finally:
        await router.aclose()


async def _ask(patient: Patient, router: Router, name: str, section: UpstreamConfig) -> Diagnosis:
    """Return the finding on one upstream, after a request for its list of models.

    The request takes the connection and the key of ordinary requests. The date of the answer is
    noted for the check of clocks.
    """
    from proxy.http.pool.forward_proxy import forward_proxy_for
    from proxy.http.pool.pool import meant_address
    from proxy.http.wire.upstream import UpstreamRequest
    from proxy.upstreams.loops import address_of

    about = f"upstream {name}"
    if section.demo:
        return Diagnosis("ok", about, "canned answers, no network")
    if section.base_url is None or section.litellm or section.via == "litellm":
        return Diagnosis("skip", about, "through litellm, which is loaded by the first request")
    headers = [(b"accept", b"application/json"), (b"anthropic-version", b"2023-06-01")]
    began = time.perf_counter()
    try:
        async with asyncio.timeout(UPSTREAM_S):
            reply = await router.upstream(name).send(UpstreamRequest("GET", "/models", headers))
            await reply.aclose()
    except TimeoutError:
        return Diagnosis("fail", about, f"no answer within {UPSTREAM_S:g} s")
    except ProxyError as error:
        return Diagnosis("fail", about, error.message)
    passed_ms = (time.perf_counter() - began) * 1_000
    _note_date(patient, name, reply.values.get(b"date"))
    level, text = _judge_status(reply.status, has_key=router.has_key(name))
    place = address_of(section.base_url)
    if reply.status == 404 and (suggestion := meant_address(place)):
        level, text = "warn", f"it knows no /models; did you mean base_url: {suggestion} ?"
    forward_proxy = forward_proxy_for(urlsplit(place).scheme, urlsplit(place).hostname or "")
    if forward_proxy is not None:
        text += f", through the proxy at {forward_proxy.where}"
    return Diagnosis(level, about, f"{place}: {text} ({reply.status}, {passed_ms:.0f} ms)")


def _judge_status(status: int, *, has_key: bool) -> tuple[Level, str]:
    """Return the level of an upstream's HTTP status for its list of models, and a phrase."""
    if status in (401, 403):
        if has_key:
            return "fail", "it refuses the key of the configuration"
        return "ok", "it is there, and asks for the client's own key"
    if status == 429:
        return "warn", "it is there, and refuses for now: too many requests, or no credit"
    if status >= 500:
        return "fail", "it fails"
    return ("ok", "it answers") if status < 300 else ("ok", "it is there, without a list of models")


def _note_date(patient: Patient, name: str, date: bytes | None) -> None:
    """Note how far the clock of upstream `name` is ahead, by its Date header, if it has one."""
    with suppress(ValueError, TypeError):
        at = parsedate_to_datetime((date or b"").decode("latin-1")).timestamp()
        patient.skews_s[f"upstream {name}"] = at - time.time()
