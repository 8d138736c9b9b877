"""A policy: rules read from YAML, checked once, immutable afterwards.

    version: 1
    name: helpdesk
    rules:                                # the first rule that matches decides
      - name: unsure
        when: {confidence: {below: 0.3}}
        then: {hold: {queue: review}}
    default: deliver                      # no rule matched

What a rule can look at is in `policies.conditions`, what it can do in `policies.actions`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from policies.actions import Action, Block, Deliver, Hold, read_action
from policies.conditions import When, read_when
from policies.errors import InvalidDocumentError, Problem
from policies.reading import Node, shown, suggestion
from policies.strict_yaml import Document, load_document, parse_document

Mode: TypeAlias = Literal["enforce", "shadow"]

RESERVED_RULE_NAMES: Final = ("default", "on_score_error")
"""What stands in place of a rule's name where no rule decided."""

_PACKS: Final = Path(__file__).with_name("packs")
_NAME: Final = re.compile(r"[a-z0-9-]{1,64}")
_MAX_RULE_NAME: Final = 64
_MODES: Final[tuple[Mode, ...]] = ("enforce", "shadow")
_ON_SCORE_ERROR: Final[Mapping[str, Deliver | Hold | Block]] = {
    "deliver": Deliver(),
    "hold": Hold(),
    "block": Block(),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to the completions for which the conditions hold."""

    name: str
    when: When
    then: Action


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules, of which the first that matches decides, and a default.

    `on_score_error` is the action where a rule needs a score that is missing. `digest` changes
    with the meaning of the file, not with its comments or layout.
    """

    version: int
    name: str
    mode: Mode
    on_score_error: Deliver | Hold | Block
    rules: tuple[Rule, ...]
    default: Action
    digest: str
    decisions: dict[tuple[str, str], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The decisions that were made so far: there is one for each rule, and it never changes."""

    @property
    def is_enforced(self) -> bool:
        """False in shadow mode: decide and record, change nothing."""
        return self.mode == "enforce"

    @property
    def needs_score(self) -> bool:
        """Whether any rule looks at the confidence."""
        return any(rule.when.confidence is not None for rule in self.rules)


def load_policy(name_or_path: str | os.PathLike[str]) -> Policy:
    """Load a pack by its name, such as `helpdesk`, or a policy file by its path.

    A string of lower-case letters, digits and dashes is the name of a pack; a file of such a name
    is loaded as `./helpdesk`. Raises InvalidDocumentError.
    """
    if isinstance(name_or_path, str) and _NAME.fullmatch(name_or_path):
        names = pack_names()
        if name_or_path not in names:
            hint = suggestion(name_or_path, names)
            message = f"there is no pack of this name{hint} (packs: {', '.join(names)})"
            raise InvalidDocumentError([Problem(name_or_path, 0, message)])
        return _read_policy(load_document(_PACKS / f"{name_or_path}.yaml"))
    return _read_policy(load_document(name_or_path))


def parse_policy(text: str, source: str) -> Policy:
    """Read a policy from text; `source` names it in problems. Raises InvalidDocumentError."""
    return _read_policy(parse_document(text, source))


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
    root.check_keys(
        ("version", "name", "mode", "on_score_error", "rules", "default"),
        required=("version", "name", "default"),
    )
    mode: Mode = root["mode"].choice(_MODES, "enforce")
    on_score_error = root["on_score_error"].choice(
        tuple(_ON_SCORE_ERROR), "hold" if mode == "enforce" else "deliver"
    )
    policy = Policy(
        version=_read_version(root["version"]),
        name=_read_name(root["name"]),
        mode=mode,
        on_score_error=_ON_SCORE_ERROR[on_score_error],
        rules=_read_rules(root["rules"]),
        default=read_action(root["default"]),
        digest=_digest(document),
    )
    if root.problems:
        raise InvalidDocumentError(root.problems)
    return policy


def _read_version(node: Node) -> int:
    if node.is_present and (node.value != 1 or isinstance(node.value, bool | float)):
        node.report(f"version must be 1, not {shown(node.value)}")
    return 1


def _read_name(node: Node) -> str:
    name = node.text("")
    if name and not _NAME.fullmatch(name):
        node.report(f"name must be at most 64 of a-z, 0-9 and -, not {shown(name)}")
    return name


def _read_rules(node: Node) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    taken: dict[str, str] = {}
    for item in node.items():
        item.check_keys(("name", "when", "then"), required=("name", "then"))
        name = _read_rule_name(item["name"], taken)
        rules.append(Rule(name, read_when(item["when"]), read_action(item["then"])))
    # a misspelt `when` also looks like none, so this waits until all else is right
    if not node.problems:
        _check_reachable(node.items(), rules)
    return tuple(rules)


def _read_rule_name(node: Node, taken: dict[str, str]) -> str:
    """Read a name whose slug is not yet among the keys of `taken`, and add it there."""
    name = node.text("")
    label = slug(name)
    if len(name) > _MAX_RULE_NAME:
        node.report(f"{node} must be at most {_MAX_RULE_NAME} characters long")
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
        if rule.when == When():
            for item in items[index + 1 :]:
                item.report(f"{item} can never match: rule {rule.name!r} has no conditions")
            return


def _digest(document: Document) -> str:
    canonical = json.dumps(document.value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]
