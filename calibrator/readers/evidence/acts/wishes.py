"""The comparison of a reply with the requested kind of text: language, translation, summary."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.acts.recognition.languages import (
    NAMES,
    language_of,
    languages_mentioned,
)
from calibrator.readers.evidence.acts.recognition.recognising import Act
from calibrator.readers.evidence.acts.recognition.requests import RequestWishes
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding

_NO_ANSWER: Final = ("refusal", "clarification", "unknown", "apology", "code", "data")
_LANGUAGE_TASK: Final = pattern("wishes", "language_task")
_COURTESIES: Final = {what: pattern("wishes", what) for what in ("greeting", "thanks", "goodbye")}
_SOURCE: Final = pattern("wishes", "source")
_WORD: Final = pattern("wishes", "word")


_NAMES_REPLY_LANGUAGE: Final = pattern("wishes", "names_reply_language")
_ABOUT_WORDS: Final = pattern("wishes", "about_words")
_COMMANDS_LABELS: Final = pattern("wishes", "commands_labels")
_WANTS_VERSE: Final = pattern("wishes", "wants_verse")
_LINE_BREAK: Final = pattern("wishes", "line_break")


def is_courtesy(reply: str, what: str) -> bool:
    """Return whether a short reply answers a greeting, thanks or a goodbye, as `what` says."""
    return len(reply) < 300 and bool(_COURTESIES[what].search(reply[:200]))


def language(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply that is not in the requested language, or not in that of its request."""
    if act.kind in ("code", "data") or len(reply) < 15:
        return None
    used = language_of(reply)
    if used is None or conversation.rules.strip():
        return None
    if request.language is not None and not request.wants_translation:
        if used == request.language:
            return Finding(None, 0.6, f"is in {NAMES[used]}, as requested")
        if (
            _NAMES_REPLY_LANGUAGE.search(request.text)
            and len(languages_mentioned(request.text)) == 1
            and not _ABOUT_WORDS.search(request.text)
        ):
            return Finding(False, -2.5, f"is in {NAMES[used]}, not in {NAMES[request.language]}")
        return None
    if request.language or _LANGUAGE_TASK.search(request.text) or request.is_small_talk:
        return None
    asked = language_of(conversation.request)
    instruction = language_of(request.text)
    if (
        asked is None
        or asked != (instruction or asked)
        or used == asked
        or {used, asked} <= {"ru", "uk"}
        or {used, asked} <= {"sv", "da"}
    ):
        return None
    if languages_mentioned(conversation.request) or any(
        language_of(t.text) == used for t in conversation.earlier
    ):
        return None
    if {used, asked} <= {"zh", "ja"} and len(request.text) < 30:
        return None
    return Finding(False, -2.5, f"is in {NAMES[used]}, where the request is in {NAMES[asked]}")


def _source_of(conversation: Conversation) -> str:
    """Return the text to translate or summarise, as far as the request contains it."""
    document = conversation.document
    if document.strip() and document != conversation.request:
        return document.strip()
    quoted = _SOURCE.search(conversation.request[:6_000])
    if quoted is None:
        return ""
    return (quoted.group(1) or quoted.group(2) or "").strip()


def _words(text: str) -> list[str]:
    return _WORD.findall(text[:20_000].lower())


def translation(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a text that was not translated, or into another language than requested."""
    if not request.wants_translation or act.kind in ("refusal", "clarification", "unknown"):
        return None
    source = _source_of(conversation)
    body = (act.body or reply).strip()
    own, given = _words(body), _words(source)
    if len(own) >= 2 and own == given and request.language is not None:
        return Finding(False, -3.0, "leaves the text untranslated")
    if len(given) >= 3 and len(own) >= 3:
        shared = len(set(own) & set(given)) / max(1, len(set(own)))
        if own == given or (
            shared > 0.85 and len(set(own)) >= 0.7 * len(set(given)) and len(given) >= 5
        ):
            return Finding(False, -3.0, "leaves the text untranslated")
    used = language_of(body)
    target = request.language
    if target is None or used is None or len(body) < 12:
        return None
    if used == target:
        return Finding(None, 0.8, f"is in {NAMES[target]}, as requested")
    if (
        language_of(source) in (used, None)
        and used != target
        and len(own) >= 4
        and len(languages_mentioned(request.text)) <= 2
    ):
        return Finding(False, -2.5, f"is in {NAMES[used]}, not in {NAMES[target]}")
    return None


def summary(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a summary that is longer than its text, or copies it."""
    if not request.wants_summary or request.wants_translation or act.kind in _NO_ANSWER:
        return None
    source = _source_of(conversation)
    body = (act.body or reply).strip()
    if len(source) < 120 or len(body) < 60:
        return None
    plain_body, plain_source = " ".join(_words(body)), " ".join(_words(source))
    if len(plain_body) > 0.7 * len(plain_source) and plain_body in plain_source:
        return Finding(False, -2.5, "copies the text instead of summarising it")
    if len(body) > 1.25 * len(source) and len(source) > 200:
        return Finding(False, -2.0, "is longer than the text that it summarises")
    return None


def label(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Compare a reply with the labels that the request offers for choice."""
    if not request.labels or act.kind in _NO_ANSWER:
        return None
    body = " ".join((act.body or reply).lower().split()).strip(" .!\"'“”*`")
    if len(body) > 200:
        return None
    found = [each for each in request.labels if re.search(rf"(?<!\w){re.escape(each)}(?!\w)", body)]
    if body in request.labels:
        return Finding(None, 0.5, "is one of the labels to choose from")
    is_command = _COMMANDS_LABELS.match(request.text)
    if not found and is_command and len(body.split()) <= 12:
        return Finding(False, -2.5, "is none of the labels to choose from")
    return None


def verse(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Compare the number of lines with that of the requested kind of poem."""
    match = _WANTS_VERSE.search(request.text)
    if match is None or act.kind in _NO_ANSWER:
        return None
    kind = match.group("kind").lower()
    wanted = _number(match.group("lines"))
    lines = [line for line in _LINE_BREAK.split((act.body or reply).strip()) if line.strip()]
    least = wanted or {"haiku": 3, "limerick": 5, "poem": 1, "sonnet": 14}[kind]
    if len(lines) < least:
        return Finding(False, -2.0, f"has {len(lines)} lines, too few for a {kind}")
    if kind == "poem" and len(lines) == 1 and len(lines[0].split()) < 20:
        return Finding(None, -0.8, "is a single sentence, where a poem was requested")
    if kind == "haiku" and len(lines) > 6:
        return Finding(False, -1.5, f"has {len(lines)} lines, too many for a haiku")
    return Finding(None, 0.5, f"has the lines of a {kind}") if len(lines) > 2 else None


def _number(word: str | None) -> int:
    """Return the number of lines that a word names; 0 if there is none."""
    names = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    if not word:
        return 0
    return int(word) if word.isdigit() else names.index(word.lower())
