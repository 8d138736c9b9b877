"""`pinocchio filter` and `pinocchio pairs` (paper P01, P03)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pinocchio.commands import cli

Json = dict[str, Any]


def row(question: str, confidence: float, correct: int | None = None, **more: Any) -> Json:
    raw = {"question": question, "response": f"{question} {confidence}", "confidence": confidence}
    return {**raw, **({} if correct is None else {"correct": correct}), **more}


def write(path: Path, *rows: Any) -> Path:
    text = "".join(f"{json.dumps(each)}\n" for each in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_share_keeps_the_surest_in_their_order(tmp_path: Path) -> None:
    """--keep keeps the surest share of several files, in order, and prints the accuracy (P03)."""
    first = write(tmp_path / "a.jsonl", *(row(str(n), n / 10, n > 6) for n in (1, 9, 3, 8, 5)))
    second = write(tmp_path / "b.jsonl.gz", *(row(str(n), n / 10, n > 6) for n in (2, 7, 4, 6, 0)))
    kept = tmp_path / "kept.jsonl"
    result = run("filter", first, second, "--keep", "0.5", "-o", kept)
    assert result.exit_code == 0, result.stderr
    assert [each["confidence"] for each in lines(kept)] == [0.9, 0.8, 0.5, 0.7, 0.6]
    assert "5 of 10 rows kept, 50.0%, of confidence 0.5 or more" in result.stdout
    assert "right: 0.600 of 5 kept with a label, 0.300 of all 10" in result.stdout


@pytest.mark.parametrize(("share", "count"), [("0.3", 3), ("1", 10), ("0", 1)])
def test_of_equal_confidences_as_many_stay_as_are_wanted(
    tmp_path: Path, share: str, count: int
) -> None:
    """Of equal confidences the first ones are kept, as many as wanted."""
    rows = write(tmp_path / "a.jsonl", *(row(str(n), 0.5) for n in range(10)))
    kept = tmp_path / "kept.jsonl"
    assert run("filter", rows, "--keep", share, "-o", kept).exit_code == 0
    assert [each["question"] for each in lines(kept)] == [str(n) for n in range(count)]


def test_a_threshold_keeps_what_reaches_it(tmp_path: Path) -> None:
    """--at-least keeps all rows at or above the threshold."""
    rows = write(tmp_path / "a.jsonl", row("a", 0.7), row("b", 0.69), row("c", 0.7))
    kept = tmp_path / "kept.jsonl"
    assert run("filter", rows, "--at-least", "0.7", "-o", kept).exit_code == 0
    assert [each["question"] for each in lines(kept)] == ["a", "c"]


def test_pairs_are_the_two_ends_of_a_question(tmp_path: Path) -> None:
    """A pair has the surest and the least sure reply of a question, if far enough apart (P01)."""
    rows = write(
        tmp_path / "a.jsonl",
        row("far", 0.2, 0, model="small"),
        row("near", 0.5, 1),
        row("far", 0.9, 1, model="large"),
        row("far", 0.5, 1),
        row("near", 0.8, 1),
        row("upside down", 0.9, 0),
        row("upside down", 0.1, 1),
        row("alone", 0.9, 1),
        row("same", 0.9, 1),
        row("same", 0.1, 1),
    )
    made = tmp_path / "pairs.jsonl"
    result = run("pairs", rows, "-o", made, "--gap", "0.5")
    assert result.exit_code == 0, result.stderr
    far, turned, same = lines(made)
    assert (far["prompt"], far["chosen"], far["rejected"]) == ("far", "far 0.9", "far 0.2")
    assert (far["chosen_model"], far["rejected_model"]) == ("large", "small")
    assert (turned["chosen"], same["chosen"]) == ("upside down 0.9", "same 0.9")
    assert "3 pairs of 5 questions, 0.5 or more apart" in result.stdout
    assert "one right and one wrong: 0.667 of 3 pairs" in result.stdout
    assert "(at random 0.556), the right one chosen in 0.500 of these" in result.stdout


def test_conversations_become_messages(tmp_path: Path) -> None:
    """Conversations become messages, also without labels."""
    messages = [{"role": "user", "content": "Hi"}]
    rows = write(
        tmp_path / "a.jsonl",
        {"question_id": "q", "messages": messages, "response": "Hello", "confidence": 0.9},
        {"question_id": "q", "messages": messages, "response": "Go", "confidence": 0.1},
    )
    made = tmp_path / "pairs.jsonl"
    result = run("pairs", rows, "-o", made)
    [pair] = lines(made)
    assert pair["prompt"] == messages
    assert pair["chosen"] == [{"role": "assistant", "content": "Hello"}]
    assert pair["rejected"] == [{"role": "assistant", "content": "Go"}]
    assert "right" not in result.stdout


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"question": "q", "response": "r"}, "has no confidence; `pinocchio score` adds it"),
        ({"confidence": 2}, "from 0 to 1"),
        ({"confidence": 0.5, "correct": 3}, "must be 0 or 1"),
        ([1], "has no confidence"),
    ],
)
@pytest.mark.parametrize("command", [("filter", "--keep", "0.5"), ("pairs",)])
def test_a_row_that_cannot_be_used_ends_it(
    tmp_path: Path, command: tuple[str, ...], bad: Any, message: str
) -> None:
    """A row that cannot be used ends the command with its line, without output."""
    rows = write(tmp_path / "a.jsonl", row("a", 0.7), bad)
    name, *options = command
    result = run(name, rows, *options, "-o", tmp_path / "made.jsonl")
    assert result.exit_code == 2
    assert f"a.jsonl:2: {message}" in result.stderr or message in result.stderr
    assert not (tmp_path / "made.jsonl").exists()


def test_filter_wants_one_way_to_choose(tmp_path: Path) -> None:
    """`filter` needs exactly one way to choose, and an output that is no input."""
    rows = write(tmp_path / "a.jsonl", row("a", 0.7))
    assert "say either" in run("filter", rows, "-o", tmp_path / "b.jsonl").stderr
    assert "is an input as well" in run("filter", rows, "--keep", "1", "-o", rows).stderr
