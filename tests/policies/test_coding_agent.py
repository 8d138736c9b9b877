"""The pack `coding-agent` on calls of coding agents (coding_calls.yaml)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from policies import Facts, OfferedTools, Policy, ToolCall, decide, load_policy
from policies.conditions.commands import simple_commands
from policies.conditions.paths import leaves, paths_in

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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ls -la", [["ls", "-la"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a&&b||c;d|e&f\ng", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("a 2>&1 >b <c # d", [["a"]]),
        ("(cd a; ls)", [["cd", "a"], ["ls"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("echo ''", [["echo", ""]]),
        ("X=1 a Y=2", [["a", "Y=2"]]),
        ("a $(b)", None),
        ("a `b`", None),
        ("a <(b)", None),
        ("a <<E\nE", None),
        ("a 'b", None),
        ('a "b', None),
        ("a >", None),
        ("x" * 30_000, None),
    ],
)
def test_commands_are_read_as_a_shell_does(text: str, words: list[list[str]] | None) -> None:
    """Commands are split as a shell does; None if only running them would tell."""
    found = simple_commands(text)
    assert words == (None if found is None else [command.words for command in found])


def test_files_of_redirections_are_paths() -> None:
    """Files of redirections count as paths of a command."""
    assert paths_in("echo a >> /etc/x 2>/dev/null") == ["/etc/x", "/dev/null", "echo", "a"]


@pytest.mark.parametrize(
    ("path", "is_outside"),
    [
        ("src/a.py", False),
        ("src/../a.py", False),
        ("../a.py", True),
        ("src/../../a.py", True),
        ("/srv/app", False),
        ("/srv/app/a/../b", False),
        ("/srv/app/../b", True),
        ("/srv/application/a", True),
        ("~/a", True),
        ("$HOME", True),
        ("/dev/null", False),
    ],
)
def test_paths_that_leave_the_project(path: str, is_outside: bool) -> None:
    """A path is outside by its name alone, whatever is on the disk."""
    assert leaves(path, PROJECT) is is_outside


@pytest.mark.parametrize(
    "text", ["$(cat <<'A'\n" * 2_000, "'" * 19_999, "a;" * 9_999, "\\" * 19_999]
)
def test_hostile_commands_take_linear_time(text: str) -> None:
    """Hostile commands of the greatest length are read within half a second."""
    begun = time.process_time()
    simple_commands(text)
    assert time.process_time() - begun < 0.5
