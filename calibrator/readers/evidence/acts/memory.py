"""The comparison of a reply with earlier turns: the user's name, dates and amounts, repetitions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from calibrator.readers.evidence.acts.recognition.recognising import Act, RequestWishes
from calibrator.readers.evidence.acts.recognition.topics import content_words
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding

COMPARED = 6_000  # characters of a turn that are compared
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
LOOK = 4_000  # characters of a turn
MAX_SAID = 600  # characters of a turn that is no document
_OWN_NAME: Final = pattern("memory", "own_name")
_ADDRESSED: Final = pattern("memory", "addressed")
_REMINDS: Final = pattern("memory", "reminds")
_KINDS: Final = tuple(pattern("memory", kind) for kind in ("month", "day", "amount"))
_SENTENCE: Final = re.compile(r"[^.!?\n]+(?:[.!?](?=\d)[^.!?\n]*)*")


def find_wrong_name(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply that addresses the user by a wrong name."""
    if act.kind in ("code", "data", "translation"):
        return None
    own = {
        found["n"]
        for text in _user_texts(conversation)
        for found in _OWN_NAME.finditer(text[:LOOK])
        if not found["n"].endswith(("n", "an", "ish")) or text[found.end() :][:1] in ",.!"
    }
    if len(own) != 1:
        return None
    everything = _all_text(conversation)
    for found in _ADDRESSED.finditer(reply[:LOOK]):
        called = found["a"] or found["b"]
        if called not in own and called.lower() not in everything and len(called) > 3:
            return Finding(None, -2.0, f"calls {min(own)} {called}")
    return None


def find_changed_value(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply that replaces a month, day or amount of the user's by another one."""
    if act.kind in ("code", "data", "translation") or not conversation.earlier:
        return None
    said = [each for each in _user_texts(conversation) if len(each) <= MAX_SAID]
    everything = _all_text(conversation)
    for kind in _KINDS:
        known = [
            (found.group().lower(), content_words(sentence))
            for text in said
            for sentence in _SENTENCE.findall(text[:LOOK])
            for found in kind.finditer(sentence)
        ]
        if not known:
            continue
        for sentence in _SENTENCE.findall(reply[:LOOK])[:60]:
            if not _REMINDS.search(sentence):
                continue
            own = [found.group().lower() for found in kind.finditer(sentence)]
            new = [value for value in own if _bare_value(value) not in everything]
            if not new or len(new) < len(own):
                continue
            about = content_words(sentence)
            clash = next(
                (value for value, words in known if _is_same(value, new[0], words, about)), ""
            )
            if clash:
                return Finding(None, -2.0, f"says {new[0]}, where the user said {clash}")
    return None


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
    own = _word_groups(reply)
    if len(own) < 10:
        return None
    asked = {" ".join(t.text.lower().split()) for t in conversation.earlier if t.role == "user"}
    if " ".join(conversation.request.lower().split()) in asked:
        return None
    for turn in conversation.earlier[-6:]:
        if turn.role != "assistant" or _head(turn.text) != _head(reply):
            continue
        if len(own & _word_groups(turn.text)) > MOST * len(own):
            return Finding(False, -2.5, "repeats an earlier reply and not what was asked last")
    return None


def _word_groups(text: str) -> set[tuple[str, ...]]:
    words = [word.strip(".,;:!?\"'()*") for word in text[:COMPARED].lower().split()]
    return set(zip(*(words[at:] for at in range(SPAN)), strict=False))


def _head(text: str) -> list[str]:
    return text.lower().split(maxsplit=HEAD)[:HEAD]


def _is_edit(text: str) -> bool:
    """Return whether a request may want the last reply again, with a change."""
    words = text.lower().split()
    return bool(_EDITS.intersection(words[:6]))


def _is_same(old: str, new: str, words: Iterable[str], about: set[str]) -> bool:
    """Return whether two values are of the same thing: they share a unit and a word beside it."""
    if old[:1].isdigit() and _unit(old) != _unit(new):
        return False
    shared = {word for word in words if word in about and not word.isdigit()}
    return bool(shared - {_unit(old)}) if old[:1].isdigit() else bool(shared) or len(about) > 3


def _unit(value: str) -> str:
    return value.lstrip("0123456789., ").rstrip("s")


def _bare_value(value: str) -> str:
    """Return a value in a form that may occur elsewhere: a number without its unit."""
    number = re.match(r"[\d.,]+", value)
    return number.group() if number else value.rstrip("s")


def _user_texts(conversation: Conversation) -> list[str]:
    users = [turn.text for turn in conversation.earlier if turn.role == "user"]
    return [*users, conversation.request]


def _all_text(conversation: Conversation) -> str:
    """Return the whole conversation in lower case."""
    turns = [turn.text for turn in conversation.earlier]
    parts = (conversation.rules, *turns, *conversation.results, conversation.request)
    return "\n".join(parts).lower()
