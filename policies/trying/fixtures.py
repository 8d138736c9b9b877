"""Fixtures: recorded exchanges with the decisions expected of a policy, for `pinocchio test`.

    name: an unsure mail waits for a person
    facts: {confidence: 0.41, model: gpt-5.6, tools: [{name: send_email, arguments: {to: a@b.c}}]}
    expect: {action: hold, rule: irreversible tools, queue: oncall}

A file, YAML or JSON, holds one fixture or a list of them. `expect` names only the details that
matter; a single word is the action. It is about the decision, even where the policy is in shadow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from policies.conditions.facts import Facts
from policies.deciding.actions import SEVERITY
from policies.deciding.decision import Decision
from policies.deciding.policy import Policy
from policies.errors import InvalidDocumentError, Problem
from policies.reading.reading import Node
from policies.reading.shapes import TEXT, Shape, make, mapping, or_mapping, word
from policies.reading.strict_yaml import load_document
from policies.trying.explanation import Explanation, explain
from policies.trying.recorded import FACTS

SUFFIXES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Fixture:
    """Facts and the decision expected for them; `place` is file and line."""

    name: str
    facts: Facts
    expected: Mapping[str, Any]
    place: str


@dataclass(frozen=True, slots=True)
class FixtureResult:
    """A fixture with the policy's decision; without differences the decision is as expected."""

    fixture: Fixture
    differences: tuple[str, ...]
    explanation: Explanation

    def __str__(self) -> str:
        """Return `ok` and the name, or `DIFF`, the place, the differences and the explanation."""
        if not self.differences:
            return f"ok    {self.fixture.name}"
        explanation = "\n".join(f"      {line}" for line in str(self.explanation).splitlines())
        different = "\n".join(f"      {line}" for line in self.differences)
        return f"DIFF  {self.fixture.name} ({self.fixture.place})\n{different}\n{explanation}"


def load_fixtures(path: Path) -> list[Fixture]:
    """Load the fixtures of a file, or of all .yaml, .yml and .json files below a folder.

    They are in the order of the files' paths. Raises InvalidDocumentError for an invalid file, and
    where there are no fixtures.
    """
    files = [path]
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES)
    found = [fixture for file in files for fixture in _load(file)]
    if not found:
        raise InvalidDocumentError([Problem(str(path), 0, "there are no fixtures here")])
    return found


def check_fixtures(policy: Policy, fixtures: Iterable[Fixture]) -> list[FixtureResult]:
    """Decide on every fixture by the policy, and return one result for each, in order.

    A result's `differences` are empty where the decision is as expected.
    """
    checked = []
    for fixture in fixtures:
        explanation = explain(policy, fixture.facts)
        differences = _differences(fixture.expected, explanation.decision)
        checked.append(FixtureResult(fixture, differences, explanation))
    return checked


def decision_as_values(decision: Decision) -> dict[str, Any]:
    """Return a decision as `expect` spells it: `{"action": "hold", "rule": "a", "queue": "q"}`.

    `queue`, `to` and `label` are there if the action has them, and `shadowed` has the names of the
    matching rules in shadow, if any.
    """
    options = {name: getattr(decision.action, name, None) for name in ("queue", "to", "label")}
    values = {"action": decision.action.name, "rule": decision.rule} | options
    if decision.shadowed:
        values["shadowed"] = [each.rule for each in decision.shadowed]
    return {name: value for name, value in values.items() if value is not None}


def _differences(expected: Mapping[str, Any], decision: Decision) -> tuple[str, ...]:
    """Return a line for each expected value that the decision lacks: `queue expected a, got b`.

    Values that are not in `expected` do not matter; () if the decision is as expected.
    """
    actual = decision_as_values(decision)
    return tuple(
        f"{name:9} expected {_word(value)}, got {_word(actual.get(name))}"
        for name, value in expected.items()
        if value != actual.get(name, [] if name == "shadowed" else None)
    )


def _word(value: Any) -> str:
    """Return a value as text, or `nothing` for None and an empty list."""
    return "nothing" if value in (None, []) else str(value)


def _load(path: Path) -> list[Fixture]:
    """Return the fixtures of a file that holds one fixture or a list of them.

    Raises InvalidDocumentError with all problems of a file that cannot be read or is invalid.
    """
    document = load_document(path)
    root = Node.root(document, called="the fixture")
    items = root.items() if isinstance(root.value, list) else [root]
    fixtures = list(map(_FIXTURE.read, items))
    if root.problems:
        raise InvalidDocumentError(root.problems)
    return fixtures


def _fixture(node: Node, *, name: str, facts: Facts, expect: Mapping[str, Any]) -> Fixture:
    """Build the fixture of a mapping in a file, with `file:line` as its place."""
    return Fixture(name, facts, expect, f"{node.document.source}:{node.line}")


_ACTION: Final = word(SEVERITY)
_EXPECTED: Final[Mapping[str, Shape[Any]]] = {
    "action": _ACTION,
    **dict.fromkeys(("rule", "queue", "to", "label"), TEXT),
    "shadowed": Shape(lambda node: [TEXT.read(item) for item in node.items()], {}),
}
_FIXTURE: Final = mapping(
    _fixture,
    {
        "name": TEXT,
        "facts": FACTS,
        "expect": or_mapping(
            Shape(lambda node: {"action": _ACTION.read(node)}, {}),
            mapping(make(dict), _EXPECTED, needs=tuple(_EXPECTED)),
        ),
    },
    required=("name", "facts", "expect"),
)
