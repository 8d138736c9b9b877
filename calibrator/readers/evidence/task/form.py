"""The form of a request as numbers: its size, lines, marks, script, and accompanying texts."""

from __future__ import annotations

import re
from math import log1p
from typing import Final

from calibrator.readers.evidence.task.request import TaskRequest
from calibrator.text.guarded import compile_guarded

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


def form_of(request: TaskRequest) -> list[float]:
    """Return the numbers of a request in the order of `NAMES`.

    Sizes are logarithms, shares are of bytes or words.
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


def _share(raw: bytes, members: bytes) -> float:
    return (len(raw) - len(raw.translate(None, members))) / (len(raw) or 1)


def _of_scripts(raw: bytes) -> list[float]:
    """Return the share of each script; an ASCII text has none of them."""
    if raw.isascii():
        return [0.0] * len(_SCRIPTS)
    return [_share(raw, first) for first in _SCRIPTS.values()]


def _of_sets(words: list[str]) -> list[float]:
    """Return the share of the words that is in each set."""
    counts = [0] * len(_WORD_SETS)
    for word in words:
        for at in _SETS.get(word, ()):
            counts[at] += 1
    return [count / (len(words) or 1) for count in counts]
