"""What the proxy counts for Prometheus, served at `/metrics` of the review desk's listener.

One registry for each application, nothing global. Exchanges are counted where their record is
made; what stands elsewhere, such as the configuration and the replies that wait, is looked at when
somebody asks (`proxy/desk/gauges.py`). No label has a value that a client writes: names of
surfaces, upstreams, policies, rules, queues and reasons are ours or the operator's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from proxy.config.allowed_surfaces import surface_of
from proxy.errors import BadRequestError
from proxy.exchange.series import OTHER, Counter, Histogram
from proxy.wire.bounded_cache import remembers
from proxy.wire.spelling import names_in

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from proxy.exchange.exchange import Exchange
    from proxy.exchange.outcome import Outcome

SHARES: Final = tuple(twentieths / 20 for twentieths in range(1, 20))  # 0.05, 0.1 .. 0.95
OURS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
UPSTREAM_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 600.0)
_CLASSES: Final = {number: f"{number}xx" for number in range(1, 6)}


class Collector(Protocol):
    """What has metrics to show."""

    def collect(self) -> Iterable[Metric]: ...


class Metrics:
    """What counts is called from one thread, `collect` from any.

    Each attribute that is a counter or histogram is shown, and shared by workers; `note` counts.

    `engine` is where scores are computed, a name of the configuration's.
    """

    def __init__(self, engine: str = "in_process") -> None:
        self.engine = engine
        self._requests = Counter(
            "pinocchio_requests",
            "Requests answered, without polls.",
            *("surface", "upstream", "action", "status"),
        )
        self._polls = Counter("pinocchio_polls", "Requests that asked again for a held reply.")
        self._overhead = Histogram(
            "pinocchio_overhead_seconds",
            "Time of the proxy's own for a request, scoring with it, without waits for reviewers.",
            *(OURS_S, "surface", "stream"),
        )
        self._upstream = Histogram(
            "pinocchio_upstream_seconds",
            "Time that a request waited for upstream.",
            *(UPSTREAM_S, "surface", "stream"),
        )
        self._scoring = Histogram(
            "pinocchio_score_seconds", "Time of the scoring of a reply.", OURS_S, "engine"
        )
        self._scores = Counter(
            "pinocchio_scores", "Replies by what became of their score.", "status", "reason"
        )
        self._confidence = Histogram(
            "pinocchio_confidence",
            "Confidence of scored replies.",
            *(SHARES, "calibrator", "kind"),
        )
        self._decisions = Counter(
            "pinocchio_decisions",
            "Decisions of policies; in mode shadow nothing is carried out.",
            *("policy", "rule", "action", "mode"),
        )
        self._opinions = Counter(
            "pinocchio_second_opinions",
            "Second opinions by what they say of the reply; failed ones gave no answer in time.",
            "agreement",
        )
        self._judgements = Counter(
            "pinocchio_judgements",
            "Calls of a judge by what came of them; failed ones gave no answer in time.",
            "outcome",
        )
        self._streams = Counter(
            "pinocchio_stream_waits", "Streams by what of them waits for a decision.", "mode"
        )
        self._fallbacks = Counter(
            "pinocchio_fallbacks",
            "Requests that another model answered because the first one failed.",
            *("failed", "upstream"),
        )
        self._late = Counter(
            "pinocchio_late_scores", "Streams that ended before their score was there."
        )
        self._count_what_others_ask()

    def _count_what_others_ask(self) -> None:
        """Makes the counts of replies and calls that come from elsewhere."""
        self._visits = Counter(
            "pinocchio_guardrail_visits",
            "Replies that other gateways asked about, by what became of them.",
            *("gateway", "told", "scored"),
        )
        self._standing = Counter(
            "pinocchio_standing_approval_uses",
            "Replies delivered because a reviewer approved calls like theirs.",
        )
        self._interrupted = Counter(
            "pinocchio_interrupted_calls",
            "Calls of tools that agents' frameworks stopped and put before the desk.",
            "scored",
        )

    def note(self, exchange: Exchange) -> None:
        """Counts an exchange that ends."""
        if exchange.asked_again is not None:
            self._polls.add()
            return
        status = _CLASSES.get(exchange.status // 100, OTHER)
        surface, outcome = _surface(exchange.request.path), exchange.outcome
        action = "" if outcome is None else outcome.action
        self._requests.add(surface, exchange.upstream or "", action, status)
        if (waited_s := exchange.in_upstream.s) is not None:
            stream = "true" if exchange.is_stream else "false"
            self._upstream.observe(waited_s, surface, stream)
            if outcome is None or outcome.review_id is None:
                passed_s = time.perf_counter() - exchange.request.started
                self._overhead.observe(max(0.0, passed_s - waited_s), surface, stream)
        if exchange.stream_mode is not None:
            self._streams.add(exchange.stream_mode)
            if exchange.is_score_late:
                self._late.add()
        if outcome is not None:
            self._note_outcome(outcome)
        if exchange.fallback_from is not None:
            self._fallbacks.add(exchange.calls[0].upstream or "", exchange.upstream or "")
        for call in exchange.calls:
            if call.purpose == "second_opinion" and call.error is not None:
                self._opinions.add("failed")
            elif call.purpose == "judge":
                is_answer = call.error in (None, "refused", "unreadable")
                self._judgements.add((call.error or "judged") if is_answer else "failed")

    def note_visit(self, gateway: str, told: str, *, has_number: bool) -> None:
        """Counts a reply that another gateway asked about: passed, changed or withheld."""
        self._visits.add(gateway, told, "true" if has_number else "false")

    def note_interrupted(self, *, has_number: bool) -> None:
        """Counts a call that an agent's framework put before the desk."""
        self._interrupted.add("true" if has_number else "false")

    def _note_outcome(self, outcome: Outcome) -> None:
        self._scores.add(outcome.status.value, outcome.reason or "")
        if outcome.score_ms is not None:
            self._scoring.observe(outcome.score_ms / 1_000, self.engine)
        if outcome.confidence is not None:
            kind = "text"
            for facts in outcome.facts:
                if facts.tools:
                    kind = "tool_call"
            self._confidence.observe(outcome.confidence, outcome.calibrator or "", kind)
        if outcome.standing_approval is not None:
            self._standing.add()
        if outcome.evidence is not None:
            for agreement in outcome.evidence.opinions:
                self._opinions.add(agreement)
        if (decision := outcome.decision) is not None:
            self._decisions.add(decision.policy, decision.rule, decision.action.name, decision.mode)

    def state(self) -> dict[str, Any]:
        """What was counted, as a value for `absorb`; may be called from any thread."""
        return {name: each.state() for name, each in self._series()}

    def absorb(self, state: Mapping[str, Any]) -> None:
        """Adds what another process counted."""
        for name, each in self._series():
            each.absorb(state.get(name, {}))

    def _series(self) -> Iterator[tuple[str, Counter | Histogram]]:
        for name, each in vars(self).items():
            if isinstance(each, Counter | Histogram):
                yield name, each

    def collect(self) -> Iterator[Metric]:
        """What was counted."""
        for _, each in self._series():
            yield from each.collect()


class _Together:
    """Several collectors, as one registry for prometheus_client to write out."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        yield from chain.from_iterable(each.collect() for each in self._collectors)


def exposed(accept: str, *collectors: Collector) -> tuple[bytes, str]:
    """Everything as text, and its content type, in the format that `accept` prefers."""
    from prometheus_client.exposition import choose_encoder  # with a server of HTTP: when asked

    encode, content_type = choose_encoder(accept)
    return encode(cast("CollectorRegistry", _Together(*collectors))), content_type


@remembers(1_024)
def _surface(path: str) -> str:
    """Which part of the API a path is of, one of proxy/config/allowed_surfaces.py's names."""
    try:
        return surface_of(names_in(path)) or OTHER
    except BadRequestError:  # no path that anybody serves
        return OTHER
