"""A policy: rules read from YAML, checked once, immutable afterwards.

    version: 1
    name: helpdesk
    rules:                                # the first rule that matches decides
      - name: unsure
        when: {confidence: {below: 0.3}}
        then: {hold: {queue: review}}
    default: deliver                      # no rule matched

The conditions of rules are in `policies.conditions.conditions`, their actions in
`policies.deciding.actions`. README.md beside this module describes every key of a policy.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from policies.conditions.certificate import Certificate, load_certificate
from policies.conditions.conditions import WHEN
from policies.conditions.confidence import MaxError
from policies.deciding.actions import (
    ACTION,
    Action,
    Annotate,
    Block,
    Deliver,
    Escalate,
    Hold,
    action_schema,
    hold_in,
    read_action,
)
from policies.deciding.asking import ASKING, ReplyCounts
from policies.deciding.costs import COSTS, Costs
from policies.deciding.judge import JUDGE, Judge
from policies.deciding.rules import RULES, Rule, RulesFor, canonical, rules_for
from policies.deciding.second_opinion import SECOND_OPINION, SecondOpinion, check_near
from policies.errors import InvalidDocumentError, Problem
from policies.reading.reading import Node, abbreviate, suggestion
from policies.reading.shapes import FLAG, TEXT, Schema, Shape, mapping, word
from policies.reading.strict_yaml import Document, load_document, parse_document

Mode: TypeAlias = Literal["enforce", "shadow"]

_PACKS: Final = Path(__file__).parent.parent / "packs"
NAME: Final = re.compile(r"[a-z0-9-]{1,64}")
MODES: Final[tuple[Mode, ...]] = ("enforce", "shadow")
ON_SCORE_ERROR: Final = ("deliver", "hold", "block")
"""The possible actions where a decision needs a missing score."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules, of which the first that matches decides, and a default.

    `on_score_error` is the action where a rule needs a score that is missing. `digest` changes
    with the meaning of the file and its certificate, not with comments or layout. `logprobs` says
    whether log-probabilities that the client asked for count.
    """

    version: int
    name: str
    mode: Mode
    on_score_error: Deliver | Hold | Block
    rules: tuple[Rule, ...]
    default: Action
    digest: str
    ask: ReplyCounts | None = None
    second_opinion: SecondOpinion | None = None
    judge: Judge | None = None
    logprobs: bool = False
    costs: Costs | None = None
    certificate: Certificate | None = None
    source: str = field(default="", compare=False)
    models: tuple[tuple[str, Problem], ...] = field(default=(), compare=False, repr=False)
    """The models that it names, each with the problem to report where no route serves it."""

    certificate_path: Path | None = field(default=None, compare=False, repr=False)
    """The path of the certificate, which need not exist; its changes change the policy."""

    rules_for: RulesFor = field(init=False, repr=False, compare=False)
    """A function that returns the compiled rules that can match."""
    looks_at_tools: bool = field(init=False, repr=False, compare=False)
    """Whether any rule looks at the tools that a reply calls."""
    looks_at: frozenset[str] = field(init=False, repr=False, compare=False)
    """The names of the facts that rules look at, see `When.facts`."""
    follows_traffic: bool = field(init=False, repr=False, compare=False)
    """Whether a rule depends on more than its reply: on recent ones, or on a certificate."""
    decisions: dict[tuple[int, bool, tuple[tuple[int, bool], ...]], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The cache of decisions by match."""

    def __post_init__(self) -> None:
        """Compute the derived fields, from `rules_for` to `follows_traffic`, and set them."""
        object.__setattr__(self, "rules_for", rules_for(self.rules))
        looks_at_tools = any(
            rule.when.tools is not None or rule.when.risk is not None for rule in self.rules
        )
        object.__setattr__(self, "looks_at_tools", looks_at_tools)
        looks_at = frozenset(name for rule in self.rules for name in rule.when.facts)
        object.__setattr__(self, "looks_at", looks_at)
        follows_traffic = not looks_at.isdisjoint(("share_below", "calibrator"))
        object.__setattr__(self, "follows_traffic", follows_traffic)

    @property
    def is_enforced(self) -> bool:
        """Whether decisions are carried out; in shadow mode they are only recorded."""
        return self.mode == "enforce"

    @property
    def needs_score(self) -> bool:
        """Whether a rule needs the confidence or what is found with it, or others are asked."""
        asks_others = (self.ask, self.second_opinion, self.judge) != (None, None, None)
        return asks_others or any(rule.when.needs_score for rule in self.rules)


def load_policy(name_or_path: str | os.PathLike[str]) -> Policy:
    """Load a pack by its name, such as `helpdesk`, or a policy file by its path.

    A string of lower-case letters, digits and dashes is the name of a pack; a file of such a name
    is loaded as `./helpdesk`. The certificate that the policy names is loaded too, if it exists.
    Raises InvalidDocumentError.
    """
    return _read_policy(load_document(_place(name_or_path)))


def parse_policy(text: str, source: str) -> Policy:
    """Parse a policy's YAML text and return it; `source`, such as a path, names it in problems.

    A certificate that it names is loaded from the folder of `source`, if it exists. Raises
    InvalidDocumentError with all problems found.
    """
    return _read_policy(parse_document(text, source))


def _place(name_or_path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path of a pack's file for a pack's name, or anything else unchanged.

    Raises InvalidDocumentError for a string that has the form of a pack's name and is none.
    """
    if not isinstance(name_or_path, str) or not NAME.fullmatch(name_or_path):
        return name_or_path
    names = pack_names()
    if name_or_path not in names:
        hint = suggestion(name_or_path, names)
        message = f"there is no pack of this name{hint} (packs: {', '.join(names)})"
        raise InvalidDocumentError([Problem(name_or_path, 0, message)])
    return _PACKS / f"{name_or_path}.yaml"


def pack_names() -> tuple[str, ...]:
    """Return the names of the policies that come with the package, sorted, such as `helpdesk`."""
    return tuple(sorted(path.stem for path in _PACKS.glob("*.yaml")))


def pack_text(name: str) -> str:
    """Return the YAML text of the pack `name`. Raises InvalidDocumentError for an unknown name."""
    if not NAME.fullmatch(name):
        names = ", ".join(pack_names())
        raise InvalidDocumentError([Problem(name, 0, f"this is no name of a pack ({names})")])
    return Path(_place(name)).read_text(encoding="utf-8")


def _read_policy(document: Document) -> Policy:
    """Return the policy in a document, with its certificate loaded if that exists.

    Without `on_score_error`, a missing score leads to a hold that needs the most approvals of any
    hold in the policy, or to delivery in shadow mode. Raises InvalidDocumentError with all
    problems.
    """
    root = Node.root(document)
    values = _POLICY.read(root)
    mode, rules = values.get("mode", "enforce"), values.get("rules", ())
    most = max(hold.approvals for hold in [Hold(), *_holds(values["default"], rules)])
    if_unscored = Hold(approvals=most) if mode == "enforce" else Deliver()
    certificate = values.pop("certificate", None)
    policy = Policy(
        **{"mode": mode, "rules": rules, "on_score_error": if_unscored} | values,
        digest=hashlib.sha256(canonical(document.value)).hexdigest()[:8],
        source=document.source,
        certificate_path=Path(document.source).parent / certificate if certificate else None,
        models=tuple(root.models),
    )
    check_near(root["second_opinion"], policy.second_opinion, rules)
    check_near(root["judge"], policy.judge, rules)
    _check_promises(root, policy)
    if root.problems:
        raise InvalidDocumentError(root.problems)
    return with_certificate(
        policy, load_certificate(path) if (path := policy.certificate_path) else None
    )


def _holds(default: Action, rules: Iterable[Rule]) -> Iterator[Hold]:
    """Yield the holds that the default and the rules are, or may end in."""
    yield from filter(None, map(hold_in, (default, *(rule.then for rule in rules))))


def json_schema() -> Schema:
    """Return the JSON Schema of a policy file (draft 2020-12) as a dictionary, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pinocchio policy",
        **_POLICY.schema,
        "$defs": {"action": action_schema(), "when": WHEN.schema},
    }


def with_certificate(policy: Policy, certificate: Certificate | None) -> Policy:
    """Return a copy of the policy with this certificate, or with none, instead of its own.

    Its `max_error` conditions get the certificate's grants for them, and match nothing without one.
    Bands around thresholds follow. The digest becomes `<policy>+<certificate>`, so labels
    distinguish decisions of different certificates.
    """
    rules = tuple(_add_grants(rule, certificate) for rule in policy.rules)
    plain = policy.digest.partition("+")[0]
    digest = f"{plain}+{certificate.digest[:8]}" if certificate else plain
    return replace(
        policy,
        rules=rules,
        certificate=certificate,
        digest=digest,
        second_opinion=policy.second_opinion and policy.second_opinion.near(rules),
        judge=policy.judge and policy.judge.near(rules),
    )


def _read_on_score_error(node: Node) -> Deliver | Hold | Block:
    """Read the action for a missing score: deliver, hold or block, with options or without.

    Any other is reported and read as `Hold()`.
    """
    names = list(node.value) if isinstance(node.value, dict) else [node.value]
    if len(names) != 1 or names[0] not in ON_SCORE_ERROR:
        word(ON_SCORE_ERROR).read(node)
        return Hold()
    action = read_action(node)
    assert isinstance(action, Deliver | Hold | Block)
    return action


def _read_version(node: Node) -> int:
    """Report any version but the number 1, and return 1."""
    if node.value != 1 or isinstance(node.value, bool | float):
        node.report(f"version must be 1, not {abbreviate(node.value)}")
    return 1


def _read_name(node: Node) -> str:
    """Return the policy's name; report any that is not 1 to 64 of a-z, 0-9 and -."""
    name = TEXT.read(node)
    if name and not NAME.fullmatch(name):
        node.report(f"name must be at most 64 of a-z, 0-9 and -, not {abbreviate(name)}")
    return name


_POLICY: Final = mapping(
    lambda node, **values: values,
    {
        "version": Shape(_read_version, {"const": 1}),
        "name": Shape(_read_name, {"type": "string", "pattern": f"^{NAME.pattern}$"}),
        "mode": word(MODES),
        "on_score_error": Shape(_read_on_score_error, action_schema(ON_SCORE_ERROR)),
        "ask": ASKING,
        "second_opinion": SECOND_OPINION,
        "judge": JUDGE,
        "logprobs": FLAG,
        "certificate": TEXT,
        "costs": COSTS,
        "rules": RULES,
        "default": ACTION,
    },
    required=("version", "name", "default"),
)


def _add_grants(rule: Rule, certificate: Certificate | None) -> Rule:
    """Return the rule with the certificate's grants for it, the most specific first.

    A rule without `max_error` is returned unchanged; without a certificate, the grants are ().
    """
    condition = rule.when.confidence
    if not isinstance(condition, MaxError):
        return rule
    grants = (
        certificate.grants_for(condition.max_error, rule.name, rule.digest) if certificate else ()
    )
    return replace(rule, when=replace(rule.when, confidence=replace(condition, grants=grants)))


def _check_promises(root: Node, policy: Policy) -> None:
    """Report at `default` that a policy promises an error rate and delivers all remaining replies.

    A promise is a rule with `max_error`; `delivers` says whether the default delivers.
    """
    is_promised = any(isinstance(rule.when.confidence, MaxError) for rule in policy.rules)
    if is_promised and delivers(policy.default):
        root["default"].report(
            "default delivers what max_error did not certify; hold, clarify or block it, "
            "or give its escalation an `otherwise` that does"
        )


def delivers(action: Action) -> bool:
    """Return whether the action can deliver a model's reply without further judgement.

    True for deliver, annotate, and an escalation whose `otherwise` does or is missing; else False.
    """
    if isinstance(action, Escalate):
        return action.otherwise is None or delivers(action.otherwise)
    return isinstance(action, Deliver | Annotate)
