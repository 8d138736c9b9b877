"""Rules: read in order, with names that are safe in a header, and compiled for matching."""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from policies.conditions.conditions import WHEN, Test, When, test_of
from policies.conditions.confidence import Band
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
        given = _RULE.read(item)
        name, then, when = given["name"], given["then"], given.get("when", When())
        is_shadow = given.get("shadow", False)
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
    lambda node, **given: given,
    {
        "name": Shape(TEXT.read, {**TEXT.schema, "maxLength": MAX_RULE_NAME}),
        "when": Shape(WHEN.read, {"$ref": "#/$defs/when"}),
        "then": ACTION,
        "shadow": FLAG,
    },
    required=("name", "then"),
)
RULES: Final = Shape(read_rules, nullable({"type": "array", "items": _RULE.schema}))


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


def canonical(value: Value) -> bytes:
    """Return a value's JSON as bytes, with sorted keys and without spaces.

    So the same meaning gives the same bytes, whatever the key order, comments and layout.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
