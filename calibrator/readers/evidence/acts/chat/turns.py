"""The detection of replies that only repeat an earlier reply."""

from __future__ import annotations

from typing import Final

from calibrator.readers.evidence.acts.recognition.recognising import Act
from calibrator.readers.evidence.acts.recognition.requests import RequestWishes
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding

LOOK = 6_000  # characters of a turn that are compared
HEAD = 12  # first words that must be equal
SPAN = 4  # consecutive words that are compared
MOST = 0.6  # largest share of the reply that an earlier turn may have

_WANTS_REPETITION: Final = pattern("fitting", "wants_repetition")
_EDITS: Final = frozenset(
    [
        "shorter",
        "longer",
        "rewrite",
        "change",
        "edit",
        "add",
        "remove",
        "fix",
        "correct",
        "update",
        "instead",
        "more",
        "less",
        "make",
        "with",
        "without",
        "replace",
        "version",
        "translate",
        "summarize",
        "summarise",
        "only",
        "use",
        "keep",
        "include",
        "format",
        "table",
        "continue",
        "list",
        "code",
        "please",
    ]
)


def _spans(text: str) -> set[tuple[str, ...]]:
    words = [word.strip(".,;:!?\"'()*") for word in text[:LOOK].lower().split()]
    return set(zip(*(words[at:] for at in range(SPAN)), strict=False))


def find_repetition(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply that begins like an earlier one and mostly repeats it word for word."""
    if not conversation.earlier or act.kind in ("code", "data", "translation"):
        return None
    if _WANTS_REPETITION.search(request.text) or _is_edit(request.text):
        return None
    if conversation.results or conversation.rules.strip():
        return None
    own = _spans(reply)
    if len(own) < 10:
        return None
    asked = {" ".join(t.text.lower().split()) for t in conversation.earlier if t.role == "user"}
    if " ".join(conversation.request.lower().split()) in asked:
        return None
    for turn in conversation.earlier[-6:]:
        if turn.role != "assistant" or _head(turn.text) != _head(reply):
            continue
        if len(own & _spans(turn.text)) > MOST * len(own):
            return Finding(False, -2.5, "repeats an earlier reply and not what was asked last")
    return None


def _head(text: str) -> list[str]:
    return text.lower().split(maxsplit=HEAD)[:HEAD]


def _is_edit(text: str) -> bool:
    """Return whether a request may want the last reply again, with a change."""
    words = text.lower().split()
    return bool(_EDITS.intersection(words[:6]))
