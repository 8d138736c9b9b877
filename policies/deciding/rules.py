"""Rules: read in order, with names that are safe in a header, and compiled for matching.

A policy of a thousand rules serves many teams, models and tools, and a reply belongs to one team
and one model, and calls few tools. So the conditions on these are tested once for each combination,
and the conditions on the single reply, above all its score, each time.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeAlias

from policies.conditions.conditions import CONDITIONS, WHEN, Calls, Test, When, test_of
from policies.conditions.confidence import Band
from policies.conditions.facts import Facts
from policies.deciding.actions import ACTION, Action, Annotate, Deliver
from policies.reading.reading import Node, abbreviate
from policies.reading.shapes import FLAG, TEXT, Shape, mapping, nullable
from policies.reading.yaml_builder import Value

RESERVED_RULE_NAMES: Final = ("default", "on_score_error", "ask")
"""The words used instead of a rule's name where no rule decided."""

MAX_RULE_NAME: Final = 64

CompiledRule: TypeAlias = tuple[float, float, tuple[Test, ...], int, bool, bool]
"""The lowest confidence, the excluded upper bound, the other tests, the rule's index, whether it
needs a score, and whether it is in shadow."""

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


@dataclass(frozen=True, slots=True)
class Rule:
    """An action for the completions for which the conditions hold.

    A match of a rule in shadow is recorded only; the rules below it decide.
    """

    name: str
    when: When
    then: Action
    is_shadow: bool = False
    line: int = field(default=1, compare=False)
    digest: str = field(default="", compare=False)
    """A hash of the rule's conditions and those of the deciding rules above it."""


@lru_cache(maxsize=4_096)
def slug(rule_name: str) -> str:
    """Return a rule's name in ASCII that is safe in a header: `Surely right!` -> `surely-right`.

    Accents are dropped, other letters become their escapes (`u4e2d`), and the result is "" where
    the name has no letter or digit.
    """
    decomposed = unicodedata.normalize("NFKD", rule_name.lower())
    letters = "".join(each for each in decomposed if not unicodedata.combining(each))
    ascii_only = letters.encode("ascii", "backslashreplace").decode("ascii")
    return re.sub(r"[^a-z0-9_]+", "-", ascii_only).strip("-")


def read_rules(node: Node) -> tuple[Rule, ...]:
    """Read the list of rules and return them in order, each with its digest and line.

    A rule that delivers or annotates gets conditions that an unknown tool call fails
    (`When.for_delivery`). Reported are bad or repeated names, a delivery with a notice in a rule
    about tool calls and, if there are no other problems, rules below one that matches everything.
    """
    rules: list[Rule] = []
    taken: dict[str, str] = {}
    above = hashlib.sha256()
    for item in node.items():
        values = _RULE.read(item)
        name, then, when = values["name"], values["then"], values.get("when", When())
        is_shadow = values.get("shadow", False)
        _check_rule_name(item["name"], name, taken)
        if isinstance(then, Deliver) and then.notice is not None and when.needs_tool_call:
            item["then"].report(
                f"{item['then']} puts a notice behind the text of a reply, and the rule is about "
                "tool calls; annotate them, or hold them"
            )
        if isinstance(then, Deliver | Annotate):
            when = when.for_delivery()
        conditions = above.copy()
        conditions.update(canonical(item["when"].value))
        rules.append(Rule(name, when, then, is_shadow, item.line, conditions.hexdigest()[:16]))
        if not is_shadow:
            above = conditions
    # A misspelt `when` looks like no conditions, so this is checked only without other problems.
    if not node.problems:
        _check_reachable(node.items(), rules)
    return tuple(rules)


def _check_rule_name(node: Node, name: str, taken: dict[str, str]) -> None:
    """Report a rule's name that is unusable, and add its slug to `taken`, a name by slug.

    Unusable are names over 64 characters, without a letter or digit, with a reserved slug such as
    `default`, or with a slug that an earlier rule has.
    """
    label = slug(name)
    if len(name) > MAX_RULE_NAME:
        node.report(f"{node} must be at most {MAX_RULE_NAME} characters long")
    elif name and not label:
        node.report(f"{node} must contain a letter or digit, not {abbreviate(name)}")
    elif label in RESERVED_RULE_NAMES:
        node.report(f"{node} cannot be {abbreviate(name)}, the word for a decision without a rule")
    elif taken.get(label) == name:
        node.report(f"duplicate rule name {abbreviate(name)}")
    elif label in taken:
        node.report(f"rule name {abbreviate(name)} is {label!r} in headers, as is {taken[label]!r}")
    if label:
        taken.setdefault(label, name)


def _check_reachable(items: list[Node], rules: list[Rule]) -> None:
    """Report each item below the first rule outside shadow that has no conditions.

    `items` are the nodes of `rules`, in the same order.
    """
    for index, rule in enumerate(rules):
        if rule.when == When() and not rule.is_shadow:
            for item in items[index + 1 :]:
                item.report(f"{item} can never match: rule {rule.name!r} has no conditions")
            return


_RULE: Final = mapping(
    lambda node, **values: values,
    {
        "name": Shape(TEXT.read, {**TEXT.schema, "maxLength": MAX_RULE_NAME}),
        "when": Shape(WHEN.read, {"$ref": "#/$defs/when"}),
        "then": ACTION,
        "shadow": FLAG,
    },
    required=("name", "then"),
)
RULES: Final = Shape(read_rules, nullable({"type": "array", "items": _RULE.schema}))


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


def compile_rule(index: int, rule: Rule, tests: tuple[Test, ...] | None = None) -> CompiledRule:
    """Return the rule as the tuple `CompiledRule`, with its bounds of confidence and its tests.

    A rule without a band of confidence has infinite bounds; its certified or relative condition on
    confidence becomes one more test. `tests` are those of all other conditions, by default of all
    that are given.
    """
    condition, tests = rule.when.confidence, rule.when.tests if tests is None else tests
    if condition is None:
        return -math.inf, math.inf, tests, index, rule.when.needs_score, rule.is_shadow
    if isinstance(condition, Band):
        return condition.low, condition.high, tests, index, True, rule.is_shadow
    by_confidence = test_of(rule.when, "confidence")
    return -math.inf, math.inf, (*tests, by_confidence), index, True, rule.is_shadow


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
        used = {name for when in self._whens for name in when.condition_names()}
        # Two names are always included, as an attrgetter of one name returns no tuple.
        self._names = [name for name in _SHARED if name in used or name in ("model", "stream")]
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


def canonical(value: Value) -> bytes:
    """Return a value's JSON as bytes, with sorted keys and without spaces.

    So the same meaning gives the same bytes, whatever the key order, comments and layout.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
