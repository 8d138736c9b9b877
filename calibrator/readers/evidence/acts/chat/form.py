"""The forms that a chat asks for: only questions, a table, a haiku, one recommendation."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.acts.recognition.recognising import Act
from calibrator.readers.evidence.acts.recognition.requests import RequestWishes
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding
from calibrator.readers.evidence.number_words import NUMBER_WORDS

HAIKU_LINES = 3
LONG_TITLE = 7  # words
MOST_OF_A_HAIKU = 26  # syllables, counted roughly; a haiku has 17

_ONLY_QUESTIONS: Final = pattern("form", "only_questions")
_QUESTIONS: Final = pattern("form", "questions")
_TABLE: Final = pattern("form", "table")
_DECIDE: Final = pattern("form", "decide")
_UNDECIDED: Final = pattern("form", "undecided")
_HAIKU: Final = pattern("form", "counts")
_ASKS_ABOUT: Final = pattern("form", "asks_about")
_VOWELS: Final = re.compile(r"[aeiouyäöüáéíóúàèìòùâêîôû]+", re.IGNORECASE)
_LINE: Final = re.compile(r"\S[^\n]*")
_NO_ANSWER: Final = ("refusal", "clarification", "unknown", "code", "data")


def questions(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find statements in a reply that had to be questions alone."""
    if not _ONLY_QUESTIONS.search(request.text) or act.kind in ("refusal", "unknown"):
        return None
    marks = reply.count("?") + reply.count("\uff1f")
    sentences = len(re.findall(r"[.!?\uff1f](?=\s|$)", reply)) or 1
    if marks < 0.5 * sentences:
        return Finding(False, -2.5, "makes statements where only questions were wanted")
    wanted = _QUESTIONS.search(request.text)
    if wanted:
        name = wanted["n"].lower()
        count = NUMBER_WORDS.get(name) or int(name)
        if marks and abs(marks - count) > max(1, count // 3):
            return Finding(False, -2.0, f"asks {marks} questions, not {count}")
    return None


def table(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find prose in a reply that had to be a table."""
    if not _TABLE.search(request.text) or act.kind in _NO_ANSWER or "sql" in request.text.lower():
        return None
    has_table = "|" in reply or "\t" in reply or "<table" in reply or re.search(r"\S {3,}\S", reply)
    if has_table or "```" in reply or reply.count(",") > 5 * reply.count("."):
        return None
    return Finding(None, -2.0, "has no table")


def decision(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply that does not decide although a decision was requested."""
    if not _DECIDE.search(request.text) or act.kind in _NO_ANSWER:
        return None
    found = _UNDECIDED.search(reply)
    return None if found is None else Finding(None, -2.0, f"does not decide: {found.group()!r}")


def haiku(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a haiku with a wrong number of lines, or with far too many syllables."""
    if not _HAIKU.search(request.text) or _ASKS_ABOUT.search(request.text):
        return None
    if act.kind in _NO_ANSWER or len(request.text) > 300:
        return None
    lines = [line for line in _LINE.findall(act.body or reply) if "/" not in line]
    if any(mark in reply for mark in ("/", "**", "#", ":")):
        return None  # it has a title, or is written on one line
    has_title = len(lines) == HAIKU_LINES + 1 and len(lines[0].split()) < LONG_TITLE
    if len(lines) > HAIKU_LINES and len(lines) % HAIKU_LINES and not has_title:
        return Finding(False, -2.0, f"has {len(lines)} lines, where a haiku has three")
    if len(lines) == HAIKU_LINES:
        syllables = sum(len(_VOWELS.findall(line)) for line in lines)
        if syllables > MOST_OF_A_HAIKU and reply.isascii():
            return Finding(None, -1.5, f"has about {syllables} syllables, where a haiku has 17")
    return None
