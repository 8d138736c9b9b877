"""Policies for a page: each rule with how often it decided, or would have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies import InvalidDocumentError, Policy, load_policy, rule_slug
from proxy.store.verdicts.statistics import SampledExchange


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule, or the default or missing score instead of one.

    It decided on `count` of the window's exchanges, the `share` of all that its policy decided on.
    A rule in shadow would have decided on them.
    """

    name: str
    action: str
    count: float
    share: float
    is_shadow: bool = False


@dataclass(frozen=True, slots=True)
class PolicyView:
    """A loaded policy; another version of it decided on `earlier` exchanges.

    `would` has the actions, with their shares, that a policy in shadow would have carried out.
    `teams` are those of the configuration whose policy it is.
    """

    name: str
    mode: str
    digest: str
    is_default: bool
    rules: tuple[RuleView, ...]
    earlier: float
    would: tuple[tuple[str, float], ...]
    teams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A policy's file as it is now; `is_changed` where it differs from the policy in force."""

    file: str
    lines: tuple[str, ...]
    is_changed: bool


def policy_views(
    book: Iterable[Policy], rows: Sequence[SampledExchange], teams: Mapping[str, str]
) -> tuple[list[PolicyView], list[tuple[str, float]]]:
    """Return (the loaded policies, the default first; other labels that decided, with counts).

    The others are (`policy@digest`, count), the most frequent first. `teams` has the digest of each
    team's policy.
    """
    counts: dict[tuple[str, str], dict[str, float]] = {}  # by policy and digest, then rule's slug
    would: dict[tuple[str, str], dict[str, float]] = {}
    shadowed: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        if row.policy is not None:
            key, rule = _parts(row.policy)
            _add(counts, key, rule, row.weight)
            if row.would_action is not None:
                _add(would, key, row.would_action, row.weight)
            for name in _shadow_rules(row):
                _add(shadowed, key, name, row.weight)
    views = []
    # the book has a policy twice that is both the default and a team's
    loaded = {(policy.name, policy.digest): policy for policy in book}
    for at, (key, policy) in enumerate(loaded.items()):
        earlier = sum(
            sum(counts.pop(other).values())
            for other in list(counts)
            if other[0] == policy.name and other != key
        )
        found = counts.pop(key, {})
        rules = tuple(_rules(policy, found, shadowed.get(key, {})))
        total = sum(found.values())
        acted = sorted(would.get(key, {}).items(), key=lambda pair: -pair[1])
        shares = tuple((action, weight / total) for action, weight in acted if total)
        views.append(
            PolicyView(
                policy.name,
                policy.mode,
                policy.digest,
                at == 0,
                rules,
                earlier,
                shares,
                tuple(team for team, digest in teams.items() if digest == policy.digest),
            )
        )
    others = [(f"{name}@{digest}", sum(of.values())) for (name, digest), of in counts.items()]
    return views, sorted(others, key=lambda pair: -pair[1])


def _parts(label: str) -> tuple[tuple[str, str], str]:
    """Split a label `policy/rule@digest` into (policy, digest) and the rule."""
    policy, _, rest = label.partition("/")
    rule, _, digest = rest.rpartition("@")
    return (policy, digest), rule


def _add(
    sums: dict[tuple[str, str], dict[str, float]], key: tuple[str, str], name: str, weight: float
) -> None:
    """Add a weight to a sum by key and name."""
    inside = sums.setdefault(key, {})
    inside[name] = inside.get(name, 0.0) + weight


def _shadow_rules(row: SampledExchange) -> set[str]:
    """Return the names of the rules in shadow that matched an exchange."""
    listed: list[dict[str, Any]] = json.loads(row.shadowed) if row.shadowed else []
    return {str(each["rule"]) for each in listed}


def _rules(
    policy: Policy, counts: Mapping[str, float], shadowed: Mapping[str, float]
) -> Iterable[RuleView]:
    """Yield a policy's rules and its default, and its action for a missing score if that decided.

    `counts` are by the rule's slug, `shadowed` by the name of a rule in shadow.
    """
    total = sum(counts.values()) or 1.0
    for rule in policy.rules:
        count = shadowed if rule.is_shadow else counts
        seen = count.get(rule.name if rule.is_shadow else rule_slug(rule.name), 0.0)
        yield RuleView(rule.name, rule.then.name, seen, seen / total, rule.is_shadow)
    for name, action in (("default", policy.default), ("on_score_error", policy.on_score_error)):
        seen = counts.get(rule_slug(name), 0.0)
        if seen or name == "default":
            yield RuleView(name, action.name, seen, seen / total)


def source_of(policy: Policy) -> Source:
    """Return a policy's file as it is now; without lines if it cannot be read."""
    path = Path(policy.source)
    try:
        lines = tuple(path.read_text(encoding="utf-8", errors="replace").splitlines())
        is_changed = load_policy(path).digest != policy.digest
    except OSError:
        lines, is_changed = (), True
    except InvalidDocumentError:
        is_changed = True
    return Source(path.name, lines, is_changed)
