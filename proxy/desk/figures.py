"""The counts and current values of one worker, which it sends to the worker that is scraped.

A proxy of one process has only its own. The counts of several add up, including those of workers
that have died, so that no counter ever decreases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.generations.generation import Parts
from proxy.generations.reloading import Generations
from proxy.observe.metrics import Metrics

Labels = tuple[str, ...]


@dataclass(slots=True)
class Figures:
    """The counts and current values of one worker, or of several added up.

    `counted` is `Metrics.state()`. Counts add up; of values that all workers see alike, such as
    whether a certificate is valid, the worst counts.
    """

    counted: Mapping[str, Any]
    in_flight: int = 0
    breakers: dict[str, bool] = field(default_factory=dict)  # whether open, by upstream
    waiting: int = 0  # replies that wait for a score
    batches: dict[int, int] = field(default_factory=dict)  # number of batches, by size
    dropped: dict[str, int] = field(default_factory=dict)  # rows that the store did not get
    lag_s: float | None = None
    telemetry: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # (sent, dropped) by receiver
    certificates: dict[Labels, bool] = field(default_factory=dict)  # whether all of each is valid


def figures_of(parts: Parts, holder: Generations) -> Figures:
    """Return the figures of this process; safe on any thread."""
    records, scores = parts.records, holder.current.scores
    waiting, batches = parts.scoring.load_figures()
    dropped = {"audits": parts.audits.shed}
    if records is not None:
        dropped["records"] = records.shed
    outboxes = [] if parts.telemetry is None else [*parts.telemetry.outboxes]
    certificates: list[tuple[str, str, bool]] = []
    if scores.name is not None:  # a certificate is for a calibrator, which may still be loading
        certificates = parts.traffic.certificates({scores.name, scores.opinion})
    return Figures(
        parts.metrics.state(),
        holder.in_flight,
        {n: b.state != "closed" for n, b in holder.current.router.breakers.items()},
        waiting,
        dict(batches),
        dropped,
        None if records is None else records.lag_s(),
        {outbox.to: (outbox.sent, outbox.drop_count) for outbox in outboxes},
        {(policy, file): counts for policy, file, counts in certificates},
    )


def add_figures(figures: Iterable[Figures]) -> Figures:
    """Return the figures of several workers as one: counts and shares add up.

    A breaker counts as open if one is, a certificate as invalid if one is, and the largest lag
    counts.
    """
    metrics = Metrics()
    total = Figures({})
    for each in figures:
        metrics.absorb(each.counted)
        total.in_flight += each.in_flight
        total.waiting += each.waiting
        for name, is_open in each.breakers.items():
            total.breakers[name] = is_open or total.breakers.get(name, False)
        for size, count in each.batches.items():
            total.batches[size] = total.batches.get(size, 0) + count
        for what, count in each.dropped.items():
            total.dropped[what] = total.dropped.get(what, 0) + count
        for to, (sent, dropped) in each.telemetry.items():
            before = total.telemetry.get(to, (0, 0))
            total.telemetry[to] = before[0] + sent, before[1] + dropped
        for labels, counts in each.certificates.items():
            total.certificates[labels] = counts and total.certificates.get(labels, True)
        if each.lag_s is not None:
            total.lag_s = max(each.lag_s, total.lag_s or 0.0)
    total.counted = metrics.state()
    return total


def left_by(figures: Iterable[Figures]) -> Figures:
    """Return the counts of workers that have died, added up, without their current values."""
    total = add_figures(figures)
    return Figures(
        total.counted, batches=total.batches, dropped=total.dropped, telemetry=total.telemetry
    )
