"""The detection of replies that say nothing, or that repeat the same sentence."""

from __future__ import annotations

from collections import Counter
from typing import Final

from calibrator.readers.evidence.acts.recognition.recognising import Act
from calibrator.readers.evidence.acts.recognition.requests import RequestWishes
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding

LOOK = 20_000  # characters of a reply that are searched for repetitions
MIN_TIMES = 4

_NOTHING: Final = pattern("damage", "nothing")
_MAY_BE_SHORT: Final = pattern("damage", "may_be_short")
_REPEATS_BY_WISH: Final = pattern("damage", "repeats_by_wish")
_PART: Final = pattern("damage", "part")


_HAS_PICTURE: Final = pattern("damage", "has_picture")
_HAS_PICTURE_OR_SIGN: Final = pattern("damage", "has_picture_or_sign")
_ASSENTS: Final = pattern("damage", "assents")
_ASKS_FOR_SIGNS: Final = pattern("damage", "asks_for_signs")


def emptiness(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply without content to a request that wants some."""
    if not reply.strip():
        return Finding(False, -3.0, "is empty")
    if len(reply) > 60 or not _NOTHING.fullmatch(reply):
        return None
    if reply.strip()[:1] in ("[", "{", "<") and len(reply.strip()) < 12:
        return None  # an empty list or object may be right
    has_sign = any(sign.isalnum() for sign in reply)
    said = reply.strip(" .!?\n").lower()
    if has_sign and (
        said in conversation.rules.lower() or f'"{said}' in conversation.request.lower()
    ):
        return None
    if request.is_small_talk and (has_sign or _HAS_PICTURE.search(reply)):
        return None
    if not has_sign and _HAS_PICTURE_OR_SIGN.search(reply):
        return None
    if _MAY_BE_SHORT.search(request.text) or not (request.is_question or not has_sign):
        return None
    if request.is_yes_or_no and _ASSENTS.match(reply):
        return None
    if not has_sign and _ASKS_FOR_SIGNS.search(request.text):
        return None
    return Finding(False, -3.0, "says nothing that answers the request")


def repetition(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply that is mostly one sentence or line, four times or more."""
    if len(reply) < 40 or act.kind in ("code", "data") or _REPEATS_BY_WISH.search(request.text):
        return None
    text = reply[:LOOK]
    words = text.lower().split()
    if len(set(words)) > 0.6 * len(words) and text.isascii():
        return None
    parts = [" ".join(part.lower().split()) for part in _PART.split(text)]
    counts = Counter(part for part in parts if len(part) > 3 and any(map(str.isalpha, part)))
    if counts:
        part, times = counts.most_common(1)[0]
        if times >= MIN_TIMES and times * len(part) > 0.5 * len(text):
            return Finding(False, -3.0, f"says the same {times} times")
    if len(words) >= 12:
        word, times = Counter(words).most_common(1)[0]
        if times > 0.6 * len(words) and times >= 10 and any(map(str.isalpha, word)):
            return Finding(False, -3.0, f"repeats one word {times} times")
        first = words[:200]
        if len(first) >= 20 and len(set(first)) < 0.25 * len(first) and "\n" not in text[:300]:
            return Finding(False, -3.0, "repeats the same few words")
    return None
