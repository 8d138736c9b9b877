"""Edits of a sentence that keep its claim: synonyms, other ways to write numbers, shorter forms."""

from __future__ import annotations

import random
import re

from calibrator.lab.data.evidence.edits import (
    NUMBER,
    NUMBER_WORD,
    Edit,
    exchange,
    is_year,
    ordinal,
    replace_match,
)
from calibrator.lab.data.evidence.words.templates import capital
from calibrator.lab.data.evidence.words.values import MONTHS, NUMBERS, clock_time, number_words

_DATE = re.compile(r"\b(\d{1,2}) (" + "|".join(MONTHS) + r")(?: (\d{4}))?\b")
_DATE_US = re.compile(r"\b(" + "|".join(MONTHS) + r") (\d{1,2})(?:, (\d{4}))?\b(?!,? \d)")
_CLOCK = re.compile(r"\b(\d{1,2})(?:[:.](\d\d))? ?([ap])\.?m\b\.?", re.I)
_CLOCK_24 = re.compile(r"\b([01]\d|2[0-3]):([0-5]\d)\b(?! ?[ap]\.?m)")
_SUBJECT = r"(?:the|a|an|he|she|it|they|this|these|his|her|its|their|we|I)\b"
# Parts that can be removed from a sentence without making it untrue.
_DROPPED = [
    re.compile(r" \([^()]{2,80}\)"),
    re.compile(
        r"^(?:In|On|At|During|Since|By|From|Over|As of|Throughout) [^,.;]{2,45}, (?="
        + _SUBJECT
        + ")"
    ),
    re.compile(r", (?:which|who|whose|where) [^,;]{5,90}(?=,)(?!, (?:and|or|but)\b),"),
    re.compile(r", (?:which|who|whose|where) [^,;]{5,90}(?=\.$)"),
    re.compile(r", \w+ing [^,;]{5,80}(?=\.$)"),
    re.compile(r"^(?:However|Moreover|Furthermore|Additionally|In addition|Also|Finally|Then), "),
]


def use_synonym(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Replace a word by a synonym; None if no word has one."""
    return exchange("synonyms", sentence, rng)


def rewrite_number(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Write a number in another way: `1,000` and `1000`, `twelve` and `12`, `5%` and `5 percent`.

    None if there is no such number; years stay.
    """
    ways = [
        (r"\b\d{1,3}(?:,\d{3})+\b", ""),
        (r"(?<![\w.,])([1-9]\d?)(\d{3})(?= [a-z])(?![\w.,]\d)", r"\1,\2"),
        (r"(\d)%", r"\1 percent"),
        (r"(\d) per ?cent\b", r"\1%"),
    ]
    rng.shuffle(ways)
    for pattern, new in ways:
        match = re.search(pattern, sentence)
        if match and not is_year(match[0]):
            return replace_match(
                sentence, match, match.expand(new) if new else match[0].replace(",", "")
            )
    match = NUMBER_WORD.search(sentence)
    if match and match[0].lower() in NUMBERS and sentence[match.end() : match.end() + 1] != "-":
        number = str(NUMBERS.index(match[0].lower()))
        return replace_match(sentence, match, number) if match.start() else None
    match = NUMBER.search(sentence)
    if match and match[0].isdigit() and _is_plain_count(sentence, match):
        return replace_match(sentence, match, number_words(int(match[0])))
    return None


def _is_plain_count(sentence: str, match: re.Match[str]) -> bool:
    """Return whether a number is 2 to 20 and counts things, as in `they saw 5 ships`.

    False beside names, months, signs and the sentence's ends.
    """
    before, after = sentence[: match.start()].split(), sentence[match.end() :].split()
    return (
        2 <= int(match[0]) <= 20
        and bool(before)
        and bool(after)
        and not before[-1][0].isupper()
        and after[0].isalpha()
        and after[0] not in MONTHS
    )


def rewrite_date(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Write a date or time in another way: `3 May` and `May 3`, `17:00` and `5 p.m.`.

    None without one, and for a date at the end of a span, such as `1 to 3 May`.
    """
    match = _DATE.search(sentence)
    if match and sentence[: match.start()].endswith((" to ", "-", "\u2013", " and ")):
        return None
    if match:
        year = f", {match[3]}" if match[3] else ""
        return replace_match(sentence, match, f"{match[2]} {match[1]}{year}")
    match = _DATE_US.search(sentence)
    if match:
        year = f" {match[3]}" if match[3] else ""
        day = rng.choice((match[2], ordinal(int(match[2])) if not year else match[2]))
        return replace_match(sentence, match, f"{day} {match[1]}{year}")
    match = _CLOCK.search(sentence)
    if match and 1 <= int(match[1]) <= 12:
        hour = int(match[1]) % 12 + (12 if match[3].lower() == "p" else 0)
        stop = "." if match[0].endswith(".") and match.end() == len(sentence) else ""
        return replace_match(sentence, match, f"{hour:02d}:{match[2] or '00'}{stop}")
    match = _CLOCK_24.search(sentence)
    if match:
        hours = int(match[1]) + int(match[2]) / 60
        at_end = match.end() >= len(sentence) - 1
        return replace_match(sentence, match, clock_time(hours, 2 if at_end else 1))
    return None


def contract(sentence: str, _passage: str, _rng: random.Random) -> str | None:
    """Write `is not` as `isn't`, `cannot` as `can't`, .., or the other way; None without one."""
    for pattern, new in (
        (r"\b(is|was|are|were|has|have|had|does|did|do|could|would|should) not\b", r"\1n't"),
        (r"\b(is|was|are|were|has|have|had|does|did|do|could|would|should)n't\b", r"\1 not"),
        (r"\bcannot\b", "can't"),
        (r"\bcan't\b", "cannot"),
        (r"\bwill not\b", "won't"),
        (r"\bwon't\b", "will not"),
    ):
        edited = re.sub(pattern, new, sentence, count=1)
        if edited != sentence:
            return edited
    return None


def shorten(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Drop a parenthesis, an opening phrase or a clause between commas.

    None if there is none, or under five words would be left.
    """
    for pattern in rng.sample(_DROPPED, len(_DROPPED)):
        edited = pattern.sub("", sentence, count=1)
        if edited != sentence and len(edited.split()) >= 5:
            return capital(edited)
    return None


# `shorten` is not among these: it could remove the change of another edit.
HARMLESS: dict[Edit, int] = {use_synonym: 4, rewrite_number: 3, rewrite_date: 4, contract: 4}
