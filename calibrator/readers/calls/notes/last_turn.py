"""The check of a call against the user's last turn, which may correct or replace a value."""

from __future__ import annotations

import re
from collections.abc import Iterator

from calibrator.readers.calls.notes.said import SaidText, holds_token
from calibrator.readers.calls.reading.conversation import Call
from calibrator.readers.calls.reading.values import Value, name_words, numbers_in, shape, word_set

MOST_TEXT = 2_000  # characters of a turn that are read
LEAST_NAME = 4  # characters of an id that is compared with others of its form
_TOKEN = re.compile(r"[\w.-]*\d[\w-]*")
_CORRECTS = re.compile(
    r"^\W*(?:sorry|no|actually|wait|oops|hm+|correction|i mean|i meant|not|make (?:that|it)"
    r"|change (?:that|it) to|on second thought)\b|\b(?:i meant|make (?:that|it)|should be)\b"
)
_ORDINAL = re.compile(r"\b\d+(?:st|nd|rd|th)\b|\d\d?[:.]\d\d\b")
_IDS = word_set("id ids number no code ref reference")


def superseded_values(call: Call, said: SaidText) -> Iterator[tuple[str, str, str]]:
    """Yield the values of an earlier turn that the user's last turn replaces.

    Each is the path of its argument, the name of the mark, and the mark's words. A value is
    replaced only if the last turn names exactly one other of the same form that the call does not
    have: an id with the same pattern of letters and digits, or the number in a correction.
    """
    turns = said.view.turns
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
    is_digits = isinstance(value.raw, str) and value.raw.isdigit()
    is_named = value.kind == "number" and bool(set(name_words(value.path)[-1:]) & _IDS)
    return (value.kind == "id" or is_digits or is_named) and (
        len(value.text) >= LEAST_NAME and any(c.isdigit() for c in value.text)
    )
