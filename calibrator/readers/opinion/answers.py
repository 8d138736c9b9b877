"""Final answers of replies, so that two replies can be compared.

A final answer is the option of a multiple-choice question, a number, a formula, calls of tools, yes
or no, or the words of a short answer that the question does not have. A reply without a
recognizable one (an essay, a program) has no final answer, which is an outcome of its own. No text
is evaluated, and every step takes linear time in the characters that are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from calibrator.readers.opinion.calls_made import (
    CanonicalCall,
    calls_in_text,
    calls_of_message,
    is_like_a_call,
    offers_functions,
)
from calibrator.readers.opinion.numbers import NUMBER, number_of, plain_formula, value_of
from calibrator.scorer import ToolUse
from calibrator.text.options import final_letter, options_of

Kind = Literal["calls", "option", "number", "formula", "claim", "words", "none"]

LOOK: Final = 6_000  # characters at a reply's end that are read
QUESTION_LOOK: Final = 8_000  # characters at a question's end that are read
MAX_CALLS_TEXT: Final = 6_000  # characters of a reply that may be calls in writing
MAX_WORDS: Final = 30  # words of a reply that is an answer in words

_BARE_OPTION = re.compile(r"^\W*(?:option|choice|answer)?\W*([A-J])\W*$", re.IGNORECASE)
_LEADING_OPTION = re.compile(r"^\W{0,4}(?:(?-i:([A-J])))[).:\]](?:\s|\*|$)")
_MARKED_OPTION = re.compile(r"\](?:\s|:|\uff1a)*([A-J])\s*(?:<|$)")
_INLINE_OPTIONS = re.compile(r"(?:^|[\s;?\uff1f\u3002(])\(?([A-J])\s?[:.)\uff1a]")
_BOXED = re.compile(r"\\boxed\s*\{")
_FIELD = re.compile(
    r"[\"'](?:final_)?answer[\"']\s*:\s*(\"(?:[^\"\\]|\\.){0,400}\"|'[^'\n]{0,400}'|[^,}\n]{1,200})",
    re.IGNORECASE,
)
_STATED = re.compile(
    r"(?:####|\banswer(?:\s+(?:is|to\s[^.\n:]{1,80}\sis))?\s*(?::|\uff1a|\bis\b|=)?\**\s*:?"
    r"|\bresult\s+is\b|\btotal\s+(?:is|of)\b)[ \t*$]{0,6}([^\n]{1,160})",
    re.IGNORECASE,
)
_WANTS_NUMBER = re.compile(
    r"\bhow (?:many|much|long|old|far|tall|often|large|big|fast|heavy)\b|\bkolik\b|\bin what year\b"
    r"|\b(?:what|which) year\b|\bcalculate\b|\bcompute\b|\bwhat is the (?:value|sum|number|total)\b"
    r"|\bfind the (?:value|sum|number|total)\b|\bev(?:al|aluate)\b|=\s*\??\s*$",
    re.IGNORECASE,
)
_CLAIM = re.compile(r"\b(yes|no|true|false)\b", re.IGNORECASE)
_ASKS_CLAIM = re.compile(
    r"(?:^|[.?!\n]\s*)(?:is|are|was|were|do|does|did|can|could|would|will|has|have|should)\b[^?\n]*\?"
    r"|\byes or no\b|\btrue or false\b|\blogically sound\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+")
_FREQUENT = (
    "a an the is are was were be been it its of in on at to for from by with and or as that this"
    " these those there he she they his her their i you we not do does did has have had will would"
    " can could answer question je se na v z s o byl byla bylo"
)
_COMMON: Final = frozenset(_FREQUENT.split())


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """The final answer of a reply, for example `FinalAnswer("option", "B")`.

    `value` is canonical: two replies with the same kind and value agree. For `words` it is the
    sorted words that the question does not have, for `claim` yes, no, true or false. `number`
    is the value of a number, or None. `words` are the stems of the reply's words that the
    question does not have; those of calls are their parts. Calls with an empty value mean that
    the reply calls none of the functions that its question offers.
    """

    kind: Kind
    value: str = ""
    number: float | None = None
    words: frozenset[str] = frozenset()


NOTHING: Final = FinalAnswer("none")


def final_answer(question: str, reply: str, tool_use: ToolUse | None = None) -> FinalAnswer:
    """Return the final answer of a reply to this question; `NOTHING` for an unreadable call.

    Tried in this order: calls (in the message of `tool_use` or in writing), the option, a
    stated answer (`The answer is 5`), yes or no, the last number, and a short reply's words. A
    long reply without any has the kind `none`, with its words.
    """
    if tool_use is not None and tool_use.has_calls:
        return _of_calls(calls_of_message(tool_use.message))
    text, question_tail = reply[-LOOK:].strip(), question[-QUESTION_LOOK:]
    if len(reply) <= MAX_CALLS_TEXT and (calls := calls_in_text(text)) is not None:
        return _of_calls(calls)
    if offers_functions(question_tail):
        return NOTHING if is_like_a_call(text) else _of_calls([])
    words = new_words(question_tail, text)
    if (letter := _option(question_tail, text)) is not None:
        return FinalAnswer("option", letter, words=words)
    stated = _stated_answer(text)
    if stated is not None and (found := _of_statement(question_tail, stated, words)) is not None:
        return found
    if _ASKS_CLAIM.search(question_tail[-600:]) and (claim := _claim(text)) is not None:
        return FinalAnswer("claim", claim, words=words)
    if _WANTS_NUMBER.search(question_tail[-600:]) and (value := _last_number(text)) is not None:
        return FinalAnswer("number", f"{value:.10g}", value, words)
    if words and len(_WORD.findall(text)) <= MAX_WORDS:
        return FinalAnswer("words", " ".join(sorted(words)), _only_number(text), words)
    return FinalAnswer("none", words=words)


def _of_calls(calls: Sequence[CanonicalCall]) -> FinalAnswer:
    """Return the final answer that consists of calls; its value is empty for []."""
    parts = frozenset(part for call in calls for part in call.parts())
    return FinalAnswer("calls", "; ".join(map(str, calls)), words=parts)


def new_words(question: str, reply: str) -> frozenset[str]:
    """Return the stems of a reply's words that are neither in its question nor common words."""
    question_stems = {_stem(word) for word in _WORD.findall(question.lower())}
    reply_stems = {_stem(word) for word in _WORD.findall(reply.lower()) if word not in _COMMON}
    return frozenset(reply_stems - question_stems)


def _stem(word: str) -> str:
    """Return the first six letters of a word; a number is returned whole."""
    return word if word[0].isdigit() else word[:6]


# The functions below read options.


def _option(question: str, text: str) -> str | None:
    """Return the letter (A to J) of the option that a reply chooses, or None.

    None if the question offers fewer than two options or the reply chooses none of them. Forms
    are `The answer is B`, `(B)`, `B. Paris`, or the option's text in the last line.
    """
    offered = set(options_of(question)) or set(_INLINE_OPTIONS.findall(question))
    if len(offered) < 2:
        return None
    found = final_letter(text)
    candidates = [found[1] if found else None]
    short = text if len(text) <= 400 else ""
    for pattern in (_BARE_OPTION, _LEADING_OPTION, _MARKED_OPTION):
        match = pattern.search(short)
        candidates.append(match[1] if match else None)
    for each in candidates:
        if each is not None and each.upper() in offered:
            return each.upper()
    return _option_by_text(options_of(question), text)


def _option_by_text(options: Mapping[str, str], text: str) -> str | None:
    """Return the letter of the option whose text is in the reply's last line, or None.

    Of several such options the longest counts, if its text has those of all others in it;
    otherwise None.
    """
    last = _flat_words(text.rsplit("\n", 1)[-1])
    same = [
        letter
        for letter, each in options.items()
        if _flat_words(each) and _flat_words(each) in last
    ]
    longest = max(same, key=lambda letter: len(_flat_words(options[letter])), default=None)
    others = [each for each in same if each != longest]
    if longest is None or any(
        _flat_words(options[each]) not in _flat_words(options[longest]) for each in others
    ):
        return None
    return longest


def _flat_words(text: str) -> str:
    """Return the words of a text in lower case, joined by single blanks."""
    return " ".join(_WORD.findall(text.lower()))


# The functions below read statements: a box, a field of JSON, "The answer is ..".


def _stated_answer(text: str) -> str | None:
    r"""Return the answer that the reply states, or None.

    It may be in a box (`\boxed{5}`), a field of JSON (`"answer": 5`), or a sentence (`The
    answer is 5`). The first of these forms that occurs counts, and of several the last one.
    """
    box = None
    for box in _BOXED.finditer(text):  # noqa: B007  # the last one is used
        pass
    if box is not None:
        return _text_in_braces(text, box.end())
    fields = _FIELD.findall(text)
    if fields:
        return str(_unquote(fields[-1]))
    statement = None
    for statement in _STATED.finditer(text):  # noqa: B007  # the last one is used
        pass
    return None if statement is None else statement[1].strip()


def _text_in_braces(text: str, start: int) -> str:
    """Return the text from `start` to its closing brace, at most 400 characters.

    Inner braces are matched; without a closing one the 400 characters are returned.
    """
    depth = 1
    for at in range(start, min(len(text), start + 400)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[start:at]
    return text[start : start + 400]


def _unquote(text: str) -> str:
    """Return a text without quotes: the string that it writes in JSON, or the stripped text."""
    try:
        found = json.loads(text)
    except ValueError:
        return text.strip().strip("'\"")
    return found if isinstance(found, str) else text.strip()


def _of_statement(question: str, stated: str, words: frozenset[str]) -> FinalAnswer | None:
    """Return a stated answer as a number, a claim, a formula or words; None if it is empty.

    `stated` is that answer; `words` are the new words of the whole reply, which the result
    gets. None also for a statement of more than 30 words.
    """
    plain = plain_formula(stated)
    if (value := number_of(plain)) is not None:
        return FinalAnswer("number", f"{value:.10g}", value, words)
    claim = _BARE_CLAIM.match(plain)
    if claim is not None:
        return FinalAnswer("claim", claim[1].lower(), words=words)
    numbers = NUMBER.findall(plain)
    own = new_words(question, stated)
    if not own or _CODE.search(question):
        return FinalAnswer("formula", _literal(stated), words=words) if plain else None
    if len(numbers) == 1 and (len(own) <= 3 or _WANTS_NUMBER.search(question[-600:])):
        value = value_of(numbers[0])
        return FinalAnswer("number", f"{value:.10g}", value, words)
    if any(sign in plain for sign in "\\^_=[](){}") or numbers:
        return FinalAnswer("formula", plain, words=words)
    if own and len(_WORD.findall(stated)) <= MAX_WORDS:
        return FinalAnswer("words", " ".join(sorted(own)), None, own)
    return None


_CODE = re.compile(r"\bdef \w+\(|\bassert \w|\breturn\b.*\n")


def _literal(text: str) -> str:
    """Return a value as code writes it, in a form that does not depend on quotes and spaces.

    `["a", 1]` becomes `['a',1]`.
    """
    plain = text.strip().strip("`.,;* ").replace("\\n", "\n").replace('"', "'")
    return re.sub(r"\s*([,:\[\]{}()=+-])\s*", r"\1", plain).strip("'")


_BARE_CLAIM = re.compile(r"^\W*(yes|no|true|false)\b", re.IGNORECASE)


def _last_number(text: str) -> float | None:
    """Return the last number in the last 800 characters, or None."""
    found = NUMBER.findall(text[-800:])
    return value_of(found[-1]) if found else None


def _only_number(text: str) -> float | None:
    """Return the number of a text that has exactly one, else None."""
    found = NUMBER.findall(text)
    return value_of(found[0]) if len(found) == 1 else None


def _claim(text: str) -> str | None:
    """Return `yes`, `no`, `true` or `false` from a reply's beginning, else the last one at its end.

    None if the first word and the last 300 characters have none.
    """
    first = _BARE_CLAIM.match(text)
    if first is not None:
        return first[1].lower()
    found = _CLAIM.findall(text[-300:])
    return found[-1].lower() if found else None
