"""Explanations: every rule with its outcome and reasons, in words."""

from __future__ import annotations

from typing import Any

import pytest

from policies import Facts, ToolCall, explain, parse_policy

POLICY = parse_policy(
    """
version: 1
name: helpdesk
rules:
  - {name: mail, when: {tools: [send_email], confidence: {below: 0.95}}, then: hold}
  - {name: strict, when: {confidence: {below: 0.6}}, then: block, shadow: true}
  - {name: unsure, when: {confidence: {below: 0.5}}, then: clarify}
  - {name: law, when: {domain: "law*", tags: [beta, vip]}, then: block}
default: deliver
""",
    "p.yaml",
)


def text(confidence: float | None, *tools: str, **more: Any) -> list[str]:
    facts = Facts(confidence, "gpt-5.6", tools=tuple(map(ToolCall, tools)), **more)
    explanation = str(explain(POLICY, facts))
    return explanation.replace(POLICY.digest, "digest").splitlines()


def test_each_rule_has_its_outcome() -> None:
    """Each rule has its outcome: not matched and why, in shadow, matched, or not evaluated."""
    assert text(0.41) == [
        "helpdesk/unsure@digest: clarify",
        "    no  mail: no tool call matches",
        "shadow  strict: would block; confidence 0.4100 is below 0.6",
        "   yes  unsure: clarify; confidence 0.4100 is below 0.5",
        "        law: an earlier rule decided",
    ]


def test_the_default_is_explained_too() -> None:
    """If no rule matches, every reason is given, and then the default."""
    assert text(0.9, domain="tax") == [
        "helpdesk/default@digest: deliver",
        "    no  mail: no tool call matches",
        "    no  strict: confidence 0.9000 is not below 0.6",
        "    no  unsure: confidence 0.9000 is not below 0.5",
        "    no  law: domain 'tax' is not law*; no tag beta or vip",
        "   yes  default: deliver",
    ]


def test_a_missing_score_is_named() -> None:
    """A missing score is named with its rule and the action of `on_score_error`."""
    assert text(None, "send_email")[:2] == [
        "helpdesk/on_score_error@digest: hold",
        "     ?  mail: needs a score, so on_score_error: hold",
    ]


def test_each_parallel_call_has_its_decision() -> None:
    """Each of several calls has its own decision."""
    lines = text(0.9, "search", "send_email")
    assert lines[0] == "helpdesk/mail@digest: hold"
    assert "call of search alone: deliver" in lines
    assert "call of send_email alone: hold" in lines


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        (
            "confidence: {lowest_share: 0.05}",
            "confidence is not among the least sure 0.05 of recent replies: 0.4 were less sure",
        ),
        ("confidence: {between: [0.1, 0.2]}", "confidence 0.5000 is not from 0.1 below 0.2"),
        ("confidence: {at_least: 0.6}", "confidence 0.5000 is not at least 0.6"),
        (
            "confidence: {max_error: 0.05}",
            "confidence is not certified for at most 0.05 of errors: "
            "no certificate speaks about this reply",
        ),
        ("tools: none", "it calls a tool"),
        ("calls: {at_least: 2}", "1 tool call, not at least 2"),
        ("n: {at_least: 2, below: 4}", "n 1 is not from 2 below 4"),
        ("length: 3", "length 0 is not 3"),
        ("stream: true", "stream is false"),
        ("finish_reason: [length, stop]", "finish_reason none is not length or stop"),
        ("team: [a, b]", "team 'c' is not a or b"),
    ],
)
def test_every_condition_says_why_it_does_not_hold(when: str, reason: str) -> None:
    """A condition that does not hold gives the fact and the wanted value in one sentence."""
    policy = parse_policy(
        f"version: 1\nname: p\nrules: [{{name: r, when: {{{when}}}, then: hold}}]\ndefault: hold",
        "p.yaml",
    )
    facts = Facts(0.5, "m", tools=(ToolCall("t"),), team="c", share_below=0.4)
    assert explain(policy, facts).rules[0].reasons == (reason,)


@pytest.mark.parametrize(
    ("when", "reasons"),
    [
        ("tools: [a, 't*']", ("t matches t*",)),
        ("tools: any", ()),
        (
            "tools: [{name: t, arguments: {n: {above: 2, at_most: 9}}}]",
            ("t matches t, n above 2 and at most 9",),
        ),
        (
            "tools: [{name: t, arguments: {'*': {not: '*x'}}}]",
            ("t matches t, any argument not *x",),
        ),
        ("tools: [{words: [t, u]}]", ("t matches the word t",)),
        (
            "tools: [{words: [t], arguments: {'*': {words: [rm, drop table]}}}]",
            ("t matches the word t, any argument with drop table",),
        ),
        ("tools: [{name: t, arguments: {n: {present: true}}}]", ("t matches t, with n",)),
        ("tools: [{name: t, arguments: {m: {present: false}}}]", ("t matches t, without m",)),
        ("confidence: {between: [0.4, 0.6]}", ("confidence 0.5000 is from 0.4 below 0.6",)),
        (
            "confidence: {lowest_share: 0.5}",
            ("confidence 0.5000 is among the least sure 0.5 of recent replies",),
        ),
        ("calls: 1", ("1 tool call",)),
        ("length: {below: 9}", ("length is 0",)),
        ("stream: false", ("stream is false",)),
        ("team: 'c*'", ("team c matches c*",)),
        ("model: m", ("model is m",)),
        ("tags: [b, a]", ("tag a",)),
    ],
)
def test_every_condition_says_why_it_holds(when: str, reasons: tuple[str, ...]) -> None:
    """A condition that holds names the matching pattern, call or number."""
    policy = parse_policy(
        f"version: 1\nname: p\nrules: [{{name: r, when: {{{when}}}, then: hold}}]\ndefault: hold",
        "p.yaml",
    )
    call = ToolCall("t", '{"n": 3, "sql": "DROP TABLE a"}')
    facts = Facts(
        0.5, "m", tools=(call,), team="c", share_below=0.4, tags=frozenset("a"), stream=False
    )
    assert explain(policy, facts).rules[0].reasons == ("hold", *reasons)


def test_a_policy_in_shadow_says_that_it_delivered() -> None:
    """A policy in shadow says that the reply is delivered."""
    policy = parse_policy("version: 1\nname: p\nmode: shadow\ndefault: block", "p.yaml")
    assert (
        str(explain(policy, Facts(0.5, "m")))
        .splitlines()[0]
        .endswith("block in shadow, so the reply is delivered")
    )
