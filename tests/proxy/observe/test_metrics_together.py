"""Similar exchanges are counted together, and none is lost or shown late."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from hypothesis import given
from hypothesis import strategies as st

from proxy.exchange.exchange import Exchange
from proxy.exchange.outcome import Outcome
from proxy.http.wire.http import Request
from proxy.observe.metrics import COUNTED_TOGETHER, Metrics
from proxy.observe.series import MOST_SERIES
from proxy.scoring.scoring import Status

OURS = "pinocchio_overhead_seconds"


def ended(upstream: str = "a", waited_s: float | None = 0.2, confidence: float = 0.7) -> Exchange:
    """Return a finished exchange of a scored reply."""
    exchange = Exchange(Request("POST", "/v1/chat/completions", "", []))
    exchange.status, exchange.upstream, exchange.in_upstream.s = 200, upstream, waited_s
    outcome = Outcome("req_1", Status.SCORED, confidence=confidence, calibrator="c@1")
    outcome.score_ms = 3.0
    exchange.outcome = outcome
    return exchange


def shown(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric by the values of their labels."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == name
    }


def test_each_exchange_shows_at_once() -> None:
    """However many exchanges wait to be counted, a reader sees all that have ended."""
    metrics = Metrics()
    for count in range(1, 2 * COUNTED_TOGETHER + 2):
        metrics.note(ended(), 0.25)
        if count % 9 == 0 or count % COUNTED_TOGETHER < 2:
            assert [*shown(metrics, "pinocchio_requests_total").values()] == [count]
            assert [*shown(metrics, f"{OURS}_count").values()] == [count]
            assert math.isclose(sum(shown(metrics, f"{OURS}_sum").values()), 0.05 * count)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 3), st.floats(0, 1)), max_size=150))
def test_numbers_are_counted_as_one_by_one(
    exchanges: list[tuple[str, float, float]],
) -> None:
    """Counts, sums and buckets are the same as when each exchange is counted by itself."""
    together, singly = Metrics(), Metrics()
    for upstream, waited_s, confidence in exchanges:
        for metrics in (together, singly):
            metrics.note(ended(upstream, waited_s, confidence), 3.5)
        singly.state()
    for name in ("requests_total", "upstream_seconds_bucket", "confidence_bucket"):
        assert shown(together, f"pinocchio_{name}") == shown(singly, f"pinocchio_{name}")
    for name in (f"{OURS}_sum", "pinocchio_confidence_sum"):
        one, other = shown(together, name), shown(singly, name)
        assert one.keys() == other.keys()
        assert all(math.isclose(one[labels], other[labels], abs_tol=1e-9) for labels in one)


def test_nothing_is_lost_while_others_ask() -> None:
    """No exchange is lost while Prometheus and other workers read on their own threads."""
    metrics, is_over = Metrics(), Event()

    def ask() -> float:
        most = 0.0
        while not is_over.is_set():
            count = sum(shown(metrics, "pinocchio_requests_total").values())
            assert count >= most
            most = count
        return most

    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask) for _ in range(3)]
        for number in range(6_000):
            metrics.note(ended("ab"[number % 2]), 0.25)
        is_over.set()
        assert all(each.result() <= 6_000 for each in asking)
    assert sum(shown(metrics, "pinocchio_requests_total").values()) == 6_000
    assert sum(shown(metrics, f"{OURS}_count").values()) == 6_000


def test_however_many_differ_none_is_lost() -> None:
    """The number of remembered kinds is bounded, and exchanges of all kinds are counted."""
    metrics, many = Metrics(), MOST_SERIES + 30
    for _ in range(2):
        for number in range(many):
            metrics.note(ended(f"upstream {number}"), 0.25)
    assert len(metrics._ended) <= MOST_SERIES
    assert sum(shown(metrics, "pinocchio_requests_total").values()) == 2 * many


def test_no_series_begins_without_a_number() -> None:
    """A request that reached no upstream adds no time of one."""
    metrics = Metrics()
    metrics.note(ended(waited_s=None), 0.25)
    assert (
        shown(metrics, f"{OURS}_count") == shown(metrics, "pinocchio_upstream_seconds_count") == {}
    )
    assert [*shown(metrics, "pinocchio_score_seconds_count").values()] == [1]
