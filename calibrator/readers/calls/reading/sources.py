"""The parts of a conversation that a value may come from, and the records that results list."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from calibrator.readers.calls.reading.conversation import Json, View
from calibrator.readers.calls.reading.values import (
    Day,
    Value,
    calendar_day,
    current_day,
    dates_in,
    holds_day,
    leaves,
    numbers_in,
    relative_days,
    spoken_numbers,
    times_in,
    words_in,
)

MAX_RECORDS = 300
MAX_TERMS = 30  # numbers whose sums and products are computed
_FACTORS = (60.0, 1 / 60, 100.0, 0.01, 1_000.0, 0.001, 24.0, 1 / 24, 7.0, 12.0, -1.0)
_CUT = re.compile(r"…\[cut\]…")
_INNER = re.compile(r"\{[^{}]{2,3000}\}")
_NAMED = re.compile(r"(?:^|[,;|]\s*)([A-Za-z_][\w ]{0,40}):\s+([^,;|]{1,200})")
_PAIR = re.compile(r"[\"'](\w{1,60})[\"']\s*:\s*[\"']?([^\"',{}\[\]]{1,200})")
Members = list[tuple[str, Json]]


@dataclass(slots=True)
class Record:
    """One of several things of a kind that a result lists: an object in JSON, or a line.

    `fields` maps names to values; it is empty for a line that names none.
    """

    text: str  # in lower case
    fields: Json
    group: int  # number of the list
    place: int  # index in the list


@dataclass(slots=True)
class Source:
    """A part of the conversation, such as the request, with its words, numbers, days and times."""

    text: str  # in lower case
    words: set[str] = field(default_factory=set)
    numbers: set[float] = field(default_factory=set)
    days: set[Day] = field(default_factory=set)
    times: set[int] = field(default_factory=set)

    @classmethod
    def from_texts(cls, *texts: str) -> Source:
        """Return the source of texts, joined by line breaks."""
        text = "\n".join(texts).lower()
        return cls(text, words_in(text), numbers_in(text), dates_in(text), times_in(text))

    def holds(self, value: Value) -> bool:
        """Return whether the part has a value, in whichever form.

        Numbers are found with either sign, dates and times in any spelling, paths by their
        last name; other values as text.
        """
        if value.kind == "number":
            return value.number in self.numbers or (
                value.number is not None and -value.number in self.numbers
            )
        if value.kind == "date":
            return all(holds_day(self.days, d) for d in value.days) and (
                all(t in self.times or t == 0 for t in value.times)
            )
        if value.kind == "path":
            return (value.text.rstrip("/").rpartition("/")[2] or value.text) in self.text
        if value.kind == "id" and len(value.text) < 4:
            return re.search(rf"(?<!\w){re.escape(value.text)}(?!\w)", self.text) is not None
        return value.text in self.text or (
            value.kind in ("name", "id") and value.text.replace("_", " ") in self.text
        )

    def share(self, words: set[str]) -> float:
        """Return the share, 0 to 1, of stems of words that the part has; 1.0 without words."""
        return len(words & self.words) / len(words) if words else 1.0


@dataclass(slots=True)
class Sources:
    """The parts of a conversation that a value may come from, read once for all calls."""

    request: Source  # the user's last turn
    users: Source  # all turns of the user
    rules: Source
    results: Source
    own: str  # the assistant's earlier calls, in lower case
    records: list[Record]
    today: date | None
    relative: set[date]
    terms: list[float]  # numbers that others may be computed from

    def holds(self, value: Value) -> bool:
        """Return whether any part has a value, or the value follows from one (`tomorrow`)."""
        parts = (self.request, self.users, self.results, self.rules)
        return any(part.holds(value) for part in parts) or self.follows(value)

    def follows(self, value: Value) -> bool:
        """Return whether a date is one that was named by its distance, such as `tomorrow`.

        Its times must have been named too. False for other values.
        """
        if value.kind != "date" or not value.days:
            return False
        days = [calendar_day(day) for day in value.days]
        known = all(d in self.relative or (d and self._is_named(d)) for d in days)
        times = self.users.times | self.results.times | self.rules.times
        return known and all(t in times or t == 0 for t in value.times)

    def _is_named(self, day: date) -> bool:
        """Return whether user, results or rules name a day."""
        numbers = (day.year, day.month, day.day)
        return any(holds_day(s.days, numbers) for s in (self.users, self.results, self.rules))

    def is_computed(self, number: float) -> bool:
        """Return whether a number is a sum, difference, product or quotient of two terms.

        The terms are up to 30 numbers of the request and of the last results each.
        """
        terms = self.terms
        for a in terms:
            rest = (number - a, a - number, number + a, number / a if a else 0.0, number * a)
            for wanted in rest:
                if abs(wanted) > 1e-9 and any(abs(wanted - b) < 0.006 for b in terms):
                    return True
        return False

    def is_converted(self, number: float) -> bool:
        """Return whether a number is one of the conversation in another unit.

        Tried are factors such as 60, 100 and 1,000.
        """
        known = self.users.numbers | self.results.numbers
        return any(abs(number * f - k) < 1e-6 for f in _FACTORS for k in known if k)


def sources_of(view: View) -> Sources:
    """Return the sources of a view, read once for all its calls.

    Numbers in words count for the user's turns only; `today` is None if no text gives the date.
    """
    request = Source.from_texts(view.request)
    request.numbers |= spoken_numbers(view.request)
    users = Source.from_texts(*view.turns)
    users.numbers |= request.numbers | spoken_numbers(users.text)
    rules, results = Source.from_texts(view.rules), Source.from_texts(*view.results)
    own = " ".join(c.key for c in view.earlier[-30:]).lower()[:20_000]
    today = current_day(rules.text, users.text, results.text[-4_000:])
    relative = relative_days(users.text, today) if today else set()
    last = numbers_in("\n".join(view.results[-3:])[-4_000:])
    terms = sorted(request.numbers)[:MAX_TERMS] + sorted(last)[:MAX_TERMS]
    records = records_of(view.results)
    return Sources(request, users, rules, results, own, records, today, relative, terms)


def records_of(results: Sequence[str]) -> list[Record]:
    """Return the records of results, those of the latest result last, at most 300.

    A record is an object in JSON, a member of a list, or a line of another text. Each list has
    a number, `group`.
    """
    found: list[Record] = []
    group = 0
    for result in results:
        groups = _objects(result) or _lines(result)
        for members in groups:
            group += 1
            for place, (text, fields) in enumerate(members[:100]):
                found.append(Record(text, fields, group, place))
    return found[-MAX_RECORDS:]


def _objects(result: str) -> list[Members]:
    """Return the records of a result in JSON, as lists of members; [] for another text.

    A member is (text in lower case, fields). Texts inside of the JSON, as tool servers send
    them, are read in its place; of JSON that is cut the innermost objects.
    """
    result = result.strip()
    if result[:1] not in ("[", "{"):
        return []
    try:
        decoded = json.loads(result)
    except (ValueError, RecursionError):
        return _fragments(result)
    if (text := _unwrap_text(decoded)) is not None:
        return _objects(text) or _lines(text)
    return _groups(decoded)


def _unwrap_text(decoded: Any) -> str | None:
    """Return the joined texts of parts such as `{"type": "text", "text": ..}`, or None.

    Tool servers put results into one part or a list of these; the first 20 are joined by
    newlines. None for any other value.
    """
    parts = decoded if isinstance(decoded, list) else [decoded]
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts[:20]]
    if not texts or not all(isinstance(text, str) for text in texts):
        return None
    return "\n".join(map(str, texts)) if all("type" in part for part in parts[:20]) else None


def _fragments(result: str) -> list[Members]:
    """Return the innermost objects of a text that is no JSON as a whole: it is cut or Python's.

    They are one list of members; [] if there are none.
    """
    found: Members = []
    for text in _INNER.findall(result)[:100]:
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            fields = dict(_PAIR.findall(text))
        if fields:
            found.append((_flat_text(fields), fields))
    return [found] if found else []


def _groups(decoded: Any) -> list[Members]:
    """Return the lists of objects and of plain values, and the objects by name, of decoded JSON.

    At most 60, those of the outermost level last.
    """
    groups: list[Members] = []
    waiting: list[tuple[Any, int]] = [(decoded, 0)]
    while waiting and len(groups) < 60:
        value, depth = waiting.pop()
        if depth > 6:
            continue
        if isinstance(value, list):
            objects = [each for each in value[:100] if isinstance(each, Mapping)]
            if objects:
                groups.append([(_flat_text(each), each) for each in objects])
            elif value and all(isinstance(each, str | int | float) for each in value[:100]):
                groups.append([(str(each).lower()[:500], {}) for each in value[:100]])
            waiting += [(each, depth + 1) for each in value[:100]]
        elif isinstance(value, Mapping):
            inner = list(value.items())[:100]
            named = [(str(k)[:100], v) for k, v in inner if isinstance(v, Mapping)]
            if len(named) > 1:
                groups.append([(f"{k} {_flat_text(v)}".lower(), {"id": k, **v}) for k, v in named])
            elif depth == 0 and not any(_is_listing(v) for _, v in inner):
                groups.append([(_flat_text(value), value)])
            waiting += [(v, depth + 1) for _, v in inner if isinstance(v, list | Mapping)]
    return groups[::-1]


def _is_listing(value: Any) -> bool:
    """Return whether a value is a list that begins with an object."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _flat_text(value: Json) -> str:
    """Return the paths and values of an object as one text in lower case."""
    return " ".join(f"{path} {str(each)[:300]}" for path, each in leaves(value)).lower()


def _lines(result: str) -> list[Members]:
    """Return a result's lines as one list of members; lines of one field each become one record.

    [] without a line of four characters.
    """
    lines = [line.strip() for line in _CUT.sub("\n", result).splitlines()[:200]]
    rows: Members = [(line.lower()[:600], _pairs(line)) for line in lines if len(line) > 3]
    if len(rows) > 1 and all(len(fields) == 1 for _, fields in rows):  # a card, one field a line
        fields = {name: value for _, each in rows for name, value in each.items()}
        return [[(" ".join(text for text, _ in rows)[:2_000], fields)]]
    return [rows] if rows else []


def _pairs(line: str) -> dict[str, str]:
    """Return the fields of a line that names them: `name: value, name: value`; {} without any."""
    return {name.strip(): value.strip() for name, value in _NAMED.findall(line[:600])}
