"""Several replies to one request, of which the surest is taken (the paper's model selection, P02).

    ask: {n: 3}                                   # three replies of the model asked for
    ask: {models: [gpt-5-mini, kimi-3]}           # one reply of each
    ask: {models: [gpt-5-mini], n: 2, when: {domain: law}}

The rules then look at the surest reply alone. A client that asks for several choices itself
(`n` above 1) gets these; no further replies are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from policies.conditions.conditions import WHEN_REQUESTED, When
from policies.conditions.facts import Facts
from policies.reading.reading import Node
from policies.reading.shapes import MODELS, mapping, whole

MAX_REPLIES: Final = 8


@dataclass(frozen=True, slots=True)
class ReplyCounts:
    """The number of replies from each of the models; () means the model of the request."""

    n: int = 1
    models: tuple[str, ...] = ()
    when: When = field(default_factory=When)

    def models_for(self, facts: Facts) -> tuple[str, ...]:
        """Return the models to ask, one entry for each reply, such as `("a", "b", "a", "b")`.

        These are `models`, or the request's model where there are none, repeated `n` times. It is
        the request's model once where `when` does not hold, or the client asks for several choices
        itself. Only facts about the request are looked at.
        """
        if facts.n > 1 or not self.when.admits(facts):
            return (facts.model,)
        return (self.models or (facts.model,)) * self.n


def surest(confidences: Sequence[float | None]) -> int:
    """Return the index of the highest confidence, the first of equals; a missing one is lowest.

    Raises ValueError for an empty sequence.
    """
    comparable = [-1.0 if confidence is None else confidence for confidence in confidences]
    return comparable.index(max(comparable))


def _read_counts(node: Node, **values: Any) -> ReplyCounts:
    """Build the `ReplyCounts` of `ask`; report it if it is not about 2 to 8 replies in all."""
    counts = ReplyCounts(**values)
    if not 1 < counts.n * max(len(counts.models), 1) <= MAX_REPLIES:
        node.report(f"{node} must come to 2 to {MAX_REPLIES} replies")
    return counts


ASKING: Final = mapping(
    _read_counts,
    {"n": whole(1, MAX_REPLIES), "models": MODELS, "when": WHEN_REQUESTED},
    needs=("n", "models"),
)
