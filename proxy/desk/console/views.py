"""What the pages on the calibrator and the policies show.

Cards describe the checkpoint and the recalibrations here; each rule has how often it decided.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calibrator import (
    CalibratorError,
    checkpoint_card,
    resolve_recalibrations,
    versions_named,
)
from policies import InvalidDocumentError, Policy, load_policy, rule_slug
from proxy.config.sections import CalibratorConfig
from proxy.store.verdicts.statistics import SampledExchange

_MEASURED: Final = {
    "validation_plain": "Measured without the model's name",
    "validation_named": "Measured with the model's name",
}


@dataclass(frozen=True, slots=True)
class LongList:
    """A list that is too long to be shown at once."""

    title: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """A titled list of facts, with a note below."""

    title: str
    facts: tuple[tuple[str, str], ...]
    note: str = ""
    lists: tuple[LongList, ...] = ()


def calibrator_cards(config: CalibratorConfig) -> list[Card]:
    """Return the cards of a configured calibrator; what cannot be read is a card that says so.

    They are about the checkpoint, its measurements, what it knows, and the recalibrations here.
    """
    if config.engine.kind != "in_process" and not config.names_checkpoint:
        note = "It is not a checkpoint that this configuration names, so it has no card here."
        return [Card("Engine", (("configured", config.summary),), note), *_recalibrations(config)]
    try:
        card = checkpoint_card(config.checkpoint)
    except CalibratorError as error:
        return [Card("Checkpoint", (("configured", config.checkpoint),), str(error))]
    if card is None:
        note = "It has no card: it is not a checkpoint of a trained calibrator."
        return [Card("Checkpoint", (("configured", config.checkpoint),), note)]
    return [
        _checkpoint(config, card),
        *_quality(card),
        _models(card),
        *_recalibrations(config),
    ]


def _checkpoint(config: CalibratorConfig, card: Mapping[str, Any]) -> Card:
    """Return the card of the checkpoint: what was set, its version, and its origin."""
    recalibration = card["recalibration"]
    facts = (
        ("set in proxy.yaml", config.summary),
        ("version", str(card["version"])),
        ("architecture", str(card["architecture"])),
        ("weights", f"{card['weights_sha256'][:16]}…"),
        ("recalibration in it", _curve(recalibration) if recalibration else "none"),
        ("waits at most", f"{config.timeout_s:g} s for a score"),
        *_origin(card),
    )
    return Card("Checkpoint", facts)


def _origin(card: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the base rate and the base model, if the card has them."""
    if "base_rate" in card:
        yield "base rate", f"{card['base_rate']:.3f} of its training replies were correct"
    if adapter := card.get("adapter"):
        yield "base", f"{card['base']}, with an adapter of rank {adapter['rank']}"


def _curve(curve: Mapping[str, Any]) -> str:
    """Return a curve as a text, such as `Platt curve, slope 1.020, intercept 0.100`."""
    numbers = ((name, value) for name, value in curve.items() if isinstance(value, float))
    kind = str(curve["kind"]).capitalize()
    return f"{kind} curve, " + ", ".join(f"{name} {value:.3f}" for name, value in numbers)


def _quality(card: Mapping[str, Any]) -> Iterator[Card]:
    """Yield a card for each set of measurements, made on rows held back from training."""
    for name, measured in card["quality"].items():
        if isinstance(measured, Mapping):
            facts = tuple(
                (key.upper() if key in ("auroc", "ece") else key.capitalize(), _number(value))
                for key, value in measured.items()
            )
            title = _MEASURED.get(name, f"Measured: {name.replace('_', ' ')}")
            yield Card(title, facts, "On rows held back from its training, not on yours.")


def _number(value: Any) -> str:
    """Return a number for a card: `0.8123` for a float, `1,234` for an integer."""
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


def _models(card: Mapping[str, Any]) -> Card:
    """Return the card of what the checkpoint reads, and which models and benchmarks it knows."""
    facts = [("reads", _read(card))]
    if not card.get("images"):
        facts += [("reads text only", "an image in the question gives no number")]
    note = (
        "On text of kinds that its training did not see it stays near the base rate, and a model "
        "that is not in its list is scored without a name. Measure it on labelled replies of your "
        "own before a threshold is trusted."
    )
    models, benchmarks = tuple(card["source_models"]), tuple(card["benchmarks"])
    lists = (LongList("Models it knows by name", models), LongList("Benchmarks", benchmarks))
    return Card("What it knows", tuple(facts), note, lists)


def _read(card: Mapping[str, Any]) -> str:
    """Return a sentence on how much of a question and an answer the checkpoint reads."""
    if "layout" in card:
        return f"{card['layout']['max_tokens']} word pieces, the two ends of a longer text"
    prompt = card["prompt"]
    return (
        f"the first {prompt['question_characters']:,} characters of a question and "
        f"{prompt['answer_characters']:,} of an answer"
    )


def _recalibrations(config: CalibratorConfig) -> Iterator[Card]:
    """Yield one card about the recalibrations: in force, and the last ten changes of them.

    Without any it says how to fit one; where they cannot be read it says why.
    """
    paths = config.recalibration
    if not paths:
        note = (
            "None is configured: the number is as the checkpoint gives it. About a hundred "
            "verdicts are enough to fit one: pinocchio recalibrate --from-store."
        )
        yield Card("Recalibration", (), note)
        return
    try:
        recalibrations = resolve_recalibrations(paths)
        versions = versions_named(paths)
        history = versions.history() if versions is not None else []
    except CalibratorError as error:
        yield Card("Recalibration", tuple(("file", path.name) for path in paths), str(error))
        return
    facts = [("configured", ", ".join(path.name for path in paths))]
    facts += [("in force", recalibrations.alone.name if recalibrations.alone else "none yet")]
    if (with_others := recalibrations.with_others) is not None:
        facts += [("in force with second opinions", with_others.name)]
    if recalibrations.signals is not None:
        facts += [("in force for judges and log-probabilities", recalibrations.signals.name)]
    facts += [(change.at, _describe_change(change)) for change in reversed(history[-10:])]
    yield Card("Recalibration", tuple(facts))


def _describe_change(change: Any) -> str:
    """Return a change as a text, such as `promoted, with second opinions: none → platt@9c1d`."""
    suffix = ", with second opinions" if change.knows_others else ""
    suffix = ", for judges and log-probabilities" if change.knows_signals else suffix
    versions = f"{change.before or 'none'} → {change.after or 'none'}"
    return f"{change.kind.replace('_', ' ')}{suffix}: {versions}"


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
        policy_counts = counts.pop(key, {})
        rules = tuple(_rules(policy, policy_counts, shadowed.get(key, {})))
        total = sum(policy_counts.values())
        action_weights = sorted(would.get(key, {}).items(), key=lambda pair: -pair[1])
        shares = tuple((action, weight / total) for action, weight in action_weights if total)
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
    others = [
        (f"{name}@{digest}", sum(actions.values())) for (name, digest), actions in counts.items()
    ]
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
    weights = sums.setdefault(key, {})
    weights[name] = weights.get(name, 0.0) + weight


def _shadow_rules(row: SampledExchange) -> set[str]:
    """Return the names of the rules in shadow that matched an exchange."""
    rules: list[dict[str, Any]] = json.loads(row.shadowed) if row.shadowed else []
    return {str(each["rule"]) for each in rules}


def _rules(
    policy: Policy, counts: Mapping[str, float], shadowed: Mapping[str, float]
) -> Iterable[RuleView]:
    """Yield a policy's rules and its default, and its action for a missing score if that decided.

    `counts` are by the rule's slug, `shadowed` by the name of a rule in shadow.
    """
    total = sum(counts.values()) or 1.0
    for rule in policy.rules:
        count = shadowed if rule.is_shadow else counts
        matches = count.get(rule.name if rule.is_shadow else rule_slug(rule.name), 0.0)
        yield RuleView(rule.name, rule.then.name, matches, matches / total, rule.is_shadow)
    for name, action in (("default", policy.default), ("on_score_error", policy.on_score_error)):
        matches = counts.get(rule_slug(name), 0.0)
        if matches or name == "default":
            yield RuleView(name, action.name, matches, matches / total)


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
