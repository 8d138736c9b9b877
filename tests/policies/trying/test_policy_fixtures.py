"""Fixtures: recorded exchanges that a policy has to decide on as expected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policies import (
    Facts,
    InvalidDocumentError,
    ToolCall,
    check_fixtures,
    decide,
    decision_as_values,
    facts_as_values,
    facts_from_values,
    load_fixtures,
    parse_policy,
)

POLICY = parse_policy(
    """
version: 1
name: p
rules:
  - {name: strict, when: {confidence: {below: 0.9}}, then: block, shadow: true}
  - {name: mail, when: {tools: [send_email]}, then: {hold: {queue: oncall}}}
  - {name: unsure, when: {confidence: {below: 0.5}}, then: {escalate: {to: big}}}
default: deliver
""",
    "p.yaml",
)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_findings_are_facts_of_fixtures(tmp_path: Path) -> None:
    """Findings such as support and basis are read from fixtures and written back unchanged."""
    path = write(
        tmp_path / "a.yaml",
        """
- name: one
  facts:
    confidence: 0.4
    model: m
    support: 0.2
    basis: [opinions, context]
    act: refusal
    needs_facts: true
    familiar: false
  expect: {action: escalate}
- {name: two, facts: {confidence: 0.4, model: m, basis: likeness}, expect: escalate}
""",
    )
    first, second = (each.facts for each in load_fixtures(path))
    assert first == Facts(
        0.4,
        "m",
        support=0.2,
        basis=("opinions", "context"),
        act="refusal",
        needs_facts=True,
        familiar=False,
    )
    assert second.basis == ("likeness",)
    assert facts_from_values(facts_as_values(first), "f.yaml") == first


def test_a_decision_as_expected_has_no_differences(tmp_path: Path) -> None:
    """`expect` may be a word or some options of the action."""
    path = write(
        tmp_path / "a.yaml",
        """
- {name: one, facts: {confidence: 0.95, model: m}, expect: deliver}
- name: two
  facts: {confidence: 0.6, model: m, tools: [{name: send_email, arguments: {to: a}}]}
  expect: {action: hold, rule: mail, queue: oncall, shadowed: [strict]}
- {name: three, facts: {confidence: 0.1, model: m}, expect: {to: big}}
- {name: four, facts: {confidence: 0.95, model: m}, expect: {shadowed: []}}
""",
    )
    checked = check_fixtures(POLICY, load_fixtures(path))
    assert [each.differences for each in checked] == [(), (), (), ()]
    assert [str(each) for each in checked] == [
        f"ok    {n}" for n in ("one", "two", "three", "four")
    ]


def test_a_difference_is_shown_with_its_rules(tmp_path: Path) -> None:
    """A difference shows the expected and the actual decision, and the rules that led there."""
    path = write(
        tmp_path / "a.yaml",
        "name: mail goes out\nfacts: {confidence: 0.95, model: m, tools: [send_email]}\n"
        "expect: {action: deliver, rule: default, queue: oncall, shadowed: [strict]}\n",
    )
    (checked,) = check_fixtures(POLICY, load_fixtures(path))
    assert str(checked).splitlines()[:5] == [
        f"DIFF  mail goes out ({path}:1)",
        "      action    expected deliver, got hold",
        "      rule      expected default, got mail",
        "      shadowed  expected ['strict'], got nothing",
        f"      p/mail@{POLICY.digest}: hold",
    ]


def test_a_recorded_exchange_is_a_fixture(tmp_path: Path) -> None:
    """A recorded exchange in JSON is a valid fixture."""
    facts = Facts(0.3, "m", tools=(ToolCall("t", "not JSON"),), tags=frozenset("x"), length=7)
    recorded = {
        "name": "recorded",
        "facts": facts_as_values(facts),
        "expect": decision_as_values(decide(POLICY, facts)),
    }
    folder = tmp_path / "fixtures" / "deep"
    folder.mkdir(parents=True)
    write(folder / "a.json", json.dumps(recorded))
    write(folder / "notes.txt", "not a fixture")
    (checked,) = check_fixtures(POLICY, load_fixtures(tmp_path / "fixtures"))
    assert checked.fixture.facts == facts
    assert checked.differences == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: a\nexpect: hold", "a.yaml:1: missing key 'facts' in the fixture"),
        ("{name: a, facts: {}, expect: hold}", "missing key 'model' in facts"),
        (
            "{name: a, facts: {model: m, confidence: 7}, expect: hold}",
            "facts.confidence must be a number from 0 to 1, not 7",
        ),
        (
            "{name: a, facts: {model: m, n: 1.5}, expect: hold}",
            "facts.n must be a whole number from 0, not 1.5",
        ),
        (
            "{name: a, facts: {model: m, tools: [{name: t, arguments: 3}]}, expect: hold}",
            "facts.tools[0].arguments must be an object or its JSON, not 3",
        ),
        (
            "{name: a, facts: {model: m}, expect: held}",
            "expect must be deliver, annotate, clarify, escalate, hold or block, not 'held'",
        ),
        (
            "{name: a, facts: {model: m}, expect: {}}",
            "expect needs action, rule, queue, to, label or shadowed",
        ),
        (
            "{name: a, facts: {model: m}, expect: {que: x}}",
            "unknown key 'que' in expect; did you mean 'queue'?",
        ),
        ("[]", "there are no fixtures here"),
    ],
)
def test_a_wrong_fixture_is_refused_with_one_sentence(
    tmp_path: Path, text: str, problem: str
) -> None:
    """A wrong fixture is refused in one sentence with file, line and the valid values."""
    path = write(tmp_path / "a.yaml", text)
    with pytest.raises(InvalidDocumentError) as caught:
        load_fixtures(path)
    assert problem in str(caught.value)


def test_a_folder_without_fixtures_is_refused(tmp_path: Path) -> None:
    """A folder without fixtures is refused."""
    with pytest.raises(InvalidDocumentError, match="there are no fixtures here"):
        load_fixtures(tmp_path)
    with pytest.raises(InvalidDocumentError, match="there is no such file"):
        load_fixtures(tmp_path / "none.yaml")
