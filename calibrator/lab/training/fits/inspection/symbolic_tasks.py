"""Symbolic tasks: words, brackets, moves and rules that a reply works through step by step.

Their questions hold little but symbols, and their replies little but the same symbols. Benchmarks
of prose and formulas lack such texts, so the relevance check took such working for no answer.
Tasks, wording and data are generated here. Each reply is right, so the same faults can be put into
it as into any other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from calibrator.lab.training.fits.inspection.symbolic_kinds import KINDS, SymbolicTask
from calibrator.rows.rows import Row

BENCHMARK = "symbolic tasks"
SHORT_SHARE = 0.15  # share of the replies that are the answer alone

_STARTS = (
    *("", "", ""),
    "Let's go through it one by one.",
    "I work from left to right.",
    "We keep track of the state after each step.",
    "Here is the working.",
    "First I write down what is given, then I follow it.",
)
_ENDS = (
    *("So the answer is {}.", "So the answer is {}", "Answer: {}", "The result is {}."),
    *("Final answer: {}", "That leaves {}.", "**{}**", "Therefore: {}"),
)


def symbolic_rows(count: int, seed: int, kinds: Sequence[str] = ()) -> Iterator[Row]:
    """Yield `count` rows with a right reply each, to tasks of all kinds in turn.

    `kinds` names the kinds to use, such as `brackets`; all if empty. A row has no model, and the
    benchmark `symbolic tasks`. The same seed gives the same rows.
    """
    rng = random.Random(seed)
    names = list(kinds) or list(KINDS)
    for at in range(count):
        task = KINDS[names[at % len(names)]](rng)
        asked, answer = _task_question(task, rng), _task_answer(task, rng)
        named = (None, BENCHMARK, None, f"{BENCHMARK} {at}")
        yield Row(asked, answer, *named, 1, None, {"gold": task.answer})


def _task_question(task: SymbolicTask, rng: random.Random) -> str:
    """Return the task's question in a random wording: instruction and input, in either order."""
    does = rng.choice(task.does)
    forms = (f"{does}: {task.given}", f"{does}\n{task.given}", f"{task.given}\n{does}.")
    return rng.choice((*forms, f'{does}: "{task.given}"'))


def _task_answer(task: SymbolicTask, rng: random.Random) -> str:
    """Return the answer alone, or at the end of the working in one of several forms.

    Those are numbered steps, a list, sentences and others, with a random beginning and end.
    """
    steps = list(task.steps)
    if rng.random() < SHORT_SHARE:
        return task.answer
    form = rng.randrange(6)
    if form == 0:
        steps = [f"{at}. {step}" for at, step in enumerate(steps, 1)]
    elif form == 1:
        steps = [f"Step {at}: {step}." for at, step in enumerate(steps, 1)]
    elif form == 2:
        steps = [f"- {step}" for step in steps]
    told = ("; " if form == 4 else ". " if form == 5 else "\n").join(steps)
    parts = (rng.choice(_STARTS), told, rng.choice(_ENDS).format(task.answer))
    return rng.choice(("\n", "\n\n", " ")).join(part for part in parts if part)
