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
from typing import Final

from policies.conditions.conditions import ON_REQUEST, When, read_request_conditions
from policies.conditions.facts import Facts
from policies.reading.reading import Node, abbreviate

MAX_REPLIES: Final = 8


@dataclass(frozen=True, slots=True)
class ReplyCounts:
    """The number of replies from each of the models; () means the model of the request."""

    n: int = 1
    models: tuple[str, ...] = ()
    when: When = field(default_factory=When)

    def models_for(self, facts: Facts) -> tuple[str, ...]:
        """Return the models to ask, one entry for each reply.

        It is the request's model alone where `when` does not apply, or the client asks for several
        choices itself. Only facts about the request are looked at.
        """
        if facts.n > 1 or not self.when.admits(facts):
            return (facts.model,)
        return (self.models or (facts.model,)) * self.n


def surest(confidences: Sequence[float | None]) -> int:
    """Return the index of the highest confidence, the first of equals; a missing one is lowest."""
    comparable = [-1.0 if confidence is None else confidence for confidence in confidences]
    return comparable.index(max(comparable))


def read_asking(node: Node) -> ReplyCounts | None:
    """Read `ask`, None where it is absent.

    Problems are reported, see `policies.reading.reading`.
    """
    if not node.is_present:
        return None
    node.check_keys(("n", "models", "when"))
    if not node["n"].is_present and not node["models"].is_present:
        node.report(f"{node} needs n or models")
    n = node["n"].value if node["n"].is_present else 1
    models = node["models"].several_models() if node["models"].is_present else ()
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        node["n"].report(f"{node['n']} must be a whole number from 1, not {abbreviate(n)}")
        n = 1
    if not 1 < n * max(len(models), 1) <= MAX_REPLIES:
        node.report(f"{node} must come to 2 to {MAX_REPLIES} replies")
    node["when"].check_keys(ON_REQUEST)
    return ReplyCounts(n, models, When(**read_request_conditions(node["when"])))
