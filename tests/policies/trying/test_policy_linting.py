"""Warnings about suspicious parts of valid policies."""

from __future__ import annotations

import pytest

from policies import lint, load_policy, pack_names, parse_policy


def warnings_of(*rules: str, default: str = "deliver", tools: tuple[str, ...] = ()) -> list[str]:
    """Return the warnings of a policy whose rules a, b, .. are on lines 4, 5, ..."""
    lines = "".join(f"- {{name: {name}, {rule}}}\n" for name, rule in zip("abcdef", rules))  # noqa: B905
    text = f"version: 1\nname: p\nrules:\n{lines}default: {default}\n"
    return [str(warning) for warning in lint(parse_policy(text, "p.yaml"), tools)]


def when(conditions: str, then: str = "hold", more: str = "") -> str:
    return f"when: {{{conditions}}}, then: {then}{more}"


@pytest.mark.parametrize(
    "rules",
    [
        [when("confidence: {below: 0.2}", "block"), when("confidence: {below: 0.5}")],
        [when("tools: [send]"), when("tools: any")],
        [when("model: 'gpt-*'"), when("model: '*'")],
        [when("model: 'gpt-?'"), when("model: 'gpt-*'")],
        [when("model: '[!g]*'"), when("model: 'claude-*'")],
        [when("confidence: {below: 0.5}, tags: x"), when("confidence: {below: 0.3}")],
        [when("confidence: {below: 0.5}", more=", shadow: true"), when("confidence: {below: 0.3}")],
        [when("tools: [{name: t, arguments: {a: 1}}]"), when("tools: [t]")],
        [when("confidence: {below: 1}", "block"), when("confidence: {at_least: 0.5}")],
        [when("confidence: {lowest_share: 0.1}"), when("confidence: {below: 0.3}")],
    ],
)
def test_ordinary_policies_are_not_warned_about(rules: list[str]) -> None:
    """Ordinary policies give no warning: ladders, exceptions before a rule, uncertain cases."""
    messages = [each for each in warnings_of(*rules) if "can never match" in each]
    assert messages == []


@pytest.mark.parametrize(
    ("rules", "shadowing"),
    [
        ([when("confidence: {below: 0.5}"), when("confidence: {below: 0.2}", "block")], "rule 'a'"),
        ([when("tools: any"), when("tools: [send]", "block")], "rule 'a'"),
        ([when("model: 'gpt-*'"), when("model: [gpt-5, 'gpt-5*']", "block")], "rule 'a'"),
        ([when("model: 'gpt-?*'"), when("model: gpt-5, tags: x", "block")], "rule 'a'"),
        ([when("tags: [x, y]"), when("tags: x, stream: true", "block")], "rule 'a'"),
        ([when("length: {at_least: 5}"), when("length: {at_least: 9}", "block")], "rule 'a'"),
        ([when("tools: [t]"), when("tools: [{name: t, arguments: {a: 1}}]", "block")], "rule 'a'"),
        (
            [
                when("confidence: {below: 0.5}", "block"),
                when("tags: x, confidence: {at_least: 0.5}", "clarify"),
                when("confidence: {at_least: 0.5}", "deliver"),
                when("confidence: {between: [0.2, 0.8]}"),
            ],
            "rules 'a' and 'c'",
        ),
        ([when("confidence: {at_least: 0}"), when("tools: any", "block")], "rule 'a'"),
    ],
)
def test_a_rule_that_can_never_match_is_warned_about(rules: list[str], shadowing: str) -> None:
    """A rule that can never match gives a warning that names the rules before it."""
    line, name = 3 + len(rules), "abcdef"[len(rules) - 1]
    they = "decide" if "rules" in shadowing else "decides"
    expected = f"p.yaml:{line}: rule {name!r} can never match: {shadowing} {they} before it"
    assert expected in warnings_of(*rules)


def test_the_same_conditions_with_another_action_contradict() -> None:
    """Two rules with the same conditions and different actions give a warning."""
    assert warnings_of(when("tags: x"), when("tags: x", "block")) == [
        "p.yaml:5: rule 'b' can never match: rule 'a' has the same conditions and another action"
    ]


def test_bands_that_cut_into_each_other_are_warned_about() -> None:
    """Overlapping bands of confidence give a warning that names the first rule."""
    assert warnings_of(
        when("confidence: {between: [0.2, 0.5]}"),
        when("confidence: {between: [0.4, 0.7]}", "clarify"),
    ) == ["p.yaml:5: rule 'b' overlaps rule 'a', which comes first and decides from 0.4 below 0.5"]
    alike = when("confidence: {between: [0.4, 0.7]}")
    assert warnings_of(when("confidence: {between: [0.2, 0.5]}"), alike) == []


def test_stricter_treatment_of_surer_replies_is_warned_about() -> None:
    """A rule that treats surer replies more strictly gives a warning."""
    assert warnings_of(
        when("confidence: {at_least: 0.8}"), when("confidence: {below: 0.5}", "deliver")
    ) == [
        "p.yaml:4: rule 'a' treats surer replies more strictly than rule 'b' treats less sure ones"
    ]
    assert (
        warnings_of(
            when("tools: any, confidence: {at_least: 0.8}"),
            when("confidence: {below: 0.5}", "deliver"),
        )
        == []
    )


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([when("model: a", "{escalate: {to: a}}")], "to a, which it escalates; decide about a"),
        (
            [when("model: a", "{escalate: {to: b}}"), when("model: b", "{escalate: {to: a}}")],
            "to b and so to a, which it escalates; decide about a",
        ),
        (
            [when("model: a*", "{escalate: {to: [b, a2]}}")],
            "to a2, which it escalates; decide about a2",
        ),
    ],
)
def test_escalations_in_a_circle_are_warned_about(rules: list[str], message: str) -> None:
    """Escalations in a circle give a warning."""
    assert warnings_of(*rules) == [
        f"p.yaml:4: rule 'a' escalates in a circle: {message} in a rule above it"
    ]


def test_a_rule_above_ends_a_circle() -> None:
    """A rule above that decides before the escalation ends a circle."""
    escalating = when("model: a*, confidence: {below: 0.5}", "{escalate: {to: a2}}")
    assert warnings_of(when("model: a2", "deliver"), escalating) == []
    sure = when("model: a2, confidence: {at_least: 0.2}", "deliver")
    assert "escalates in a circle" in " ".join(warnings_of(sure, escalating))


def test_escalations_upwards_are_fine() -> None:
    """A chain of escalations gives no warning."""
    first, second = (
        when("model: a", "{escalate: {to: b}}"),
        when("model: b", "{escalate: {to: c}}"),
    )
    assert warnings_of(first, second) == []


def test_tools_that_nobody_has_are_warned_about() -> None:
    """With a list of known tools, a pattern that matches none gives a warning."""
    rules = [when("tools: [send_emial, 'db.*', 'x*']")]
    known = ("send_email", "db.delete")
    assert warnings_of(*rules, tools=known) == [
        "p.yaml:4: rule 'a' is about 'send_emial', which no known tool is; "
        "did you mean 'send_email'?",
        "p.yaml:4: rule 'a' is about 'x*', which no known tool is",
    ]
    assert warnings_of(*rules) == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (when("tools: any", "{hold: {reply: placeholder}}"), "answers tool calls with prose"),
        (
            when("tools: [send]", "{hold: {reply: wait, otherwise: placeholder}}"),
            "answers tool calls with prose",
        ),
        (when("stream: true", "{hold: {reply: async}}"), "to which no 202 can be the answer"),
    ],
)
def test_replies_that_do_not_suit_are_warned_about(rule: str, message: str) -> None:
    """A held answer that does not suit its reply gives a warning."""
    (warning,) = warnings_of(rule)
    assert message in warning


@pytest.mark.parametrize("name", pack_names())
def test_the_packs_give_no_warnings(name: str) -> None:
    """The shipped packs give no warnings."""
    assert lint(load_policy(name)) == []
