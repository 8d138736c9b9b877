"""One configuration in use: what happens to the requests that `admission.py` lets in.

A change of the configuration makes a new generation beside the old one. Every request reads the
current one once, at its beginning, and keeps it to its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies import Policy
from proxy.completions.decide import ActivePolicies
from proxy.completions.random_audit import audit_of
from proxy.completions.services import Services
from proxy.completions.surfaces import Surfaces
from proxy.config.sections import AttachConfig
from proxy.config.setup import Setup
from proxy.gate.rate_limits import TakesRequests
from proxy.holds.conversations import Conversations
from proxy.holds.stream_results import Results
from proxy.holds.waiting import Verdicts
from proxy.http.wire.http import ASGIApplication
from proxy.http.workers.peers import Peers
from proxy.learning.traffic import Traffic
from proxy.observe.metrics import Metrics
from proxy.routes.admission import Admission
from proxy.routes.routes import Routes
from proxy.scoring.scores import RecalibratedScores, Scores, WithStandIn
from proxy.scoring.scoring import Scoring
from proxy.store.record.writer import Records
from proxy.store.reviews.audit_writer import AuditWriter
from proxy.store.reviews.held_replies import Store
from proxy.upstreams.router import Router, unwrapped

if TYPE_CHECKING:
    from proxy.observe.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that live as long as the proxy does, across configurations.

    `is_loopback` says that only this machine should reach it. `peers` connects to the other
    workers, where there are several.
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


def _digest_of(setup: Setup) -> str:
    """Return the digest of a configuration, empty where a file cannot be read any more."""
    try:
        return setup.digest()
    except OSError:
        return ""


class Generation:
    """The generation `number`, counted from 1; `admission` lets requests in under it.

    `digest` is the same wherever the configuration is the same, on other machines too.
    """

    def __init__(
        self, number: int, setup: Setup, parts: Parts, before: Generation | None = None
    ) -> None:
        self.number = number
        self.setup = setup
        self.digest = _digest_of(setup)
        wrap = unwrapped if parts.telemetry is None else parts.telemetry.wrap
        self.router: Router = Router(setup.config, before.router if before else None, wrap)
        facts = setup.facts
        self.scores: Scores = RecalibratedScores(parts.scoring, setup.recalibrations, facts)
        if parts.stand_in is not None:
            stand_in = RecalibratedScores(parts.stand_in, setup.of_stand_in, facts)
            self.scores = WithStandIn(self.scores, stand_in)
        self._audit = audit_of(setup.config, parts.audits)
        self.in_flight = 0
        self.is_retired = False  # True once a later generation is current
        self._parts = parts
        self._is_open = parts.is_loopback and not setup.config.needs_keys
        self._realtime: ASGIApplication | None = None
        self._routes: list[tuple[Policy, AttachConfig, Routes]] = []
        self.admission = Admission(number, setup, parts.buckets, self.routes_for, self._is_open)
        self.routes = self.routes_for(setup.policy, setup.config.attach)

    def routes_for(self, policy: Policy, attach: AttachConfig) -> Routes:
        """Return the routes for a policy and an `attach` section, made at their first use.

        Callers with the same two share them.
        """
        for other_policy, other_attach, routes in self._routes:
            if other_policy is policy and other_attach == attach:
                return routes
        config, parts = self.setup.config.model_copy(update={"attach": attach}), self._parts
        services = Services(
            config,
            ActivePolicies((policy,), parts.traffic, self.router.route_of),
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
        """Return the handler of WebSockets, made at its first use."""
        if self._realtime is None:
            from proxy.optional.websockets.websockets import Realtime

            config, records = self.setup.config, self._parts.records
            self._realtime = Realtime(config, self.router, records, is_open=self._is_open)
        return self._realtime
