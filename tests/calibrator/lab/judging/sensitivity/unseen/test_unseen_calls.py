"""The pack `doubtful-calls` on scenes that were written before anything was measured."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from calibrator.loading import load_scorer
from calibrator.rows.rows import parse_row
from policies import Facts, ToolCall, decide, load_policy

ROOT = Path(__file__).parents[6]
SCRIPT = ROOT / "examples" / "agents" / "labelled_calls.py"
HERE = Path(__file__).parent


def stopped(scenes: Path) -> tuple[float, float]:
    """Return the shares of wrong and of right calls that the pack stops."""
    rows = [parse_row(each) for each in runpy.run_path(str(SCRIPT))["rows"](scenes)]
    scores = load_scorer("embedded", "cpu").score_batch([row.item("served") for row in rows])
    policy = load_policy("doubtful-calls")
    found: dict[bool, list[bool]] = {False: [], True: []}
    for row, score in zip(rows, scores, strict=True):
        [note] = score.notes or ()
        marks = tuple((mark.name, mark.argument) for mark in note.marks)
        call = ToolCall("any", "{}", marks=marks, risk=note.risk)
        decision = decide(policy, Facts(score.confidence, "m", (call,)))
        found[bool(row.correct)].append(decision.action.name != "deliver")
    wrong, right = (sum(found[label]) / len(found[label]) for label in (False, True))
    print(f"{scenes.stem}: wrong {wrong:.1%}, right {right:.1%}")
    return wrong, right


@pytest.mark.parametrize(
    "name",
    [
        *(
            "first_calls",
            "second_calls",
            "third_calls",
            "fourth_calls",
            "fifth_calls",
            "sixth_calls",
        ),
        *("first_flags", "second_flags"),
    ],
)
def test_wrong_calls_stop_and_right_ones_pass(name: str) -> None:
    """The pack stops at least 70 % of the wrong calls and at most 10 % of the right ones.

    `docs/marks.md` has the figures of the first look at each set; none is a clean test any more.
    """
    wrong, right = stopped(HERE / f"{name}.yaml")
    assert wrong >= 0.7
    assert right <= 0.1


def test_the_first_forty_have_tools_of_their_own() -> None:
    """No tool of the first forty scenes is in the sixty of `examples/agents`."""
    rows = runpy.run_path(str(SCRIPT))["rows"]
    sixty, first = (
        {tool["function"]["name"] for row in rows(path) for tool in row["tools"]}
        for path in (ROOT / "examples/agents/doubtful_calls.yaml", HERE / "first_calls.yaml")
    )
    assert len(first) >= 20
    assert not sixty & first
