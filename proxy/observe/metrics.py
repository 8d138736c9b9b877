"""The proxy's Prometheus metrics, served at `/metrics` of the review desk's listener.

Each application has a registry of its own; nothing is global. Exchanges are counted where their
record is made. Other values, such as the configuration and the replies that wait, are read at a
scrape (`proxy/desk/gauges.py`). No label has a value that a client writes: names of
surfaces, upstreams, policies, rules, queues and reasons are ours or the operator's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

from proxy.config.settings.allowed_surfaces import surface_of
from proxy.errors import BadRequestError
from proxy.http.wire.bounded_cache import remembers
from proxy.http.wire.spelling import names_in
from proxy.observe.series import MOST_SERIES, OTHER, Counter, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from proxy.exchange.exchange import Exchange
    from proxy.exchange.outcome import Outcome

SHARES: Final = tuple(twentieths / 20 for twentieths in range(1, 20))  # 0.05, 0.1 .. 0.95
OURS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
UPSTREAM_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 600.0)
COUNTED_TOGETHER: Final = 64  # exchanges that are alike, before their numbers go into buckets
_Alike: TypeAlias = tuple[Any, ...]
"""All values by which an exchange is counted, except its numbers."""
_Numbers: TypeAlias = deque[tuple[float | None, ...]]
"""The numbers of exchanges that are alike, a tuple each.

Seconds of waiting for upstream, seconds of the proxy's own, milliseconds of scoring, confidence,
and support by the context.
"""
_CLASSES: Final = {number: f"{number}xx" for number in range(1, 6)}


class Collector(Protocol):
    """A source of metrics."""

    def collect(self) -> Iterable[Metric]: ...


class Metrics:
    """The counters and histograms of a process.

    Counting methods are for one thread, `collect` for any. Each attribute that is a counter or
    histogram is exposed, and added up over all workers. `engine` names where scores are computed,
    as in the configuration.
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
            *("policy", "rule", "action", "mode", "team"),
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
        self._create_finding_metrics()
        self._create_outside_metrics()
        self._ended: dict[_Alike, _Numbers] = {}  # exchanges that are noted, but not yet counted
        self._counting = threading.Lock()

    def _create_finding_metrics(self) -> None:
        """Create the metrics of what calibrators find besides the confidence."""
        self._bases = Counter(
            "pinocchio_score_bases",
            "Scored replies by what their confidence is based on; likeness alone: nothing checked.",
            "basis",
        )
        self._support = Histogram(
            "pinocchio_support",
            "Probability that the context supports a reply, of replies with context.",
            SHARES,
        )

    def _create_outside_metrics(self) -> None:
        """Create the metrics of replies and calls that come from elsewhere."""
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

    def note(self, exchange: Exchange, passed_s: float) -> None:
        """Note the numbers of an exchange that ended `passed_s` seconds after its request arrived.

        They go into the metrics with those of exchanges that are alike, later. A request that asked
        again for a held reply counts as a poll only.
        """
        if exchange.polled_reply is not None:
            self._polls.add()
            return
        outcome, waited_s = exchange.outcome, exchange.in_upstream.s
        scored: tuple[Any, ...] = ()
        decided: tuple[str, ...] = ()
        ours_s = score_ms = confidence = support = None
        if waited_s is not None and (outcome is None or outcome.review_id is None):
            ours_s = passed_s - waited_s if passed_s > waited_s else 0.0
        if outcome is not None:
            score_ms, confidence, has_calls = outcome.score_ms, outcome.confidence, False
            for facts in outcome.facts:
                if facts.tools:
                    has_calls = True
            findings = outcome.findings
            support = findings.support
            scored = (
                outcome.action,
                outcome.status,
                outcome.reason,
                outcome.calibrator,
                has_calls,
                findings.basis,
            )
            if (decision := outcome.decision) is not None:
                team = exchange.request.caller.team or ""
                action = decision.action.name
                decided = decision.policy, decision.rule, action, decision.mode, team
            if outcome.evidence is not None or outcome.standing_approval is not None:
                self._note_rare(outcome)
        surface, status = _surface(exchange.request.path), exchange.status // 100
        stream = exchange.is_stream, exchange.stream_mode, exchange.is_score_late
        alike = (surface, exchange.upstream, status, stream, scored, decided)
        numbers = self._ended.get(alike)
        if numbers is None:
            numbers = self._begin(alike)
        numbers.append((waited_s, ours_s, score_ms, confidence, support))
        if len(numbers) >= COUNTED_TOGETHER:
            self._count(alike, numbers)
        if exchange.calls:
            self._note_calls(exchange)

    def _begin(self, alike: _Alike) -> _Numbers:
        """Return a new, empty list of numbers for exchanges that are alike.

        Beyond `MOST_SERIES` lists all are counted first and dropped. Only for the thread that calls
        `note`.
        """
        if len(self._ended) >= MOST_SERIES:
            self._count_all()
            self._ended.clear()
        numbers = self._ended[alike] = deque()
        return numbers

    def _count_all(self) -> None:
        """Add all noted numbers to the metrics."""
        for alike, numbers in [*self._ended.items()]:
            self._count(alike, numbers)

    def _count(self, alike: _Alike, numbers: _Numbers) -> None:
        """Move the noted numbers of exchanges that are alike into the metrics.

        Safe on any thread.
        """
        surface, upstream, status, (is_stream, mode, is_late), scored, decided = alike
        with self._counting:
            taken = [numbers.popleft() for _ in range(len(numbers))]
            if not taken:
                return
            count, stream = float(len(taken)), "true" if is_stream else "false"
            columns = ([n for n in column if n is not None] for column in zip(*taken, strict=True))
            waited_s, ours_s, score_ms, confidences, supports = columns
            action = scored[0] if scored else ""
            labels = (surface, upstream or "", action, _CLASSES.get(status, OTHER))
            self._requests.add(*labels, number=count)
            self._upstream.observe_all(waited_s, surface, stream)
            self._overhead.observe_all(ours_s, surface, stream)
            if mode is not None:
                self._streams.add(mode, number=count)
                if is_late:
                    self._late.add(number=count)
            if scored:
                _, state, reason, calibrator, has_calls, basis = scored
                self._scores.add(state.value, reason or "", number=count)
                self._scoring.observe_all([ms / 1_000 for ms in score_ms], self.engine)
                kind = "tool_call" if has_calls else "text"
                self._confidence.observe_all(confidences, calibrator or "", kind)
                self._support.observe_all(supports)
                if basis:
                    self._bases.add(",".join(basis), number=count)
            if decided:
                self._decisions.add(*decided, number=count)

    def _note_calls(self, exchange: Exchange) -> None:
        """Count fallbacks, failed second opinions, and judgements of an exchange."""
        if exchange.fallback_from is not None:
            self._fallbacks.add(exchange.calls[0].upstream or "", exchange.upstream or "")
        for call in exchange.calls:
            if call.purpose == "second_opinion" and call.error is not None:
                self._opinions.add("failed")
            elif call.purpose == "judge":
                is_answer = call.error in (None, "refused", "unreadable")
                self._judgements.add((call.error or "judged") if is_answer else "failed")

    def _note_rare(self, outcome: Outcome) -> None:
        """Count what few replies have: standing approvals and second opinions."""
        if outcome.standing_approval is not None:
            self._standing.add()
        if outcome.evidence is not None:
            for agreement in outcome.evidence.opinions:
                self._opinions.add(agreement)

    def note_visit(self, gateway: str, outcome: str, *, has_number: bool) -> None:
        """Count a reply that another gateway asked about; `outcome` is passed, changed or withheld.

        `has_number` is whether it got a confidence.
        """
        self._visits.add(gateway, outcome, "true" if has_number else "false")

    def note_interrupted(self, *, has_number: bool) -> None:
        """Count a call that an agent's framework submitted to the desk.

        `has_number` is whether it got a confidence.
        """
        self._interrupted.add("true" if has_number else "false")

    def state(self) -> dict[str, Any]:
        """Return all counts as a value for `absorb`; safe on any thread."""
        return {name: each.state() for name, each in self._series()}

    def absorb(self, state: Mapping[str, Any]) -> None:
        """Add the counts of another process, which its `state` returned."""
        for name, each in self._series():
            each.absorb(state.get(name, {}))

    def _series(self) -> Iterator[tuple[str, Counter | Histogram]]:
        """Count what was noted, then yield (attribute's name, counter or histogram) of each."""
        self._count_all()
        for name, each in vars(self).items():
            if isinstance(each, Counter | Histogram):
                yield name, each

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; safe on any thread."""
        for _, each in self._series():
            yield from each.collect()


class _JoinedCollectors:
    """Several collectors as one registry, which prometheus_client can write out."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        yield from chain.from_iterable(each.collect() for each in self._collectors)


def expose_metrics(accept: str, *collectors: Collector) -> tuple[bytes, str]:
    """Return (all metrics in the format that `accept` prefers, its content type).

    `accept` is the header's value.
    """
    from prometheus_client.exposition import choose_encoder  # imports an HTTP server: only now

    encode, content_type = choose_encoder(accept)
    return encode(cast("CollectorRegistry", _JoinedCollectors(*collectors))), content_type


@remembers(1_024)
def _surface(path: str) -> str:
    """Return the part of the API that a path belongs to, such as `chat`, or `other`.

    The names are those of proxy/config/settings/allowed_surfaces.py.
    """
    try:
        return surface_of(names_in(path)) or OTHER
    except BadRequestError:  # no server has such a path
        return OTHER
