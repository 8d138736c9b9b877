"""The parts of a request that show the kind of its task, and its form as numbers.

A request may be a whole book, so only its two ends are read; lines are counted in its first 20,000
characters. A system message like "You are a helpful assistant" is skipped: benchmarks are run with
and without one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import log1p
from typing import Final

from calibrator.readers.evidence.conversation import Conversation
from calibrator.text.guarded import compile_guarded

HEAD, TAIL = 900, 300  # characters of a request
COUNTED = 20_000  # characters in which lines are counted
HEAD_WORDS, TAIL_WORDS = 48, 24
SHORT_RULES = 400  # characters; longer rules always say something of their own
_WORDS: Final = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_+")
_SENTENCE_ENDS: Final = re.compile(r"[.!?\n]+")
_GENERIC: Final = re.compile(
    r"\s*(?:you are|you're) (?:a|an|the)?\s*(?:\w+, |\w+ and )?\w* ?(?:ai |language |large )*"
    r"(?:assistant|model|chatbot|ai|bot|chatgpt|gpt|claude|llama|qwen|gemini|mistral)\b"
    r"(?:,? (?:a|an|based|trained|created|made|developed|from|by|language|large|model)\b[\w ,-]*)?"
    r"\s*|\s*(?:please )?(?:answer|respond|reply)(?: to)?(?: the| all| any| my| users?'?s?)*"
    r"(?: questions?| requests?)?"
    r"(?: as)?(?: accurately| correctly| concisely| briefly| truthfully| helpfully| honestly"
    r"| carefully| clearly| and| well| possible| in english| short)*\s*"
    r"|\s*(?:be|stay) (?:helpful|concise|brief|honest|accurate|precise|polite|harmless|and|, )"
    r"[\w ,]{0,40}|\s*(?:let's )?think (?:carefully |it through |hard )*(?:step by step|first)?\s*"
    r"|\s*today(?:'s date)? is [\w ,:-]{4,40}|\s*(?:current date|knowledge cutoff): [\w ,:-]{4,40}",
    re.IGNORECASE,
)
_DIGITS: Final = b"0123456789"
_CAPITALS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SCRIPTS: Final = {  # first bytes of characters in UTF-8
    "accented": bytes(range(0xC3, 0xC6)),
    "cyrillic_or_greek": bytes(range(0xCE, 0xD4)),
    "semitic": bytes(range(0xD7, 0xDE)),
    "indic": b"\xe0",
    "chinese_or_kana": bytes(range(0xE3, 0xEA)),
    "hangul": bytes(range(0xEA, 0xEE)),
    "emoji": b"\xf0",
}
_MARKS: Final = '?$\\|{}[]":;`=(<,#*_^/'
_OPTION: Final = re.compile(r"^[ \t]*\(?[A-Ja-j][.):][ \t]*\S", re.MULTILINE)
_INLINE_OPTION: Final = compile_guarded(r"[(\s][A-Ea-e]\)[ \t]*\w")
_BULLET: Final = re.compile(r"^[ \t]*(?:[-*•+]|\d{1,2}[.)])[ \t]", re.MULTILINE)
_FIELD: Final = compile_guarded(r"^[^\W\d][\w \t/-]{0,24}:", re.MULTILINE)
_CODE: Final = compile_guarded(
    r"^[ \t]*(?:def|class|return|import|function|const|var|void|int|SELECT|for|if)\b"
    r"[^\n]{0,60}[({;:=]",
    re.MULTILINE,
)
_SENTENCE_END: Final = re.compile(r"[.?!](?=\s|$)")
_WORD_SETS: Final = {
    "asks": "what who which when where why how whose whom",
    "first_person": "i me my mine we us our i'm",
    "second_person": "you your yours",
    "polite": "please hello hi hey thanks thank sorry hallo bye",
    "english": "the of a an to in is are and that it for on was with at by from as be has",
    "czech": "je v se na kdo jak byl bylo byla ve roce který která jaký jaké kolik z do o kdy",
    "computes": "many much calculate find compute total value sum number percent solve if",
    "writes": "write create give make tell list describe explain draft suggest help show name",
    "works_on_text": "summarize summarise translate rewrite extract classify correct paraphrase"
    " convert text sentence following article passage document paragraph message context below",
}
_SETS: Final = {
    word: tuple(at for at, words in enumerate(_WORD_SETS.values()) if word in words.split())
    for word in " ".join(_WORD_SETS.values()).split()
}
"""The numbers of the sets that each word is in."""
_ENDS: Final = "?.:;!"
NAMES: Final = (
    *("length", "lines", "paragraphs", "line_mean", "line_longest", "short_lines"),
    *("digits", "capitals", *_SCRIPTS),
    *(f"mark {mark}" for mark in _MARKS),
    *("options", "inline_options", "bullets", "fields", "code", "sentences", "sentence_mean"),
    *("ends_with", "first_line_ends_with", "first_line", "last_paragraph", "colon"),
    *(f"{part} {name}" for part in ("head", "tail") for name in _WORD_SETS),
    *("head_words", "rules", "turns", "results", "tools"),
)
WIDTH: Final = len(NAMES)


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """The ends and the words of a request, and the sizes of the texts beside it."""

    text: str  # the head, and the tail of a longer request after a line break
    length: int  # characters of the whole request
    lines: int
    head: list[str]  # words and marks in lower case
    tail: list[str]
    last: list[str]  # the first words of the last paragraph, if there are several
    rules: int  # characters of rules that are not generic
    turns: int  # earlier turns
    results: int  # results of tools
    has_tools: bool


def form_of(request: TaskRequest) -> list[float]:
    """Return the numbers of a request as a list of WIDTH, in the order of `NAMES`.

    Sizes are logarithms of one plus the size; shares, 0 to 1, are of bytes or words.
    """
    text = request.text
    raw = text.encode("utf-8", "replace")
    size = len(raw) or 1
    lines = [line for line in text.split("\n") if line.strip()] or [""]
    lengths = [len(line) for line in lines]
    sentences = len(_SENTENCE_END.findall(text)) or 1
    last = text.rfind("\n\n")
    return [
        log1p(request.length),
        log1p(request.lines),
        log1p(text.count("\n\n")),
        log1p(sum(lengths) / len(lengths)),
        log1p(max(lengths)),
        sum(length < 40 for length in lengths) / len(lengths),
        _share(raw, _DIGITS),
        _share(raw, _CAPITALS),
        *_of_scripts(raw),
        *(text.count(mark) / size for mark in _MARKS),
        log1p(len(_OPTION.findall(text))),
        log1p(len(_INLINE_OPTION.findall(text))),
        log1p(len(_BULLET.findall(text))),
        log1p(len(_FIELD.findall(text))),
        log1p(len(_CODE.findall(text))),
        log1p(sentences),
        log1p(size / sentences),
        float(_ENDS.find(text[-1:] or " ")),
        float(_ENDS.find(lines[0].rstrip()[-1:] or " ")),
        log1p(lengths[0]),
        log1p(len(text) - last - 2) if last >= 0 else -1.0,
        log1p(text.find(":", 0, 100) + 1),
        *_of_sets(request.head),
        *_of_sets(request.tail),
        float(len(request.head)),
        log1p(request.rules),
        float(request.turns),
        float(request.results),
        float(request.has_tools),
    ]


def read_request(conversation: Conversation, *, has_tools: bool = False) -> TaskRequest:
    """Return the parts of a conversation that show its kind of task, in bounded time.

    `has_tools` says whether tools were offered with the request.
    """
    request = conversation.request
    text = request[: HEAD + TAIL].strip()
    if len(request) > HEAD + TAIL:
        text = f"{request[:HEAD].strip()}\n{request[-TAIL:].strip()}"
    last = text[text.rfind("\n\n") + 2 :] if "\n\n" in text else ""
    words = _words(text[:360])
    return TaskRequest(
        text=text,
        length=len(request),
        lines=request.count("\n", 0, COUNTED) + 1,
        head=words[:HEAD_WORDS],
        tail=(words if len(text) <= 180 else _words(text[-180:]))[-TAIL_WORDS:],
        last=_words(last[:60])[:6],
        rules=own_rules(conversation.rules),
        turns=len(conversation.earlier),
        results=len(conversation.results),
        has_tools=has_tools,
    )


def own_rules(rules: str) -> int:
    """Return the number of characters in a system message that say something of its own.

    In up to 400 characters, generic sentences such as `You are a helpful assistant` do not
    count; longer rules count whole.
    """
    if len(rules) > SHORT_RULES:
        return len(rules)
    sentences = _SENTENCE_ENDS.split(rules)
    return sum(len(each) for each in sentences if each.strip() and not _GENERIC.fullmatch(each))


def _words(text: str) -> list[str]:
    """Return the words, numbers and single marks of a text in lower case, in order."""
    return _WORDS.findall(text.lower())


def _share(raw: bytes, members: bytes) -> float:
    """Return the share, 0 to 1, of the bytes `raw` that are among the bytes `members`."""
    return (len(raw) - len(raw.translate(None, members))) / (len(raw) or 1)


def _of_scripts(raw: bytes) -> list[float]:
    """Return the share of bytes for each of the seven scripts; an ASCII text has zeros."""
    if raw.isascii():
        return [0.0] * len(_SCRIPTS)
    return [_share(raw, first) for first in _SCRIPTS.values()]


def _of_sets(words: list[str]) -> list[float]:
    """Return the share of the words that is in each set of `_WORD_SETS`; zeros without words."""
    counts = [0] * len(_WORD_SETS)
    for word in words:
        for at in _SETS.get(word, ()):
            counts[at] += 1
    return [count / (len(words) or 1) for count in counts]
