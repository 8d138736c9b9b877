"""What one worker has counted and sees now, as a value that goes to the one that is asked.

A proxy of one process has just its own. Counts of several add up, also those of workers that have
died since, so that none of them ever goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.exchange.metrics import Metrics
from proxy.generation import Parts
from proxy.reloading import Reloading

Labels = tuple[str, ...]


@dataclass(slots=True)
class Figures:
    """`counted` is `Metrics.state()`; what is a share of the whole adds up, of what all see alike
    the worst counts."""

    counted: Mapping[str, Any]
    in_flight: int = 0
    breakers: dict[str, bool] = field(default_factory=dict)  # open or not
    waiting: int = 0  # for a score
    batches: dict[int, int] = field(default_factory=dict)  # of each size, so many
    dropped: dict[str, int] = field(default_factory=dict)  # rows of the store
    lag_s: float | None = None
    told: dict[str, tuple[int, int]] = field(default_factory=dict)  # sent and dropped, to whom
    certificates: dict[Labels, bool] = field(default_factory=dict)  # whether all of each counts


def figures_of(parts: Parts, holder: Reloading) -> Figures:
    """Those of this process; may be called from any thread."""
    records, scores = parts.records, holder.current.scores
    waiting, batches = parts.scoring.load_figures()
    dropped = {"audits": parts.audits.shed}
    if records is not None:
        dropped["records"] = records.shed
    boxes = [] if parts.telemetry is None else [*parts.telemetry.outboxes]
    certificates: list[tuple[str, str, bool]] = []
    if scores.name is not None:  # until the calibrator is there, nothing is for it
        certificates = parts.traffic.certificates({scores.name, scores.opinion})
    return Figures(
        parts.metrics.state(),
        holder.in_flight,
        {n: b.state != "closed" for n, b in holder.current.router.breakers.items()},
        waiting,
        dict(batches),
        dropped,
        None if records is None else records.lag_s(),
        {box.to: (box.sent, box.dropped) for box in boxes},
        {(policy, file): counts for policy, file, counts in certificates},
    )


def added(several: Iterable[Figures]) -> Figures:
    """All of them together."""
    metrics = Metrics()
    total = Figures({})
    for each in several:
        metrics.absorb(each.counted)
        total.in_flight += each.in_flight
        total.waiting += each.waiting
        for name, is_open in each.breakers.items():
            total.breakers[name] = is_open or total.breakers.get(name, False)
        for size, count in each.batches.items():
            total.batches[size] = total.batches.get(size, 0) + count
        for what, count in each.dropped.items():
            total.dropped[what] = total.dropped.get(what, 0) + count
        for to, (sent, dropped) in each.told.items():
            before = total.told.get(to, (0, 0))
            total.told[to] = before[0] + sent, before[1] + dropped
        for labels, counts in each.certificates.items():
            total.certificates[labels] = counts and total.certificates.get(labels, True)
        if each.lag_s is not None:
            total.lag_s = max(each.lag_s, total.lag_s or 0.0)
    total.counted = metrics.state()
    return total


def left_by(several: Iterable[Figures]) -> Figures:
    """What workers that have died leave behind: what they counted, and nothing that is there no
    longer."""
    total = added(several)
    return Figures(total.counted, batches=total.batches, dropped=total.dropped, told=total.told)
