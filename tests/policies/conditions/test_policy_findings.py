"""Conditions on a calibrator's other findings: support, basis, act and familiarity."""

from __future__ import annotations

from dataclasses import replace

import pytest

import calibrator
from policies import Facts, InvalidDocumentError, Policy, decide, explain, parse_policy, stream_mode
from policies.conditions.findings import ACTS, BASES
from policies.trying.known_facts import without_opinions, without_signals
from policies.trying.linting import lint
from policies.trying.possible import possible_decisions

FOUND = Facts(
    0.4,
    "m",
    support=0.3,
    basis=("context", "opinions"),
    act="refusal",
    needs_facts=True,
    familiar=False,
)
PLAIN = Facts(0.4, "m", basis=("likeness",), act="answer", needs_facts=False, familiar=True)
UNSCORED = Facts(None, "m")


def policy_of(when: str, more: str = "") -> Policy:
    return parse_policy(
        f"version: 1\nname: p\nrules:\n- {{name: r, when: {when}, then: block}}\n{more}"
        "on_score_error: {hold: {queue: q}}\ndefault: deliver",
        "p.yaml",
    )


@pytest.mark.parametrize(
    ("when", "holds_for_found", "holds_for_plain"),
    [
        ("{support: {below: 0.5}}", True, False),
        ("{support: {below: 0.3}}", False, False),
        ("{support: {at_least: 0.3}}", True, False),
        ("{support: {between: [0.2, 0.31]}}", True, False),
        ("{support: {at_least: 0}}", True, False),
        ("{support: {below: 0.5}, confidence: {at_least: 0.5}}", False, False),
        ("{basis: context}", True, False),
        ("{basis: [computed, opinions]}", True, False),
        ("{basis: likeness}", False, True),
        ("{basis: {only: likeness}}", False, True),
        ("{basis: {only: [context, opinions, facts]}}", True, False),
        ("{basis: {only: context}}", False, False),
        ("{act: refusal}", True, False),
        ("{act: [answer, code]}", False, True),
        ("{needs_facts: true}", True, False),
        ("{needs_facts: false}", False, True),
        ("{familiar: false}", True, False),
        ("{familiar: true}", False, True),
    ],
)
def test_whether_a_condition_holds(when: str, holds_for_found: bool, holds_for_plain: bool) -> None:
    """Each condition looks at the fact of its name; without context none on support holds."""
    policy = policy_of(when)
    held = [decide(policy, facts).rule == "r" for facts in (FOUND, PLAIN)]
    assert held == [holds_for_found, holds_for_plain]


@pytest.mark.parametrize(
    "when",
    [
        "{support: {below: 0.5}}",
        "{basis: context}",
        "{basis: {only: likeness}}",
        "{act: refusal}",
        "{needs_facts: true}",
        "{familiar: true}",
    ],
)
def test_without_a_score_on_score_error_decides(when: str) -> None:
    """Without a score `on_score_error` decides a rule on findings."""
    policy = policy_of(when)
    assert policy.needs_score
    decision = decide(policy, UNSCORED)
    assert (decision.rule, decision.action.name) == ("on_score_error", "hold")
    [trace, *_] = explain(policy, UNSCORED).rules
    assert str(trace) == "     ?  r: needs a score, so on_score_error: hold"


def test_many_rules_are_narrowed_alike() -> None:
    """A policy of many rules finds the same rule as a short one."""
    fillers = "".join(
        f"- {{name: f{n}, when: {{model: other-{n}}}, then: deliver}}\n" for n in range(30)
    )
    policy = policy_of("{support: {below: 0.5}, familiar: false}", fillers)
    assert [decide(policy, each).rule for each in (FOUND, PLAIN, UNSCORED)] == [
        "r",
        "default",
        "on_score_error",
    ]


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("{support: {}}", "needs below, at_least or between"),
        ("{support: 0.5}", "must be a mapping"),
        ("{support: {max_error: 0.1}}", "unknown key 'max_error'"),
        ("{support: {below: 50}}", "support is a probability, 0 to 1; did you mean 0.5?"),
        ("{support: {between: [0.1, 0.2], below: 0.5}}", "stands alone"),
        ("{support: {at_least: 0.5, below: 0.4}}", "can never hold"),
        ("{basis: contxt}", "not 'contxt'; did you mean 'context'?"),
        ("{basis: []}", "is empty"),
        ("{basis: {only: [likenes]}}", "did you mean 'likeness'?"),
        ("{basis: {all: likeness}}", "unknown key 'all'"),
        ("{act: refuse}", "did you mean 'refusal'?"),
        ("{needs_facts: yes please}", "must be true or false"),
        ("{familiar: 1}", "must be true or false"),
        ("{suport: {below: 0.5}}", "did you mean 'support'?"),
    ],
)
def test_a_meaningless_condition_is_refused(when: str, message: str) -> None:
    """A meaningless condition is refused with its line and the nearest name."""
    with pytest.raises(InvalidDocumentError, match=r"p\.yaml:4") as caught:
        policy_of(when)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("when", "facts", "reason"),
    [
        ("{support: {below: 0.2}}", FOUND, "support 0.3000 is not below 0.2"),
        ("{support: {below: 0.2}}", PLAIN, "no context could support it"),
        ("{support: {below: 0.5}}", FOUND, "block; support 0.3000 is below 0.5"),
        ("{basis: {only: likeness}}", FOUND, "based on context, opinions, not only on likeness"),
        ("{basis: [context, facts]}", FOUND, "block; based on context, opinions"),
        ("{act: [code, data]}", FOUND, "act refusal is not code or data"),
        ("{act: refusal}", FOUND, "block; act is refusal"),
        ("{needs_facts: true}", PLAIN, "needs_facts is false"),
        ("{familiar: false}", FOUND, "block; familiar is false"),
    ],
)
def test_reasons_are_explained(when: str, facts: Facts, reason: str) -> None:
    """`explain` gives the reason why a condition holds or not."""
    [trace, *_] = explain(policy_of(when), facts).rules
    assert "; ".join(trace.reasons) == reason


def test_streams_wait_for_what_is_found() -> None:
    """Streams are buffered where a rule looks at findings."""
    assert stream_mode(policy_of("{support: {below: 0.5}}"), model="m").mode == "buffer"


def test_what_a_record_lacks_leaves_it_open() -> None:
    """If a record lacks the support, both decisions are possible."""
    found = possible_decisions(policy_of("{support: {below: 0.5}}"), PLAIN, frozenset({"support"}))
    assert [each.action.name for each in found] == ["block", "deliver"]


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("{support: {below: 0.5}}", "{support: {below: 0.3}}"),
        ("{basis: [context, facts]}", "{basis: facts}"),
        ("{basis: [context, likeness]}", "{basis: {only: likeness}}"),
        ("{act: [code, data]}", "{act: data}"),
    ],
)
def test_a_rule_behind_a_wider_one_is_warned_about(wide: str, narrow: str) -> None:
    """A rule after a wider one gives a warning; in the other order none does."""
    rule = "- {{name: s, when: {}, then: hold}}\n"
    assert any("'s'" in str(each) for each in lint(policy_of(wide, rule.format(narrow))))
    assert not [each for each in lint(policy_of(narrow, rule.format(wide)))]


def test_without_opinions_the_basis_is_without_them_too() -> None:
    """Without opinions or judge, the basis lacks them too."""
    facts = replace(FOUND, alone=0.5, opinions=("agree",))
    assert without_opinions(facts).basis == ("context",)
    judged = replace(FOUND, unaided=0.5, judged=0.9, judge="j")
    assert without_signals(judged).basis == ("context",)
    both = replace(judged, alone=0.5, opinions=("agree",))
    assert without_signals(both).basis == ("context", "opinions")


def test_the_words_are_the_calibrators() -> None:
    """The policy's words for bases and acts are the calibrator's."""
    assert (BASES, ACTS) == (calibrator.BASES, calibrator.ACTS)
