"""`judge` and `logprobs` in a policy: parsing, `check`, replay."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from policies import Facts, InvalidDocumentError, Judge, Policy, json_schema, parse_policy
from policies.conditions.conditions import When
from policies.conditions.confidence import Band
from policies.trying.known_facts import facts_known_to
from policies.trying.recorded import facts_as_values, facts_from_values
from policies.trying.replays import Exchange, replay

RULE = "{name: unsure, when: {confidence: {below: 0.5}}, then: hold}"


def policy_with(*lines: str) -> Policy:
    head = ["version: 1", "name: judged", f"rules: [{RULE}]", "default: deliver"]
    return parse_policy("\n".join([*head, *lines]), "judged.yaml")


@pytest.mark.parametrize(
    ("text", "judge"),
    [
        ("{model: b}", Judge(model="b")),
        ("{model: b, by: words, within: 5s}", Judge(model="b", by="words", within_s=5.0)),
        (
            "{model: b, when: {confidence: {between: [0.3, 0.9]}}}",
            Judge(model="b", when=When(Band(0.3, 0.9))),
        ),
        (
            "{model: b, when: near_threshold}",
            Judge(model="b", is_near=True, bands=(Band(0.14, 0.71),)),
        ),
    ],
)
def test_it_is_read(text: str, judge: Judge) -> None:
    """Both are parsed, and the judge's model is listed among the policy's models."""
    policy = policy_with(f"judge: {text}", "logprobs: true")
    assert (policy.judge, policy.logprobs, policy.needs_score) == (judge, True, True)
    assert [name for name, _ in policy.models] == ["b"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("judge: {}", "model"),
        ("judge: {model: b, by: feel}", "judge.by must be token or words"),
        ("judge: {model: b, within: 1h}", "must be more than 0s and at most 10m, not 1h"),
        (
            "judge: {model: b, when: {confidence: {max_error: 0.05}}}",
            "valid keys: below, at_least, between",
        ),
        ("judge: {model: b, whn: {}}", "did you mean 'when'?"),
        ("logprobs: maybe", "logprobs must be true or false"),
    ],
)
def test_a_mistake_is_one_sentence(line: str, message: str) -> None:
    """A mistake is refused in one sentence with its line and the valid values."""
    with pytest.raises(InvalidDocumentError, match=r"judged\.yaml:5") as caught:
        policy_with(line)
    assert message in str(caught.value)


def test_check_says_what_it_does() -> None:
    """`check` says which model judges which replies."""
    policy = policy_with("judge: {model: gpt-5-mini, when: {confidence: {below: 0.9}}}")
    sentence = (
        "asks gpt-5-mini to judge replies whose confidence is below 0.9, waiting at most 10 s"
    )
    assert str(policy.judge) == sentence
    bare = policy_with("judge: {model: gpt-5-mini}")
    assert "to judge every reply" in str(bare.judge)


def test_the_schema_knows_both() -> None:
    """The JSON Schema has both keys."""
    properties = json_schema()["properties"]
    assert set(properties["judge"]["properties"]) == {"model", "when", "by", "within"}
    assert properties["logprobs"] == {"type": "boolean"}


# --- looking back ---------------------------------------------------------------------------------

KNOWN = Facts(
    0.8,
    "m",
    calibrator="c@1+judge@2",
    judged=0.9,
    judge="b",
    logprobs=(-0.2, -1.0),
    unaided=0.4,
    unaided_calibrator="c@1",
    unaided_score=0.45,
)


def test_facts_survive_as_values() -> None:
    """Facts of signals survive being written as values and read."""
    assert facts_from_values(json.loads(json.dumps(facts_as_values(KNOWN))), "x") == KNOWN


@pytest.mark.parametrize(
    ("line", "confidence", "is_judged"),
    [
        ("", 0.4, False),
        ("judge: {model: b}", 0.8, True),
        ("judge: {model: b, when: {confidence: {at_least: 0.5}}}", 0.4, False),
        ("logprobs: true", 0.8, False),
    ],
)
def test_a_policy_is_judged_by_the_number_that_it_would_have(
    line: str, confidence: float, is_judged: bool
) -> None:
    """A policy that ignores a signal is judged by the confidence without it."""
    found = facts_known_to(policy_with(line), KNOWN)
    assert (found.facts.confidence, found.is_judged) == (confidence, is_judged)
    assert found.facts.calibrator == ("c@1" if confidence == 0.4 else "c@1+judge@2")


def test_replay_counts_the_calls_and_what_they_gain() -> None:
    """A replay counts the judge's calls, their cost, and the replies without a known verdict."""
    unknown = replace(
        Facts(0.4, "m", calibrator="c@1"),
    )
    recorded = [Exchange(KNOWN), Exchange(unknown)]
    costs: Any = "costs: {judge: 0.5, manual: 10}"
    side = replay(policy_with("judge: {model: b}", costs), recorded).after
    assert (side.judged, side.unjudged, side.delivered, side.delivered_alone) == (2, 1, 1, 0)
    assert side.cost == 10 + 2 * 0.5
    assert "a judge about 2 replies (1.00 calls a reply): 1 are delivered" in str(side)
    assert "its word on 1 is not known" in str(side)
    without = replay(policy_with(costs), recorded).after
    assert (without.judged, without.delivered) == (0, 0)
