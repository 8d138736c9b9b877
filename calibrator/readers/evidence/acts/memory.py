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
_EDITS_WORDS = """
    shorter longer rewrite change edit add remove fix correct update instead more less make with
    without replace version translate summarize summarise only use keep include format table
    continue list code please
"""
_EDITS: Final = frozenset(_EDITS_WORDS.split())
LOOK = 4_000  # characters of a turn
MAX_MESSAGE = 600  # characters of a turn; a longer one is a document
_OWN_NAME: Final = pattern("memory", "own_name")
_ADDRESSED: Final = pattern("memory", "addressed")
_REMINDS: Final = pattern("memory", "reminds")
_KINDS: Final = tuple(pattern("memory", kind) for kind in ("month", "day", "amount"))
_SENTENCE: Final = re.compile(r"[^.!?\n]+(?:[.!?](?=\d)[^.!?\n]*)*")


def find_wrong_name(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply that calls the user by another name (`Hi Thomas,`) than the user's own.

    None unless the user gave exactly one name (`my name is Ada`). Names of three letters, and
    those that occur anywhere in the conversation, do not count, because they may be other words
    or those of others.
    """
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
    """Find a reminder with another month, day or amount than the user said.

    For the user's `the wedding is in May`, the reply `Your wedding in June ..` is found. Only
    sentences that remind (`your ..`, `you said ..`) are read; the new value must occur nowhere
    in the conversation, and must be of the same thing. None without earlier turns or without
    such a value.
    """
    if act.kind in ("code", "data", "translation") or not conversation.earlier:
        return None
    user_texts = [each for each in _user_texts(conversation) if len(each) <= MAX_MESSAGE]
    everything = _all_text(conversation)
    for kind in _KINDS:
        known = [
            (found.group().lower(), content_words(sentence))
            for text in user_texts
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
    """Find a reply that begins like an earlier one and mostly repeats it word for word.

    The first 12 words must be equal, and more than 60 % of its groups of four words must be in
    one of the last six turns. None if the request asks for a repetition or an edit (`make it
    shorter`), repeats an earlier request, or comes with rules or results of tools; None also
    for short replies.
    """
    if not conversation.earlier or act.kind in ("code", "data", "translation"):
        return None
    if _WANTS_REPETITION.search(request.text) or _is_edit(request.text):
        return None
    if conversation.results or conversation.rules.strip():
        return None
    own = _word_groups(reply)
    if len(own) < 10:
        return None
    earlier_requests = {
        " ".join(t.text.lower().split()) for t in conversation.earlier if t.role == "user"
    }
    if " ".join(conversation.request.lower().split()) in earlier_requests:
        return None
    for turn in conversation.earlier[-6:]:
        if turn.role != "assistant" or _head(turn.text) != _head(reply):
            continue
        if len(own & _word_groups(turn.text)) > MOST * len(own):
            return Finding(False, -2.5, "repeats an earlier reply and not what was asked last")
    return None


def _word_groups(text: str) -> set[tuple[str, ...]]:
    """Return all groups of four consecutive words of a text, in lower case without punctuation."""
    words = [word.strip(".,;:!?\"'()*") for word in text[:COMPARED].lower().split()]
    return set(zip(*(words[at:] for at in range(SPAN)), strict=False))


def _head(text: str) -> list[str]:
    """Return the first 12 words of a text in lower case."""
    return text.lower().split(maxsplit=HEAD)[:HEAD]


def _is_edit(text: str) -> bool:
    """Return whether the first six words may ask for a changed version: `now make it shorter`."""
    words = text.lower().split()
    return bool(_EDITS.intersection(words[:6]))


def _is_same(old: str, new: str, words: Iterable[str], about: set[str]) -> bool:
    """Return whether two values speak of the same thing, as `3 eggs` and `4 eggs` do.

    `old` and `new` are values such as `3 eggs` or `may`; `words` and `about` are the content
    words of their sentences. Numbers need the same unit and another shared word; months and
    days need a shared word or a reply's sentence of more than three words.
    """
    if old[:1].isdigit() and _unit(old) != _unit(new):
        return False
    shared = {word for word in words if word in about and not word.isdigit()}
    return bool(shared - {_unit(old)}) if old[:1].isdigit() else bool(shared) or len(about) > 3


def _unit(value: str) -> str:
    """Return the unit of an amount without plural: `egg` for `3 eggs`."""
    return value.lstrip("0123456789., ").rstrip("s")


def _bare_value(value: str) -> str:
    """Return a value as it may occur elsewhere: `3` for `3 eggs`, `monday` for `mondays`."""
    number = re.match(r"[\d.,]+", value)
    return number.group() if number else value.rstrip("s")


def _user_texts(conversation: Conversation) -> list[str]:
    """Return the texts of the user's messages, oldest first; the request is the last one."""
    users = [turn.text for turn in conversation.earlier if turn.role == "user"]
    return [*users, conversation.request]


def _all_text(conversation: Conversation) -> str:
    """Return the whole conversation (rules, turns, results, request) as one text in lower case."""
    turns = [turn.text for turn in conversation.earlier]
    parts = (conversation.rules, *turns, *conversation.results, conversation.request)
    return "\n".join(parts).lower()
