"""The look-up of the values of a JSON reply in the text that they had to be taken from."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from calibrator.readers.evidence.computed.basics.numbers import (
    number_text,
    number_words,
    numbers_in,
)
from calibrator.readers.evidence.computed.basics.word_lists import word_set
from calibrator.readers.evidence.computed.calendar.reading import (
    FoundDate,
    FoundTime,
    dates_in,
    times_in,
)
from calibrator.readers.evidence.computed.structured.json_requests import JsonRequest
from calibrator.readers.evidence.computed.structured.json_shapes import MAX_DEPTH, plain_key
from calibrator.readers.evidence.computed.structured.json_sources import (
    is_converted,
    is_spelled_out,
    is_written,
    may_follow,
    stems_of,
)

MAX_VALUES: Final = 200
FREE: Final = re.compile(
    r"sentiment|categor|type|status|summar|descri|topic|label|tag|keyword|reason|note|gender"
    r"|priorit|intent|language|currenc|country|unit|kind|urgen|emotion|tone|class|level|severity"
    r"|comment|explan|confiden|score|rating|title|subject|format|mood|opinion|action|answer"
    r"|response|reply|message|question|translation|code$|abbrev|role|relation|genre|importance"
    r"|frequency|method|mode|timezone|source|lang$|iso|event|purpose|symptom|issue|problem|request"
    r"|need|feature|skill|range|step|aspect|theme|wish|tip|hint|allerg|remark|sprache|thema"
)
_COMPUTED: Final = re.compile(
    r"total|count|sum|average|mean|age$|duration|quantit|number|num|nights|days|subtotal|change"
    r"|difference|length|size|amount_due|balance|year|hours|minutes|people|guests|seats|party|tax"
    r"|remaining|percent|index|rank|id$|per|tip|share|rate|times|frequency|vat|discount|fee|due"
)
_EXACT: Final = re.compile(
    r"name|e?mail|phone|tel|mobile|fax|iban|sku|number|date|price|cost|amount|city|company|url"
    r"|website|zip|postal|street|address|customer|person|author|sender|recipient|vendor|store"
    r"|brand|product|item|location|place|destination|origin"
)
DATE_KEY: Final = re.compile(
    r"date|day|deadline|birth|dob|datum|fecha|due|when|start|end"
    r"|departure|arrival|check|until|expir|valid|since|issued|born|deliver|ship"
)
TIME_KEY: Final = re.compile(r"time|hour|uhrzeit|hora|heure|when|start|end")
_RELATIVE: Final = re.compile(
    r"\b(?:today|tomorrow|yesterday|tonight|(?:next|last|this|coming|following) (?:week|month|year"
    r"|\w+day)|in \w+ (?:days?|weeks?|months?)|ago|monday|tuesday|wednesday|thursday|friday"
    r"|saturday|sunday|later|weekend|heute|morgen|gestern|nächste\w*|mañana|ayer|hoy|próximo"
    r"|demain|hier|prochain\w*)\b",
    re.IGNORECASE,
)
_SHIFTED: Final = re.compile(  # words from which another time of day follows
    r"\b(?:(?:in|after|within|for) (?:an?|half|\d+|[a-z]+) (?:hours?|minutes?|mins?)|later|earlier"
    r"|delayed|postponed|utc|gmt|time ?zone|hours? (?:before|after))\b",
    re.IGNORECASE,
)
_CLOCK: Final = re.compile(
    r"\b(?P<p>half|quarter|halb|viertel)(?P<to> past| to| after| till| nach| vor|)"
    r" (?P<h>\d{1,2}|[a-zäöüß]{3,8})\b",
    re.IGNORECASE,
)
_AMOUNTS: Final = {  # words for amounts, apart from the names of numbers
    word: Fraction(value)
    for value, words in (
        ("1", "once single daily alone a an one einmal ein eine un une uno una"),
        ("2", "twice both pair couple double two zweimal beide doppelt zwei deux dos"),
        ("3", "thrice triple trio dreimal drei trois tres"),
        ("6", "sechs six seis"),
        ("12", "dozen dozens dutzend douzaine docena"),
        ("1/2", "half halb halbe"),
        ("1/4", "quarter viertel"),
        ("3/2", "anderthalb"),
    )
    for word in words.split()
}
MAX_READ: Final = 20_000  # characters that are searched for dates and times
HALF_DAY: Final = 12 * 60
COPIED: Final = re.compile(
    r"\b(?:copy|verbatim|as printed|in the words used|exactly as|word for word"
    r"|as (?:it |they )?(?:is |are )?(?:written|spelled|spelt)|as (?:it )?appears?)\b",
    re.IGNORECASE,
)
_EMAIL: Final = re.compile(r"[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")


class SourceText:
    """A text in the forms that a look-up of values needs, each computed when first used."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> str:
        """The words in lower case, each between single spaces."""
        return f" {plain_words(self.text)} "

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """The set of the words."""
        return frozenset(self.words.split())

    @cached_property
    def stems(self) -> frozenset[str]:
        """The first four letters of the words that are longer than three."""
        return frozenset(word[:4] for word in self.vocabulary if len(word) > 3)

    @cached_property
    def word_stems(self) -> frozenset[str]:
        """The words, also without their last one or two letters."""
        return frozenset().union(*map(stems_of, self.vocabulary))

    @cached_property
    def joined_words(self) -> str:
        """The letters and digits without anything between them."""
        return self.words.replace(" ", "")

    @cached_property
    def numbers(self) -> frozenset[Fraction]:
        """The possible values of the numbers in the text, percentages also as fractions of 1."""
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
        for word, value in _AMOUNTS.items():
            if word in self.vocabulary:
                values.add(value)
        return frozenset(values)

    @cached_property
    def dates(self) -> list[FoundDate]:
        """The dates of the first MAX_READ characters."""
        return dates_in(self.text[:MAX_READ])

    @cached_property
    def times(self) -> frozenset[int]:
        """The times of day of the first part, in minutes modulo 12 hours."""
        text = self.text[:MAX_READ]
        found = {time.minutes % HALF_DAY for time in times_in(text)}
        for match in _CLOCK.finditer(text):
            hour = number_words().get(match["h"].casefold()) or int(
                match["h"] if match["h"].isdigit() else 99
            )
            if hour <= 24:
                part = match["p"].casefold()
                minutes = 30 if part.startswith(("half", "halb")) else 15
                if part.startswith("halb") or match["to"].casefold() in ("to", "till", "vor"):
                    minutes = -minutes
                found.add((60 * hour + minutes) % HALF_DAY)
        return frozenset(found)


_ABSENT_WORDS: Final = word_set(
    "null none n/a unknown not_specified not_stated dontcare not_provided not_mentioned na"
    " unspecified true false yes no"
)


def plain_words(text: str) -> str:
    """Return a text in lower case with single spaces, without marks and accents."""
    folded = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(character for character in folded if not unicodedata.combining(character))
    return " ".join(re.sub(r"[\W_]+", " ", plain).split())


def is_absence(leaf: str) -> bool:
    """Return whether a string says that there is no value, such as `n/a`, or says yes or no."""
    return leaf.strip().casefold().replace(" ", "_") in _ABSENT_WORDS


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path of keys, value) for each value that has no parts.

    Lists do not count in the path.
    """
    if len(path) > 20:
        return
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from leaves(part, (*path, str(name)))
    elif isinstance(value, list):
        for part in value:
            if not isinstance(part, list):
                yield from leaves(part, path)
    else:
        yield path, value


def objects_in(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield each object in a JSON value, outer ones first."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, Mapping):
        yield value
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping | list):
        for part in parts:
            yield from objects_in(part, depth + 1)


def amount_of(value: Any) -> Fraction | None:
    """Return a JSON number as a fraction; None for other values, and from 1e12 on."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Fraction(str(value)) if is_number and abs(value) < 1e12 else None


def fault_of_quotes(value: Any, source: SourceText, request: JsonRequest) -> str | None:
    """Describe a value that must be a quotation and is not word for word in the text.

    Else None.
    """
    if not any(part.is_quote for shape in request.shapes for _, part in shape.parts()):
        return None
    for _, (path, leaf) in zip(range(MAX_VALUES), leaves(value), strict=False):
        shape = request.shape_at(path)
        is_quote = shape is not None and shape.is_quote and isinstance(leaf, str)
        if is_quote and f" {plain_words(leaf)} " not in source.words:
            return f'"{path[-1]}" is not word for word in the text'
    return None


def fault_of_values(value: Any, source: SourceText, request: JsonRequest, wish: str) -> str | None:
    """Describe the first value that is not from the text, or return None.

    `wish` is the request for JSON, which may want the values word for word.
    """
    is_verbatim = bool(COPIED.search(wish))
    for count, (path, leaf) in enumerate(leaves(value)):
        if count >= MAX_VALUES:
            return None
        fault = fault_of_value(path, leaf, source, request, is_verbatim=is_verbatim)
        if fault:
            return fault
    return None


def fault_of_value(
    path: tuple[str, ...], leaf: Any, source: SourceText, request: JsonRequest, *, is_verbatim: bool
) -> str | None:
    """Describe how a value differs from everything in the text for its key, or return None.

    Choices, truth values, and texts that a model writes are not judged. `path` are its keys.
    """
    key = path[-1] if path else ""
    plain = plain_key(key)
    shape = request.shape_at(path)
    if isinstance(leaf, bool) or (shape is not None and shape.choices):
        return None
    if leaf is None or leaf == "":
        return _absence_fault(key, plain, source)
    if is_written(path) and not is_verbatim:
        return None
    if isinstance(leaf, int | float):
        if leaf not in (0, 1) and is_converted(path, source.text, request.prompt):
            return None
        return _number_fault(key, plain, leaf, source)
    if not isinstance(leaf, str):
        return None
    return _string_fault(key, plain, leaf, source, is_verbatim=is_verbatim)


def _absence_fault(key: str, plain: str, source: SourceText) -> str | None:
    """Describe an empty email although the text has exactly one, or return None."""
    if plain in ("email", "emailaddress", "mail", "contactemail", "customeremail"):
        found = set(map(str.casefold, _EMAIL.findall(source.text[:20_000])))
        if len(found) == 1:
            return f'"{key}" is empty, but the text has {found.pop()}'
    return None


def may_be_computed(plain: str, source: SourceText) -> bool:
    """Return whether a key's value, such as an age or a total, may follow from the text."""
    if plain == "age":
        return (
            bool(re.search(r"\b(?:1[89]|20)\d\d\b|\bborn\b", source.text))
            or len(source.numbers) < 1
        )
    return _COMPUTED.search(plain) is not None


def _number_fault(key: str, plain: str, leaf: float, source: SourceText) -> str | None:
    """Describe a number that the text has in no form, or return None."""
    if FREE.search(plain) or leaf in (0, 1):
        return None
    if plain == "year" and not re.search(r"\b(?:19|20)\d\d\b", source.text):
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
    if may_be_computed(plain, source):
        return None
    digits = re.sub(r"\D", "", repr(leaf))
    if len(digits) >= 4 and digits in re.sub(r"\D", "", source.text):
        return None
    return f'"{key}" is {number_text(value)}, which is not in the text'


def _string_fault(
    key: str, plain: str, leaf: str, source: SourceText, *, is_verbatim: bool
) -> str | None:
    """Describe a string that the text does not have, or return None."""
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
    if len(joined) > 3 and joined in source.joined_words:
        return None
    if is_absence(leaf):
        return None
    if plain == "year" and not re.search(r"\b(?:19|20)\d\d\b", source.text):
        return None
    if FREE.search(plain) and (
        not is_verbatim or plain.endswith(("type", "category", "status", "range"))
    ):
        return None
    dated = _is_other_date(leaf, plain, source)
    if dated is not None:
        return f'"{key}" is {leaf[:60]}, which is not in the text' if dated else None
    return _words_fault(key, plain, leaf, words, source, is_verbatim=is_verbatim)


def _is_other_date(leaf: str, plain: str, source: SourceText) -> bool | None:
    """Return whether a date or time differs from all in the text; None if the value is neither."""
    dates = dates_in(leaf)
    times = times_in(leaf)
    is_all_date = bool(dates) and dates[0].start == 0
    if dates and (DATE_KEY.search(plain) or is_all_date):
        wanted = {(day.month, day.day) for found in dates for day in found.values}
        known = {(day.month, day.day) for found in source.dates for day in found.values}
        if not wanted & known:
            if may_follow(dates, plain, source.text, source.dates):
                return False
            is_moved = _RELATIVE.search(source.text) or _SHIFTED.search(source.text)
            return bool(known) and not is_moved
        years = {day.year for found in dates for day in found.values if found.has_year}
        known_years = {
            day.year
            for found in source.dates
            for day in found.values
            if found.has_year and (day.month, day.day) in wanted
        }
        if years and known_years and not years & known_years:
            return True
        return False if not times else _is_other_time(times, plain, source)
    if times and (TIME_KEY.search(plain) or times[0].start == 0 or dates):
        return _is_other_time(times, plain, source)
    return None


def _is_other_time(times: list[FoundTime], plain: str, source: SourceText) -> bool:
    """Return whether none of these times of day is in the text; False if one may be computed."""
    if {time.minutes % HALF_DAY for time in times} & source.times:
        return False
    if (
        not source.times
        or re.search(r"end|until|finish|arriv", plain)
        or _SHIFTED.search(source.text)
    ):
        return False
    return not any(Fraction(time.minutes // 60 % 12 or 12) in source.numbers for time in times)


def _words_fault(
    key: str, plain: str, leaf: str, words: str, source: SourceText, *, is_verbatim: bool
) -> str | None:
    """Describe words that the text lacks in any order or form, or return None."""
    parts = words.split()
    digits = re.sub(r"\D", "", leaf)
    if len(digits) >= 7 and digits[-7:] in re.sub(r"\D", "", source.text):
        return None  # a telephone number with a country code
    numbers = numbers_in(leaf)
    if len(numbers) == 1 and re.fullmatch(
        r"[^\w]*[\d.,\s'%]+[^\w]*|[$€£¥]?\s?[\d.,']+\s?"
        r"(?:[A-Za-z]{1,8}\.?|[$€£¥])?",
        leaf.strip(),
    ):
        if any(value in source.numbers for number in numbers for value in number.values):
            return None
        if not is_verbatim and may_be_computed(plain, source):
            return None
        return f'"{key}" is {leaf.strip()[:60]}, which is not in the text'
    if len(digits) >= 6 and len(digits) * 2 >= len(leaf) - leaf.count(" "):
        known = re.sub(r"\D", "", source.text)
        if digits in known or digits[-7:] in known:
            return None
        return f'"{key}" is {leaf[:60]}, which is not in the text'
    missing = [part for part in parts if part not in source.vocabulary]
    if not is_verbatim:
        missing = [part for part in missing if not stems_of(part) & source.word_stems]
        if missing and is_spelled_out(leaf, source.text):
            return None
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
