"""What a proxy does not carry out is refused; asking several times is read as written."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies import (
    FEATURES,
    SERVED,
    Asking,
    Facts,
    Feature,
    InvalidDocumentError,
    Problem,
    load_policy,
    parse_policy,
    surest,
    unsupported,
)
from policies.conditions import When
from policies.globs import Globs

NEEDS: dict[Feature, str] = {
    "annotate": "default: {annotate: {label: x}}",
    "ask": "ask: {n: 2}",
    "block message": "default: {block: {message: x}}",
    "calibrator": "rules: [{name: r, when: {confidence: {max_error: 0.1}}, then: deliver}]",
    "clarify generate": "default: {clarify: {ask: generate}}",
    "deliver notice": "default: {deliver: {notice: x}}",
    "escalate ladder": "default: {escalate: {to: [a, b]}}",
    "hold async": "default: {hold: {reply: async}}",
    "hold expiry": "default: {hold: {on_expiry: reject}}",
    "hold wait": "default: {hold: {reply: wait}}",
    "key": "rules: [{name: r, when: {key: x}, then: hold}]",
    "length": "rules: [{name: r, when: {length: 0}, then: hold}]",
    "recent share": "rules: [{name: r, when: {confidence: {lowest_share: 0.1}}, then: hold}]",
    "refusal": "rules: [{name: r, when: {refusal: true}, then: hold}]",
    "rule shadow": "rules: [{name: r, when: {n: 1}, then: hold, shadow: true}]",
    "team": "rules: [{name: r, when: {team: x}, then: hold}]",
}


def text(line: str) -> str:
    default = "" if line.startswith("default") else "default: hold\n"
    return f"version: 1\nname: p\n{default}{line}\n"


def test_every_feature_is_tried_below() -> None:
    """The list of what a policy can ask for is complete."""
    assert set(NEEDS) == FEATURES
    assert SERVED <= FEATURES


@pytest.mark.parametrize("feature", NEEDS)
def test_what_is_not_carried_out_is_refused_with_its_place(
    tmp_path: Path, feature: Feature
) -> None:
    """Nothing in a policy is silently ignored: file, line and what it is about."""
    path = tmp_path / "p.yaml"
    path.write_text(text(NEEDS[feature]))
    policy = load_policy(path, FEATURES)
    assert [used for used, _ in policy.uses] == [feature]
    with pytest.raises(InvalidDocumentError, match="is not carried out by this version") as caught:
        load_policy(path, FEATURES - {feature})
    line = 3 if NEEDS[feature].startswith("default") else 4
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert parse_policy(text(NEEDS[feature]), "p.yaml").uses[0][0] == feature


def test_a_plain_policy_asks_for_nothing_more() -> None:
    """What every proxy carries out is no feature."""
    assert load_policy("helpdesk").uses == ()
    assert unsupported([("ask", Problem("p", 1, "x"))], ["ask"]) == []


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        ("{n: 3}", Asking(3)),
        ("{models: [a, b]}", Asking(1, ("a", "b"))),
        ("{models: a, n: 2}", Asking(2, ("a",))),
        ("{n: 2, when: {domain: law}}", Asking(2, (), When(domain=Globs(("law",))))),
    ],
)
def test_asking_reads_as_written(ask: str, expected: Asking) -> None:
    """So many replies, of these models, for such requests."""
    assert parse_policy(text(f"ask: {ask}"), "p.yaml").ask == expected


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        ("{}", "ask needs n or models"),
        ("{n: 1}", "ask must come to 2 to 8 replies"),
        ("{n: 3, models: [a, b, c]}", "ask must come to 2 to 8 replies"),
        ("{n: two}", "ask.n must be a whole number from 1, not 'two'"),
        ("{n: 2, when: {tools: any}}", "unknown key 'tools' in ask.when"),
        ("[a]", "ask must be a mapping, not a list"),
    ],
)
def test_a_wrong_ask_is_refused(ask: str, problem: str) -> None:
    """The first sentence says what is wrong."""
    with pytest.raises(InvalidDocumentError) as caught:
        parse_policy(text(f"ask: {ask}"), "p.yaml")
    assert str(caught.value).startswith(f"p.yaml:4: {problem}")


def test_only_such_requests_are_asked_several_times() -> None:
    """Others, and clients that want several choices themselves, are asked once."""
    ask = Asking(2, ("a", "b"), When(domain=Globs(("law",))))
    assert ask.models_for(Facts(None, "m", domain="law")) == ("a", "b", "a", "b")
    assert ask.models_for(Facts(None, "m")) == ("m",)
    assert ask.models_for(Facts(None, "m", domain="law", n=3)) == ("m",)


@pytest.mark.parametrize(
    ("confidences", "index"),
    [([0.2, 0.9, 0.5], 1), ([0.5, 0.5], 0), ([None, 0.0], 1), ([None, None], 0)],
)
def test_the_surest_reply_is_taken(confidences: list[float | None], index: int) -> None:
    """The first of equals; one without a score only where none has one."""
    assert surest(confidences) == index
