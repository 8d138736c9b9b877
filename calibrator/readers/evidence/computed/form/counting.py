"""The numbers of words, sentences, lines and items of a reply."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.evidence.computed.basics.numbers import number_words

_WORD: Final = re.compile(r"[^\W_]+(?:[-'’./][^\W_]+)*")
_SENTENCE_END: Final = re.compile(r"[.!?…]+[\"'”’)\]*]*(?=\s|$)|[。！？]")
_ABBREVIATION: Final = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|no|approx|inc|ltd|co|jr|sr|z\.b|bzw|ca|p\.s"
    r"|u\.s|a\.m|p\.m|usw|nr|sra?|mme)|\b[A-Za-z]|\b\d+)$",
    re.IGNORECASE,
)
BULLET: Final = re.compile(r"^[ \t]*(?:[-*•+–]|\d{1,3}[.)]|[a-z][.)])[ \t]+\S", re.MULTILINE)
_TOP_BULLET: Final = re.compile(r"^(?:[-*•+–])[ \t]+(?P<t>\S[^\n]*)", re.MULTILINE)
_NUMBERED: Final = re.compile(
    r"^[ \t]{0,3}(?:\*\*)?(?P<n>\d{1,3})[.)](?:\*\*)?[ \t]+"
    r"(?P<t>\S[^\n]*)",
    re.MULTILINE,
)
_COUNT_WORDS: Final = {"a single": 1, "single": 1, "once": 1, "twice": 2}


def value_of(text: str) -> int:
    """Return a count in digits or as a word: 12 for `12`, 2 for `twice`.

    Raises KeyError for others.
    """
    text = text.casefold().strip()
    if text.isdigit():
        return int(text)
    return _COUNT_WORDS[text] if text in _COUNT_WORDS else number_words()[text]


def plain_text(reply: str) -> str:
    """Return a reply without marks of emphasis, headings and code."""
    text = re.sub(r"```[^\n]*\n?", "", reply)
    return re.sub(r"\*\*|__|^#{1,6}\s+", "", text, flags=re.MULTILINE).strip()


def words(text: str) -> list[str]:
    """Return the words of a text in order; `twenty-one` and `e.g.` count once."""
    return _WORD.findall(text)


def sentence_counts(text: str) -> tuple[int, int]:
    """Return (least, most): the fewest and the most sentences that a text may be counted to have.

    Abbreviations such as `Dr.` count only for `most`. (0, 1) for a text without words.
    """
    least = most = 0
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*•]|\d+[.)])\s)|\n", text):
        block = re.sub(r"^\s*(?:[-*•]|\d+[.)])\s+", "", block).strip()
        if not block:
            continue
        ends = list(_SENTENCE_END.finditer(block))
        sure = 0
        for end in ends:
            before = block[max(0, end.start() - 12) : end.start()]
            is_dot = block[end.start()] == "."
            after = block[end.end() :].lstrip()
            if is_dot and _ABBREVIATION.search(before) and after:
                continue
            if after and after[0].islower():
                continue
            sure += 1
        rest = block[ends[-1].end() :].strip() if ends else block
        least += sure
        most += len(ends) + (1 if len(words(rest)) >= 1 else 0)
    return max(least, 1 if words(text) else 0), max(most, 1)


def paragraphs(text: str) -> int:
    """Return the number of blocks of text between empty lines."""
    return len([part for part in re.split(r"\n\s*\n", text.strip()) if words(part)])


def lines(text: str) -> list[str]:
    """Return the lines of a text, stripped, without blank ones."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def bullets(text: str) -> list[str]:
    """Return the texts of lines that begin with a bullet at the margin, such as `- item`."""
    return [found["t"].strip() for found in _TOP_BULLET.finditer(text)]


def numbered_items(text: str) -> list[str]:
    """Return the texts of a list such as `1. item`.

    Empty unless it is numbered 1, 2, 3 without a gap.
    """
    found = list(_NUMBERED.finditer(text))
    if [int(each["n"]) for each in found] != list(range(1, len(found) + 1)):
        return []
    return [each["t"].strip() for each in found]


def items(reply: str) -> list[str] | None:
    """Return the items of a reply that is a list, or None if it is no clear list.

    It may be numbered, have bullets, be short lines alone, or a line with commas.
    """
    text = re.sub(r"\*\*|__", "", reply).strip()
    for found in (numbered_items(text), bullets(text)):
        if len(found) >= 2:
            return found
    if re.search(r"^\s*(?:[-*•+–]|\d{1,3}[.)])\s", text, re.MULTILINE):
        return None
    rows = lines(text)
    if len(rows) >= 2:
        is_short = all(len(words(row)) <= 6 and not row.endswith((":", ".")) for row in rows)
        return rows if is_short else None
    return comma_items(text)


def comma_items(text: str) -> list[str] | None:
    """Return the items of one line such as `red, white and blue`.

    None for several lines or a sentence.
    """
    text = text.strip().rstrip(".!")
    if "\n" in text or re.search(r"[.!?;:]\s", text):
        return None
    parts = re.split(r"\s*,\s*(?:(?:and|or|und|oder|y|o|et|ou)\s+)?|\s+(?:and|und|y|et|&)\s+", text)
    parts = [part.strip(" \"'“”*") for part in parts]
    if len(parts) < 2 or any(not part or len(words(part)) > 3 for part in parts):
        return None
    if re.search(
        r"\b(?:is|are|was|were|the following|ist|sind|son|sont|can"
        r"|will|has|have)\b",
        text,
        re.IGNORECASE,
    ):
        return None
    return parts
