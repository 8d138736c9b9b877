"""The check whether the request has another number than a call: in another unit, a step, a span."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from calibrator.readers.calls.notes.chat_text import ChatText
from calibrator.readers.calls.reading.conversation import Call, Tool
from calibrator.readers.calls.reading.values import NUMBER_WORDS, Value, name_words, word_set

_ORDINALS = {"first": 1.0, "second": 2.0, "third": 3.0, "fourth": 4.0, "fifth": 5.0}
_UNITS = (  # one tuple for a dimension, one text for the words of a unit
    ("celsius", "fahrenheit f"),
    (
        "kg kilo kilos kilogram kilograms",
        "g gram grams",
        "lb lbs pound pounds",
        "t ton tons tonne tonnes",
        "oz ounce ounces",
    ),
    (
        "km kilometer kilometers kilometre kilometres",
        "mile miles mi",
        "m meter meters metre metres",
        "cm centimeter centimeters centimetre centimetres",
        "mm millimeter millimeters",
        "ft feet foot",
        "inch inches",
    ),
    (
        "second seconds sec secs",
        "minute minutes min mins",
        "hour hours hr hrs",
        "day days",
        "week weeks",
        "ms millisecond milliseconds",
    ),
    ("cent cents pence", "euro euros dollar dollars usd eur"),
    ("l liter liters litre litres", "ml milliliter milliliters", "gallon gallons"),
    ("mb megabytes", "gb gigabytes", "kb", "tb terabytes"),
)
_UNIT_OF = {w: (dim, at) for dim, units in enumerate(_UNITS) for at, ws in enumerate(units)
            for w in ws.split()}  # fmt: skip
_MORE = re.compile(r"\b(?:warmer|higher|more|increas\w*|rais\w*|longer|later|up|add|extra|plus"
    r"|further"
    r"|extend\w*"
                   r"|louder|brighter|faster|bigger)\b")  # fmt: skip
_LESS = re.compile(r"\b(?:cooler|colder|lower|less|fewer|decreas\w*|reduc\w*|shorter|earlier"
    r"|down|minus"
                   r"|quieter|darker|slower|smaller|off)\b")  # fmt: skip
_STEP = re.compile(r"\b(\d+(?:\.\d+)?|one|two|three|four|five|six|seven|eight|nine|ten) (?!or\b"
    r"|no\b)(?:\w+ )?(?:warmer"
                   r"|higher|more|longer|later|further|cooler|colder|lower|less|fewer|shorter"
                   r"|earlier)\b")  # fmt: skip
_STEP_NAMES = word_set("by delta change offset increment step difference extra additional added")


_SCALES = re.compile(r"\b(?:double|halve|triple)\b(?! (?:check|room|bed|click))")
_SIGNED = word_set("delta change adjustment difference diff offset")
_ADDS = re.compile(r"\b(?:add|added|put in|increase|raise|receiv\w+|arriv\w+|restock\w*|extra)\b")
_TAKES_AWAY = re.compile(
    r"\b(?:remove|subtract|deduct|reduce|decrease|lower|broke\w*|lost|missing|stolen|damaged|sold"
    r"|take (?:\w+ ){0,3}?(?:out|off|away)|write (?:\w+ ){0,3}?off)\b"
)
_SPOKEN = re.compile(
    r"\b(two|three|four|five|six|seven|eight|nine|ten|fifteen|twenty|thirty|forty|sixty|ninety)"
    r"[ -]([a-z]{1,12})\b"
)
_BY = re.compile(
    r"\b(?:lower|raise|increase|reduce|decrease|extend|shorten|turn|move|up|down|grow|shrink"
    r"|change)\b"
    r"[^.;!?]{0,60}\bby (\d+(?:\.\d+)?|one|two|three|four|five|six|seven|eight|nine"
    r"|ten)\b(?! ?(?:%|per))"
)


def other_number(call: Call, tool: Tool | None, chat: ChatText) -> Iterator[tuple[str, str]]:
    """Yield (path, reason) of arguments whose number differs from the request.

    The request may give the number in another unit (`2 kg` for `grams=2`), as an ordinal (`the
    second page`), or as a step up or down (`two degrees warmer`).
    """
    text = chat.view.request.lower()[-2_000:]
    units = dict(
        re.findall(r"(?<![\w.])(\d+(?:[.,]\d+)?)\s?(?:degrees? )?([a-z]{1,12})\b", text)[:40]
    )
    units |= {f"{NUMBER_WORDS[n]:g}": unit for n, unit in _SPOKEN.findall(text)[:40]}
    steps = {
        NUMBER_WORDS.get(n, 0.0) if n.isalpha() else float(n)
        for n in [*_STEP.findall(text), *_BY.findall(text)]
    }
    for value in call.values[:30]:
        names = name_words(value.path)
        if value.number is None or not names:
            continue
        named = units.get(f"{value.number:g}", "")
        own = next(
            (_UNIT_OF[w] for w in reversed(names) if w in _UNIT_OF), _unit_described(tool, value)
        )
        if named in _UNIT_OF and own is not None and _is_other_unit(own, _UNIT_OF[named]):
            yield value.path, f"the request gives it in {named}"
        found = re.search(rf"\b({'|'.join(_ORDINALS)}) {re.escape(names[-1])}\b", text)
        if found and _ORDINALS[found[1]] != value.number:
            yield value.path, f"the request says {found[1]}"
        if set(names) & _SIGNED and _is_sign_wrong(value.number, text):
            yield value.path, "it goes the other way than the request"
        if chat.plain_numbers == {value.number} and _SCALES.search(text):
            yield value.path, "the request asks for another than it is now"
        if steps and not set(names) & _STEP_NAMES:
            if value.number in steps and value.number not in chat.sources.results.numbers:
                yield value.path, "the request gives it as a difference"
            elif _is_step_back(value.number, steps, text, chat):
                yield value.path, "it goes the other way than the request"


def _is_sign_wrong(number: float, text: str) -> bool:
    """Return whether a difference goes up where the request only takes away, or the reverse.

    `number` is the difference: 5 for `remove five` is wrong, -5 is right. `text` is the request
    in lower case.
    """
    is_more, is_less = bool(_ADDS.search(text)), bool(_TAKES_AWAY.search(text))
    return is_more != is_less and number != 0 and (number > 0) is is_less


def _is_other_unit(own: tuple[int, int], named: tuple[int, int]) -> bool:
    """Return whether two units are of one dimension and differ.

    A unit is a pair of numbers: its dimension and its place in it.
    """
    return own[0] == named[0] and own[1] != named[1]


def _unit_described(tool: Tool | None, value: Value) -> tuple[int, int] | None:
    """Return the only unit that the description of an argument or of its tool names, or None.

    None if both name no unit or several. A unit is a pair of numbers: its dimension and its
    place in it.
    """
    schema = tool.properties.get(value.path.partition(" ")[0]) if tool else None
    own = schema.get("description") if isinstance(schema, Mapping) else None
    for text in (own, tool.description if tool else None):
        words = re.findall(r"[a-z]+", text[:500].lower()) if isinstance(text, str) else []
        found = {_UNIT_OF[w] for w in words if w in _UNIT_OF and len(w) > 2}
        if len(found) == 1:
            return found.pop()
    return None


def _is_step_back(number: float, steps: set[float], text: str, chat: ChatText) -> bool:
    """Return whether a number was changed by a named step against the request's direction.

    For `two degrees warmer` and 20 in the conversation it is 18. `steps` are the named numbers.
    """
    is_up, is_down = bool(_MORE.search(text)), bool(_LESS.search(text))
    if is_up == is_down:
        return False
    known = chat.sources.results.numbers | chat.sources.users.numbers
    ahead = any(abs(k + n * (1 if is_up else -1) - number) < 1e-6 for k in known for n in steps)
    back = any(abs(k - n * (1 if is_up else -1) - number) < 1e-6 for k in known for n in steps)
    return back and not ahead


_EACH = re.compile(
    r"\b(\d{1,6}|two|three|four|five|six|seven|eight|nine|ten|twelve) (?:\w{2,20} ){1,2}"
    r"(?:at|for) (?:[$€£]\s?)?(\d{1,6}(?:\.\d{1,2})?)(?: ?[$€£]| \w{2,10}){0,2}"
    r" (?:each|apiece|per)\b"
)


def only_a_factor(call: Call, chat: ChatText) -> Iterator[str]:
    """Yield amounts that are a count or a price for each, in "12 chairs at 40 euros each".

    The paths of the arguments are yielded. Nothing if the request has another number of such
    phrases than one.
    """
    found = _EACH.findall(chat.view.request.lower()[-2_000:])
    if len(found) != 1:
        return
    count = float(found[0][0]) if found[0][0].isdigit() else NUMBER_WORDS.get(found[0][0], 0.0)
    for value in call.values[:30]:
        names = set(name_words(value.path))
        if not names & _TOTALS or names & _OF_EACH or value.number is None or count < 2:
            continue
        if value.number in (count, float(found[0][1])) and len(call.values) < 4:
            yield value.path


def other_length(call: Call, chat: ChatText) -> Iterator[str]:
    """Yield arguments for a length of time that differs from the span that the user named.

    A span is `9:00 to 10:30`; nothing is yielded unless there is exactly one.
    """
    text = chat.view.request.lower()[-2_000:]
    spans = re.findall(
        r"(?<!\d)(\d{1,2}):(\d{2})\s*(?:to|-|\u2013|until|till)\s*(\d{1,2}):(\d{2})", text
    )
    if len(spans) != 1:
        return
    a, b, c, d = map(int, spans[0])
    minutes = (c * 60 + d) - (a * 60 + b)
    for value in call.values[:30]:
        names = set(name_words(value.path))
        if value.number is None or not names & {"minutes", "duration", "length", "hours"}:
            continue
        if value.number not in (minutes, minutes / 60, minutes * 60):
            yield value.path


_TOTALS: Final = word_set("amount total sum payment pay payout value")
_OF_EACH: Final = word_set("unit each per single price item quantity count")
_SPOKEN_LENGTHS: Final = (  # patterns of lengths of time in words, and their minutes
    (re.compile(r"\b(?:an|one) hour and a half\b|\bone and a half hours\b"), 90),
    (re.compile(r"\b(?:three|3) quarters? of an hour\b|\bthree-quarters of an hour\b"), 45),
    (re.compile(r"\b(?:a|one) quarter of an hour\b"), 15),
    (re.compile(r"\bhalf an hour\b|\bhalf hour\b"), 30),
)
_HOURS_AND_HALF = re.compile(
    r"\b(two|three|four|five|six|\d{1,2})(?: hours)? and a half(?: hours)?\b"
)


def has_spoken_length(call: Call, text: str) -> bool:
    """Return whether a number of the call is the length of time that a text says in words.

    `half an hour` may be 30, 1800 or 0.5. `text` is in lower case.
    """
    found = {minutes for pattern, minutes in _SPOKEN_LENGTHS if pattern.search(text)}
    for number in _HOURS_AND_HALF.findall(text)[:4]:
        hours = int(number) if number.isdigit() else int(NUMBER_WORDS[number])
        found.add(60 * hours + 30)
    lengths = {float(each) for minutes in found for each in (minutes, 60 * minutes, minutes / 60)}
    return any(value.number in lengths for value in call.values[:30])
