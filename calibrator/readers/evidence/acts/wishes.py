"""The comparison of a reply with the requested kind of text: its language, a summary, a table."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.acts.recognition.languages import (
    NAMES,
    language_of,
    languages_mentioned,
)
from calibrator.readers.evidence.acts.recognition.recognising import Act, RequestWishes
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
_NO_FORM: Final = ("refusal", "clarification", "unknown", "code", "data")
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


def check_language(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Compare the reply's language with the requested one (`in French`) or that of the request.

    The right requested language is a weak finding for the reply, another one a finding against
    it; so is another language than the request's if that names none. None for code, data,
    replies below 15 characters, unclear languages, conversations with rules, and tasks about
    languages.
    """
    if act.kind in ("code", "data") or len(reply) < 15:
        return None
    reply_language = language_of(reply)
    if reply_language is None or conversation.rules.strip():
        return None
    if request.language is not None and not request.wants_translation:
        if reply_language == request.language:
            return Finding(None, 0.6, f"is in {NAMES[reply_language]}, as requested")
        if (
            _NAMES_REPLY_LANGUAGE.search(request.text)
            and len(languages_mentioned(request.text)) == 1
            and not _ABOUT_WORDS.search(request.text)
        ):
            return Finding(
                False, -2.5, f"is in {NAMES[reply_language]}, not in {NAMES[request.language]}"
            )
        return None
    if request.language or _LANGUAGE_TASK.search(request.text) or request.is_small_talk:
        return None
    request_language = language_of(conversation.request)
    instruction = language_of(request.text)
    if (
        request_language is None
        or request_language != (instruction or request_language)
        or reply_language == request_language
        or {reply_language, request_language} <= {"ru", "uk"}
        or {reply_language, request_language} <= {"sv", "da"}
    ):
        return None
    if languages_mentioned(conversation.request) or any(
        language_of(t.text) == reply_language for t in conversation.earlier
    ):
        return None
    if {reply_language, request_language} <= {"zh", "ja"} and len(request.text) < 30:
        return None
    return Finding(
        False,
        -2.5,
        f"is in {NAMES[reply_language]}, where the request is in {NAMES[request_language]}",
    )


def check_translation(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a text that was not translated, or into another language than requested.

    It is untranslated if it has the words of its source, or 85 % of its own are among them. The
    right language is a weak finding for the reply. None if no translation was requested, the
    reply refuses or asks back, or the languages are unclear.
    """
    if not request.wants_translation or act.kind in ("refusal", "clarification", "unknown"):
        return None
    source = _source_of(conversation)
    body = (act.body or reply).strip()
    body_words, source_words = _words(body), _words(source)
    if len(body_words) >= 2 and body_words == source_words and request.language is not None:
        return Finding(False, -3.0, "leaves the text untranslated")
    if len(source_words) >= 3 and len(body_words) >= 3:
        shared = len(set(body_words) & set(source_words)) / max(1, len(set(body_words)))
        if body_words == source_words or (
            shared > 0.85
            and len(set(body_words)) >= 0.7 * len(set(source_words))
            and len(source_words) >= 5
        ):
            return Finding(False, -3.0, "leaves the text untranslated")
    body_language = language_of(body)
    target = request.language
    if target is None or body_language is None or len(body) < 12:
        return None
    if body_language == target:
        return Finding(None, 0.8, f"is in {NAMES[target]}, as requested")
    if (
        language_of(source) in (body_language, None)
        and body_language != target
        and len(body_words) >= 4
        and len(languages_mentioned(request.text)) <= 2
    ):
        return Finding(False, -2.5, f"is in {NAMES[body_language]}, not in {NAMES[target]}")
    return None


def check_summary(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a summary that is longer than its text (by 25 %), or copies it.

    None if no summary was requested, the reply is none, or the text to summarise is below 120
    characters or not in the request.
    """
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


def check_label(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Compare a reply with the labels that the request offers for choice: `Classify: spam or ham`.

    A reply that is a label gives a weak finding for it; one of up to 12 words without any label
    gives one against it if the request is a command to classify. None otherwise.
    """
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


def check_verse(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Compare the number of lines with that of a requested poem: `a haiku`, `a four-line poem`.

    Too few lines, a one-line poem or a haiku of more than six lines are findings against the
    reply; a poem of more than two lines is a weak finding for it. None without such a request.
    """
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


def find_statements(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find statements in a reply that had to be questions alone: `Ask me only questions`.

    Found are fewer question marks than half of the sentences, and a number of questions that
    differs by more than a third (or one) from the requested. None without such a request, or
    for a refusal.
    """
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


def find_missing_table(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find prose in a reply to a request for a table: `put this in a table`.

    None without such a request, for SQL, and if the reply has a bar, a tab, wide gaps, code or
    many commas.
    """
    if not _TABLE.search(request.text) or act.kind in _NO_FORM or "sql" in request.text.lower():
        return None
    has_table = "|" in reply or "\t" in reply or "<table" in reply or re.search(r"\S {3,}\S", reply)
    if has_table or "```" in reply or reply.count(",") > 5 * reply.count("."):
        return None
    return Finding(None, -2.0, "has no table")


def find_indecision(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a reply such as `it depends` although a decision was requested: `just pick one`.

    None without such a request, and for a refusal, a question back, code or data.
    """
    if not _DECIDE.search(request.text) or act.kind in _NO_FORM:
        return None
    found = _UNDECIDED.search(reply)
    return None if found is None else Finding(None, -2.0, f"does not decide: {found.group()!r}")


def find_wrong_haiku(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a haiku with a number of lines that is no multiple of three, or over 26 syllables.

    Syllables are counted roughly, as groups of vowels, in ASCII replies. None unless the
    request wants a haiku, and if the reply has a title or slashes; a fourth line before them
    counts as a title if it is short.
    """
    if not _HAIKU.search(request.text) or _ASKS_ABOUT.search(request.text):
        return None
    if act.kind in _NO_FORM or len(request.text) > 300:
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


def is_courtesy(reply: str, what: str) -> bool:
    """Return whether a reply below 300 characters answers small talk politely: `You're welcome!`.

    `what` is `greeting`, `thanks` or `goodbye`.
    """
    return len(reply) < 300 and bool(_COURTESIES[what].search(reply[:200]))


def _source_of(conversation: Conversation) -> str:
    """Return the text to translate or summarise: the document, or what is in quotes or after `:`.

    Empty if the request does not contain it.
    """
    document = conversation.document
    if document.strip() and document != conversation.request:
        return document.strip()
    quoted = _SOURCE.search(conversation.request[:6_000])
    if quoted is None:
        return ""
    return (quoted.group(1) or quoted.group(2) or "").strip()


def _words(text: str) -> list[str]:
    """Return the words of a text's first 20,000 characters in lower case, in order."""
    return _WORD.findall(text[:20_000].lower())


def _number(word: str | None) -> int:
    """Return the number of lines that a word up to ten or digits name; 0 for None or ""."""
    names = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    if not word:
        return 0
    return int(word) if word.isdigit() else names.index(word.lower())
