"""Lessons of the inspector: right replies, and the same replies with one kind of fault.

Wrong replies are not among them. Faults are made in right ones; were wrong ones among those that
have none, a check would learn that what looks right is faulty.

Relevance is also taught by excerpts of replies, a sentence or a few, and by plain requests of our
own (`plain_requests.yaml`): what people ask and get outside of benchmarks is short, and need not
repeat a word of the request. Without both the check called such replies off topic. Symbolic tasks
of our own (`symbolic_tasks.py`) are one more benchmark: without them a check that had not seen
brackets or sorted words took working on them for no answer.
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

from calibrator.corruptions import corrupted
from calibrator.corruptions.sentences import OFF_TOPIC
from calibrator.inspection.config import InspectorConfig
from calibrator.inspection.inspector import CHECKS, RELEVANCE, SEEN, inspect
from calibrator.inspection.relevance import Pieces
from calibrator.inspection.symbolic_tasks import symbolic_rows
from calibrator.rows.rows import Row
from calibrator.text.addressed_text import stripped
from calibrator.text.layout import Layout, encode
from calibrator.text.restated_question import without_question

Floats = NDArray[np.float32]

AT_ONCE = 2_000
ELSEWHERE = ("another question", "nearest question")  # faults of which excerpts teach as well
PLAIN, PLAIN_FAULTS, PLAIN_OTHERS = "plain requests", ("another question", "off topic"), 3

_SENTENCE = re.compile(r"(?<=[.!?。])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Lesson:
    """A reply to a question of a benchmark; `fault` is empty for a right one as it was given.

    `is_of_relevance` lessons teach no other check: what they leave out is no fault of theirs.
    """

    question: str
    answer: str
    benchmark: str
    fault: str = ""
    is_of_relevance: bool = False
    weight: float = 1.0
    row: Row | None = None  # whose question it is; None for a plain request
    reply: str = ""  # of another row, as it was given


def lessons_of(rows: Sequence[Row], config: InspectorConfig, seed: int) -> Iterator[Lesson]:
    """Right replies of each benchmark, the faulty ones that were made of right ones, and excerpts
    of both; then the same of symbolic tasks, and the plain requests."""
    rng = random.Random(seed)
    benchmarks: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        benchmarks[row.benchmark or ""].append(row)
    for _, own in sorted(benchmarks.items()):
        yield from _lessons_of_one(own, config, seed, rng)
    # a generator of its own: the other lessons are the same with these and without
    tasks = list(symbolic_rows(config.symbolic_tasks, seed))
    for lesson in _lessons_of_one(tasks, config, seed, random.Random(seed)):
        yield replace(lesson, weight=config.symbolic_weight)
    yield from plain_lessons(config, rng)


def _lessons_of_one(
    rows: Sequence[Row], config: InspectorConfig, seed: int, rng: random.Random
) -> Iterator[Lesson]:
    """The lessons of one benchmark's rows."""
    pool = rng.sample(rows, min(len(rows), config.pool_rows))
    for row in [row for row in pool if row.correct][: config.right_rows]:
        yield from _both(row, row.answer, "", rng)
    for check in CHECKS:
        many = config.irrelevant_rows if check.name == RELEVANCE else config.faulty_rows
        for fault in check.faults:
            if fault not in config.left_out:
                yield from _faulty(pool, fault, many, seed, rng)


def _faulty(
    pool: Sequence[Row], fault: str, many: int, seed: int, rng: random.Random
) -> Iterator[Lesson]:
    """At most so many replies of one benchmark with a fault, and excerpts where these teach."""
    made = corrupted(pool, fault, seed)
    for each in rng.sample(made, min(len(made), many)):
        if fault in ELSEWHERE:
            yield from _both(each.row, each.answer, fault, rng)
        else:
            yield _lesson(each.row, each.answer, fault)


def _both(row: Row, reply: str, fault: str, rng: random.Random) -> Iterator[Lesson]:
    """A reply to the row's question, and an excerpt of it."""
    whole = replace(_lesson(row, reply, fault), reply=reply if fault else "")
    yield whole
    yield replace(whole, answer=excerpt(whole.answer, rng), is_of_relevance=True)


def _lesson(row: Row, reply: str, fault: str) -> Lesson:
    """A reply to the row's question, as the inspector reads it."""
    answer = without_question(row.question, stripped(reply))
    return Lesson(row.question, answer, row.benchmark or "", fault, row=row)


def excerpt(answer: str, rng: random.Random) -> str:
    """A sentence or a few of a reply: the first, the last, or some between."""
    sentences = [part for part in _SENTENCE.split(answer) if part.strip()]
    if len(sentences) < 2:
        return answer
    count = rng.choice((1, 1, 2, 3))
    last = max(0, len(sentences) - count)
    start = min(last, rng.choice((0, last, rng.randrange(len(sentences)))))
    return " ".join(sentences[start : start + count]).strip()


def plain_lessons(config: InspectorConfig, rng: random.Random) -> Iterator[Lesson]:
    """Plain requests with their replies, with those of others, and with something off topic."""
    if set(config.left_out) & set(PLAIN_FAULTS):
        return
    pairs = plain_requests()
    for at, (request, reply) in enumerate(pairs):
        others = rng.sample([pair for pair in pairs if pair is not pairs[at]], PLAIN_OTHERS)
        told = [(reply, ""), *((other, PLAIN_FAULTS[0]) for _, other in others)]
        told.append((rng.choice(OFF_TOPIC), PLAIN_FAULTS[1]))
        for answer, fault in told:
            yield Lesson(request, answer, PLAIN, fault, True, config.plain_weight)


@cache
def plain_requests() -> tuple[tuple[str, str], ...]:
    """Requests and replies, as they stand in `plain_requests.yaml`."""
    text = files("calibrator.inspection").joinpath("plain_requests.yaml").read_text("utf-8")
    return tuple((request, reply) for request, reply in yaml.safe_load(text))


def seen_in(
    lessons: Sequence[Lesson], tokenizer: Tokenizer, layout: Layout, pieces: Pieces
) -> Floats:
    """What is seen in questions and replies, (N, SEEN)."""
    found = np.zeros((len(lessons), SEEN), dtype=np.float32)
    for start in range(0, len(lessons), AT_ONCE):
        some = lessons[start : start + AT_ONCE]
        texts = [text for each in some for text in (each.question, each.answer)]
        ids = encode(tokenizer, texts, layout)
        for at, each in enumerate(some):
            both = ids[2 * at], ids[2 * at + 1]
            found[start + at] = inspect(each.question, each.answer, *both, pieces)
    return found
