"""All kinds of corruption, and the pairs of replies that they make of labelled rows."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from calibrator.corruptions.numbers import last_number_changed, result_changed
from calibrator.corruptions.options import final_option_changed
from calibrator.corruptions.other_questions import nearest_questions
from calibrator.corruptions.sentences import OFF_TOPIC
from calibrator.corruptions.wording import cut_off, entity_swapped, names_in, negation_changed
from calibrator.rows import Row

POOL = 2_000  # names of a file that may stand in for others
MAX_QUESTIONS = 3_000  # of a file, among which the nearest is looked for

KINDS = {
    "another question": "the right reply to another question of the file",
    "nearest question": "the right reply to the most similar other question of the file",
    "off topic": "a sentence about something else",
    "last number": "the last number changed",
    "final option": "the final option changed, the working kept",
    "working": "a result inside the working changed, the end kept",
    "entity": "a name swapped for another",
    "negation": "a negation added or dropped",
    "cut off": "the working cut before its end",
    "echo": "the question in place of a reply",
}


@dataclass(frozen=True, slots=True)
class Corruption:
    """A right reply, and the reply that stands in its place."""

    kind: str
    row: Row
    answer: str


def corrupted(rows: Sequence[Row], kind: str, seed: int = 0) -> list[Corruption]:
    """One corruption of each right row of one benchmark to which the kind applies.

    The same rows and seed, the same corruptions. Raises KeyError for an unknown kind.
    """
    right = [row for row in rows if row.correct == 1]
    change = _changes(right, kind, seed)
    found = []
    for place, row in enumerate(right):
        answer = change(place, random.Random(f"{seed} {kind} {place} {row.question_id}"))
        if answer is not None and answer.strip() != row.answer.strip():
            found.append(Corruption(kind, row, answer))
    return found


Change = Callable[[int, random.Random], str | None]  # of the right row at a place


def _changes(right: Sequence[Row], kind: str, seed: int) -> Change:
    """What is done to each of the right rows."""
    if kind in ("another question", "nearest question"):
        return _reply_elsewhere(right, seed, is_nearest=kind == "nearest question")
    if kind == "entity":
        pool = list(dict.fromkeys(name for row in right[:POOL] for name in names_in(row.answer)))
        return lambda at, rng: entity_swapped(right[at].question, right[at].answer, pool, rng)
    if kind == "final option":
        return lambda at, rng: final_option_changed(right[at].question, right[at].answer, rng)
    if kind == "off topic":
        return lambda at, rng: rng.choice(OFF_TOPIC)
    if kind == "echo":
        return lambda at, rng: right[at].question
    simple = {
        "last number": last_number_changed,
        "working": result_changed,
        "negation": negation_changed,
        "cut off": cut_off,
    }[kind]
    return lambda at, rng: simple(right[at].answer, rng)


def _reply_elsewhere(right: Sequence[Row], seed: int, *, is_nearest: bool) -> Change:
    """The right reply to another question: one drawn by lot, or the one most like it."""
    replies: dict[str, list[str]] = defaultdict(list)
    texts: dict[str, str] = {}
    for row in right:
        replies[row.question_id].append(row.answer)
        texts.setdefault(row.question_id, row.question)
    ids = sorted(texts)
    if len(ids) > MAX_QUESTIONS:
        ids = random.Random(seed).sample(ids, MAX_QUESTIONS)
    if len(ids) < 2:
        return lambda at, rng: None
    nearest: dict[str, str] = {}
    if is_nearest:
        places = nearest_questions([texts[each] for each in ids])
        nearest = {each: ids[place] for each, place in zip(ids, places, strict=True)}
    return partial(_elsewhere, right, ids, replies, nearest if is_nearest else None)


def _elsewhere(
    right: Sequence[Row],
    ids: Sequence[str],
    replies: dict[str, list[str]],
    nearest: dict[str, str] | None,
    at: int,
    rng: random.Random,
) -> str | None:
    own = right[at].question_id
    if nearest is not None:
        other = nearest.get(own)
    else:
        other = rng.choice([each for each in rng.sample(ids, min(3, len(ids))) if each != own])
    if other is None:
        return None
    others = [each for each in replies[other] if each not in replies[own]]
    return rng.choice(others) if others else None
