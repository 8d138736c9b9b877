"""The recognition of a reply's act (an answer, a refusal ..) and of what its request wants."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from calibrator.readers.evidence.acts.recognition.languages import language_named
from calibrator.readers.evidence.acts.recognition.openings import is_opening, without_opening
from calibrator.readers.evidence.acts.recognition.topics import content_words
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation

MAX_INSTRUCTION = 1_500  # characters of an instruction that are read
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
_QUESTION_MARKS: Final = ("?", "\uff1f")
LOOK = 700  # first characters of a reply that are searched for a refusal
_REFUSAL: Final = pattern("recognising", "refusal")
_DECLINES: Final = pattern("recognising", "declines")
_UNKNOWN: Final = pattern("recognising", "unknown")
_ASKS: Final = pattern("recognising", "asks")
_WISHES: Final = pattern("recognising", "wishes")
_SMALL_TALK: Final = pattern("recognising", "small_talk")
_FENCE: Final = pattern("recognising", "fence")
_CODE_LINE: Final = pattern("recognising", "code_line")
_SENTENCE: Final = pattern("recognising", "sentence")
_APOLOGISES: Final = pattern("recognising", "apologises")
_ABOUT_TRANSLATING: Final = pattern("recognising", "about_translating")
_PLAYS_QUESTIONS: Final = pattern("recognising", "plays_questions")
_ABOUT_READER: Final = pattern("recognising", "about_reader")
_LOOKS_LIKE_PROSE: Final = pattern("recognising", "looks_like_prose")
_SIGNS_OF_CODE: Final = "(){};=<@#$"


@dataclass(frozen=True, slots=True)
class RequestWishes:
    """What a request wants, read from its first 1,500 characters.

    `text` is the instruction. `language` is the code of the language that it names (`in
    French`), or None. `labels` are the answers that it offers (`spam or ham`) in lower case, or
    (). `words` are the stems of its content words. `is_greeting`, `is_thanks` and `is_bye` are
    true only if the request says nothing else.
    """

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


@dataclass(frozen=True, slots=True)
class Act:
    """The act of a reply: `kind` is one of `calibrator.scorer.ACTS`, such as `refusal` or `answer`.

    `body` is the reply without greetings, praise and other openings.
    """

    kind: str
    body: str


def recognise(conversation: Conversation, reply: str) -> Act:
    """Return the act of the reply, by its wording and by the request."""
    request = read_request(conversation.instruction)
    body = without_opening(reply, request.text)
    return Act(_kind(request, body.strip(), reply), body)


@lru_cache(maxsize=256)
def read_request(instruction: str) -> RequestWishes:
    """Return the wishes of an instruction, by patterns on its first 1,500 characters.

    The results of the last 256 texts are remembered.
    """
    text = instruction[:MAX_INSTRUCTION].strip()
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


def lacks_text(instruction: str) -> bool:
    """Return whether a request is about a text that it lacks, as `summarise the article`."""
    return len(instruction) <= 160 and bool(_NEEDS_TEXT.match(instruction))


def lacks_detail(instruction: str) -> bool:
    """Return whether a short request leaves its subject open, as `what time does it open?`."""
    return len(instruction) <= 120 and bool(_MISSING.match(instruction))


def is_only_openings(text: str) -> bool:
    """Return whether every sentence of a text greets, thanks, apologises or offers help.

    False for texts without a sentence or of more than 500 characters.
    """
    if len(text) > 500:
        return False
    parts = [part for part in _SENTENCE_BREAK.split(text[:600]) if part.strip(" .!?")]
    return bool(parts) and all(is_opening(part) for part in parts)


def _labels(text: str) -> tuple[str, ...]:
    """Return the labels that a request offers: (`spam`, `ham`) for `Classify: spam or ham`.

    They are two to twelve, in lower case, without repeats. () if there are none, fewer or more, if
    one has over two words or 24 characters, or if the request wants reasons.
    """
    match = _EITHER_OR.match(text) or _LABELS.search(text)
    if match is None or _WANTS_REASONS.search(text):
        return ()
    parts = _BETWEEN_LABELS.split(match.group(1))
    labels = [part.strip(" \"'\u201c\u201d\u2018\u2019.").lower() for part in parts]
    labels = [label for label in labels if label]
    is_short = all(len(label.split()) <= 2 and len(label) < 25 for label in labels)
    return tuple(dict.fromkeys(labels)) if 2 <= len(labels) <= 12 and is_short else ()


def _kind(request: RequestWishes, body: str, reply: str) -> str:
    """Return the act's kind: `data`, `code`, `small_talk`, `translation`, `summary`, `answer` ..

    `body` is the reply without openings, `reply` the whole one. Tried in this order: JSON,
    code, only openings, a refusal or question back, small talk, and then the kind that the
    request wants.
    """
    if _is_data(body):
        return "data"
    if _is_code(body):
        return "code"
    if is_only_openings(reply):
        return _of_openings(request, reply)
    if not request.wants_translation or _mentions_translating(body):
        kind = _without_answer(request, body)
        if kind:
            return kind
    if request.is_small_talk and len(body) < 400:
        return "small_talk"
    if request.wants_translation:
        return "translation"
    if request.wants_summary:
        return "summary"
    return "small_talk" if _SMALL_TALK.match(body) and len(body) < 160 else "answer"


def _of_openings(request: RequestWishes, reply: str) -> str:
    """Return the kind of a reply that consists of openings alone.

    This is `apology` if it apologises, else `translation` if one was requested (of a greeting),
    else `small_talk`.
    """
    if _APOLOGISES.search(reply):
        return "apology"
    return "translation" if request.wants_translation else "small_talk"


def _mentions_translating(body: str) -> bool:
    """Return whether the beginning speaks of the text to translate: `Which text ..?`."""
    return bool(_ABOUT_TRANSLATING.search(body[:200]))


def _without_answer(request: RequestWishes, body: str) -> str:
    """Return `refusal`, `unknown` or `clarification`, or "" if the reply answers.

    A refusal (`I can't share that`) or lack of knowledge (`The text does not say`) must be in
    the first two sentences of a body below 900 characters.
    """
    head = body[:LOOK]
    sentences = [part for part in _SENTENCE.findall(head) if part.strip()]
    if not sentences:
        return ""
    first = " ".join(sentences[:2])[:400]
    if len(body) < 900:
        refusal, is_unknown = _REFUSAL.search(first), _UNKNOWN.search(first)
        if refusal and _DECLINES.search(first[refusal.start() :]):
            return "unknown" if is_unknown and is_unknown.start() <= refusal.start() else "refusal"
        if is_unknown:
            return "unknown"
    if _asks_back(request, body, sentences):
        return "clarification"
    return ""


def _asks_back(request: RequestWishes, body: str, sentences: list[str]) -> bool:
    """Return whether a short reply consists mainly of questions or wishes to its reader.

    At least half of its sentences must be such: `Which city do you mean?`, `Please paste the
    text.` False for small talk and games of questions.
    """
    if len(body) > 500 or request.is_small_talk or ("\n" in body.strip() and len(body) > 300):
        return False
    if _PLAYS_QUESTIONS.search(request.text):
        return False
    last = sentences[-1].rstrip("\"'”) ")
    is_asked = last.endswith(_QUESTION_MARKS) and bool(_ASKS.search(last))
    first = sentences[0]
    is_asked |= first.endswith("?") and bool(_ABOUT_READER.search(first) and _ASKS.search(first))
    is_asked = is_asked or bool(_WISHES.search(sentences[-1]) or _WISHES.search(first))
    return is_asked and 2 * sum(map(_is_asking, sentences)) >= len(sentences)


def _is_asking(sentence: str) -> bool:
    """Return whether a sentence ends with a question mark or wishes (`Please paste the text`)."""
    return sentence.rstrip("\"'”) ").endswith(_QUESTION_MARKS) or bool(_WISHES.search(sentence))


def _is_data(body: str) -> bool:
    """Return whether a reply is a JSON object or list, or lines with equally many commas.

    A fence around it is allowed. Invalid JSON is no data.
    """
    match = _FENCE.match(body)
    text = (match.group(1) if match else body).strip()
    if text[:1] in ("{", "[") and text[-1:] in ("}", "]"):
        try:
            return isinstance(json.loads(text), dict | list)
        except (ValueError, RecursionError):
            return False
    lines = text.splitlines()[:6]
    commas = {line.count(",") for line in lines}
    return (
        len(lines) >= 2
        and len(commas) == 1
        and commas.pop() >= 1
        and not _LOOKS_LIKE_PROSE.search(text[:600])
    )


def _is_code(body: str) -> bool:
    """Return whether at least half of a text is in fences, or without fences looks like code.

    Without fences, more than half of the first 200 lines must look like `x = f(1);` or `SELECT
    ..`.
    """
    fenced = sum(len(match.group()) for match in _FENCE.finditer(body))
    if fenced:
        return 2 * fenced >= len(body)
    head = body[:4_000]
    if not any([sign in head for sign in _SIGNS_OF_CODE]):
        return False
    lines = [line for line in body.splitlines()[:200] if line.strip()]
    return bool(lines) and sum(bool(_CODE_LINE.match(line[:300])) for line in lines) > 0.5 * len(
        lines
    )
