"""The checks of a call against what narrows the request: exclusions, bounds, weeks, corrections.

Each reports only if the user's own words settle the matter.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from calibrator.readers.calls.notes.chat_text import ChatText, holds_token
from calibrator.readers.calls.reading.conversation import Call, Tool
from calibrator.readers.calls.reading.sources import Record
from calibrator.readers.calls.reading.values import (
    Value,
    calendar_day,
    name_words,
    number_of,
    numbers_in,
    shape,
    stem,
    times_in,
    weekdays_in,
    word_set,
)

LEAST_NAME = 4  # characters of an id that is compared with others of its form
_CORRECTS = re.compile(
    r"^\W*(?:sorry|no|actually|wait|oops|hm+|correction|i mean|i meant|not|make (?:that|it)"
    r"|change (?:that|it) to|on second thought)\b|\b(?:i meant|make (?:that|it)|should be)\b"
)
_ORDINAL = re.compile(r"\b\d+(?:st|nd|rd|th)\b|\d\d?[:.]\d\d\b")
_IDS = word_set("id ids number no code ref reference")
MOST_TEXT: Final = 2_000  # last characters of the request that are read
MOST_VALUES: Final = 30
MOST_CLAUSES: Final = 60
MOST_RECORDS: Final = 300
_MORE_THAN_NAMED = re.compile(
    r"\b(?:all|every\w*|any|each|both|others?|rest|also|similar|whole|entire|these|those|them|ones"
    r"|team|group|except|but)\b"
)
_CLAUSE = re.compile(r"[;!?:()\n]+|[.](?=\s|$)|,|\bbut\b")
_RELATIVE = re.compile(r"\s*(?:who|whom|whose|which|that)\b")
_NOT_THIS = re.compile(
    r"\s*(?:and\s+|but\s+)?(?:not|except|without|excluding|rather than|leave|spare"
    r"|(?:don't|do not) touch|keep (?:\w+ )?hands off)\b"
)
_NOT_NOW = (
    r"\b(?:can wait|needn't|(?:is|are) (?:not|n't) (?:needed|affected|included|concerned)"
    r"|isn't (?:needed|affected|included)|(?:is|are) fine as|(?:stays?|remains?) (?:as|where|put)"
    r"|not yet)\b"
)
_OTHER_WEEK = re.compile(
    r"\b(?:next|following|after|weeks?|months?|every|each|first|second|third|fourth|last|in \d+"
    r"|until|january|february|march|april|may|june|july|august|september|october|november|december)\b"
)
_BOUND = re.compile(
    r"\b(not before|no earlier than|after|from|before|until|by|not after|no later than)\s+"
    r"(\d{1,2}[:.]\d{2})\b"
)
_LATER: Final = frozenset(("not before", "no earlier than", "after", "from"))
_PRICE = re.compile(
    r"\b(?:under|below|less than|cheaper than|at most|up to|no more than|max(?:imum)?|within)\s+"
    r"(?:[$€£]\s?)?(\d{1,6}(?:\.\d\d)?)\s?(?:euros?|eur|dollars?|usd|pounds?|gbp|[$€£])?(?![\w%])"
)
_BEGINS: Final = word_set("begin begins start starts depart departs departure time at")
_COSTS: Final = word_set("price cost fare rate total fee eur euros usd amount")
_TOKEN = re.compile(r"[\w.-]*\d[\w-]*")
_THE_OTHER = re.compile(r"\b(?:the other|other one|opposite|the remaining)\b")


def superseded_values(call: Call, chat: ChatText) -> Iterator[tuple[str, str, str]]:
    """Yield the values of an earlier turn that the user's last turn replaces.

    Each is (path of its argument, name of the mark, the mark's words). A value is replaced only
    if the last turn names exactly one other of the same form that the call does not have: an id
    with the same pattern of letters and digits, or the number in a correction (`no, make it
    5`). Nothing with fewer than two turns.
    """
    turns = chat.view.turns
    if len(turns) < 2:
        return
    last = turns[-1].lower()[-MOST_TEXT:]
    before = "\n".join(turns[-6:-1]).lower()[-4 * MOST_TEXT :]
    used = {value.text for value in call.values}
    named = {token.strip(".-") for token in _TOKEN.findall(last)[:60]} - used
    for value in call.values[:20]:
        if holds_token(last, value.text) or not holds_token(before, value.text):
            continue
        if _is_id(value):
            alike = [each for each in named if shape(each) == shape(value.text)]
            if len(alike) == 1:
                yield value.path, "other_record", f"the last request names {alike[0][:60]}"
        elif value.kind == "number" and _CORRECTS.search(last):
            numbers = numbers_in(_ORDINAL.sub(" ", last)) - {v.number for v in call.values}
            if len(numbers) == 1 and value.number not in numbers_in(last):
                yield value.path, "other_number", f"the user corrected it to {numbers.pop():g}"


def _is_id(value: Value) -> bool:
    """Return whether a value is an id of at least four characters and with a digit.

    Ids are values of the kind `id`, digits as text, and numbers of arguments such as
    `order_no`.
    """
    is_digits = isinstance(value.raw, str) and value.raw.isdigit()
    is_named = value.kind == "number" and bool(set(name_words(value.path)[-1:]) & _IDS)
    return (value.kind == "id" or is_digits or is_named) and (
        len(value.text) >= LEAST_NAME and any(c.isdigit() for c in value.text)
    )


def _request_of(chat: ChatText) -> str:
    """Return the last 2,000 characters of the user's last turn in lower case."""
    return chat.view.request.lower()[-MOST_TEXT:]


def beyond_named(call: Call, chat: ChatText) -> Iterator[str]:
    """Yield lists that have a name which the user did not say beside one that the user did.

    The paths of the arguments are yielded. The other name must be in a result. Nothing if the
    request speaks of all, others or a group.
    """
    request = _request_of(chat)
    if _MORE_THAN_NAMED.search(request):
        return
    listed: dict[str, list[Value]] = defaultdict(list)
    for value in call.values[:MOST_VALUES]:
        if value.kind in ("id", "name", "mail", "path"):
            listed[value.path].append(value)
    bare = _bare(request)
    for path, values in listed.items():
        is_named = [holds_token(request, v.text) or _is_in(v.text, bare) for v in values]
        is_known = [
            holds_token(chat.sources.results.text, value.text)
            for value, named in zip(values, is_named, strict=True)
            if not named
        ]
        if any(is_named) and is_known and all(is_known):
            yield path


def beyond_described(call: Call, chat: ChatText) -> Iterator[str]:
    """Yield lists with a record that the request describes and one that it does not.

    The paths of the arguments are yielded. A record is described by a number or a word in it
    that no other listed record has. Nothing if the request speaks of all, others or a group.
    """
    request = _request_of(chat)
    if _MORE_THAN_NAMED.search(request):
        return
    request_words = _tokens(request)
    records = chat.sources.records[-MOST_RECORDS:]
    listed: dict[str, list[Record]] = defaultdict(list)
    for value in call.values[:MOST_VALUES]:
        found = _records_with(value, records)
        if value.kind in ("id", "name", "mail", "path") and len(found) == 1:
            listed[value.path].append(found[0])
    for path, chosen in listed.items():
        siblings = [_tokens(r.text) for r in records if r.group == chosen[0].group][:100]
        own = [
            {
                word
                for word in _tokens(r.text) & request_words
                if sum(word in s for s in siblings) == 1
            }
            for r in chosen
        ]
        if len(chosen) > 1 and any(own) and not all(own):
            yield path


def _tokens(text: str) -> set[str]:
    """Return the words and numbers of three characters or more in a text, in lower case."""
    return set(re.findall(r"[^\W_]{3,}", text.lower()[:MOST_TEXT]))


def _bare(text: str) -> str:
    """Return a text without blanks, hyphens and underscores."""
    return re.sub(r"[\s_-]+", "", text)


def _is_in(text: str, bare: str) -> bool:
    """Return whether a text with a digit is in another one, both without blanks and hyphens.

    False for texts of fewer than five characters. `bare` is already without them.
    """
    short = _bare(text)
    return len(short) >= 5 and any(c.isdigit() for c in short) and short in bare


def find_excluded(call: Call, chat: ChatText) -> Iterator[str]:
    """Yield arguments that the request mentions only to leave them out: the one at X can wait.

    The paths of names, addresses and ids are yielded, if every clause with the value leaves it
    out.
    """
    request = _request_of(chat)
    clauses = _CLAUSE.split(request)[-MOST_CLAUSES:]
    leaves_out: list[bool] = []
    for clause in clauses:
        follows = bool(leaves_out) and leaves_out[-1] and bool(_RELATIVE.match(clause))
        leaves_out.append(follows or bool(_NOT_THIS.match(clause)))
    for value in call.values[:MOST_VALUES]:
        if value.kind not in ("mail", "name", "id") or len(value.text) < 4:
            continue
        mentions = [
            is_out or re.search(_NOT_NOW, clause[clause.index(value.text) :]) is not None
            for clause, is_out in zip(clauses, leaves_out, strict=True)
            if value.text in clause and holds_token(clause, value.text)
        ]
        if mentions and all(mentions):
            yield value.path


def excluded_kind(call: Call, chat: ChatText) -> Iterator[str]:
    """Yield arguments with a record whose kind the request names only to leave it out.

    In `water all trees, not the oaks` the path of an oak's id is yielded. The kind is a word
    that the other records of the same list do not have.
    """
    request = _request_of(chat)
    clauses = _CLAUSE.split(request)[-MOST_CLAUSES:]
    out = {stem(w) for c in clauses if _NOT_THIS.match(c) for w in _words(c)}
    wanted = {stem(w) for c in clauses if not _NOT_THIS.match(c) for w in _words(c)}
    if not out - wanted:
        return
    records = chat.sources.records[-MOST_RECORDS:]
    for value in call.values[:MOST_VALUES]:
        found = _records_with(value, records)
        if value.kind not in ("id", "name", "mail", "path") or len(found) != 1:
            continue
        siblings = [r for r in records if r.group == found[0].group][:100]
        own = {stem(w) for w in _words(found[0].text)} & (out - wanted)
        shared = {stem(w) for r in siblings if r is not found[0] for w in _words(r.text)}
        if own - shared:
            yield value.path


def _words(text: str) -> list[str]:
    """Return the words of 3 to 20 letters in a text, in lower case, in order."""
    return re.findall(r"[a-z]{3,20}", text.lower()[:MOST_TEXT])


def other_id(call: Call, chat: ChatText) -> Iterator[tuple[str, str]]:
    """Yield (path, the user's id) of ids where the user named another of the same list and form.

    Both must be in results, and the user must have named exactly one of that form.
    """
    request = _request_of(chat)
    used = {value.text for value in call.values}
    named = {token.strip(".-") for token in _TOKEN.findall(request)[:60]} - used
    results = chat.sources.results.text
    for value in call.values[:MOST_VALUES]:
        is_id = value.kind == "id" or (isinstance(value.raw, str) and value.raw.isdigit())
        if not is_id or len(value.text) < 3 or holds_token(chat.sources.users.text, value.text):
            continue
        alike = [each for each in named if shape(each) == shape(value.text)]
        if len(alike) == 1 and holds_token(results, alike[0]) and holds_token(results, value.text):
            yield value.path, alike[0][:60]


def other_week(call: Call, chat: ChatText) -> Iterator[str]:
    """Yield days on the weekday that the user named, but not in the seven days from today.

    The paths are yielded. Nothing without today's date, or if the request names a week, an
    order or a date.
    """
    request = _request_of(chat)
    weekdays = weekdays_in(request)
    if chat.today is None or not weekdays or _OTHER_WEEK.search(request):
        return
    if chat.sources.request.days:
        return
    for value in call.values[:MOST_VALUES]:
        days = [day for each in value.days if (day := calendar_day(each)) is not None]
        if len(days) != 1 or days[0].weekday() not in weekdays:
            continue
        if (days[0] - chat.today).days > 7 and not chat.sources.results.holds(value):
            yield value.path


def out_of_bounds(call: Call, chat: ChatText) -> Iterator[tuple[str, str]]:
    """Yield (path, words) of arguments whose record a bound of the request rules out.

    Bounds are a time ("after 15:00") and a price ("under 200 euros"); the words are such as "it
    is not after 15:00". Nothing unless there is one bound and another record of the list is
    within it.
    """
    request = _request_of(chat)
    times, prices = _BOUND.findall(request), _PRICE.findall(request)
    if len(times) + len(prices) != 1:
        return
    records = chat.sources.records[-MOST_RECORDS:]
    for value in call.values[:MOST_VALUES]:
        if value.kind not in ("id", "name", "number"):
            continue
        chosen = _records_with(value, records)
        if len(chosen) != 1:
            continue
        others = [r for r in records if r.group == chosen[0].group and r is not chosen[0]]
        if times:
            word, limit = times[0]
            fits = [_is_in_time(r, word, times_in(limit)) for r in (chosen[0], *others)]
            words = f"it is not {word} {limit}"
        else:
            fits = [_is_in_price(r, float(prices[0])) for r in (chosen[0], *others)]
            words = f"it costs more than {prices[0]}"
        if fits[0] is False and True in fits[1:]:
            yield value.path, words


def _records_with(value: Value, records: Sequence[Record]) -> list[Record]:
    """Return the records with a field that is exactly a value; [] for one character."""
    if len(value.text) < 2:
        return []
    return [
        record
        for record in records
        if any(str(field).strip().lower() == value.text for field in record.fields.values())
    ]


def _fields(record: Record, names: frozenset[str]) -> list[Any]:
    """Return the values of a record's fields whose names have one of the words."""
    return [field for name, field in record.fields.items() if set(name_words(str(name))) & names]


def _is_in_time(record: Record, word: str, limit: set[int]) -> bool | None:
    """Return whether a record begins within a bound; None if its time is unknown.

    `word` is the bound's, such as `after`; `limit` has its time in minutes.
    """
    fields = _fields(record, _BEGINS)
    found = {time for each in fields for time in times_in(str(each).lower())}
    if len(found) != 1 or not limit:
        return None
    [time], bound = found, min(limit)
    return time >= bound if word in _LATER else time <= bound


def _is_in_price(record: Record, limit: float) -> bool | None:
    """Return whether a record costs no more than a limit; None if its price is unknown."""
    found = {number for each in _fields(record, _COSTS) if (number := number_of(each)) is not None}
    return found.pop() <= limit if len(found) == 1 else None


def the_other(call: Call, tool: Tool | None, chat: ChatText) -> Iterator[tuple[str, str]]:
    """Yield (path, the other choice) if the user said `the other one` and got the same again.

    Only for arguments with two choices in the schema, compared with the last call of the same
    tool.
    """
    request = _request_of(chat)
    before = [each for each in chat.view.earlier if each.name == call.name]
    if tool is None or not before or not _THE_OTHER.search(request):
        return
    for value in call.values[:MOST_VALUES]:
        schema = tool.properties.get(value.path)
        choices = schema.get("enum") if isinstance(schema, dict) else None
        if not isinstance(choices, list) or len(choices) != 2 or value.raw not in choices:
            continue
        earlier = before[-1].arguments.get(value.path)
        if earlier == value.raw:
            yield value.path, str(next(each for each in choices if each != value.raw))[:60]
