"""The check whether suggested food has what somebody at the table does not eat."""

from __future__ import annotations

from typing import Final

from calibrator.readers.evidence.acts.recognition.recognising import Act
from calibrator.readers.evidence.acts.recognition.requests import RequestWishes
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding

LOOK = 3_000  # characters of a request and of a reply
BEFORE = 40  # characters before a food that may say that it is left out

_WANTS_FOOD: Final = pattern("diet", "wants")
_FREE: Final = pattern("diet", "free")
_SUBSTITUTE: Final = pattern("diet", "after")
_EXCLUDED: Final = tuple(
    (pattern("diet", kind), pattern("diet", f"{kind}_foods"), name)
    for kind, name in (
        ("dairy", "dairy"),
        ("gluten", "gluten"),
        ("nuts", "nuts"),
        ("meat", "meat"),
        ("eggs", "eggs"),
        ("vegan", "anything from animals"),
    )
)


def excluded_food(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a food in the reply that the request rules out: dairy, gluten, nuts, meat or eggs."""
    if act.kind not in ("answer", "unknown") or conversation.results:
        return None
    turns = [turn.text for turn in conversation.earlier if turn.role == "user"]
    wish = "\n".join([*turns, conversation.request])[-LOOK:]
    if not _WANTS_FOOD.search(wish):
        return None
    for rule, foods, name in _EXCLUDED:
        if not rule.search(wish):
            continue
        for found in foods.finditer(reply[:LOOK]):
            before = reply[max(0, found.start() - BEFORE) : found.start()]
            after = reply[found.end() : found.end() + BEFORE]
            if not _FREE.search(before) and not _SUBSTITUTE.match(after):
                reason = f"has {found.group()}, but the request rules out {name}"
                return Finding(None, -2.0, reason)
    return None
