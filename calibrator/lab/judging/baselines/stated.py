"""Stated confidences: the prompt for one, the reader of one, and their removal from a reply (I01).

A calibrator that reads `Confidence: 90%` in a reply reads the number of a rival baseline.
"""

from __future__ import annotations

import re
from typing import Final

PROMPT: Final = (
    "You answered the following question:\nQuestion: {question}\nYour answer: {answer}\n"
    "How confident are you that your answer is correct? Respond with only a number between 0 and "
    "100, where 0 means certainly wrong and 100 means certainly correct.\nConfidence:"
)
MAX_QUESTION, MAX_ANSWER = 1_500, 800  # characters, as for the calibrator (F10)

_NUMBER = re.compile(r"(?<![\w.])(\d{1,3}(?:[.,]\d+)?)\s*(%|percent\b|/\s*100\b|/\s*10\b)?")
_LEVEL = r"(?:\*\*|__|[\"'])?"
_STATED = re.compile(
    rf"""(?imx)
    ^[\s>*_\-#]* {_LEVEL} (?:my\s+|overall\s+|estimated\s+|stated\s+)?
    (?:confidence(?:\s+(?:level|score|in\s+(?:my|this|the)\s+answer))?|probability(?:\s+correct)?)
    {_LEVEL} \s* (?:[:=]|is|\()\s* {_LEVEL} \s*
    (?:about\s+|around\s+|roughly\s+|~\s*)?
    (?:\d{{1,3}}(?:[.,]\d+)?\s*(?:%|percent|/\s*100?)?|very\s+high|high|medium|moderate|low)
    {_LEVEL} \)? [\s.]* {_LEVEL} \s*$"""
)
_MEMBER = re.compile(
    r"(?i),?\s*\"(?:confidence(?:_?(?:score|level))?)\"\s*:\s*\"?\d+(?:\.\d+)?%?\"?"
)


def stated_prompt(question: str, answer: str) -> str:
    """Return the text that asks a model from 0 to 100 how sure it is of its `answer`.

    Question and answer are cut to `MAX_QUESTION` and `MAX_ANSWER` characters, as for a calibrator.
    """
    return PROMPT.format(question=question[:MAX_QUESTION], answer=answer[:MAX_ANSWER])


def stated_in(text: str) -> float | None:
    """Return the confidence that a reply to the prompt states, from 0 to 1, or None without one.

    The last number in the text counts. `90`, `90 %` and `90/100` are 0.9, and `9/10` too. A number
    alone is out of 100, even 1, as the prompt says, but one with a decimal point that is at most 1,
    such as `0.9`, is a probability. A result above 1 is None.
    """
    found = _NUMBER.findall(text)
    if not found:
        return None
    number, unit = found[-1]
    value = float(number.replace(",", "."))
    if unit.replace(" ", "") == "/10":
        share = value / 10
    elif not unit and value <= 1 and ("." in number or "," in number):
        share = value
    else:
        share = value / 100
    return share if share <= 1 else None


def without_stated(answer: str) -> str:
    """Return the answer without lines or JSON members that state a confidence.

    Those are such as a whole line `Confidence: 90%`, or `"confidence": 0.9` in an object. An answer
    that states none is returned unchanged. From others, repeated blank lines and outer whitespace
    are removed too.
    """
    kept = _STATED.sub("", _MEMBER.sub("", answer))
    if kept == answer:
        return answer
    return re.sub(r"\n{3,}", "\n\n", kept).strip()
