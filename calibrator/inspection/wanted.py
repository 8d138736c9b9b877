"""What a question wants, and whether a reply is of that kind: a person, a year, a letter, JSON."""

from __future__ import annotations

import re

_LOOK = 1_500

_ASKS = (
    r"\bwho\b|\bwhose\b|\bwhom\b|\bkdo\b",
    r"\bwhen\b|\bwhat year\b|\bwhich year\b|\bwhat date\b|\bkter[ée]m roce\b|\bkdy\b|\bdatum\b",
    r"\bwhere\b|\bwhat (?:city|country|place)\b|\bwhich (?:city|country)\b|\bkde\b",
    r"\bhow (?:many|much|long|old|far|tall|often|large)\b|\bkolik\b",
    r"\bwhy\b|\bexplain\b|\bdescribe\b",
    r"\bwhich\b|\bkter[ýáéou]+\b",
    r"^\s*(?:is|are|was|were|do|does|did|can|could|would|will|has|have|should)\b"
    r"|[.?!]\s+(?:Is|Are|Was|Were|Do|Does|Did|Can|Could|Would|Will|Has|Have)\b[^.]*\?",
    r"\b(?:def |function|implement|program|code|class |return |stdin|print\()",
    r"\b(?:calculate|compute|find the|evaluate|solve|simplify|determine|what is the value|sum)\b"
    r"|\$",
    r"\bprove\b|\bproof\b|\bshow that\b",
    r"\bname\b|\blist\b|\btitle\b|\bjm[ée]no\b",
    r"\bjson\b|\"type\"",
    r"(?m)^[ \t]*\(?[A-J][).:][ \t]",
    r"[\u4e00-\u9fff]",
)  # fmt: skip
_IS = (
    r"\b[A-Z][a-zà-ž]+ (?:[A-Z]\.? ?)?[A-Z][a-zà-ž]+\b",
    r"\b(?:1[0-9]|20)\d\d\b",
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|ledna|února|března|dubna|května|června|července|srpna|září|října|listopadu|prosince)\b",
    r"\d",
    r"\d\s?(?:%|percent|km|kg|m\b|cm|mm|miles|feet|dollars|euros|years|hours|minutes)|[$€£]\s?\d",
    r"^\W*(?:yes|no|true|false|correct|incorrect)\b",
    r"```|\bdef \w+\(|\breturn\b|#include|\bfn \w+",
    r"^\s*(?:```json)?\s*[{\[]",
    r"\\boxed|\\frac|\\\(|\$",
    r"\b[A-J]\b\W*$|^\W*\(?[A-J]\b[).:]|answer is \(?[A-J]\b",
    r"\b\w+\([^)]*=",
    r"[\u4e00-\u9fff]",
    r"\b(?:because|therefore|since|thus|hence|so that)\b",
    r"\b(?:the|of|and|is|in|to)\b",
)
_ASKED = [re.compile(pattern, re.IGNORECASE) for pattern in _ASKS]
_SAID = [re.compile(_IS[0]), *(re.compile(pattern, re.IGNORECASE) for pattern in _IS[1:])]


def wanted(question: str, answer: str) -> list[float]:
    """What is asked for, and what the reply has, one number each (0 or 1)."""
    asked = question if len(question) <= 2 * _LOOK else question[:_LOOK] + question[-_LOOK:]
    said = answer if len(answer) <= 2 * _LOOK else answer[:_LOOK] + answer[-_LOOK:]
    return [
        *(float(bool(pattern.search(asked))) for pattern in _ASKED),
        *(float(bool(pattern.search(said))) for pattern in _SAID),
    ]
