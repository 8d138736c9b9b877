"""The check whether a call takes the cheapest, latest or largest record that the user asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from calibrator.readers.calls.notes.chat_text import ChatText, holds_token
from calibrator.readers.calls.reading.conversation import Call
from calibrator.readers.calls.reading.sources import Record
from calibrator.readers.calls.reading.values import (
    MONTHS,
    Value,
    dates_in,
    name_words,
    number_of,
    stem,
    times_in,
    words_in,
)

_MONEY = "cents eur euros usd price cost fare rate amount total fee charge premium price_each"
_TIME = (
    "date time departure depart departs start starts created sent due when day arrival modified"
    " born bought built year founded updated expires expiry expiration"
)
_SPAN = "duration minutes hours length time_min travel eta days seconds transit"
_SIZE = "size bytes amount total quantity count area capacity employees population mb gb kb stars"
_RATING = "rating score stars review reviews rank"
_NEAR = "distance km miles meters away walk"
_SUPERLATIVES: dict[str, tuple[bool, str]] = {  # word: (whether the lowest is wanted, fields)
    "cheapest": (True, _MONEY), "least expensive": (True, _MONEY), "lowest-priced": (True, _MONEY),
    "lowest price": (True, _MONEY), "most expensive": (False, _MONEY), "priciest": (False, _MONEY),
    "dearest": (False, _MONEY),
    "earliest": (True, _TIME), "oldest": (True, _TIME), "soonest": (True, _TIME),
    "latest": (False, _TIME), "newest": (False, _TIME), "most recent": (False, _TIME),
    "shortest": (True, _SPAN), "fastest": (True, _SPAN), "quickest": (True, _SPAN),
    "longest": (False, _SPAN),
    "largest": (False, _SIZE), "biggest": (False, _SIZE), "smallest": (True, _SIZE),
    "heaviest": (False, "weight kg lb mass"), "lightest": (True, "weight kg lb mass"),
    "tallest": (False, "height"), "youngest": (True, "age"),
    "busiest": (False, "visits load traffic count"),
    "deepest": (False, "depth"), "shallowest": (True, "depth"),
    "widest": (False, "width"), "narrowest": (True, "width"), "brightest": (False, "lumens"),
    "warmest": (False, "temperature celsius"), "coldest": (True, "temperature celsius"),
    "weakest": (True, "*"), "strongest": (False, "*"),
    "emptiest": (True, "*"), "fullest": (False, "*"),
    "nearest": (True, _NEAR), "closest": (True, _NEAR),
    "best-rated": (False, _RATING), "highest-rated": (False, _RATING),
    "top-rated": (False, _RATING), "best rated": (False, _RATING),
    "highest rated": (False, _RATING),
    "worst-rated": (True, _RATING), "lowest-rated": (True, _RATING),
}  # fmt: skip
_COMPARATIVES: dict[str, str] = {  # of two records: the word, and the superlative that it means
    "cheaper": "cheapest", "more expensive": "most expensive", "earlier": "earliest",
    "older": "oldest", "newer": "newest", "more recent": "most recent", "shorter": "shortest",
    "faster": "fastest", "quicker": "quickest", "longer": "longest", "larger": "largest",
    "bigger": "biggest", "smaller": "smallest", "heavier": "heaviest", "lighter": "lightest",
    "taller": "tallest", "younger": "youngest", "nearer": "nearest", "closer": "closest",
}  # fmt: skip
_OF_TWO = re.compile(
    rf"\bthe ({'|'.join(_COMPARATIVES)})(?= (?:one\b|of (?:the|these|those|both)\b)|[.,;!?]|$)"
)
_ANY = re.compile(r"\b(lowest|highest|fewest|least|most|greatest)\s+([a-z]+)")
_FILTERS = re.compile(
    r"\b(?:under|below|over|above|at least|at most|before|after|within|without|except|not|no|unless"
    r"|but|only|between|more than|less than|up to|max(?:imum)?|min(?:imum)?|until|second|third)\b"
)
_NO_FILTER = re.compile(r"\bno (?:rush|hurry|worries|problem|need)\b")
_UNTIL = re.compile(r"\buntil (?:the )?\d")  # how long, not which
_DAY = re.compile(r"\d{4}-\d{2}(?:-\d{2})?")
_STAMP = re.compile(r"^\d{4}-\d{2}(?:-\d{2}.*)?$|^\d{1,2}:\d{2}$")
MOST_RECORDS = 100


def not_that_one(call: Call, chat: ChatText) -> Iterator[tuple[str, str]]:
    """Yield (path, the superlative's words) of arguments that name another record than it.

    For `book the cheapest room` it is the id of a room that is not the cheapest listed. Nothing
    if the user set another condition, if several fields could be meant, or if the chosen record
    has more of the user's words in it.
    """
    request = chat.view.request.lower()[-2_000:]
    wanted = list(_superlatives_in(request))
    if len(wanted) != 1 or _FILTERS.search(_UNTIL.sub(" ", _NO_FILTER.sub(" ", request))):
        return
    name, is_low, hints = wanted[0]
    for value in call.values[:20]:
        if (
            value.kind not in ("id", "name", "path", "mail", "number", "date")
            or len(value.text) < 2
        ):
            continue
        listed = _siblings(value, chat)
        if len(listed) < 2:
            continue
        chosen = [r for r in listed if _has_value(r, value)]
        if len(chosen) != 1:
            continue
        fitting = _filter_by_property(listed, request)
        if chosen[0] not in fitting:
            yield value.path, f"{name} that the user described"
            continue
        listed = fitting
        if len(listed) != 2 and _OF_TWO.search(request):
            continue
        best = _best_records(listed, is_low, hints)
        if best and chosen[0] not in best and _fits_as_well(best, chosen[0], request):
            yield value.path, name


def _filter_by_property(listed: list[Record], request: str) -> list[Record]:
    """Return the records that have a property that the request names, such as `approved: true`.

    All of them if it names none, or none has it.
    """
    words = {stem(word) for word in re.findall(r"[a-z]{3,}", request)}
    left = listed
    for name, field in list(listed[0].fields.items())[:20]:
        if isinstance(field, bool) and {stem(w) for w in name_words(str(name))} & words:
            wanted = not is_negated(str(name), request)
            left = [record for record in left if record.fields.get(name) is wanted]
    return left or listed


def is_negated(name: str, request: str) -> bool:
    """Return whether a request says that a property must not hold: who isn't away."""
    words = "|".join(map(re.escape, name_words(name)[-1:])) or name
    return re.search(rf"(?:\b(?:not|no longer)|n't)(?: \w+)? (?:{words})\b", request) is not None


def _superlatives_in(request: str) -> Iterator[tuple[str, bool, set[str]]]:
    """Yield (words, whether the lowest is wanted, words of the fields) of each superlative.

    `request` is in lower case; `the cheaper one` counts as one.
    """
    for name, (is_low, fields) in _SUPERLATIVES.items():
        if re.search(rf"\b{name}\b", request):
            yield name, is_low, set(fields.split())
    for word in _OF_TWO.findall(request)[:4]:
        is_low, fields = _SUPERLATIVES[_COMPARATIVES[word]]
        yield word, is_low, set(fields.split())
    for word, field in _ANY.findall(request)[:4]:
        if f"{word} {field}" not in _SUPERLATIVES:
            yield f"{word} {field}", word in ("lowest", "fewest", "least"), {field, f"{field}s"}


def _siblings(value: Value, chat: ChatText) -> list[Record]:
    """Return the records that are listed together with the one that has the value, itself included.

    [] if no record has it; at most 100.
    """
    records = chat.sources.records[-300:]
    groups = [r.group for r in records if _has_value(r, value)]
    return [r for r in records if groups and r.group == groups[-1]][:MOST_RECORDS]


def _has_value(record: Record, value: Value) -> bool:
    """Return whether a field of a record, or its line without fields, is exactly a value."""
    if not record.fields:
        return record.text == value.text
    return any(str(field).strip().lower() == value.text for field in record.fields.values())


def _best_records(listed: Sequence[Record], is_low: bool, hints: set[str]) -> list[Record]:
    """Return the records with the lowest or highest value in the one field that fits `hints`.

    `hints` are words of the field's name; "*" stands for the only field with numbers. Records
    that are lines without fields are compared by their dates. [] if no field fits, or several
    with different results.
    """
    if not any(record.fields for record in listed):
        days = [_DAY.search(record.text) for record in listed]
        if not hints & set(_TIME.split()) or not all(days):
            return []
        keys_of = [day[0] for day in days if day]
        end_of = min(keys_of) if is_low else max(keys_of)
        return [r for r, key in zip(listed, keys_of, strict=True) if key == end_of]
    names = [n for n in list(listed[0].fields)[:30] if set(name_words(str(n))) & hints]
    if "*" in hints:  # no field has the word's name: the only one with numbers
        numeric = [
            n for n in list(listed[0].fields)[:30] if number_of(listed[0].fields[n]) is not None
        ]
        names = numeric if len(numeric) == 1 else []
    best: list[list[Record]] = []
    for name in names:
        keys = [_key(record.fields.get(name)) for record in listed]
        if any(key is None for key in keys) or len({type(key) for key in keys}) != 1:
            continue
        end = min(keys) if is_low else max(keys)
        best.append([r for r, key in zip(listed, keys, strict=True) if key == end])
    return best[0] if len(best) == 1 or (best and all(b == best[0] for b in best)) else []


def _key(field: Any) -> Any:
    """Return a field as a number, or as a date or time in text that sorts; None otherwise."""
    number = number_of(field)
    if number is not None:
        return number
    text = str(field)
    return text if _STAMP.match(text) else None


def _fits_as_well(best: Sequence[Record], chosen: Record, request: str) -> bool:
    """Return whether a best record shares as many words with the request as the chosen one."""
    wanted = words_in(request)
    return max(len(words_in(r.text) & wanted) for r in best) >= len(words_in(chosen.text) & wanted)


_ORDERED = re.compile(
    r"\b(?:next|last|first|previous|any|some|other|another|same|not|except|but)\b|\w{3,}est\b"
)
_PARTS = {
    "morning": (0, 720),
    "afternoon": (720, 1_080),
    "evening": (1_020, 1_440),
    "night": (1_080, 1_440),
}


def better_named(call: Call, chat: ChatText) -> Iterator[str]:
    """Yield the paths of arguments whose record fits the user's words less than another one.

    The other one of the same list has all of the user's words that this one has, and more, or
    alone has a time in the part of the day (or the month, or the initial) that the user named.
    Nothing if the user chose by an order or ruled something out.
    """
    request = chat.view.request.lower()[-2_000:]
    wanted = words_in(request)
    parts = [window for part, window in _PARTS.items() if re.search(rf"\b{part}\b", request)]
    months = set(_NAMED_MONTH.findall(request))
    initials = _INITIALS.findall(request)[:4]
    if list(_superlatives_in(request)):
        return
    is_ordered = bool(_ORDERED.search(request))
    for value in call.values[:20]:
        if value.kind not in ("id", "path", "mail", "number", "date") or len(value.text) < 2:
            continue
        if holds_token(chat.sources.users.text, value.text):
            continue
        listed = _siblings(value, chat)
        chosen = [r for r in listed if _has_value(r, value)]
        if len(listed) < 2 or len(chosen) != 1:
            continue
        if _is_at_other_time(chosen[0], listed, parts):
            yield value.path
            continue
        if is_ordered:
            continue
        own = words_in(chosen[0].text) & wanted
        others = [words_in(r.text) & wanted for r in listed if r is not chosen[0]]
        is_best = [words for words in others if words > own]
        if (
            (is_best and len(is_best) < len(others))
            or len(is_best) == 1
            or _is_only_other(chosen[0], [_is_in_month(r, months) for r in listed], listed)
            or _is_only_other(chosen[0], [_has_initial(r, initials) for r in listed], listed)
        ):
            yield value.path


_NAMED_MONTH = re.compile(rf"\b(?:in|of|for) ({'|'.join(MONTHS)})[a-z]{{0,6}}\b")
_INITIALS = re.compile(r"\b([a-z])\.\s?([a-z]{3,30})\b")


def _is_only_other(chosen: Record, fits: list[bool | None], listed: Sequence[Record]) -> bool:
    """Return whether only one record fits, and the chosen one is known not to.

    `fits` says of each listed record whether it fits; None if unknown.
    """
    own = next(fit for fit, record in zip(fits, listed, strict=True) if record is chosen)
    return own is False and fits.count(True) == 1


def _is_in_month(record: Record, months: set[str]) -> bool | None:
    """Return whether a record has a day in the one month that was named; None if it has no day.

    None also if several months or none were named.
    """
    days = dates_in(record.text.lower())
    if len(months) != 1 or not days:
        return None
    return any(MONTHS[day[1] - 1] == name for day in days for name in months)


def _has_initial(record: Record, initials: Sequence[tuple[str, str]]) -> bool | None:
    """Return whether a record's name begins with the initial that was named: D. Okafor.

    None if another name is in the record, or not exactly one initial was named.
    """
    words = re.findall(r"[^\W\d_]+", record.text.lower())
    if len(initials) != 1 or initials[0][1] not in words:
        return None
    before = words[: words.index(initials[0][1])]
    return bool(before) and before[-1].startswith(initials[0][0])


def _is_at_other_time(
    chosen: Record, listed: Sequence[Record], parts: list[tuple[int, int]]
) -> bool:
    """Return whether only one record, another, is in the part of the day that the user named.

    `parts` are (first, last) minutes of the day; False unless there is one.
    """
    if len(parts) != 1:
        return False
    low, high = parts[0]
    times = [times_in(r.text.lower()) for r in listed]
    fits = [any(low <= t < high for t in each) for each in times]
    own = next(at for at, r in enumerate(listed) if r is chosen)
    return bool(times[own]) and not fits[own] and sum(fits) == 1
