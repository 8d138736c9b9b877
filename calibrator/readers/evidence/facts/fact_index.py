"""An index of a large file that finds the few texts about a request and its reply.

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

import math
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from calibrator.readers.evidence.context.passages import FREQUENT, stem, words_of

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


@dataclass(frozen=True, slots=True)
class _TextPart:
    """A text, or a part of a long one, with the numbers of its words and of its name's words."""

    text: str
    words: array[int]
    name: frozenset[int]


class FactIndex:
    """An inverted index over named texts. It is immutable, so that threads may share it."""

    def __init__(self, facts: Iterable[tuple[str, str]]) -> None:
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
        """Yield the numbers of words; new words get the next number."""
        for each in stems:
            at = self._ids.setdefault(each, len(self._ids))
            if at == len(self._postings):
                self._postings.append(array("I"))
                if each[0].isdigit():
                    self._numbers.add(at)
            yield at

    def is_short(self, request: str) -> bool:
        """Return whether a request has too few words to name its subject."""
        return len(_stems(request)) < LEAST_WORDS

    def find(self, request: str, reply: str) -> tuple[str, ...]:
        """Return the texts that a request and its reply are about, the closest first."""
        asked = [(self._ids.get(each), each) for each in _stems(request)]
        said = {at for each in _stems(reply) if (at := self._ids.get(each)) is not None}
        known = {at for at, _ in asked if at is not None}
        if not known:
            return ()
        names = _names(request)
        wanted = sum(self._weight(at, word, word in names) for at, word in asked)
        if not wanted:  # the request has only numbers
            return ()
        question = _Question(known, said, wanted, sum(self._rarity[at] for at in said))
        measured = [(self._closeness(at, question), at) for at in self._candidates(known, said)]
        return self._choose_texts(sorted(measured, key=lambda each: (-each[0], each[1])))

    def _weight(self, at: int | None, word: str, is_name: bool) -> float:
        """Return the weight of a word of the request: its rarity, or 0 for a number."""
        if word[0].isdigit():
            return 0.0
        if at is not None:
            return self._rarity[at]
        return self._unknown * (STRANGE_NAME if is_name else 1.0)

    def _candidates(self, asked: set[int], said: set[int]) -> list[int]:
        """Return the texts that share the rarest words with request and reply."""
        rare = [at for at in asked | said if len(self._postings[at]) <= self._most]
        rare.sort(key=lambda at: (len(self._postings[at]), at))
        votes: dict[int, float] = {}
        for word in rare[:MOST_WORDS]:
            weight = self._rarity[word] * (REQUEST_WEIGHT if word in asked else 1.0)
            for at in self._postings[word]:
                votes[at] = votes.get(at, 0.0) + weight
        return sorted(votes, key=lambda at: (-votes[at], at))[:MOST_CANDIDATES]

    def _closeness(self, at: int, question: _Question) -> float:
        """Return how much a question is about a text; 0.0 if it is about something else."""
        part, rarity = self._parts[at], self._rarity
        shared = question.asked.intersection(part.words) - self._numbers
        if not shared:
            return 0.0
        about = sum(rarity[at] for at in shared) / question.wanted
        repeated = question.said.intersection(part.words)
        agreed = sum(rarity[at] for at in repeated) / question.stated if question.stated else 0.0
        name, is_long = part.name, len(part.name) > 1
        is_named = bool(name) and name <= question.asked
        is_named_in_reply = is_long and name <= question.said
        is_about = (
            (is_named and about >= (TOUCHED if is_long else NAMED))
            or (is_named_in_reply and about >= TOUCHED)
            or (about >= ABOUT and len(shared) > 1)
            or (about >= NAMED and agreed >= ABOUT and len(repeated) > 1)
        )
        return about + agreed + is_named if is_about else 0.0

    def _choose_texts(self, measured: list[tuple[float, int]]) -> tuple[str, ...]:
        """Return the texts of the closest parts, within the bounds."""
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

    asked: set[int]
    said: set[int]
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
