"""Warnings about suspicious but usable policies, printed by `pinocchio check`.

    for warning in lint(policy, tools=("send_email", "search")):
        print(warning)          # helpdesk.yaml:12: rule 'b' can never match: rule 'a' ...

They are about rules that never match because of those above, rules that contradict each other or
overlap so that their order decides, surer replies that are treated more strictly than less sure
ones, escalations in a circle, unknown tools, promises that no certificate keeps, and holds with
unsuitable replies.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, takewhile
from typing import Any, TypeAlias

from policies.conditions.conditions import ToolCalls, When
from policies.conditions.confidence import Band, MaxError
from policies.conditions.findings import Basis, Support
from policies.conditions.globs import Globs, is_literal
from policies.deciding.actions import Deliver, Escalate, Hold, severity
from policies.deciding.policy import Policy
from policies.deciding.rules import Rule
from policies.errors import Problem
from policies.reading.reading import suggestion

_EVERYTHING = Band(-math.inf, math.inf)
_Conditions: TypeAlias = tuple[Rule, Mapping[str, Any]]
"""A rule and its conditions by name, without confidence."""


def lint(policy: Policy, tools: Collection[str] = ()) -> list[Problem]:
    """Return the warnings about the policy in the order of their lines, [] without any.

    `tools` are the names of known tools; without them, no tool of a rule counts as unknown.
    """
    warnings = [
        *_unreachable(policy),
        *_overlapping_bands(policy),
        *_contradictory_rules(policy),
        *circles(policy),
        *_promises(policy),
        *_misplaced_replies(policy),
    ]
    if tools:
        warnings += _unknown_tools(policy, tools)
    return sorted(warnings, key=lambda warning: warning.line)


def _warning(policy: Policy, rule: Rule, message: str) -> Problem:
    """Return the problem `rule 'name' <message>` at the line of the rule."""
    return Problem(policy.source, rule.line, f"rule {rule.name!r} {message}")


def _unreachable(policy: Policy) -> Iterator[Problem]:
    """Yield a warning for each rule that can never match because rules above it decide first.

    It says whether one of them has the same conditions and another action. Rules in shadow decide
    nothing.
    """
    above: list[_Conditions] = []
    for rule in policy.rules:
        shadowing = _rules_shadowing(above, rule)
        if not rule.is_shadow:
            above.append((rule, _other_conditions(rule.when)))
        if shadowing:
            names = " and ".join(repr(each.name) for each in shadowing)
            they = "rule" if len(shadowing) == 1 else "rules"
            same = shadowing[0].when == rule.when and shadowing[0].then != rule.then
            reason = "has the same conditions and another action" if same else "decides before it"
            reason = reason if len(shadowing) == 1 else "decide before it"
            yield _warning(policy, rule, f"can never match: {they} {names} {reason}")


def _rules_shadowing(above: Sequence[_Conditions], rule: Rule) -> list[Rule]:
    """Return the rules above that together decide all that this rule could match, or [].

    `above` holds the rules above it that are not in shadow, with their other conditions.
    """
    narrow = _other_conditions(rule.when)
    return _rules_covering(rule, [each for each, wide in above if _covers(wide, narrow)])


def _rules_covering(rule: Rule, above: list[Rule]) -> list[Rule]:
    """Return the rules of `above` whose bands leave nothing of this rule's band, or [].

    All other conditions of the rules in `above` hold wherever this rule's do. It is a single rule
    if that has no condition on the confidence or the same one; otherwise they are in the order of
    lines.
    """
    for each in above:
        if each.when.confidence in (None, rule.when.confidence):
            return [each]
    wanted = _band(rule.when)
    if wanted is None:
        return []
    uncovered, used = max(wanted.low, 0.0), []
    banded = [(band, each) for each in above if (band := _band(each.when)) is not None]
    for band, each in sorted(banded, key=lambda pair: pair[0].low):
        if band.low <= uncovered < band.high:
            uncovered = band.high
            used.append(each)
    is_covered = uncovered >= wanted.high or uncovered > 1.0
    return sorted(used, key=lambda each: each.line) if is_covered else []


def _band(when: When) -> Band | None:
    """Return the confidences that a rule can match, without a condition all of them.

    None where they are not fixed: for a share of recent replies or a certified threshold.
    """
    if when.confidence is None:
        return _EVERYTHING
    return when.confidence if isinstance(when.confidence, Band) else None


def _covers(wide: Mapping[str, Any], narrow: Mapping[str, Any]) -> bool:
    """Return whether the conditions `wide` hold wherever those of `narrow` do.

    Both map names of conditions to conditions. False where it cannot be shown, for example where
    `wide` has a condition that `narrow` lacks.
    """
    return wide.keys() <= narrow.keys() and all(
        _condition_covers(condition, narrow[name]) for name, condition in wide.items()
    )


def _condition_covers(one: Any, other: Any) -> bool:
    """Return whether the condition `one` holds wherever `other`, on the same fact, does.

    False where it cannot be shown.
    """
    if isinstance(one, Globs):
        return one.covers(other)
    if isinstance(one, frozenset):
        return bool(one >= other)
    if isinstance(one, Support | Basis):
        return one.covers(other)
    if isinstance(one, range):
        return bool(one.start <= other.start and other.stop <= one.stop)
    if isinstance(one, ToolCalls) and one.patterns is not None and other.patterns is not None:
        mine = one.patterns
        return all(any(each.covers(pattern) for each in mine) for pattern in other.patterns)
    return bool(one == other)


def _other_conditions(when: When) -> Mapping[str, Any]:
    """Return the given conditions by name, without the one on the confidence."""
    return {name: getattr(when, name) for name in when.condition_names() if name != "confidence"}


def _comparable(policy: Policy) -> Iterator[tuple[Rule, Band, Rule, Band]]:
    """Yield (upper rule, its band, lower rule, its band) for rules that differ only in the band.

    Rules in shadow and those without a band of confidence are left out. Upper is the earlier one.
    """
    alike: defaultdict[Hashable, list[tuple[Rule, Band]]] = defaultdict(list)
    for rule in policy.rules:
        if not rule.is_shadow and isinstance(band := rule.when.confidence, Band):
            alike[tuple(_other_conditions(rule.when).items())].append((rule, band))
    for rules in alike.values():
        for (upper, one), (lower, other) in combinations(rules, 2):
            yield upper, one, lower, other


def _overlapping_bands(policy: Policy) -> Iterator[Problem]:
    """Yield a warning for each pair of bands that overlap without one being inside the other.

    The two rules differ only in band and action; with the same action there is no warning.
    """
    for upper, one, lower, other in _comparable(policy):
        low, high = max(one.low, other.low), min(one.high, other.high)
        is_partial = low < min(high, 1.0) and not (
            (one.low <= other.low and other.high <= one.high)
            or (other.low <= one.low and one.high <= other.high)
        )
        if is_partial and upper.then != lower.then:
            yield _warning(
                policy,
                lower,
                f"overlaps rule {upper.name!r}, which comes first and decides {Band(low, high)}",
            )


def _contradictory_rules(policy: Policy) -> Iterator[Problem]:
    """Yield a warning for each pair of rules that treats surer replies more strictly.

    The two rules differ only in their bands, which do not overlap, and their actions.
    """
    for upper, one, lower, other in _comparable(policy):
        for sure, unsure in (((upper, one), (lower, other)), ((lower, other), (upper, one))):
            is_surer = sure[1].low >= unsure[1].high
            if is_surer and severity(sure[0].then) > severity(unsure[0].then):
                yield _warning(
                    policy,
                    sure[0],
                    f"treats surer replies more strictly than rule {unsure[0].name!r} "
                    "treats less sure ones",
                )


def circles(policy: Policy) -> list[Problem]:
    """Return the first circle of escalations as a list of one problem, or [].

    In a circle, a rule escalates to a model that rules, by name, escalate back to where it began. A
    proxy refuses such a policy: asking an unsure model again gains nothing. Only the first is
    returned, as each rule of a circle finds it. Revisions do not count.
    """
    rules = [
        rule
        for rule in policy.rules
        if isinstance(rule.then, Escalate) and not rule.then.is_revision
    ]
    return list(filter(None, (_circle(policy, rule, rules) for rule in rules)))[:1]


def _circle(policy: Policy, rule: Rule, rules: list[Rule]) -> Problem | None:
    """Return a problem if a model that `rule` asks leads back to one that it escalates, else None.

    `rules` are all escalating rules; a model leads to those that rules about it ask.
    """
    assert isinstance(rule.then, Escalate)
    for to in rule.then.models:
        reached, waiting = {to}, [to]
        while waiting:
            model = waiting.pop()
            for each in rules:
                if isinstance(each.then, Escalate) and _escalates(policy, each, model):
                    waiting += [end for end in each.then.models if end not in reached]
                    reached.update(each.then.models)
        if again := [model for model in sorted(reached) if _escalates(policy, rule, model)]:
            way = to if to in again else f"{to} and so to {again[0]}"
            hint = f"decide about {again[0]} in a rule above it"
            message = f"escalates in a circle: to {way}, which it escalates; {hint}"
            return _warning(policy, rule, message)
    return None


def _escalates(policy: Policy, rule: Rule, model: str) -> bool:
    """Return whether the rule is about this model by name and can still match its replies.

    False for a rule in shadow or without a condition on the model, and where the rules above decide
    about all of the model's replies that it could match.
    """
    if rule.is_shadow or rule.when.model is None or not rule.when.model.match(model):
        return False
    narrowed = replace(rule, when=replace(rule.when, model=Globs((model,))))
    above = takewhile(lambda each: each.name != rule.name, policy.rules)
    deciding = [(each, _other_conditions(each.when)) for each in above if not each.is_shadow]
    return not _rules_shadowing(deciding, narrowed)


def _promises(policy: Policy) -> Iterator[Problem]:
    """Yield the warnings about each rule with `max_error`, a promised error rate.

    They are: no certificate grants it, so that the rule never matches; a threshold was certified
    for all replies and only some reach the rule; a missing score leads to delivery.
    """
    for index, rule in enumerate(policy.rules):
        condition = rule.when.confidence
        if not isinstance(condition, MaxError):
            continue
        if not condition.grants:
            reason = "does not grant it" if policy.certificate else "is not there"
            yield _warning(
                policy,
                rule,
                f"never matches: a certificate for max_error {condition.max_error:g} {reason}; "
                "`pinocchio certify` writes one",
            )
        is_partial = index > 0 or rule.when.condition_names() != ["confidence"]
        if is_partial and any(grant.scope.rule is None for grant in condition.grants):
            message = (
                "relies on a threshold certified for replies that do not all reach it; "
                f"certify it with --policy and --rule {rule.name!r}"
            )
            yield _warning(policy, rule, message)
        if policy.is_enforced and policy.on_score_error == Deliver():
            message = "promises an error rate, but on_score_error delivers what has no score"
            yield _warning(policy, rule, message)


def _misplaced_replies(policy: Policy) -> Iterator[Problem]:
    """Yield a warning for each hold whose reply does not suit the rule's completions.

    These are a placeholder text for tool calls, and `async` for streams.
    """
    for rule in policy.rules:
        if not isinstance(hold := rule.then, Hold):
            continue
        if rule.when.needs_tool_call and "placeholder" in (hold.reply, hold.otherwise):
            message = "answers tool calls with prose, which an agent takes for the model's own"
            yield _warning(policy, rule, f"{message}; leave `reply` out or make it an error")
        if rule.when.stream is True and hold.reply == "async":
            message = "is about streams, to which no 202 can be the answer"
            yield _warning(policy, rule, f"{message}; what `otherwise` says will be sent")


def _unknown_tools(policy: Policy, tools: Collection[str]) -> Iterator[Problem]:
    """Yield a warning for each tool name or pattern of a rule that fits no tool of `tools`.

    For example: `rule 'a' is about 'send_mail', which no known tool is; did you mean 'send_email'?`
    """
    for rule in policy.rules:
        patterns = (rule.when.tools.patterns if rule.when.tools else None) or ()
        for name in (name for pattern in patterns for name in pattern.names.patterns):
            if not any(map(Globs((name,)).match, tools)):
                hint = suggestion(name, tools) if is_literal(name) else ""
                yield _warning(policy, rule, f"is about {name!r}, which no known tool is{hint}")
