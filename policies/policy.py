"""A policy: rules read from YAML, checked once, immutable afterwards.

    version: 1
    name: helpdesk
    rules:                                # the first rule that matches decides
      - name: unsure
        when: {confidence: {below: 0.3}}
        then: {hold: {queue: review}}
    default: deliver                      # no rule matched

What a rule can look at is in `policies.conditions`, what it can do in `policies.actions`. Every
key of a policy stands in README.md beside this module.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from policies.actions import Action, Annotate, Block, Deliver, Escalate, Hold, read_action
from policies.asking import Asking, read_asking
from policies.certificate import Certificate, load_certificate
from policies.conditions import Test, When, read_when, test_of
from policies.confidence import Band, MaxError
from policies.costs import Costs, read_costs
from policies.errors import InvalidDocumentError, Problem
from policies.features import SERVED, Feature, unsupported
from policies.reading import Node, shown, suggestion
from policies.strict_yaml import Document, load_document, parse_document
from policies.yaml_builder import Value

Mode: TypeAlias = Literal["enforce", "shadow"]

RESERVED_RULE_NAMES: Final = ("default", "on_score_error", "ask")
"""What stands in place of a rule's name where no rule decided."""

_PACKS: Final = Path(__file__).with_name("packs")
NAME: Final = re.compile(r"[a-z0-9-]{1,64}")
MAX_RULE_NAME: Final = 64
MODES: Final[tuple[Mode, ...]] = ("enforce", "shadow")
ON_SCORE_ERROR: Final = ("deliver", "hold", "block")
"""The actions that can stand in for a decision that lacks a score."""


RULE_KEYS: Final = ("name", "when", "then", "shadow")
KEYS: Final = (
    "version",
    "name",
    "mode",
    "on_score_error",
    "ask",
    "certificate",
    "costs",
    "rules",
    "default",
)

CompiledRule: TypeAlias = tuple[float, float, tuple[Test, ...], int, bool, bool]
"""Lowest confidence, the one above the highest, the other tests, the rule's index, whether it
needs a score, whether it is in shadow."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to the completions for which the conditions hold.

    A rule in shadow is recorded where it matches and decides nothing: the rules below it do.
    """

    name: str
    when: When
    then: Action
    is_shadow: bool = False
    line: int = field(default=1, compare=False)
    digest: str = field(default="", compare=False)
    """Changes with what reaches the rule and matches: its conditions, and those above that decide.
    """


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules, of which the first that matches decides, and a default.

    `on_score_error` is the action where a rule needs a score that is missing. `digest` changes
    with the meaning of the file and its certificate, not with comments or layout. `uses` names
    what the policy needs a proxy for, see `policies.features`.
    """

    version: int
    name: str
    mode: Mode
    on_score_error: Deliver | Hold | Block
    rules: tuple[Rule, ...]
    default: Action
    digest: str
    ask: Asking | None = None
    costs: Costs | None = None
    certificate: Certificate | None = None
    source: str = field(default="", compare=False)
    uses: tuple[tuple[Feature, Problem], ...] = field(default=(), compare=False, repr=False)

    certificate_path: Path | None = field(default=None, compare=False, repr=False)
    """Where the certificate is, or will be; a change of the file is a change of the policy."""

    compiled: tuple[CompiledRule, ...] = field(init=False, repr=False, compare=False)
    """The rules in the form in which they are matched."""
    looks_at_tools: bool = field(init=False, repr=False, compare=False)
    """Whether any rule looks at the tools that a reply calls."""
    decisions: dict[tuple[int, bool, tuple[int, ...]], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The decisions that were made so far, each of which never changes."""

    def __post_init__(self) -> None:
        compiled = tuple(_compiled(index, rule) for index, rule in enumerate(self.rules))
        object.__setattr__(self, "compiled", compiled)
        looks_at_tools = any(rule.when.tools is not None for rule in self.rules)
        object.__setattr__(self, "looks_at_tools", looks_at_tools)

    @property
    def is_enforced(self) -> bool:
        """False in shadow mode: decide and record, change nothing."""
        return self.mode == "enforce"

    @property
    def needs_score(self) -> bool:
        """Whether any rule looks at the confidence."""
        return self.ask is not None or any(rule.when.confidence is not None for rule in self.rules)


def load_policy(
    name_or_path: str | os.PathLike[str], supports: Collection[Feature] = SERVED
) -> Policy:
    """Load a pack by its name, such as `helpdesk`, or a policy file by its path.

    A string of lower-case letters, digits and dashes is the name of a pack; a file of such a name
    is loaded as `./helpdesk`. The certificate that the policy names is read with it, if there is
    one. Raises InvalidDocumentError, also for a policy that asks for more than `supports`.
    """
    policy = _read_policy(load_document(_place(name_or_path)))
    if problems := unsupported(policy.uses, supports):
        raise InvalidDocumentError(problems)
    return policy


def parse_policy(text: str, source: str) -> Policy:
    """Read a policy from text, whatever it asks for; `source` names it in problems.

    A certificate that it names is looked for beside `source`. Raises InvalidDocumentError.
    """
    return _read_policy(parse_document(text, source))


def _place(name_or_path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    if not isinstance(name_or_path, str) or not NAME.fullmatch(name_or_path):
        return name_or_path
    names = pack_names()
    if name_or_path not in names:
        hint = suggestion(name_or_path, names)
        message = f"there is no pack of this name{hint} (packs: {', '.join(names)})"
        raise InvalidDocumentError([Problem(name_or_path, 0, message)])
    return _PACKS / f"{name_or_path}.yaml"


def pack_names() -> tuple[str, ...]:
    """Return the names of the policies that come with the package."""
    return tuple(sorted(path.stem for path in _PACKS.glob("*.yaml")))


@lru_cache(maxsize=4_096)
def slug(rule_name: str) -> str:
    """Write a rule's name in ASCII that is safe in a header: `Surely right!` -> `surely-right`."""
    decomposed = unicodedata.normalize("NFKD", rule_name.lower())
    letters = "".join(each for each in decomposed if not unicodedata.combining(each))
    ascii_only = letters.encode("ascii", "backslashreplace").decode("ascii")
    return re.sub(r"[^a-z0-9_]+", "-", ascii_only).strip("-")


def _read_policy(document: Document) -> Policy:
    root = Node.root(document)
    root.check_keys(KEYS, required=("version", "name", "default"))
    mode: Mode = root["mode"].choice(MODES, "enforce")
    policy = Policy(
        version=_read_version(root["version"]),
        name=_read_name(root["name"]),
        mode=mode,
        on_score_error=_read_on_score_error(root["on_score_error"], mode),
        rules=_read_rules(root["rules"]),
        default=read_action(root["default"]),
        digest=_digest(document.value),
        ask=read_asking(root["ask"]),
        costs=read_costs(root["costs"]),
        source=document.source,
        certificate_path=_certificate_path(root["certificate"]),
        uses=tuple(root.uses),
    )
    _check_promises(root, policy)
    if root.problems:
        raise InvalidDocumentError(root.problems)
    return certified(policy, load_certificate(path) if (path := policy.certificate_path) else None)


def _certificate_path(node: Node) -> Path | None:
    """The file that is named, beside the policy."""
    name = node.text("")
    return Path(node.document.source).parent / name if name else None


def certified(policy: Policy, certificate: Certificate | None) -> Policy:
    """Return the policy with the certificate in place of the one it had, if any.

    Its `max_error` conditions then rely on the grants that are for them, and match nothing where
    there is none. The digest follows: what a policy decides is told apart in its label.
    """
    rules = tuple(_relying(rule, certificate) for rule in policy.rules)
    plain = policy.digest.partition("+")[0]
    digest = f"{plain}+{certificate.digest[:8]}" if certificate else plain
    return replace(policy, rules=rules, certificate=certificate, digest=digest)


def _read_on_score_error(node: Node, mode: Mode) -> Deliver | Hold | Block:
    """Without it, a missing score holds where the policy is enforced, and changes nothing else."""
    if not node.is_present:
        return Hold() if mode == "enforce" else Deliver()
    names = list(node.value) if isinstance(node.value, dict) else [node.value]
    if len(names) != 1 or names[0] not in ON_SCORE_ERROR:
        node.choice(ON_SCORE_ERROR, None)
        return Hold()
    action = read_action(node)
    assert isinstance(action, Deliver | Hold | Block)
    return action


def _read_version(node: Node) -> int:
    if node.is_present and (node.value != 1 or isinstance(node.value, bool | float)):
        node.report(f"version must be 1, not {shown(node.value)}")
    return 1


def _read_name(node: Node) -> str:
    name = node.text("")
    if name and not NAME.fullmatch(name):
        node.report(f"name must be at most 64 of a-z, 0-9 and -, not {shown(name)}")
    return name


def _relying(rule: Rule, certificate: Certificate | None) -> Rule:
    """The rule with those grants of the certificate that are for it, the most specific first."""
    condition = rule.when.confidence
    if not isinstance(condition, MaxError):
        return rule
    grants = (
        certificate.grants_for(condition.max_error, rule.name, rule.digest) if certificate else ()
    )
    return replace(rule, when=replace(rule.when, confidence=replace(condition, grants=grants)))


def _check_promises(root: Node, policy: Policy) -> None:
    """Refuse a policy that promises an error rate and then delivers whatever is left."""
    is_promised = any(isinstance(rule.when.confidence, MaxError) for rule in policy.rules)
    if is_promised and delivers(policy.default):
        root["default"].report(
            "default delivers what max_error did not certify; hold, clarify or block it, "
            "or give its escalation an `otherwise` that does"
        )


def delivers(action: Action) -> bool:
    """Whether the action can end in a reply of a model going out without another look."""
    if isinstance(action, Escalate):
        return action.otherwise is None or delivers(action.otherwise)
    return isinstance(action, Deliver | Annotate)


def _read_rules(node: Node) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    taken: dict[str, str] = {}
    above = hashlib.sha256()
    for item in node.items():
        item.check_keys(RULE_KEYS, required=("name", "then"))
        name = _read_rule_name(item["name"], taken)
        then = read_action(item["then"])
        when = read_when(item["when"], restrains=not isinstance(then, Deliver | Annotate))
        is_shadow = item["shadow"].flag(default=False)
        if is_shadow:
            item["shadow"].use("rule shadow")
        conditions = above.copy()
        conditions.update(_canonical(item["when"].value))
        rules.append(Rule(name, when, then, is_shadow, item.line, conditions.hexdigest()[:16]))
        if not is_shadow:
            above = conditions
    # a misspelt `when` also looks like none, so this waits until all else is right
    if not node.problems:
        _check_reachable(node.items(), rules)
    return tuple(rules)


def _read_rule_name(node: Node, taken: dict[str, str]) -> str:
    """Read a name whose slug is not yet among the keys of `taken`, and add it there."""
    name = node.text("")
    label = slug(name)
    if len(name) > MAX_RULE_NAME:
        node.report(f"{node} must be at most {MAX_RULE_NAME} characters long")
    elif name and not label:
        node.report(f"{node} must contain a letter or digit, not {shown(name)}")
    elif label in RESERVED_RULE_NAMES:
        node.report(f"{node} cannot be {shown(name)}, the word for a decision without a rule")
    elif taken.get(label) == name:
        node.report(f"duplicate rule name {shown(name)}")
    elif label in taken:
        node.report(f"rule name {shown(name)} is {label!r} in headers, as is {taken[label]!r}")
    if label:
        taken.setdefault(label, name)
    return name


def _check_reachable(items: list[Node], rules: list[Rule]) -> None:
    for index, rule in enumerate(rules):
        if rule.when == When() and not rule.is_shadow:
            for item in items[index + 1 :]:
                item.report(f"{item} can never match: rule {rule.name!r} has no conditions")
            return


def _compiled(index: int, rule: Rule) -> CompiledRule:
    condition, tests = rule.when.confidence, rule.when.tests
    if condition is None:
        return -math.inf, math.inf, tests, index, False, rule.is_shadow
    if isinstance(condition, Band):
        return condition.low, condition.high, tests, index, True, rule.is_shadow
    by_confidence = test_of(rule.when, "confidence")
    return -math.inf, math.inf, (*tests, by_confidence), index, True, rule.is_shadow


def _digest(value: Value) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()[:8]


def _canonical(value: Value) -> bytes:
    """The same bytes for the same meaning: key order, comments and layout do not count."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
