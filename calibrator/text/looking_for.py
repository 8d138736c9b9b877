"""Search many texts for patterns, and rule most patterns out cheaply.

A regular expression that begins with alternatives is tried at every character. Nearly always some
word or sign that it needs is absent from the text. A lookup in the set of the text's words shows
that at once, in the kernel's index of an ASCII text or in Python. The matches are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, Generic, TypeVar

from calibrator.kernel import load_kernel

MOST_READ = 2**16  # characters of the longest text that the kernel reads
SPACES = " \t\n\r\f\v\x1c\x1d\x1e\x1f"  # the ASCII characters that `\s` matches

_WORD = re.compile(r"\w+")
_SPACED = bytes(code if chr(code).isalnum() or code == ord("_") else 32 for code in range(256))
_LETTERS = re.compile(r"[^\W\d_]+")
_WITHOUT_SIGNS = bytes(code if chr(code).isalpha() and code < 128 else 32 for code in range(256))
_DIGITS = re.compile(r"\d+")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")
# letters that match an ASCII letter if case is ignored, although `lower` keeps them different, and
# digits beyond ASCII
_ODD = re.compile(r"[\u017f\u0130\u0131]|[^\D0-9]")


_Value = TypeVar("_Value")


class kept(Generic[_Value]):  # used as a decorator, hence the lower case
    """A property that is computed once: `cached_property` without the lock that it has in 3.11."""

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        """Remember `compute(instance)`, which gives the property's value and docstring."""
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """Remember the attribute's name, under which the instance keeps the value."""
        self._name = name

    def __get__(self, owner: Any, kind: type | None = None) -> _Value:
        """Compute the value, store it in the instance's `__dict__` and return it.

        The stored value hides this descriptor, so it is called once for each instance.
        """
        found = owner.__dict__[self._name] = self._compute(owner)
        return found


def without_signs_beyond_ascii(text: str) -> str:
    r"""Return the text with each character beyond ASCII replaced by "\x7f", which is in no word.

    A text in ASCII is returned unchanged; the length stays the same.
    """
    return text if text.isascii() else _BEYOND_ASCII.sub("\x7f", text)


def letters_in(text: str) -> list[str]:
    """Return the runs of letters of a text in order, such as `["It", "s", "ok"]` of "It's ok2".

    Case is unchanged. In a text of ASCII only ASCII letters count, otherwise those of any script.
    Digits and underscores separate runs.
    """
    if text.isascii():
        return text.encode().translate(_WITHOUT_SIGNS).decode().split()
    return _LETTERS.findall(text)


class PreparedText:
    """A text with the forms of it that several readers need, each computed once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lower = text.lower()

    @property
    def kernel(self) -> ModuleType | None:
        """The compiled functions, or None.

        None means that there is no compiled kernel, or that the text is not all ASCII or has more
        than `MOST_READ` (65,536) characters.
        """
        return load_kernel() if self.text.isascii() and len(self.text) <= MOST_READ else None

    @kept
    def in_order(self) -> list[str]:
        """Return all runs of letters, digits and `_` in lower case, repeats included."""
        if not self.lower.isascii():
            return _WORD.findall(self.lower)
        return self.lower.encode().translate(_SPACED).decode().split()

    @kept
    def words(self) -> frozenset[str]:
        """Return the distinct runs of word characters, in lower case."""
        return frozenset(self.in_order)

    @kept
    def beginnings(self) -> frozenset[str]:
        """Return the set of the first six letters of all runs of three letters or more.

        They are in lower case. A word with digits, such as `abc1defg`, is first split into its runs
        of letters.
        """
        words = self.words
        found = {word[:6] for word in words if word.isalpha() and len(word) > 2}
        for word in words:
            if not word.isalpha():
                found.update(run[:6] for run in _LETTERS.findall(word) if len(run) > 2)
        return frozenset(found)

    @kept
    def numbers(self) -> list[str]:
        """Return the numbers of the text as written, in order, such as `["-1,000.5", "7"]`.

        A number is digits with single points and commas in between, and an optional dash in front.
        """
        if (kernel := self.kernel) is not None:
            found: list[str] = kernel.numbers(self.text)
            return found
        return _NUMBER.findall(self.text) if self.digits else []

    @kept
    def digits(self) -> list[int]:
        """Return the positions in the text, ascending, at which runs of digits begin."""
        if (kernel := self.kernel) is not None:
            found: list[int] = kernel.digits(self.text)
            return found
        return [run.start() for run in _DIGITS.finditer(self.text)]

    @kept
    def is_odd(self) -> bool:
        """Return True if a pattern that ignores case may find what `lower` and `words` do not show.

        It holds for a text with a digit beyond ASCII or one of the letters U+017F, U+0130 and
        U+0131.
        """
        return not self.text.isascii() and _ODD.search(self.text) is not None

    @kept
    def index(self) -> object | None:
        """Return the kernel's index of the words and strings of the text in lower case, or None.

        None means that `kernel` is None: not compiled, or the text is long or not all ASCII.
        """
        return kernel.index(self.lower) if (kernel := self.kernel) is not None else None

    @kept
    def rough_index(self) -> object | None:
        """Return the kernel's index of the text in lower case, also of one beyond ASCII, or None.

        Characters beyond ASCII are replaced first, by `without_signs_beyond_ascii`. None without a
        kernel, for more than `MOST_READ` characters, and where `is_odd`.
        """
        if self.text.isascii():
            return self.index
        if (kernel := load_kernel()) is None or self.is_odd or len(self.text) > MOST_READ:
            return None
        found: object = kernel.index(without_signs_beyond_ascii(self.lower))
        return found

    @kept
    def may_list_options(self) -> bool:
        """Return False if certainly no line begins like an option, such as `A.` or `(b)`.

        That is a letter from A to J, in any case, and then one of `.):`. True in all other cases,
        and for any text beyond ASCII.
        """
        return _LISTED.may_be_in("\n" + self.text)


@lru_cache(maxsize=64)
def reading_of(text: str) -> PreparedText:
    """Return the `PreparedText` of a text; those of the last 64 texts are cached and shared."""
    return PreparedText(text)


class SoughtPattern:
    """A pattern, and strings of which every text that it matches contains one.

    These are `words`, found as whole words, and `parts`, found anywhere; both are in lower case. A
    pattern without either may match any text.
    """

    def __init__(
        self,
        pattern: re.Pattern[str],
        words: frozenset[str] = frozenset(),
        parts: tuple[str, ...] = (),
    ) -> None:
        self.pattern, self.words, self.parts = pattern, words, parts

    @kept
    def needles(self) -> object:
        """Return words and parts in the form of the kernel's `hold_any`; None without it."""
        kernel = load_kernel()
        return kernel.needles(tuple(self.words), self.parts) if kernel is not None else None

    def may_be_in(self, reading: PreparedText) -> bool:
        """Return False if the pattern certainly matches nowhere, by its words and parts.

        True does not mean that it matches. It is always True for a pattern without words and parts.
        """
        if not self.words and not self.parts:
            return True
        if (index := reading.index) is not None and (kernel := load_kernel()) is not None:
            found: list[bool] = kernel.hold_any(index, (self.needles,))
            return found[0]
        if reading.is_odd or not self.words.isdisjoint(reading.words):
            return True
        for part in self.parts:  # noqa: SIM110  # faster than `any`; this runs forty times a score
            if part in reading.lower:
                return True
        return False

    def is_in(self, reading: PreparedText) -> bool:
        """Return whether the pattern matches anywhere in the text."""
        return self.may_be_in(reading) and self.pattern.search(reading.text) is not None

    def all_in(self, reading: PreparedText) -> list[str]:
        """Return group 1 of each match in the text, in order; an empty list where nothing matches.

        The pattern must have one group. If it has no `words`, each of its matches must begin with
        one of `parts`, because it is tried at these places alone.
        """
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


class PatternGroup:
    """Patterns that are searched for in the same text, each with words or parts."""

    def __init__(self, *patterns: SoughtPattern) -> None:
        """Remember the patterns; `are_in` answers in their order."""
        self._patterns = patterns

    @kept
    def _needles(self) -> tuple[object, ...]:
        """Return each pattern's words and parts in the kernel's form."""
        return tuple(each.needles for each in self._patterns)

    def are_in(self, reading: PreparedText) -> list[bool]:
        """Return for each pattern, in their order, whether it matches anywhere."""
        if (index := reading.index) is None or (kernel := load_kernel()) is None:
            return [each.is_in(reading) for each in self._patterns]
        found: list[bool] = kernel.hold_any(index, self._needles)
        for place, may_be in enumerate(found):
            if may_be:
                found[place] = self._patterns[place].pattern.search(reading.text) is not None
        return found


class CharacterShape:
    """Rows of kinds of characters, one of which is in every ASCII text that a pattern matches.

    `kinds` maps a letter to the characters of that kind; `rows` are written in these letters.
    """

    def __init__(self, kinds: Mapping[str, str], *rows: str) -> None:
        """Translate kinds and rows to bytes, in which all other characters are NUL."""
        kind_of = {sign: kind for kind, signs in kinds.items() for sign in signs}
        self._kinds = bytes(ord(kind_of.get(chr(code), "\0")) for code in range(256))
        self._rows = tuple(row.encode() for row in rows)

    @kept
    def _kernel_form(self) -> object:
        """Return kinds and rows in the kernel's form for `has_shape`; None without it."""
        kernel = load_kernel()
        return kernel.shape(self._kinds, self._rows) if kernel is not None else None

    def may_be_in(self, text: str) -> bool:
        """Return False if a text is all ASCII and contains none of the rows, else True."""
        if not text.isascii():
            return True
        if (kernel := load_kernel()) is not None:
            found: bool = kernel.has_shape(text, self._kernel_form)
            return found
        kinds = text.encode().translate(self._kinds)
        return any([row in kinds for row in self._rows])


_LISTED = CharacterShape(
    {"n": "\n", " ": " \t", "(": "(", "A": "ABCDEFGHIJabcdefghij", ".": ").:"}, "nA.", " A.", "(A."
)


def compile_sought(pattern: str, words: str = "", parts: tuple[str, ...] = ()) -> SoughtPattern:
    """Compile a pattern, ignoring case, with what each text that it matches must contain.

    `words` are whole words in lower case, separated by spaces; `parts` are strings in lower case
    that may be anywhere. Every matching text has to hold at least one of all these. Raises
    `re.error`.
    """
    return SoughtPattern(re.compile(pattern, re.IGNORECASE), frozenset(words.split()), parts)


def at_lines(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern at the beginnings of the lines of a text, at most one a line.

    The pattern must begin with `(?m)^`, and its matches must not go beyond the end of their line.
    """
    start = 0
    while True:
        if found := pattern.match(text, start):
            yield found
        start = text.find("\n", start) + 1
        if not start:
            return


def beyond_ascii(text: str) -> int:
    """Return the number of characters beyond ASCII in a text."""
    return 0 if text.isascii() else len(text) - len(text.encode("ascii", "ignore"))
