"""The pack `coding-agent` on calls of coding agents (coding_calls.yaml)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from policies import Facts, OfferedTools, Policy, ToolCall, decide, load_policy

CALLS = yaml.safe_load(Path(__file__).with_name("coding_calls.yaml").read_text(encoding="utf-8"))
PASS = ("commands that read, test or edit", "tools that read or edit")
PROJECT = "/srv/app"
EACH = [(rule, name, arguments) for rule, calls in CALLS.items() for name, arguments in calls]


@pytest.fixture(scope="module")
def pack() -> Policy:
    return load_policy("coding-agent")


def call_of(name: str, values: Any, project: str | None = PROJECT) -> ToolCall:
    arguments = values if isinstance(values, str) else json.dumps(values)
    return ToolCall(name, arguments, OfferedTools([name]).readings(name), project)


@pytest.mark.parametrize(("rule", "name", "arguments"), EACH, ids=str)
def test_each_call_is_decided_by_its_rule(
    pack: Policy, rule: str, name: str, arguments: Any
) -> None:
    """Each call is decided by its rule: steps inside the project pass, others wait."""
    decision = decide(pack, Facts(None, "m", (call_of(name, arguments),)))
    assert (decision.rule, decision.action.name) == (rule, "deliver" if rule in PASS else "hold")


def test_every_rule_is_tried(pack: Policy) -> None:
    """The table has calls for each rule of the pack."""
    assert {rule.name for rule in pack.rules} == CALLS.keys()


def test_no_score_is_needed(pack: Policy) -> None:
    """The pack decides without a score."""
    assert not pack.needs_score


def test_without_a_project_absolute_paths_are_outside(pack: Policy) -> None:
    """Without a known project only relative paths are inside."""
    inside, outside = ({"file_path": path} for path in ("src/a.py", "/srv/app/src/a.py"))
    actions = [
        decide(pack, Facts(None, "m", (call_of("Read", each, None),))).action.name
        for each in (inside, outside)
    ]
    assert actions == ["deliver", "hold"]
