"""The examples in the README of policies: each is valid and does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import policies
from policies import check_fixtures, explain, lint, load_fixtures, parse_policy
from policies.conditions.conditions import CONDITIONS
from policies.deciding.actions import SEVERITY

TEXT = (Path(policies.__file__).parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
POLICIES = [block for block in BLOCKS if block.startswith("version:")]
RULES = [block for block in BLOCKS if block.startswith("- ") and "then:" in block]
FIXTURES = [block for block in BLOCKS if "expect:" in block]


def with_rules(rules: str) -> str:
    indented = "".join(f"  {line}\n" for line in rules.splitlines())
    return f"version: 1\nname: p\nrules:\n{indented}default: {{hold: {{queue: review}}}}\n"


def test_every_block_is_looked_at_below() -> None:
    """Every block is a policy, a list of rules or fixtures."""
    assert sorted([*POLICIES, *RULES, *FIXTURES]) == sorted(BLOCKS)
    assert len(BLOCKS) >= 7


@pytest.mark.parametrize("block", POLICIES)
def test_every_policy_is_read(block: str) -> None:
    """Every whole policy loads."""
    assert parse_policy(block, "README.md").name in block


@pytest.mark.parametrize("block", RULES)
def test_every_rule_is_read(block: str) -> None:
    """Every list of rules loads, and no rule is unreachable."""
    policy = parse_policy(with_rules(block), "README.md")
    assert len(policy.rules) == len(re.findall(r"^- ", block, re.MULTILINE))
    assert not [w for w in lint(policy) if "can never match" in w.message]


def test_every_condition_and_action_has_an_example() -> None:
    """Every condition and action has an example."""
    rules = [rule for block in RULES for rule in parse_policy(with_rules(block), "p").rules]
    assert {name for rule in rules for name in rule.when.condition_names()} == set(CONDITIONS)
    assert {rule.then.name for rule in rules} == set(SEVERITY)
    for word in ("below", "at_least", "between", "max_error", "lowest_share"):
        assert any(word in block for block in RULES)


def test_the_fixtures_fit_the_first_policy(tmp_path: Path) -> None:
    """The fixtures fit the first policy."""
    path = tmp_path / "fixtures.yaml"
    path.write_text(FIXTURES[0], encoding="utf-8")
    checked = check_fixtures(parse_policy(POLICIES[0], "README.md"), load_fixtures(path))
    assert [str(each) for each in checked if each.differences] == []
    assert len(checked) == 2


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The Python example runs, holds the call and prints its explanation."""
    (code,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    exec(code, {})
    out = capsys.readouterr().out
    assert "Hold(queue='approvals'" in out
    assert "yes  irreversible tools: hold" in out
    assert explain.__doc__
