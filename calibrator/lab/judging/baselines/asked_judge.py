"""A judge: a model estimates P(correct) of a reply without a right answer (paper I06, I07, F10)."""

from __future__ import annotations

import re
from typing import Final

MAX_QUESTION, MAX_ANSWER = 1_500, 800  # characters, as for the calibrator
PROMPT: Final = (
    "Estimate how likely it is that the following response answers the question correctly.\n\n"
    "Question: {question}\n\nResponse: {answer}\n\n"
    "Reply with only a number between 0.0, certainly incorrect, and 1.0, certainly correct."
)
LIKELY, UNLIKELY, UNKNOWN = 0.8, 0.2, 0.5  # P(correct) where a judge gives words and no number
_DECIMAL = re.compile(r"(?<![\d.])(?:0?\.\d+|0(?:\.0*)?|1(?:\.0*)?)(?![\d.]*\d|%)")
_NO = re.compile(r"(?i)\b(no|incorrect|not correct)\b")
_YES = re.compile(r"(?i)\b(yes|correct)\b")


def judge_prompt(question: str, answer: str) -> str:
    """Return the text that asks a model how likely it is that `answer` answers `question`.

    Question and answer are cut to `MAX_QUESTION` and `MAX_ANSWER` characters, as for the
    calibrator.
    """
    return PROMPT.format(question=question[:MAX_QUESTION], answer=answer[:MAX_ANSWER])


def judged_in(text: str) -> float:
    """Return the P(correct) that a judge's words state.

    This is a number alone, else the first decimal from 0 to 1 in the text, else 0.2 for `no` or
    `incorrect`, else 0.8 for `yes` or `correct`, else 0.5, which is about the base rate (I18).
    `incorrect` holds `correct`, so the negative words are looked for first.
    """
    try:
        number = float(text.strip())
    except ValueError:
        number = -1.0
    if 0 <= number <= 1:
        return number
    if found := _DECIMAL.search(text):
        return float(found[0])
    if _NO.search(text):
        return UNLIKELY
    return LIKELY if _YES.search(text) else UNKNOWN
