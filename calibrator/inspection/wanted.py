"""What a question wants, and whether a reply is of that kind: a person, a year, a letter, JSON.

Each kind is one pattern or a few; `looking_for` passes over those that cannot be there.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from calibrator.text.looking_for import Reading, Sought, at_lines, reading_of, sought

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
_ASKS_ON = sought(rf"[.?!]\s+(?:{'|'.join(_VERBS.split())})\b[^.]*\?", _VERBS)
_OPTION = re.compile(r"(?m)^[ \t]*\(?[A-J][).:][ \t]", re.IGNORECASE)
_CHINESE = re.compile(r"[\u4e00-\u9fff]")

# both begin at a word's beginning: that is looked at apart, for a pattern that begins with a few
# signs is found faster than one that begins with a boundary
_PERSON = re.compile(r"[A-Z][a-zà-ž]+ (?:[A-Z]\.? ?)?[A-Z][a-zà-ž]+\b")
_YEAR = re.compile(r"(?:1[0-9]|20)\d\d\b")
_AMOUNT = re.compile(
    r"\d\s?(?:%|percent|km|kg|m\b|cm|mm|miles|feet|dollars|euros|years|hours|minutes)",
    re.IGNORECASE,
)
_PRICE = re.compile(r"[$€£]\s?\d")
_SAYS_YES_OR_NO = re.compile(r"\W*(?:yes|no|true|false|correct|incorrect)\b", re.IGNORECASE)
_JSON = re.compile(r"\s*(?:```json)?\s*[{\[]", re.IGNORECASE)
_LETTER_FIRST = re.compile(r"\W*\(?[A-J]\b[).:]", re.IGNORECASE)
_LETTER = sought(r"\b[A-J]\b\W*$|answer is \(?[A-J]\b", parts=("answer is",))


def _is_yes_or_no(asked: Reading) -> bool:
    if _YES_OR_NO.match(asked.text):
        return True
    return "?" in asked.text and _ASKS_ON.is_in(asked)


def _asks_sum(asked: Reading) -> bool:
    return "$" in asked.text or _SUM.is_in(asked)


def _has_chinese(reading: Reading) -> bool:
    return not reading.text.isascii() and _CHINESE.search(reading.text) is not None


def _at_word(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a pattern matches at the beginning of a word."""
    found = pattern.search(text)
    while found and found.start() and _is_word(text[found.start() - 1]):
        found = pattern.search(text, found.start() + 1)
    return found is not None


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_amount(said: Reading) -> bool:
    return said.has_digit and bool(_AMOUNT.search(said.text) or _PRICE.search(said.text))


def _is_formula(said: Reading) -> bool:
    return any(part in said.lower for part in ("\\boxed", "\\frac", "\\(", "$"))


def _is_letter(said: Reading) -> bool:
    """Whether a single letter, A to J, ends it, begins it, or is said to be the answer."""
    if said.is_odd or "answer is" in said.lower:
        is_said = _LETTER.is_in(said)
    else:
        end = len(said.text)
        while end and not _is_word(said.text[end - 1]):
            end -= 1
        is_alone = end == 1 or (end > 1 and not _is_word(said.text[end - 2]))
        is_said = is_alone and "a" <= said.text[end - 1].lower() <= "j"
    return is_said or _LETTER_FIRST.match(said.text) is not None


def _is_call(said: Reading) -> bool:
    """Whether a name stands before a bracket with a sign of equality in it."""
    text, at = said.text, said.text.find("(")
    while at >= 0:
        equals, close = text.find("=", at), text.find(")", at)
        if equals < 0:
            return False
        if at and _is_word(text[at - 1]) and not 0 <= close < equals:
            return True
        at = text.find("(", at + 1)
    return False


_SUM = sought(
    r"\b(?:calculate|compute|find the|evaluate|solve|simplify|determine|what is the value|sum)\b",
    "calculate compute find evaluate solve simplify determine value sum",
)
_Test = Callable[[Reading], bool]
_ASKED: tuple[Sought | _Test, ...] = (
    sought(r"\bwho\b|\bwhose\b|\bwhom\b|\bkdo\b", "who whose whom kdo"),
    sought(
        r"\bwhen\b|\bwhat year\b|\bwhich year\b|\bwhat date\b|\bkter[ée]m roce\b|\bkdy\b|\bdatum\b",
        "when year date roce kdy datum",
    ),
    sought(
        r"\bwhere\b|\bwhat (?:city|country|place)\b|\bwhich (?:city|country)\b|\bkde\b",
        "where city country place kde",
    ),
    sought(r"\bhow (?:many|much|long|old|far|tall|often|large)\b|\bkolik\b", "how kolik"),
    sought(r"\bwhy\b|\bexplain\b|\bdescribe\b", "why explain describe"),
    sought(r"\bwhich\b|\bkter[ýáéou]+\b", "which", ("kter",)),
    _is_yes_or_no,
    sought(
        r"\b(?:def |function|implement|program|code|class |return |stdin|print\()",
        parts=_OF_CODE,
    ),
    _asks_sum,
    sought(r"\bprove\b|\bproof\b|\bshow that\b", "prove proof show"),
    sought(r"\bname\b|\blist\b|\btitle\b|\bjm[ée]no\b", "name list title jméno jmeno"),
    sought(r"\bjson\b|\"type\"", "json", ('"type"',)),
    lambda asked: any(True for _ in at_lines(_OPTION, asked.text)),
    _has_chinese,
)
_SAID: tuple[Sought | _Test, ...] = (
    lambda said: _at_word(_PERSON, said.text),
    lambda said: said.has_digit and _at_word(_YEAR, said.text),
    sought(rf"\b(?:{'|'.join(_MONTHS.split())})\b", _MONTHS),
    lambda said: said.has_digit,
    _is_amount,
    lambda said: _SAYS_YES_OR_NO.match(said.text) is not None,
    sought(
        r"```|\bdef \w+\(|\breturn\b|#include|\bfn \w+",
        "return",
        ("```", "def ", "#include", "fn "),
    ),
    lambda said: _JSON.match(said.text) is not None,
    _is_formula,
    _is_letter,
    _is_call,
    _has_chinese,
    sought(
        r"\b(?:because|therefore|since|thus|hence|so that)\b",
        "because therefore since thus hence",
        ("so that",),
    ),
    sought(r"\b(?:the|of|and|is|in|to)\b", "the of and is in to"),
)


def wanted(question: str, answer: str) -> list[float]:
    """What is asked for, and what the reply has, one number each (0 or 1)."""
    asked, said = reading_of(_two_ends(question)), reading_of(_two_ends(answer))
    return [
        *(float(_holds(test, asked)) for test in _ASKED),
        *(float(_holds(test, said)) for test in _SAID),
    ]


def _holds(test: Sought | _Test, reading: Reading) -> bool:
    return test.is_in(reading) if isinstance(test, Sought) else test(reading)


def _two_ends(text: str) -> str:
    return text if len(text) <= 2 * _LOOK else text[:_LOOK] + text[-_LOOK:]
