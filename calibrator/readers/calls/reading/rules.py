"""The traits of a call beside the instructions: limits, prohibitions, required confirmations.

A sentence of the rules counts if it shares words with the tool, its arguments or the request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from calibrator.readers.calls.reading.conversation import Call, Tool, View
from calibrator.readers.calls.reading.requests import _YES as YES
from calibrator.readers.calls.reading.sources import Record, Sources
from calibrator.readers.calls.reading.steps import is_read
from calibrator.readers.calls.reading.values import (
    calendar_day,
    dates_in,
    name_words,
    number_of,
    numbers_in,
    spoken_numbers,
    stem,
    times_in,
    word_set,
    words_in,
)

MAX_SENTENCES = 120

_SENTENCE = re.compile(r"[^.!?\n;]+(?:\.(?=\d)[^.!?\n;]*)*")
_MOST = re.compile(
    r"\b(?:at most|no more than|not more than|up to|maximum|max|limit(?:ed)?"
    r"|cannot exceed|exceed\w*"
    r"|over|above|more than|greater than|within|higher than|longer than|older than|under|below"
    r"|less than|fewer than)\b"
)
_LEAST = re.compile(r"\b(?:at least|minimum|no less than|not less than|no fewer than|or more)\b")
_FORBIDS = re.compile(
    r"\b(?:must not|may not|cannot|can't|can not|never|not allowed|not permitted|forbidden|do not"
    r"|don't|should not|prohibited|refuse|deny|only|unless|except|no longer|not be|nobody|no one)\b"
)
_CONFIRM = re.compile(
    r"\b(?:confirm\w*|approv\w*|explicit|permission|consent|ask (?:the|for|before|first)|agree\w*"
    r"|yes)\b"
)
_BEFORE = re.compile(r"\b(?:before|first|always|must|make sure|check|verify|look up)\b")
_DAYS = re.compile(r"\b(\d+|[a-z]+)[ -](hours?|days?|weeks?|months?|years?)\b")
_UNIT_DAYS = {"hour": 1 / 24, "day": 1.0, "week": 7.0, "month": 30.5, "year": 365.0}
_CEILING = word_set(
    "limit max maximum available availab balance stock remain left capac capacit quota free seat"
    " budget credit allow onhand quantit total paid price amount copies spots"
)
_STATES = word_set(
    "status state type role tier level plan categor category class kind active open closed locked"
    " flag eligible allowed refundable"
)


@dataclass(slots=True)
class Sentence:
    """One sentence of the instructions, with the stems of its words and its numbers."""

    text: str  # in lower case
    words: set[str]
    numbers: set[float]


def sentences_of(rules: str) -> list[Sentence]:
    """Return the sentences of the rules about limits, prohibitions, confirmations or an order.

    An example is `You may cancel at most two orders.`; others are left out.
    """
    found = []
    for text in _SENTENCE.findall(rules.lower())[: 4 * MAX_SENTENCES]:
        if len(text) < 12 or not (
            _MOST.search(text) or _LEAST.search(text) or _FORBIDS.search(text)
            or _CONFIRM.search(text) or _BEFORE.search(text)
        ):  # fmt: skip
            continue
        found.append(Sentence(text, words_in(text), numbers_in(text) | spoken_numbers(text)))
        if len(found) == MAX_SENTENCES:
            break
    return found


def rule_traits(
    call: Call, tool: Tool | None, view: View, sources: Sources, sentences: Sequence[Sentence]
) -> dict[str, float]:
    """Return traits (name -> number) of rules that a call breaks, as words and numbers show.

    Rules are limits, hours, prohibitions, required states and confirmations. `sentences` are
    the result of `sentences_of` on the instructions; `tool` is not read.
    """
    own = words_in(" ".join(name_words(call.name)))
    topic = own | words_in(" ".join(v.path.replace("_", " ") for v in call.values))
    near = [s for s in sentences if s.words & own]
    records = _records_of_call(call, sources)
    record_words = words_in(" ".join(_states(r) for r in records))
    words = record_words | words_in(
        " ".join(v.text for v in call.values if v.kind in ("name", "choice"))
    )
    forbidding = [s for s in near if _FORBIDS.search(s.text)]
    confirming = [s for s in sentences if _CONFIRM.search(s.text)]
    is_write = not is_read(call.name)
    needs_yes = is_write and any(s.words & (own | {"action", "chang", "writ"}) for s in confirming)
    return {
        "limit_passed": float(any(_passes_limit(call, s, topic, sources) for s in sentences)),
        "limit_near": float(any(s.numbers and (s.words & topic) for s in sentences)),
        "time_outside": float(_outside_hours(call, sentences)),
        "too_late": float(_is_too_late(records, near, sources.today)),
        "forbidden_words": max((len(s.words & words) / 3 for s in forbidding), default=0.0),
        **_state_traits(records, near, sources, own),
        "forbidden_tool": max((_prohibition_share(s, call) for s in near), default=0.0),
        "forbidden_near": min(1.0, len(forbidding) / 3),
        "forbids_request": max(
            (len(s.words & sources.users.words) / (len(s.words) + 2) for s in forbidding),
            default=0.0,
        ),
        "needs_yes": float(needs_yes),
        "yes_missing": float(needs_yes and not YES.match(view.request.strip())),
        "above_record": float(_above_record(call, records)),
        "above_found": float(_above_found(call, view)),
        "clash": float(_clashes(call, sources, records)),
        "as_record": float(_as_record(call, records)),
        "same_as_record": float(_changes_nothing(call, records)),
    }


def _records_of_call(call: Call, sources: Sources) -> list[Record]:
    """Return the records that have an id, name, address or path of the call in their text.

    For each of the first eight values of three characters or more, the two shortest records are
    returned; [] without any.
    """
    texts = [v.text for v in call.values if v.kind in ("id", "mail", "path", "name")]
    found: list[Record] = []
    for text in texts[:8]:
        records = [r for r in sources.records if len(text) > 2 and text in r.text]
        found += sorted(records, key=lambda r: len(r.text))[:2]
    return found


def _states(record: Record) -> str:
    """Return the words of a record about its own state (`status: shipped`), in lower case.

    The whole line for a record without fields; "" if no field is about a state.
    """
    parts = [
        f"{key} {value}"
        for key, value in list(record.fields.items())[:40]
        if isinstance(value, str | bool | int) and (set(name_words(str(key))) & _STATES)
    ]
    return " ".join(parts).replace("_", " ").lower() or (record.text if not record.fields else "")


def _prohibition_share(sentence: Sentence, call: Call) -> float:
    """Return the share of the tool's words in a sentence that forbids without a condition.

    0.0 for other sentences. For `delete_user`, `Never delete a user` gives 1.0.
    """
    if not _NEVER.search(sentence.text) or _CONDITION.search(sentence.text) or sentence.numbers:
        return 0.0
    words = {stem(word) for word in name_words(call.name)}
    return len(words & sentence.words) / len(words) if words else 0.0


_CONDITION = re.compile(
    r"\b(?:if|unless|only|except|without|before|after|until|whose|other|when)\b"
)
_ONLY = re.compile(r"\b(?:only|unless|must be|has to be|except|that are|if the)\b")
_NEVER = re.compile(
    r"\b(?:must not|may not|cannot|can't|can not|never|not allowed"
    r"|do not|don't|should not|no longer)\b"
)
_TOKEN = re.compile(r"[^\W\d_]+")
_FILLERS = word_set(
    "a an the and or of to in at for from with by is are was be been it its this that these those"
    " any all not no only unless must may can cannot never if whose which who has have do does"
    " other allowed possible changed"
)


def _state_traits(
    records: Sequence[Record], near: Sequence[Sentence], sources: Sources, own: set[str]
) -> dict[str, float]:
    """Return whether a record is in a required state, in another, or in an excluded one.

    The keys are `state_listed`, `state_unlisted` and `state_excluded`. The states of a sentence
    are its words that appear in records and that the user did not say: `Only pending orders may
    be cancelled`.
    """
    if not records or not near:
        return {"state_listed": 0.0, "state_unlisted": 0.0, "state_excluded": 0.0}
    record_tokens = _tokens(" ".join(_short_values(r) for r in records[:3]))
    anywhere = _tokens(" ".join(_short_values(r) for r in sources.records[-80:]))
    fields = {
        t for r in sources.records[-80:] for k in list(r.fields)[:30] for t in name_words(str(k))
    }
    user_words = _tokens(sources.users.text)
    listed = unlisted = excluded = False
    for sentence in near:
        words = {t for t in _tokens(sentence.text) if stem(t) not in own} - user_words - _FILLERS
        states = words - fields
        hit = states & record_tokens
        if _ONLY.search(sentence.text):
            listed |= bool(hit)
            unlisted |= not hit and bool(states & anywhere or (words & fields and states))
        elif _NEVER.search(sentence.text):
            excluded |= bool(hit)
    return {
        "state_listed": float(listed),
        "state_unlisted": float(unlisted),
        "state_excluded": float(excluded),
    }


def _tokens(text: str) -> set[str]:
    """Return the words of a text's first 8,000 characters in lower case."""
    return set(_TOKEN.findall(text.lower()[:8_000]))


def _short_values(record: Record) -> str:
    """Return the values of a record below 40 characters, or its line without fields."""
    if not record.fields:
        return record.text
    values = [v for v in list(record.fields.values())[:40] if isinstance(v, str) and len(v) < 40]
    return " ".join(values)


def _passes_limit(call: Call, sentence: Sentence, topic: set[str], sources: Sources) -> bool:
    """Return whether a number of the call is beyond a limit such as `at most 3 bags`.

    The sentence must be about the call's `topic`, the stems of the words of its names.
    """
    if not sentence.numbers or not sentence.words & topic:
        return False
    most, least = _MOST.search(sentence.text), _LEAST.search(sentence.text)
    if not (most or least):
        return False
    limits = [n for n in sentence.numbers if n > 0]
    for value in call.values:
        number = value.number
        if number is None or value.kind != "number" or not limits:
            continue
        words = {stem(w) for w in name_words(value.path)}
        if not words & sentence.words and len(call.values) > 3:
            continue
        if most and not least and number > max(limits):
            return True
        if least and not most and number < min(limits):
            return True
    return False


def _outside_hours(call: Call, sentences: Sequence[Sentence]) -> bool:
    """Return whether a time of the call is outside the hours that a rule names.

    A rule of hours has exactly two times: `between 9:00 and 17:00`.
    """
    times = [t for v in call.values for t in v.times if t]
    if not times:
        return False
    for sentence in sentences:
        hours = times_in(sentence.text)
        if len(hours) == 2 and (min(times) < min(hours) or max(times) > max(hours)):
            return True
    return False


def _is_too_late(records: Sequence[Record], near: Sequence[Sentence], today: date | None) -> bool:
    """Return whether a record's last date is longer ago than a rule of this tool allows.

    A rule such as `within 30 days` is meant; `near` are the sentences about the tool. False
    without today's date.
    """
    if today is None or not near:
        return False
    gone = [
        (today - day).days
        for r in records
        for written_day in dates_in(r.text)
        if (day := calendar_day(written_day)) is not None and day <= today
    ]
    allowed = [
        float(count) * _UNIT_DAYS[unit.rstrip("s")]
        for s in near
        for count, unit in _DAYS.findall(s.text)
        if count.isdigit() and len(count) < 5
    ]
    return bool(gone and allowed) and min(gone) > max(allowed)


def _above_record(call: Call, records: Sequence[Record]) -> bool:
    """Return whether a number of the call is above the maximum in its record: `balance: 5`.

    `records` are those that the call is about; fields of maxima are such as `limit` or `stock`.
    """
    numbers = [v.number for v in call.values if v.kind == "number" and v.number is not None]
    if not numbers:
        return False
    for record in records:
        for key, value in list(record.fields.items())[:40]:
            limit = number_of(value)
            if limit is None or not {stem(w) for w in name_words(str(key))} & _CEILING:
                continue
            if any(n > limit for n in numbers):
                return True
    return False


def _above_found(call: Call, view: View) -> bool:
    """Return whether a number of the call is above a maximum that an earlier look-up found.

    Short results of the last eight calls are read: 9 is above `balance: 5`.
    """
    numbers = [v.number for v in call.values if v.kind == "number" and v.number is not None]
    if not numbers:
        return False
    for earlier in view.earlier[-8:]:
        if len(earlier.result) > 300 or earlier.result.lstrip()[:1] == "[":  # a list of records
            continue
        for name, figure in _FIGURE.findall(earlier.result):
            limit = number_of(figure)
            words = {stem(w) for w in name_words(name)}
            if limit is not None and words & _CEILING and max(numbers) > limit:
                return True
    return False


_FIGURE = re.compile(r"([A-Za-z_][\w ]{1,40})[\"']?\s*(?::|=|is)\s*[\"']?([$€£]?\d[\d,.]*\d|\d)")


def _clashes(call: Call, sources: Sources, own: Sequence[Record]) -> bool:
    """Return whether another record has all the days and times of the call.

    `own` are the records that the call is about. False if the call has no dates.
    """
    dated = [v for v in call.values if v.kind == "date"]
    if not dated:
        return False
    texts = [v.text for v in dated]
    own_texts = {r.text for r in own}
    return any(
        all(text in r.text for text in texts) and r.text not in own_texts and r.group
        for r in sources.records[-60:]
    )


def _as_record(call: Call, records: Sequence[Record]) -> bool:
    """Return whether a number of the call is in one of `records`, those that it is about."""
    numbers = {v.number for v in call.values if v.kind == "number"}
    return any(numbers & numbers_in(r.text) for r in records)


def _changes_nothing(call: Call, records: Sequence[Record]) -> bool:
    """Return whether an argument sets the value that the record already has under that name.

    Only for tools such as `update_order`; `new_price` is compared with `price`.
    """
    verbs = {"update", "change", "modify", "set", "edit", "move", "rename", "reschedule", "assign"}
    if not verbs & set(name_words(call.name)):
        return False
    for record in records:
        for value in call.values:
            name = value.path.rpartition(" ")[2]
            own = record.fields.get(name.removeprefix("new_"))
            if own is None or isinstance(own, dict | list) or value.kind == "id":
                continue
            if str(own).strip().lower() == value.text:
                return True
    return False
