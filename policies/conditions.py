"""The conditions of a rule, its `when`, compiled while the policy is read.

A `When` holds for facts where every condition given holds; one without conditions always does.
Conditions on the request (model, domain, tags, stream) can be judged before there is a reply,
which is how `policies.streams` knows whether a stream has to be buffered.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Final, TypeVar

from policies.facts import Facts, ToolCall
from policies.reading import Node, either, shown

_WHEN: Final = ("confidence", "model", "tools", "stream", "finish_reason", "n", "domain", "tags")
_WHEN_LATER: Final = ("team", "key", "refusal", "length")
_CONFIDENCE: Final = ("below", "at_least", "between")
_CONFIDENCE_LATER: Final = ("max_error", "lowest_share")

Condition = TypeVar("Condition")


@dataclass(frozen=True, slots=True)
class Globs:
    """Patterns of which one must match, case-sensitively: `*`, `?` and `[ab]`, as in a shell."""

    patterns: tuple[str, ...]
    _match: Callable[[str], object] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled = re.compile("|".join(translate(pattern) for pattern in self.patterns))
        object.__setattr__(self, "_match", compiled.match)

    def match(self, text: str | None) -> bool:
        """Whether a pattern matches the whole text; None, an unknown name, never does."""
        return text is not None and self._match(text) is not None


@dataclass(frozen=True, slots=True)
class Band:
    """The confidences from `low` up to, but without, `high`."""

    low: float = 0.0
    high: float = math.inf


@dataclass(frozen=True, slots=True)
class ToolNames:
    """The names of the tools that a reply calls; `globs` of None stands for no call at all."""

    globs: Globs | None

    def match(self, calls: tuple[ToolCall, ...]) -> bool:
        """Whether at least one call matches, or, without globs, whether there is none."""
        if self.globs is None:
            return not calls
        # any() with its generator would double the time of a decision
        for call in calls:  # noqa: SIM110
            if self.globs.match(call.name):
                return True
        return False


@dataclass(frozen=True, slots=True)
class When:
    """The conditions of one rule; None stands for a condition that is not given."""

    confidence: Band | None = None
    model: Globs | None = None
    tools: ToolNames | None = None
    stream: bool | None = None
    finish_reason: frozenset[str] | None = None
    n: range | None = None
    domain: Globs | None = None
    tags: frozenset[str] | None = None

    def admits(self, facts: Facts) -> bool:
        """Whether the conditions on the request hold; nothing of the reply is looked at."""
        return (
            (self.stream is None or self.stream == facts.stream)
            and (self.model is None or self.model.match(facts.model))
            and (self.domain is None or self.domain.match(facts.domain))
            and (self.tags is None or not self.tags.isdisjoint(facts.tags))
        )

    def holds(self, facts: Facts) -> bool:
        """Whether all conditions hold, where a missing score may be any score."""
        band, confidence = self.confidence, facts.confidence
        return (
            (band is None or confidence is None or band.low <= confidence < band.high)
            and (self.n is None or facts.n in self.n)
            and (self.finish_reason is None or facts.finish_reason in self.finish_reason)
            and (self.tools is None or self.tools.match(facts.tools))
            and self.admits(facts)
        )

    @property
    def needs_tool_call(self) -> bool:
        """Whether this can only hold for a reply that calls a tool."""
        return self.tools is not None and self.tools.globs is not None

    @property
    def looks_at_reply(self) -> bool:
        """Whether the request alone cannot tell that this holds."""
        on_reply = (self.confidence, self.tools, self.finish_reason, self.n)
        return any(condition is not None for condition in on_reply)


def read_when(node: Node) -> When:
    """Read the mapping under `when`; problems are reported, see `policies.reading`."""
    node.check_keys(_WHEN, later=_WHEN_LATER)
    return When(
        confidence=_read(node["confidence"], _band),
        model=_read(node["model"], _globs),
        tools=_read(node["tools"], _tools),
        stream=_read(node["stream"], _stream),
        finish_reason=_read(node["finish_reason"], _words),
        n=_read(node["n"], _count),
        domain=_read(node["domain"], _globs),
        tags=_read(node["tags"], _words),
    )


def _read(node: Node, reader: Callable[[Node], Condition]) -> Condition | None:
    return reader(node) if node.is_present else None


def _globs(node: Node) -> Globs:
    return Globs(node.texts())


def _words(node: Node) -> frozenset[str]:
    return frozenset(node.texts())


def _stream(node: Node) -> bool:
    if not isinstance(node.value, bool):
        node.report(f"{node} must be true or false, not {shown(node.value)}")
    return node.value is True


def _tools(node: Node) -> ToolNames:
    if node.value == "none":
        return ToolNames(None)
    if node.value == "any":
        return ToolNames(Globs(("*",)))
    if not isinstance(node.value, list):
        node.report(f"{node} must be a list of tool names, any or none, not {shown(node.value)}")
        return ToolNames(None)
    return ToolNames(_globs(node))


def _count(node: Node) -> range:
    is_open = isinstance(node.value, dict)
    if is_open:
        node.check_keys(("at_least",), required=("at_least",))
        node = node["at_least"]
    count = node.value
    if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
        return range(count, sys.maxsize if is_open else count + 1)
    if node.is_present:
        node.report(f"{node} must be a whole number from 1, not {shown(count)}")
    return range(0)


def _band(node: Node) -> Band:
    node.check_keys(_CONFIDENCE, later=_CONFIDENCE_LATER)
    if not node.value:
        node.report(f"{node} needs {either(_CONFIDENCE)}")
    below, at_least, between = (node[key] for key in _CONFIDENCE)
    if between.is_present:
        if below.is_present or at_least.is_present:
            between.report(f"{between} stands alone, without below and at_least")
        if not isinstance(between.value, list) or len(between.value) != 2:
            between.report(f"{between} must be two numbers, as in [0.2, 0.5]")
            return Band()
        at_least, below = between.items()
    band = Band(_probability(at_least, 0.0), _probability(below, math.inf))
    if band.low >= band.high:
        node.report(
            f"{node} can never hold: nothing is at least {band.low:g} and below {band.high:g}"
        )
    return band


def _probability(node: Node, default: float) -> float:
    number = node.value
    if not node.is_present:
        return default
    if isinstance(number, bool) or not isinstance(number, int | float):
        node.report(f"{node} must be a number from 0 to 1, not {shown(number)}")
        return default
    if not 0 <= number <= 1:
        is_percentage = 2 <= number <= 100
        hint = f"; did you mean {number / 100:g}?" if is_percentage else f", not {number}"
        node.report(f"confidence is a probability, 0 to 1{hint}")
        return default
    return float(number)
