"""The check whether a reply claims a deed that a chat without tools cannot do."""

from __future__ import annotations

from typing import Final

from calibrator.readers.evidence.acts.recognition.recognising import Act
from calibrator.readers.evidence.acts.recognition.requests import RequestWishes
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding

LOOK: Final = 300  # characters of a request and of a reply

_DEMAND: Final = pattern("deeds", "demand")
_THING: Final = pattern("deeds", "thing")
_CLAIM: Final = pattern("deeds", "claim")
_NO_TOOLS: Final = pattern("deeds", "no_tools")


def find_false_claim(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find "Done! Your alarm is set" where nothing was called that could do it."""
    if act.kind in ("code", "data", "translation", "refusal") or conversation.results:
        return None
    rules = conversation.rules[:2_000]
    if rules.strip() and not _NO_TOOLS.search(rules):
        return None  # the app may act in its own way
    text = request.text[:LOOK]
    if not (_DEMAND.match(text) and _THING.search(text)):
        return None
    found = _CLAIM.search(reply[:LOOK])
    if found is None:
        return None
    return Finding(False, -2.5, f"claims a deed that no tool has done: {found.group().strip()!r}")
