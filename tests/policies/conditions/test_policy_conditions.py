"""Conditions: when a rule holds, and which conditions are refused."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import Facts, InvalidDocumentError, ToolCall, parse_policy
from policies.conditions.conditions import When
from policies.conditions.globs import Globs


def read(when: str) -> When:
    """Parse the YAML of one `when`, as line 4 of a policy."""
    text = f"version: 1\nname: p\nrules:\n- {{name: r, when: {when}, then: hold}}\ndefault: block"
    return parse_policy(text, "p.yaml").rules[0].when


REPLY = Facts(
    confidence=0.5,
    model="claude-4.5",
    tools=(ToolCall("lookup"), ToolCall("db.delete", '{"id": 1}')),
    stream=True,
    finish_reason="tool_calls",
    n=2,
    domain="support/billing",
    tags=frozenset({"vip", "eu"}),
    team="support",
    key="ci",
    length=120,
    share_below=0.04,
)
BARE = Facts(confidence=0.5, model="gpt-5.6", finish_reason="stop", refusal=True)


@pytest.mark.parametrize(
    ("when", "holds_for_reply", "holds_for_bare"),
    [
        ("{}", True, True),
        ("", True, True),
        ("{confidence: {below: 0.5}}", False, False),
        ("{confidence: {below: 0.51}}", True, True),
        ("{confidence: {at_least: 0.5}}", True, True),
        ("{confidence: {at_least: 0.51}}", False, False),
        ("{confidence: {at_least: 0.4, below: 0.6}}", True, True),
        ("{confidence: {between: [0.5, 0.6]}}", True, True),
        ("{confidence: {between: [0.4, 0.5]}}", False, False),
        ("{confidence: {at_least: 0}}", True, True),
        ("{model: 'claude-*'}", True, False),
        ("{model: 'CLAUDE-*'}", False, False),
        ("{model: claude}", False, False),
        ("{model: ['gpt-[45].?', o3]}", False, True),
        ("{tools: ['db.*']}", True, False),
        ("{tools: [send, lookup]}", True, False),
        ("{tools: [look]}", False, False),
        ("{tools: any}", True, False),
        ("{tools: none}", False, True),
        ("{tools: [any]}", False, False),
        ("{stream: true}", True, False),
        ("{stream: false}", False, True),
        ("{finish_reason: stop}", False, True),
        ("{finish_reason: [tool_calls, length]}", True, False),
        ("{n: 2}", True, False),
        ("{n: 1}", False, True),
        ("{n: {at_least: 2}}", True, False),
        ("{n: {at_least: 1}}", True, True),
        ("{domain: support}", False, False),
        ("{domain: [law, 'support/*']}", True, False),
        ("{tags: [vip, us]}", True, False),
        ("{tags: us}", False, False),
        ("{team: [support, sales]}", True, False),
        ("{team: '*'}", True, False),
        ("{key: 'c*'}", True, False),
        ("{refusal: true}", False, True),
        ("{refusal: false}", True, False),
        ("{length: {at_least: 120}}", True, False),
        ("{length: {below: 120}}", False, True),
        ("{length: 0}", False, True),
        ("{length: {at_least: 100, below: 200}}", True, False),
        ("{calls: 2}", True, False),
        ("{calls: {at_least: 3}}", False, False),
        ("{calls: {below: 2}}", False, True),
        ("{confidence: {lowest_share: 0.05}}", True, False),
        ("{confidence: {lowest_share: 0.04}}", False, False),
        ("{confidence: {max_error: 0.05}}", False, False),
        ("{model: 'claude-*', stream: false}", False, False),
        ("{model: 'claude-*', stream: true, tags: [vip], tools: any}", True, False),
    ],
)
def test_all_conditions_have_to_hold(
    when: str, holds_for_reply: bool, holds_for_bare: bool
) -> None:
    """A rule holds only if all its conditions hold, each on its own fact."""
    assert read(when).holds(REPLY) is holds_for_reply
    assert read(when).holds(BARE) is holds_for_bare


@pytest.mark.parametrize(
    ("when", "problem"),
    [
        (
            "{confidence: {blow: 0.5}}",
            "unknown key 'blow' in rules[0].when.confidence; did you mean 'below'?",
        ),
        (
            "{colour: red}",
            "unknown key 'colour' in rules[0].when; valid keys: confidence, stream, model, team, "
            "key, domain, tags, n, finish_reason, refusal, length, calls, tools, "
            "risk, support, basis, act, needs_facts, familiar",
        ),
        ("{team: 3}", "rules[0].when.team must be text, not 3"),
        ("{key: []}", "rules[0].when.key is empty, so it could never hold"),
        ("{refusal: maybe}", "rules[0].when.refusal must be true or false, not 'maybe'"),
        ("{length: -1}", "rules[0].when.length must be a whole number from 0, not -1"),
        (
            "{length: {at_least: 5, below: 5}}",
            "rules[0].when.length can never hold: nothing is at least 5 and below 5",
        ),
        (
            "{tools: none, calls: {at_least: 1}}",
            "rules[0].when can never hold: it asks for calls and for none",
        ),
        (
            "{confidence: {max_error: 0}}",
            "rules[0].when.confidence.max_error must be more than 0 and less than 1, not 0",
        ),
        (
            "{confidence: {lowest_share: 5}}",
            "confidence is a probability, 0 to 1; did you mean 0.05?",
        ),
        (
            "{confidence: {lowest_share: 0.1, below: 0.5}}",
            "rules[0].when.confidence.lowest_share stands alone, without below",
        ),
        (
            "always",
            "rules[0].when must be a mapping, not 'always'; valid keys: confidence, stream, model, "
            "team, key, domain, tags, n, finish_reason, refusal, length, calls, tools, "
            "risk, support, basis, act, needs_facts, familiar",
        ),
        (
            "{confidence: {}}",
            "rules[0].when.confidence needs below, at_least, between, max_error or lowest_share",
        ),
        (
            "{confidence: }",
            "rules[0].when.confidence needs below, at_least, between, max_error or lowest_share",
        ),
        (
            "{confidence: 0.5}",
            "rules[0].when.confidence must be a mapping, not 0.5; "
            "valid keys: below, at_least, between, max_error, lowest_share",
        ),
        (
            "{confidence: {below: 70}}",
            "confidence is a probability, 0 to 1; did you mean 0.7?",
        ),
        (
            "{confidence: {below: 250}}",
            "confidence is a probability, 0 to 1, not 250",
        ),
        (
            "{confidence: {at_least: -0.5}}",
            "confidence is a probability, 0 to 1, not -0.5",
        ),
        (
            "{confidence: {below: 1.5}}",
            "confidence is a probability, 0 to 1, not 1.5",
        ),
        (
            "{confidence: {below: true}}",
            "rules[0].when.confidence.below must be a number from 0 to 1, not true",
        ),
        (
            "{confidence: {below: 70%}}",
            "rules[0].when.confidence.below must be a number from 0 to 1, not '70%'",
        ),
        (
            "{confidence: {below: .nan}}",
            "rules[0].when.confidence.below must be a number from 0 to 1, not '.nan'",
        ),
        (
            "{confidence: {below: 0.3, at_least: 0.7}}",
            "rules[0].when.confidence can never hold: nothing is at least 0.7 and below 0.3",
        ),
        (
            "{confidence: {below: 0}}",
            "rules[0].when.confidence can never hold: nothing is at least 0 and below 0",
        ),
        (
            "{confidence: {between: [0.6, 0.4]}}",
            "rules[0].when.confidence can never hold: nothing is at least 0.6 and below 0.4",
        ),
        (
            "{confidence: {between: [0.4]}}",
            "rules[0].when.confidence.between must be two numbers, as in [0.2, 0.5]",
        ),
        (
            "{confidence: {between: 0.4}}",
            "rules[0].when.confidence.between must be two numbers, as in [0.2, 0.5]",
        ),
        (
            "{confidence: {between: [0.4, x]}}",
            "rules[0].when.confidence.between[1] must be a number from 0 to 1, not 'x'",
        ),
        (
            "{confidence: {between: [0.2, 0.4], below: 0.3}}",
            "rules[0].when.confidence.between stands alone, without below",
        ),
        ("{model: 5}", "rules[0].when.model must be text, not 5"),
        ("{model: [a, 5]}", "rules[0].when.model[1] must be text, not 5"),
        ("{model: []}", "rules[0].when.model is empty, so it could never hold"),
        ("{tools: []}", "rules[0].when.tools is empty, so it could never hold"),
        (
            "{tools: send}",
            "rules[0].when.tools must be a list of tool names, any or none, not 'send'",
        ),
        (
            "{tools: {name: send}}",
            "rules[0].when.tools must be a list of tool names, any or none, not a mapping",
        ),
        ("{stream: yes}", "rules[0].when.stream must be true or false, not 'yes'"),
        ("{n: 0}", "rules[0].when.n must be a whole number from 1, not 0"),
        ("{n: true}", "rules[0].when.n must be a whole number from 1, not true"),
        ("{n: {at_least: 1.5}}", "rules[0].when.n.at_least must be a whole number from 1, not 1.5"),
        ("{n: {}}", "rules[0].when.n needs at_least or below"),
        ("{domain: }", "rules[0].when.domain must be text, not null"),
        ("{tags: [' ']}", "rules[0].when.tags[0] must be text, not ' '"),
    ],
)
def test_a_wrong_condition_is_refused_with_one_sentence(when: str, problem: str) -> None:
    """A wrong condition is refused in one sentence with its line and the valid values."""
    with pytest.raises(InvalidDocumentError) as caught:
        read(when)
    assert str(caught.value) == f"p.yaml:4: {problem}"


@pytest.mark.parametrize("confidence", [float("nan"), float("inf"), -0.1, 1.0001])
def test_a_number_that_is_no_probability_is_no_score(confidence: float) -> None:
    """A score that is no probability counts as missing."""
    assert Facts(confidence=confidence, model="m").confidence is None


@pytest.mark.parametrize("confidence", [0, 0.0, 1, 1.0, None])
def test_every_probability_is_kept(confidence: float | None) -> None:
    """Every probability is kept, 0 and 1 too."""
    assert Facts(confidence=confidence, model="m").confidence == confidence


@given(
    st.lists(st.text("ab*?[]!-^\\.", max_size=8), min_size=1, max_size=3),
    st.text("ab*[]!-.", max_size=6),
)
def test_compiled_globs_agree_with_fnmatchcase(patterns: list[str], name: str) -> None:
    """A compiled list of globs matches the same names as fnmatchcase."""
    expected = any(fnmatchcase(name, pattern) for pattern in patterns)
    assert Globs(tuple(patterns)).match(name) is expected


def test_an_unknown_name_matches_no_glob() -> None:
    """A missing name matches no glob, not even `*`."""
    assert not Globs(("*",)).match(None)


patterns = st.text("ab*?[]!", min_size=1, max_size=5)


@given(patterns, patterns, st.text("abc", max_size=4))
def test_a_glob_that_covers_another_matches_all_that_it_matches(
    wide: str, narrow: str, text: str
) -> None:
    """A glob that covers another one matches every text that the other matches."""
    if Globs((wide,)).covers(Globs((narrow,))) and Globs((narrow,)).match(text):
        assert Globs((wide,)).match(text)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [("*", "a*"), ("a*", "ab"), ("a*", "ab*"), ("a?", "ab"), ("*a*", "bab"), ("?*", "?")],
)
def test_plain_cases_of_covering_are_seen(wide: str, narrow: str) -> None:
    """Covering is found in the plain cases."""
    assert Globs((wide,)).covers(Globs((narrow,)))
