"""The figures of policies/packs.md equal the output of `pinocchio replay`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import policies
from policies import load_policy, pack_names, replay
from proxy.commands.policies.labelled_rows import ScoredRow, load_scored

ROOT = Path(__file__).parents[2]
PAGE = (Path(policies.__file__).parent / "packs.md").read_text(encoding="utf-8")
MAKERS = {
    "the demo": ("scripts/demo_rows.py", True),
    "calls of an agent": ("examples/agents/labelled_calls.py", False),
}


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[ScoredRow]]:
    """Return the scored rows of both makers, as the page's commands produce them."""
    found = {}
    for name, (script, takes_file) in MAKERS.items():
        path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
        command = [sys.executable, script, *([str(path)] if takes_file else [])]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60)
        if not takes_file:
            path.write_bytes(done.stdout)
        found[name], bad = load_scored([path], "embedded")
        assert bad == []
    return found


def table(title: str) -> dict[str, list[str]]:
    """Return the cells of a table of the page, by the pack at the line's start."""
    part = PAGE[PAGE.index(f"## On {title}") :].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {cells[0].strip("`"): cells[1:] for cells in rows}


@pytest.mark.parametrize("title", [*MAKERS, "test rows"])
def test_every_pack_has_its_line(title: str) -> None:
    """Every pack has its line in each table, except those with nothing to decide on calls."""
    on_calls = {"observe", "helpdesk", "agent-tools", "doubtful-calls"}
    expected = on_calls if "calls" in title else set(pack_names())
    assert set(table(title)) == expected


@pytest.mark.parametrize("title", list(MAKERS))
def test_the_figures_are_what_replay_says(title: str, scored: dict[str, list[ScoredRow]]) -> None:
    """The page's numbers of delivered and wrong replies equal the replay's."""
    rows = [row.exchange() for row in scored[title]]
    for pack, (delivered, wrong, rest, _) in table(title).items():
        outcome = replay(load_policy(pack), rows).after
        kept = sum(outcome.actions.get(each, 0) for each in ("deliver", "annotate"))
        held = len(rows) - kept
        assert (int(delivered), int(wrong)) == pytest.approx((kept, outcome.errors.wrong), abs=2)
        assert sum(map(int, re.findall(r"[0-9]+", rest))) == pytest.approx(held, abs=2)
