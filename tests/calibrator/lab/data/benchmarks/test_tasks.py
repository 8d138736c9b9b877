"""Tasks from questions of benchmarks and of one's own files, and their mistakes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from calibrator.errors import InputError
from calibrator.lab.data.benchmarks.registry import known_benchmarks
from calibrator.lab.data.benchmarks.tasks import Task, grader_for, load_tasks

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def tasks_of(folder: Path, *rows: Any, name: str = "mine.jsonl", **options: Any) -> list[Task]:
    path = folder / name
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    found, bad = load_tasks([str(path)], **options)
    assert bad == []
    return found


def test_the_registry_is_the_papers() -> None:
    """The registry has twenty benchmarks in seven domains, five graded by a model (C04 to C06)."""
    found = known_benchmarks()
    assert (len(found), len({each.domain for each in found})) == (20, 7)
    assert sum(each.modality == "text" for each in found) == 9
    assert sum(each.is_judged for each in found) == 5
    assert {"PRBench", "MM-Vet"} <= {each.name for each in found if each.is_judged}


def test_a_benchmarks_columns_and_options_are_read(tmp_path: Path) -> None:
    """Columns of GPQA's CSV are read, and its options mixed the same way each time."""
    path = tmp_path / "diamond.csv"
    head = "Record ID,Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,"
    path.write_text(f'{head}Incorrect Answer 3\nr1,"Which, then?",the right one,x,y,z\n')
    found = [load_tasks([f"gpqa-diamond={path}"])[0] for _ in range(2)]
    [task] = found[0]
    assert found[0] == found[1]
    assert (task.benchmark, task.domain, task.grader) == ("GPQA-Diamond", "science", "choice")
    assert task.question_id == "GPQA-Diamond/r1"
    [right] = task.gold
    assert f"\n{right}. the right one\n" in task.question + "\n"
    assert task.question.endswith("nothing but the letter of your choice.")
    with pytest.raises(InputError, match="did you mean GPQA-Diamond"):
        load_tasks([f"gpqa-dimond={path}"])


@pytest.mark.parametrize(
    ("gold", "grader"),
    [
        (["yes"], "claim"),
        (["41,760"], "number"),
        (["-3.5 %"], "number"),
        (["\\sqrt{2}"], "formula"),
        (["Danube", "Donau"], "fuzzy"),
    ],
)
def test_the_right_answer_decides_the_grader(gold: list[str], grader: str) -> None:
    """Without a named grader the right answer decides which it is."""
    assert grader_for(gold) == grader


def test_own_rows_say_what_they_want(tmp_path: Path) -> None:
    """Own rows may have options, a rubric, messages, a grader and an image file."""
    (tmp_path / "a.png").write_bytes(PIXEL)
    conversation = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    lettered, listed, judged, talked, seen = tasks_of(
        tmp_path,
        {"question": "q", "options": {"A": "x", "B": "y"}, "gold": "B"},
        {"question": "q?", "options": ["x", "y"], "gold": "y"},
        {"question": "q", "rubric": ["says x", "says y"]},
        {"messages": conversation, "gold": "1", "grader": "exact"},
        {"question": "What is it?", "gold": "dot", "images": ["a.png"], "domain": "art"},
    )
    assert lettered.gold == listed.gold == ("B",)
    assert (judged.grader, judged.rubric, judged.gold) == ("rubric", "says x\nsays y", ())
    assert (talked.messages, talked.grader) == (conversation, "exact")
    assert seen.messages[0]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert (seen.benchmark, seen.domain) == ("mine", "art")


def test_as_it_is_adds_no_prompt(tmp_path: Path) -> None:
    """With `is_as_it_is` no prompt is added to a question."""
    row = {"question": "2 + 2?", "gold": 4}
    [task] = tasks_of(tmp_path, row, is_as_it_is=True)
    assert task.messages == [{"role": "user", "content": "2 + 2?"}]
    [prompted] = tasks_of(tmp_path, row)
    assert prompted.question.startswith("2 + 2?\n\nEnd with one line")


def test_questions_are_unique_and_samples_stable(tmp_path: Path) -> None:
    """Each question is asked once, and a smaller sample depends on their ids alone."""
    rows = [{"id": n % 20, "question": f"{n % 20}?", "gold": "1"} for n in range(40)]
    assert len(tasks_of(tmp_path, *rows)) == 20
    few = tasks_of(tmp_path, *rows, most=5)
    assert len(few) == 5
    assert few == tasks_of(tmp_path, *rows[:20], most=5)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q"}, "neither 'gold'"),
        ({"gold": "x"}, "'question' (or 'messages') is missing"),
        ({"question": "q", "gold": "z", "options": ["x", "y"]}, "none of the options"),
        ({"question": "q", "gold": "z", "grader": "guess"}, "'grader' is 'guess'"),
        ({"question": "q", "gold": "z", "images": ["../secret.png"]}, "no image beside"),
        ({"question": "q", "gold": "z", "options": "x or y"}, "is no list"),
        ([1], "no JSON object"),
    ],
)
def test_an_unusable_question_is_reported(tmp_path: Path, row: Any, message: str) -> None:
    """A question that cannot be asked is reported with file and line."""
    path = tmp_path / "q.jsonl"
    path.write_text(
        json.dumps({"question": "good?", "gold": "yes"}) + "\n" + json.dumps(row) + "\n"
    )
    found, [error] = load_tasks([str(path)])
    assert len(found) == 1
    assert str(error).startswith(f"{path}:2: ")
    assert message in str(error)


def test_a_file_without_a_question_is_refused(tmp_path: Path) -> None:
    """A file without a question, or a missing one, is refused."""
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match="no question that could be asked"):
        load_tasks([str(tmp_path / "empty.jsonl")])
    with pytest.raises(InputError, match="cannot be read"):
        load_tasks([str(tmp_path / "none.jsonl")])
