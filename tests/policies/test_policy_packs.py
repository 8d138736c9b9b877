"""The policies that come with the package do what their comments say."""

from __future__ import annotations

from pathlib import Path

import pytest

import policies
from policies import (
    Annotate,
    Clarify,
    Deliver,
    Escalate,
    Facts,
    Hold,
    ToolCall,
    decide,
    load_policy,
    pack_names,
    stream_mode,
)


def facts(confidence: float | None, *tools: str) -> Facts:
    return Facts(confidence, "gpt-5.6", tools=tuple(ToolCall(name) for name in tools))


def test_the_packs_are_found_by_name() -> None:
    """Each pack's file name is the policy's name."""
    assert pack_names() == (
        "agent-tools",
        "best-of-n",
        "cascade",
        "finance",
        "healthcare",
        "helpdesk",
        "observe",
        "second-opinion",
    )
    for name in pack_names():
        assert load_policy(name).name == name


@pytest.mark.parametrize("name", pack_names())
def test_every_pack_says_that_its_thresholds_are_no_guarantee(name: str) -> None:
    """A shipped threshold is a starting point, and the file says which number to trust."""
    path = Path(policies.__file__).parent / "packs" / f"{name}.yaml"
    text = " ".join(path.read_text(encoding="utf-8").replace("#", " ").split())
    assert "not a guarantee" in text or "not guarantees" in text
    assert "The number to trust is the one certified on your own labelled replies." in text


def test_observe_changes_nothing() -> None:
    """Observe records what it would hold, and delivers, score or none, stream or not."""
    policy = load_policy("observe")
    assert decide(policy, facts(0.1)).action == Hold()
    for confidence in (None, 0.1, 0.9):
        assert decide(policy, facts(confidence)).applied == Deliver()
    assert stream_mode(policy, model="gpt-5.6").mode == "passthrough"


@pytest.mark.parametrize(
    ("given_facts", "rule", "name"),
    [
        (facts(0.5), "default", "deliver"),
        (facts(0.35), "default", "deliver"),
        (facts(0.3), "unclear question", "clarify"),
        (facts(0.19), "very unsure", "hold"),
        (facts(0.94, "send_email"), "irreversible tools", "hold"),
        (facts(0.1, "refund_order"), "irreversible tools", "hold"),
        (facts(0.96, "refund_order"), "default", "deliver"),
        (facts(0.5, "search"), "default", "deliver"),
        (facts(None), "on_score_error", "hold"),
    ],
)
def test_helpdesk(given_facts: Facts, rule: str, name: str) -> None:
    """Sure replies go out, unsure ones are asked about or held, risky tools need to be sure."""
    decision = decide(load_policy("helpdesk"), given_facts)
    assert (decision.rule, decision.applied.name) == (rule, name)


def test_helpdesk_tells_tools_from_text() -> None:
    """A held tool call is answered with an error, held text with what suits the reply."""
    policy = load_policy("helpdesk")
    assert decide(policy, facts(0.1, "send_email")).action == Hold("oncall", "error", 1800.0)
    assert decide(policy, facts(0.1)).action == Hold()
    assert isinstance(decide(policy, facts(0.3)).action, Clarify)
    assert stream_mode(policy, model="gpt-5.6").mode == "buffer"


@pytest.mark.parametrize(
    ("given_facts", "rule"),
    [
        (facts(0.01), "default"),
        (facts(None), "default"),
        (facts(0.5, "search"), "default"),
        (facts(0.39, "search"), "unsure tools"),
        (facts(0.95, "delete_user"), "default"),
        (facts(None, "search"), "on_score_error"),
    ],
)
def test_agent_tools(given_facts: Facts, rule: str) -> None:
    """Text flows, also without a score; tool calls are gated."""
    decision = decide(load_policy("agent-tools"), given_facts)
    assert decision.rule == rule
    assert decision.applied.name == ("deliver" if rule == "default" else "hold")


@pytest.mark.parametrize(
    "name",
    [
        "delete",
        "delete_user",
        "deleteUser",
        "DeleteUser",
        "userDelete",
        "db.delete",
        "mcp__db__delete_row",
        "db-drop-table",
        "sendEmail",
        "gmail.send",
        "pay_invoice",
        "stripe_refund",
        "bank.transfer_money",
        "publishPost",
    ],
)
def test_agent_tools_knows_the_common_spellings_of_irreversible_tools(name: str) -> None:
    """Snake, camel, Pascal, dotted and MCP names of the same verb are all held."""
    decision = decide(load_policy("agent-tools"), facts(0.89, name))
    assert decision.rule == "irreversible tools"
    assert decision.action == Hold("approvals", "error", 1800.0)


@pytest.mark.parametrize(
    ("name", "middle", "last"),
    [
        ("healthcare", "nurse", "physician"),
        ("finance", "junior-analyst", "senior-analyst"),
    ],
)
def test_the_examples_have_three_tiers(name: str, middle: str, last: str) -> None:
    """Sure text goes out; the rest, all tool calls and what has no score wait for people."""
    policy = load_policy(name)
    assert decide(policy, facts(0.8)).action == Deliver()
    queues = [
        decide(policy, each).action.queue  # type: ignore[union-attr]
        for each in (facts(0.79), facts(0.5), facts(0.49), facts(0.9, "pay"), facts(None))
    ]
    assert queues == [middle, middle, last, last, last]
    assert policy.costs is not None
    assert set(policy.costs.queues) == {middle, last}


def test_cascade_asks_a_stronger_model_once() -> None:
    """Unsure replies of other models are asked again, those of the strong model are delivered."""
    policy = load_policy("cascade")
    assert decide(policy, facts(0.59)).action == Deliver()  # it is the strong model's own
    unsure = Facts(0.59, "gpt-5-mini")
    assert decide(policy, unsure).action == Escalate("gpt-5.6")
    assert decide(policy, Facts(0.6, "gpt-5-mini")).action == Deliver()
    assert decide(policy, Facts(None, "gpt-5-mini")).action == Deliver()


def test_second_opinion_asks_in_its_band() -> None:
    """Replies that are neither sure nor hopeless are asked about; the rules look at what comes."""
    policy = load_policy("second-opinion")
    assert policy.second_opinion is not None
    asked = [policy.second_opinion.is_wanted(facts(c)) for c in (0.3, 0.6, 0.94, 0.96)]
    assert asked == [False, True, True, False]
    found = [decide(policy, facts(c)).action for c in (0.95, 0.7, 0.3, None)]
    assert found == [Deliver(), Annotate("unverified"), Hold(), Hold()]


def test_best_of_n_asks_three_times() -> None:
    """The request is sent three times; where all are very unsure, the surest is held."""
    policy = load_policy("best-of-n")
    assert policy.ask is not None
    assert policy.ask.models_for(Facts(None, "m")) == ("m", "m", "m")
    assert policy.ask.models_for(Facts(None, "m", n=2)) == ("m",)
    assert decide(policy, facts(0.1)).action == Hold()
