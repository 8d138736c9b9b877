"""Labelled replies with their weights: what every estimate from verdicts begins with.

    found = read_labels(engine, since)          # Labels
    found.replies                               # LabelledReply, see proxy/store/labels.py
    found.weights()                             # how many replies each stands for
    found.estimate("delivered")                 # the share of right ones, with its interval

Delivered replies are drawn at random with a stated share (`audit.share`), and a label counts for
1 / share of them. All held replies are in the queue, and labels there count alike; both kinds are
scaled to the totals that the record knows. Two things are assumed: whether an audited reply gets
its verdict has nothing to do with whether it is right, and the same of held replies of one
confidence. Labels of replies that nobody drew (`other`) have no weight and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from proxy.store.labels import LabelledReply, Totals, labelled, totals

if TYPE_CHECKING:
    from calibrator import Interval

Population = Literal["delivered", "held", "all"]
POPULATIONS: tuple[Population, ...] = ("delivered", "held", "all")
STRATA = {"delivered": ("audited",), "held": ("held",), "all": ("audited", "held")}


@dataclass(frozen=True, slots=True)
class Labels:
    """Labelled replies that were drawn, in the order of time, and of how many.

    `undrawn` counts those that were labelled without having been drawn, which are left out.
    """

    replies: Sequence[LabelledReply]
    totals: Totals
    undrawn: int = 0

    def of(self, population: Population) -> Labels:
        """The labels of one kind of replies alone."""
        kept = [each for each in self.replies if each.stratum in STRATA[population]]
        known = self.totals
        if population == "delivered":
            known = Totals(delivered=known.delivered)
        elif population == "held":
            known = Totals(held=known.held)
        return replace(self, replies=kept, totals=known)

    def weights(self) -> list[float]:
        """How many replies each one stands for; they add up to the totals of their strata."""
        drawn = [1 / (each.share or 1.0) for each in self.replies]
        sums = {"audited": 0.0, "held": 0.0}
        for each, weight in zip(self.replies, drawn, strict=True):
            sums[each.stratum] += weight
        known = {"audited": self.totals.delivered, "held": self.totals.held}
        return [
            weight * known[each.stratum] / sums[each.stratum]
            for each, weight in zip(self.replies, drawn, strict=True)
        ]

    def estimate(self, population: Population = "all", of: str = "is_correct") -> Interval:
        """The mean of a member of the replies, 0 to 1, over such a population, with its interval.

        nan where a kind of replies has no label.
        """
        from calibrator import Stratum, estimated_share

        known = {"audited": self.totals.delivered, "held": self.totals.held}
        return estimated_share(
            [Stratum(*_arrays(self.replies, name, of), known[name]) for name in STRATA[population]]
        )


def _arrays(replies: Iterable[LabelledReply], stratum: str, of: str) -> tuple[Any, Any]:
    import numpy as np

    its = [each for each in replies if each.stratum == stratum]
    values = np.array([float(getattr(each, of)) for each in its])
    return values, np.array([1 / (each.share or 1.0) for each in its])


def read_labels(
    engine: Any, since: float = 0.0, calibrator: str | None = None, *, has_content: bool = False
) -> Labels:
    """The labels of replies asked for since a time; raises StoreError.

    With `calibrator`, a version without its recalibration, of those that it scored alone.
    """
    found = [
        each
        for each in labelled(engine, since, has_content=has_content)
        if calibrator in (None, each.base)
    ]
    drawn = [each for each in found if each.stratum != "other"]
    return Labels(drawn, totals(engine, since, calibrator), len(found) - len(drawn))
