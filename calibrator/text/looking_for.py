"""Patterns that are looked for in many texts: told cheaply that one cannot be there.

A regular expression with a choice at its beginning is tried at every character. Nearly always some
word or sign that it needs is not in the text at all, which a look into the set of the text's words
tells at once. What is found is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

_WORD = re.compile(r"\w+")
_SPACED = bytes(code if chr(code).isalnum() or code == ord("_") else 32 for code in range(256))
_NUMERIC = bytes(code if chr(code) in "0123456789.,-" else 32 for code in range(256))
_LETTERS = re.compile(r"[^\W\d_]+")
_DIGIT = re.compile(r"\d")
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")
# letters that match an ASCII letter where case is ignored, although `lower` keeps them apart
_ODD = re.compile("[\u017f\u0130\u0131]")


class Reading:
    """A text, with its words in lower case and what else is asked of it again and again."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lower = text.lower()

    @cached_property
    def in_order(self) -> list[str]:
        """All runs of word characters, in lower case."""
        if not self.lower.isascii():
            return _WORD.findall(self.lower)
        return self.lower.encode().translate(_SPACED).decode().split()

    @cached_property
    def words(self) -> frozenset[str]:
        """The same, each once."""
        return frozenset(self.in_order)

    @cached_property
    def beginnings(self) -> frozenset[str]:
        """The first six letters of all runs of three and more, in lower case."""
        words = self.words
        found = {word[:6] for word in words if word.isalpha() and len(word) > 2}
        for word in words:
            if not word.isalpha():
                found.update(run[:6] for run in _LETTERS.findall(word) if len(run) > 2)
        return frozenset(found)

    @cached_property
    def numbers(self) -> list[str]:
        """Numbers as they are written: digits with single points and commas in between, and a dash
        in front."""
        if not self.has_digit:
            return []
        if not self.text.isascii():
            return _NUMBER.findall(self.text)
        found = []
        for part in self.text.encode().translate(_NUMERIC).decode().split():
            if part.isdigit():
                found.append(part)
            else:
                found += _NUMBER.findall(part)
        return found

    @cached_property
    def is_odd(self) -> bool:
        """Whether `lower` and `words` may lack what a pattern that ignores case finds."""
        return not self.text.isascii() and _ODD.search(self.text) is not None

    @cached_property
    def has_digit(self) -> bool:
        return _DIGIT.search(self.text) is not None


@lru_cache(maxsize=64)
def reading_of(text: str) -> Reading:
    """The reading of a text that several look into, one after the other."""
    return Reading(text)


@dataclass(frozen=True, slots=True)
class Sought:
    """A pattern, and what stands in every text that it matches: one of `words`, as a whole word, or
    one of `parts`, anywhere; both in lower case. With neither it may match any text."""

    pattern: re.Pattern[str]
    words: frozenset[str] = frozenset()
    parts: tuple[str, ...] = ()

    def may_be_in(self, reading: Reading) -> bool:
        """False where the pattern matches nowhere."""
        if not self.words and not self.parts:
            return True
        if reading.is_odd or not self.words.isdisjoint(reading.words):
            return True
        for part in self.parts:  # noqa: SIM110  # faster than `any`, and this runs forty times a score
            if part in reading.lower:
                return True
        return False

    def is_in(self, reading: Reading) -> bool:
        """Whether the pattern matches anywhere."""
        return self.may_be_in(reading) and self.pattern.search(reading.text) is not None

    def all_in(self, reading: Reading) -> list[str]:
        """What `findall` gives, for a pattern whose matches begin with one of `parts`."""
        if not self.may_be_in(reading):
            return []
        if reading.is_odd or self.words:
            return self.pattern.findall(reading.text)
        starts: set[int] = set()
        for part in self.parts:
            at = reading.lower.find(part)
            while at >= 0:
                starts.add(at)
                at = reading.lower.find(part, at + 1)
        found, end = [], 0
        for start in sorted(starts):
            if start >= end and (match := self.pattern.match(reading.text, start)):
                found.append(match[1])
                end = match.end()
        return found


def sought(pattern: str, words: str = "", parts: tuple[str, ...] = ()) -> Sought:
    """A pattern that ignores case; `words` are written with spaces between them."""
    return Sought(re.compile(pattern, re.IGNORECASE), frozenset(words.split()), parts)


def at_lines(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Matches at the beginnings of lines, for a pattern that begins with `(?m)^` and whose matches
    end in their line or with its end."""
    start = 0
    while True:
        if found := pattern.match(text, start):
            yield found
        start = text.find("\n", start) + 1
        if not start:
            return


def beyond_ascii(text: str) -> int:
    """How many characters are beyond ASCII."""
    return 0 if text.isascii() else len(text) - len(text.encode("ascii", "ignore"))
