"""A replay: the decisions of a policy about recorded replies, compared with another policy's.

    result = replay(policy, exchanges, before=old)
    result.after.coverage, result.after.queues      # delivered share, reviews by queue
    print(result)

A policy in shadow is replayed as if it were enforced. Replies that are escalated or clarified are
counted under these actions only, as their outcome is unknown. Where a record lacks facts of a rule,
the recorded decision of the same policy counts; other decisions are a range.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, TypeAlias

from policies.binomial import interval
from policies.certifying.independence import SeenConversations
from policies.conditions.confidence import LowestShare
from policies.conditions.facts import Facts
from policies.conditions.ranking import RecentConfidences
from policies.counting import plural
from policies.deciding.actions import Action, Hold
from policies.deciding.costs import Costs
from policies.deciding.decision import Decision
from policies.deciding.policy import Policy
from policies.trying.known_facts import counts, facts_known_to, judgements, without_opinions
from policies.trying.possible import possible_decisions

DAY_S = 86_400.0
LEAST_DAYS = 0.8
Possible: TypeAlias = tuple[Decision, ...]
"""The decisions that are possible for one reply; at least one."""
Z_95 = 1.959964
LONGEST_VALUE = 40  # characters


@dataclass(frozen=True, slots=True)
class Exchange:
    """A recorded reply; `is_correct` is its label or a reviewer's verdict, None without either.

    `at_s` is its time, in seconds since the epoch. `lacks` names the facts that were not recorded,
    which are then at their defaults. `label` is that of the decision at the time, None where it is
    unknown or was not based on these facts alone.
    """

    facts: Facts
    is_correct: bool | None = None
    at_s: float | None = None
    lacks: frozenset[str] = frozenset()
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Errors:
    """Wrong replies among the delivered ones, one of each conversation.

    `wrong` of `labelled` delivered replies are known to be wrong, a share within `rate` at 95 %
    confidence (Clopper-Pearson). `expected` is the number of wrong replies among the `scored` ones
    according to their confidences, within `low` and `high` at 95 % if they are calibrated (sums of
    1 - confidence).
    """

    labelled: int = 0
    wrong: int = 0
    scored: int = 0
    expected: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @property
    def rate(self) -> tuple[float, float]:
        """The 95 % interval (low, high) of the share of wrong replies, from the labelled ones."""
        return interval(self.wrong, self.labelled)

    def __str__(self) -> str:
        """Return the known and the expected errors in a sentence, or `nothing is known`."""
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
    """The decisions of one policy about the replies: counts by action, by rule and by queue.

    `unknown` replies have more than one possible action, because the record lacks facts. They are
    not in `actions`, `queues` or `errors`, but their possible actions are in `most_delivered`,
    `most_queued` and `most_cost`, which are upper limits.

    Others are asked about `opinions` replies; `unanswered` of these have no recorded answers and
    judged without. A judge is asked about `judged` replies, of which `unjudged` are decided
    without its answer. If nobody were asked, `delivered_alone` would be delivered.
    """

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
    unknown: int = 0
    lacks: tuple[str, ...] = ()
    delivered: int = 0
    most_delivered: int = 0
    most_queued: Mapping[str, int] = field(default_factory=dict)
    most_cost: float | None = None
    is_shadow: bool = False
    opinions: int = 0
    unanswered: int = 0
    delivered_alone: int = 0
    judged: int = 0
    unjudged: int = 0

    @property
    def coverage(self) -> float:
        """The share of the replies that is surely delivered."""
        return self.delivered / self.replies if self.replies else 0.0

    @property
    def most_coverage(self) -> float:
        """The share of the replies that may be delivered."""
        return self.most_delivered / self.replies if self.replies else 0.0

    def __str__(self) -> str:
        """Return the report of `pinocchio replay` on one policy, in several lines."""
        share, surely = f"{self.coverage:.1%}", ""
        if self.unknown:
            share = f"between {share} and {self.most_coverage:.1%}"
            surely = "surely "
        of = f"{share} of {plural(self.replies, 'reply', 'replies')} delivered"
        shadow = ", in shadow, as if it were enforced" if self.is_shadow else ""
        lines = [f"{self.policy}{shadow}: {of}"]
        if self.unknown:
            lacks = " and ".join(map(repr, self.lacks))
            lines.append(f"  {self.unknown} of them cannot be told: the record lacks {lacks}")
        lines.append(f"  errors {surely}delivered, one reply of each conversation: {self.errors}")
        lines += [self._queue(queue) for queue in sorted(self.most_queued)]
        if self.cost is not None and self.manual_cost is not None:
            most = f" to {self.most_cost:,.2f}" if self.most_cost != self.cost else ""
            lines.append(
                f"  cost: {self.cost:,.2f}{most} {self.currency}; "
                f"all by hand: {self.manual_cost:,.2f} {self.currency}"
            )
        if self.opinions:
            lines.append(self._describe_opinions())
        if self.judged:
            lines.append(self._describe_judge())
        lines += [f"  {count:7}  {rule}" for rule, count in self.rules.items()]
        return "\n".join(lines)

    def _describe_opinions(self) -> str:
        """Return the line of the report about second opinions."""
        unanswered = ""
        if self.unanswered:
            unanswered = f"; what they say about {self.unanswered} is not known, and is left out"
        return (
            f"  second opinions about {plural(self.opinions, 'reply', 'replies')} "
            f"({self.opinions / self.replies:.2f} calls a reply): {self.delivered} are delivered, "
            f"without them {self.delivered_alone}{unanswered}"
        )

    def _describe_judge(self) -> str:
        """Return the line of the report about the judge."""
        unknown = ""
        if self.unjudged:
            unknown = f"; its word on {self.unjudged} is not known, and is left out"
        return (
            f"  a judge about {plural(self.judged, 'reply', 'replies')} "
            f"({self.judged / self.replies:.2f} calls a reply): {self.delivered} are delivered, "
            f"by texts alone {self.delivered_alone}{unknown}"
        )

    def _queue(self, queue: str) -> str:
        """Return the line of the report on a queue: holds, their share of replies, holds a day."""
        low, high = self.queues.get(queue, 0), self.most_queued[queue]

        def span(numbers: Sequence[str]) -> str:
            return " to ".join(dict.fromkeys(numbers))

        both = (low, high)
        parts = [span([f"{each / self.replies:.1%}" for each in both])]
        if self.days:
            parts.append(f"{span([f'{each / self.days:.1f}' for each in both])} a day")
        return f"  review queue {queue}: {span([str(each) for each in both])} ({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Replay:
    """Both sides, and the counts of changed decisions as (old, new), the most frequent first.

    For `unknown` replies it is uncertain whether they are treated differently.
    """

    before: Side | None
    after: Side
    changes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    lacks: Mapping[str, int] = field(default_factory=dict)
    unknown: int = 0

    def __str__(self) -> str:
        """Return the report on both policies, then the changed decisions and the missing facts."""
        lines = [str(side) for side in (self.before, self.after) if side is not None]
        if self.before is not None:
            changed, all_replies = sum(self.changes.values()), self.after.replies
            most = f" to {changed + self.unknown}" if self.unknown else ""
            are = "reply is" if all_replies == 1 else "replies are"
            lines.append(f"{changed}{most} of {all_replies} {are} treated differently")
        lines += [f"  {n:7}  {old} -> {new}" for (old, new), n in self.changes.items()]
        lines += [
            f"{plural(n, 'reply lacks', 'replies lack')} {name!r}, which a rule looks at"
            for name, n in self.lacks.items()
        ]
        return "\n".join(lines)


def replay(
    policy: Policy,
    exchanges: Iterable[Exchange],
    *,
    before: Policy | None = None,
    costs: Costs | None = None,
) -> Replay:
    """Return a `Replay` of the policy on all exchanges, compared with the policy `before` if given.

    `costs` replace those that the policies state; `before` without such uses those of `policy`.
    """
    recorded = list(exchanges)
    after = _PolicyReplay(policy, recorded)
    lacks = after.count_lacking()
    if before is None:
        return Replay(None, after.side(costs), {}, dict(lacks.most_common()))
    earlier = _PolicyReplay(before, recorded)
    pairs = list(zip(earlier.decisions, after.decisions, strict=True))
    changes, unknown = _changes(pairs, policy == before)
    lacks |= earlier.count_lacking()  # the larger count of the two
    sides = earlier.side(costs or policy.costs), after.side(costs)
    return Replay(*sides, changes, dict(lacks.most_common()), unknown)


class _PolicyReplay:
    """One policy and its decisions on recorded replies, each with the confidence it would know."""

    def __init__(self, policy: Policy, recorded: Sequence[Exchange]) -> None:
        self.policy = policy
        self.known = [facts_known_to(policy, each.facts) for each in recorded]
        pairs = zip(recorded, self.known, strict=True)
        self.exchanges = _add_shares([replace(e, facts=h.facts) for e, h in pairs], policy)
        self.decisions = _decide_all(policy, self.exchanges)

    def count_lacking(self) -> Counter[str]:
        """Return for each missing fact how many exchanges have an unknown outcome because of it."""
        return _count_lacking(self.policy, self.exchanges, self.decisions)

    def side(self, costs: Costs | None) -> Side:
        """Return a `Side`, the counts and costs of the policy's decisions on all replies.

        Where it asks others or a judge, their price is added and `delivered_alone` counted without.
        """
        found = _side(self.policy, self.exchanges, self.decisions, costs)
        (opinions, unanswered), (judged, unjudged) = counts(self.known), judgements(self.known)
        if not opinions and not judged:
            return found
        alone = [replace(e, facts=without_opinions(e.facts)) for e in self.exchanges]
        surely = [d for d in _decide_all(self.policy, alone) if all(map(_is_delivered, d))]
        calls = opinions * (self.policy.second_opinion.n if self.policy.second_opinion else 0)
        prices = costs or self.policy.costs or Costs()
        price = prices.second_opinion * calls + prices.judge * judged
        return replace(
            found,
            opinions=opinions,
            unanswered=unanswered,
            delivered_alone=len(surely),
            judged=judged,
            unjudged=unjudged,
            cost=None if found.cost is None else found.cost + price,
            most_cost=None if found.most_cost is None else found.most_cost + price,
        )


def _decide_all(policy: Policy, exchanges: Sequence[Exchange]) -> list[Possible]:
    """Return the policy's possible decisions for each exchange, in order."""
    return [possible_decisions(policy, each.facts, each.lacks, each.label) for each in exchanges]


def _is_known(possible: Possible) -> bool:
    """Return whether all possible decisions have the same action."""
    return all(each.action == possible[0].action for each in possible)


def _changes(
    pairs: Sequence[tuple[Possible, Possible]], is_same_policy: bool
) -> tuple[dict[tuple[str, str], int], int]:
    """Return (counts of sure changes by (old, new) in words, number of uncertain ones)."""
    changes, unknown = Counter[tuple[str, str]](), 0
    for old, new in () if is_same_policy else pairs:
        old_actions, new_actions = {d.action for d in old}, {d.action for d in new}
        if old_actions.isdisjoint(new_actions):
            changes[_describe_change(old, new)] += 1
        elif not (_is_known(old) and _is_known(new)):
            unknown += 1
    return dict(changes.most_common()), unknown


def describe_decision(decision: Decision) -> str:
    """Return action and rule in words: `hold by rule 'unsure'`."""
    if decision.because == "rule":
        return f"{decision.action.name} by rule {decision.rule!r}"
    return f"{decision.action.name} by {decision.rule}"


def describe_decisions(possible: Possible) -> str:
    """Return all possible decisions in words: `hold by rule 'unsure' or deliver by default`."""
    return " or ".join(map(describe_decision, possible))


def _describe_change(old: Possible, new: Possible) -> tuple[str, str]:
    """Return (old, new) in words; where they are the same, with the options that differ."""
    before, after = describe_decisions(old), describe_decisions(new)
    if before != after:
        return before, after
    pairs = [(a.action, b.action) for a, b in zip(old, new, strict=True)]
    names = {
        each.name for a, b in pairs for each in fields(a) if _option(a, each) != _option(b, each)
    }
    return f"{before} ({_options(old, names)})", f"{after} ({_options(new, names)})"


def _option(action: Action, each: Field[Any]) -> object:
    return getattr(action, each.name, None)


def _options(possible: Possible, names: Collection[str]) -> str:
    """Return these options of the actions as a policy spells them: `queue oncall, expires 30 s`."""
    options = []
    for action in (each.action for each in possible):
        for each in fields(action):
            if each.name in names:
                options.append(
                    f"{each.name.removesuffix('_s')} {_format_value(_option(action, each))}"
                )
    return ", ".join(options)


def _format_value(value: object) -> str:
    """Return an option's value in words: `30 s`, `a and b`, `none`, `not given`, or a text."""
    if isinstance(value, float):
        return f"{value:g} s"
    if isinstance(value, tuple):
        return " and ".join(map(str, value)) or "none"
    text = "not given" if value is None else str(getattr(value, "name", value))
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _side(
    policy: Policy,
    exchanges: Sequence[Exchange],
    decisions: Sequence[Possible],
    costs: Costs | None,
) -> Side:
    """Return a `Side` of decisions on exchanges, before second opinions and judges are priced."""
    costs = costs or policy.costs
    decided = [each[0] for each in decisions if _is_known(each)]
    pairs = list(zip(exchanges, decisions, strict=True))
    delivered = [each for each, possible in pairs if all(map(_is_delivered, possible))]
    maybe = [each for each, possible in pairs if any(map(_is_delivered, possible))]
    price = most = manual = None
    if costs is not None:
        price = _price(costs, decisions, delivered, min)
        most = _price(costs, decisions, maybe, max)
        manual = costs.manual * len(decisions)
    return Side(
        f"{policy.name}@{policy.digest}",
        len(decisions),
        dict(Counter(each.action.name for each in decided)),
        dict(Counter(map(describe_decisions, decisions)).most_common()),
        dict(Counter(d.action.queue for d in decided if isinstance(d.action, Hold))),
        _errors(_one_per_conversation(delivered)),
        _days(exchanges),
        price,
        manual,
        costs.currency if costs else "",
        len(decisions) - len(decided),
        tuple(_count_lacking(policy, exchanges, decisions)),
        len(delivered),
        len(maybe),
        dict(Counter(queue for each in decisions for queue in _queues(each))),
        most,
        policy.mode == "shadow",
    )


def _is_delivered(decision: Decision) -> bool:
    return decision.action.name in ("deliver", "annotate")


def _queues(possible: Possible) -> set[str]:
    return {each.action.queue for each in possible if isinstance(each.action, Hold)}


def _price(
    costs: Costs,
    decisions: Sequence[Possible],
    delivered: Sequence[Exchange],
    which: Callable[[Iterable[float]], float],
) -> float:
    """Return the total cost, with the cheapest or the dearest (`which`) of possible decisions.

    Wrong replies among `delivered`, known or else expected ones, cost `costs.error` each.
    """
    errors = _errors(delivered)
    wrong = errors.wrong if errors.labelled else errors.expected
    each = (which([costs.of(decision.action) for decision in possible]) for possible in decisions)
    return math.fsum(each) + costs.error * wrong


def _errors(delivered: Sequence[Exchange]) -> Errors:
    """Return the `Errors` among delivered replies, by their labels and by their confidences."""
    labels = [each.is_correct for each in delivered if each.is_correct is not None]
    confidences = [c for each in delivered if (c := each.facts.confidence) is not None]
    expected = math.fsum(1.0 - confidence for confidence in confidences)
    # The sum of independent errors is nearly normal.
    spread = Z_95 * math.sqrt(math.fsum(c * (1.0 - c) for c in confidences))
    low, high = max(0.0, expected - spread), min(float(len(confidences)), expected + spread)
    return Errors(len(labels), labels.count(False), len(confidences), expected, low, high)


def _one_per_conversation(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return one exchange of each conversation, a labelled one if there is any.

    Intervals assume independent replies.
    """
    seen = SeenConversations(None, None)
    labelled_first = sorted(exchanges, key=lambda each: each.is_correct is None)
    return [each for each in labelled_first if seen.is_first(each.facts.conversation)]


def telling_days(span_s: float) -> float | None:
    """Return the days in a span of seconds, or None for less than 0.8 days."""
    days = span_s / DAY_S
    return days if days >= LEAST_DAYS else None


def _days(exchanges: Sequence[Exchange]) -> float | None:
    """Return the days between the first and the last exchange, or None as `telling_days` does."""
    times = [each.at_s for each in exchanges if each.at_s is not None]
    return telling_days(max(times) - min(times)) if times else None


def _count_lacking(
    policy: Policy, exchanges: Sequence[Exchange], decisions: Sequence[Possible]
) -> Counter[str]:
    """Return for each missing fact how many exchanges have an unknown outcome because of it."""
    unknown = (
        e for e, possible in zip(exchanges, decisions, strict=True) if not _is_known(possible)
    )
    return Counter(name for each in unknown for name in sorted(each.lacks & policy.looks_at))


def _add_shares(exchanges: Sequence[Exchange], policy: Policy) -> list[Exchange]:
    """Return the exchanges with `share_below` added where a rule needs it and the record lacks it.

    It is computed as live: each confidence is ranked among the earlier ones of its model and
    checkpoint, one of each conversation.
    """
    conditions = (rule.when.confidence for rule in policy.rules)
    if not any(isinstance(condition, LowestShare) for condition in conditions):
        return list(exchanges)
    recent: defaultdict[tuple[str, str], RecentConfidences] = defaultdict(RecentConfidences)
    counted: defaultdict[tuple[str, str], SeenConversations] = defaultdict(SeenConversations)
    ranked = []
    for exchange in exchanges:
        facts = exchange.facts
        if facts.share_below is None and facts.confidence is not None:
            about = facts.model, (facts.calibrator or "").partition("+")[0]
            share = recent[about].share_below(facts.confidence)
            if counted[about].is_first(facts.conversation, exchange.at_s or 0.0):
                recent[about].add(facts.confidence)
            exchange = replace(exchange, facts=replace(facts, share_below=share))
        ranked.append(exchange)
    return ranked
