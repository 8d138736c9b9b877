"""The conditions of a rule, its `when`, compiled while the policy is read.

A `When` holds for facts where every given condition holds; one without conditions always holds.
Conditions on the request (model, team, key, domain, tags, stream) can be judged before there is a
reply. With these, `policies.deciding.streams` decides whether a stream has to be buffered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeAlias

from policies.conditions.call_notes import RISK, Risk
from policies.conditions.confidence import BAND, CONFIDENCE, Confidence, LowestShare, MaxError
from policies.conditions.facts import Facts, ToolCall
from policies.conditions.findings import ON_FINDINGS, Basis, Support
from policies.conditions.globs import Globs
from policies.conditions.tool_patterns import EVERYTHING, GLOBS, TOOL_PATTERNS, ToolPattern
from policies.reading.reading import Node, abbreviate
from policies.reading.shapes import FLAG, TEXT_SET, Shape, mapping, or_mapping, whole

Calls: TypeAlias = tuple[ToolCall, ...]
Test: TypeAlias = Callable[[Facts, Calls], bool]
"""A test of one condition on facts and the judged calls: one call of the reply, or all of them."""


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """A condition on the tool calls of a reply; with `patterns` None, that there is no call."""

    patterns: tuple[ToolPattern, ...] | None

    def match(self, calls: Calls) -> bool:
        """Return whether any call matches any pattern.

        With `patterns` None, whether there is no call.
        """
        if self.patterns is None:
            return not calls
        # A generator in any() would double the time of a decision.
        for call in calls:
            for pattern in self.patterns:
                if pattern.match(call):
                    return True
        return False


@dataclass(frozen=True, slots=True)
class When:
    """The conditions of one rule; None means that a condition is not given."""

    confidence: Confidence | None = None
    model: Globs | None = None
    team: Globs | None = None
    key: Globs | None = None
    domain: Globs | None = None
    tags: frozenset[str] | None = None
    stream: bool | None = None
    n: range | None = None
    finish_reason: frozenset[str] | None = None
    refusal: bool | None = None
    length: range | None = None
    calls: range | None = None
    tools: ToolCalls | None = None
    risk: Risk | None = None
    support: Support | None = None
    basis: Basis | None = None
    act: frozenset[str] | None = None
    needs_facts: bool | None = None
    familiar: bool | None = None

    tests: tuple[Test, ...] = field(init=False, repr=False, compare=False)
    """A test for each given condition except confidence, the cheapest first."""
    request_tests: tuple[Test, ...] = field(init=False, repr=False, compare=False)
    """The tests that look at the request alone."""

    def __post_init__(self) -> None:
        """Compile the given conditions: set `request_tests` and `tests`."""
        of_request, of_reply = self.tests_on(ON_REQUEST), self.tests_on(ON_REPLY)
        object.__setattr__(self, "request_tests", of_request)
        object.__setattr__(self, "tests", of_request + of_reply)

    def tests_on(self, names: Iterable[str]) -> tuple[Test, ...]:
        """Return one test for each condition in `names`, such as `model`, that is given."""
        conditions = ((name, getattr(self, name)) for name in names)
        return tuple(
            _test(name, condition) for name, condition in conditions if condition is not None
        )

    def admits(self, facts: Facts) -> bool:
        """Return whether the conditions on the request hold; the reply is not looked at."""
        return all(test(facts, ()) for test in self.request_tests)

    def holds(self, facts: Facts, calls: Calls | None = None) -> bool:
        """Return whether all conditions hold for a reply; True where there are none.

        `calls` are the tool calls that are judged, by default all calls of the reply. Without a
        confidence, conditions on it and on findings (`support`, `act` ..) hold.
        """
        calls = facts.tools if calls is None else calls
        if self.confidence is not None and not self.confidence.holds(facts):
            return False
        return all(test(facts, calls) for test in self.tests)

    def for_delivery(self) -> When:
        """Return a copy for a rule that delivers the reply.

        Calls that cannot be read, and marks or risks that are unknown, then match no pattern.
        """
        tools, risk = self.tools, self.risk
        if tools is not None and tools.patterns is not None:
            tools = ToolCalls(tuple(each.for_delivery() for each in tools.patterns))
        return replace(self, tools=tools, risk=risk and replace(risk, if_unknown=False))

    def condition_names(self) -> list[str]:
        """Return the given conditions' names as in YAML, such as `["confidence", "tools"]`."""
        return [name for name in CONDITIONS if getattr(self, name) is not None]

    @property
    def facts(self) -> frozenset[str]:
        """The names of the facts that the conditions look at.

        `arguments` are those of tool calls, and `marks` are the marks and the risk of calls.
        """
        names = {"tools" if name == "calls" else name for name in self.condition_names()}
        if isinstance(self.confidence, LowestShare):
            names.add("share_below")
        if isinstance(self.confidence, MaxError):
            names.add("calibrator")
        if self.tools is not None and any(each.arguments for each in self.tools.patterns or ()):
            names.add("arguments")
        patterns = (self.tools.patterns or ()) if self.tools is not None else ()
        if self.risk is not None or any(each.needs_notes for each in patterns):
            names = (names | {"marks"}) - {"risk"}
        return frozenset(names)

    @property
    def needs_score(self) -> bool:
        """Whether this looks at the confidence or at facts that are determined with it."""
        if self.confidence is not None or self.risk is not None:
            return True
        patterns = (self.tools.patterns or ()) if self.tools is not None else ()
        if patterns and all(each.needs_notes for each in patterns):
            return True
        return any(getattr(self, name) is not None for name in ON_FINDINGS)

    @property
    def needs_tool_call(self) -> bool:
        """Whether this can only hold for a reply that calls a tool."""
        if self.risk is not None or (self.calls is not None and 0 not in self.calls):
            return True
        return self.tools is not None and self.tools.patterns is not None

    @property
    def looks_at_reply(self) -> bool:
        """Whether the request alone cannot decide this."""
        return any(name == "confidence" or name in ON_REPLY for name in self.condition_names())


def _test(name: str, condition: Any) -> Test:
    """Return the test of one condition, which compares the fact of the same name.

    `name` is a key such as `model`, `condition` its value in a `When`. Without a score, conditions
    on findings hold, as those on the confidence do: the rule then hands over to `on_score_error`.
    """
    if name in ON_FINDINGS:
        return _test_of_finding(name, condition)
    if name == "tools":
        match_calls = condition.match
        return lambda facts, calls: match_calls(calls)
    if name == "risk":
        has_risk = condition.match
        return lambda facts, calls: any(map(has_risk, calls))
    if name == "calls":
        return lambda facts, calls: len(facts.tools) in condition
    if name == "tags":
        return lambda facts, calls: not condition.isdisjoint(facts.tags)
    fact = attrgetter(name)
    if name == "model" and (prefixes := condition.prefixes):  # most frequent, never None
        return lambda facts, calls: facts.model.startswith(prefixes)
    if isinstance(condition, Globs) and (prefixes := condition.prefixes):
        return lambda facts, calls: (text := fact(facts)) is not None and text.startswith(prefixes)
    if isinstance(condition, Globs):
        match = condition.match
        return lambda facts, calls: match(fact(facts))
    if isinstance(condition, bool):
        return lambda facts, calls: fact(facts) is condition
    return lambda facts, calls: fact(facts) in condition


def _test_of_finding(name: str, condition: Any) -> Test:
    """Return the test of a condition on a finding, such as `support`, `act` or `familiar`.

    The test is True where the facts have no confidence; otherwise it compares the finding.
    """
    if isinstance(condition, Support | Basis):
        holds = condition.holds
        return lambda facts, calls: facts.confidence is None or holds(facts)
    fact = attrgetter(name)
    if isinstance(condition, bool):
        return lambda facts, calls: facts.confidence is None or fact(facts) is condition
    return lambda facts, calls: facts.confidence is None or fact(facts) in condition


def test_of(when: When, name: str) -> Test:
    """Return the test of the condition `name`, which has to be given.

    `confidence` is allowed too.
    """
    if name == "confidence" and when.confidence is not None:
        holds = when.confidence.holds
        return lambda facts, calls: holds(facts)
    return _test(name, getattr(when, name))


def _when(node: Node, **conditions: Any) -> When:
    """Build the conditions from their values.

    Report `tools: none` beside `calls` of at least one.
    """
    when = When(**conditions)
    if when.tools == ToolCalls(None) and when.calls is not None and 0 not in when.calls:
        node["calls"].report(f"{node} can never hold: it asks for calls and for none")
    return when


def _tools(node: Node) -> ToolCalls:
    """Read `any`, `none` or a list of tool patterns.

    Report anything else and return as for `none`.
    """
    if node.value == "none":
        return ToolCalls(None)
    if node.value == "any":
        return ToolCalls((ToolPattern(EVERYTHING),))
    if not isinstance(node.value, list):
        node.report(
            f"{node} must be a list of tool names, any or none, not {abbreviate(node.value)}"
        )
        return ToolCalls(None)
    return ToolCalls(TOOL_PATTERNS.read(node))


def _count(least: int) -> Shape[range]:
    """Return the shape of a count of at least `least`, read as a `range` of allowed counts.

    It reads a whole number (`3` is `range(3, 4)`), `{at_least: 2}`, `{below: 5}` or both.
    """
    exact = whole(least)
    keys = {"at_least": exact, "below": exact}
    return or_mapping(
        Shape(lambda node: range(count := exact.read(node), count + 1), exact.schema),
        mapping(partial(_range, least), keys, needs=tuple(keys)),
    )


def _range(
    least: int, node: Node, *, at_least: int | None = None, below: int = sys.maxsize
) -> range:
    """Return the range from `at_least` (or `least`) up to, but not including, `below`.

    Report an empty range at `node`.
    """
    low = least if at_least is None else at_least
    if low >= below:
        node.report(f"{node} can never hold: nothing is at least {low} and below {below}")
    return range(low, below)


ON_REQUEST: Final[Mapping[str, Shape[Any]]] = {
    "stream": FLAG,
    **dict.fromkeys(("model", "team", "key", "domain"), GLOBS),
    "tags": TEXT_SET,
}
"""The conditions on requests, by name."""
ON_REPLY: Final[Mapping[str, Shape[Any]]] = {
    "n": _count(1),
    "finish_reason": TEXT_SET,
    "refusal": FLAG,
    "length": _count(0),
    "calls": _count(0),
    "tools": Shape(_tools, {"anyOf": [{"enum": ["any", "none"]}, TOOL_PATTERNS.schema]}),
    "risk": RISK,
    **ON_FINDINGS,
}
"""The conditions on replies, by name."""
CONDITIONS: Final = {"confidence": CONFIDENCE, **ON_REQUEST, **ON_REPLY}
"""All conditions, by name."""
WHEN: Final = mapping(_when, CONDITIONS)
WHEN_REQUESTED: Final = mapping(_when, ON_REQUEST)
"""Conditions on requests alone."""
WHEN_IN_BAND: Final = mapping(_when, CONDITIONS | {"confidence": BAND})
"""Conditions of which the one on confidence has fixed bounds."""
