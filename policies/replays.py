"""What a policy would have done with recorded replies, beside what another one does.

    result = replay(policy, exchanges, before=old)
    result.after.coverage, result.after.queues      # delivered share, reviews by queue
    print(result)

A policy in shadow is replayed as if it were enforced. What an escalation or a clarification would
have led to is not known: such replies count as that and nothing else.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from policies.actions import Hold
from policies.binomial import interval
from policies.confidence import LowestShare
from policies.costs import Costs
from policies.decision import Decision, decide
from policies.facts import Facts
from policies.independence import SeenConversations
from policies.policy import Policy
from policies.ranking import RecentConfidences

DAY_S = 86_400.0
LEAST_DAYS = 0.8
Z_95 = 1.959964


@dataclass(frozen=True, slots=True)
class Exchange:
    """A recorded reply; `is_correct` is its label or a reviewer's verdict, None for none.

    `at_s` is when it was, in seconds since the epoch. `lacks` names the facts that were not
    recorded, which then stand at their defaults.
    """

    facts: Facts
    is_correct: bool | None = None
    at_s: float | None = None
    lacks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Errors:
    """Wrong replies among the delivered ones, of each conversation one.

    `wrong` of `labelled` delivered replies are known to be wrong, a share within `rate` at 95 %
    confidence (Clopper-Pearson). `expected` is what the confidences say about all that have one,
    within `low` and `high` at 95 %, if they are calibrated (sums of 1 - confidence).
    """

    labelled: int = 0
    wrong: int = 0
    scored: int = 0
    expected: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @property
    def rate(self) -> tuple[float, float]:
        return interval(self.wrong, self.labelled)

    def __str__(self) -> str:
        parts = []
        if self.labelled:
            low, high = self.rate
            share = self.wrong / self.labelled
            parts.append(
                f"{self.wrong} of {self.labelled} labelled are wrong "
                f"({share:.1%}, 95 % interval {low:.1%} to {high:.1%})"
            )
        if self.scored:
            parts.append(
                f"if the confidences are right, {self.expected:.0f} of {self.scored} scored are "
                f"wrong ({self.low:.0f} to {self.high:.0f})"
            )
        return "; ".join(parts) or "nothing is known"


@dataclass(frozen=True, slots=True)
class Side:
    """What one policy makes of the replies: counts by action, by rule and by queue."""

    policy: str
    replies: int
    actions: Mapping[str, int]
    rules: Mapping[str, int]
    queues: Mapping[str, int]
    errors: Errors
    days: float | None = None
    cost: float | None = None
    manual_cost: float | None = None
    currency: str = ""

    @property
    def coverage(self) -> float:
        """The share of the replies that goes out by itself."""
        delivered = self.actions.get("deliver", 0) + self.actions.get("annotate", 0)
        return delivered / self.replies if self.replies else 0.0

    def __str__(self) -> str:
        lines = [f"{self.policy}: {self.coverage:.1%} of {self.replies} replies delivered"]
        lines.append(f"  errors delivered, one reply of each conversation: {self.errors}")
        for queue, count in sorted(self.queues.items()):
            a_day = f", {count / self.days:.1f} a day" if self.days else ""
            lines.append(f"  review queue {queue}: {count} ({count / self.replies:.1%}{a_day})")
        if self.cost is not None and self.manual_cost is not None:
            lines.append(
                f"  cost: {self.cost:,.2f} {self.currency}; "
                f"all by hand: {self.manual_cost:,.2f} {self.currency}"
            )
        lines += [f"  {count:7}  {rule}" for rule, count in self.rules.items()]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Replay:
    """Both sides and every way from one decision to another, the most frequent first."""

    before: Side | None
    after: Side
    changes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    lacks: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [str(side) for side in (self.before, self.after) if side is not None]
        if self.before is not None:
            changed = sum(self.changes.values())
            lines.append(f"{changed} of {self.after.replies} replies are treated differently")
        lines += [f"  {n:7}  {old} -> {new}" for (old, new), n in self.changes.items()]
        lines += [
            f"{n} replies lack {name!r}, which a rule looks at" for name, n in self.lacks.items()
        ]
        return "\n".join(lines)


def replay(
    policy: Policy,
    exchanges: Iterable[Exchange],
    *,
    before: Policy | None = None,
    costs: Costs | None = None,
) -> Replay:
    """Decide on every exchange; `costs` take the place of those that the policies state."""
    read = _ranked(exchanges, [policy, before] if before else [policy])
    after = [decide(policy, exchange.facts) for exchange in read]
    sides = [_side(policy, read, after, costs)]
    changes: Counter[tuple[str, str]] = Counter()
    if before is not None:
        earlier = [decide(before, exchange.facts) for exchange in read]
        sides.append(_side(before, read, earlier, costs or policy.costs))
        changes.update(
            (shown_decision(old), shown_decision(new))
            for old, new in zip(earlier, after, strict=True)
            if old.action != new.action
        )
    lacks = _lacking(read, [policy, before] if before else [policy])
    return Replay(sides[1] if before else None, sides[0], dict(changes.most_common()), lacks)


def shown_decision(decision: Decision) -> str:
    """Name action and rule: `hold by rule 'unsure'`."""
    if decision.because == "rule":
        return f"{decision.action.name} by rule {decision.rule!r}"
    return f"{decision.action.name} by {decision.rule}"


def _side(
    policy: Policy,
    exchanges: Sequence[Exchange],
    decisions: Sequence[Decision],
    costs: Costs | None,
) -> Side:
    costs = costs or policy.costs
    delivered = [
        exchange
        for exchange, decision in zip(exchanges, decisions, strict=True)
        if decision.action.name in ("deliver", "annotate")
    ]
    price = manual = None
    if costs is not None:
        of_all = _errors(delivered)
        wrong = of_all.wrong if of_all.labelled else of_all.expected
        price = math.fsum(costs.of(decision.action) for decision in decisions) + costs.error * wrong
        manual = costs.manual * len(decisions)
    return Side(
        f"{policy.name}@{policy.digest}",
        len(decisions),
        dict(Counter(decision.action.name for decision in decisions)),
        dict(Counter(map(shown_decision, decisions)).most_common()),
        dict(Counter(d.action.queue for d in decisions if isinstance(d.action, Hold))),
        _errors(_one_per_conversation(delivered)),
        _days(exchanges),
        price,
        manual,
        costs.currency if costs else "",
    )


def _errors(delivered: Sequence[Exchange]) -> Errors:
    labels = [each.is_correct for each in delivered if each.is_correct is not None]
    confidences = [c for each in delivered if (c := each.facts.confidence) is not None]
    expected = math.fsum(1.0 - confidence for confidence in confidences)
    # the sum of independent errors, near enough to normal
    spread = Z_95 * math.sqrt(math.fsum(c * (1.0 - c) for c in confidences))
    low, high = max(0.0, expected - spread), min(float(len(confidences)), expected + spread)
    return Errors(len(labels), labels.count(False), len(confidences), expected, low, high)


def _one_per_conversation(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """One exchange of each conversation, one with a label where there is any: intervals suppose
    replies that have nothing to do with each other."""
    seen = SeenConversations(None, None)
    labelled_first = sorted(exchanges, key=lambda each: each.is_correct is None)
    return [each for each in labelled_first if seen.is_first(each.facts.conversation)]


def _days(exchanges: Sequence[Exchange]) -> float | None:
    """The days that they span; None for so short a time that it says nothing about a day."""
    times = [each.at_s for each in exchanges if each.at_s is not None]
    span = (max(times) - min(times)) / DAY_S if times else 0.0
    return span if span >= LEAST_DAYS else None


def _lacking(exchanges: Sequence[Exchange], policies: Sequence[Policy]) -> dict[str, int]:
    """How many exchanges lack each fact that a rule looks at."""
    looked_at = frozenset[str]().union(*(policy.looks_at for policy in policies))
    counts = Counter(name for each in exchanges for name in each.lacks & looked_at)
    return dict(counts.most_common())


def _ranked(exchanges: Iterable[Exchange], policies: Sequence[Policy]) -> list[Exchange]:
    """The exchanges, with what `lowest_share` looks at where it was not recorded.

    As it would have been live: each confidence among those of its model before it, one of each
    conversation.
    """
    conditions = (rule.when.confidence for policy in policies for rule in policy.rules)
    if not any(isinstance(condition, LowestShare) for condition in conditions):
        return list(exchanges)
    recent: defaultdict[str, RecentConfidences] = defaultdict(RecentConfidences)
    counted: defaultdict[str, SeenConversations] = defaultdict(SeenConversations)
    ranked = []
    for exchange in exchanges:
        facts = exchange.facts
        if facts.share_below is None and facts.confidence is not None:
            share = recent[facts.model].share_below(facts.confidence)
            if counted[facts.model].is_first(facts.conversation, exchange.at_s or 0.0):
                recent[facts.model].add(facts.confidence)
            exchange = replace(exchange, facts=replace(facts, share_below=share))
        ranked.append(exchange)
    return ranked
