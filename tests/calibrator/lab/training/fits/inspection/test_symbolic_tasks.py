"""Our symbolic tasks: their answers are right, and other lessons do not change."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from calibrator.lab.training.fits.inspection.config import InspectorConfig
from calibrator.lab.training.fits.inspection.lessons import BENCHMARK, lessons_of, symbolic_rows
from calibrator.lab.training.fits.inspection.symbolic_kinds import KINDS, SymbolicTask
from tests.calibrator.readers.inspection.test_inspector import rows

CLOSES = {"(": ")", "[": "]", "{": "}", "<": ">"}


def are_closed(brackets: str) -> bool:
    """Return whether every bracket has its partner, by removing adjacent pairs."""
    left = brackets.replace(" ", "")
    while (fewer := re.sub(r"\(\)|\[\]|\{\}|<>", "", left)) != left:
        left = fewer
    return not left


def of_brackets(task: SymbolicTask) -> bool:
    return are_closed(task.material + ("" if task.answer == "nothing" else task.answer))


def of_truth(task: SymbolicTask) -> bool:
    text = task.material.replace("T", "True").replace("F", "False").replace("!", "1 - ")
    return bool(eval(text)) == (task.answer == "true")


def of_binary(task: SymbolicTask) -> bool:
    one, other = task.material.split(" + ")
    return int(task.answer, 2) == int(one, 2) + int(other, 2)


def of_roman(task: SymbolicTask) -> bool:
    worth = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
    signs = [worth[sign] for sign in task.answer]
    pairs = zip(signs, [*signs[1:], 0], strict=True)
    return sum(-one if one < after else one for one, after in pairs) == int(task.material)


def of_walk(task: SymbolicTask) -> bool:
    count = task.material.split().count
    return task.answer == f"({count('E') - count('W')}, {count('N') - count('S')})"


def of_pattern(task: SymbolicTask) -> bool:
    """Return whether symbols and answer repeat with the period that the working names."""
    signs = [*task.material.split(), task.answer]
    period = len(task.steps[0].removeprefix("the part ").removesuffix(" repeats").split())
    return signs[period:] == signs[:-period]


def of_order(task: SymbolicTask) -> bool:
    """Return whether the answer has as many people on its left as its place says."""
    left_of = dict(fact.split(" stands left of ")[::-1] for fact in task.material.split("; "))
    place = int(re.findall(r"\d+", task.does[0])[0])
    who, found = task.answer, 1
    while who in left_of:
        who, found = left_of[who], found + 1
    return found == place


def of_swaps(task: SymbolicTask) -> bool:
    start, *swaps = task.material.split(". ")
    held = dict(each.split(" has the ") for each in start.split(", "))
    for swap in swaps:
        one, other = swap.removesuffix(" swap").split(" and ")
        held[one], held[other] = held[other], held[one]
    return held[task.does[0].split()[2]] == task.answer


RIGHT: dict[str, Callable[[SymbolicTask], bool]] = {
    "brackets": of_brackets,
    "stack": lambda task: task.steps[-1].endswith(f": {task.answer}"),
    "sorting": lambda task: task.answer.split() == sorted(task.material.split()),
    "numbers": lambda task: task.answer.split() == sorted(task.material.split(), key=int),
    "reversing": lambda task: task.answer[::-1] == task.material,
    "last letters": lambda task: task.answer == "".join(re.findall(r"\w(?=,|$)", task.material)),
    "truth": of_truth,
    "swaps": of_swaps,
    "walk": of_walk,
    "rewriting": lambda task: task.steps[-1] == task.answer and set(task.answer) <= set("ABC"),
    "binary": of_binary,
    "roman": of_roman,
    "counting": lambda task: int(task.answer) == task.material.split().count(task.does[1][-1]),
    "pattern": of_pattern,
    "sets": lambda task: task.steps[-1].endswith(f": {task.answer}"),
    "cipher": lambda task: len(task.answer) == len(task.material) == len(task.steps),
    "nested": lambda task: eval(task.material) == int(task.answer),
    "order": of_order,
    "edits": lambda task: task.steps[-1].endswith(f": {task.answer}"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_answers_are_right(kind: str) -> None:
    """Each answer is right, computed in another way."""
    rng = random.Random(7)
    assert all(RIGHT[kind](KINDS[kind](rng)) for _ in range(60))


def test_the_rows_are_those_of_their_seed() -> None:
    """Kinds alternate, each reply ends with its answer, and a seed gives its rows."""
    made = list(symbolic_rows(2 * len(KINDS), 5))
    assert made == list(symbolic_rows(2 * len(KINDS), 5))
    assert [row.question for row in made] != [row.question for row in symbolic_rows(38, 6)]
    assert all(str(row.raw["gold"]) in row.answer[-len(str(row.raw["gold"])) - 4 :] for row in made)
    alone = list(symbolic_rows(30, 5, ["roman"]))
    assert all(set(str(row.raw["gold"])) <= set("IVXLC") for row in alone)


def test_other_lessons_are_the_same_without_them() -> None:
    """Other lessons are the same without symbolic tasks, which have their own random numbers."""
    some = InspectorConfig(symbolic_tasks=40)
    without = InspectorConfig(symbolic_tasks=0)
    found = list(lessons_of(rows(60), some, 3))
    own = [lesson for lesson in found if lesson.benchmark == BENCHMARK]
    assert {lesson.weight for lesson in own} == {some.symbolic_weight}
    assert {lesson.fault for lesson in own} >= {"", "nearest question", "cut off", "echo"}
    assert [each for each in found if each.benchmark != BENCHMARK] == list(
        lessons_of(rows(60), without, 3)
    )
