"""The conditions on confidence: thresholds, the least sure share of the traffic, a stated error.

    confidence: {below: 0.5}              # also at_least, between: [0.2, 0.5]
    confidence: {lowest_share: 0.05}      # the least sure 5 % of recent replies
    confidence: {max_error: 0.05}         # at or above a threshold certified for 5 % of errors

All of them need a score. Without one they hold, and the rule then hands over to the policy's
`on_score_error`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

from policies.conditions.certificate import Grant
from policies.conditions.facts import Facts
from policies.reading.reading import Node, abbreviate, either

_KINDS: Final = ("below", "at_least", "between", "max_error", "lowest_share")
_ALONE: Final = ("between", "max_error", "lowest_share")


@dataclass(frozen=True, slots=True)
class Band:
    """The confidences from `low` up to, but not including, `high`."""

    low: float = 0.0
    high: float = math.inf

    def holds(self, facts: Facts) -> bool:
        """Return whether the confidence is in the band, or missing."""
        return facts.confidence is None or self.low <= facts.confidence < self.high

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"at least {self.low:g}"
        return f"from {self.low:g} below {self.high:g}" if self.low else f"below {self.high:g}"


@dataclass(frozen=True, slots=True)
class LowestShare:
    """The least sure `share` of recent replies; no reply is among them while too few are known."""

    share: float

    def holds(self, facts: Facts) -> bool:
        """Return whether fewer than `share` of the recent replies were less sure.

        It also holds for a missing confidence.
        """
        if facts.confidence is None:
            return True
        return facts.share_below is not None and facts.share_below < self.share

    def __str__(self) -> str:
        return f"among the least sure {self.share:.4g} of recent replies"


@dataclass(frozen=True, slots=True)
class MaxError:
    """Confidences at or above a threshold certified for at most `max_error` of errors.

    `grants` are those of the policy's certificate that this rule may rely on, the most specific
    first; the first whose scope fits the facts counts. Without one the condition never holds.
    """

    max_error: float
    grants: tuple[Grant, ...] = ()

    def holds(self, facts: Facts) -> bool:
        """Return whether the confidence reaches the threshold of its grant, or is missing."""
        if facts.confidence is None:
            return True
        grant = self.grant(facts)
        return grant is not None and facts.confidence >= grant.threshold

    def grant(self, facts: Facts) -> Grant | None:
        """Return the first grant for these facts' calibrator and scope, or None."""
        for grant in self.grants:
            if grant.is_for(facts):
                return grant
        return None

    def __str__(self) -> str:
        return f"certified for at most {self.max_error:g} of errors"


Confidence: TypeAlias = Band | LowestShare | MaxError


def read_confidence(node: Node) -> Confidence:
    """Read the mapping under `confidence`; problems are reported, see `policies.reading.reading`.

    A `MaxError` has no grants yet; the policy adds them once it has read its certificate.
    """
    node.check_keys(_KINDS)
    given = [kind for kind in _KINDS if node[kind].is_present]
    if not node.value:
        node.report(f"{node} needs {either(_KINDS)}")
    for kind in _ALONE:
        if kind in given and len(given) > 1:
            others = " and ".join(other for other in given if other != kind)
            node[kind].report(f"{node[kind]} stands alone, without {others}")
            return Band()
    if "max_error" in given:
        return MaxError(_share(node["max_error"]))
    if "lowest_share" in given:
        return LowestShare(_share(node["lowest_share"]))
    return read_band(node)


def read_band(node: Node) -> Band:
    """Read `below`, `at_least` and `between` of a condition on a probability."""
    below, at_least, between = (node[key] for key in ("below", "at_least", "between"))
    if between.is_present:
        if not isinstance(between.value, list) or len(between.value) != 2:
            between.report(f"{between} must be two numbers, as in [0.2, 0.5]")
            return Band()
        at_least, below = between.items()
    band = Band(probability(at_least, 0.0), probability(below, math.inf))
    if band.low >= band.high:
        node.report(
            f"{node} can never hold: nothing is at least {band.low:g} and below {band.high:g}"
        )
    return band


def _share(node: Node) -> float:
    """Read a share of replies, more than 0 and less than 1; problems are reported."""
    share = probability(node, 0.5)
    if share in (0.0, 1.0):
        node.report(f"{node} must be more than 0 and less than 1, not {share:g}")
    return share


def probability(node: Node, default: float) -> float:
    """Read a number from 0 to 1, or `default` where it is absent or invalid.

    Problems are reported.
    """
    number = node.value
    if not node.is_present:
        return default
    if isinstance(number, bool) or not isinstance(number, int | float):
        node.report(f"{node} must be a number from 0 to 1, not {abbreviate(number)}")
        return default
    if not 0 <= number <= 1:
        is_percentage = 2 <= number <= 100
        hint = f"; did you mean {number / 100:g}?" if is_percentage else f", not {number}"
        name = next((step for step in node.location if step in ("confidence", "support")), node)
        node.report(f"{name} is a probability, 0 to 1{hint}")
        return default
    return float(number)
