"""Counters and histograms for Prometheus that cost a request next to nothing.

They use plain numbers without a lock: one thread counts, and any thread may collect. The number of
label values is bounded: beyond `MOST_SERIES` of a metric, others count as `other`.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from operator import add
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client.core import HistogramMetricFamily, Metric

MOST_SERIES: Final = 1_000
OTHER: Final = "other"


class Counter:
    """A counter for each combination of label values."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self._about, self._labels = (name, description), labels
        self._counts: dict[tuple[str, ...], list[float]] = {}  # the count, and its start time
        self._beyond = (OTHER,) * len(labels)
        if not labels:
            self._counts[()] = [0.0, time.time()]

    def add(self, *values: str, number: float = 1.0) -> None:
        """Add a number to the counter of these label values, given in the order of the labels.

        New values beyond `MOST_SERIES` count as `other`.
        """
        count = self._counts.get(values)
        if count is None:
            key = values if len(self._counts) < MOST_SERIES else self._beyond
            count = self._counts.setdefault(key, [0.0, time.time()])
        count[0] += number

    def state(self) -> dict[tuple[str, ...], tuple[float, float]]:
        """Return {label values: (count, start time)}, for `absorb` of another process's counter."""
        return {values: (count, since) for values, (count, since) in [*self._counts.items()]}

    def absorb(self, state: Mapping[tuple[str, ...], tuple[float, float]]) -> None:
        """Add the counts of another counter's `state`; the earlier start time is kept."""
        for values, (number, since) in state.items():
            key = values if len(self._counts) < MOST_SERIES else self._beyond
            count = self._counts.get(values) or self._counts.setdefault(key, [0.0, since])
            count[0] += number
            count[1] = min(count[1], since)

    def collect(self) -> Iterable[Metric]:
        """Return a list with the counter as a family of metrics."""
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(*self._about, labels=self._labels)
        for values, (count, since) in [*self._counts.items()]:
            family.add_metric(values, count, created=since)
        return [family]


class _Distribution:
    """The number of observations in each bucket, their sum, and the time of the first."""

    __slots__ = ("counts", "since", "sum")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.sum, self.since = 0.0, time.time()


class Histogram:
    """A distribution of numbers for each combination of label values; `bounds` are ascending."""

    def __init__(self, name: str, description: str, bounds: Sequence[float], *labels: str) -> None:
        self._about, self._bounds, self._labels = (name, description), tuple(bounds), labels
        self._distributions: dict[tuple[str, ...], _Distribution] = {}
        self._beyond = (OTHER,) * len(labels)

    def observe(self, number: float, *values: str) -> None:
        """Observe a number under these label values."""
        self.observe_all((number,), *values)

    def observe_all(self, numbers: Collection[float], *values: str) -> None:
        """Observe several numbers under the same label values; without numbers, do nothing.

        New label values beyond `MOST_SERIES` series count as `other`.
        """
        if not numbers:
            return
        distribution = self._distributions.get(values) or self._new(values)
        for bucket in map(bisect_left, repeat(self._bounds), numbers):
            distribution.counts[bucket] += 1
        distribution.sum += sum(numbers)

    def _new(self, values: tuple[str, ...]) -> _Distribution:
        """Return a new distribution for label values, or that of `other` beyond `MOST_SERIES`."""
        key = values if len(self._distributions) < MOST_SERIES else self._beyond
        return self._distributions.setdefault(key, _Distribution(len(self._bounds) + 1))

    def state(self) -> dict[tuple[str, ...], tuple[list[int], float, float]]:
        """Return {label values: (count in each bucket, sum, start time)}, for `absorb`."""
        found = [*self._distributions.items()]
        return {values: (each.counts.copy(), each.sum, each.since) for values, each in found}

    def absorb(self, state: Mapping[tuple[str, ...], tuple[list[int], float, float]]) -> None:
        """Add the observations in another histogram's `state`, which has the same buckets."""
        for values, (counts, total, since) in state.items():
            distribution = self._distributions.get(values) or self._new(values)
            distribution.counts = [*map(add, distribution.counts, counts)]
            distribution.sum += total
            distribution.since = min(distribution.since, since)

    def collect(self) -> Iterable[Metric]:
        """Return a list with the histogram as a family of metrics."""
        family = histogram_family(*self._about, self._labels)
        for values, distribution in [*self._distributions.items()]:
            add_distribution(family, values, self._bounds, distribution.counts, distribution.sum)
            labels = dict(zip(self._labels, values, strict=True))
            family.add_sample(f"{family.name}_created", labels, distribution.since)
        return [family]


def histogram_family(name: str, description: str, labels: Sequence[str]) -> HistogramMetricFamily:
    """Return an empty family of histograms."""
    from prometheus_client.core import HistogramMetricFamily

    return HistogramMetricFamily(name, description, labels=labels)


def add_distribution(
    family: HistogramMetricFamily,
    values: Sequence[str],
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float,
) -> None:
    """Add a distribution with these label values to a family, in place.

    `counts` has the observations in each bucket, the last beyond all `bounds`. `total` is the sum
    of all observations.
    """
    from prometheus_client.utils import floatToGoString

    ends = map(floatToGoString, (*bounds, math.inf))
    family.add_metric(values, [*zip(ends, accumulate(counts), strict=True)], total)
