"""The rules of a long policy that can match a reply, found by facts that many replies share.

A policy of a thousand rules serves many teams, models and tools, and a reply belongs to one team
and one model, and calls few tools. So the conditions on these are tested once for each combination,
and the conditions on the single reply, above all its score, each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeAlias

from policies.conditions.conditions import CONDITIONS, Calls, When
from policies.conditions.facts import Facts
from policies.deciding.rules import CompiledRule, Rule, compile_rule

RulesFor: TypeAlias = Callable[[Facts, Calls], Sequence[CompiledRule]]
"""A function that returns the rules that can match facts and judged calls, in their order."""

MANY_RULES: Final = 16
"""The number of rules up to which reading all of them is faster than a look-up."""

_SHARED: Final = (
    *("model", "stream", "team", "key", "domain", "tags"),
    *("n", "finish_reason", "refusal"),
)
_OF_ONE_REPLY: Final = tuple(name for name in CONDITIONS if name not in (*_SHARED, "confidence"))
_REMEMBERED: Final = 512
_LONGEST: Final = 1_000  # characters chosen by clients in one cache key


def rules_for(rules: Sequence[Rule]) -> RulesFor:
    """Return a function of (facts, judged calls) that returns the compiled rules that can match.

    The returned rules are in the policy's order. Up to 16 rules, it leaves out only rules that need
    a tool call, for replies without one. More rules are narrowed down by a `RuleCache`.
    """
    if len(rules) > MANY_RULES:
        return RuleCache(rules).of
    every = tuple(compile_rule(index, rule) for index, rule in enumerate(rules))
    pairs = zip(every, rules, strict=True)
    for_text = tuple(each for each, rule in pairs if not rule.when.needs_tool_call)
    return lambda facts, calls: every if facts.tools else for_text


class RuleCache:
    """A policy's rules, with a cache of those that can match each of 512 combinations."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Compile the rules, each with only the tests on the single reply.

        The tests on facts that many replies share, such as model and team, run in the cached
        look-up.
        """
        self._whens = [rule.when for rule in rules]
        self._shared_tests = [when.tests_on(_SHARED) for when in self._whens]
        self._rules = [
            compile_rule(index, rule, rule.when.tests_on(_OF_ONE_REPLY))
            for index, rule in enumerate(rules)
        ]
        given = {name for when in self._whens for name in when.condition_names()}
        # Two names are always included, as an attrgetter of one name returns no tuple.
        self._names = [name for name in _SHARED if name in given or name in ("model", "stream")]
        self._shared = attrgetter(*self._names)
        self._remembered = lru_cache(_REMEMBERED)(self._narrow)

    def of(self, facts: Facts, calls: Calls) -> Sequence[CompiledRule]:
        """Return the compiled rules that can match these facts and judged calls, in order.

        Only conditions on the request, the end of the reply and the names of tools are tested here;
        the result for one combination is cached unless its names have more than 1,000 characters.
        """
        shared: tuple[Any, ...] = self._shared(facts)
        tools = tuple([call.name for call in calls])
        if any(call.readings != () for call in calls):  # names with other readings
            tools = tuple([name for call in calls for name in (call.name, *call.other_names())])
        narrow = self._remembered if _is_short(facts, tools) else self._narrow
        return narrow(shared, tools)

    def _narrow(self, shared: tuple[Any, ...], tools: tuple[str, ...]) -> tuple[CompiledRule, ...]:
        """Return the rules whose shared conditions hold and that can match calls of these tools.

        `shared` holds the values of the facts `self._names`, in that order.
        """
        facts = Facts(None, **dict(zip(self._names, shared, strict=True)))
        of_rules = zip(self._rules, self._whens, self._shared_tests, strict=True)
        return tuple(
            rule
            for rule, when, tests in of_rules
            if _may_call(when, tools) and all(test(facts, ()) for test in tests)
        )


def _may_call(when: When, tools: tuple[str, ...]) -> bool:
    """Return whether calls of tools with these names can match the rule, whatever their arguments.

    True for a rule without patterns of tools.
    """
    if when.tools is None or when.tools.patterns is None:
        return True
    return any(pattern.may_have_name(name) for pattern in when.tools.patterns for name in tools)


def _is_short(facts: Facts, tools: tuple[str, ...]) -> bool:
    """Return whether the texts that clients choose have at most 1,000 characters, so are cached."""
    chosen = (facts.model, facts.domain or "", facts.finish_reason or "", *facts.tags, *tools)
    return sum(map(len, chosen)) <= _LONGEST
