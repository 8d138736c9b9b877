"""The shipped packs decide as their comments say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def facts(confidence: float | None, *tools: str, **found: Any) -> Facts:
    found = {"basis": ("likeness",), **found} if confidence is not None else found
    return Facts(confidence, "gpt-5.6", tools=tuple(ToolCall(name) for name in tools), **found)


def supported(support: float, confidence: float = 0.5) -> Facts:
    return facts(confidence, support=support, basis=("context", "likeness"))


def test_the_packs_are_found_by_name() -> None:
    """The packs are found, and each policy has its file's name."""
    assert pack_names() == (
        "agent-tools",
        "best-of-n",
        "cascade",
        "coding-agent",
        "doubtful-calls",
        "finance",
        "healthcare",
        "helpdesk",
        "observe",
        "rag",
        "second-opinion",
        "second-opinion-facts",
    )
    for name in pack_names():
        assert load_policy(name).name == name


@pytest.mark.parametrize("name", pack_names())
def test_every_pack_says_that_its_thresholds_are_no_guarantee(name: str) -> None:
    """Each pack says that its thresholds are no guarantee and which number to trust."""
    path = Path(policies.__file__).parent / "packs" / f"{name}.yaml"
    text = " ".join(path.read_text(encoding="utf-8").replace("#", " ").split())
    assert "not a guarantee" in text or "not guarantees" in text
    assert "The number to trust is the one certified on your own labelled replies." in text


def test_observe_changes_nothing() -> None:
    """`observe` decides to hold but delivers, with or without a score, also streams."""
    policy = load_policy("observe")
    assert decide(policy, facts(0.1)).action == Hold()
    for confidence in (None, 0.1, 0.9):
        assert decide(policy, facts(confidence)).applied == Deliver()
    assert stream_mode(policy, model="gpt-5.6").mode == "passthrough"


@pytest.mark.parametrize(
    ("given_facts", "rule", "name"),
    [
        (facts(0.01), "default", "deliver"),
        (facts(0.01, basis=("calls",)), "default", "deliver"),
        (supported(0.5), "default", "deliver"),
        (supported(0.9, confidence=0.01), "default", "deliver"),
        (supported(0.49), "unclear question", "clarify"),
        (supported(0.29, confidence=0.99), "unsupported", "hold"),
        (facts(0.19, basis=("computed", "likeness")), "failed a check", "hold"),
        (facts(0.19, basis=("opinions",)), "failed a check", "hold"),
        (facts(0.2, basis=("facts",)), "default", "deliver"),
        (facts(0.94, "send_email"), "irreversible tools", "hold"),
        (facts(0.1, "refund_order"), "irreversible tools", "hold"),
        (facts(0.96, "refund_order"), "default", "deliver"),
        (facts(0.5, "search"), "default", "deliver"),
        (facts(None), "on_score_error", "hold"),
    ],
)
def test_helpdesk(given_facts: Facts, rule: str, name: str) -> None:
    """`helpdesk` holds unsupported text, text that fails a check and unsure risky calls.

    Likeness alone holds nothing.
    """
    decision = decide(load_policy("helpdesk"), given_facts)
    assert (decision.rule, decision.applied.name) == (rule, name)


def test_helpdesk_separates_calls_from_text() -> None:
    """`helpdesk` answers a held call with an error, and unsupported text in another way."""
    policy = load_policy("helpdesk")
    assert decide(policy, facts(0.1, "send_email")).action == Hold("oncall", "error", 1800.0)
    assert decide(policy, supported(0.1)).action == Hold()
    assert isinstance(decide(policy, supported(0.4)).action, Clarify)
    assert stream_mode(policy, model="gpt-5.6").mode == "buffer"


@pytest.mark.parametrize(
    ("given_facts", "rule", "name"),
    [
        (supported(0.19, confidence=0.99), "contradicted", "hold"),
        (facts(0.19, basis=("computed",)), "failed a check", "hold"),
        (supported(0.49), "not in the documents", "clarify"),
        (supported(0.79), "supported in part", "annotate"),
        (supported(0.8, confidence=0.01), "default", "deliver"),
        (facts(0.01), "not checked", "annotate"),
        (facts(0.99), "not checked", "annotate"),
        (facts(None), "on_score_error", "hold"),
    ],
)
def test_rag(given_facts: Facts, rule: str, name: str) -> None:
    """`rag` decides by the documents; a reply without any is labelled, never held."""
    decision = decide(load_policy("rag"), given_facts)
    assert (decision.rule, decision.applied.name) == (rule, name)


def test_second_opinion_facts_asks_about_facts_alone() -> None:
    """`second-opinion-facts` asks only where facts are needed, and holds what others deny."""
    policy = load_policy("second-opinion-facts")
    assert policy.second_opinion is not None
    replies = [facts(0.3, needs_facts=True), facts(0.3, needs_facts=False), facts(None)]
    assert [policy.second_opinion.is_wanted(each) for each in replies] == [True, False, False]
    denied = {"needs_facts": True, "basis": ("opinions", "likeness")}
    found = [decide(policy, facts(c, **denied)).action for c in (0.39, 0.69, 0.7)]
    assert found == [Hold(), Annotate("unverified"), Deliver()]
    assert decide(policy, facts(0.01, needs_facts=True)).action == Annotate("unverified")
    assert decide(policy, facts(0.01, needs_facts=False)).action == Deliver()
    assert decide(policy, facts(None)).action == Deliver()


@pytest.mark.parametrize("name", ["helpdesk", "rag", "second-opinion-facts"])
def test_likeness_alone_holds_no_text(name: str) -> None:
    """A confidence by likeness alone withholds no text."""
    policy = load_policy(name)
    for step in range(101):
        for found in ({}, {"needs_facts": True}, {"familiar": False}, {"act": "refusal"}):
            decision = decide(policy, facts(step / 100, **found))
            assert decision.applied.name in ("deliver", "annotate")


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
    """`agent-tools` delivers text, also without a score, and holds calls by their rules."""
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
    """`agent-tools` knows an irreversible verb in snake, camel, Pascal, dotted and MCP names."""
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
    """Both packs deliver sure text; other text, calls and unscored replies wait in two queues."""
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
    """`cascade` asks a stronger model once for unsure replies of other models."""
    policy = load_policy("cascade")
    assert decide(policy, facts(0.59)).action == Deliver()  # a reply of the strong model itself
    unsure = Facts(0.59, "gpt-5-mini")
    assert decide(policy, unsure).action == Escalate("gpt-5.6")
    assert decide(policy, Facts(0.6, "gpt-5-mini")).action == Deliver()
    assert decide(policy, Facts(None, "gpt-5-mini")).action == Deliver()


def test_second_opinion_asks_in_its_band() -> None:
    """`second-opinion` asks about replies that are neither sure nor hopeless."""
    policy = load_policy("second-opinion")
    assert policy.second_opinion is not None
    wanted = [policy.second_opinion.is_wanted(facts(c)) for c in (0.3, 0.6, 0.94, 0.96)]
    assert wanted == [False, True, True, False]
    found = [decide(policy, facts(c)).action for c in (0.95, 0.7, 0.3, None)]
    assert found == [Deliver(), Annotate("unverified"), Hold(), Hold()]


def test_best_of_n_asks_three_times() -> None:
    """`best-of-n` sends a request three times and holds the surest reply if it is very unsure."""
    policy = load_policy("best-of-n")
    assert policy.ask is not None
    assert policy.ask.models_for(Facts(None, "m")) == ("m", "m", "m")
    assert policy.ask.models_for(Facts(None, "m", n=2)) == ("m",)
    assert decide(policy, facts(0.1)).action == Hold()
