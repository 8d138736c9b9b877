"""The comparison of a plan with the times of its request, and of an age with a birthday."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.acts.recognition.recognising import Act
from calibrator.readers.evidence.acts.recognition.requests import RequestWishes
from calibrator.readers.evidence.computed.basics import numbers
from calibrator.readers.evidence.computed.calendar import reading
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding
from calibrator.text.guarded import compile_guarded

LOOK: Final = 3_000  # characters of a turn and of a reply
_BOUND: Final = compile_guarded(
    r"\b(?P<n>[^\W\d_]{3,20}?)s? (?:only )?(?P<k>closes?|shuts?|(?:is |are )?open (?:until|till)"
    r"|schließt|macht zu|cierra|ferme|opens?|öffnet|abre|ouvre)(?: at| um| a las?| à)?\s*$",
    re.IGNORECASE,
)
_OPENS: Final = ("opens", "open", "öffnet", "abre", "ouvre")
_SPAN: Final = re.compile(r"\s{0,2}(?:[-\u2013\u2014]|to|until|bis|a|à)\s{0,2}")
_HAS_BOUND: Final = compile_guarded(
    r"\b(?:clos|shut|open)(?:s|es|e)?\b|\bschließt\b|\böffnet\b|\bcierra\b|\babre\b|\bferme\b|\bouvre\b",
    re.IGNORECASE,
)
_BIRTHDAY: Final = compile_guarded(
    r"\b(?P<n>[A-Z][a-z]+)(?:['\u2019]s)? (?:\w+ )?birthday\b|\bbirthday\b[^.?!\n]{0,30}\b"
    r"(?:next|tomorrow|coming|soon|on|this|in)\b"
)
_IS_OLD: Final = re.compile(
    r"\b(?P<n>[A-Z][a-z]+)(?: is| \(|, )\s?(?P<a>\d{1,3})\b(?! ?(?:cm|kg|%|:|\.\d))"
)
_TURNS: Final = re.compile(
    r"\b(?P<n>[A-Z][a-z]+)(?: is|['\u2019]s)? turn(?:s|ing) (?P<a>\d{1,3})\b"
)


def opening_hours(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a step of a plan after the place has closed, or before it opens."""
    wish = conversation.request[:LOOK]
    if act.kind in ("code", "data", "clarification") or not _HAS_BOUND.search(wish):
        return None
    bounds: dict[str, tuple[str, int, bool]] = {}
    for time in reading.times_in(wish):
        found = _BOUND.search(wish[max(0, time.start - 60) : time.start])
        if found:
            is_opening = found["k"].casefold() in _OPENS
            bounds[found["n"].casefold()] = (found["n"], time.minutes, is_opening)
    for line in reply[:LOOK].splitlines() if bounds else ():
        times = reading.times_in(line)
        is_span = len(times) == 2 and _SPAN.fullmatch(line[times[0].end : times[1].start])
        if not is_span:
            continue
        folded = line[times[1].end :].casefold()
        for key, (name, minutes, is_opening) in bounds.items():
            if not re.match(rf"\W*(?:the |at the )?{re.escape(key)}\b", folded):
                continue
            if is_opening and times[0].minutes < minutes:
                return Finding(None, -2.5, f"has the {name} before it opens")
            if not is_opening and minutes < times[1].minutes:
                return Finding(None, -2.5, f"has the {name} after it closes")
    return None


def next_age(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find the old age of somebody who has a birthday soon."""
    turns = [turn.text for turn in conversation.earlier if turn.role == "user"]
    said = "\n".join([*turns, conversation.request])[-LOOK:]
    if " turn" not in reply or not _BIRTHDAY.search(said):
        return None
    ages = {found["n"]: int(found["a"]) for found in _IS_OLD.finditer(said)}
    for found in _TURNS.finditer(numbers.digits_for_words(reply[:LOOK])):
        age = ages.get(found["n"])
        if age is not None and int(found["a"]) != age + 1:
            return Finding(None, -2.5, f"{found['n']} is {age} and turns {age + 1}")
    return None
