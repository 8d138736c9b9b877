"""The recognition of a request's kind: small talk, a translation, a summary, labels, code, data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from calibrator.readers.evidence.acts.recognition.languages import language_named
from calibrator.readers.evidence.acts.recognition.openings import is_opening
from calibrator.readers.evidence.acts.recognition.topics import content_words
from calibrator.readers.evidence.acts.recognition.wording import pattern

LOOK = 1_500  # characters of an instruction that are read

_GREETING: Final = pattern("requests", "greeting")
_HOW_ARE_YOU: Final = pattern("requests", "how_are_you")
_THANKS: Final = pattern("requests", "thanks")
_BYE: Final = pattern("requests", "bye")
_TRANSLATE: Final = pattern("requests", "translate")
_SUMMARISE: Final = pattern("requests", "summarise")
_CODE: Final = pattern("requests", "code")
_DATA: Final = pattern("requests", "data")
_LABELS: Final = pattern("requests", "labels")
_YES_OR_NO: Final = pattern("requests", "yes_or_no")
_QUESTION: Final = pattern("requests", "question")
_NEEDS_TEXT: Final = pattern("requests", "needs_text")
_MISSING: Final = pattern("requests", "missing")


_WANTS_REASONS: Final = pattern("requests", "wants_reasons")
_EITHER_OR: Final = pattern("requests", "either_or")
_BETWEEN_LABELS: Final = pattern("requests", "between_labels")
_SENTENCE_BREAK: Final = pattern("requests", "sentence_break")


@dataclass(frozen=True, slots=True)
class RequestWishes:
    """The wishes of a request. `text` is its instruction; `labels` are the answers it allows."""

    text: str
    is_greeting: bool
    is_thanks: bool
    is_bye: bool
    is_yes_or_no: bool
    is_question: bool
    wants_translation: bool
    wants_summary: bool
    wants_code: bool
    wants_data: bool
    language: str | None
    labels: tuple[str, ...]
    words: frozenset[str]

    @property
    def is_small_talk(self) -> bool:
        """Whether it only greets, thanks or says goodbye."""
        return self.is_greeting or self.is_thanks or self.is_bye


@lru_cache(maxsize=256)
def read_request(instruction: str) -> RequestWishes:
    """Read the first 1,500 characters of an instruction, in linear time."""
    text = instruction[:LOOK].strip()
    short = text if len(text) <= 160 else ""
    return RequestWishes(
        text=text,
        is_greeting=bool(short and (_GREETING.fullmatch(short) or _HOW_ARE_YOU.fullmatch(short))),
        is_thanks=bool(short and _THANKS.fullmatch(short)),
        is_bye=bool(short and _BYE.fullmatch(short)),
        is_yes_or_no=bool(_YES_OR_NO.match(text[-300:])),
        is_question=bool(_QUESTION.search(text)),
        wants_translation=bool(_TRANSLATE.search(text)),
        wants_summary=bool(_SUMMARISE.search(text)),
        wants_code=bool(_CODE.search(text)),
        wants_data=bool(_DATA.search(text)),
        language=language_named(text),
        labels=_labels(text),
        words=frozenset(content_words(text)),
    )


def _labels(text: str) -> tuple[str, ...]:
    """Return the labels that a request offers for choice, in lower case."""
    match = _EITHER_OR.match(text) or _LABELS.search(text)
    if match is None or _WANTS_REASONS.search(text):
        return ()
    parts = _BETWEEN_LABELS.split(match.group(1))
    labels = [part.strip(" \"'\u201c\u201d\u2018\u2019.").lower() for part in parts]
    labels = [label for label in labels if label]
    is_short = all(len(label.split()) <= 2 and len(label) < 25 for label in labels)
    return tuple(dict.fromkeys(labels)) if 2 <= len(labels) <= 12 and is_short else ()


def lacks_text(instruction: str) -> bool:
    """Return whether a request is about a text that it does not have ("summarise the article")."""
    return len(instruction) <= 160 and bool(_NEEDS_TEXT.match(instruction))


def lacks_detail(instruction: str) -> bool:
    """Return whether a first request does not say which thing, place or time is meant."""
    return len(instruction) <= 120 and bool(_MISSING.match(instruction))


def is_only_openings(text: str) -> bool:
    """Return whether every sentence of a short text greets, thanks, apologises or offers help."""
    if len(text) > 500:
        return False
    parts = [part for part in _SENTENCE_BREAK.split(text[:600]) if part.strip(" .!?")]
    return bool(parts) and all(is_opening(part) for part in parts)
