"""The `pinocchio` object that is made without an object is the same, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator import ACTS, BASES, FieldDoubt, Score, Signals, UnsupportedSentence
from policies import Facts, decide, load_policy, parse_policy
from policies.deciding.decision import Decision, ShadowAction
from proxy.exchange.exchange import new_request_id
from proxy.exchange.outcome import Outcome, summarise
from proxy.formats import Choice
from proxy.http.wire.json_splice import dumps
from proxy.scoring.engines.findings import Findings, findings_of
from proxy.scoring.scoring import Confidence, Evidence, OtherAnswer, Status

LABELS = "version: 1\nname: p\nmode: enforce\nrules: []\ndefault: {annotate: {label: 'un\"sure'}}\n"
STEPS = 10_000  # of a confidence, as it is shown


def decided(confidence: float, text: str | None = None) -> Decision:
    policy = load_policy("observe") if text is None else parse_policy(text, "p.yaml")
    return decide(policy, Facts(confidence, "m"))


def outcome_of(confidence: float = 0.73, index: int = 0, **more: Any) -> Outcome:
    decision = decided(confidence)
    scored = Confidence(confidence, Status.SCORED, **more)
    choice = Choice(index, {"role": "assistant", "content": "yes"}, "stop")
    return summarise(new_request_id(), [choice], [scored], [decision], "embedded@0b0fe558")


def test_every_confidence_that_is_shown_is_written_alike() -> None:
    outcome = outcome_of()
    for step in range(STEPS + 1):
        outcome.confidence = step / STEPS
        outcome.choices = [(outcome.choices[0][0], Confidence(step / STEPS, Status.SCORED), None)]
        told = outcome.member_json()
        value = dumps(round(step / STEPS, 4))
        assert told.count(b'"confidence":' + value + b",") == 2, told


@given(st.floats(0, 1))
def test_any_confidence_is_rounded_alike(confidence: float) -> None:
    outcome = outcome_of(confidence)
    assert outcome.member_json() == dumps(outcome.member())


def _set(**values: Any) -> Callable[[Outcome], None]:
    def change(outcome: Outcome) -> None:
        for name, value in values.items():
            setattr(outcome, name, value)

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set(),
        _set(reason="long_text", status=Status.TRUNCATED),
        _set(review_id="rev_1", action="hold"),
        _set(escalated_from="small"),
        _set(fallback_from="large"),
        _set(clarification="template"),
        _set(standing_approval="apr_1"),
        _set(approvals=[{"type": "mcp_approval_response"}]),
        _set(calls=[{"model": "a"}, {"model": "b"}]),
        _set(shadowed=(ShadowAction("r", decided(0.5).action),)),
        _set(decision=decided(0.5, LABELS), action="annotate"),
        _set(decision=None),
        _set(calibrator=None),
        _set(calibrator='a "name"'),
        _set(confidence=None),
        _set(least=None),
        _set(choices=()),
    ],
    ids=lambda change: str(change.__closure__[0].cell_contents) or "plain",
)
def test_whatever_else_is_told_is_told_alike(change: Callable[[Outcome], None]) -> None:
    outcome = outcome_of()
    change(outcome)
    assert outcome.member_json() == dumps(outcome.member())


@pytest.mark.parametrize(
    "more",
    [
        {"because": ("it calls nothing",)},
        {"fields": (FieldDoubt("to", "it stands nowhere", 0, 0.5),)},
        {"evidence": Evidence("embedded+opinion", 0.6, ("agree",), [OtherAnswer({}, "m")])},
        {"signals": Signals(None, "", (-0.1, -0.5))},
        {
            "findings": Findings(
                ("context",), 0.31, (UnsupportedSentence("It is.", ("is",)),), "answer"
            )
        },
        {"index": 1},
    ],
    ids=lambda more: next(iter(more)),
)
def test_whatever_a_choice_has_is_told_alike(more: dict[str, Any]) -> None:
    outcome = outcome_of(**more)
    assert outcome.member_json() == dumps(outcome.member())


@given(
    st.none() | st.floats(0, 1),
    st.lists(st.sampled_from(BASES)),
    st.sampled_from(ACTS),
    st.booleans(),
)
def test_findings_are_told_alike(
    support: float | None, basis: list[str], act: str, needs_facts: bool
) -> None:
    """Whatever a calibrator found out, but for a text, is written without an object too."""
    score = Score(0.5, 0.5, support=support, basis=tuple(basis), act=act, needs_facts=needs_facts)
    outcome = outcome_of(findings=findings_of(score))
    assert outcome.member_json() == dumps(outcome.member())


def test_the_choices_of_a_reply_are_all_told() -> None:
    one, other = outcome_of(0.9), outcome_of(0.4, index=1)
    one.choices = [*one.choices, *other.choices]
    assert one.member_json() == dumps(one.member())
    assert one.member_json().count(b'"index"') == 2
