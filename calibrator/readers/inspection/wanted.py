"""The kind of answer a question wants and the kinds in a reply: a person, a year, a letter, JSON.

Each kind is one pattern or a few; `looking_for` skips those that cannot match.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable

from calibrator.text.looking_for import (
    SPACES,
    CharacterShape,
    PatternGroup,
    PreparedText,
    SoughtPattern,
    at_lines,
    compile_sought,
    reading_of,
)

_LOOK = 1_500
_VERBS = "is are was were do does did can could would will has have"
_MONTHS = (
    "january february march april may june july august september october november december"
    " ledna února března dubna května června července srpna září října listopadu prosince"
)

_OF_CODE = (
    "def ",
    "function",
    "implement",
    "program",
    "code",
    "class ",
    "return ",
    "stdin",
    "print(",
)

_YES_OR_NO = re.compile(rf"\s*(?:{'|'.join(_VERBS.split())}|should)\b", re.IGNORECASE)
_ASKS_ON = compile_sought(rf"[.?!]\s+(?:{'|'.join(_VERBS.split())})\b[^.]*\?", _VERBS)
_OPTION = re.compile(r"(?m)^[ \t]*\(?[A-J][).:][ \t]", re.IGNORECASE)
_CHINESE = re.compile(r"[\u4e00-\u9fff]")

# `_PERSON` and `_YEAR` must begin a word. `_at_word` checks this, because the search is faster for
# a pattern that begins with a set of characters than for one that begins with a boundary.
_PERSON = re.compile(r"[A-Z][a-zà-ž]+ (?:[A-Z]\.? ?)?[A-Z][a-zà-ž]+\b")
_TWO_CAPITALS = CharacterShape(
    {"A": string.ascii_uppercase, "a": string.ascii_lowercase, " ": " "}, "a A"
)
_YEAR = re.compile(r"(?:1[0-9]|20)\d\d\b")
_FOUR_DIGITS = CharacterShape({"0": string.digits}, "0000")
_AMOUNT = re.compile(
    r"\d\s?(?:%|percent|km|kg|m\b|cm|mm|miles|feet|dollars|euros|years|hours|minutes)",
    re.IGNORECASE,
)
_DIGIT_AND_UNIT = CharacterShape(
    {"0": string.digits, " ": SPACES, "u": "%pkmcfdeyhPKMCFDEYH"}, "0u", "0 u"
)
_PRICE = compile_sought(r"[$€£]\s?\d", parts=("$", "€", "£"))
_SAYS_YES_OR_NO = re.compile(r"\W*(?:yes|no|true|false|correct|incorrect)\b", re.IGNORECASE)
_JSON = re.compile(r"\s*(?:```json)?\s*[{\[]", re.IGNORECASE)
_LETTER_FIRST = re.compile(r"\W*\(?[A-J]\b[).:]", re.IGNORECASE)
_LETTER = compile_sought(r"\b[A-J]\b\W*$|answer is \(?[A-J]\b", parts=("answer is",))


def _is_yes_or_no(question: PreparedText) -> bool:
    """Return whether the question can be answered with yes or no: `Is it raining?`."""
    return _YES_OR_NO.match(question.text) is not None or _asks_on(question)


def _asks_on(question: PreparedText) -> bool:
    """Return whether a later sentence asks for yes or no: `It is late. Do we stop?`.

    This is where `_ASKS_ON` matches; it can only match between two full stops, which keeps the
    search linear.
    """
    if "?" not in question.text or not _ASKS_ON.may_be_in(question):
        return False
    end = question.text.rfind("?")
    while end >= 0:
        start = max(0, question.text.rfind(".", 0, end))
        if _ASKS_ON.pattern.search(question.text, start, end + 1):
            return True
        end = question.text.rfind("?", 0, start)
    return False


def _asks_sum(question: PreparedText) -> bool:
    """Return whether the question has a dollar sign or a word such as `calculate`."""
    return "$" in question.text or _SUM.is_in(question)


def _lists_options(question: PreparedText) -> bool:
    """Return whether a line of the question begins an option, such as `B) Paris`."""
    return question.may_list_options and any(True for _ in at_lines(_OPTION, question.text))


def _has_chinese(reading: PreparedText) -> bool:
    """Return whether a text has a Chinese character."""
    return not reading.text.isascii() and _CHINESE.search(reading.text) is not None


def _at_word(pattern: re.Pattern[str], text: str) -> bool:
    """Return whether a pattern matches at the beginning of a word anywhere in a text."""
    found = pattern.search(text)
    while found and found.start() and _is_word(text[found.start() - 1]):
        found = pattern.search(text, found.start() + 1)
    return found is not None


def _is_word(character: str) -> bool:
    """Return whether a character is a letter, a digit or an underscore."""
    return character.isalnum() or character == "_"


def _is_person(answer: PreparedText) -> bool:
    """Return whether a text has a name of two capitalised words, such as `Ada Lovelace`."""
    return _TWO_CAPITALS.may_be_in(answer.text) and _at_word(_PERSON, answer.text)


def _is_year(answer: PreparedText) -> bool:
    """Return whether a text has a year from 1000 to 2099."""
    return _FOUR_DIGITS.may_be_in(answer.text) and _at_word(_YEAR, answer.text)


def _is_amount(answer: PreparedText) -> bool:
    """Return whether a text has a number with a unit or a currency: `5 km`, `$3`."""
    if not answer.digits:
        return False
    has_unit = _DIGIT_AND_UNIT.may_be_in(answer.text) and _AMOUNT.search(answer.text)
    return bool(has_unit) or _PRICE.is_in(answer)


def _is_letter(answer: PreparedText) -> bool:
    """Return whether a letter A to J ends or begins the text or is called the answer: `(B)`.

    At the end it may stand alone in either case; at the beginning it needs a bracket, full stop
    or colon behind it.
    """
    if answer.is_odd or "answer is" in answer.lower:
        is_stated = _LETTER.is_in(answer)
    else:
        end = len(answer.text)
        while end and not _is_word(answer.text[end - 1]):
            end -= 1
        is_alone = end == 1 or (end > 1 and not _is_word(answer.text[end - 2]))
        is_stated = is_alone and "a" <= answer.text[end - 1].lower() <= "j"
    return is_stated or _LETTER_FIRST.match(answer.text) is not None


def _is_call(answer: PreparedText) -> bool:
    """Return whether a text has a call with a named argument, such as `find(name="x")`.

    A letter, digit or underscore must precede the bracket, and an equals sign follow before it
    closes.
    """
    text, at = answer.text, answer.text.find("(")
    while at >= 0:
        equals, close = text.find("=", at), text.find(")", at)
        if equals < 0:
            return False
        if at and _is_word(text[at - 1]) and not 0 <= close < equals:
            return True
        at = text.find("(", at + 1)
    return False


_SUM = compile_sought(
    r"\b(?:calculate|compute|find the|evaluate|solve|simplify|determine|what is the value|sum)\b",
    "calculate compute find evaluate solve simplify determine value sum",
)


class _Tests:
    """Tests of a text: patterns, which are searched for together, and functions."""

    def __init__(self, *tests: SoughtPattern | Callable[[PreparedText], bool]) -> None:
        """Take patterns and functions, in the order of the results."""
        self.patterns = [test for test in tests if isinstance(test, SoughtPattern)]
        self._several = PatternGroup(*self.patterns)
        self._tests = [None if isinstance(test, SoughtPattern) else test for test in tests]

    def run(self, reading: PreparedText) -> list[float]:
        """Return the results of all tests on a text in their order, each 0.0 or 1.0."""
        found = iter(self._several.are_in(reading))
        return [float(next(found) if test is None else test(reading)) for test in self._tests]


_QUESTION_TESTS = _Tests(
    compile_sought(r"\bwho\b|\bwhose\b|\bwhom\b|\bkdo\b", "who whose whom kdo"),
    compile_sought(
        r"\bwhen\b|\bwhat year\b|\bwhich year\b|\bwhat date\b|\bkter[ée]m roce\b|\bkdy\b|\bdatum\b",
        "when year date roce kdy datum",
    ),
    compile_sought(
        r"\bwhere\b|\bwhat (?:city|country|place)\b|\bwhich (?:city|country)\b|\bkde\b",
        "where city country place kde",
    ),
    compile_sought(r"\bhow (?:many|much|long|old|far|tall|often|large)\b|\bkolik\b", "how kolik"),
    compile_sought(r"\bwhy\b|\bexplain\b|\bdescribe\b", "why explain describe"),
    compile_sought(r"\bwhich\b|\bkter[ýáéou]+\b", "which", ("kter",)),
    _is_yes_or_no,
    compile_sought(
        r"\b(?:def |function|implement|program|code|class |return |stdin|print\()",
        parts=_OF_CODE,
    ),
    _asks_sum,
    compile_sought(r"\bprove\b|\bproof\b|\bshow that\b", "prove proof show"),
    compile_sought(r"\bname\b|\blist\b|\btitle\b|\bjm[ée]no\b", "name list title jméno jmeno"),
    compile_sought(r"\bjson\b|\"type\"", "json", ('"type"',)),
    _lists_options,
    _has_chinese,
)
_ANSWER_TESTS = _Tests(
    _is_person,
    _is_year,
    compile_sought(rf"\b(?:{'|'.join(_MONTHS.split())})\b", _MONTHS),
    lambda answer: bool(answer.digits),
    _is_amount,
    lambda answer: _SAYS_YES_OR_NO.match(answer.text) is not None,
    compile_sought(
        r"```|\bdef \w+\(|\breturn\b|#include|\bfn \w+",
        "return",
        ("```", "def ", "#include", "fn "),
    ),
    lambda answer: _JSON.match(answer.text) is not None,
    compile_sought(r"\\boxed|\\frac|\\\(|\$", parts=("\\boxed", "\\frac", "\\(", "$")),
    _is_letter,
    _is_call,
    _has_chinese,
    compile_sought(
        r"\b(?:because|therefore|since|thus|hence|so that)\b",
        "because therefore since thus hence",
        ("so that",),
    ),
    compile_sought(r"\b(?:the|of|and|is|in|to)\b", "the of and is in to"),
)


def wanted_kinds(question: str, answer: str) -> list[float]:
    """Return what the question asks for (14 numbers) and what the reply has (14), each 0 or 1.

    A question may ask for a person, a date or an explanation; a reply may have a name, a year
    or code. The first and last 1,500 characters of each text are read.
    """
    question_ends, answer_ends = reading_of(_two_ends(question)), reading_of(_two_ends(answer))
    return [*_QUESTION_TESTS.run(question_ends), *_ANSWER_TESTS.run(answer_ends)]


def _two_ends(text: str) -> str:
    """Return the first and the last 1,500 characters of a longer text, joined."""
    return text if len(text) <= 2 * _LOOK else text[:_LOOK] + text[-_LOOK:]
