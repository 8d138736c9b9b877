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
"""An operation of a parsed pattern and its argument."""


class GuardedPattern:
    """A compiled pattern that first tests cheaply whether a text can match.

    It has the methods of `re.Pattern`, with the same results.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        """Wrap a compiled pattern; its `match`, `fullmatch` and `split` are used as they are."""
        self.pattern = pattern
        # These are tried at one place only, or nearly always find something.
        self.match, self.fullmatch, self.split = pattern.match, pattern.fullmatch, pattern.split

    @kept
    def _holds_any(self) -> Callable[[object], bool] | None:
        """Return a function that tells whether a kernel's index of a text holds one of the needles.

        None if each text may match (the pattern has no needles) or there is no compiled kernel.
        """
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
        """Return False if the pattern certainly matches nowhere in a text, else True."""
        if len(text) < SHORT or (holds_any := self._holds_any) is None:
            return True
        index = reading_of(text).rough_index
        return index is None or holds_any(index)

    def search(self, text: str) -> re.Match[str] | None:
        """Return the pattern's first match in a text, or None."""
        return self.pattern.search(text) if self.may_match(text) else None

    def findall(self, text: str) -> list[Any]:
        """Return what `re.Pattern.findall` returns: an empty list without a match."""
        return self.pattern.findall(text) if self.may_match(text) else []

    def finditer(self, text: str, start: int = 0) -> Iterator[re.Match[str]]:
        """Return an iterator over the matches in a text from the position `start` on."""
        return self.pattern.finditer(text, start) if self.may_match(text) else iter(())

    def sub(self, new: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> str:
        """Return the text with the first `count` matches (0: all) replaced, as `re.Pattern.sub`."""
        return self.pattern.sub(new, text, count) if self.may_match(text) else text


def compile_guarded(pattern: str, flags: int = 0) -> GuardedPattern:
    """Compile a regular expression that is tried only on texts which hold what a match needs.

    Arguments and results are those of `re.compile`; raises `re.error` for a wrong pattern.
    """
    return GuardedPattern(re.compile(pattern, flags))


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
    """Return two sets of strings in lower case, one of which each matched text contains.

    The first has whole words (runs of word characters), the second strings that may be anywhere,
    such as `({"colour"}, {"http"})`. Both are empty if the pattern may match any text. They are
    valid for texts for which `PreparedText.is_odd` is false.
    """
    found = (
        _sequence_needles(_parser.parse(pattern.pattern, pattern.flags), False, False).one_of
        or frozenset()
    )
    words = {each.strip(_EDGE) for each in found if _WHOLE.fullmatch(each)}
    parts = {each.replace(_EDGE, "") for each in found if not _WHOLE.fullmatch(each)}
    return frozenset(words), frozenset(parts)


def _sequence_needles(parts: Iterable[_Part], after_edge: bool, before_edge: bool) -> _Needles:
    r"""Return the strings that consecutive parts of a parsed pattern need.

    Exact strings of neighbours are joined. `after_edge` and `before_edge` say whether a word
    boundary (`\b`) is before and after the parts.
    """
    parts = [*[_BOUNDARY] * after_edge, *parts, *[_BOUNDARY] * before_edge]
    run, best = _NOTHING, None
    is_exact = True
    for at, part in enumerate(parts):
        found = _part_needles(
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


def _part_needles(part: _Part, after_edge: bool, before_edge: bool) -> _Needles:
    """Return the strings that one part of a parsed pattern needs; unknown for other kinds.

    `after_edge` and `before_edge` say whether a word boundary is before and after the part.
    """
    operation, argument = part
    if operation is _constants.LITERAL:
        return _character_needles([argument])
    if operation is _constants.IN:
        return _character_needles(_members(argument))
    if operation in _AHEAD:
        return _Needles(frozenset({_EDGE}) if part == _BOUNDARY else _NOTHING, None)
    if operation is _constants.SUBPATTERN:
        return _sequence_needles(argument[-1], after_edge, before_edge)
    if operation is _constants.ATOMIC_GROUP:
        return _sequence_needles(argument, after_edge, before_edge)
    if operation is _constants.BRANCH:
        return _branch_needles(
            [_sequence_needles(each, after_edge, before_edge) for each in argument[1]]
        )
    if operation in _REPEATS:
        least, most, repeated = argument
        if least == most == 1:
            return _sequence_needles(repeated, after_edge, before_edge)
        found = _sequence_needles(repeated, False, False)
        if least:
            return _Needles(None, found.one_of)
        if most == 1 and found.exact is not None:
            return _Needles(found.exact | _NOTHING, None)
    return _ANYTHING


def _branch_needles(branches: Sequence[_Needles]) -> _Needles:
    """Return the strings that alternatives need together, from those of each; unknown if one is."""
    exact: set[str] | None = set()
    one_of: set[str] | None = set()
    for each in branches:
        exact = None if exact is None or each.exact is None else exact | each.exact
        one_of = None if one_of is None or each.one_of is None else one_of | each.one_of
    return _Needles(*(None if each is None else frozenset(each) for each in (exact, one_of)))


def _character_needles(codes: Sequence[int] | None) -> _Needles:
    """Return the needs of a set of one-character alternatives, given as code points, in lower case.

    Unknown for None, for an empty set, and for a character with variants that `lower` keeps apart.
    """
    signs = [chr(code) for code in codes or ()]
    if not signs or not all(map(_is_plain, signs)):
        return _ANYTHING
    exact = frozenset(sign.lower() for sign in signs)
    return _Needles(exact, exact)


def _is_plain(sign: str) -> bool:
    """Return whether `lower` gives all forms of a character that a pattern ignoring case matches.

    It holds for ASCII, Latin letters below U+017F but U+0130 and U+0131, and characters without
    case.
    """
    is_latin = sign.isascii() or ("\xc0" <= sign < "\u017f" and sign not in "\u0130\u0131")
    return is_latin or sign.lower() == sign.upper() == sign


def _members(argument: Sequence[tuple[Any, Any]]) -> list[int] | None:
    r"""Return the code points of a character set such as `[a-c_]` of a parsed pattern.

    None if it is negated, has a class other than `\d`, or a range of more than ten characters.
    """
    codes: list[int] = []
    for operation, each in argument:
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
    r"""Return whether a parsed part matches one character or more, none of them in a word.

    Such parts are `\s+` and `\W`.
    """
    operation, argument = part
    if operation in _REPEATS:
        return argument[0] > 0 and len(argument[2]) == 1 and _is_gap(argument[2][0])
    return operation is _constants.IN and all(
        kind is _constants.CATEGORY and each in _GAPS for kind, each in argument
    )


def _join_all(first: Strings, second: Strings) -> Strings | None:
    """Return each string of the first set followed by each of the second.

    None if these are more than `MOST_JOINED`.
    """
    if len(first) * len(second) > MOST_JOINED:
        return None
    return frozenset(a + b for a in first for b in second)


def _rarest_set(*sets: Strings | None) -> Strings | None:
    """Return the set of which a text most rarely contains a string, by estimate.

    None if no set is of use: missing, empty, of more than `MOST` strings, or with an empty string.
    """
    useful = [
        each for each in sets if each and len(each) <= MOST and all(s.strip(_EDGE) for s in each)
    ]
    return min(useful, key=_frequency, default=None)


def _frequency(strings: Strings) -> float:
    """Estimate how often one of the strings is in a text: the sum of 8 to the power -length."""
    return float(sum(8.0 ** -len(each) for each in strings))
