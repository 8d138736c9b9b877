"""What labelled replies show about the confidence: reliability, and the effect of a threshold.

Labels are weighted as in proxy/learning/labels.py: an audited reply stands for those that were not
drawn, and held and delivered ones for as many as there were. Intervals are Wilson's with the
effective number of labels (Kish), (sum of w)^2 / sum of w^2, instead of their count: this is close
for weights that are alike, and wide where few labels stand for many replies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from calibrator import Interval, wilson
from policies import SeenConversations
from proxy.learning.labels import represented, weights_of
from proxy.store.verdicts.statistics import JudgedReply, Sample, SampledExchange

BANDS: Final = 10
STEPS: Final = 100  # between the thresholds 0 and 1
LEAST: Final = 30  # labels without which nothing is drawn
FEW: Final = 10  # labels without which a band is drawn faintly
BLIND: Final = 0.02
"""The share of traffic that may be delivered without a label of any reply that is as unsure."""


class WeightedLabel(NamedTuple):
    """A labelled reply, and the number of replies that it represents."""

    confidence: float
    is_correct: bool
    weight: float


@dataclass(frozen=True, slots=True)
class Band:
    """Replies whose confidence is from `low` to below `high`, by `count` labels."""

    low: float
    high: float
    count: int
    weight: float
    confidence: float
    correct: Interval


@dataclass(frozen=True, slots=True)
class Point:
    """The effect of a threshold: replies with a confidence from `threshold` on are delivered.

    That is the share `coverage` of the scored traffic, and `risk` of it is wrong, None with too few
    labels. `errors` are the wrong replies delivered, and `load` is the number left to reviewers.
    """

    threshold: float
    coverage: float
    risk: Interval | None
    errors: float | None
    load: float


def weight_labels(
    labels: Sequence[JudgedReply], traffic: Sequence[SampledExchange]
) -> list[WeightedLabel]:
    """Return the labels of audited and held replies, with the number of replies each represents.

    `traffic` says how many of each kind there were; labels of others are left out. Labels of a kind
    that the window's traffic does not have represent only themselves.
    """
    known = {"held": 0.0, "audited": 0.0}
    for row in traffic:
        if row.confidence is not None:
            known["held" if row.review_id else "audited"] += row.weight
    drawn = [each for each in labels if each.stratum in known]
    sums = represented(drawn)
    weights = weights_of(drawn, {name: known[name] or sums[name] for name in known})
    return [
        WeightedLabel(each.confidence, each.is_correct, weight)
        for each, weight in zip(drawn, weights, strict=True)
    ]


def one_per_conversation(rows: Iterable[SampledExchange]) -> list[SampledExchange]:
    """Return the first scored reply of each conversation, since its turns and retries are alike.

    A held reply counts beside a delivered one, as for labels.
    """
    conversations = {True: SeenConversations(None, None), False: SeenConversations(None, None)}
    in_time = sorted((row for row in rows if row.confidence is not None), key=lambda row: row.at)
    return [
        row
        for row in in_time
        if conversations[row.review_id is not None].is_first(row.conversation)
    ]


def warnings(labels: Sequence[JudgedReply]) -> list[str]:
    """Return sentences about what limits the labels' numbers; none if nothing does."""
    found = []
    kinds = [label.stratum for label in labels]
    if "held" in kinds and "audited" not in kinds:
        found.append(
            "All labels are of held replies. What they say about delivered ones is a guess until a "
            "share of those is audited at random (audit: {share: 0.01} in proxy.yaml)."
        )
    if undrawn := kinds.count("other"):
        found.append(
            f"{undrawn:,} {'label is' if undrawn == 1 else 'labels are'} on replies outside the "
            f"random audit; {'it is' if undrawn == 1 else 'they are'} excluded."
        )
    return found


def population(labels: Iterable[JudgedReply]) -> str:
    """Return which replies the labels are about: `held`, `delivered` or `all`."""
    kinds = {label.stratum for label in labels} - {"other"}
    return {"held": "held", "audited": "delivered"}[kinds.pop()] if len(kinds) == 1 else "all"


def share(rows: Iterable[tuple[bool, float]]) -> Interval | None:
    """Return the weighted share of the true rows, each (is it true, weight), with its interval.

    None without rows. The interval is Wilson's with the effective number of rows.
    """
    total = squares = correct = 0.0
    for is_true, weight in rows:
        total += weight
        squares += weight * weight
        correct += weight * is_true
    return wilson(correct / total, total * total / squares) if total else None


def bands(labels: Sequence[WeightedLabel]) -> list[Band]:
    """Return the labels in `BANDS` bands of equal width, without those that have no labels."""
    members: list[list[WeightedLabel]] = [[] for _ in range(BANDS)]
    for label in labels:
        members[min(BANDS - 1, int(label.confidence * BANDS))].append(label)
    found = []
    for at, rows in enumerate(members):
        weight = sum(row.weight for row in rows)
        correct = share((row.is_correct, row.weight) for row in rows)
        if correct is not None:
            mean = sum(row.confidence * row.weight for row in rows) / weight
            bounds = at / BANDS, (at + 1) / BANDS
            found.append(Band(*bounds, len(rows), weight, mean, correct))
    return found


def ece(confidence_bands: Sequence[Band]) -> float | None:
    """Return the expected calibration error: the mean gap of confidence and correct share.

    Bands count by weight. None with fewer than `LEAST` labels.
    """
    total = sum(band.weight for band in confidence_bands)
    if sum(band.count for band in confidence_bands) < LEAST:
        return None
    gaps = (abs(band.confidence - band.correct.value) * band.weight for band in confidence_bands)
    return sum(gaps) / total


def tradeoff(
    labels: Sequence[WeightedLabel], traffic: Sequence[SampledExchange], count: float
) -> list[Point]:
    """Return the effect of each of the thresholds 0, 0.01 .. 1 on `count` exchanges.

    Coverage is a share of the `traffic` that has a confidence. The risk is None with fewer than
    `FEW` labels above the threshold, and where less sure replies than any labelled one would be
    delivered: it is not extrapolated to where nobody has looked.
    """
    scored = sorted((row.confidence, row.weight) for row in traffic if row.confidence is not None)
    confidences, above = [c for c, _ in scored], _sums_from([w for _, w in scored])
    ranked = sorted(labels, key=lambda label: label.confidence)
    at_least = [label.confidence for label in ranked]
    weights = _sums_from([label.weight for label in ranked])
    squares = _sums_from([label.weight**2 for label in ranked])
    wrong = _sums_from([label.weight * (not label.is_correct) for label in ranked])
    lowest = at_least[0] if at_least else 1.0
    looked_at = above[bisect_left(confidences, lowest)] / above[0] if above[0] else 0.0
    count *= above[0] / max(sum(row.weight for row in traffic), 1e-9)
    points = []
    for step in range(STEPS + 1):
        threshold = step / STEPS
        coverage = above[bisect_left(confidences, threshold)] / above[0] if above[0] else 0.0
        first, risk = bisect_left(at_least, threshold), None
        if len(ranked) - first >= FEW and coverage - looked_at <= BLIND:
            risk = wilson(
                min(1.0, wrong[first] / weights[first]), weights[first] ** 2 / squares[first]
            )
        errors = None if risk is None else risk.value * coverage * count
        points.append(Point(threshold, coverage, risk, errors, (1 - coverage) * count))
    return points


def _sums_from(values: Sequence[float]) -> list[float]:
    """Return for each value the sum of it and all after it, and at the end 0."""
    sums = [0.0]
    for value in reversed(values):
        sums.append(sums[-1] + value)
    return sums[::-1]


def over_time(
    sample: Sample, rows: Sequence[SampledExchange], by: str | None
) -> list[dict[str, Any]]:
    """Return the mean confidence of each slice, for all and for the six most frequent of `by`.

    `by` is `model` or `team`. Each dict has a `name`, and `values` with None for empty slices.
    Groups are left out if there is only one.
    """
    groups: dict[str, list[SampledExchange]] = {
        "all": [row for row in rows if row.confidence is not None]
    }
    if by is not None:
        by_name: dict[str, list[SampledExchange]] = {}
        for row in groups["all"]:
            if (name := getattr(row, by)) is not None:
                by_name.setdefault(name, []).append(row)
        most_frequent = sorted(by_name, key=lambda name: -sum(row.weight for row in by_name[name]))[
            :6
        ]
        groups |= {name: by_name[name] for name in most_frequent if len(most_frequent) > 1}
    return [
        {"name": name, "values": _means(sample, group)} for name, group in groups.items() if group
    ]


def _means(sample: Sample, rows: Sequence[SampledExchange]) -> list[float | None]:
    """Return the mean confidence of each slice of the sample's window, None for an empty one."""
    sums: dict[int, tuple[float, int]] = {}
    for row in rows:
        total, count = sums.get(row.at, (0.0, 0))
        sums[row.at] = total + (row.confidence or 0.0), count + 1
    slices = range(sample.window.slices)
    return [round(sums[at][0] / sums[at][1], 4) if at in sums else None for at in slices]
