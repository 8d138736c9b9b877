"""Which streams a policy lets through live, and which have to be buffered until they are scored.

What has gone out cannot be held. A stream is therefore buffered as soon as the policy could do
anything but deliver it, judging by what is known when the request arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from policies.conditions import When
from policies.facts import Facts
from policies.policy import RESERVED_RULE_NAMES, Policy
from policies.reading import either


@dataclass(frozen=True, slots=True)
class StreamMode:
    """How a stream is sent; `rule` is what makes it wait, as in `Decision.rule`, or None."""

    mode: Literal["passthrough", "buffer"]
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class _Gate:
    """The mode of the streams that `when` admits, unless an earlier gate admits them."""

    when: When
    mode: Literal["passthrough", "buffer"]
    rule: str


def stream_mode(
    policy: Policy,
    *,
    model: str,
    domain: str | None = None,
    tags: frozenset[str] = frozenset(),
) -> StreamMode:
    """Return how the stream of a request for this model, domain and tags has to be sent."""
    if not policy.is_enforced:
        return StreamMode("passthrough")
    request = Facts(confidence=None, model=model, stream=True, domain=domain, tags=tags)
    gate = next(gate for gate in _gates(policy) if gate.when.admits(request))
    return StreamMode(gate.mode, gate.rule if gate.mode == "buffer" else None)


def stream_report(policy: Policy) -> list[str]:
    """Describe how streams are sent, a sentence per line; the first line that fits a stream counts.

    For example: `streams of claude-* are buffered by rule 'irreversible tools'`.
    """
    if not policy.is_enforced:
        return ["all streams pass through, as the policy is in shadow mode"]
    lines: dict[str, str] = {}
    for gate in _gates(policy):
        scope = _scope(gate.when)
        verb = "are buffered" if gate.mode == "buffer" else "pass through"
        reason = gate.rule if gate.rule in RESERVED_RULE_NAMES else f"rule {gate.rule!r}"
        rest = "all other streams" if lines else "all streams"
        lines.setdefault(scope, f"{scope or rest} {verb} by {reason}")
        if not scope:
            break
    return list(lines.values())


def _gates(policy: Policy) -> Iterator[_Gate]:
    """Yield what decides the mode, first match first; the last gate admits every stream."""
    for rule in policy.rules:
        if rule.when.stream is False:
            continue
        if rule.then.name != "deliver":
            yield _Gate(rule.when, "buffer", rule.name)
        elif rule.when.confidence is not None and policy.on_score_error.name != "deliver":
            yield _Gate(rule.when, "buffer", "on_score_error")
        elif not rule.when.looks_at_reply:
            yield _Gate(rule.when, "passthrough", rule.name)
    mode: Literal["passthrough", "buffer"]
    mode = "passthrough" if policy.default.name == "deliver" else "buffer"
    yield _Gate(When(), mode, "default")


def _scope(when: When) -> str:
    """Name the streams that the conditions on the request admit; empty for all of them."""
    parts = []
    if when.model:
        parts.append(f"of {either(when.model.patterns)}")
    if when.domain:
        parts.append(f"in domain {either(when.domain.patterns)}")
    if when.tags:
        parts.append(f"tagged {either(sorted(when.tags))}")
    return " ".join(("streams", *parts)) if parts else ""
