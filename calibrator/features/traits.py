"""Traits: what can be counted on a question and its answer, as some sixty numbers.

Length, form of the final answer, repetition, hedging, overlap with the question, and what can be
checked by rule (`checks`): signals that a reader of a few hundred word pieces sees badly or not at
all.
"""

from __future__ import annotations

import math
import re
import zlib

import numpy as np
from numpy.typing import NDArray

from calibrator.features.checks import checks_of

MAX_CHARACTERS = 6_000  # longer texts keep their two ends; their length counts as this
MAX_QUESTION = 40_000  # for checks, since a list of tools is read whole or not at all
LOOK = 1_500  # characters in which kinds of characters are counted

_REFUSAL = re.compile(
    r"\b(?:i (?:can(?:no|')t|am unable|'m unable|do(?:n't| not) (?:know|have))"
    r"|cannot (?:be )?(?:determine|answer|provide|find)|not (?:enough|sufficient) information"
    r"|sorry|unable to|as an ai|nev[ií]m)|无法",
    re.IGNORECASE,
)
_HEDGE = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|likely|might|may be|i think|i believe|it seems|appears"
    r"|approximately|unclear|uncertain|assum\w+|however|wait|actually|let me (?:re)?check|hmm)\b",
    re.IGNORECASE,
)
_STEP = re.compile(r"(?m)^[ \t]*(?:step\s*\d+|\d+[.)]|[-*•])\s", re.IGNORECASE)
_FINAL = re.compile(
    r"(?:answer is|answer:|answer\"\s*:|答案)\s*[\"'(*\s]*([A-Za-z0-9\-.]+)", re.IGNORECASE
)
_OPTION = re.compile(r"(?m)(?:^|\s)\(?([A-J])[).:]\s")
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")


def bounded(text: str) -> str:
    """The text, or the two ends of a long one."""
    half = MAX_CHARACTERS // 2
    return text if len(text) <= MAX_CHARACTERS else text[:half] + text[-half:]


def traits_of(question: str, answer: str) -> NDArray[np.float32]:
    """The traits (TRAITS,) of one answered question; finite for every text."""
    asked, answer = bounded(question), bounded(answer)
    words = answer.split()
    numbers = _NUMBER.findall(answer[-MAX_CHARACTERS // 2 :])
    return np.array(
        [
            *_form(answer, words),
            *_content(answer, words, numbers),
            *_relation(asked, answer, words, numbers),
            *checks_of(question[:MAX_QUESTION], answer),
        ],
        dtype=np.float32,
    )


def _form(answer: str, words: list[str]) -> list[float]:
    """Length, ends, kinds of characters, markup."""
    bare, look = answer.strip(), answer[:LOOK]
    last, seen = bare[-1:], max(1, len(look))
    return [
        math.log1p(len(answer)),
        math.log1p(len(words)),
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
        sum(c.isdigit() for c in look) / seen,
        sum(c.isupper() for c in look) / seen,
        sum(c.isalpha() for c in look) / seen,
        sum(ord(c) > 127 for c in look) / seen,
        math.log1p(answer.count("\n")),
        math.log1p(answer.count("$") + answer.count("\\(")),
        "\\boxed" in answer,
        "```" in answer,
        bare[:1] == "{",
        bare[:1] == "[",
        "(" in bare[:40] and "=" in bare[:80],
        bare.count('"') > 2,
    ]


def _content(answer: str, words: list[str], numbers: list[str]) -> list[float]:
    """Repetition, hedging, refusal, steps, numbers."""
    packed = answer[: MAX_CHARACTERS // 2].encode("utf-8", "replace")
    hedges = math.log1p(len(_HEDGE.findall(answer)))
    end = words[-30:]
    return [
        len(zlib.compress(packed, 1)) / len(packed) if len(packed) > 50 else 1.0,
        len(set(words)) / len(words) if len(words) > 3 else 1.0,
        len({word.lower() for word in end}) / max(1, len(end)),
        hedges,
        hedges / max(1.0, math.log1p(len(words))),
        bool(_REFUSAL.search(answer[:400])),
        bool(_REFUSAL.search(answer[-200:])),
        math.log1p(len(_STEP.findall(answer))),
        math.log1p(len(numbers)),
        math.log1p(numbers.count(numbers[-1])) if numbers else 0.0,
        math.log1p(len(numbers[-1])) if numbers else 0.0,
    ]


def _relation(question: str, answer: str, words: list[str], numbers: list[str]) -> list[float]:
    """The question's form, and what of it the answer repeats."""
    asked = set(question.lower().split())
    options = set(_OPTION.findall(question))
    finals = _FINAL.findall(answer)
    final = finals[-1].upper() if finals else ""
    is_letter = len(final) == 1 and "A" <= final <= "Z"
    return [
        math.log1p(len(question)),
        math.log1p(len(_NUMBER.findall(question))),
        question.count("<image"),
        '"type"' in question or "parameters" in question,
        len(options) / 10,
        bool(finals),
        is_letter,
        is_letter and final in options,
        (ord(final) - ord("A")) / 10 if is_letter else -0.1,
        bool(numbers) and numbers[-1] in question,
        sum(word.lower() in asked for word in words) / max(1, len(words)),
        min(3.0, len(words) / max(1, len(question.split()))),
    ]


TRAITS = len(traits_of("", ""))
