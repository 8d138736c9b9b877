"""Lessons of the inspector: right replies, and the same replies with one kind of fault.

Wrong replies are left out, as faults are made in right ones. With wrong replies among those without
a fault, a check would learn that a right appearance is faulty.

Relevance also learns from excerpts of replies, a sentence or a few, and from plain requests of our
own (`plain_requests.yaml`). Requests and replies outside of benchmarks are short, and a reply
need not repeat a word of the request. Without both the check called such replies off topic.

Symbolic tasks of our own are one more benchmark: words, brackets, moves and rules that a reply
works through step by step. Their questions hold little but symbols, and their replies little but
the same symbols. Benchmarks of prose and formulas lack such texts, and a check without them took
such working for no answer. Each reply is right, so the same faults can be put into it as into any
other.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

import numpy as np
import yaml
from numpy.typing import NDArray
from tokenizers import Tokenizer

from calibrator.lab.data.corruptions import corrupt_rows
from calibrator.lab.data.corruptions.sentences import OFF_TOPIC
from calibrator.lab.training.fits.inspection.config import InspectorConfig
from calibrator.lab.training.fits.inspection.symbolic_kinds import KINDS, SymbolicTask
from calibrator.readers.inspection.inspector import CHECKS, RELEVANCE, SEEN, inspect
from calibrator.readers.inspection.relevance import Pieces
from calibrator.rows.rows import Row
from calibrator.text.stripping import strip_addresses, without_question
from calibrator.text.word_pieces import Layout, encode

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

Floats = NDArray[np.float32]

AT_ONCE = 2_000
ELSEWHERE = ("another question", "nearest question")  # faults whose excerpts are lessons too
PLAIN, PLAIN_FAULTS, PLAIN_OTHERS = "plain requests", ("another question", "off topic"), 3

_SENTENCE = re.compile(r"(?<=[.!?。])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Lesson:
    """A reply to a question of a benchmark; `fault` is empty for an unchanged right one.

    Lessons with `is_of_relevance` teach no other check, since what they leave out is no fault for
    it.
    """

    question: str
    answer: str
    benchmark: str
    fault: str = ""
    is_of_relevance: bool = False
    weight: float = 1.0
    row: Row | None = None  # the row of the question; None for a plain request
    reply: str = ""  # the unchanged reply of another row; empty in other lessons


def lessons_of(rows: Sequence[Row], config: InspectorConfig, seed: int) -> Iterator[Lesson]:
    """Yield the lessons of each benchmark, then of symbolic tasks, then of plain requests.

    A benchmark's lessons are right replies, faulty ones made from right ones, and excerpts of some.
    Rows labelled wrong are only used as replies to other questions. The same rows and seed give the
    same lessons.
    """
    rng = random.Random(seed)
    benchmarks: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        benchmarks[row.benchmark or ""].append(row)
    for _, own in sorted(benchmarks.items()):
        yield from _lessons_of_one(own, config, seed, rng)
    # With a separate generator the other lessons do not depend on these.
    tasks = list(symbolic_rows(config.symbolic_tasks, seed))
    for lesson in _lessons_of_one(tasks, config, seed, random.Random(seed)):
        yield replace(lesson, weight=config.symbolic_weight)
    yield from plain_lessons(config, rng)


def _lessons_of_one(
    rows: Sequence[Row], config: InspectorConfig, seed: int, rng: random.Random
) -> Iterator[Lesson]:
    """Yield the lessons of one benchmark's rows: right replies, then each fault of each check.

    At most `config.pool_rows` of the rows are used. Faults in `config.left_out` are skipped.
    """
    pool = rng.sample(rows, min(len(rows), config.pool_rows))
    for row in [row for row in pool if row.correct][: config.right_rows]:
        yield from _reply_and_excerpt(row, row.answer, "", rng)
    for check in CHECKS:
        many = config.irrelevant_rows if check.name == RELEVANCE else config.faulty_rows
        for fault in check.faults:
            if fault not in config.left_out:
                yield from _faulty_lessons(pool, fault, many, seed, rng)


def _faulty_lessons(
    pool: Sequence[Row], fault: str, many: int, seed: int, rng: random.Random
) -> Iterator[Lesson]:
    """Yield at most `many` lessons with the fault, such as `cut off`, made from right rows.

    For the faults in `ELSEWHERE` each lesson is followed by one with an excerpt of its reply.
    """
    corruptions = corrupt_rows(pool, fault, seed)
    for each in rng.sample(corruptions, min(len(corruptions), many)):
        if fault in ELSEWHERE:
            yield from _reply_and_excerpt(each.row, each.answer, fault, rng)
        else:
            yield _lesson(each.row, each.answer, fault)


def _reply_and_excerpt(row: Row, reply: str, fault: str, rng: random.Random) -> Iterator[Lesson]:
    """Yield two lessons: a reply to the row's question, then an excerpt of it for relevance alone.

    `fault` is "" for the row's own right reply; otherwise `reply` is one to another question, and
    the lessons keep it.
    """
    whole = replace(_lesson(row, reply, fault), reply=reply if fault else "")
    yield whole
    yield replace(whole, answer=excerpt(whole.answer, rng), is_of_relevance=True)


def _lesson(row: Row, reply: str, fault: str) -> Lesson:
    """Return a lesson of a reply to the row's question, as the inspector reads it.

    Sentences that address a judge and parts that repeat the question are removed.
    """
    answer = without_question(row.question, strip_addresses(reply))
    return Lesson(row.question, answer, row.benchmark or "", fault, row=row)


def excerpt(answer: str, rng: random.Random) -> str:
    """Return one to three sentences of a reply, from its beginning, its end or between.

    Sentences end at `.`, `!`, `?` or a line break. A reply of one sentence is returned whole.
    """
    sentences = [part for part in _SENTENCE.split(answer) if part.strip()]
    if len(sentences) < 2:
        return answer
    count = rng.choice((1, 1, 2, 3))
    last = max(0, len(sentences) - count)
    start = min(last, rng.choice((0, last, rng.randrange(len(sentences)))))
    return " ".join(sentences[start : start + count]).strip()


def plain_lessons(config: InspectorConfig, rng: random.Random) -> Iterator[Lesson]:
    """Yield lessons of plain requests such as `Hi there!`, which are for relevance alone.

    Each request has its own reply, the replies of three others (`another question`) and a sentence
    about something else (`off topic`). Yields nothing if `config.left_out` has one of these faults.
    """
    if set(config.left_out) & set(PLAIN_FAULTS):
        return
    pairs = plain_requests()
    for at, (request, reply) in enumerate(pairs):
        others = rng.sample([pair for pair in pairs if pair is not pairs[at]], PLAIN_OTHERS)
        replies = [(reply, ""), *((other, PLAIN_FAULTS[0]) for _, other in others)]
        replies.append((rng.choice(OFF_TOPIC), PLAIN_FAULTS[1]))
        for answer, fault in replies:
            yield Lesson(request, answer, PLAIN, fault, True, config.plain_weight)


@cache
def plain_requests() -> tuple[tuple[str, str], ...]:
    """Return the (request, fitting reply) pairs of `plain_requests.yaml`; read once."""
    text = (
        files("calibrator.lab.training.fits.inspection")
        .joinpath("plain_requests.yaml")
        .read_text("utf-8")
    )
    return tuple((request, reply) for request, reply in yaml.safe_load(text))


def seen_in(
    lessons: Sequence[Lesson], tokenizer: Tokenizer, layout: Layout, pieces: Pieces
) -> Floats:
    """Return the inspector's traits of each lesson's question and reply, (N, SEEN), in order."""
    found = np.zeros((len(lessons), SEEN), dtype=np.float32)
    for start in range(0, len(lessons), AT_ONCE):
        some = lessons[start : start + AT_ONCE]
        texts = [text for each in some for text in (each.question, each.answer)]
        ids = encode(tokenizer, texts, layout)
        for at, each in enumerate(some):
            both = ids[2 * at], ids[2 * at + 1]
            found[start + at] = inspect(each.question, each.answer, *both, pieces)
    return found


def symbolic_rows(count: int, seed: int, kinds: Sequence[str] = ()) -> Iterator[Row]:
    """Yield `count` rows with a right reply each, to tasks of all kinds in turn.

    `kinds` names the kinds to use, such as `brackets`; all if empty. A row has no model, and the
    benchmark `symbolic tasks`. The same seed gives the same rows.
    """
    rng = random.Random(seed)
    names = list(kinds) or list(KINDS)
    for at in range(count):
        task = KINDS[names[at % len(names)]](rng)
        question, answer = _task_question(task, rng), _task_answer(task, rng)
        named = (None, BENCHMARK, None, f"{BENCHMARK} {at}")
        yield Row(question, answer, *named, 1, None, {"gold": task.answer})


def _task_question(task: SymbolicTask, rng: random.Random) -> str:
    """Return the task's question in a random wording: instruction and input, in either order."""
    does = rng.choice(task.does)
    forms = (f"{does}: {task.material}", f"{does}\n{task.material}", f"{task.material}\n{does}.")
    return rng.choice((*forms, f'{does}: "{task.material}"'))


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
    working = ("; " if form == 4 else ". " if form == 5 else "\n").join(steps)
    parts = (rng.choice(_STARTS), working, rng.choice(_ENDS).format(task.answer))
    return rng.choice(("\n", "\n\n", " ")).join(part for part in parts if part)
