"""The reasons of a match, in words: the pattern that a call matched, the condition that held.

refund_order matches refund*
run_sql matches run_*, sql *DELETE*
confidence 0.8456 is below 0.9
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from policies.conditions.conditions import Calls, ToolCalls, When
from policies.conditions.confidence import Band, Confidence, LowestShare, MaxError
from policies.conditions.facts import UNREADABLE, Facts, ToolCall
from policies.conditions.findings import ON_FINDINGS, finding_reason
from policies.conditions.globs import Globs
from policies.conditions.tool_patterns import (
    ArgumentPattern,
    BooleanTest,
    NumberTest,
    TextTest,
    ToolPattern,
    WordsTest,
)
from policies.conditions.tool_words import Phrases, words_in
from policies.counting import plural
from policies.deciding.rules import Rule


def held_reasons(when: When, facts: Facts, calls: Calls) -> tuple[str, ...]:
    """Return in words why the conditions of a matched rule hold, each reason a phrase.

    First come the calls that match a tool pattern, such as `run_sql matches run_*`, then the
    confidence (if there is one), then the other conditions. Without a score, conditions on the
    calibrator's findings are left out.
    """
    found = [reason for call in calls if (reason := call_reason(when.tools, call))]
    if when.confidence is not None and facts.confidence is not None:
        found.append(_confidence_reason(when.confidence, facts))
    unknown = () if facts.confidence is not None else ON_FINDINGS
    left_out = {"tools", "confidence", *unknown}
    names = (name for name in when.condition_names() if name not in left_out)
    return (*found, *(_fact_reason(getattr(when, name), name, facts) for name in names))


def call_reason(tools: ToolCalls | None, call: ToolCall) -> str | None:
    """Return in words the first pattern that the call matches, such as `run_sql matches run_*`.

    Return None if there is no pattern, none matches, or the matching one fits every call.
    """
    for pattern in (tools.patterns or ()) if tools is not None else ():
        if pattern.match(call):
            text = _pattern(pattern, call)
            return f"{call.name} matches {text}" if text else None
    return None


def risk_of(rule: Rule, call: ToolCall) -> str | None:
    """Return for a reviewer which pattern of the rule the call matches, as `call_reason` does.

    None if there is no pattern, none matches, or the matching one fits every call.
    """
    return call_reason(rule.when.tools, call)


def threshold_of(rule: Rule) -> tuple[float, bool] | None:
    """Return (the rule's threshold of confidence, whether the rule is for replies below it).

    It is the upper end of a band that has one, else the lower end, or the threshold of the first
    grant. Return None for a rule without a condition on the confidence, with a share of the
    traffic, or with a `max_error` that is not certified.
    """
    condition = rule.when.confidence
    if isinstance(condition, Band):
        is_below = not math.isinf(condition.high)
        return (condition.high, True) if is_below else (condition.low, False)
    if isinstance(condition, MaxError) and condition.grants:
        return condition.grants[0].threshold, False
    return None


def _pattern(pattern: ToolPattern, call: ToolCall) -> str:
    """Return in words the parts of a pattern that the call matches, joined by commas.

    For example `run_*, sql *DELETE*`; "" for a pattern that every call matches.
    """
    name = _first(pattern.names, pattern.matched_name(call) or call.name)
    parts = [name] if name != "*" else []
    if pattern.words is not None:
        parts.append(f"the word {_either(sorted(pattern.words.words & {*words_in(call.name)}))}")
    parts += [_argument(each, call) for each in pattern.arguments]
    if pattern.marked is not None:
        found = [f"{arg} {mark}".strip() for mark, arg in pattern.marked.find_marks(call)[:3]]
        parts.append(f"marked {', '.join(found) or 'perhaps: its marks are not known'}")
    if pattern.risk is not None:
        parts.append(f"risk {call.risk or 'not known'}")
    return ", ".join(parts)


def _first(globs: Globs, text: str) -> str:
    """Return the first pattern that matches the text alone, else the first, or `*` without any."""
    alone = (each for each in globs.patterns if Globs((each,)).match(text))
    return next(alone, globs.patterns[0] if globs.patterns else "*")


def _argument(pattern: ArgumentPattern, call: ToolCall) -> str:
    """Return in words what the pattern wants of an argument: `with to`, `sql *DELETE*`."""
    name = ".".join(pattern.path) or "any argument"
    if pattern.is_present is not None and not pattern.tests and pattern.words is None:
        return f"with {name}" if pattern.is_present else f"without {name}"
    return " ".join([name, *_found_words(pattern, call), *map(_test, pattern.tests)])


def _found_words(pattern: ArgumentPattern, call: ToolCall) -> list[str]:
    """Return [`with drop or delete`], the listed phrases found in the call, at most three.

    Return [] for a pattern without phrases; if none is found alone, the first three are named.
    """
    if pattern.words is None:
        return []
    values = call.values()
    phrases = pattern.words.phrases.phrases
    found = [
        each
        for each in phrases
        if values is not UNREADABLE
        and replace(pattern, words=WordsTest(Phrases((each,)))).holds(values, if_unknown=False)
    ]
    return [f"with {_either(found or phrases[:3])}"]


def _either(words: Sequence[str]) -> str:
    return " or ".join(words[:3])


def _test(test: Any) -> str:
    """Return in words what an argument's test wants: `a* or b*`, `not a*`, `true`, `above 5`."""
    if isinstance(test, TextTest):
        return ("not " if test.is_not else "") + " or ".join(test.globs.patterns)
    if isinstance(test, BooleanTest):
        return str(test.wanted).lower()
    return _range(test) if isinstance(test, NumberTest) else str(test)


def _range(test: NumberTest) -> str:
    """Return a test's numbers in words: `5`, `above 5`, `at least 1 and at most 9`."""
    if test.low == test.high:
        return f"{test.low:g}"
    low = f"{'at least' if test.has_low else 'above'} {test.low:g}"
    high = f"{'at most' if test.has_high else 'below'} {test.high:g}"
    ends = [] if math.isinf(test.low) else [low]
    return " and ".join(ends if math.isinf(test.high) else [*ends, high])


def _confidence_reason(condition: Confidence, facts: Facts) -> str:
    """Return in words why a condition on the confidence holds: `confidence 0.4100 is below 0.5`.

    For a certified threshold: `confidence 0.9100 is at least the certified 0.83`.
    """
    text = f"confidence {facts.confidence:.4f}"
    if isinstance(condition, LowestShare):
        return f"{text} is {condition}"
    grant = condition.grant(facts) if isinstance(condition, MaxError) else None
    if grant is not None:
        return f"{text} is at least the certified {grant.threshold:g}"
    return f"{text} is {condition}"


def _fact_reason(condition: Any, name: str, facts: Facts) -> str:
    """Return in words why a condition on another fact holds: `model gpt-5 matches gpt-*`.

    `name` is the condition's name, also of the calls' number or risk, and of the findings.
    """
    if name in ON_FINDINGS:
        return finding_reason(name, condition, facts, holds=True)
    if name == "risk":
        risks = [call.risk for call in facts.tools if condition.match(call)]
        return f"risk is {risks[0] if risks and risks[0] else 'not known'}"
    if name == "calls":
        return plural(len(facts.tools), "tool call")
    if name == "tags":
        return f"tag {', '.join(sorted(condition & facts.tags))}"
    fact = getattr(facts, name)
    if isinstance(condition, Globs):
        pattern = _first(condition, fact)
        return f"{name} is {fact}" if pattern == fact else f"{name} {fact} matches {pattern}"
    return f"{name} is {str(fact).lower() if isinstance(fact, bool) else fact}"
