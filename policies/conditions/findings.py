"""The conditions on a calibrator's findings about a reply besides its confidence.

    support: {below: 0.5}            # also at_least, between: how far the context supports it
    basis: [context, computed]       # the confidence is based on one of them, perhaps among others
    basis: {only: likeness}          # and on nothing else
    act: [refusal, clarification]    # what the reply does
    needs_facts: true                # a short factual question that only outside evidence settles
    familiar: false                  # a kind of task that the calibrator was not trained on

They need a score, as conditions on the confidence do. Support is known only where there is context:
without it, no condition on support holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from policies.conditions.confidence import BAND_KEYS, Band, make_band
from policies.conditions.facts import Facts
from policies.reading.reading import Node, either
from policies.reading.shapes import FLAG, Shape, mapping, or_mapping, words

BASES: Final = ("context", "computed", "facts", "opinions", "calls", "likeness")
"""The possible bases of a confidence; `likeness` alone means that nothing was checked."""
ACTS: Final = (
    "answer",
    "refusal",
    "clarification",
    "unknown",
    "small_talk",
    "apology",
    "translation",
    "summary",
    "code",
    "data",
)
"""The acts of a reply; in an `unknown` one, the reply says that it does not know."""


@dataclass(frozen=True, slots=True)
class Support:
    """A band of probabilities that the context supports a reply; `high` is not included."""

    low: float = 0.0
    high: float = math.inf

    def holds(self, facts: Facts) -> bool:
        """Return whether the support is at least `low` and below `high`; False where it is None."""
        return facts.support is not None and self.low <= facts.support < self.high

    def covers(self, other: Support) -> bool:
        """Return whether this holds wherever `other` does, that is, whether its band is inside."""
        return self.low <= other.low and other.high <= self.high

    def __str__(self) -> str:
        """Return a phrase such as `at least 0.5` or `below 0.5`."""
        return str(Band(self.low, self.high))


@dataclass(frozen=True, slots=True)
class Basis:
    """A condition on the basis of a confidence: one of `names`, or with `is_only` nothing else."""

    names: frozenset[str]
    is_only: bool = False

    def holds(self, facts: Facts) -> bool:
        """Return whether the confidence is based on at least one of `names`.

        With `is_only`, return whether it is based on something, and on nothing but `names`.
        """
        if self.is_only:
            return bool(facts.basis) and self.names.issuperset(facts.basis)
        return not self.names.isdisjoint(facts.basis)

    def covers(self, other: Basis) -> bool:
        """Return whether this surely holds wherever `other` does."""
        if self.is_only and not other.is_only:
            return False
        return other.names <= self.names

    @property
    def in_words(self) -> str:
        """A phrase such as `on context or facts`, or `only on likeness`."""
        words = either([name for name in BASES if name in self.names])
        return f"only on {words}" if self.is_only else f"on {words}"


def _support(node: Node, **bounds: Any) -> Support:
    """Return the band of `below`, `at_least` or `between` as a `Support`; report an empty one."""
    band = make_band(node, **bounds)
    return Support(band.low, band.high)


_BASES: Final = words(BASES)
ON_FINDINGS: Final[Mapping[str, Shape[Any]]] = {
    "support": mapping(_support, BAND_KEYS, needs=tuple(BAND_KEYS), alone=("between",)),
    "basis": or_mapping(
        Shape(lambda node: Basis(_BASES.read(node)), _BASES.schema),
        mapping(lambda node, only: Basis(only, is_only=True), {"only": _BASES}, required=("only",)),
    ),
    "act": words(ACTS),
    "needs_facts": FLAG,
    "familiar": FLAG,
}
"""The conditions on findings, by name."""


def finding_reason(name: str, condition: Any, facts: Facts, *, holds: bool) -> str:
    """Return in words why a condition holds or not, such as `support 0.4000 is below 0.5`.

    `name` is the finding, such as `support` or `act`, and `holds` says whether the condition holds.
    The facts must have a confidence.
    """
    is_not = "is" if holds else "is not"
    if name == "support" and facts.support is None:
        return "no context could support it"
    if name == "support":
        return f"support {facts.support:.4f} {is_not} {condition}"
    if name == "basis":
        based = f"based on {', '.join(facts.basis) or 'nothing'}"
        return based if holds else f"{based}, not {condition.in_words}"
    if name == "act":
        act = facts.act or "none"
        return f"act is {act}" if holds else f"act {act} is not {either(sorted(condition))}"
    fact = getattr(facts, name)
    return f"{name} is {'not known' if fact is None else str(fact).lower()}"
