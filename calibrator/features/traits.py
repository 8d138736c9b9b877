"""Count about sixty traits of a question and its answer.

They are length, form of the final answer, repetition, hedging, overlap with the question, and
checks by rule (`checks`): signals that a reader of a few hundred word pieces sees badly or not at
all.
"""

from __future__ import annotations

import math
import re
import zlib
from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrator.features.checks import checks_of
from calibrator.text.looking_for import (
    SPACES,
    CharacterShape,
    PreparedText,
    at_lines,
    compile_sought,
    reading_of,
)

MAX_CHARACTERS = 6_000  # longer texts keep their two ends; their length counts as this
MAX_QUESTION = 40_000  # characters for checks, which can read only whole lists of tools
LOOK = 1_500  # characters of an answer whose kinds are counted
END_WORDS = 30  # at an answer's end, whose repetition shows that it went round in circles

_REFUSES = (
    "unable",
    "cannot",
    "i can't",
    "i do",
    "information",
    "sorry",
    "as an ai",
    "nev",
    "无法",
)
_REFUSAL = compile_sought(
    r"\b(?:i (?:can(?:no|')t|am unable|'m unable|do(?:n't| not) (?:know|have))"
    r"|cannot (?:be )?(?:determine|answer|provide|find)|not (?:enough|sufficient) information"
    r"|sorry|unable to|as an ai|nev[ií]m)|无法",
    parts=_REFUSES,
)
_ONE_WORD = (
    "maybe perhaps possibly probably likely might appears approximately unclear uncertain however"
    " wait actually hmm"
)
_HEDGE_WORDS = frozenset(_ONE_WORD.split())
_HEDGE_STARTS = ("may be", "i think", "i believe", "it seems", "assum", "let me check", "let me re")
_HEDGE = compile_sought(
    rf"\b(?:{'|'.join(_HEDGE_WORDS)}|may be|i think|i believe|it seems|assum\w+"
    r"|let me (?:re)?check)\b",
    _ONE_WORD,
    _HEDGE_STARTS,
)
_STEP = re.compile(r"(?m)^[ \t]*(?:step\s*\d+|\d+[.)]|[-*•])\s", re.IGNORECASE)
_FINAL = compile_sought(
    r"(?:answer is|answer:|answer\"\s*:|答案)\s*[\"'(*\s]*([A-Za-z0-9\-.]+)",
    parts=("answer is", "answer:", 'answer"', "答案"),
)
_OPTION = re.compile(r"[A-J][).:]\s")
_MAY_NAME_OPTION = CharacterShape({"A": "ABCDEFGHIJ", ".": ").:", " ": SPACES}, "A. ")
# digits as 0, capitals as A, other letters as a, so that three counts suffice for ASCII
_KINDS = bytes(
    ord("0" if chr(code).isdigit() else "A" if chr(code).isupper() else "a")
    if code < 128 and chr(code).isalnum()
    else 32
    for code in range(256)
)


def bound_text(text: str) -> str:
    """Return a text, or the first and last 3,000 characters of one over `MAX_CHARACTERS`."""
    half = MAX_CHARACTERS // 2
    return text if len(text) <= MAX_CHARACTERS else text[:half] + text[-half:]


def traits_of(question: str, answer: str) -> NDArray[np.float32]:
    """Return the traits of one answered question, (TRAITS,) in fp32, finite for every text.

    They are those of `_form`, `_content`, `_relation` and `checks_of`, in this order.
    """
    question_text, answer_text = reading_of(bound_text(question)), reading_of(bound_text(answer))
    words = word_counts(question_text, answer_text)
    numbers = reading_of(answer_text.text[-MAX_CHARACTERS // 2 :]).numbers
    found = array(
        "f", _form(answer_text.text, words.in_answer)
    )  # faster than an array made by numpy
    found.extend(_content(answer_text, words, numbers))
    found.extend(_relation(question_text, answer_text, words, numbers))
    found.extend(checks_of(question[:MAX_QUESTION], answer_text.text))
    return np.frombuffer(found, dtype=np.float32)


class WordCounts(NamedTuple):
    """Counts of words, separated by white space, of a question and its answer, in lower case."""

    in_question: int
    in_answer: int
    repeated: int  # words of the answer that are in the question
    distinct: int  # words of the answer, case-sensitive
    at_end: int  # distinct words among the answer's last `END_WORDS`


def word_counts(question: PreparedText, answer: PreparedText) -> WordCounts:
    """Return the counts of words in a question and its answer; see `WordCounts`."""
    if question.kernel is not None and (kernel := answer.kernel) is not None:
        return WordCounts(*kernel.word_counts(question.lower, answer.lower, answer.text, END_WORDS))
    question_words, answer_words = question.lower.split(), answer.lower.split()
    return WordCounts(
        len(question_words),
        len(answer_words),
        sum(map(set(question_words).__contains__, answer_words)),
        len(set(answer.text.split())),
        len(set(answer_words[-END_WORDS:])),
    )


def _form(answer: str, words: int) -> list[float]:
    """Return 24 traits of length, ends, kinds of characters, and markup of an answer.

    `words` is its number of words.
    """
    bare, look = answer.strip(), answer[:LOOK]
    last, seen = bare[-1:], max(1, len(look))
    digits, capitals, letters, beyond = _kinds(look)
    return [
        math.log1p(len(answer)),
        math.log1p(words),
        math.log1p(len(answer)) ** 2 / 10,
        len(bare) == 0,
        len(bare) == 1,
        len(bare) <= 3,
        len(answer) >= MAX_CHARACTERS - 10,
        last != "" and last in ".!?",
        last != "" and last in "}]",
        last != "" and last in "`)$%*",
        last.isdigit(),
        last.isalpha(),
        digits / seen,
        capitals / seen,
        letters / seen,
        beyond / seen,
        math.log1p(answer.count("\n")),
        math.log1p(answer.count("$") + answer.count("\\(")),
        "\\boxed" in answer,
        "```" in answer,
        bare[:1] == "{",
        bare[:1] == "[",
        "(" in bare[:40] and "=" in bare[:80],
        bare.count('"') > 2,
    ]


def _kinds(text: str) -> tuple[int, int, int, int]:
    """Return the counts of digits, capitals, all letters, and characters beyond ASCII."""
    plain = text.encode("ascii", "ignore")
    kinds = plain.translate(_KINDS)
    digits, capitals = kinds.count(b"0"), kinds.count(b"A")
    letters, beyond = capitals + kinds.count(b"a"), len(text) - len(plain)
    if beyond:
        others = [character for character in text if character > "\x7f"]
        digits += sum(character.isdigit() for character in others)
        capitals += sum(character.isupper() for character in others)
        letters += sum(character.isalpha() for character in others)
    return digits, capitals, letters, beyond


def _content(answer_text: PreparedText, words: WordCounts, numbers: list[str]) -> list[float]:
    """Return 11 traits of an answer: repetition, hedging, refusal, steps, and numbers.

    `numbers` are the numbers at its end, as written.
    """
    answer = answer_text.text
    packed = answer[: MAX_CHARACTERS // 2].encode("utf-8", "replace")
    hedges = math.log1p(_count_hedges(answer_text))
    may_refuse = _REFUSAL.may_be_in(answer_text)
    return [
        len(zlib.compress(packed, 1)) / len(packed) if len(packed) > 50 else 1.0,
        words.distinct / words.in_answer if words.in_answer > 3 else 1.0,
        words.at_end / min(max(1, words.in_answer), END_WORDS),
        hedges,
        hedges / max(1.0, math.log1p(words.in_answer)),
        may_refuse and bool(_REFUSAL.pattern.search(answer[:400])),
        may_refuse and bool(_REFUSAL.pattern.search(answer[-200:])),
        math.log1p(sum(1 for _ in at_lines(_STEP, answer))),
        math.log1p(len(numbers)),
        math.log1p(numbers.count(numbers[-1])) if numbers else 0.0,
        math.log1p(len(numbers[-1])) if numbers else 0.0,
    ]


def _count_hedges(answer: PreparedText) -> int:
    """Return the number of hedging words and phrases, such as `maybe` and `I think`."""
    if not _HEDGE.may_be_in(answer):
        return 0
    if answer.is_odd or any(start in answer.lower for start in _HEDGE_STARTS):
        return len(_HEDGE.pattern.findall(answer.text))
    return sum(map(_HEDGE_WORDS.__contains__, answer.in_order))


def _options(question: str) -> set[str]:
    """Return the letters A to J that name options in a question, such as `A)` and `(B.`.

    They stand at a line's beginning or after white space, before `).:` and white space. White space
    between two options belongs to the first.
    """
    if not _MAY_NAME_OPTION.may_be_in(question):
        return set()
    found, end = set(), 0
    for letter in _OPTION.finditer(question):
        at = letter.start()
        at -= at > 0 and question[at - 1] == "("
        is_apart = at > end and question[at - 1].isspace()
        if is_apart or not at or question[at - 1] == "\n":
            found.add(letter[0][0])
            end = letter.end()
    return found


def _relation(
    question_text: PreparedText, answer_text: PreparedText, words: WordCounts, numbers: list[str]
) -> list[float]:
    """Return 12 traits of the question's form, the answer's final letter, and what both share.

    These are lengths, options, whether the last letter is one of them, and repeated words and
    numbers. `words` counts those of question and answer; `numbers` are those at the answer's end.
    """
    question = question_text.text
    options = _options(question)
    finals = _FINAL.all_in(answer_text)
    final = finals[-1].upper() if finals else ""
    is_letter = len(final) == 1 and "A" <= final <= "Z"
    return [
        math.log1p(len(question)),
        math.log1p(len(question_text.numbers)),
        question.count("<image"),
        '"type"' in question or "parameters" in question,
        len(options) / 10,
        bool(finals),
        is_letter,
        is_letter and final in options,
        (ord(final) - ord("A")) / 10 if is_letter else -0.1,
        bool(numbers) and numbers[-1] in question,
        words.repeated / max(1, words.in_answer),
        min(3.0, words.in_answer / max(1, words.in_question)),
    ]


TRAITS = len(traits_of("", ""))
LENGTH = 0  # the place of the answer's length, log(1 + characters)
