"""Long policies: only rules that can match are tried, with the same decisions."""

from __future__ import annotations

import random

import pytest

from policies import Facts, Policy, ToolCall, decide, parse_policy
from policies.deciding.rules import MANY_RULES, RuleCache

TEAMS, MODELS, TOOLS = ("support", "sales", None), ("gpt-5", "kimi-3", "m"), ("refund", "db.drop")
WHENS = (
    *("model: 'gpt-*'", "model: [kimi-3, m]", "team: support", "team: 's*'", "key: 'ci-*'"),
    *("domain: law", "tags: [beta, new]", "stream: true", "stream: false", "n: {at_least: 2}"),
    *("finish_reason: length", "refusal: true", "length: {below: 50}", "calls: {below: 2}"),
    *(
        "tools: none",
        "tools: any",
        "tools: [refund]",
        "tools: ['db.*']",
        "tools: [{words: [drop]}]",
    ),
    "tools: [{name: refund, arguments: {amount: {above: 10}}}]",
    *("confidence: {below: 0.4}", "confidence: {at_least: 0.3, below: 0.8}"),
)


def policy_of(whens: list[str], shadowed: frozenset[int] = frozenset()) -> Policy:
    rules = "".join(
        f"- {{name: r{n}, when: {{{when}}}, then: hold"
        f"{', shadow: true' if n in shadowed else ''}}}\n"
        for n, when in enumerate(whens)
    )
    return parse_policy(f"version: 1\nname: p\nrules:\n{rules}default: deliver\n", "p.yaml")


def some_facts(of: random.Random) -> Facts:
    amount = of.choice((5, 50))
    calls = [ToolCall(of.choice(TOOLS), f'{{"amount": {amount}}}') for _ in range(of.randint(0, 2))]
    return Facts(
        of.choice((None, 0.2, 0.5, 0.9)),
        of.choice(MODELS),
        tuple(calls),
        stream=of.random() < 0.5,
        finish_reason=of.choice((None, "stop", "length")),
        n=of.randint(1, 2),
        domain=of.choice((None, "law", "x" * 2_000)),
        tags=frozenset(of.sample(["beta", "new", "old"], of.randint(0, 2))),
        team=of.choice(TEAMS),
        key=of.choice((None, "ci-1", "shop")),
        refusal=of.random() < 0.2,
        length=of.choice((10, 400)),
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_long_policy_decides_as_its_rules_one_by_one(seed: int) -> None:
    """A long policy decides as its rules one by one, and records those in shadow on the way."""
    of = random.Random(seed)
    # two conditions for each rule, so that some match and most do not
    pairs = [of.sample(WHENS, 2) for _ in range(60)]
    whens = [", ".join(pair) for pair in pairs if len({each.split(":")[0] for each in pair}) == 2]
    shadowed = frozenset(of.sample(range(len(whens)), 8))
    policy = policy_of(whens, shadowed)
    assert len(policy.rules) > MANY_RULES
    matched = set()
    for _ in range(300):
        facts = some_facts(of)
        if len(facts.tools) > 1:
            facts.tools = facts.tools[
                :1
            ]  # how several calls are judged together is tested elsewhere
        holding = [rule for rule in policy.rules if rule.when.holds(facts)]
        deciding = [rule for rule in holding if not rule.is_shadow]
        decision = decide(policy, facts)
        is_unscored = facts.confidence is None
        expected = deciding[0].name if deciding else "default"
        if deciding and deciding[0].when.confidence is not None and is_unscored:
            expected = "on_score_error"
        assert decision.rule == expected
        before = holding[: holding.index(deciding[0])] if deciding else holding
        assert [each.rule for each in decision.shadowed] == [rule.name for rule in before]
        matched.add(decision.rule)
    assert len(matched) > 5


def test_few_of_a_thousand_rules_are_tried() -> None:
    """Of a thousand rules only those for the reply's team, model and tools are tried."""
    whens = [f"team: team{n}, confidence: {{below: 0.5}}" for n in range(400)]
    whens += [f"model: 'm{n}-*', confidence: {{below: 0.5}}" for n in range(300)]
    whens += [f"tools: [tool{n}], length: {{below: {n + 1}}}" for n in range(300)]
    policy = policy_of(whens)
    call = ToolCall("tool7")
    facts = Facts(0.9, "m5-large", (call,), team="team9")
    left = policy.rules_for(facts, (call,))
    assert [policy.rules[index].name for _, _, _, index, _, _ in left] == ["r9", "r405", "r707"]
    assert policy.rules_for(facts, (call,)) is left
    assert not policy.rules_for(Facts(0.9, "gpt-5"), ())


def test_what_others_write_at_length_is_not_remembered() -> None:
    """Long names from clients are not remembered, and the number of kinds is bounded."""
    policy = policy_of([f"team: team{n}" for n in range(20)] + ["domain: law", "tools: ['db.*']"])
    narrowing = RuleCache(policy.rules)
    for n in range(2_000):
        narrowing.of(Facts(0.9, "m", domain=f"{n}" + "x" * 1_000), ())
        narrowing.of(Facts(0.9, "m"), (ToolCall(f"{n}" + "x" * 1_000),))
    assert narrowing._remembered.cache_info().currsize == 0
    for n in range(2_000):
        narrowing.of(Facts(0.9, "m", domain=f"{n}"), ())
    assert narrowing._remembered.cache_info().currsize == 512
    tools = policy.rules[-1].when.tools
    assert tools is not None
    assert tools.patterns is not None
    [pattern] = tools.patterns
    assert pattern.has_name("db." + "x" * 10_000)
