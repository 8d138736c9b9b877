"""Certificates: their file, what they cover, and policies that rely on them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from policies import (
    Certificate,
    Facts,
    Grant,
    InvalidDocumentError,
    LabelledScore,
    Policy,
    Scope,
    ToolCall,
    certify,
    decide,
    lint,
    load_policy,
    parse_certificate,
    parse_policy,
    reaches,
    with_certificate,
)

CALIBRATOR = "embedded@1+platt@2"
PROVED = certify(
    [LabelledScore(str(n), 0.905 if n < 150 else 0.405, n < 150) for n in range(180)], 0.05
)
GRANT = PROVED.grant(CALIBRATOR, Scope())
GATE = """\
    version: 1
    name: gate
    {more}
    rules:
      - {{name: tools, when: {{tools: any}}, then: {{hold: {{queue: approvals}}}}}}
      - {{name: surely right, when: {{confidence: {{max_error: 0.05}}}}, then: deliver}}
    default: {default}
    """


def gate(*grants: Grant, more: str = "", default: str = "hold") -> Policy:
    policy = parse_policy(dedent(GATE).format(more=more, default=default), "gate.yaml")
    return with_certificate(policy, Certificate(grants, "2026-11-21")) if grants else policy


def facts(confidence: float | None, **more: Any) -> Facts:
    return Facts(confidence, **{"model": "gpt-5.6", "calibrator": CALIBRATOR} | more)


def for_the_rule() -> Grant:
    """Return the grant, limited to the rule."""
    scope = Scope(rule="surely right", rule_digest=gate().rules[1].digest)
    return replace(GRANT, scope=scope)


# --- the condition ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_facts", "rule"),
    [
        (facts(0.41), "surely right"),
        (facts(1.0), "surely right"),
        (facts(0.4099), "default"),
        (facts(0.99, calibrator="embedded@1+platt@3"), "default"),
        (facts(0.99, calibrator=None), "default"),
        (facts(0.99, tools=(ToolCall("t"),)), "tools"),
        (facts(None), "on_score_error"),
    ],
)
def test_the_condition_holds_at_or_above_the_certified_threshold(
    given_facts: Facts, rule: str
) -> None:
    """The condition holds from the certified threshold on, only for the certified calibrator."""
    assert GRANT.threshold == 0.41
    assert decide(gate(GRANT), given_facts).rule == rule


def test_without_a_certificate_nothing_is_surely_right() -> None:
    """Without a certificate the condition never holds, and a warning says so."""
    policy = gate()
    assert decide(policy, facts(1.0)).rule == "default"
    assert [str(each) for each in lint(policy)] == [
        "gate.yaml:6: rule 'surely right' never matches: a certificate for max_error 0.05 is not "
        "there; `pinocchio certify` writes one"
    ]
    assert lint(gate(for_the_rule())) == []


def test_a_threshold_of_all_replies_in_a_rule_for_some_is_warned_about() -> None:
    """A grant for all replies gives a warning in a rule that only some replies reach."""
    (warning,) = lint(gate(GRANT))
    assert "certified for replies that do not all reach it" in warning.message


def test_a_stricter_grant_serves_and_a_laxer_one_does_not() -> None:
    """A grant for a lower error rate than the rule's counts; one for a higher rate does not."""
    strict = replace(GRANT, max_error=0.04)
    lax = replace(GRANT, max_error=0.1)
    assert decide(gate(strict), facts(0.9)).rule == "surely right"
    policy = gate(lax)
    assert decide(policy, facts(0.9)).rule == "default"
    assert "does not grant it" in str(lint(policy)[0])


def test_the_narrowest_grant_that_fits_counts() -> None:
    """The narrowest grant that fits counts: a model's or team's before the one for all replies."""
    model = replace(GRANT, threshold=0.8, scope=Scope(model="gpt-5.6"))
    team = replace(GRANT, threshold=0.7, scope=Scope(team="law"))
    policy = gate(GRANT, model, team)
    assert decide(policy, facts(0.75)).rule == "default"
    assert decide(policy, facts(0.75, model="kimi-3")).rule == "surely right"
    assert decide(policy, facts(0.6, model="kimi-3", team="law")).rule == "default"
    assert decide(gate(model), facts(0.99, model="kimi-3")).rule == "default"
    assert decide(policy, facts(0.75, team="law")).rule == "default"  # the stricter of the two


def test_a_grant_for_a_rule_ends_with_what_reaches_it() -> None:
    """A grant for a rule lapses if the conditions of the rule or of one above it change."""
    grant = for_the_rule()
    assert decide(gate(grant), facts(0.9)).rule == "surely right"
    for change in (("tools: any", "tools: [x]"), ("surely right", "sure")):
        text = dedent(GATE).format(more="", default="hold").replace(*change)
        changed = with_certificate(parse_policy(text, "gate.yaml"), Certificate((grant,)))
        assert decide(changed, facts(0.9)).rule == "default"
    harmless = dedent(GATE).format(more="", default="block").replace("approvals", "oncall")
    kept = with_certificate(parse_policy(harmless, "gate.yaml"), Certificate((grant,)))
    assert decide(kept, facts(0.9)).rule == "surely right"


def test_what_reaches_a_rule_is_what_it_is_certified_on() -> None:
    """A rule's replies are those that no rule above decides on, whatever their confidence."""
    policy = gate()
    assert reaches(policy, "surely right", facts(0.1))
    assert not reaches(policy, "surely right", facts(0.9, tools=(ToolCall("t"),)))
    assert reaches(policy, "tools", facts(0.9, tools=(ToolCall("t"),)))


def test_a_withdrawn_grant_is_gone_and_the_label_tells() -> None:
    """Withdrawing a grant changes the policy's digest, so that labels before and after differ."""
    policy = gate(GRANT)
    assert policy.certificate is not None
    withdrawn = with_certificate(policy, policy.certificate.without(GRANT))
    assert decide(withdrawn, facts(0.99)).rule == "default"
    labels = {decide(each, facts(0.1)).label for each in (gate(), policy, withdrawn)}
    assert len(labels) == 3
    assert all(label.startswith("gate/default@") for label in labels)


@pytest.mark.parametrize(
    ("default", "is_refused"),
    [
        ("deliver", True),
        ("{annotate: {label: x}}", True),
        ("{escalate: {to: big}}", True),
        ("{escalate: {to: big, otherwise: hold}}", False),
        ("clarify", False),
        ("block", False),
    ],
)
def test_a_promise_may_not_be_broken_by_the_default(default: str, is_refused: bool) -> None:
    """A policy that promises an error rate and delivers the rest by default is refused."""
    if not is_refused:
        assert gate(default=default).default.name != "deliver"
        return
    with pytest.raises(InvalidDocumentError, match="default delivers what max_error did not"):
        gate(default=default)


def test_a_promise_around_which_missing_scores_get_is_warned_about() -> None:
    """A policy that promises an error rate and delivers replies without a score gives a warning."""
    warnings = lint(gate(for_the_rule(), more="on_score_error: deliver"))
    assert [w.message for w in warnings] == [
        "rule 'surely right' promises an error rate, but on_score_error delivers what has no score"
    ]


# --- the file -----------------------------------------------------------------------------------


def test_a_policy_reads_the_certificate_beside_it(tmp_path: Path) -> None:
    """A policy reads the certificate file that it names, and loads without it."""
    path, certificate = tmp_path / "gate.yaml", tmp_path / "gate.certificate.json"
    more = "certificate: gate.certificate.json"
    path.write_text(dedent(GATE).format(more=more, default="hold"))
    assert decide(load_policy(path), facts(0.9)).rule == "default"
    certificate.write_text(Certificate((GRANT,), "2026-11-21").to_json())
    assert decide(load_policy(path), facts(0.9)).rule == "surely right"
    certificate.write_text("{}")
    with pytest.raises(InvalidDocumentError, match=r"gate\.certificate\.json: this is no cert"):
        load_policy(path)


def test_a_certificate_survives_its_file() -> None:
    """A certificate that is written and read is the same, with the same digest."""
    scoped = replace(GRANT, scope=Scope("gpt-5.6", "law", "r", "0123"), max_error=0.2)
    certificate = Certificate((GRANT, scoped), "2026-11-21")
    again = parse_certificate(certificate.to_json(), "c.json")
    assert again == certificate
    assert again.digest == certificate.digest
    assert len(certificate.to_json().splitlines()) < 50


def changed(**values: Any) -> str:
    """Return a certificate whose grant was changed by hand."""
    contents = json.loads(Certificate((GRANT,)).to_json())
    contents["grants"][0].update(values)
    return json.dumps(contents)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense", "the certificate is not JSON"),
        ("[" * 100_000, "the certificate is not JSON"),
        ("[]", "this is no certificate of `pinocchio certify`"),
        ('{"format": "pinocchio-certificate", "version": 2}', "the certificate's version is 2"),
        ('{"format": "pinocchio-certificate", "version": 1}', "the certificate is damaged"),
        (changed(threshold=0.1), "the certificate was changed after it was written"),
        (changed(threshold="low"), "the certificate is damaged"),
        (changed(threshold=float("nan")), "the certificate is damaged"),
        (changed(accepted=10_000), "the certificate is damaged"),
        (changed(more=1), "the certificate is damaged"),
        *(
            (Certificate((replace(GRANT, scores=scores),)).to_json(), "the certificate is damaged")
            for scores in ((), (1,) * 99, (-1,) * 100, (0.5,) * 100)
        ),
        (
            Certificate((replace(GRANT, wrong=9),)).to_json(),
            "the counts for all replies do not prove its threshold",
        ),
    ],
)
def test_a_certificate_that_proves_nothing_is_refused(text: str, problem: str) -> None:
    """A damaged, changed or unproved certificate is refused in one sentence."""
    with pytest.raises(InvalidDocumentError) as caught:
        parse_certificate(text, "c.json")
    assert str(caught.value).startswith(f"c.json: {problem}")


def test_only_a_certified_threshold_becomes_a_grant() -> None:
    """Labels that certify no threshold give no grant."""
    refused = certify([LabelledScore("q", 0.9, True)], 0.05)
    with pytest.raises(ValueError, match="no certified threshold"):
        refused.grant(CALIBRATOR, Scope())
