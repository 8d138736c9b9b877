"""The figures of several workers are combined so that no count is lost or decreases."""

from __future__ import annotations

from proxy.desk.figures import Figures, add_figures, left_by
from proxy.observe.metrics import Metrics
from proxy.observe.series import MOST_SERIES, OTHER, Counter, Histogram


def figures(requests: int, **fields: object) -> Figures:
    metrics = Metrics()
    for _ in range(requests):
        metrics._polls.add()
        metrics._scoring.observe(0.003, "in_process")
    return Figures(metrics.state(), **fields)  # type: ignore[arg-type]


def counted(found: Figures, name: str) -> float:
    metrics = Metrics()
    metrics.absorb(found.counted)
    return sum(
        sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == name
    )


def test_what_is_a_share_adds_up_and_of_the_rest_the_worst_counts() -> None:
    """Counts of workers are added; of lags, breakers and certificates the worst one counts."""
    one = figures(
        2,
        in_flight=1,
        breakers={"a": False},
        waiting=3,
        batches={1: 2},
        dropped={"records": 1},
        lag_s=0.5,
        telemetry={"otel": (1, 2)},
        certificates={("p", "c"): True},
    )
    other = figures(
        3,
        in_flight=2,
        breakers={"a": True},
        waiting=4,
        batches={1: 1, 4: 1},
        dropped={"records": 2},
        lag_s=0.1,
        telemetry={"otel": (3, 4)},
        certificates={("p", "c"): False},
    )
    total = add_figures([one, other])
    assert counted(total, "pinocchio_polls_total") == 5
    assert counted(total, "pinocchio_score_seconds_count") == 5
    assert (total.in_flight, total.waiting, total.lag_s) == (3, 7, 0.5)
    assert (total.breakers, total.batches) == ({"a": True}, {1: 3, 4: 1})
    assert (total.dropped, total.telemetry) == ({"records": 3}, {"otel": (4, 6)})
    assert total.certificates == {("p", "c"): False}


def test_of_the_dead_only_counts_are_left() -> None:
    dead = left_by([figures(2, in_flight=5, waiting=1, batches={2: 1}, lag_s=3.0)])
    assert counted(dead, "pinocchio_polls_total") == 2
    assert (dead.in_flight, dead.waiting, dead.lag_s, dead.batches) == (0, 0, None, {2: 1})


def test_labels_stay_bounded_when_workers_add_up() -> None:
    """All workers together have no more series than one may."""
    total, histogram = Counter("c", "", "label"), Histogram("h", "", (1.0,), "label")
    for worker in range(3):
        one, other = Counter("c", "", "label"), Histogram("h", "", (1.0,), "label")
        for number in range(MOST_SERIES):
            one.add(f"{worker}-{number}")
            other.observe(0.5, f"{worker}-{number}")
        total.absorb(one.state())
        histogram.absorb(other.state())
    for state in (total.state(), histogram.state()):
        assert len(state) == MOST_SERIES + 1
        assert (OTHER,) in state
    assert sum(number for number, _ in total.state().values()) == 3 * MOST_SERIES
