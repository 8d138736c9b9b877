"""Metrics of the desk, and of values that are kept elsewhere and read at a scrape.

A value that cannot be read has no series; the others are served all the same, at once: a database
may hang. Each of several workers is asked for its figures (`figures.py`), which add up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from proxy.desk.decisions.desk import Desk
from proxy.desk.figures import Figures, Labels, add_figures, figures_of
from proxy.errors import ProxyError, StoreError
from proxy.generations.generation import Parts
from proxy.generations.reloading import Generations
from proxy.learning.drift import alarms_now
from proxy.observe.metrics import Metrics
from proxy.observe.series import OTHER, Counter, Histogram, add_distribution, histogram_family
from proxy.store.patience import Patience

DISTRIBUTION: Final = "pinocchio-proxy"
BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MOST_QUEUES: Final = 100  # queues with series of their own
DRIFT_FOR_S: Final = 15.0  # seconds; monitors are updated once a minute
READ_WITHIN_S: Final = 1.0  # seconds that a scrape waits for the store
KNOWN_FOR_S: Final = 60.0  # seconds for which a scrape takes what was read for an earlier one


REVIEW_S: Final = (5, 15, 30, 60, 120, 300, 900, 1_800, 3_600, 14_400, 43_200, 86_400, 604_800)

LEAST: Final = ("process_start_time_seconds", "process_max_fds")  # minimum instead of sum
CPU: Final = "process_cpu_seconds"
RESIDENT: Final = "process_resident_memory_bytes"


class DecisionCounters:
    """Counters of the decisions made at this desk; its methods are for one thread."""

    def __init__(self) -> None:
        self._verdicts = Counter(
            "pinocchio_verdicts", "Replies decided at this desk.", "queue", "verdict"
        )
        self._waits = Histogram(
            "pinocchio_review_wait_seconds",
            "Time from a reply's hold to its decision at this desk.",
            *(REVIEW_S, "queue"),
        )

        self._approvals = Counter(
            "pinocchio_first_approvals",
            "Approvals at this desk after which further people have to approve.",
            "queue",
        )
        self._links = Counter(
            "pinocchio_decision_links",
            "What links of chat messages came to at this desk.",
            "outcome",
        )

    def note_link(self, outcome: str) -> None:
        """Count what became of a decision link: its verdict, or why it decided nothing."""
        self._links.add(outcome)

    def note_approval(self, queue: str) -> None:
        """Count one of several approvals that is not the last."""
        self._approvals.add(queue)

    def note(self, queue: str, verdict: str, waited_s: float) -> None:
        """Count a reply that was decided, with its verdict and the time that it waited.

        `waited_s` is in seconds from its hold. `verdict` is "approve", "edit" or "reject".
        """
        self._verdicts.add(queue, verdict)
        self._waits.observe(waited_s, queue)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all decisions."""
        yield from self._verdicts.collect()
        yield from self._waits.collect()
        yield from self._approvals.collect()
        yield from self._links.collect()


class Gauges:
    """The metrics of the proxy, collected at a scrape."""

    def __init__(self, desk: Desk, parts: Parts, holder: Generations) -> None:
        self._desk, self._parts, self._holder = desk, parts, holder
        self._engine, self._version = parts.metrics.engine, _version()
        self._drift: tuple[float, list[tuple[Labels, float]]] = (-DRIFT_FOR_S, [])
        self._patience = Patience(1)
        self._stored: tuple[float, dict[str, list[Any]]] = (-KNOWN_FOR_S, {})

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the proxy; reads the store, so call it on a thread.

        With several workers their counts are added up. Raises ProxyError where workers do not send
        their figures in time.
        """
        if self._parts.peers is None:
            yield from self._parts.metrics.collect()
            yield from process_metrics()
            yield from _workers(1, 0)
            yield from self._collect_figures(figures_of(self._parts, self._holder))
            return
        gathered = self._parts.peers.gather("figures")
        if gathered is None:  # better a failed scrape than counters that decrease
            raise ProxyError("the workers did not send their figures in time")
        dead = [] if gathered.of_dead is None else [gathered.of_dead]
        total, facts = add_figures([*gathered.of_living, *dead]), gathered.facts
        metrics = Metrics(self._engine)
        metrics.absorb(total.counted)
        yield from metrics.collect()
        yield from process_metrics(facts["pids"], facts["dead_cpu_s"])
        yield from _workers(len(gathered.of_living), facts["restarts"])
        yield from self._collect_figures(total)

    def _collect_figures(self, figures: Figures) -> Iterator[Metric]:
        """Yield the metrics of the configuration, upstreams, scorer, store, telemetry and desk."""
        yield from self._configuration(figures)
        yield _gauges(
            "pinocchio_upstream_breaker_open",
            "1 while an upstream that failed is not asked, of those with a breaker.",
            ("upstream",),
            [((name,), float(is_open)) for name, is_open in figures.breakers.items()],
        )
        yield from self._scorer(figures)
        yield from self._store(figures)
        yield from self._telemetry_counts(figures)
        store_figures = self._stored_figures()
        yield from self._hold_metrics(store_figures)
        yield _gauges(
            "pinocchio_certificate_valid",
            "1 where all that is certified for the calibrator in use counts.",
            ("policy", "certificate"),
            [(labels, float(counts)) for labels, counts in figures.certificates.items()],
        )
        yield _gauges(
            "pinocchio_drift",
            "Monitors of the calibrator in use that have raised an alarm.",
            ("kind", "calibrator"),
            store_figures.get("drift", []),
        )

    def _stored_figures(self) -> dict[str, list[Any]]:
        """Return what the store has: "queues", "webhooks" and "drift", read now or a moment ago.

        It is what was read before if the store does not answer within `READ_WITHIN_S`, and empty if
        that is older than `KNOWN_FOR_S`.
        """
        with suppress(StoreError):
            self._patience.within(READ_WITHIN_S, self._read_store)
        at, figures = self._stored
        return figures if time.monotonic() - at < KNOWN_FOR_S else {}

    def _read_store(self) -> None:
        """Read what the store has into `_stored`, part by part; what cannot be read is empty."""
        stats: dict[str, Any] = {"queues": [], "webhooks": {}}
        with suppress(StoreError):
            stats = self._desk.stats()
        figures = {"queues": stats["queues"], "webhooks": [*stats["webhooks"].items()]}
        self._stored = time.monotonic(), {**figures, "drift": self._drift_alarms()}

    def _configuration(self, figures: Figures) -> Iterator[Metric]:
        """Yield the metrics of what runs here: version, calibrator, configuration, reloads."""
        holder = self._holder
        build = self._version, holder.current.scores.name or "", self._engine
        yield _gauges(
            "pinocchio_build_info",
            "1; what runs here.",
            ("version", "calibrator", "engine"),
            [(build, 1)],
        )
        yield _gauge("pinocchio_requests_in_flight", "Requests being answered.", figures.in_flight)
        yield _gauge(
            "pinocchio_config_generation",
            "Number of the configuration in force, from 1.",
            holder.current.number,
        )
        yield _gauges(
            "pinocchio_config_info",
            "1; the digest of the configuration in force, the same where the configuration is.",
            ("digest",),
            [((holder.current.digest,), 1)],
        )
        yield _gauge(
            "pinocchio_config_last_reload_successful",
            "1 where the configuration's files are in force as they are, 0 where they are refused.",
            holder.refusal is None,
        )
        yield _gauge(
            "pinocchio_config_last_reload_success_timestamp_seconds",
            "When the configuration in force was taken.",
            holder.taken_at,
        )
        yield _counter(
            "pinocchio_config_reload_failures",
            "Changes of the configuration that were refused.",
            (),
            [((), holder.refusals)],
        )

    def _scorer(self, figures: Figures) -> Iterator[Metric]:
        """Yield the number of replies that wait for a score, and the sizes of batches."""
        engine = (self._engine,)
        waiting, sizes = figures.waiting, figures.batches
        queue = [(engine, waiting)]
        yield _gauges(
            "pinocchio_score_queue_depth", "Replies that wait to be scored.", ("engine",), queue
        )
        batches = histogram_family(
            "pinocchio_score_batch_size", "Replies that were scored at once.", ("engine",)
        )
        counts = [0] * (len(BATCHES) + 1)
        for size, count in sizes.items():
            counts[sum(size > bound for bound in BATCHES)] += count
        total = sum(size * count for size, count in sizes.items())
        add_distribution(batches, engine, BATCHES, counts, total)
        yield batches

    def _store(self, figures: Figures) -> Iterator[Metric]:
        """Yield the lag of the record, if it is known, and the counts of rows not written."""
        if figures.lag_s is not None:
            lag = "How long the oldest record that is not in the store yet waits."
            yield _gauge("pinocchio_store_lag_seconds", lag, figures.lag_s)
        yield _counter(
            "pinocchio_store_dropped",
            "Rows that were not written: too many waited, or the store refused them.",
            ("what",),
            [((what,), count) for what, count in figures.dropped.items()],
        )

    def _telemetry_counts(self, figures: Figures) -> Iterator[Metric]:
        """Yield the counts of telemetry that was sent and dropped, by receiver."""
        counts = figures.telemetry.items()
        yield _counter(
            "pinocchio_telemetry_sent",
            "Spans, events and scores that others took.",
            ("to",),
            [((to,), sent) for to, (sent, _) in counts],
        )
        yield _counter(
            "pinocchio_telemetry_dropped",
            "Rejected, or dropped because the queue was full.",
            ("to",),
            [((to,), dropped) for to, (_, dropped) in counts],
        )

    def _hold_metrics(self, store_figures: dict[str, list[Any]]) -> Iterator[Metric]:
        """Yield the metrics of open reviews by queue and kind, and of waiting webhook messages."""
        waiting = _limit_queues(store_figures.get("queues", []))
        now, labels = time.time(), ("queue", "kind")

        def series(value: Callable[[dict[str, Any]], float]) -> Iterator[tuple[Labels, float]]:
            """Yield for each queue and kind (its labels, the value computed from its row)."""
            return (((row["queue"], row["kind"]), value(row)) for row in waiting)

        yield _gauges(
            "pinocchio_held_replies",
            "Replies that wait for a reviewer.",
            labels,
            series(lambda row: row["count"]),
        )
        yield _gauges(
            "pinocchio_held_oldest_seconds",
            "How long the oldest of them waits.",
            labels,
            series(lambda row: max(0.0, now - row["oldest_at"])),
        )
        yield _gauges(
            "pinocchio_held_time_used",
            "The largest share of its time, 0 to 1, that one of them has waited.",
            labels,
            series(lambda row: row["time_used"] or 0.0),
        )
        yield _gauges(
            "pinocchio_held_escalated",
            "Those of them that came from another queue, where nobody decided in time.",
            labels,
            series(lambda row: row["escalated"]),
        )
        messages = store_figures.get("webhooks", [])
        yield _gauges(
            "pinocchio_webhook_messages",
            "Messages to webhooks that wait, and that were given up in the last week.",
            ("state",),
            [((state,), float(count)) for state, count in messages],
        )

    def _drift_alarms(self) -> list[tuple[Labels, float]]:
        """Return ((kind, calibrator), number of alarms) of each, at most `DRIFT_FOR_S` old.

        Empty while the store cannot be read.
        """
        at, counts = self._drift
        if time.monotonic() - at > DRIFT_FOR_S:
            alarms = _readable(lambda: [*alarms_now(self._desk.queue.engine).items()])
            counts = [(labels, float(count)) for labels, count in alarms]
            self._drift = time.monotonic(), counts
        return counts


def _limit_queues(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the `MOST_QUEUES` largest queues, the others added up as `other`.

    There is one `other` of each kind. Agents choose names of queues, so their number is limited.
    """
    rows = sorted(rows, key=lambda row: -row["count"])
    kept, others = rows[:MOST_QUEUES], dict[str, dict[str, Any]]()
    for row in rows[MOST_QUEUES:]:
        total = others.setdefault(row["kind"], {**row, "queue": OTHER, "count": 0, "escalated": 0})
        total["count"] += row["count"]
        total["escalated"] += row["escalated"]
        total["oldest_at"] = min(total["oldest_at"], row["oldest_at"])
        total["time_used"] = max(total["time_used"] or 0.0, row["time_used"] or 0.0)
    return [*kept, *others.values()]


def _readable(read: Callable[[], list[Any]]) -> list[Any]:
    """Return what `read` returns, or an empty list if it raises StoreError."""
    try:
        return read()
    except StoreError:
        return []


def _workers(running: int, restarts: int) -> Iterator[Metric]:
    """Yield the number of worker processes and of their restarts."""
    yield _gauge("pinocchio_workers", "Processes that answer requests.", running)
    yield _counter(
        "pinocchio_worker_restarts",
        "Workers, and scorers of several workers, that died and were started anew.",
        (),
        [((), restarts)],
    )


def _gauge(name: str, meaning: str, value: float) -> Metric:
    """Return a gauge with one value and no labels."""
    return GaugeMetricFamily(name, meaning, value=float(value))


def _gauges(
    name: str, meaning: str, labels: Sequence[str], series: Iterable[tuple[Labels, float]]
) -> Metric:
    """Return a gauge with a value for each of the series, given as (label values, value)."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, value in series:
        family.add_metric(values, value)
    return family


def _counter(
    name: str, meaning: str, labels: Sequence[str], series: Iterable[tuple[Labels, float]]
) -> Metric:
    """Return a counter with a value for each of the series, given as (label values, value)."""
    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, value in series:
        family.add_metric(values, value)
    return family


def _version() -> str:
    """Return the installed version of the proxy, or "unknown" in a clone that is not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # run from a clone, without an installed package
        return "unknown"


def process_metrics(
    pids: Iterable[int | str] = ("self",), dead_cpu_s: float = 0
) -> Iterator[Metric]:
    """Yield CPU, memory and open files of these processes together, or nothing outside Linux.

    `dead_cpu_s` is the CPU time of workers that have died, in seconds. Memory that processes share
    counts once: it is the sum of their proportional sets (`Pss` of proc(5)), if the system has it.
    """
    pids, values = list(pids), dict[str, list[float]]()
    meanings: dict[str, str] = {}
    for pid in pids:
        for family in _process_families(pid):
            meanings[family.name] = family.documentation
            values.setdefault(family.name, []).append(family.samples[0].value)
    if len(pids) > 1 and RESIDENT in values:
        with suppress(OSError):
            values[RESIDENT] = [proportional_bytes(pid) for pid in pids]
    for name, value in values.items():
        total = _combine(name, value)
        if name == CPU:
            yield CounterMetricFamily(name, meanings[name], value=total + dead_cpu_s)
        else:
            yield GaugeMetricFamily(name, meanings[name], value=total)


def proportional_bytes(pid: int | str) -> float:
    """Return the memory of a process in bytes; pages shared with others count by its share.

    Raises OSError, also where the system does not tell.
    """
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return float(line.split()[1]) * 1_024
    raise FileNotFoundError(pid)


def _process_families(pid: int | str) -> list[Metric]:
    """Return the metrics of one process as prometheus_client collects them."""
    return list(ProcessCollector(pid=lambda: pid, registry=None).collect())


def _combine(name: str, values: Sequence[float]) -> float:
    """Return the value for all processes: the sum, or the smallest for the names in `LEAST`."""
    return min(values) if name in LEAST else sum(values)
