"""The detection of replies in a wrong tone: congratulations on a loss, insults, lectures."""

from __future__ import annotations

from typing import Final

from calibrator.readers.evidence.acts.recognition.recognising import Act
from calibrator.readers.evidence.acts.recognition.requests import RequestWishes
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding

OPENING = 220  # first characters of a reply that are searched for a feeling
MAX_MESSAGE = 600  # most characters of a personal message
MIN_LECTURE = 15  # words

_LOSS: Final = pattern("tone", "loss")
_JOY: Final = pattern("tone", "joy")
_CONGRATULATES: Final = pattern("tone", "congratulates")
_CONDOLES: Final = pattern("tone", "condoles")
_INSULTS: Final = pattern("tone", "insults")
_WANTS_RUDENESS: Final = pattern("tone", "wants_rudeness")
_CHATS: Final = pattern("tone", "chats")
_ASKS: Final = pattern("tone", "asks")
_SPEAKS: Final = pattern("tone", "speaks")
_WRITES: Final = pattern("addressing", "writes")


def find_wrong_feeling(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find congratulations on a loss, and condolences on good news."""
    message = conversation.request
    if len(message) > MAX_MESSAGE or _WRITES.search(message):
        return None
    is_loss, is_joy = bool(_LOSS.search(message)), bool(_JOY.search(message))
    if is_loss == is_joy:
        return None
    head = reply[:OPENING]
    congratulates, condoles = bool(_CONGRATULATES.search(head)), bool(_CONDOLES.search(head))
    if congratulates == condoles:
        return None
    if is_loss and congratulates:
        return Finding(False, -3.0, "congratulates on bad news")
    if is_joy and condoles:
        return Finding(False, -2.5, "condoles on good news")
    return None


def insult(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply that insults its reader without being asked to."""
    found = _INSULTS.search(reply[:4_000])
    if found is None or _WANTS_RUDENESS.search(f"{conversation.rules}\n{conversation.request}"):
        return None
    if found.group().lower() in conversation.request.lower() or act.kind in ("translation", "code"):
        return None
    before = reply[max(0, found.start() - 40) : found.start()]
    if before.count('"') % 2 or "“" in before:
        return None  # quoted, or an example
    return Finding(None, -2.0, f"is rude: {found.group()!r}")


def lecture(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply that lectures on a word of a user who only chats."""
    message = conversation.request.strip()
    if len(message) > 200 or "\n" in message or conversation.rules.strip():
        return None
    if _ASKS.search(message) or not _CHATS.search(message) or act.kind != "answer":
        return None
    if len(reply.split()) < MIN_LECTURE or _SPEAKS.search(reply[:2_000]):
        return None
    return Finding(None, -2.0, "lectures where somebody only talks")
