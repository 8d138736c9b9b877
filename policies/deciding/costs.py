"""The costs of replies and people, for `pinocchio replay`; decisions never look at them.

costs:
  currency: USD
  deliver: 0.50                        # a reply that goes out by itself
  queues: {nurse: 10, physician: 25}   # a reply that a person of the queue looks at
  escalate: 0.02                       # one more call to a model
  second_opinion: 0.002                # a reply of another model about a reply
  judge: 0.001                         # a judge's word on a reply
  error: 0                             # a wrong reply that went out
  manual: 25                           # one reply, were all of them done by people
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from policies.deciding.actions import Action, Escalate, Hold
from policies.reading.shapes import TEXT, by_name, make, mapping, number

PRICES = ("deliver", "escalate", "second_opinion", "judge", "clarify", "error", "manual")


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of one reply of each kind, in `currency`; a queue without a price costs `manual`."""

    currency: str = "USD"
    deliver: float = 0.0
    escalate: float = 0.0
    second_opinion: float = 0.0
    judge: float = 0.0
    clarify: float = 0.0
    error: float = 0.0
    manual: float = 0.0
    queues: Mapping[str, float] = field(default_factory=dict, hash=False)

    def of(self, action: Action) -> float:
        """Return the price of one reply with this action, in `currency`.

        A hold costs the price of its queue, or `manual` where the queue has none. An escalation
        costs `escalate` plus the price of its `otherwise`, or plus `deliver` without one. A block
        costs 0. Wrong replies, second opinions and judges are not included.
        """
        if isinstance(action, Hold):
            return self.queues.get(action.queue, self.manual)
        if isinstance(action, Escalate):
            cost = self.deliver if action.otherwise is None else self.of(action.otherwise)
            return self.escalate + cost
        return {"deliver": self.deliver, "annotate": self.deliver, "clarify": self.clarify}.get(
            action.name, 0.0
        )


COSTS: Final = mapping(
    make(Costs),
    {"currency": TEXT, **dict.fromkeys(PRICES, number(0.0)), "queues": by_name(number(0.0))},
)
