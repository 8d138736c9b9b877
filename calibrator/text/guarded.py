"""Regular expressions that are tried only on texts that hold a string which each match contains.

Most patterns of the checks match few texts, and trying dozens of alternatives at every character
costs more than all else. A look-up of a pattern's needles in the kernel's index of the text takes
a microsecond; without the kernel the pattern itself is tried.

Needles are derived from the parsed expression, as RE2's prefilter and Google Code Search do (R.
Cox, "Regular Expression Matching with a Trigram Index", 2012). So no list beside a pattern can
disagree with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calibrator.kernel import load_kernel
from calibrator.text.looking_for import kept, reading_of, without_signs_beyond_ascii

# The standard library has no public parser of its expressions.
from re import _constants, _parser  # type: ignore[attr-defined]  # isort: skip

SHORT: Final = 24  # characters; on a shorter text the pattern itself is as fast


class GuardedPattern:
    """A compiled pattern that first tests cheaply whether a text can match.

    It has the methods of `re.Pattern`, with the same results.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern
        # These are tried at one place only, or nearly always find something.
        self.match, self.fullmatch, self.split = pattern.match, pattern.fullmatch, pattern.split

    @kept
    def _holds_any(self) -> Callable[[object], bool] | None:
        """A look-up of the needles in an index; None if the pattern has none."""
        words, parts = needles_of(self.pattern)
        kernel = load_kernel()
        if kernel is None or not (words or parts):
            return None
        whole = frozenset(filter(str.isascii, words))
        anywhere = {without_signs_beyond_ascii(each) for each in parts | (words - whole)}
        needles = (kernel.needles(tuple(sorted(whole)), tuple(sorted(anywhere))),)
        hold_any = kernel.hold_any
        return lambda index: bool(hold_any(index, needles)[0])

    def may_match(self, text: str) -> bool:
        """Return False if the pattern certainly matches nowhere in a text."""
        if len(text) < SHORT or (holds_any := self._holds_any) is None:
            return True
        index = reading_of(text).rough_index
        return index is None or holds_any(index)

    def search(self, text: str) -> re.Match[str] | None:
        return self.pattern.search(text) if self.may_match(text) else None

    def findall(self, text: str) -> list[Any]:
        return self.pattern.findall(text) if self.may_match(text) else []

    def finditer(self, text: str, start: int = 0) -> Iterator[re.Match[str]]:
        return self.pattern.finditer(text, start) if self.may_match(text) else iter(())

    def sub(self, new: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> str:
        return self.pattern.sub(new, text, count) if self.may_match(text) else text


def compile_guarded(pattern: str, flags: int = 0) -> GuardedPattern:
    """Compile a pattern, as `re.compile` does; raises `re.error` for a wrong one."""
    return GuardedPattern(re.compile(pattern, flags))


MOST_JOINED: Final = 60  # strings that are made of those of neighbours
MOST: Final = 400  # strings of one pattern; to look for more would take longer than the pattern
_EDGE: Final = "\0"  # marks a place between a word and what is no word
_NOTHING: Final = frozenset({""})
_WHOLE: Final = re.compile(rf"{_EDGE}+\w+{_EDGE}+")
_GAPS: Final = (_constants.CATEGORY_SPACE, _constants.CATEGORY_NOT_WORD)
_REPEATS: Final = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_AHEAD: Final = (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT)

_BOUNDARY: Final = (_constants.AT, _constants.AT_BOUNDARY)

Strings = frozenset[str]
_Part = tuple[Any, Any]
"""An operation of a parsed pattern, and what it is given."""


@dataclass(frozen=True, slots=True)
class _Needles:
    """The strings that one part of a pattern needs.

    `exact` has all strings that it matches; None if they are unknown or too many. `one_of` has
    strings of which each match contains one; None if there are none.
    """

    exact: Strings | None
    one_of: Strings | None


_ANYTHING: Final = _Needles(None, None)


def needles_of(pattern: re.Pattern[str]) -> tuple[Strings, Strings]:
    """Return words and parts in lower case, one of which is in each text that the pattern matches.

    Words are whole runs of word characters, parts are anywhere. Both are empty if nothing is
    needed. They are valid for texts for which `Reading.is_odd` is false.
    """
    found = (
        _of_sequence(_parser.parse(pattern.pattern, pattern.flags), False, False).one_of
        or frozenset()
    )
    words = {each.strip(_EDGE) for each in found if _WHOLE.fullmatch(each)}
    parts = {each.replace(_EDGE, "") for each in found if not _WHOLE.fullmatch(each)}
    return frozenset(words), frozenset(parts)


def _of_sequence(parts: Iterable[_Part], after_edge: bool, before_edge: bool) -> _Needles:
    """Return the needs of consecutive parts, joining the exact strings of neighbours.

    `after_edge` and `before_edge` say whether the edge of a word is before and after them.
    """
    parts = [*[_BOUNDARY] * after_edge, *parts, *[_BOUNDARY] * before_edge]
    run, best = _NOTHING, None
    is_exact = True
    for at, part in enumerate(parts):
        found = _of_part(
            part, parts[at - 1 : at] == [_BOUNDARY], parts[at + 1 : at + 2] == [_BOUNDARY]
        )
        joined = None if found.exact is None else _join_all(run, found.exact)
        if joined is not None:
            run = joined
            continue
        is_exact = False
        edge = _EDGE if _is_gap(part) else ""
        best = _rarest_set(best, frozenset(f"{each}{edge}" for each in run), found.one_of)
        run = frozenset({edge}) if found.exact is None else found.exact
    return _Needles(run if is_exact else None, _rarest_set(best, run))


def _of_part(part: _Part, after_edge: bool, before_edge: bool) -> _Needles:
    """Return the strings that one part of a parsed pattern needs."""
    operation, given = part
    if operation is _constants.LITERAL:
        return _one_of_signs([given])
    if operation is _constants.IN:
        return _one_of_signs(_members(given))
    if operation in _AHEAD:
        return _Needles(frozenset({_EDGE}) if part == _BOUNDARY else _NOTHING, None)
    if operation is _constants.SUBPATTERN:
        return _of_sequence(given[-1], after_edge, before_edge)
    if operation is _constants.ATOMIC_GROUP:
        return _of_sequence(given, after_edge, before_edge)
    if operation is _constants.BRANCH:
        return _of_branches([_of_sequence(each, after_edge, before_edge) for each in given[1]])
    if operation in _REPEATS:
        least, most, repeated = given
        if least == most == 1:
            return _of_sequence(repeated, after_edge, before_edge)
        found = _of_sequence(repeated, False, False)
        if least:
            return _Needles(None, found.one_of)
        if most == 1 and found.exact is not None:
            return _Needles(found.exact | _NOTHING, None)
    return _ANYTHING


def _of_branches(branches: Sequence[_Needles]) -> _Needles:
    exact: set[str] | None = set()
    one_of: set[str] | None = set()
    for each in branches:
        exact = None if exact is None or each.exact is None else exact | each.exact
        one_of = None if one_of is None or each.one_of is None else one_of | each.one_of
    return _Needles(*(None if each is None else frozenset(each) for each in (exact, one_of)))


def _one_of_signs(codes: Sequence[int] | None) -> _Needles:
    """Return the needs of one character; unknown if it has variants that `lower` keeps."""
    signs = [chr(code) for code in codes or ()]
    if not signs or not all(map(_is_plain, signs)):
        return _ANYTHING
    exact = frozenset(sign.lower() for sign in signs)
    return _Needles(exact, exact)


def _is_plain(sign: str) -> bool:
    is_latin = sign.isascii() or ("\xc0" <= sign < "\u017f" and sign not in "\u0130\u0131")
    return is_latin or sign.lower() == sign.upper() == sign


def _members(given: Sequence[tuple[Any, Any]]) -> list[int] | None:
    """Return the characters of a set, or None if it is negated, has a class, or is large."""
    codes: list[int] = []
    for operation, each in given:
        if operation is _constants.LITERAL:
            codes.append(each)
        elif operation is _constants.RANGE and each[1] - each[0] < 10:
            codes += range(each[0], each[1] + 1)
        elif (operation, each) == (_constants.CATEGORY, _constants.CATEGORY_DIGIT):
            codes += range(ord("0"), ord("9") + 1)
        else:
            return None
    return codes


def _is_gap(part: _Part) -> bool:
    """Return whether a part matches at least one character, and only such as are in no word."""
    operation, given = part
    if operation in _REPEATS:
        return given[0] > 0 and len(given[2]) == 1 and _is_gap(given[2][0])
    return operation is _constants.IN and all(
        kind is _constants.CATEGORY and each in _GAPS for kind, each in given
    )


def _join_all(first: Strings, second: Strings) -> Strings | None:
    """Return each string of the first set before each of the second; None if they are too many."""
    if len(first) * len(second) > MOST_JOINED:
        return None
    return frozenset(a + b for a in first for b in second)


def _rarest_set(*sets: Strings | None) -> Strings | None:
    """Return the set of which a text most rarely contains a string; None if all are useless."""
    useful = [
        each for each in sets if each and len(each) <= MOST and all(s.strip(_EDGE) for s in each)
    ]
    return min(useful, key=_frequency, default=None)


def _frequency(strings: Strings) -> float:
    """Estimate how often one of the strings is in a text: each letter divides it by eight."""
    return float(sum(8.0 ** -len(each) for each in strings))
