"""What the proxy counts for Prometheus, served at `/metrics` of the review desk's listener.

One registry for each application, nothing global. Exchanges are counted where their record is
made; what stands elsewhere, the configuration and the replies that wait, is looked at when somebody
asks. No label has a value that a client writes: names of surfaces, policies, rules, queues and
reasons are ours or the operator's, and past `MOST_SERIES` of a metric others count as `other`.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from proxy.config.allowed_surfaces import surface_of
from proxy.errors import BadRequestError
from proxy.wire.bounded_cache import remembers
from proxy.wire.spelling import names_in

if TYPE_CHECKING:
    from proxy.exchange.exchange import Exchange
    from proxy.exchange.outcome import Outcome

MOST_SERIES: Final = 1_000
OTHER: Final = "other"
BUCKETS: Final = tuple(tenths / 20 for tenths in range(1, 20))  # 0.05, 0.1 .. 0.95
_CLASSES: Final = {number: f"{number}xx" for number in range(1, 6)}


@dataclass(frozen=True, slots=True)
class ConfigurationState:
    """Which generation is in force, whether what the files say now is, and since when."""

    generation: int
    is_refused: bool
    taken_at: float  # seconds since the epoch


class _Counted:
    """Counts by the values of labels, at most `MOST_SERIES` of them, for any thread to collect."""

    def __init__(self, name: str, told: str, *labels: str) -> None:
        self._told, self._labels = (name, told), labels
        self._counts: dict[tuple[str, ...], list[float]] = {}  # the number, and since when
        self._beyond = (OTHER,) * len(labels)
        if not labels:
            self._counts[()] = [0.0, time.time()]

    def add(self, *values: str) -> None:
        count = self._counts.get(values)
        if count is None:
            known = values if len(self._counts) < MOST_SERIES else self._beyond
            count = self._counts.setdefault(known, [0.0, time.time()])
        count[0] += 1.0

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(*self._told, labels=self._labels)
        for values, (count, since) in [*self._counts.items()]:
            family.add_metric(values, count, created=since)
        return [family]


class _Distribution:
    """How many numbers from 0 to 1 are in each of `BUCKETS`, for any thread to collect."""

    def __init__(self, name: str, told: str) -> None:
        self._told = (name, told)
        self._counts = [0] * (len(BUCKETS) + 1)
        self._sum, self._since = 0.0, time.time()

    def observe(self, value: float) -> None:
        self._counts[bisect_left(BUCKETS, value)] += 1
        self._sum += value

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(*self._told)
        bounds = map(floatToGoString, (*BUCKETS, math.inf))
        family.add_metric((), [*zip(bounds, accumulate(self._counts), strict=True)], self._sum)
        family.add_sample(f"{family.name}_created", {}, self._since)
        return [family]


class Metrics:
    """`note` may be called from one thread, `exposed` from any."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counted(name: str, told: str, *labels: str) -> _Counted:
            found = _Counted(name, told, *labels)
            registry.register(found)
            return found

        def gauge(name: str, told: str, *labels: str) -> Gauge:
            return Gauge(name, told, labels, registry=registry)

        self._requests = counted(
            "pinocchio_requests", "Requests answered, without polls.", "surface", "status"
        )
        self._polls = counted("pinocchio_polls", "Requests that asked again for a held reply.")
        self._scores = counted(
            "pinocchio_scores", "Replies by what became of their score.", "status", "reason"
        )
        self._decisions = counted(
            "pinocchio_decisions",
            "Decisions of policies; in mode shadow nothing is carried out.",
            *("policy", "rule", "action", "mode"),
        )
        self._opinions = counted(
            "pinocchio_second_opinions",
            "Second opinions by what they say of the reply; failed ones gave no answer in time.",
            "agreement",
        )
        self._confidence = _Distribution("pinocchio_confidence", "Confidence of scored replies.")
        registry.register(self._confidence)
        self._generation = gauge(
            "pinocchio_config_generation", "Number of the configuration in force, from 1."
        )
        self._is_current = gauge(
            "pinocchio_config_last_reload_successful",
            "1 where the configuration's files are in force as they are, 0 where they are refused.",
        )
        self._taken_at = gauge(
            "pinocchio_config_last_reload_success_timestamp_seconds",
            "When the configuration in force was taken.",
        )
        self._held = gauge(
            "pinocchio_held_replies", "Replies that wait for a reviewer.", "queue", "kind"
        )

    def note(self, exchange: Exchange) -> None:
        """Counts an exchange that ends."""
        if exchange.asked_again is not None:
            self._polls.add()
            return
        status = _CLASSES.get(exchange.status // 100, OTHER)
        self._requests.add(_surface(exchange.request.path), status)
        if exchange.outcome is not None:
            self._note_outcome(exchange.outcome)
        for call in exchange.calls:
            if call.purpose == "second_opinion" and call.error is not None:
                self._opinions.add("failed")

    def _note_outcome(self, outcome: Outcome) -> None:
        self._scores.add(outcome.status.value, outcome.reason or "")
        if outcome.confidence is not None:
            self._confidence.observe(outcome.confidence)
        if outcome.evidence is not None:
            for agreement in outcome.evidence.opinions:
                self._opinions.add(agreement)
        if (decision := outcome.decision) is not None:
            self._decisions.add(decision.policy, decision.rule, decision.action.name, decision.mode)

    def exposed(
        self,
        configuration: ConfigurationState,
        waiting: Iterable[Mapping[str, Any]] | None,
        accept: str,
    ) -> tuple[bytes, str]:
        """Everything as text, and its content type, in the format that `accept` prefers.

        `waiting` has `queue`, `kind` and `count`; with None, as the store cannot be read, there is
        no series of it.
        """
        self._generation.set(configuration.generation)
        self._is_current.set(not configuration.is_refused)
        self._taken_at.set(configuration.taken_at)
        self._held.clear()
        for row in waiting or ():
            self._held.labels(row["queue"], row["kind"]).set(row["count"])
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


@remembers(1_024)
def _surface(path: str) -> str:
    """Which part of the API a path is of, one of proxy/config/allowed_surfaces.py's names."""
    try:
        return surface_of(names_in(path)) or OTHER
    except BadRequestError:  # no path that anybody serves
        return OTHER
