"""The pack `agent-tools` on 200 calls of public agents' tools (tool_calls.yaml)."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from policies import Facts, Hold, Policy, ToolCall, decide, load_policy

TABLE: dict[str, list[Any]] = yaml.safe_load(
    Path(__file__).with_name("tool_calls.yaml").read_text(encoding="utf-8")
)
CALLS = [
    (rule, name, json.dumps(arguments))
    for rule, calls in TABLE.items()
    for name, arguments in calls
]
BELOW = {
    "large amounts": None,  # at any confidence
    "commands that cannot be undone": 0.95,
    "irreversible tools": 0.95,
    "changing tools": 0.6,
    "unsure tools": 0.4,
}


@cache
def pack() -> Policy:
    return load_policy("agent-tools")


def test_the_table_has_two_hundred_calls_under_the_rules_of_the_pack() -> None:
    """The table has 200 different calls, under the rules of the pack."""
    assert len(CALLS) == 200
    assert list(TABLE) == [rule.name for rule in pack().rules] == list(BELOW)
    assert Counter((name, arguments) for _, name, arguments in CALLS).most_common(1)[0][1] == 1


@pytest.mark.parametrize(("rule", "name", "arguments"), CALLS)
def test_each_call_is_judged_by_what_it_does(rule: str, name: str, arguments: str) -> None:
    """A call waits below the confidence of its rule, and is delivered from there on."""
    policy, call = pack(), ToolCall(name, arguments)

    def decided(confidence: float) -> tuple[str, str]:
        decision = decide(policy, Facts(confidence, "m", tools=(call,)))
        return decision.rule, decision.applied.name

    below = BELOW[rule]
    if below is None:
        assert decided(0.1) == decided(0.999) == (rule, "hold")
        return
    assert decided(below - 0.001) == (rule, "hold")
    assert decided(below) == ("default", "deliver")


@pytest.mark.parametrize(("rule", "name", "arguments"), CALLS)
def test_a_call_beside_a_harmless_one_is_held_as_well(rule: str, name: str, arguments: str) -> None:
    """A call beside a harmless one is held too."""
    calls = (ToolCall("search", '{"q": "x"}'), ToolCall(name, arguments))
    decision = decide(pack(), Facts(0.39, "m", tools=calls))
    assert isinstance(decision.action, Hold)


@pytest.mark.parametrize("name", ["run_shell", "transfer_money", "postgres_query"])
def test_arguments_that_cannot_be_read_wait(name: str) -> None:
    """A call whose arguments cannot be read is held below the confidence of the strictest rule."""
    call = ToolCall(name, '{"command": "ls')
    decision = decide(pack(), Facts(0.89, "m", tools=(call,)))
    assert decision.action == Hold("approvals", "error", decision.action.expires_s)  # type: ignore[union-attr]
