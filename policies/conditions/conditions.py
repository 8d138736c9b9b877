"""The conditions of a rule, its `when`, compiled while the policy is read.

A `When` holds for facts where every given condition holds; one without conditions always holds.
Conditions on the request (model, team, key, domain, tags, stream) can be judged before there is a
reply. With these, `policies.deciding.streams` decides whether a stream has to be buffered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

from policies.conditions.call_notes import Risk, read_risk
from policies.conditions.confidence import Confidence, LowestShare, MaxError, read_confidence
from policies.conditions.facts import Facts, ToolCall
from policies.conditions.findings import (
    ON_FINDINGS,
    Basis,
    Support,
    read_act,
    read_basis,
    read_support,
)
from policies.conditions.globs import Globs
from policies.conditions.tool_patterns import ToolPattern, read_tool_patterns
from policies.reading.reading import Node, abbreviate

Calls: TypeAlias = tuple[ToolCall, ...]
Test: TypeAlias = Callable[[Facts, Calls], bool]
"""A test of one condition on facts and the judged calls: one call of the reply, or all of them."""

ON_REQUEST: Final = ("stream", "model", "team", "key", "domain", "tags")
ON_REPLY: Final = (
    *("n", "finish_reason", "refusal", "length", "calls", "tools", "risk"),
    *ON_FINDINGS,
)
CONDITIONS: Final = ("confidence", *ON_REQUEST, *ON_REPLY)

Condition = TypeVar("Condition")


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """A condition on the tool calls of a reply; `patterns` of None means that there is no call."""

    patterns: tuple[ToolPattern, ...] | None

    def match(self, calls: Calls) -> bool:
        """Return whether a call matches a pattern, or without patterns whether there is no call."""
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
        of_request, of_reply = self.tests_on(ON_REQUEST), self.tests_on(ON_REPLY)
        object.__setattr__(self, "request_tests", of_request)
        object.__setattr__(self, "tests", of_request + of_reply)

    def tests_on(self, names: Sequence[str]) -> tuple[Test, ...]:
        """Return one test for each given condition among these names."""
        given = ((name, getattr(self, name)) for name in names)
        return tuple(_test(name, condition) for name, condition in given if condition is not None)

    def admits(self, facts: Facts) -> bool:
        """Return whether the conditions on the request hold; the reply is not looked at."""
        return all(test(facts, ()) for test in self.request_tests)

    def holds(self, facts: Facts, calls: Calls | None = None) -> bool:
        """Return whether all conditions hold; without a score, conditions on the score hold.

        `calls` are the tool calls that are judged, by default all calls of the reply.
        """
        calls = facts.tools if calls is None else calls
        if self.confidence is not None and not self.confidence.holds(facts):
            return False
        return all(test(facts, calls) for test in self.tests)

    def condition_names(self) -> list[str]:
        """Return the names of the given conditions, as in YAML."""
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
    """Return the test of one condition, which looks at the fact of the same name.

    Without a score, conditions on findings hold, as those on the confidence do: the rule then
    hands over to `on_score_error`.
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
    if isinstance(condition, Support | Basis):
        holds = condition.holds
        return lambda facts, calls: facts.confidence is None or holds(facts)
    fact = attrgetter(name)
    if isinstance(condition, bool):
        return lambda facts, calls: facts.confidence is None or fact(facts) is condition
    return lambda facts, calls: facts.confidence is None or fact(facts) in condition


def test_of(when: When, name: str) -> Test:
    """Return the test of one given condition, confidence included."""
    if name == "confidence" and when.confidence is not None:
        holds = when.confidence.holds
        return lambda facts, calls: holds(facts)
    return _test(name, getattr(when, name))


def read_when(node: Node, *, restrains: bool = True) -> When:
    """Read the mapping under `when`; problems are reported, see `policies.reading.reading`.

    `restrains` is False for a rule that only delivers, see `policies.conditions.tool_patterns`.
    """
    node.check_keys(CONDITIONS)
    when = When(
        confidence=_read(node["confidence"], read_confidence),
        **read_request_conditions(node),
        n=_read(node["n"], lambda n: _count(n, at_least=1)),
        finish_reason=_read(node["finish_reason"], _words),
        refusal=_read(node["refusal"], _flag),
        length=_read(node["length"], _count),
        calls=_read(node["calls"], _count),
        tools=_read(node["tools"], lambda tools: _tools(tools, restrains)),
        risk=_read(node["risk"], lambda risk: read_risk(risk, if_unknown=restrains)),
        support=_read(node["support"], read_support),
        basis=_read(node["basis"], read_basis),
        act=_read(node["act"], read_act),
        needs_facts=_read(node["needs_facts"], _flag),
        familiar=_read(node["familiar"], _flag),
    )
    if when.tools == ToolCalls(None) and when.calls is not None and 0 not in when.calls:
        node["calls"].report(f"{node} can never hold: it asks for calls and for none")
    return when


def read_request_conditions(node: Node) -> dict[str, Any]:
    """Read the conditions of `ON_REQUEST`, as arguments of `When`."""
    globs = {name: _read(node[name], _globs) for name in ("model", "team", "key", "domain")}
    return globs | {
        "tags": _read(node["tags"], _words),
        "stream": _read(node["stream"], _flag),
    }


def _read(node: Node, reader: Callable[[Node], Condition]) -> Condition | None:
    return reader(node) if node.is_present else None


def _globs(node: Node) -> Globs:
    return Globs(node.texts())


def _words(node: Node) -> frozenset[str]:
    return frozenset(node.texts())


def _flag(node: Node) -> bool:
    return node.flag(default=False)


def _tools(node: Node, restrains: bool) -> ToolCalls:
    if node.value == "none":
        return ToolCalls(None)
    if node.value == "any":
        return ToolCalls((ToolPattern(Globs(("*",))),))
    if not isinstance(node.value, list):
        node.report(
            f"{node} must be a list of tool names, any or none, not {abbreviate(node.value)}"
        )
        return ToolCalls(None)
    return ToolCalls(read_tool_patterns(node, if_unknown=restrains))


def _count(node: Node, at_least: int = 0) -> range:
    """Read a whole number, `{at_least: 2}`, `{below: 5}` or both."""
    if not isinstance(node.value, dict):
        exact = _whole(node, at_least)
        return range(exact, exact + 1)
    node.check_keys(("at_least", "below"))
    if not node.value:
        node.report(f"{node} needs at_least or below")
    low = _whole(node["at_least"], at_least)
    high = _whole(node["below"], at_least) if node["below"].is_present else sys.maxsize
    if low >= high:
        node.report(f"{node} can never hold: nothing is at least {low} and below {high}")
    return range(low, high)


def _whole(node: Node, at_least: int) -> int:
    count = node.value
    if isinstance(count, int) and not isinstance(count, bool) and at_least <= count < sys.maxsize:
        return count
    if node.is_present:
        node.report(f"{node} must be a whole number from {at_least}, not {abbreviate(count)}")
    return at_least
