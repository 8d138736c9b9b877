"""Values of a JSON reply, looked up in the text that they were to be taken from."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from calibrator.evidence.computed.calendar.reading import dates_in, times_in
from calibrator.evidence.computed.numbers import number_text, numbers_in
from calibrator.evidence.computed.structured.json_shapes import Shape, plain_key

MAX_VALUES: Final = 200
_FREE: Final = re.compile(
    r"sentiment|categor|type|status|summar|descri|topic|label|tag|keyword|reason|note|gender"
    r"|priorit|intent|language|currenc|country|unit|kind|urgen|emotion|tone|class|level|severity"
    r"|comment|explan|confiden|score|rating|title|subject|format|mood|opinion|action|answer"
    r"|response|reply|message|question|translation|code$|abbrev|role|relation|genre|importance"
    r"|frequency|method|mode|timezone|source|lang$|iso|event|purpose|symptom|issue|problem|request"
    r"|need|feature|skill"
)
_COMPUTED: Final = re.compile(
    r"total|count|sum|average|mean|age$|duration|quantit|number|num|nights|days|subtotal|change"
    r"|difference|length|size|amount_due|balance|year|hours|minutes|people|guests|seats|party|tax"
    r"|remaining|percent|index|rank|id$"
)
_EXACT: Final = re.compile(
    r"name|e?mail|phone|tel|mobile|fax|iban|sku|number|date|price|cost|amount|city|company|url"
    r"|website|zip|postal|street|address|customer|person|author|sender|recipient|vendor|store"
    r"|brand|product|item|location|place|destination|origin"
)
_DATE_KEY: Final = re.compile(
    r"date|day|deadline|birth|dob|datum|fecha|due|when|start|end"
    r"|departure|arrival|check"
)
_TIME_KEY: Final = re.compile(r"time|hour|uhrzeit|hora|heure|when|start|end")
_RELATIVE: Final = re.compile(
    r"\b(?:today|tomorrow|yesterday|tonight|(?:next|last|this|coming|following) (?:week|month|year"
    r"|\w+day)|in \w+ (?:days?|weeks?|months?)|ago|monday|tuesday|wednesday|thursday|friday"
    r"|saturday|sunday|later|weekend|heute|morgen|gestern|nächste\w*|mañana|ayer|hoy|próximo"
    r"|demain|hier|prochain\w*)\b",
    re.IGNORECASE,
)
_EMAIL: Final = re.compile(r"[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")


class Source:
    """A text in which values are looked up, in the forms that the comparison needs."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> str:
        """The words in lower case, each between single spaces."""
        return f" {plain_words(self.text)} "

    @cached_property
    def known(self) -> frozenset[str]:
        """The set of the words."""
        return frozenset(self.words.split())

    @cached_property
    def stems(self) -> frozenset[str]:
        """The beginnings of the words."""
        return frozenset(word[:4] for word in self.known if len(word) > 3)

    @cached_property
    def joined(self) -> str:
        """The letters and digits without anything between them."""
        return self.words.replace(" ", "")

    @cached_property
    def numbers(self) -> frozenset[Fraction]:
        """Every value that a number of the text may have, shares as a hundredth too."""
        values: set[Fraction] = set()
        for is_comma in (False, True):
            for number in numbers_in(self.text, is_comma):
                for value in number.values:
                    values |= {value, abs(value)}
                    if number.is_percent:
                        values.add(value / 100)
        for found in re.finditer(r"\d+", self.text):
            if len(found[0]) <= 30:
                values.add(Fraction(int(found[0])))
        return frozenset(values)


def plain_words(text: str) -> str:
    """Return the letters and digits of a text in lower case, with single spaces between words."""
    folded = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(character for character in folded if not unicodedata.combining(character))
    return " ".join(re.sub(r"[\W_]+", " ", kept).split())


def leaves(value: Any, key: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield each value of JSON that has no parts, with the nearest key above it."""
    if depth > 20:
        return
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from leaves(part, str(name), depth + 1)
    elif isinstance(value, list):
        for part in value:
            yield from leaves(part, key, depth + 1)
    else:
        yield key, value


def fault_of_values(value: Any, text: str, shape: Shape, wish: str) -> str | None:
    """Return a value that the text cannot have given, or None; `wish` says what was asked."""
    source = Source(text)
    is_verbatim = bool(
        re.search(
            r"\b(?:copy|verbatim|as printed|in the words used|exactly as"
            r"|word for word|as (?:it )?(?:is )?written|as (?:it )?appears?)\b",
            wish,
            re.IGNORECASE,
        )
    )
    for count, (key, leaf) in enumerate(leaves(value)):
        if count >= MAX_VALUES:
            return None
        plain = plain_key(key)
        if plain in shape.choices or isinstance(leaf, bool):
            continue
        if leaf is None or leaf == "":
            fault = _absence_fault(key, plain, source)
        elif isinstance(leaf, int | float):
            fault = _number_fault(key, plain, leaf, source)
        elif isinstance(leaf, str):
            fault = _string_fault(key, plain, leaf, source, is_verbatim=is_verbatim)
        else:
            fault = None
        if fault:
            return fault
    return None


def _absence_fault(key: str, plain: str, source: Source) -> str | None:
    if plain in ("email", "emailaddress", "mail", "contactemail", "customeremail"):
        found = set(map(str.casefold, _EMAIL.findall(source.text[:20_000])))
        if len(found) == 1:
            return f'"{key}" is empty, but the text has {found.pop()}'
    return None


def _may_be_computed(plain: str, source: Source) -> bool:
    """Return whether the value of a key may follow from the text without standing in it."""
    if plain == "age":
        return (
            bool(re.search(r"\b(?:1[89]|20)\d\d\b|\bborn\b", source.text))
            or len(source.numbers) < 1
        )
    return _COMPUTED.search(plain) is not None


def _number_fault(key: str, plain: str, leaf: float, source: Source) -> str | None:
    if _FREE.search(plain) or leaf in (0, 1):
        return None
    try:
        value = Fraction(repr(leaf)) if isinstance(leaf, float) else Fraction(leaf)
    except (ValueError, OverflowError):
        return None
    if value in source.numbers or abs(value) in source.numbers:
        return None
    if any(
        value * scale in source.numbers
        for scale in (100, 1000, Fraction(1, 100), Fraction(1, 1000), 1000000)
    ):
        return None
    if _may_be_computed(plain, source):
        return None
    digits = re.sub(r"\D", "", repr(leaf))
    if len(digits) >= 4 and digits in re.sub(r"\D", "", source.text):
        return None
    return f'"{key}" is {number_text(value)}, which is not in the text'


def _string_fault(
    key: str, plain: str, leaf: str, source: Source, *, is_verbatim: bool
) -> str | None:
    if len(leaf) > 2000:
        return None
    if "@" in leaf and _EMAIL.fullmatch(leaf.strip()):
        if leaf.strip().casefold() in source.text.casefold():
            return None
        return f"the email {leaf.strip()[:60]} is not in the text"
    if plain in ("email", "emailaddress") and "@" in source.text and "@" not in leaf:
        return f'"{key}" is no email address'
    words = plain_words(leaf)
    if not words or f" {words} " in source.words:
        return None
    joined = words.replace(" ", "")
    if len(joined) > 3 and joined in source.joined:
        return None
    if leaf.strip().casefold() in (
        "null",
        "none",
        "n/a",
        "unknown",
        "not specified",
        "not stated",
        "dontcare",
        "not provided",
        "not mentioned",
        "na",
        "unspecified",
        "true",
        "false",
        "yes",
        "no",
    ):
        return None
    if _FREE.search(plain) and (not is_verbatim or plain.endswith(("type", "category", "status"))):
        return None
    dated = _dated(leaf, plain, source)
    if dated is not None:
        return f'"{key}" is {leaf[:60]}, which is not in the text' if dated else None
    return _words_fault(key, plain, leaf, words, source, is_verbatim=is_verbatim)


def _dated(leaf: str, plain: str, source: Source) -> bool | None:
    """Return whether a date or time differs from all of the text; None if it is neither."""
    dates = dates_in(leaf)
    if dates and (_DATE_KEY.search(plain) or dates[0].start == 0 == len(leaf) - dates[0].end):
        others = dates_in(source.text[:20_000])
        wanted = {(day.month, day.day) for found in dates for day in found.values}
        known = {(day.month, day.day) for found in others for day in found.values}
        if wanted & known:
            years = {day.year for found in dates for day in found.values if found.has_year}
            given = {
                day.year
                for found in others
                for day in found.values
                if found.has_year and (day.month, day.day) in wanted
            }
            return bool(years and given and not years & given)
        return bool(others) and not _RELATIVE.search(source.text)
    times = times_in(leaf)
    if times and (_TIME_KEY.search(plain) or times[0].start == 0):
        others_ = times_in(source.text[:20_000])
        half = 12 * 60
        if {time.minutes % half for time in times} & {time.minutes % half for time in others_}:
            return False
        hours = {number for number in source.numbers if number.denominator == 1}
        return bool(others_) and not any(
            Fraction(time.minutes // 60 % 12 or 12) in hours for time in times
        )
    return None


def _words_fault(
    key: str, plain: str, leaf: str, words: str, source: Source, *, is_verbatim: bool
) -> str | None:
    parts = words.split()
    numbers = numbers_in(leaf)
    if len(numbers) == 1 and re.fullmatch(
        r"[^\w]*[\d.,\s'%]+[^\w]*|[$€£¥]?\s?[\d.,']+\s?"
        r"(?:[A-Za-z]{1,8}\.?|[$€£¥])?",
        leaf.strip(),
    ):
        if any(value in source.numbers for number in numbers for value in number.values):
            return None
        if not is_verbatim and _may_be_computed(plain, source):
            return None
        return f'"{key}" is {leaf.strip()[:60]}, which is not in the text'
    digits = re.sub(r"\D", "", leaf)
    if len(digits) >= 6 and len(digits) * 2 >= len(leaf) - leaf.count(" "):
        known = re.sub(r"\D", "", source.text)
        if digits in known or digits[-7:] in known:
            return None
        return f'"{key}" is {leaf[:60]}, which is not in the text'
    missing = [part for part in parts if part not in source.known]
    if any(re.search(r"\d", part) for part in missing) and len(parts) <= 6 and "date" not in plain:
        return f'"{key}" is "{leaf[:60]}", which is not in the text'
    is_exact = bool(_EXACT.search(plain)) or is_verbatim
    if not is_exact:
        missing = [part for part in missing if part[:4] not in source.stems]
        if 2 * len(missing) <= len(parts):
            return None
    if not missing:
        return None
    if len(parts) <= 3 or 2 * len(missing) > len(parts):
        if len(parts) > 1 and not is_exact:
            return None
        return f'"{key}" is "{leaf[:60]}", which is not in the text'
    return None
