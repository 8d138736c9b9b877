"""The value in the conversation that a value of a call resembles: anna and anne, 7703 and 7730."""

from __future__ import annotations

import re
from typing import Final

from calibrator.readers.calls.notes.said import SaidText
from calibrator.readers.calls.reading.values import Value, calendar_day

MAX_COMPARED: Final = 2_000  # tokens of a conversation
LONGEST: Final = 60  # characters of a compared value
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")


def nearest_said(value: Value, said: SaidText) -> str | None:
    """Return the text in the conversation that is a slip away from the value, or None.

    A slip is one character more, less or different, two characters swapped, or for longer
    values two of these; for numbers also a decimal point in another place; for dates up to 31
    days.
    """
    if value.kind == "number":
        return _nearest_number(value, said)
    if value.kind == "date":
        return _nearest_day(value, said)
    if value.kind == "mail":
        return _nearest_mail(value, said)
    if value.kind == "name" and " " in value.text:
        return _nearest_words(value, said)
    if value.kind in ("id", "path", "name"):
        return _nearest_token(value.text, [t for t in said.tokens if "@" not in t])
    return None


def _nearest_mail(value: Value, said: SaidText) -> str | None:
    """Return a mail address of the conversation that differs a little from the value, or None.

    The name or the host may be the same and the other one differ.
    """
    mails = list(dict.fromkeys(_MAIL.findall(said.text)))[:200]
    if (found := _nearest_token(value.text, mails)) is not None:
        return found
    name, _, host = value.text.partition("@")
    for each in mails:
        mail = str(each)
        own, _, at = mail.partition("@")
        if (own == name and at != host) or (at == host and distance(own, name, 3) <= 3):
            return mail
    return None


def _nearest_number(value: Value, said: SaidText) -> str | None:
    """Return, as text, a number of the conversation with the same digits or one changed digit.

    None if there is none.
    """
    if value.number is None:
        return None
    text = f"{value.number:.10g}"
    digits = text.replace(".", "").strip("0")
    for number in sorted(said.numbers):
        other = f"{number:.10g}"
        if len(digits) >= 2 and other.replace(".", "").strip("0") == digits and number:
            return other
        if len(text) >= 3 and len(other) >= 3 and distance(text, other, 1) <= 1:
            return other
    return None


def _nearest_day(value: Value, said: SaidText) -> str | None:
    """Return the earliest day, as ISO text, that the user named at most 31 days from the value's.

    It is neither the nearest nor the first mentioned. Days named by their distance (`tomorrow`)
    count only if there are no more than four of them. None if no other day is that near.
    """
    days = {d for day in said.sources.users.days if (d := calendar_day(day)) is not None}
    days |= said.sources.relative if len(said.sources.relative) <= 4 else set()
    own = [d for day in value.days if (d := calendar_day(day)) is not None]
    for day in sorted(days):
        if any(each != day and abs((each - day).days) <= 31 for each in own):
            return day.isoformat()
    return None


def _nearest_words(value: Value, said: SaidText) -> str | None:
    """Return the text nearest to the one word of a name that was not said, or None.

    None if several words were not said, or all were.
    """
    words = value.text.split()[:8]
    pieces = said.pieces
    strange = [word for word in words if word.strip(".,") not in pieces]
    if len(strange) != 1:
        return None
    return _nearest_token(strange[0], sorted(p for p in pieces if len(p) >= 3))


def _nearest_token(text: str, tokens: list[str]) -> str | None:
    """Return the token that differs least from a text, by one slip at least, or None.

    At most one slip is allowed, two from seven characters on. None for texts below three or
    above 60 characters.
    """
    if len(text) > LONGEST or len(text) < 3:
        return None
    most = 2 if len(text) >= 7 else 1
    found = None
    for token in tokens[:MAX_COMPARED]:
        if token == text or token[0] == "-" or abs(len(token) - len(text)) > most:
            continue
        if (between := distance(text, token, most)) <= most:
            found, most = token, between - 1
            if most < 1:
                break
    return found


def distance(one: str, other: str, most: int) -> int:
    """Return the number of slips between two texts, or `most` + 1 if there are more than `most`.

    Optimal string alignment: insertion, deletion, substitution, two characters swapped. Only a
    band of the table is filled, so the time grows with the length times `most`.
    """
    if abs(len(one) - len(other)) > most:
        return most + 1
    far = most + 1
    before: dict[int, int] = {}
    last = {j: j for j in range(min(len(other), most) + 1)}
    for i, a in enumerate(one, 1):
        row: dict[int, int] = {}
        for j in range(max(0, i - most), min(len(other), i + most) + 1):
            if j == 0:
                row[0] = i
                continue
            b = other[j - 1]
            found = min(last.get(j, far) + 1, row.get(j - 1, far) + 1)
            found = min(found, last.get(j - 1, far) + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                found = min(found, before.get(j - 2, far) + 1)
            row[j] = found
        if min(row.values()) > most:
            return far
        before, last = last, row
    return last.get(len(other), far)
