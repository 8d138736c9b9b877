"""One configuration at work: who is let in under it, and what happens to their requests.

A change of the configuration makes a new generation beside the old one. Every request reads the
current one once, at its beginning, and stays with it to its end.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from policies import Policy
from proxy.completions.decide import Governing
from proxy.completions.random_audit import audit_of
from proxy.completions.services import Services
from proxy.config.allowed_surfaces import check_surface
from proxy.config.sections import AttachConfig, TeamConfig
from proxy.config.setup import Setup, problem_of
from proxy.errors import InvalidKeyError, ProxyError, RateLimitedError
from proxy.exchange.conversations import Conversations
from proxy.exchange.metrics import Metrics
from proxy.exchange.stream_results import Results
from proxy.gate.client_keys import ATTACH, UNKNOWN_KEY, digest_of, take_secret
from proxy.gate.host_check import check_local
from proxy.gate.rate_limits import Rate, TakesRequests
from proxy.holds.waiting import Verdicts
from proxy.passthrough.surfaces import Surfaces
from proxy.policy_context.traffic import Traffic
from proxy.routes import Routes
from proxy.scoring.recalibrated import Scores, recalibrated
from proxy.scoring.scoring import Scoring
from proxy.scoring.stand_in import WithStandIn
from proxy.store.client_keys import ClientKey
from proxy.store.record.writer import Records
from proxy.store.reviews.audit_writer import AuditWriter
from proxy.store.reviews.held_replies import Store
from proxy.upstreams.loops import mark_of, pass_on
from proxy.upstreams.router import Router, as_it_is
from proxy.wire.caller import CALLER, TAKE, Caller
from proxy.wire.http import ASGIApplication, Scope, raw_path_of
from proxy.wire.spelling import names_in
from proxy.workers.peers import Peers

if TYPE_CHECKING:
    from proxy.telemetry.telemetry import Telemetry

ALIVE = ("/livez", "/health/liveliness", "/health/liveness")  # the longer ones are LiteLLM's
READY = ("/readyz", "/health/readiness")
PROBES = frozenset((*ALIVE, *READY))  # of whoever runs the proxy; they need no key
NO_TEAM = TeamConfig()


@dataclass(frozen=True, slots=True)
class Parts:
    """What lives as long as the proxy does, whatever its configuration becomes.

    `is_loopback` says that only this machine should reach it; `peers` are the other workers, where
    there are several.
    """

    scoring: Scoring
    stand_in: Scoring | None
    store: Store
    records: Records | None
    results: Results
    verdicts: Verdicts
    conversations: Conversations
    buckets: TakesRequests
    traffic: Traffic
    audits: AuditWriter
    metrics: Metrics
    telemetry: Telemetry | None
    is_loopback: bool
    peers: Peers | None = None


@dataclass(frozen=True, slots=True)
class _Guest:
    """What a key comes to under one generation."""

    key: ClientKey
    caller: Caller
    rates: tuple[Rate, ...]
    routes: Routes
    surfaces: tuple[str, ...] | None  # that it may use


class Generation:
    """`number` counts from 1, at the start; `keys` are all there are, by their digest."""

    def __init__(
        self, number: int, setup: Setup, parts: Parts, before: Generation | None = None
    ) -> None:
        self.number = number
        self.setup = setup
        wrap = as_it_is if parts.telemetry is None else parts.telemetry.wrap
        self.router: Router = Router(setup.config, before.router if before else None, wrap)
        self.scores: Scores = recalibrated(parts.scoring, setup.recalibrations)
        if parts.stand_in is not None:
            stand_in = recalibrated(parts.stand_in, setup.of_stand_in)
            self.scores = WithStandIn(self.scores, stand_in)
        self._audit = audit_of(setup.config, parts.audits)
        self.in_flight = 0
        self.is_retired = False  # a later one is the current one
        self._parts = parts
        self._anyone = Caller(number)
        self._mark = mark_of(setup.config)
        self.needs_keys = setup.config.needs_keys
        self._is_open = parts.is_loopback and not self.needs_keys
        self._realtime: ASGIApplication | None = None
        self._keys: Mapping[str, ClientKey] = {}
        self._guests: dict[str, _Guest] = {}
        self._routes: list[tuple[Policy, AttachConfig, Routes]] = []
        self.routes = self._routes_for(setup.policy, setup.config.attach)

    def _routes_for(self, policy: Policy, attach: AttachConfig) -> Routes:
        """Shared by all callers whose policy is the same and who see the same of it."""
        for its_policy, its_attach, routes in self._routes:
            if its_policy is policy and its_attach == attach:
                return routes
        config, parts = self.setup.config.model_copy(update={"attach": attach}), self._parts
        services = Services(
            config,
            Governing((policy,), parts.traffic, self.router.route_of),
            self.setup.book,
            self.router,
            self.scores,
            parts.store,
            parts.results,
            parts.verdicts,
            parts.records,
            parts.conversations,
            self._audit,
        )
        surfaces = Surfaces(
            self.router,
            parts.store,
            attach,
            parts.records,
            parts.conversations,
            services.ownership,
            config.limits.max_body,
        )
        routes = Routes(services, surfaces)
        self._routes.append((policy, attach, routes))
        return routes

    def realtime(self) -> ASGIApplication:
        """The handler of WebSockets."""
        if self._realtime is None:
            from proxy.passthrough.websockets import Realtime

            config, records = self.setup.config, self._parts.records
            self._realtime = Realtime(config, self.router, records, is_open=self._is_open)
        return self._realtime

    # --- who is let in --------------------------------------------------------------------------

    def enter(self, scope: Scope) -> Routes:
        """Lets a request in, and says who asks in its scope; raises ProxyError for a refusal."""
        scope[CALLER] = self._anyone
        pass_on(scope, self._mark)
        if not self.needs_keys and (surfaces := self.setup.config.surfaces) is not None:
            check_surface(names_in(raw_path_of(scope)), surfaces)
        if self.needs_keys:
            return self.routes if scope["path"] in PROBES else self._admit(scope)
        if self._is_open:
            check_local(scope["headers"])
        return self.routes

    def _admit(self, scope: Scope) -> Routes:
        key = self._key(take_secret(scope))
        guest = self._guest(key, scope)
        scope[CALLER] = guest.caller
        if guest.rates:
            self._take(guest.rates)
            scope[TAKE] = partial(self._take, guest.rates)
        if guest.surfaces is not None:
            check_surface(names_in(raw_path_of(scope)), guest.surfaces)
        return guest.routes

    def _take(self, rates: tuple[Rate, ...]) -> None:
        if wait_s := self._parts.buckets.take(rates):
            most = ", ".join(f"{rate} a minute for {owner}" for owner, rate in rates)
            raise RateLimitedError(f"too many requests: {most}", wait_s)

    def _key(self, secret: bytes) -> ClientKey:
        """What is looked up, and compared, is a hash: how long that takes tells nothing."""
        digest = digest_of(secret)
        key = self._keys.get(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            raise InvalidKeyError(UNKNOWN_KEY)
        if key.role != "caller":
            raise InvalidKeyError(f"{key.id} is a key of the review desk, not of this API")
        return key

    def _guest(self, key: ClientKey, scope: Scope) -> _Guest:
        """What the key comes to; raises ProxyError where it is over or cannot be served."""
        state, guest = key.state(time.time()), self._guests.get(key.id)
        if guest is not None and state == "active":
            return guest
        scope[CALLER] = Caller(self.number, key.id, key.name or key.id, key.team)
        if state != "active":
            verb = {"revoked": "was revoked", "expired": "has expired"}[state]
            raise InvalidKeyError(f"the client key {key.id} {verb}")
        guest = self._guests[key.id] = self._new_guest(key)
        return guest

    def _new_guest(self, key: ClientKey) -> _Guest:
        """Raises ProxyError where what the key names is not in the configuration."""
        if problem_of(key, self.setup) is not None:  # the log says which, see reloading.py
            text = f"the client key {key.id} cannot be used; the proxy's log says why"
            raise ProxyError(text, code="key_unusable")
        config = self.setup.config
        team = config.teams.get(key.team, NO_TEAM) if key.team else NO_TEAM
        policy = self.setup.book.load(key.policy or team.policy)
        attach = team.attach or config.attach
        if key.attach is not None:
            attach = AttachConfig.model_validate(ATTACH[key.attach])
        limits = (
            (f"key {key.id}", key.requests_per_minute),
            (f"team {key.team}", team.requests_per_minute),
        )
        rates = tuple((owner, rate) for owner, rate in limits if rate is not None)
        named = (key.id, key.name or key.id, key.team)
        caller = Caller(self.number, *named, key.max_held, team.max_held)
        surfaces = team.surfaces if team.surfaces is not None else config.surfaces
        if key.surfaces is not None:
            surfaces = tuple(key.surfaces.split(","))
        return _Guest(key, caller, rates, self._routes_for(policy, attach), surfaces)

    def use_keys(self, keys: Iterable[ClientKey]) -> None:
        """From now on these are all the keys there are."""
        self._keys = {key.digest: key for key in keys}
        self._guests = {}
