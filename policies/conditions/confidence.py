"""The conditions on confidence: thresholds, the least sure share of the traffic, a stated error.

    confidence: {below: 0.5}              # also at_least, between: [0.2, 0.5]
    confidence: {lowest_share: 0.05}      # the least sure 5 % of recent replies
    confidence: {max_error: 0.05}         # at or above a threshold certified for 5 % of errors

All of them need a score. Without one they hold, and the rule then hands over to the policy's
`on_score_error`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from policies.conditions.certificate import Grant
from policies.conditions.facts import Facts
from policies.reading.reading import Node, abbreviate
from policies.reading.shapes import Shape, mapping


@dataclass(frozen=True, slots=True)
class Band:
    """The confidences from `low` up to, but not including, `high`."""

    low: float = 0.0
    high: float = math.inf

    def holds(self, facts: Facts) -> bool:
        """Return whether the confidence is at least `low` and below `high`, or is None."""
        return facts.confidence is None or self.low <= facts.confidence < self.high

    def __str__(self) -> str:
        """Return a phrase: `at least 0.5`, `below 0.5` or `from 0.2 below 0.5`."""
        if math.isinf(self.high):
            return f"at least {self.low:g}"
        return f"from {self.low:g} below {self.high:g}" if self.low else f"below {self.high:g}"


@dataclass(frozen=True, slots=True)
class LowestShare:
    """The least sure `share` of recent replies; no reply is among them while too few are known."""

    share: float

    def holds(self, facts: Facts) -> bool:
        """Return whether less than `share` of recent replies were less sure (`facts.share_below`).

        Return True for a missing confidence, and False where the share is not known yet.
        """
        if facts.confidence is None:
            return True
        return facts.share_below is not None and facts.share_below < self.share

    def __str__(self) -> str:
        """Return a phrase such as `among the least sure 0.05 of recent replies`."""
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
        """Return whether the confidence is at or above the threshold of the grant for these facts.

        Return True for a missing confidence, and False where no grant is for them.
        """
        if facts.confidence is None:
            return True
        grant = self.grant(facts)
        return grant is not None and facts.confidence >= grant.threshold

    def grant(self, facts: Facts) -> Grant | None:
        """Return the first grant for these facts' calibrator, model and team, or None."""
        for grant in self.grants:
            if grant.is_for(facts):
                return grant
        return None

    def __str__(self) -> str:
        """Return a phrase such as `certified for at most 0.05 of errors`."""
        return f"certified for at most {self.max_error:g} of errors"


Confidence: TypeAlias = Band | LowestShare | MaxError


def _confidence(node: Node, **values: Any) -> Confidence:
    """Return the condition for these values by key; with no key of its own it is a band.

    `max_error` gives a `MaxError` without grants, which come with the policy's certificate;
    `lowest_share` gives a `LowestShare`.
    """
    if "max_error" in values:
        return MaxError(values["max_error"])
    if "lowest_share" in values:
        return LowestShare(values["lowest_share"])
    return make_band(node, **values)


def make_band(
    node: Node,
    *,
    below: float = math.inf,
    at_least: float = 0.0,
    between: tuple[float, float] | None = None,
) -> Band:
    """Return the band of a condition on a probability, `between` or from `at_least` to `below`.

    Report at `node` a band that nothing can be in, and return it.
    """
    low, high = between or (at_least, below)
    if low >= high:
        node.report(f"{node} can never hold: nothing is at least {low:g} and below {high:g}")
    return Band(low, high)


def _between(node: Node) -> tuple[float, float]:
    """Read `[LOW, HIGH]`, two probabilities, as a tuple.

    Report anything else and return (0.0, 1.0).
    """
    if not isinstance(node.value, list) or len(node.value) != 2:
        node.report(f"{node} must be two numbers, as in [0.2, 0.5]")
        return 0.0, 1.0
    low, high = map(_probability, node.items())
    return low, high


def _share(node: Node) -> float:
    """Read a share of replies, more than 0 and less than 1; report anything else."""
    share = _probability(node)
    if share in (0.0, 1.0):
        node.report(f"{node} must be more than 0 and less than 1, not {share:g}")
    return share


def _probability(node: Node) -> float:
    """Read a number from 0 to 1.

    Report anything else, with a hint for a percentage, and return 0.5.
    """
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        node.report(f"{node} must be a number from 0 to 1, not {abbreviate(value)}")
        return 0.5
    if not 0 <= value <= 1:
        is_percentage = 2 <= value <= 100
        hint = f"; did you mean {value / 100:g}?" if is_percentage else f", not {value}"
        name = next((step for step in node.location if step in ("confidence", "support")), node)
        node.report(f"{name} is a probability, 0 to 1{hint}")
        return 0.5
    return float(value)


PROBABILITY: Final = Shape(_probability, {"type": "number", "minimum": 0, "maximum": 1})
_SHARE: Final = Shape(_share, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})
BAND_KEYS: Final[Mapping[str, Shape[Any]]] = {
    "below": PROBABILITY,
    "at_least": PROBABILITY,
    "between": Shape(
        _between,
        {"type": "array", "items": PROBABILITY.schema, "minItems": 2, "maxItems": 2},
    ),
}
BAND: Final = mapping(make_band, BAND_KEYS, needs=tuple(BAND_KEYS), alone=("between",))
_KEYS: Final = {**BAND_KEYS, "max_error": _SHARE, "lowest_share": _SHARE}
CONFIDENCE: Final[Shape[Confidence]] = mapping(
    _confidence,
    _KEYS,
    needs=tuple(_KEYS),
    alone=("between", "max_error", "lowest_share"),
)
