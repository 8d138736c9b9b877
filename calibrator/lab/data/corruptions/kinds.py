"""All kinds of corruption, and the pairs of replies that they make from labelled rows.

They change a reply's numbers or wording, or take a reply to another question, which may be the
question of the file that is most like it.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from calibrator.lab.data.corruptions.sentences import OFF_TOPIC
from calibrator.rows.rows import Row
from calibrator.text.options import argued_option_changed, final_option_changed

_WORD = re.compile(r"\w+")
CHARACTERS = 4_000  # read from the beginning of a question
MAX_TERMS = 600  # rarest terms of a question; common ones tell questions apart least
MAX_SHARE = 0.5  # share of the questions; a term of more of them is ignored
KEY_CHARACTERS = 20_000

_NAME = re.compile(r"\b[A-Z][a-zà-ž]{2,}(?: (?:(?:of|the|de|von|van|la) )?[A-Z][a-zà-ž]+){0,3}\b")
_PLAIN = frozenset(
    """
    The This That These Those There They Then Therefore Thus Hence However Here His Her Its It In On
    At For From With Without When Where While Which Who What Why How And But Because Since So If As
    By To Of An A Are Is Was Were Be Been You Your We Our Let Now First Second Third Finally Step
    Answer Question Option Options Final Given Yes No Not One Two Three All Any Each Some Such After
    Before During Also Although Though Based According Note Solution Explanation Reasoning I
    True False None Null
    """.split()  # noqa: SIM905  # a list of a hundred quoted words would be harder to read
)
_AUXILIARIES = "is|are|was|were|can|could|does|did|do|has|have|had|will|would|should|must"
# `has` and `have` are negated only before a participle. `do` and `did` are missing, since no other
# verb follows them in a plain statement.
_VERB = re.compile(
    r"\b(is|are|was|were|can|will|would|should|(?:has|have)(?= (?:been|\w{2,20}ed)\b))\b"
    r"(?!\s{1,3}not\b|n?['\u2019]t)"
)
_NOT = re.compile(
    rf"\b(?:(?P<verb>{_AUXILIARIES})(?:\s{{1,3}}not\b|n['\u2019]t\b)"
    r"|(?P<can>can)(?:not|['\u2019]t)\b|(?P<will>wo)n['\u2019]t\b)"
)
MIN_CUT = 120  # characters; a shorter reply has no working to cut
MAX_NAMES = 200  # names of a reply, and candidates to replace one of them
LOOK_BACK = 4  # characters before a name that show whether it begins a sentence

_NUMBER = re.compile(
    r"(?<![\w.,\\])-?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?(?!\w)"
    r"|(?<![\w.\\])-?[0-9]++(?:\.[0-9]++)?(?!\.?\w)"
)
_RESULT = re.compile(
    r"=[ \t]{0,4}(?:[$€£][ \t]{0,2})?(-?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?)(?![.,]?\w)"
)
_OPERATION = re.compile(r"[-+*/^%\u00d7\u00b7\u00f7\u2212]|\\(?:[dt]?frac|times|cdot|div|sqrt)")
MAX_DIGITS = 15  # characters; a longer number is an identifier
LEFT_SIDE = 120  # characters before an equals sign that are searched for an operation
YEARS = range(1000, 2101)  # whole numbers that are mostly years; another size would be absurd

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


def last_number_changed(answer: str, rng: random.Random) -> str | None:
    """Return the reply with another last number of the same form: `so 42.` gives `so 43.`.

    None without a number, or if the last one is longer than `MAX_DIGITS` characters.
    """
    found = None
    for found in _NUMBER.finditer(answer):  # noqa: B007  # the last one is used
        pass
    if found is None or len(found[0]) > MAX_DIGITS:
        return None
    return answer[: found.start()] + move_number(found[0], rng) + answer[found.end() :]


def result_changed(answer: str, rng: random.Random) -> str | None:
    """Return the reply with one result of its working changed, such as the 42 in `6 * 7 = 42`.

    A result follows an equals sign with an operation on its left side (an argument of a call
    has none) and precedes another number; the reply's last number is kept. None if there is no
    such result.
    """
    end = 0
    for number in _NUMBER.finditer(answer):
        end = number.start()
    found = [
        each
        for each in _RESULT.finditer(answer)
        if each.end(1) <= end and len(each[1]) <= MAX_DIGITS and _is_computed(answer, each.start())
    ]
    if not found:
        return None
    one = rng.choice(found)
    return answer[: one.start(1)] + move_number(one[1], rng) + answer[one.end(1) :]


def arrival_changed(answer: str, rng: random.Random) -> str | None:
    """Return the reply whose working arrives at another number than its unchanged end, or None.

    All earlier occurrences of the last number get one other value. None if the last number does
    not occur before, or is longer than `MAX_DIGITS` characters.
    """
    found = list(_NUMBER.finditer(answer))
    if len(found) < 2 or len(found[-1][0]) > MAX_DIGITS:
        return None
    last = found[-1][0]
    before = [each for each in found[:-1] if each[0] == last]
    if not before:
        return None
    other, end, parts = move_number(last, rng), 0, []
    for each in before:
        parts += [answer[end : each.start()], other]
        end = each.end()
    return "".join([*parts, answer[end:]])


def _is_computed(answer: str, equals: int) -> bool:
    """Return whether the text left of the equals sign at `equals`, in its line, computes something.

    It must have a digit and an operation, as in `6 * 7 =`. False for comparisons such as `<=`.
    """
    left = re.split(r"[=\n&?]", answer[max(0, equals - LEFT_SIDE) : equals])[-1].strip(" \t*-")
    if left.endswith(("!", "<", ">")):  # a comparison
        return False
    return any(each.isdigit() for each in left) and _OPERATION.search(left) is not None


def move_number(number: str, rng: random.Random) -> str:
    """Return another number of the same form: a step away, a digit changed, or another size.

    Years (1000 to 2100) move by at most 40. A minus sign is never added.
    """
    plain = number.replace(",", "")
    whole, _, fraction = plain.partition(".")
    decimals, value, step = len(fraction), float(plain), 10.0 ** -len(fraction)
    ways = [
        value + step * rng.choice((-3, -2, -1, 1, 2, 3)),
        value * rng.choice((0.5, 2, 10, 0.1, 1.1, 0.9, 1.25)),
        value + 10 ** rng.randint(0, max(0, len(whole) - 1)) * rng.randint(1, 9),
    ]
    if not fraction and "," not in number and value in YEARS:
        ways[1:] = [value + rng.choice((-40, -20, -10, 10)), value + rng.choice((-7, -4, 5, 8))]
    rng.shuffle(ways)
    ways += [value + 7 * step, abs(value) + 7 * step]
    written = (_write_like(new, number, decimals) for new in ways)
    return next(each for each in written if _is_another(each, number, value))


def _write_like(value: float, number: str, decimals: int) -> str:
    """Write a value in the form of `number`, with its thousands commas, decimals and zeros."""
    if "," in number:
        return f"{value:,.{decimals}f}"
    has_zeros = number.lstrip("-").startswith("0") and decimals == 0
    return f"{value:0{len(number)}.0f}" if has_zeros else f"{value:.{decimals}f}"


def _is_another(written: str, number: str, value: float) -> bool:
    """Return whether a written number differs from `value`, without a new minus sign."""
    is_signed = written.startswith("-") and not number.startswith("-")
    return float(written.replace(",", "")) != value and not is_signed


def names_in(text: str) -> list[str]:
    """Return the names in a text, in order, repeats included: capitalised words as `Marie Curie`.

    Common words (`The`, `However`) at a name's start are dropped, and a single word that begins
    a sentence does not count.
    """
    found = []
    for each in _NAME.finditer(text):
        words = each[0].split()
        before = text[max(0, each.start() - LOOK_BACK) : each.start()].rstrip()
        begins = not before or before[-1] in ".!?:\n\"'*#-"
        while words and (words[0] in _PLAIN or words[0].islower()):
            words, begins = words[1:], False
        if words and not (begins and len(words) == 1):
            found.append(" ".join(words))
    return found


def entity_swapped(
    question: str,
    answer: str,
    pool: Sequence[str],
    rng: random.Random,
    ordinary: Collection[str] = (),
) -> str | None:
    """Return the reply with one name replaced everywhere by another one of `pool`.

    The name is not in the question and not in `ordinary`, capitalised words that name nothing.
    The new one is not in the reply and mostly has as many words. None if there is no such name.
    """
    names = [name for name in dict.fromkeys(names_in(answer)) if name not in ordinary][:MAX_NAMES]
    own = [name for name in names if name not in question]
    if not own:
        return None
    name = rng.choice(own)
    drawn = rng.sample(pool, min(MAX_NAMES, len(pool)))
    others = [each for each in drawn if each not in answer and name not in each]
    if not others:
        return None
    other = rng.choice(
        [each for each in others if len(each.split()) == len(name.split())] or others
    )
    return re.sub(rf"\b{re.escape(name)}\b", lambda _: other, answer)


def negation_changed(answer: str, rng: random.Random) -> str | None:
    """Return the reply with a negation dropped, `is not` to `is`, or else one added to a verb.

    None if it has neither a negation nor a verb to negate, such as `is`, `can` or `has been`.
    """
    dropped = list(_NOT.finditer(answer))
    if dropped:
        one = rng.choice(dropped)
        verb = one["verb"] or one["can"] or "will"
        return answer[: one.start()] + verb + answer[one.end() :]
    added = list(_VERB.finditer(answer))
    if not added:
        return None
    one = added[-1] if rng.random() < 0.5 else rng.choice(added)
    return f"{answer[: one.end()]} not{answer[one.end() :]}"


def cut_off(answer: str, rng: random.Random) -> str | None:
    """Return the first 33 to 80 % of the reply's characters; None below `MIN_CUT` characters."""
    if len(answer) < MIN_CUT:
        return None
    return answer[: int(len(answer) * rng.uniform(0.33, 0.8))]


def question_key(question: str) -> str:
    """Return the words of a question in small letters without punctuation, equal for its copies.

    The first `KEY_CHARACTERS` characters are read; they are returned as they are if they have
    no word.
    """
    return " ".join(_WORD.findall(question[:KEY_CHARACTERS].lower())) or question[:KEY_CHARACTERS]


def nearest_questions(questions: Sequence[str]) -> NDArray[np.int64]:
    """Return the position of the most similar other question for each question, (Q,).

    Similarity is the cosine of words and pairs of words, weighted by rarity (TF-IDF). A copy, equal
    up to case and punctuation, counts as the same question. Where all others are copies the
    position is the question's own. Raises ValueError for fewer than two questions.
    """
    if len(questions) < 2:
        raise ValueError("one question alone has no nearest one")
    alike = _cosines([_terms(question) for question in questions])
    same: dict[str, list[int]] = defaultdict(list)
    for place, question in enumerate(questions):
        same[question_key(question)].append(place)
    for copies in same.values():
        alike[np.ix_(copies, copies)] = -1
    nearest = np.asarray(alike.argmax(axis=1), dtype=np.int64)
    own = np.arange(len(questions))
    return np.where(alike[own, nearest] < 0, own, nearest)


def _cosines(terms: Sequence[Counter[str]]) -> NDArray[np.float32]:
    """Return the cosine of every two questions, (Q, Q); 0 without shared terms.

    `terms` counts the terms of each question. Terms of one question alone or of more than half
    of them are ignored, and of each question only the `MAX_TERMS` rarest others count.
    """
    count = Counter(term for each in terms for term in each)
    most = max(2.0, MAX_SHARE * len(terms))
    postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for place, each in enumerate(terms):
        weights = {t: (1 + np.log(n)) * np.log(len(terms) / count[t]) for t, n in each.items()}
        length = max(1e-9, sum(w * w for w in weights.values()) ** 0.5)
        shared = [t for t in weights if 1 < count[t] <= most]
        for term in sorted(shared, key=lambda t: (count[t], t))[:MAX_TERMS]:
            postings[term].append((place, weights[term] / length))
    alike = np.zeros((len(terms), len(terms)), dtype=np.float32)
    for listed in postings.values():
        places = np.array([place for place, _ in listed])
        values = np.array([value for _, value in listed], dtype=np.float32)
        alike[np.ix_(places, places)] += np.outer(values, values)
    return alike


def _terms(question: str) -> Counter[str]:
    """Count the words and pairs of adjacent words in a question's beginning, in small letters."""
    words = _WORD.findall(question[:CHARACTERS].lower())
    return Counter([*words, *map(" ".join, pairwise(words))])
