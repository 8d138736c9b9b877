"""The streams that a policy lets through live, and those that are buffered until they are scored.

Text that has gone out cannot be held. A stream is therefore buffered if the policy could do
anything but deliver it, judged by the facts of the request. Where only a tool call could lead to
that, text passes through and tool calls wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from policies.conditions.conditions import When
from policies.conditions.facts import Facts
from policies.deciding.actions import changes_reply
from policies.deciding.policy import Policy
from policies.deciding.rules import RESERVED_RULE_NAMES
from policies.reading.reading import either

Mode: TypeAlias = Literal["passthrough", "buffer_tools", "buffer"]


@dataclass(frozen=True, slots=True)
class StreamMode:
    """The way a stream is sent; `rule` is the reason for waiting, as in `Decision.rule`, or None.

    `buffer_tools` lets text through live and keeps tool calls back until they are scored.
    """

    mode: Mode
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class _Gate:
    """The mode of the streams that `when` admits.

    Any mode but `buffer_tools` ends the search.
    """

    when: When
    mode: Mode
    rule: str


def stream_mode(
    policy: Policy,
    *,
    model: str,
    domain: str | None = None,
    tags: frozenset[str] = frozenset(),
    team: str | None = None,
    key: str | None = None,
    n: int = 1,
) -> StreamMode:
    """Return how the stream of a request with these facts has to be sent under the policy.

    The mode is `passthrough` (with rule None) in shadow mode and where nothing can change the
    reply; `buffer_tools` with the first rule's name where only rules about tool calls can; and
    `buffer` with the rule's name, `default` or `on_score_error` where text can be changed too. A
    rule that delivers whatever the reply is ends the search. A request that the policy asks several
    models or times (`Policy.ask`) gives `buffer` with the rule `ask`. `n` is the number of choices
    that the client asks for.
    """
    request = Facts(None, model, stream=True, n=n, domain=domain, tags=tags, team=team, key=key)
    if not policy.is_enforced:
        return StreamMode("passthrough")
    if policy.ask is not None and len(policy.ask.models_for(request)) > 1:
        return StreamMode("buffer", "ask")
    mode = StreamMode("passthrough")
    for gate in _gates(policy):
        if not gate.when.admits(request):
            continue
        if gate.mode == "buffer":
            return StreamMode("buffer", gate.rule)
        if gate.mode == "passthrough":
            break
        if mode.mode == "passthrough":
            mode = StreamMode("buffer_tools", gate.rule)
    return mode


def stream_report(policy: Policy) -> list[str]:
    """Return sentences on how the policy's streams are sent; the first that fits a stream counts.

    For example: `streams of claude-* are buffered by rule 'irreversible tools'`. Lines about tool
    calls in streams apply in addition to the first other line. `Policy.ask` comes first and ends
    the list where it is about all streams.
    """
    if policy.ask is not None and policy.is_enforced:
        scope = _scope(policy.ask.when) or "all streams"
        asking = f"{scope} are buffered by ask"
        return [asking] if scope == "all streams" else [asking, *_rule_report(policy)]
    return _rule_report(policy)


def _rule_report(policy: Policy) -> list[str]:
    """Return the sentences of `stream_report` that follow from the mode, the rules and the default.

    A policy in shadow mode has a single sentence. Otherwise there is one for each set of streams,
    such as `all other streams pass through by default`, up to the first about all of them.
    """
    if not policy.is_enforced:
        return ["all streams pass through, as the policy is in shadow mode"]
    lines: dict[tuple[str, bool], str] = {}
    is_first = True
    for gate in _gates(policy):
        scope, is_tools = _scope(gate.when), gate.mode == "buffer_tools"
        rest = "all streams" if is_first or is_tools else "all other streams"
        reason = gate.rule if gate.rule in RESERVED_RULE_NAMES else f"rule {gate.rule!r}"
        has_waiting_calls = any(is_about_tools for _, is_about_tools in lines)
        sentence = _sentence(scope or rest, gate.mode, reason, has_waiting_calls)
        lines.setdefault((scope, is_tools), sentence)
        is_first = is_first and is_tools
        if not scope and not is_tools:
            break
    return list(lines.values())


def _sentence(streams: str, mode: Mode, reason: str, has_waiting_calls: bool) -> str:
    """Return one line of the report, such as `all streams are buffered by rule 'unsure'`.

    `streams` and `reason` are words for the sentence. With `has_waiting_calls`, an earlier line
    lets tool calls wait, so a line about `passthrough` is about everything else in the streams.
    """
    if mode == "buffer_tools":
        return f"tool calls in {streams} wait for their score by {reason}"
    if mode == "passthrough" and has_waiting_calls:
        return f"everything else in {streams} passes through by {reason}"
    return f"{streams} {'are buffered' if mode == 'buffer' else 'pass through'} by {reason}"


def _gates(policy: Policy) -> Iterator[_Gate]:
    """Yield the gates that decide the mode of a stream, in the order of the rules.

    A rule that changes replies, or whose missing score leads to a change, gives `buffer`, or
    `buffer_tools` if it needs a tool call. A rule that delivers by the request alone gives
    `passthrough`. Other rules, those in shadow and those with `stream: false` give no gate. The
    last gate is for the policy's default and admits every stream.
    """
    for rule in policy.rules:
        if rule.when.stream is False or rule.is_shadow:
            continue
        waits: Mode = "buffer_tools" if rule.when.needs_tool_call else "buffer"
        if changes_reply(rule.then):
            yield _Gate(rule.when, waits, rule.name)
        elif rule.when.needs_score and policy.on_score_error.name != "deliver":
            yield _Gate(rule.when, waits, "on_score_error")
        elif not rule.when.looks_at_reply:
            yield _Gate(rule.when, "passthrough", rule.name)
    mode: Mode = "buffer" if changes_reply(policy.default) else "passthrough"
    yield _Gate(When(), mode, "default")


def _scope(when: When) -> str:
    """Return words for the streams that the request conditions admit, or "" for all of them.

    For example: `streams of claude-* in domain law tagged a or b`.
    """
    parts = []
    if when.model:
        parts.append(f"of {either(when.model.patterns)}")
    if when.team:
        parts.append(f"of team {either(when.team.patterns)}")
    if when.key:
        parts.append(f"with key {either(when.key.patterns)}")
    if when.domain:
        parts.append(f"in domain {either(when.domain.patterns)}")
    if when.tags:
        parts.append(f"tagged {either(sorted(when.tags))}")
    return " ".join(("streams", *parts)) if parts else ""
