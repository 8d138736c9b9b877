"""All kinds of corruption, and the pairs of replies that they make from labelled rows."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calibrator.lab.data.corruptions.numbers import (
    arrival_changed,
    last_number_changed,
    result_changed,
)
from calibrator.lab.data.corruptions.other_questions import nearest_questions, question_key
from calibrator.lab.data.corruptions.sentences import OFF_TOPIC
from calibrator.lab.data.corruptions.wording import (
    cut_off,
    entity_swapped,
    names_in,
    negation_changed,
)
from calibrator.rows.rows import Row
from calibrator.text.options import argued_option_changed, final_option_changed

POOL = 2_000  # replies of a file whose names may replace others
MAX_QUESTIONS = 3_000  # questions of a file among which the nearest is searched
ORDINARY_SHARE = 0.1  # share of the replies; a name in more of them belongs to their form
SHORT_REPLY = 120  # characters; a shorter reply may fit another question with the same answer
MIN_LETTERS = 4  # letters of a gold answer that can be searched for in a text

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
TAUGHT_KINDS = {  # kinds for training only, which no table of sensitivity shows
    "arrival": "the number that the working arrives at changed, the end kept",
    "argued option": "the option that the working argues for changed, the end kept",
}


@dataclass(frozen=True, slots=True)
class Corruption:
    """A right reply's row, and the reply that replaces it."""

    kind: str
    row: Row
    answer: str


def corrupt_rows(rows: Sequence[Row], kind: str, seed: int = 0) -> list[Corruption]:
    """Return a wrong reply for each row labelled as correct to which the corruption applies.

    `kind` is one of `KINDS` or `TAUGHT_KINDS`, such as `negation`. Rows whose reply would be
    unchanged are omitted. The same rows and seed give the same result. Raises KeyError for an
    unknown kind.
    """
    right = [row for row in rows if row.correct == 1]
    change = _changes(right, kind, seed)
    found = []
    for place, row in enumerate(right):
        answer = change(place, random.Random(f"{seed} {kind} {place} {row.question_id}"))
        if answer is not None and answer.strip() != row.answer.strip():
            found.append(Corruption(kind, row, answer))
    return found


Change = Callable[[int, random.Random], str | None]  # changes the right row at a position


def _changes(right: Sequence[Row], kind: str, seed: int) -> Change:
    """Return a function (position in `right`, random generator) -> wrong reply or None.

    Raises KeyError for an unknown kind.
    """
    if kind in ("another question", "nearest question"):
        return _reply_elsewhere(right, seed, is_nearest=kind == "nearest question")
    if kind == "entity":
        pool, ordinary = _names_of(right)
        return lambda at, rng: entity_swapped(
            right[at].question, right[at].answer, pool, rng, ordinary
        )
    if kind == "final option":
        return lambda at, rng: final_option_changed(right[at].question, right[at].answer, rng)
    if kind == "argued option":
        return lambda at, rng: argued_option_changed(right[at].question, right[at].answer, rng)
    if kind == "off topic":
        return lambda at, rng: rng.choice(OFF_TOPIC)
    if kind == "echo":
        return lambda at, rng: right[at].question
    if kind == "cut off":
        return lambda at, rng: _cut_before_the_answer(right[at], rng)
    simple = {
        "last number": last_number_changed,
        "working": result_changed,
        "arrival": arrival_changed,
        "negation": negation_changed,
    }[kind]
    return lambda at, rng: simple(right[at].answer, rng)


def _names_of(right: Sequence[Row]) -> tuple[list[str], set[str]]:
    """Return (names in the replies that may replace others, capitalised words that are left alone).

    Left alone are words that also occur in small letters, and names in more than a tenth of the
    replies (and more than three), such as a source or a heading. The first `POOL` replies are
    read.
    """
    replies = [row.answer for row in right[:POOL]]
    found = [dict.fromkeys(names_in(reply)) for reply in replies]
    small = {word for reply in replies for word in re.findall(r"\b[a-z][a-zà-ž]+\b", reply)}
    count = Counter(name for names in found for name in names)
    most = max(3, ORDINARY_SHARE * len(replies))
    ordinary = {name for name, n in count.items() if n > most or name.lower() in small}
    return [name for name in count if name not in ordinary], ordinary


def _cut_before_the_answer(row: Row, rng: random.Random) -> str | None:
    """Return the beginning of a reply, or None if that has the right answer already.

    Also None for a reply that is too short to cut. Only right answers with at least
    `MIN_LETTERS` letters are searched for.
    """
    kept = cut_off(row.answer, rng)
    if kept is None:
        return None
    text = kept.casefold()
    golds = [each.strip().casefold() for each in re.split(r"[/;|]", _gold(row)[:1_000])]
    letters = [sum(map(str.isalpha, each)) for each in golds]
    has_answer = any(
        n >= MIN_LETTERS and each in text for n, each in zip(letters, golds, strict=True)
    )
    return None if has_answer else kept


def _gold(row: Row) -> str:
    """Return the row's right answer; "" if it has none or it is no text."""
    gold = row.raw.get("gold")
    return gold if isinstance(gold, str) else ""


@dataclass(frozen=True, slots=True)
class _Replies:
    """The right replies to each question of a file, by the key of the question's text."""

    keys: list[str]  # the questions that others are drawn from
    rows: dict[str, list[Row]]
    nearest: dict[str, str] | None  # the key of the most similar question; None to draw at random

    def other_reply(self, own: str, gold: str, rng: random.Random) -> str | None:
        """Return a right reply to another question that is no right reply to this one, or None.

        `own` is the question's key and `gold` its right answer. A reply of under
        `SHORT_REPLY` characters to a question with the same right answer does not count.
        None if no question or no reply is left.
        """
        if self.nearest is not None:
            other = self.nearest.get(own)
        else:
            drawn = rng.sample(self.keys, min(2, len(self.keys)))
            other = next((each for each in drawn if each != own), None)
        if other is None:
            return None
        known = {row.answer for row in self.rows[own]}
        fitting = [
            row.answer
            for row in self.rows[other]
            if row.answer not in known
            and not (gold and gold == _gold(row) and len(row.answer) < SHORT_REPLY)
        ]
        return rng.choice(fitting) if fitting else None


def _reply_elsewhere(right: Sequence[Row], seed: int, *, is_nearest: bool) -> Change:
    """Return a function (position, random generator) -> a right reply to another question, or None.

    The question is the most similar one, or a random one. With fewer than two questions it
    always returns None; at most `MAX_QUESTIONS` are searched.
    """
    own = [question_key(row.question) for row in right]
    rows: dict[str, list[Row]] = defaultdict(list)
    for key, row in zip(own, right, strict=True):
        rows[key].append(row)
    keys = sorted(rows)
    if len(keys) > MAX_QUESTIONS:
        keys = random.Random(seed).sample(keys, MAX_QUESTIONS)
    if len(keys) < 2:
        return lambda at, rng: None
    nearest = None
    if is_nearest:
        places = nearest_questions([rows[key][0].question for key in keys])
        nearest = {key: keys[place] for key, place in zip(keys, places, strict=True)}
    replies = _Replies(keys, rows, nearest)
    return lambda at, rng: replies.other_reply(own[at], _gold(right[at]), rng)
