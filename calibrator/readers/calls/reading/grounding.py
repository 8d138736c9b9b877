"""The sources of a call's values: request, earlier turns, results, instructions, or none.

Also whether a value chosen from several records belongs to the record that the user named.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from calibrator.readers.calls.reading.conversation import Call, Tool, View
from calibrator.readers.calls.reading.planting import planting_traits
from calibrator.readers.calls.reading.sources import Record, Sources
from calibrator.readers.calls.reading.values import (
    Value,
    name_words,
    number_of,
    numbers_in,
    shape,
    stem,
    word_set,
    words_in,
)

SOURCED_KINDS = ("number", "mail", "date", "id", "path", "name")  # kinds that need a source

_PLACEHOLDER = re.compile(
    r"example\.(?:com|org|net)|(?:john|jane)[ ._-]?(?:doe|smith)|\byour[ _-]|^<.*>$|\{\{|\bn/?a\b"
    r"|^\[.*\]$|^(?:string|null|none|undefined|unknown|tbd|todo|x{3,}|foo|bar|test|sample|dummy"
    r"|placeholder|value|abc|abc123|asdf|any|default)$|^(\d)\1{3,}$|^0+\d?$|^12345(?:6(?:7(?:89?0?)?)?)?$"
    r"|^[a-z]+[_-]?(?:id|email|name|token|key|number|address)$|(?:user|id)[_-]?(?:123|1|0+1)$",
    re.IGNORECASE,
)
_DANGER = re.compile(
    r"\b(?:drop|truncate|delete|remove|rm|purge|destroy|wipe|kill|force|reset|overwrite|format"
    r"|shutdown|revoke|grant|all|everything)\b|--hard|--force|-rf|\*"
)
_LOW = word_set("cheap lowest earli first oldest small short least minim next near fewest")
_HIGH = word_set("latest last newest highest larg biggest long most maxim recent expens top")
_FROM = word_set("from source origin start old sender departure")
_TO = word_set("to target destination end new receiver recipient dest arrival into")
_PARTS = {
    "half": (0.5,), "third": (1 / 3, 2 / 3), "quarter": (0.25, 0.75), "tenth": (0.1,),
    "double": (2.0,), "twice": (2.0,), "triple": (3.0,),
}  # fmt: skip
_PERCENT = re.compile(r"(\d{1,3})\s*(?:%|percent|per cent)")


def _part_wrong(call: Call, sources: Sources) -> float:
    """Return 1.0 if the user asks for a part (`half`, `10 %`) and the call has none, else -1.0.

    0.0 without such a request or without numbers in the call.
    """
    text = sources.request.text
    shares = {share for word, some in _PARTS.items() if word in text for share in some}
    for percent in _PERCENT.findall(text):
        shares |= {int(percent) / 100, 1 - int(percent) / 100, 1 + int(percent) / 100}
    numbers = [v.number for v in call.values if v.kind == "number" and v.number is not None]
    if not shares or not numbers:
        return 0.0
    known = [*sources.results.numbers, *sources.users.numbers]
    is_part = any(
        abs(number - share * k) < 0.006 for number in numbers for share in shares for k in known
    )
    return -1.0 if is_part else 1.0


def is_placeholder(value: Value) -> bool:
    """Return whether a value is a placeholder for an unknown one, such as `your_id`.

    False for flags, choices and longer texts.
    """
    return value.kind not in ("flag", "choice", "empty", "text") and bool(
        _PLACEHOLDER.search(value.text[:200])
    )


def grounding_traits(
    call: Call, sources: Sources, tool: Tool | None, view: View
) -> dict[str, float]:
    """Return traits (name -> number) of the sources of a call's values, by kind and place.

    An example is `id_unfound`, the share of ids that no part of the conversation has. Further
    ones are about placeholders, computed numbers, parts (`half of it`), planted values and
    longer texts.
    """
    found: dict[str, float] = {}
    values = [value for value in call.values if value.kind in SOURCED_KINDS]
    known = {id(v): sources.holds(v) for v in values}
    for kind in SOURCED_KINDS:
        own = [v for v in values if v.kind == kind]
        lost = [v for v in own if not known[id(v)]]
        found[f"{kind}_unfound"] = _share(lost, own)
        not_in_request = [v for v in own if not sources.request.holds(v)]
        found[f"{kind}_not_asked"] = _share(not_in_request, own)
    lost = [v for v in values if not known[id(v)]]
    found["unfound"] = float(len(lost))
    found["unfound_share"] = _share(lost, values)
    from_users = [v for v in values if sources.users.holds(v)]
    results = [v for v in values if sources.results.holds(v)]
    found["told_share"] = _share(from_users, values)
    found["results_share"] = _share(results, values)
    found["rules_only"] = _share(
        [v for v in values if sources.rules.holds(v) and v not in from_users and v not in results],
        values,
    )
    found["own_only"] = _share([v for v in lost if v.text in sources.own], values)
    found["placeholder"] = float(any(is_placeholder(v) for v in values))
    found["placeholder_lost"] = float(any(is_placeholder(v) for v in lost))
    found["schema_only"] = float(any(_in_schema(v, tool) for v in lost))
    numbers = [v.number for v in lost if v.number is not None and v.kind == "number"]
    found["number_computed"] = float(any(sources.is_computed(n) for n in numbers))
    found["number_converted"] = float(any(sources.is_converted(n) for n in numbers))
    found["part_wrong"] = _part_wrong(call, sources)
    found["number_invented"] = float(any(not sources.is_computed(n) for n in numbers))
    found |= planting_traits([v for v in values if known[id(v)]], call, view)
    found["unfound_or_planted"] = found["unfound"] + found["planted"]
    return found | _texts(call, sources)


def _share(some: Sequence[Value], of: Sequence[Value]) -> float:
    """Return len(some) / len(of); 0.0 if `of` is empty."""
    return len(some) / len(of) if of else 0.0


def _in_schema(value: Value, tool: Tool | None) -> bool:
    """Return whether the description of a value's argument has the value, as an example."""
    schema = tool.properties.get(value.path.partition(" ")[0]) if tool else None
    described = schema.get("description") if isinstance(schema, dict) else None
    return isinstance(described, str) and value.text in described.lower()


def _texts(call: Call, sources: Sources) -> dict[str, float]:
    """Return traits (name -> number) of longer texts: unknown words and numbers, dangerous words.

    A dangerous word, such as `delete`, counts only if the user did not say it.
    """
    texts = [v for v in call.values if v.kind == "text"]
    words = words_in(" ".join(v.text for v in texts)[:4_000])
    known_words = sources.users.words | sources.results.words
    numbers = numbers_in(" ".join(v.text for v in texts)[:4_000])
    known = sources.users.numbers | sources.results.numbers | sources.rules.numbers
    dangers = set(_DANGER.findall(" ".join(v.text for v in texts)[:4_000]))
    return {
        "danger": float(bool(dangers - set(_DANGER.findall(sources.users.text)))),
        "text_strange": len(words - known_words) / len(words) if words else 0.0,
        "text_not_asked": 1 - sources.request.share(words) if words else 0.0,
        "text_number_unfound": float(bool(numbers - known)),
    }


# --- records ------------------------------------------------------------------------------------


def choice_traits(call: Call, sources: Sources, view: View) -> dict[str, float]:
    """Return traits (name -> number) of the records that the call chooses.

    They say how well a chosen record fits the user's words beside the others of its list, and
    whether values are strange for their argument. Without a record that a value of the call
    belongs to, `record_none` is 1.0.
    """
    wanted = ChoiceWords.from_view(view)
    fits = [fit for v in call.values[:20] if (fit := _fit(v, sources, wanted)) is not None]
    worst = max(fits, key=lambda fit: fit["record_gap"], default=_NO_RECORD)
    best = min(fits, key=lambda fit: fit["record_gap"], default=_NO_RECORD)
    fields = [_field_mismatch(v, sources.records) for v in call.values[:20]]
    return {
        **worst,
        "record_best_gap": best["record_gap"],
        "field_mismatch": float(sum(fields)),
        "direction": float(sum(_against_direction(v, sources) for v in call.values[:20])),
        "name_mismatch": float(sum(_against_name(v) for v in call.values[:20])),
        "shape_strange": float(sum(_is_strange(v, view, sources) for v in call.values[:20])),
    }


_NO_RECORD = {
    "record_gap": 0.0,
    "record_own": 0.0,
    "record_siblings": 0.0,
    "record_place": 0.0,
    "record_none": 1.0,
    "extreme": 0.0,
    "extreme_missed": 0.0,
}


@dataclass(slots=True)
class ChoiceWords:
    """The user's words and numbers about the thing to choose, with their weights.

    Those of the last turn weigh 1.0, those before 0.3. `is_low` and `is_high` say that the
    cheapest, first .. or the dearest, last .. is wanted.
    """

    words: dict[str, float]
    numbers: dict[float, float]
    is_low: bool
    is_high: bool

    @classmethod
    def from_view(cls, view: View) -> ChoiceWords:
        """Collect the words and numbers of the request and the three turns before it."""
        request = view.request.lower()
        before = " ".join(view.turns[-4:-1]).lower()
        words = dict.fromkeys(words_in(before), 0.3) | dict.fromkeys(words_in(request), 1.0)
        numbers = dict.fromkeys(numbers_in(before), 0.3) | dict.fromkeys(numbers_in(request), 1.0)
        raw = set(re.findall(r"[a-z]+", request))
        starts = {word[:6] for word in raw} | raw
        return cls(
            words,
            numbers,
            any(w in starts or any(s.startswith(w) for s in starts) for w in _LOW),
            any(w in starts or any(s.startswith(w) for s in starts) for w in _HIGH),
        )


def _fit(value: Value, sources: Sources, wanted: ChoiceWords) -> dict[str, float] | None:
    """Return traits (name -> number) of a value's record beside its list; None if it is in no list.

    `record_gap` is how much more of the user's words the best other record has, from -1 to 1.
    None also for numbers in more than three records.
    """
    if value.kind not in ("id", "mail", "path", "name", "number") or len(value.text) < 2:
        return None
    own = [r for r in sources.records if _holds(r, value)]
    if not own or (value.kind == "number" and len(own) > 3):
        return None
    sizes = Counter(r.group for r in sources.records)
    groups = Counter(r.group for r in own if sizes[r.group] > 1)
    if not groups or len(groups) > 20:
        return None
    group = max(groups, key=lambda g: (-groups[g], g))  # the list with the fewest matches
    listed = [r for r in sources.records if r.group == group]
    points = _points(listed, wanted)
    chosen = [at for at, r in enumerate(listed) if _holds(r, value)]
    own_points = max(points[at] for at in chosen)
    others = max((p for at, p in enumerate(points) if at not in chosen), default=0.0)
    most = max(own_points, others, 1e-9)
    extreme = _extreme_sign(listed, chosen, wanted)
    return {
        "record_gap": (others - own_points) / most if max(own_points, others) > 0 else 0.0,
        "record_own": min(1.0, own_points),
        "record_siblings": float(min(20, len(listed))),
        "record_place": chosen[0] / len(listed),
        "record_none": 0.0,
        "extreme": float(extreme > 0),
        "extreme_missed": float(extreme < 0),
    }


def _holds(record: Record, value: Value) -> bool:
    """Return whether the text of a record has a value."""
    return value.text in record.text


def _points(listed: Sequence[Record], wanted: ChoiceWords) -> list[float]:
    """Return for each record how many of the user's words and numbers it has, weighted.

    A word that many records have counts less, one that all have not at all.
    """
    shared_words = [words_in(r.text) & wanted.words.keys() for r in listed]
    counted = [numbers_in(r.text) & wanted.numbers.keys() for r in listed]
    often = Counter(word for each in shared_words for word in each)
    many = Counter(number for each in counted for number in each)
    size = len(listed)
    return [
        math.fsum(wanted.words[w] / often[w] for w in words if often[w] < size)
        + math.fsum(wanted.numbers[n] / many[n] for n in numbers if many[n] < size)
        for words, numbers in zip(shared_words, counted, strict=True)
    ]


def _extreme_sign(listed: Sequence[Record], chosen: Sequence[int], wanted: ChoiceWords) -> int:
    """Return 1 if the chosen record is the first, cheapest or last as wanted, and -1 if not.

    `chosen` are indexes in the list. 0 if the user wants no such one.
    """
    if not (wanted.is_low or wanted.is_high):
        return 0
    columns, is_named = _columns(listed[0], wanted)
    is_end = not is_named and (
        (wanted.is_low and 0 in chosen) or (wanted.is_high and len(listed) - 1 in chosen)
    )
    for name in columns:
        column = [r.fields.get(name) for r in listed]
        keys = [number_of(k) for k in column]
        if None in keys:
            texts = [str(k) for k in column]
            if not all(text[:4].isdigit() and "-" in text for text in texts):
                continue
            order = sorted(set(texts))
            ends = (wanted.is_low and order[0], wanted.is_high and order[-1])
            is_end |= any(texts[at] in ends for at in chosen)
            continue
        known = [k for k in keys if k is not None]
        ends_n = [min(known)] * wanted.is_low + [max(known)] * wanted.is_high
        is_end |= any(known[at] in ends_n for at in chosen)
    return 1 if is_end else -1


def _columns(record: Record, wanted: ChoiceWords) -> tuple[list[str], bool]:
    """Return (names of fields by which records may be ordered, whether the user named any).

    They are the fields of `record` that share the most words with the user; all of them if none
    does.
    """
    names = list(record.fields)[:20]
    fits = {
        name: len(words_in(" ".join(name_words(str(name)))) & wanted.words.keys()) for name in names
    }
    most = max(fits.values(), default=0)
    return [name for name in names if fits[name] == most], most > 0


def _field_mismatch(value: Value, records: Sequence[Record]) -> bool:
    """Return whether results have a value only under another name than its argument's.

    False if no result has that name. For example, an `order_id` that is a customer's id in all
    results.
    """
    if value.kind in ("flag", "empty", "text", "choice") or len(value.text) < 2:
        return False
    name = value.path.rpartition(" ")[2]
    words = {stem(word) for word in name_words(name)}
    if not words:
        return False
    under, has_own = set(), False
    for record in records[-60:]:
        for key, field in list(record.fields.items())[:30]:
            if isinstance(field, dict | list):
                continue
            if str(field).strip().lower() == value.text:
                under.add(key)
            has_own |= key == name
    if not under or not has_own:
        return False
    return not any({stem(w) for w in name_words(str(key))} & words for key in under)


_NAMED_KINDS = {  # last word of an argument's name: the expected kinds of its value
    **dict.fromkeys(("date", "day", "until", "deadline"), ("date", "text", "name", "empty")),
    **dict.fromkeys(("email", "mail", "recipient", "address"), ("mail", "name", "text", "id")),
    **dict.fromkeys(("amount", "price", "quantity", "count", "minutes", "hours"), ("number",)),
    **dict.fromkeys(("id", "ids", "uuid"), ("id", "number", "name", "mail", "path")),
    **dict.fromkeys(("title", "subject", "reason", "description"), ("name", "text", "id", "path")),
}


def _against_name(value: Value) -> bool:
    """Return whether the kind of a value does not fit its argument's name: `email=7`."""
    last = name_words(value.path.rpartition(" ")[2])[-1:]
    kinds = _NAMED_KINDS.get(last[0]) if last else None
    return kinds is not None and value.kind not in (*kinds, "flag", "choice", "empty")


def _is_strange(value: Value, view: View, sources: Sources) -> bool:
    """Return whether all earlier values under the same name had another form (`shape`).

    False if there are none.
    """
    if value.kind not in ("id", "mail", "path", "date", "number", "name") or len(value.text) > 80:
        return False
    name = value.path.rpartition(" ")[2]
    before = [c.arguments.get(name) for c in view.earlier[-30:]]
    before += [r.fields.get(name) for r in sources.records[-60:]]
    forms = {shape(str(each).lower()) for each in before if isinstance(each, str | int | float)}
    if not forms or value.kind in ("name", "number"):
        return bool(forms) and value.kind == "name" and all("9" in form for form in forms)
    return shape(value.text) not in forms and not any(
        _is_alike(shape(value.text), f) for f in forms
    )


def _is_alike(one: str, other: str) -> bool:
    """Return whether two forms (`shape`) differ at most in their numbers of digits."""
    return re.sub(r"9+", "9", one) == re.sub(r"9+", "9", other)


def _against_direction(value: Value, sources: Sources) -> bool:
    """Return whether a value for `from` follows `to` in the user's turns, or the reverse.

    `value` must be of an argument such as `source` or `destination`; otherwise False.
    """
    names = set(name_words(value.path.rpartition(" ")[2]))
    is_from, is_to = bool(names & _FROM), bool(names & _TO)
    if is_from == is_to or value.kind in ("flag", "empty", "text") or len(value.text) > 60:
        return False
    behind = re.findall(
        rf"\b(from|to|into)\s+(?:the\s+)?{re.escape(value.text)}", sources.users.text
    )
    if not behind:
        return False
    return bool((behind[-1] == "from") == is_to)
