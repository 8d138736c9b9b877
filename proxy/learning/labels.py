"""Labelled replies with their weights: the basis of every estimate from verdicts.

    found = read_labels(engine, since)          # Labels
    found.replies                               # LabelledReply, see proxy/store/verdicts/labels.py
    found.weights()                             # how many replies each stands for
    found.estimate("delivered")                 # the share of right ones, with its interval

Delivered replies are drawn at random with a stated share (`audit.share`), and a label counts for
1 / share of them. One reply of a conversation counts: its turns are no independent evidence, and
neither are retries. All held replies are in the queue, and labels there count alike. Both kinds are
scaled to the totals that the record knows. Two things are assumed: whether an audited reply gets
its verdict does not depend on whether it is right, and the same holds for held replies of one
confidence. Labels of replies that were not drawn (`other`) have no weight and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from policies import SeenConversations
from proxy.store.verdicts.labels import (
    LabelledReply,
    Stratum,
    Totals,
    delivered_replies,
    labelled_replies,
    totals,
)

if TYPE_CHECKING:
    from calibrator import Interval
    from proxy.upstreams.router import Domains

Population = Literal["delivered", "held", "all"]
POPULATIONS: tuple[Population, ...] = ("delivered", "held", "all")
STRATA = {"delivered": ("audited",), "held": ("held",), "all": ("audited", "held")}


@dataclass(frozen=True, slots=True)
class Labels:
    """Labelled replies that were drawn, in the order of time, and the totals that they stand for.

    `undrawn` counts labels of replies that were not drawn, which are left out.
    """

    replies: Sequence[LabelledReply]
    totals: Totals
    undrawn: int = 0

    def of(self, population: Population) -> Labels:
        """Return the labels of one population, "delivered", "held" or "all", with its totals."""
        kept = [each for each in self.replies if each.stratum in STRATA[population]]
        known = self.totals
        if population == "delivered":
            known = Totals(delivered=known.delivered)
        elif population == "held":
            known = Totals(held=known.held)
        return replace(self, replies=kept, totals=known)

    def in_domains(self, domains: Domains) -> Labels:
        """Return the labels with the domains that pick curves now, instead of the recorded ones."""
        return replace(self, replies=[_with_domain(each, domains) for each in self.replies])

    def weights(self) -> list[float]:
        """Return how many replies each label stands for, in the order of `replies`.

        They add up to the totals of their strata.
        """
        counts = {"audited": self.totals.delivered, "held": self.totals.held}
        return weights_of(self.replies, counts)

    def estimate(self, population: Population = "all", of: str = "is_correct") -> Interval:
        """Estimate the mean of an attribute of the replies, 0 to 1, over a population.

        `of` names the attribute. Returns the estimate with its interval, nan where a stratum has no
        label. Imports numpy.
        """
        from calibrator import Stratum, estimated_share

        counts = {"audited": self.totals.delivered, "held": self.totals.held}
        return estimated_share(
            [Stratum(*_arrays(self.replies, name, of), counts[name]) for name in STRATA[population]]
        )


def _with_domain(reply: LabelledReply, domains: Domains) -> LabelledReply:
    """Return the reply with its present domain; unchanged if its facts are not on record."""
    facts = reply.facts
    if facts is None:
        return reply
    domain = domains.of_curve(facts.model, reply.team, facts.domain)
    return replace(reply, facts=replace(facts, domain=domain))


class DrawnLabel(Protocol):
    """A label of a reply that was held, or drawn with the probability `share`."""

    @property
    def stratum(self) -> Stratum: ...

    @property
    def share(self) -> float | None: ...


def represented(labels: Iterable[DrawnLabel]) -> dict[str, float]:
    """Return how many replies labels stand for by their shares, by "audited" and "held"."""
    sums = {"audited": 0.0, "held": 0.0}
    for each in labels:
        sums[each.stratum] += _drawn_weight(each)
    return sums


def weights_of(labels: Sequence[DrawnLabel], counts: Mapping[str, float]) -> list[float]:
    """Return how many replies each label stands for, in order.

    They are scaled so that those of a stratum add up to `counts`.
    """
    sums = represented(labels)
    return [_drawn_weight(each) * counts[each.stratum] / sums[each.stratum] for each in labels]


def _drawn_weight(label: DrawnLabel) -> float:
    """Return how many replies a label stands for by its share alone: 1 / share, or 1."""
    return 1 / (label.share or 1.0)


def _arrays(replies: Iterable[LabelledReply], stratum: str, of: str) -> tuple[Any, Any]:
    """Return (values of the attribute `of`, weights) of one stratum's replies, both (n,)."""
    import numpy as np

    stratum_replies = [each for each in replies if each.stratum == stratum]
    values = np.array([float(getattr(each, of)) for each in stratum_replies])
    return values, np.array([_drawn_weight(each) for each in stratum_replies])


def read_labels(
    engine: Any, since: float = 0.0, calibrator: str | None = None, *, has_content: bool = False
) -> Labels:
    """Read the drawn labels of replies requested since a time, one for each conversation.

    `since` is in seconds since the epoch. With `calibrator`, a checkpoint's version, only labels of
    replies that it scored are read. With `has_content`, the replies come with their texts. Raises
    StoreError.
    """
    found = [
        each
        for each in labelled_replies(engine, since, has_content=has_content)
        if calibrator is None or each.is_by(calibrator)
    ]
    drawn = [each for each in found if each.stratum != "other"]
    known = totals(engine, since, calibrator)
    counted = one_per_conversation(drawn, delivered_replies(engine, since))
    return Labels(counted, known, len(found) - len(drawn))


def one_per_conversation(
    replies: Sequence[LabelledReply], delivered: Mapping[str, int]
) -> list[LabelledReply]:
    """Return the first labelled reply of each conversation, delivered and held ones apart.

    The more replies of a conversation were `delivered`, the likelier one of them was drawn. The
    `share` of the returned replies is that probability.
    """
    seen = SeenConversations(None, None)
    found = []
    for each in replies:
        name = each.conversation and f"{each.stratum} {each.conversation}"
        if seen.is_first(name):
            draws = delivered.get(each.conversation or "", 1)
            share = None if each.share is None else 1.0 - (1.0 - each.share) ** draws
            found.append(replace(each, share=share))
    return found
