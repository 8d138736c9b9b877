"""Checks whether a value of a call is in the words of the user, a result or the instructions.

The assistant's own words do not count, except for files and names that an earlier call of it has
made successfully. Numbers may be converted or computed if the user asks for that. Dates may be
named by their distance or as the end of a period.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from itertools import islice

from calibrator.readers.calls.notes.words import (
    ALIASES,
    FREE,
    KIN,
    LOOSE,
    OF_THE_WORLD,
)
from calibrator.readers.calls.reading.conversation import Call, Tool, View
from calibrator.readers.calls.reading.grounding import SOURCED_KINDS, is_placeholder
from calibrator.readers.calls.reading.sources import Sources
from calibrator.readers.calls.reading.steps import is_failure
from calibrator.readers.calls.reading.values import (
    MONTHS,
    Day,
    Value,
    calendar_day,
    dates_in,
    name_words,
    number_of,
    relative_days,
    spoken_numbers,
    stem,
    without_days,
    word_set,
)

MAX_TEXT = 60_000  # characters of each part of the conversation that are searched
MAX_DESCRIPTION = 2_000  # characters of an argument's description
MAX_TOKENS = 16_000

_SPANS = re.compile(r"\b(half an hour|an hour and a half|a quarter of an hour|three quarters of an"
                    r" hour|an hour)\b")  # fmt: skip
_SPAN_MINUTES = {"half an hour": 30.0, "an hour and a half": 90.0, "a quarter of an hour": 15.0,
                 "three quarters of an hour": 45.0, "an hour": 60.0}  # fmt: skip
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70,
         "eighty": 80, "ninety": 90}  # fmt: skip
_DIGITS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
           "nine": 9}  # fmt: skip
_MORE_NUMBERS = {"thirteen": 13.0, "fourteen": 14.0, "sixteen": 16.0, "seventeen": 17.0,
                 "eighteen": 18.0, "nineteen": 19.0, "seventy": 70.0, "eighty": 80.0}  # fmt: skip
_COMPOUND = re.compile(rf"\b({'|'.join(_TENS)})[ -]({'|'.join(_DIGITS)})\b")
_THOUSANDS = re.compile(r"\b(\d+(?:\.\d+)?)\s?(k|thousand|million|m|hundred)\b")
_FACTORS = {"k": 1e3, "thousand": 1e3, "million": 1e6, "m": 1e6, "hundred": 100.0}
_DOTTED = re.compile(r"(?<![\d.])((?:19|20)\d\d)[./](\d{1,2})[./](\d{1,2})(?![\d])")
_MAIL_IN = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")
_STANDALONE = re.compile(r"(?<![\w.#/-])\d{1,12}(?:,\d{3})*(?:\.\d{1,6})?(?![\w/-])")
_MONTH = re.compile(r"(?:19|20)\d\d-(?:0\d|1[0-2])")
_MONTH_ENDS = dict(zip(MONTHS, ("uary", "ruary", "ch", "il", "", "e", "y", "ust", "t(?:ember)?",
                                 "ober", "ember", "ember"), strict=True))  # fmt: skip
_MONTHS_AWAY = re.compile(r"\b(this|current|next|coming|last|previous) month(?:'s)?\b")
_COMPARED = re.compile(r"\b\w{1,60}\s*=\s*(?:'([^']{1,80})'|\"([^\"]{1,80})\"|(\d{1,15})\b)")
_TOKEN = re.compile(r"[^\s,;:!?\"'()\[\]{}<>|=`]{1,200}")
_PIECE = re.compile(r"[^\W_]+")
_NOW = re.compile(
    r"\b(?:today|current(?:ly)?|now|date)\b[^.\n]{0,40}?"
    r"(\d{1,2}(?:st|nd|rd|th)?\s+(?:of\s+)?[a-z]{3,9}\.?,?\s+\d{4})"
)
_CODE = re.compile(r"(?<![\w-])[A-Z]{2,4}(?![\w-])")
_SELF = word_set("current me self mine my own this default primary main")
_SET_TO = re.compile(
    r"\b(?:mark|set|change|update|move)\w*\b[^.;!?]{0,60}\b(?:as|to)\s+[a-z_-]{3,20}\b"
)


@dataclass
class ChatText:
    """The text of a conversation, read once for the calls of a reply.

    It is that of the user, the results and the instructions, without the assistant's words.
    """

    view: View
    sources: Sources

    @cached_property
    def text(self) -> str:
        """The conversation without the assistant's words, in lower case, one part a line."""
        s = self.sources
        parts = (s.users.text, s.request.text, s.results.text, s.rules.text)
        return "\n".join(part[-MAX_TEXT:] for part in parts)

    @cached_property
    def words(self) -> set[str]:
        """The stems of all words, without stop words."""
        s = self.sources
        return s.users.words | s.request.words | s.results.words | s.rules.words

    @cached_property
    def pieces(self) -> set[str]:
        """The runs of letters and digits, in lower case."""
        return set(_PIECE.findall(self.text))

    @cached_property
    def tokens(self) -> list[str]:
        """The distinct tokens between blanks and brackets, without a full stop at the end."""
        found = (each.strip(".") for each in _TOKEN.findall(self.text))
        return list(dict.fromkeys(islice((each for each in found if each), MAX_TOKENS)))

    @cached_property
    def numbers(self) -> set[float]:
        """The numbers, also those in words: 42.0 for `forty-two`, 3000.0 for `3k`."""
        s, user_text = self.sources, self.sources.users.text
        numbers = s.users.numbers | s.request.numbers | s.results.numbers | s.rules.numbers
        numbers |= {float(_TENS[a] + _DIGITS[b]) for a, b in _COMPOUND.findall(user_text)}
        numbers |= {float(n) * _FACTORS[f] for n, f in _THOUSANDS.findall(user_text)}
        numbers |= {_MORE_NUMBERS[p] for p in self.pieces & _MORE_NUMBERS.keys()}
        return numbers | {number for n in s.records[-100:] for number in _numbers_of(n.fields)}

    @cached_property
    def today(self) -> date | None:
        """The current date by the conversation, also with the day first: 27 November 2026.

        None if the conversation does not say it.
        """
        if self.sources.today is not None:
            return self.sources.today
        for text in (self.sources.rules.text, self.sources.users.text):
            if (found := _NOW.search(text)) is not None:
                days = [day for each in dates_in(found[0]) if (day := calendar_day(each))]
                return days[0] if days else None
        return None

    @cached_property
    def codes(self) -> set[str]:
        """The codes that the user wrote in capitals, such as EMEA or JFK, in lower case."""
        return {c.lower() for turn in self.view.turns[-3:] for c in _CODE.findall(turn)[:40]}

    @cached_property
    def compact(self) -> str:
        """The text without blanks and hyphens, in which a long number is one token."""
        return re.sub(r"[\s\-./()]+", "", self.text)

    @cached_property
    def days(self) -> set[tuple[int, int, int]]:
        """The days that the text writes with the year first and full stops: 2026.4.15."""
        return {(int(y), int(m), int(d)) for y, m, d in _DOTTED.findall(self.text)[:200]}

    @cached_property
    def named_days(self) -> set[date]:
        """The days that the user names by their distance, such as tomorrow.

        "The day after tomorrow" does not also name tomorrow.
        """
        s = self.sources
        text, today = s.users.text, self.today
        found = (
            set(s.relative) if s.today is not None or today is None else relative_days(text, today)
        )
        rest = text.replace("day after tomorrow", "")
        if today is not None and rest != text and "tomorrow" not in rest:
            found.discard(today + timedelta(1))
        return found

    @cached_property
    def relative_in_rules(self) -> set[date]:
        """The days that the instructions name by their distance: within two weeks.

        Empty without today's date. Weekdays do not count.
        """
        rules, today = self.sources.rules.text, self.today
        if today is None or not re.search(r"\b(?:weeks?|months?|days?)\b", rules):
            return set()
        return relative_days(
            re.sub(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b", " ", rules), today
        )

    @cached_property
    def plain_numbers(self) -> set[float]:
        """The numbers of the request that are no part of an id, a date or a time."""
        text = without_days(self.sources.request.text)
        return {float(n.replace(",", "")) for n in _STANDALONE.findall(text)[:200]}

    @cached_property
    def earlier_arguments(self) -> str:
        """The arguments of earlier calls that succeeded, such as files and names, in lower case."""
        calls = (c.key for c in self.view.earlier[-30:] if c.result and not is_failure(c.result))
        return " ".join(calls).lower()[:20_000]

    def holds_token(self, text: str) -> bool:
        """Return whether the conversation has a text that is no part of a longer word."""
        return holds_token(self.text, text)

    def is_settled(self, value: Value, tool: Tool | None) -> bool:
        """Return whether a value needs no source: empty, a default, a sign, a time zone.

        Arguments such as `timezone` or `currency` follow from a place that the user named.
        """
        if value.kind == "empty" or not value.text or _is_default(value, tool):
            return True
        last = name_words(value.path)[-1:]
        is_of_the_world = bool(last) and last[0] in OF_THE_WORLD and not str(value.raw).isupper()
        return is_of_the_world or not _PIECE.search(value.text)  # a sign: the @ of a zone

    def supports(self, value: Value, call: Call, tool: Tool | None) -> bool:
        """Return whether a value of a call is in the conversation, or follows from it.

        True for values that need no source, and for texts that the model words by itself if
        the conversation has their addresses. Dates are checked by
        `chat_values.is_date_supported`, numbers by `chat_values.is_number_supported`.
        """
        if self.is_settled(value, tool):
            return True
        if _MONTH.fullmatch(value.text):
            return self._has_month(value.text)
        if is_worded(value):
            return self._has_parts(value.text)
        if value.kind not in SOURCED_KINDS:
            return True
        if value.kind == "mail":
            mails = _MAIL_IN.findall(value.text)[:20]
            return all(map(self.holds_token, mails)) if mails else self.holds_token(value.text)
        if value.kind == "path":
            return self._has_path(value)
        if is_placeholder(value):  # only the whole text counts: "id" of "<id>" proves nothing
            return self.holds_token(value.text) or _is_described(value, tool)
        if value.kind == "id":
            return self._has_id(value) or _is_described(value, tool)
        return self._has_name(value, call) or _is_described(value, tool)

    def _has_parts(self, text: str) -> bool:
        """Return whether the conversation has a text's addresses and the values of its query.

        Such a value is `7` in `where id = 7`. True without any.
        """
        mails = _MAIL_IN.findall(text)[:20]
        compared = (
            [a or b or c for a, b, c in _COMPARED.findall(text)[:20]] if " where " in text else []
        )
        return all(map(self.holds_token, mails)) and all(map(self._has_words, compared))

    # --- names, ids, paths --------------------------------------------------------------------

    def _has_kin(self, text: str) -> bool:
        """Return whether the user wrote a word of the same meaning or root: reader and read.

        The same root means equal first five letters of words of about the same length.
        False if the value has other characters than letters.
        """
        if not text.isalpha():
            return False
        kin = KIN.get(text, set())
        users = set(_PIECE.findall(self.sources.users.text))
        if kin & users:
            return True
        return len(text) >= 6 and any(
            len(word) >= 5 and word[:5] == text[:5] and abs(len(word) - len(text)) <= 4
            for word in users
        )

    def _is_made_of_names(self, value: Value) -> bool:
        """Return whether a login name is made of names in the conversation: jdoe of Jane Doe.

        True if the conversation has the value without its first or last character; only for
        arguments such as `username`.
        """
        last, text = name_words(value.path)[-1:], value.text
        is_login = bool(last) and last[0] in (
            "username",
            "user",
            "login",
            "handle",
            "alias",
            "slug",
        )
        return is_login and len(text) > 3 and (text[1:] in self.pieces or text[:-1] in self.pieces)

    def _has_name(self, value: Value, call: Call) -> bool:
        """Return whether a name is in the conversation, also in parts, or follows from it.

        Examples are `Lyon, France` if it has Lyon, initials, `me`, and the currency `EUR`
        beside a euro sign.
        """
        last = name_words(value.path)[-1:]
        raw = str(value.raw)
        if sum(c.isdigit() for c in raw) >= 6:  # a telephone number, an account
            return _compact(value.text) in self.compact
        head, comma, _ = value.text.partition(",")
        if comma and len(head) > 2 and self._has_words(head):  # Lyon, France
            return True
        if self._has_words(value.text) or value.text in self.earlier_arguments:
            return True
        if self._has_kin(value.text) or self._is_made_of_names(value):
            return True
        if value.text in _SELF and re.search(r"\b(?:my|me|mine|i|our|this|current)\b", self.text):
            return True
        initials = "".join(w[0] for w in head.split() if w)
        if len(initials) >= 2 and raw[:1].isupper() and initials in self.pieces:
            return True
        if last and last[0] in LOOSE and raw.lower() == raw:
            return not _SET_TO.search(self.sources.request.text)
        if raw.isupper() and raw.isalpha() and len(raw) <= 4:  # a code: EUR, JFK, DE
            used = {v.text for v in call.values[:20]}
            if self.codes - used and value.text not in self.codes:
                return False
            signs = ALIASES.get(value.text)
            has_other = any(s in self.text for k in ALIASES if k != value.text
                            for s in ALIASES[k].split())  # fmt: skip
            return signs is None or any(s in self.text for s in signs.split()) or not has_other
        return bool(last and last[0] in LOOSE and len(raw) <= 3)

    def _has_words(self, text: str, *, exactly: bool = False) -> bool:
        """Return whether a text has words and the conversation has all of them (`has_piece`)."""
        pieces = _PIECE.findall(text)
        return bool(pieces) and all(self.has_piece(p, exactly=exactly) for p in pieces)

    def has_piece(self, piece: str, *, exactly: bool = False) -> bool:
        """Return whether the conversation has a word or a number; True for words of two letters.

        `exactly` excludes other forms of the word, such as `books` for `book`.
        """
        if piece in self.pieces or (not exactly and stem(piece) in self.words):
            return True
        number = number_of(piece.removeprefix("x"))  # also of x2, two pieces
        if number is not None:
            return number in self.numbers
        return (len(piece) <= 2 and piece.isalpha()) or piece in ("the", "and", "for", "with")

    def _has_id(self, value: Value) -> bool:
        """Return whether the conversation has an id, also in another spelling or in parts.

        True for a code of up to four capitals. In parts, it must have the id's numbers and the
        beginning of its one word: `ord-1234` for `order 1234`.
        """
        text = value.text
        if self.holds_token(text) or self._has_other_spelling(text):
            return True
        if len(compact := _compact(text)) >= 8 and compact in self.compact:
            return True
        raw = str(value.raw)
        if raw.isupper() and raw.isalpha() and len(raw) <= 4:
            return True
        if not any(c.isdigit() for c in text):
            return self._has_words(text) or text in self.earlier_arguments
        runs = re.findall(r"\d+", text)
        digits = max(runs, key=len)
        letters = [p for p in re.findall(r"[a-z]+", text)]
        is_named = all(any(w.startswith(p[:3]) for w in self.pieces) for p in letters)
        has_runs = all(run in self.pieces or run == "0" for run in runs)
        return len(digits) >= 3 and has_runs and is_named and len(letters) <= 1

    def _has_month(self, text: str) -> bool:
        """Return whether a month, 2026-04, is named: by its name, a day in it, or its distance.

        True for any month if one was named by its distance and today's date is unknown.
        """
        if self.holds_token(text):
            return True
        year, month = map(int, text.split("-"))
        s = self.sources
        days = s.users.days | s.results.days | s.rules.days
        if any(
            day[1] == month and day[0] in (0, year) for day in days if self._is_users_month(day)
        ):
            return True
        name = MONTHS[month - 1] if 1 <= month <= 12 else "?"
        if re.search(rf"\b{name}(?:{_MONTH_ENDS[name]})?\b", s.users.text):
            return True
        found = _MONTHS_AWAY.search(s.users.text)
        if found is None or self.today is None:
            return found is not None
        away = {"this": 0, "current": 0, "next": 1, "coming": 1, "last": -1, "previous": -1}
        at = self.today.year * 12 + self.today.month - 1 + away[found[1]]
        return (year, month) == (at // 12, at % 12 + 1)

    def _is_users_month(self, day: Day) -> bool:
        """Return whether a day is another than today's, which every instruction names."""
        today = self.today
        return today is None or day != (today.year, today.month, today.day)

    def _has_other_spelling(self, text: str) -> bool:
        """Return whether an id occurs with other marks between its parts: AB-12, AB12."""
        parts = re.findall(r"[a-z]+|\d+", text)
        if len(parts) < 2 or len(parts) > 8:
            return False
        pattern = r"[-_ #/.:]{0,2}".join(map(re.escape, parts))
        return re.search(rf"(?<![^\W_]){pattern}(?![^\W_])", self.text) is not None

    def _has_path(self, value: Value) -> bool:
        """Return whether the conversation has a path, or its base name and all its folders.

        Arguments of earlier successful calls count too; True for an empty path.
        """
        text = value.text.rstrip("/").removeprefix("./")
        if not text or self.holds_token(text) or text in self.earlier_arguments:
            return True
        base = text.rpartition("/")[2]
        folders = text.rpartition("/")[0]
        pieces = _PIECE.findall(folders)
        has_base = self.holds_token(base) or self._has_words(base, exactly=True)
        return has_base and all(
            self.has_piece(p, exactly=True) or p in self.earlier_arguments for p in pieces
        )

    def spans(self) -> set[float]:
        """Return the numbers of users and results, and the spans of time in minutes.

        A span is named (`half an hour`) or lies between two times of the user.
        """
        user_text = self.sources.users.text
        spans = {_SPAN_MINUTES[span] for span in _SPANS.findall(user_text)}
        times = sorted(self.sources.users.times | self.sources.request.times)[:12]
        spans |= {float(b - a) for a in times for b in times if b > a}
        hours = {(float(n) + 0.5) for n in spoken_numbers(user_text) if "and a half" in user_text}
        return spans | hours | self.sources.users.numbers | self.sources.results.numbers


def holds_token(text: str, token: str) -> bool:
    """Return whether a text has another as a word of its own, or with a plural's `s`.

    `pen` is in `the pens`, not in `open`. True also after 200 places inside of words.
    """
    at = text.find(token)
    for _ in range(200):
        if at < 0:
            return False
        before = text[at - 1] if at else " "
        end = at + len(token)
        after = text[end : end + 2] + "  "
        is_plural = after[0] == "s" and not after[1].isalnum()
        starts = not (before.isalnum() and token[:1].isalnum())
        joins = before in ".+-" and "@" in token  # joanna.anna@x.com is another address
        if starts and not joins and (not after[0].isalnum() or is_plural):
            return True
        at = text.find(token, at + 1)
    return True


def _numbers_of(fields: object) -> Iterable[float]:
    """Return an iterator over the numbers among the first 30 values of a record's fields."""
    values = fields.values() if isinstance(fields, dict) else ()
    return (number for each in islice(values, 30) if (number := number_of(each)) is not None)


def _schema_of(value: Value, tool: Tool | None) -> dict[str, object]:
    """Return the schema of a value's argument in its tool; {} if it has none."""
    schema = tool.properties.get(value.path.partition(" ")[0]) if tool else None
    return schema if isinstance(schema, dict) else {}


def description_of(value: Value, tool: Tool | None) -> str:
    """Return the description of a value's argument in its tool's schema; empty if it has none."""
    found = _schema_of(value, tool).get("description")
    return found if isinstance(found, str) else ""


def _is_default(value: Value, tool: Tool | None) -> bool:
    """Return whether a value is the default that its schema names."""
    schema = _schema_of(value, tool)
    return "default" in schema and schema["default"] == value.raw


def _is_described(value: Value, tool: Tool | None) -> bool:
    """Return whether the description of a tool or an argument has the value, as an example."""
    texts = [description_of(value, tool)[:MAX_DESCRIPTION]]
    texts.append(tool.description if tool else "")
    return any(holds_token(text.lower(), value.text) for text in texts if text)


def is_worded(value: Value) -> bool:
    """Return whether the model words a value by itself: a text, a title, a query.

    These are values of the kind `text`, and others of arguments such as `subject` or `note`.
    """
    last = name_words(value.path)[-1:]
    is_free = bool(last) and last[0] in FREE
    return value.kind == "text" or (
        is_free and value.kind in ("name", "mail", "id", "path", "date")
    )


def _compact(text: str) -> str:
    """Return a text without blanks, hyphens, full stops, slashes and brackets."""
    return re.sub(r"[\s\-./()]+", "", text)
