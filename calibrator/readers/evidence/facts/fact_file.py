"""The facts that an operator provides: a file of names and texts, one JSON object a line.

    {"name": "Lumo desk lamp", "text": "The Lumo desk lamp costs 49 euros and comes in white."}

The few texts about a request and its reply are context, like a document in the conversation. Texts
that have nothing to do with the request are never read, so they change no score.

An inverted index finds the texts that share a rare word with the request or the reply. Of the
closest ones, it returns those that the request is really about. A request is about a text

- if it has the whole name, of two words or more;
- if it has a name of one word, and most of its other words are in the text too: "Mercury" is a
  product in "What does the Mercury cost?", and none in "Is Mercury the planet nearest the sun?";
- if the reply has the whole name, and the request shares a word with the text;
- if at least half of the request's words are in the text, rare words counting more;
- or if it shares a word, and most of the reply's words are in the text.

A word counts by its rarity, log(1 + texts / texts with the word).
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calibrator.errors import InputError, NotScorableError, os_error_sentence
from calibrator.readers.evidence.context.passages import FREQUENT, stem, words_of
from calibrator.readers.evidence.conversation import split_request
from calibrator.scorer import Item
from calibrator.text.transcript import content_text

MOST_PART: Final = 1_500  # characters; a longer text is cut into separate parts
MOST_FOUND: Final = 4  # texts for one reply
MOST_CHARACTERS: Final = 6_000  # characters of all texts together
LEAST_CLOSENESS: Final = 0.5  # least closeness of a text, as a share of the closest text's
MOST_COMMON: Final = 0.01  # share of the texts; a more common word counts but finds no text
MOST_POSTINGS: Final = 50  # most texts that a word finds, in a small file
MOST_WORDS: Final = 48  # rare words of one reply that are looked up
MOST_CANDIDATES: Final = 12  # texts that are compared closely
REQUEST_WEIGHT: Final = 2.0  # weight of a word of the request beside one of the reply
LEAST_WORDS: Final = 3  # a request with fewer is read with the one before it
ABOUT: Final = 0.5  # share of a request's words in a text that it is about
NAMED: Final = 0.4  # that share if one of the words is the name
TOUCHED: Final = 0.15  # that share if the request or the reply has a long name
STRANGE_NAME: Final = 2.0  # weight of a name that no text has, as the subject of the request
_TALKED: Final = """
    hello hi hey thanks thank tell know want need like much many get got give help us may might
    should must let us ask question answer say said explain show find see make take go come does
    than then them also just only very more most some such other one good best new
"""
_PASSED_OVER: Final = FREQUENT | frozenset(_TALKED.split())
_INSIDE: Final = re.compile(r"(?<=[^\s.!?:] )[^\W\d_]+")  # a word inside a sentence

MOST_BYTES: Final = 32_000_000  # bytes of a file; its index takes about four times the memory
MOST_NAME: Final = 200  # characters
MOST_TEXT: Final = 200_000  # characters
MOST_PROBLEMS: Final = 5  # mistakes that one error reports
KEYS: Final = ("name", "text")
MOST_REQUEST: Final = 2_000  # last characters of a request that are searched for names
MOST_REPLY: Final = 4_000  # first characters of a reply that are searched for names
LONG_REQUEST: Final = 20_000  # characters; the question of a longer request is at its end
MOST_MESSAGES: Final = 16  # last messages that are searched for the user's last two turns


@dataclass(frozen=True, slots=True)
class _TextPart:
    """A text, or a part of a long one, with the numbers of its words and of its name's words."""

    text: str
    words: array[int]
    name: frozenset[int]


class FactIndex:
    """An inverted index over named texts. It is immutable, so that threads may share it."""

    def __init__(self, facts: Iterable[tuple[str, str]]) -> None:
        """Build the index of (name, text) pairs; a long text is cut into parts."""
        self._ids: dict[str, int] = {}
        self._numbers: set[int] = set()
        self._parts: list[_TextPart] = []
        self._postings: list[array[int]] = []
        for name, text in facts:
            words_of_name = frozenset(self._learn(_stems(name)))
            for part in _parts(text):
                words = array("I", sorted({*words_of_name, *self._learn(_stems(part))}))
                for word in words:
                    self._postings[word].append(len(self._parts))
                self._parts.append(_TextPart(f"{name}: {part}", words, words_of_name))
        count = len(self._parts)
        self._rarity = [math.log(1 + count / len(each)) for each in self._postings]
        self._unknown = math.log(1 + count)
        self._most = max(MOST_POSTINGS, int(count * MOST_COMMON))

    def _learn(self, stems: Iterable[str]) -> Iterator[int]:
        """Yield the numbers of words.

        A new word gets the next number and an empty list of texts.
        """
        for each in stems:
            at = self._ids.setdefault(each, len(self._ids))
            if at == len(self._postings):
                self._postings.append(array("I"))
                if each[0].isdigit():
                    self._numbers.add(at)
            yield at

    def is_short(self, request: str) -> bool:
        """Return whether a request has fewer than LEAST_WORDS words, too few for its subject."""
        return len(_stems(request)) < LEAST_WORDS

    def find(self, request: str, reply: str) -> tuple[str, ...]:
        """Return the texts that a request and its reply are about, the closest first.

        Empty without any.
        """
        request_words = [(self._ids.get(each), each) for each in _stems(request)]
        reply_words = {at for each in _stems(reply) if (at := self._ids.get(each)) is not None}
        known = {at for at, _ in request_words if at is not None}
        if not known:
            return ()
        names = _names(request)
        wanted = sum(self._weight(at, word, word in names) for at, word in request_words)
        if not wanted:  # the request has only numbers
            return ()
        question = _Question(
            known, reply_words, wanted, sum(self._rarity[at] for at in reply_words)
        )
        measured = [
            (self._closeness(at, question), at) for at in self._candidates(known, reply_words)
        ]
        return self._choose_texts(sorted(measured, key=lambda each: (-each[0], each[1])))

    def _weight(self, at: int | None, word: str, is_name: bool) -> float:
        """Return the weight of a request's word: its rarity, or 0 for a number.

        `at` is its number, None for a word that no text has; such a name (`is_name`) weighs more.
        """
        if word[0].isdigit():
            return 0.0
        if at is not None:
            return self._rarity[at]
        return self._unknown * (STRANGE_NAME if is_name else 1.0)

    def _candidates(self, request_words: set[int], reply_words: set[int]) -> list[int]:
        """Return the indexes of the texts that share the rarest words with request or reply.

        The best come first. `request_words` and `reply_words` are numbers of words.
        """
        rare = [at for at in request_words | reply_words if len(self._postings[at]) <= self._most]
        rare.sort(key=lambda at: (len(self._postings[at]), at))
        votes: dict[int, float] = {}
        for word in rare[:MOST_WORDS]:
            weight = self._rarity[word] * (REQUEST_WEIGHT if word in request_words else 1.0)
            for at in self._postings[word]:
                votes[at] = votes.get(at, 0.0) + weight
        return sorted(votes, key=lambda at: (-votes[at], at))[:MOST_CANDIDATES]

    def _closeness(self, at: int, question: _Question) -> float:
        """Return how close a question is to the text with index `at`.

        0.0 if it is about another.
        """
        part, rarity = self._parts[at], self._rarity
        shared = question.request_words.intersection(part.words) - self._numbers
        if not shared:
            return 0.0
        about = sum(rarity[at] for at in shared) / question.wanted
        repeated = question.reply_words.intersection(part.words)
        agreed = sum(rarity[at] for at in repeated) / question.stated if question.stated else 0.0
        name, is_long = part.name, len(part.name) > 1
        is_named = bool(name) and name <= question.request_words
        is_named_in_reply = is_long and name <= question.reply_words
        is_about = (
            (is_named and about >= (TOUCHED if is_long else NAMED))
            or (is_named_in_reply and about >= TOUCHED)
            or (about >= ABOUT and len(shared) > 1)
            or (about >= NAMED and agreed >= ABOUT and len(repeated) > 1)
        )
        return about + agreed + is_named if is_about else 0.0

    def _choose_texts(self, measured: list[tuple[float, int]]) -> tuple[str, ...]:
        """Return the texts of (closeness, index) pairs, best first, at most MOST_FOUND.

        It stops at one that is far less close than the first, or too long for MOST_CHARACTERS.
        """
        chosen: list[str] = []
        left = MOST_CHARACTERS
        for closeness, at in measured[:MOST_FOUND]:
            text = self._parts[at].text
            if not closeness or closeness < LEAST_CLOSENESS * measured[0][0] or len(text) > left:
                break
            chosen.append(text)
            left -= len(text)
        return tuple(chosen)


@dataclass(frozen=True, slots=True)
class _Question:
    """The known words of a request and a reply, and the weights of all their words."""

    request_words: set[int]
    reply_words: set[int]
    wanted: float
    stated: float


def _stems(text: str) -> list[str]:
    """Return the distinct stems of a text's words, in order, without frequent words."""
    words = dict.fromkeys(words_of(text))
    return list(
        dict.fromkeys(_unify_stem(stem(word)) for word in words if word not in _PASSED_OVER)
    )


def _names(text: str) -> set[str]:
    """Return the stems of the words that have a capital inside a sentence, as names have."""
    found = (each.group() for each in _INSIDE.finditer(text))
    return {_unify_stem(stem(word.lower())) for word in found if word[0].isupper()}


def _unify_stem(word: str) -> str:
    """Return one form of a stem, equal for "price" and "prices", "policy" and "policies"."""
    if len(word) < 4:
        return word
    if word[-1] == "e" or word[-1] == word[-2]:
        return word[:-1]
    return f"{word[:-1]}i" if word[-1] == "y" else word


def _parts(text: str) -> Iterator[str]:
    """Yield a text in parts of up to `MOST_PART` characters, cut at lines, sentences or spaces."""
    start = 0
    while len(text) - start > MOST_PART:
        end = start + MOST_PART
        cuts = (text.rfind(mark, start + MOST_PART // 2, end) for mark in ("\n", ". ", " "))
        cut = next((at + 1 for at in cuts if at > 0), end)
        yield text[start:cut].strip()
        start = cut
    yield text[start:].strip()


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the file: the name of a subject, and the text about it."""

    name: str
    text: str


class FactFile:
    """The facts of one file, with an index that finds those a reply should agree with."""

    def __init__(self, path: Path, facts: Sequence[Fact]) -> None:
        self.path = path
        self.count = len(facts)
        self._index = FactIndex((each.name, each.text) for each in facts)

    def about(self, request: str, reply: str) -> tuple[str, ...]:
        """Return the texts that a request and its reply are about, the closest first.

        Empty without any.
        """
        return self._index.find(request[-MOST_REQUEST:], reply[:MOST_REPLY])

    def about_item(self, item: Item) -> tuple[str, ...]:
        """Return the texts that the last question of an item and its answer are about.

        May be empty. A short question such as "And in blue?" is read together with the question
        before it.
        """
        questions = _questions(item)
        found = self.about(questions[0], item.answer)
        if found or len(questions) == 1 or not self._index.is_short(questions[0]):
            return found
        return self.about(" ".join(questions), item.answer)


def load_facts(path: Path) -> FactFile:
    """Read a file of facts and return it with its index.

    Raises InputError, with the path and line of each mistake, for a file that cannot be read, is
    empty or too large, and for lines that are not an object of a name and a text.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(
                f"{path}: the file is larger than {MOST_BYTES // 1_000_000} MB; "
                "keep what customers ask about, or split it between several proxies"
            )
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise InputError(os_error_sentence(error)) from error
    facts: list[Fact] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            facts.append(_fact(line))
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
            if len(problems) == MOST_PROBLEMS:
                break
    if problems:
        raise InputError("\n".join(problems))
    if not facts:
        raise InputError(f'{path}: no facts in it; a line is {{"name": "..", "text": ".."}}')
    return FactFile(path, facts)


def _fact(line: bytes) -> Fact:
    """Parse one line and return its fact. Raises ValueError with a description of the mistake."""
    try:
        values = json.loads(line)
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8 text; save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"not JSON ({error}); each line is one object, {{'name': .., 'text': ..}}"
        ) from error
    if not isinstance(values, dict):
        raise ValueError(f"a fact is an object with a name and a text, not {_kind(values)}")
    if unknown := sorted(values.keys() - set(KEYS)):
        raise ValueError(f"unknown key {unknown[0]!r}; a fact has the keys 'name' and 'text'")
    return Fact(_text(values, "name", MOST_NAME), _text(values, "text", MOST_TEXT))


def _text(values: Mapping[str, Any], key: str, most: int) -> str:
    """Return a string field, stripped. Raises ValueError if it is missing, empty or too long."""
    if key not in values:
        raise ValueError(f"{key!r} is missing")
    value = values[key]
    if not isinstance(value, str):
        raise ValueError(f"{key!r} must be a string, not {_kind(value)}")
    if not value.strip():
        raise ValueError(f"{key!r} is empty")
    if len(value) > most:
        raise ValueError(f"{key!r} has {len(value):,} characters; {most:,} are the most")
    return value.strip()


def _kind(value: Any) -> str:
    """Return the name of a JSON value's type for people, such as `a list`."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


def _questions(item: Item) -> list[str]:
    """Return the user's last request, and the one before it if any, without documents in them."""
    texts = list(_user_texts(item.messages)) or [item.question]
    return [_instruction(text) for text in texts]


def _user_texts(messages: Sequence[Any]) -> Iterator[str]:
    """Yield the texts of the user's last two messages, the last one first; others are skipped."""
    count = 0
    for message in reversed(messages[-MOST_MESSAGES:]):
        if not isinstance(message, Mapping) or message.get("role") != "user":
            continue
        try:
            text = content_text(message.get("content"), [])
        except (NotScorableError, ValueError):
            continue
        yield text
        count += 1
        if count == 2:
            return


def _instruction(request: str) -> str:
    """Return a request without its document; of a very long one, its end."""
    if len(request) > LONG_REQUEST:
        return request[-MOST_REQUEST:]
    return split_request(request)[0]
