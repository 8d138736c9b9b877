"""Right values of a JSON reply whose words or numbers are not in the text.

They are converted to another unit, written by the model, spelled out from an abbreviation, or
inflected.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.readers.evidence.computed.calendar.reading import FoundDate
from calibrator.readers.evidence.computed.structured.json_shapes import plain_key
from calibrator.readers.evidence.computed.sums.unit_table import units

MAX_READ: Final = 20_000  # characters that are searched for units
_WRITTEN: Final = re.compile(  # keys of values that a model writes and does not copy
    r"option|choice|distractor|alternativ|title|headline|heading|caption|slogan|tagline|subject"
    r"|idea|question|quiz|example|suggest|recommend|advice|hint|tip|translat|explan|explain"
    r"|rationale|reason|summar|abstract|flashcard|^front$|^back$|feedback|comment|critique"
    r"|correct|fix(?:ed|es)?$|improv|rewrit|rephras|reword|paraphras|simplif|synonym|antonym"
    r"|definition|meaning|formal|friendly|casual|polite|^short$|^long$|draft|outline|intro"
    r"|conclusion|hook|reply|replies|response|answer|plan|goal|objective|activit|exercise|homework"
    r"|step|lesson|insight|analysis|interpret|conclu|takeaway|next|todo|^text$|^english$"
    r"|^german$|^french$|^spanish$|^italian$"
)
_CREATES: Final = re.compile(
    r"\b(?:quiz(?:zes)?|flash ?cards?|brainstorm|ideas?|slogans?|headlines?|rephrase|paraphrase"
    r"|reword|simplify|improve|propose|design|plan (?:a|an|my|the|our)|draft|explain|synonyms?"
    r"|(?:multiple-choice|comprehension|test|exam|interview|follow-up) questions?"
    r"|(?:write|make|create|give|produce|formulate) (?:\w+ ){0,3}(?:questions|titles|examples"
    r"|suggestions|exercises|tasks|tips|names)"
    r"|(?:values?|answer|everything|output|texts?|names?) (?:\w+ ){0,3}in (?:english|german|french"
    r"|spanish|italian|dutch|portuguese|polish)|auf (?:deutsch|englisch)|en (?:espa[nñ]ol|inglés"
    r"|français|anglais)|(?:in|into|to) (?:english|german|french|spanish|italian))\b",
    re.IGNORECASE,
)
_KEY_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_UNIT_WORD: Final = re.compile(r"[^\W\d_]+|[€$£¥%°]")
_CURRENCY: Final = {
    word: size
    for size, words in (
        (1, "euro euros eur € dollar dollars usd $ pound pounds gbp £ franc francs chf"),
        (100, "cent cents ct pence p rappen"),
        (1000, "k thousand tsd tausend mille mil"),
        (1_000_000, "m million millions mio mn"),
    )
    for word in words.split()
}
_TIME: Final = {
    word: size
    for size, words in (
        (1, "s sec secs second seconds sekunde sekunden segundos seconde secondes"),
        (60, "min mins minute minutes minuten minutos"),
        (3600, "h hr hrs hour hours stunde stunden hora horas heure heures"),
        (86_400, "d day days daily tag tage tagen día días jour jours overnight"),
        (604_800, "week weeks weekly woche wochen semana semanas semaine fortnight"),
        (2_592_000, "month months monthly monat monate mes meses mois quarter quarters quarterly"),
        (31_536_000, "year years yearly annual annually jahr jahre año años an ans decade decades"),
    )
    for word in words.split()
}
_MILLI: Final = word_set("ms millis millisecond milliseconds millisekunden")
_IN_UNIT: Final = re.compile(r"\b(?:in|as|into|to|auf|en)\s+(?P<u>[^\W\d_]{1,14})\b", re.IGNORECASE)
_CLOCK: Final = re.compile(r"\d:\d\d")
_ABBREVIATION: Final = re.compile(r"\b[A-Z][A-Za-z]?[A-Z]{0,4}\b")
_TERM: Final = re.compile(
    r"\b(?:\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten|twelve|fourteen|fifteen|twenty"
    r"|thirty|sixty|ninety|net|zwei|drei|vier|fünf|dos|tres|cuatro|cinco|deux|trois|quatre|cinq)"
    r"[ -](?:\w+ )?(?:days?|nights?|nächte[n]?|noches|nuits|weeks?|fortnights?|months?|quarters?"
    r"|years?|tage[n]?|wochen?|monate?n?|jahre?|días|semanas"
    r"|meses|años|jours|semaines|mois|ans)\b"
    r"|\bfortnight\b|\b(?:end|ende|beginning|middle) (?:of|des)\b|\bnet \d+\b",
    re.IGNORECASE,
)
_RANGE: Final = (  # a day of a range or a list, such as the 4 of `4 to 9 July` or `July 4, 5 and 6`
    r"(?<![\d/.:-])0?{day}(?:st|nd|rd|th|\.)?\s*(?:,|&|-|–|to\b|and\b|or\b|bis\b|und\b|until\b"
    r"|through\b|al?\b|y\b|et\b|au\b)\s*(?:the\s+)?\d{{1,2}}(?![\d:/])"
    r"|\d(?:st|nd|rd|th|\.)?\s*(?:,|&|-|–|to|and|or|bis|und|until|through|al?|y|et|au)\s*"
    r"(?:the\s+)?0?{day}(?![\d:/.-])"
)
_LATER: Final = re.compile(
    r"due|until|expir|end|deadline|valid|next|renew|pay|follow|return|ready|checkout|depart|leav|to$"
)


def is_written(path: Sequence[str]) -> bool:
    """Return whether a key on a value's path names text that a model writes, such as `summary`."""
    return any(_WRITTEN.search(plain_key(key)) for key in path)


def wants_writing(ask: str) -> bool:
    """Return whether a request asks for new content, such as `Create quiz questions`."""
    return _CREATES.search(ask) is not None


def _measure(word: str) -> tuple[str, Fraction] | None:
    """Return (dimension, size) of a unit such as `km`, a time or a currency.

    None for other words.
    """
    word = word.casefold()
    if word in _MILLI:
        return "time", Fraction(1, 1000)
    if word in _TIME:
        return "time", Fraction(_TIME[word])
    unit = units().get(word)
    if unit is not None:
        return unit.dimension, unit.size + unit.zero
    return ("money", Fraction(_CURRENCY[word])) if word in _CURRENCY else None


_CONVERTS: Final = re.compile(
    r"\bconvert(?:ed)?\b(?![^.\n]{0,40}\bjson\b)|\bumrechnen\b|\brechne\b[^.\n]{0,40}\bum\b"
    r"|\d\s?[a-z]{1,12}\s?=\s?\d+(?:[.,]\d+)?\s?[a-z]{1,12}\b",  # 1 cup = 240 ml
    re.IGNORECASE,
)


def is_converted(path: Sequence[str], text: str, ask: str) -> bool:
    """Return whether a number may be converted, as the key or the prompt names another unit.

    An example is the key `length_mm` where the text has centimetres.
    """
    words = [word for key in path for word in _KEY_WORD.findall(key)]
    words += [found["u"] for found in list(_IN_UNIT.finditer(ask[:MAX_READ]))[:40]]
    if _CONVERTS.search(ask[:MAX_READ]):
        return True
    wanted = {measure for word in words if (measure := _measure(word)) is not None}
    if not wanted:
        return False
    stated_sizes: dict[str, set[Fraction]] = {}
    for word in {found.casefold() for found in _UNIT_WORD.findall(text[:MAX_READ])}:
        if (measure := _measure(word)) is not None:
            stated_sizes.setdefault(measure[0], set()).add(measure[1])
    if any(dimension == "time" for dimension, _ in wanted) and _CLOCK.search(text[:MAX_READ]):
        return True
    return any(stated_sizes.get(dimension, set()) - {size} for dimension, size in wanted)


def is_spelled_out(leaf: str, text: str) -> bool:
    """Return whether a text abbreviates the value, or the value abbreviates words of the text."""
    letters = "".join(sign for sign in leaf.casefold() if sign.isalnum())[:200]
    for short in set(_ABBREVIATION.findall(text[:MAX_READ])):
        if len(short) > 1 and letters[:1] == short[0].casefold() and _is_within(short, letters):
            return True
    if not (leaf.isupper() and 2 <= len(leaf) <= 6 and leaf.isalpha()):
        return False
    initials = "".join(word[0] for word in re.findall(r"[^\W\d_]+", text[:MAX_READ]))
    return leaf.casefold() in initials.casefold()


def _is_within(short: str, letters: str) -> bool:
    """Return whether the letters of `short` occur in `letters` in their order."""
    rest = iter(letters)
    return all(sign in rest for sign in short.casefold())


def stems_of(word: str) -> frozenset[str]:
    """Return a word with its forms without one or two last letters, at least four long."""
    return frozenset({word, *(word[:-cut] for cut in (1, 2) if len(word) - cut >= 4)})


def may_follow(
    dates: Sequence[FoundDate], plain: str, text: str, known: Sequence[FoundDate]
) -> bool:
    """Return whether a date follows from a text: a term later, or a day of a range.

    An example is `3-5 May`. `plain` is the plain key of the date, and `known` are the dates of the
    text.
    """
    if _LATER.search(plain) and _TERM.search(text[:MAX_READ]):
        return True
    months = {day.month for found in known for day in found.values}
    near = {day.day for found in dates for day in found.values if day.month in months}
    return any(re.search(_RANGE.format(day=day), text[:MAX_READ]) for day in near)
