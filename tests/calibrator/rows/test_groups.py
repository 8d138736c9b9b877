"""Groups of rows that are judged together (paper H12, J11-J13)."""

from __future__ import annotations

from calibrator.rows.groups import NONE, groups_of, printable_name
from calibrator.rows.rows import Row, parse_row


def row(correct: int = 0, **more: object) -> Row:
    return parse_row({"question": "q", "response": "", "correct": correct, **more})


def found(rows: list[Row], kind: str) -> dict[str, list[int]]:
    return {g.name: g.at.tolist() for g in groups_of(rows) if g.kind == kind}


def test_every_row_is_in_one_group_of_each_kind() -> None:
    """Every row is in one group by benchmark, model and domain, and in the pooled one."""
    rows = [row(benchmark="b", model="m"), row(benchmark="a", domain="d"), row(model="m")]
    assert found(rows, "benchmark") == {NONE: [2], "a": [1], "b": [0]}
    assert found(rows, "model") == {NONE: [1], "m": [0, 2]}
    assert found(rows, "domain") == {NONE: [0, 2], "d": [1]}
    assert found(rows, "pooled") == {"pooled": [0, 1, 2]}
    assert groups_of(rows)[-1].kind == "pooled"


def test_tiers_are_those_of_the_benchmark() -> None:
    """A benchmark is easy from an accuracy of 0.65, hard below 0.40, medium between (J13)."""
    rows = [row(c, benchmark=b) for b, c in [("x", 1), ("x", 1), ("x", 0), ("y", 0), ("y", 1)]]
    rows += [row(0, benchmark="z")]
    assert found(rows, "tier") == {"easy": [0, 1, 2], "hard": [5], "medium": [3, 4]}


def test_tool_calls_are_a_task_of_their_own() -> None:
    """Questions with offered functions are a task of their own."""
    offered = parse_row(
        {"question": 'Weather?\n\nAvailable functions (JSON): [{"name": "w"}]', "response": "[w()]"}
    )
    assert found([row(), offered], "task") == {"text": [0], "tool calls": [1]}


def test_names_are_safe_to_show() -> None:
    """Names with control characters, or too long ones, are shown without harm."""
    assert printable_name("a\x1b[31m\n\x9b") == "a�[31m��"
    assert printable_name("\ud83d") == "�"
    assert len(printable_name("x" * 500)) == 80
    assert printable_name(None) == printable_name("") == NONE
