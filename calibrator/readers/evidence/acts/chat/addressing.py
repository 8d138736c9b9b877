"""The check whether a requested text addresses the right person in the right way."""

from __future__ import annotations

from typing import Final

from calibrator.readers.evidence.acts.chat.editing import is_editing
from calibrator.readers.evidence.acts.recognition.recognising import Act
from calibrator.readers.evidence.acts.recognition.requests import RequestWishes
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding

LOOK = 2_000  # characters of a reply

_RULES: Final = tuple(
    (pattern("addressing", wish), pattern("addressing", sign), reason)
    for wish, sign, reason in (
        ("formal_de", "du", "says du where Sie was wanted"),
        ("informal_de", "sie", "says Sie where du was wanted"),
        ("formal_es", "tu", "says tú where usted was wanted"),
        ("formal_fr", "tu_fr", "says tu where vous was wanted"),
    )
)
_MIXED: Final = tuple(
    (pattern("addressing", opening), pattern("addressing", sign), reason)
    for opening, sign, reason in (
        ("opens_de", "du", "says du in a text that begins formally"),
        ("opens_es", "tu", "says tú in a text that begins formally"),
        ("opens_fr", "tu_fr", "says tu in a text that begins formally"),
    )
)
_FORMAL: Final = pattern("addressing", "formal_en")
_NOT_FORMAL: Final = pattern("addressing", "not_formal")
_CASUAL: Final = pattern("addressing", "casual")
_WRITES: Final = pattern("addressing", "writes")
_GREETING: Final = pattern("addressing", "greeting")
_NOBODY: Final = frozenset(
    [
        "there",
        "all",
        "everyone",
        "everybody",
        "team",
        "sir",
        "madam",
        "friend",
        "friends",
        "world",
        "again",
        "you",
        "folks",
        "guys",
        "zusammen",
        "customer",
        "colleague",
        "colleagues",
        "neighbour",
        "neighbor",
        "hiring",
        "manager",
        "recipient",
        "madame",
        "monsieur",
        "mademoiselle",
        "madam",
        "sir",
        "sirs",
        "herr",
        "frau",
        "damen",
        "herren",
        "señor",
        "señora",
        "name",
        "support",
    ]
)


def register(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply that is familiar although it had to be formal, or the other way round.

    Also find a letter that begins formally and then addresses its reader as a friend.
    """
    if act.kind in ("code", "data", "refusal"):
        return None
    rules = conversation.rules[:LOOK]
    wish = f"{rules}\n{request.text}" if rules else request.text
    head = reply[:LOOK]
    for rule, sign, reason in _RULES:
        if rule.search(wish) and sign.search(head):
            return Finding(None, -2.0, reason)
    for opening, sign, reason in _MIXED:
        if opening.search(head) and sign.search(head) and "dialog" not in wish.lower():
            return Finding(None, -2.0, reason)
    formal = _FORMAL.search(request.text)
    is_text = _WRITES.search(request.text) or is_editing(conversation)
    if formal and is_text and not _NOT_FORMAL.search(request.text):
        casual = _CASUAL.search(head)
        if casual:
            return Finding(
                None, -1.5, f"is casual where a formal text was wanted: {casual.group()!r}"
            )
    return None


def addressee(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a letter to another person than the request names."""
    if not _WRITES.search(request.text) or act.kind in ("code", "data", "translation"):
        return None
    found = _GREETING.match((act.body or reply)[:200])
    if found is None:
        return None
    greeted = found["n"].split()[-1].strip(".'\u2019-")
    known = f"{conversation.rules}\n{conversation.request}"
    earlier = "\n".join(turn.text for turn in conversation.earlier)
    if greeted.lower() in f"{known}\n{earlier}".lower() or greeted.lower() in _NOBODY:
        return None
    names = [word for word in request.text.split()[1:] if word[:1].isupper() and len(word) > 2]
    if not names or len(greeted) < 3:
        return None
    return Finding(None, -1.5, f"is addressed to {greeted}, whom nobody named")
