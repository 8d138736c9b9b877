"""The check whether a value of a call was said by the user, a result or the instructions.

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

from calibrator.calls.notes.words import (
    ALIASES,
    CONTROL,
    FREE,
    KIN,
    LOOSE,
    OF_THE_WORLD,
    PEOPLE,
)
from calibrator.calls.reading.conversation import Call, Tool, View
from calibrator.calls.reading.grounding import SOUGHT, Sources, is_placeholder
from calibrator.calls.reading.steps import failed
from calibrator.calls.reading.values import (
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

_COMPUTES = re.compile(
    r"\b(?:half|third|quarter|double|twice|triple|each|per|every|all|both|total|sum|together|rest"
    r"|remain\w*|difference|percent|more|less|fewer|extra|additional|increas\w*|decreas\w*|rais\w*"
    r"|reduc\w*|lower\w*|cut|plus|minus|split|divid\w*|share|average|warmer|cooler|colder|higher"
    r"|discount|tax|tip|add\w*|another|longer|shorter|everything|convert\w*|whole|full|by|top up"
    r"|up|down|off|back|order|them|these|those|overpaid|balance|owe\w*|for|times|nights"
    r"|a (?:night|day"
    r"|month|year|piece|person|head|week|hour|unit))\b|%"
)
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
_TIME_FACTORS = (60.0, 1 / 60, 24.0, 1 / 24, 7.0, 1 / 7, 3_600.0, 1 / 3_600, 1_440.0, 1_000.0)
_TIMED = word_set("minutes minute min mins seconds second sec secs hours hour hrs duration delay"
    " length"
                  " days weeks ms timeout timespan span interval reminder before ttl")  # fmt: skip
_FACTORED = re.compile(
    r"\b(?:kg|g|grams?|kilos?|kilograms?|km|kilomet\w+|met\w+s?|m|cm|mm|lit\w+s?|l|ml|mg|tons?"
    r"|tonnes?"
    r"|pounds?|lbs?|ounces?|oz|miles?|feet|ft|inch\w*|cents?|pence|gallons?|bytes|kb|mb|gb|tb)\b"
)
_MEASURED = (1e3, 1e-3, 100.0, 0.01, 1e6, 1.609344, 0.621371, 0.453592, 2.204623, 2.54, 0.393701,
             0.3048, 3.28084, 28.3495, 3.785412, 0.264172, 1_024.0,
             1 / 1_024)  # fmt: skip
_DOTTED = re.compile(r"(?<![\d.])((?:19|20)\d\d)[./](\d{1,2})[./](\d{1,2})(?![\d])")
_UP = re.compile(
    r"\b(?:rais\w*|increas\w*|more|higher|plus|add\w*|up|warmer|longer|extend\w*|bonus|top)\b"
)
_DOWN = re.compile(r"\b(?:reduc\w*|lower\w*|decreas\w*|less|off|discount\w*|cut|down|cooler"
    r"|colder|minus"
                   r"|shorter|cheaper)\b")  # fmt: skip
_MAIL_IN = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}")
_STANDALONE = re.compile(r"(?<![\w.#/-])\d{1,12}(?:,\d{3})*(?:\.\d{1,6})?(?![\w/-])")
_REST = re.compile(r"\b(?:the rest|remain\w+|what(?:'s| is) left)\b")
_BY_PART = re.compile(r"\bby (?:a |one )?(half|third|quarter|tenth)\b")
_MONTH = re.compile(r"(?:19|20)\d\d-(?:0\d|1[0-2])")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH_ENDS = dict(zip(_MONTHS, ("uary", "ruary", "ch", "il", "", "e", "y", "ust", "t(?:ember)?",
                                 "ober", "ember", "ember"), strict=True))  # fmt: skip
_MONTHS_AWAY = re.compile(r"\b(this|current|next|coming|last|previous) month(?:'s)?\b")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d+)?)\s*(?:%|percent|per cent)")
_GIVEN_BACK = word_set("credit refund discount rebate deduct deduction tip waive reimburse")
_DELTAS = word_set("delta difference change adjustment diff")
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
_CLOCK_NAMES = word_set("hour minute day month year hours_of_day weekday week date time")


@dataclass
class Said:
    """All that was said in a conversation, read once for the calls of a reply."""

    view: View
    sources: Sources

    @cached_property
    def text(self) -> str:
        """The conversation without the assistant's words, in lower case."""
        s = self.sources
        parts = (s.users.text, s.request.text, s.results.text, s.rules.text)
        return "\n".join(part[-MAX_TEXT:] for part in parts)

    @cached_property
    def words(self) -> set[str]:
        """The stems of all words."""
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
        """The numbers, also those in words."""
        s, told = self.sources, self.sources.users.text
        numbers = s.users.numbers | s.request.numbers | s.results.numbers | s.rules.numbers
        numbers |= {float(_TENS[a] + _DIGITS[b]) for a, b in _COMPOUND.findall(told)}
        numbers |= {float(n) * _FACTORS[f] for n, f in _THOUSANDS.findall(told)}
        numbers |= {_MORE_NUMBERS[p] for p in self.pieces & _MORE_NUMBERS.keys()}
        return numbers | {number for n in s.records[-100:] for number in _numbers_of(n.fields)}

    @cached_property
    def today(self) -> date | None:
        """The current date by the conversation, also with the day first: 27 November 2026."""
        if self.sources.today is not None:
            return self.sources.today
        for text in (self.sources.rules.text, self.sources.users.text):
            if (found := _NOW.search(text)) is not None:
                days = [day for each in dates_in(found[0]) if (day := calendar_day(each))]
                return days[0] if days else None
        return None

    @cached_property
    def codes(self) -> set[str]:
        """The codes that the user wrote in capitals: EMEA, JFK."""
        return {c.lower() for turn in self.view.turns[-3:] for c in _CODE.findall(turn)[:40]}

    @cached_property
    def compact(self) -> str:
        """The text without blanks and hyphens, in which a long number is one token."""
        return re.sub(r"[\s\-./()]+", "", self.text)

    @cached_property
    def days(self) -> set[tuple[int, int, int]]:
        """The days that the text writes with full stops: 2026.4.15."""
        return {(int(y), int(m), int(d)) for y, m, d in _DOTTED.findall(self.text)[:200]}

    @cached_property
    def relative(self) -> set[date]:
        """The days that the user names by their distance.

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
        """The days that the instructions name by their distance in weeks or months."""
        rules, today = self.sources.rules.text, self.today
        if today is None or not re.search(r"\b(?:weeks?|months?|days?)\b", rules):
            return set()
        return relative_days(
            re.sub(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b", " ", rules), today
        )

    @cached_property
    def plain_numbers(self) -> set[float]:
        """The numbers of the request that are no part of an id."""
        text = without_days(self.sources.request.text)
        return {float(n.replace(",", "")) for n in _STANDALONE.findall(text)[:200]}

    @cached_property
    def made(self) -> str:
        """The arguments of earlier calls that succeeded, such as files and names, in lower case."""
        calls = (c.key for c in self.view.earlier[-30:] if c.result and not failed(c.result))
        return " ".join(calls).lower()[:20_000]

    def holds_token(self, text: str) -> bool:
        """Return whether the conversation has a text that is no part of a longer word."""
        return holds_token(self.text, text)

    def is_said(self, value: Value, call: Call, tool: Tool | None) -> bool:
        """Return whether a value of a call was said, or follows from the conversation.

        Dates are checked by `dates.is_date_said`.
        """
        if value.kind == "empty" or not value.text or _is_default(value, tool):
            return True
        if not _PIECE.search(value.text):  # a sign, such as the @ of a zone
            return True
        if _MONTH.fullmatch(value.text):
            return self._is_month_said(value.text)
        last = name_words(value.path)[-1:]
        if last and last[0] in OF_THE_WORLD and not str(value.raw).isupper():
            return True
        if is_worded(value):
            return self._are_parts_said(value.text)
        if value.kind not in SOUGHT:
            return True
        if value.kind == "number":
            return self._is_number_said(value, tool)
        if value.kind == "mail":
            mails = _MAIL_IN.findall(value.text)[:20]
            return all(map(self.holds_token, mails)) if mails else self.holds_token(value.text)
        if value.kind == "path":
            return self._is_path_said(value)
        if is_placeholder(value):  # only the whole text counts: "id" of "<id>" proves nothing
            return self.holds_token(value.text) or _is_described(value, tool)
        if value.kind == "id":
            return self._is_id_said(value) or _is_described(value, tool)
        return self._is_name_said(value, call) or _is_described(value, tool)

    def _are_parts_said(self, text: str) -> bool:
        """Return whether the addresses in a text and the values compared in a query were said."""
        mails = _MAIL_IN.findall(text)[:20]
        compared = (
            [a or b or c for a, b, c in _COMPARED.findall(text)[:20]] if " where " in text else []
        )
        return all(map(self.holds_token, mails)) and all(map(self._are_words_said, compared))

    # --- names, ids, paths --------------------------------------------------------------------

    def _is_kin_said(self, text: str) -> bool:
        """Return whether a word of the same meaning or root was said: reader and read."""
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
        """Return whether a login name is made of names that were said: jdoe of Jane Doe."""
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

    def _is_name_said(self, value: Value, call: Call) -> bool:
        last = name_words(value.path)[-1:]
        raw = str(value.raw)
        if sum(c.isdigit() for c in raw) >= 6:  # a telephone number, an account
            return _compacted(value.text) in self.compact
        head, comma, _ = value.text.partition(",")
        if comma and len(head) > 2 and self._are_words_said(head):  # Lyon, France
            return True
        if self._are_words_said(value.text) or value.text in self.made:
            return True
        if self._is_kin_said(value.text) or self._is_made_of_names(value):
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

    def _are_words_said(self, text: str, *, exactly: bool = False) -> bool:
        pieces = _PIECE.findall(text)
        return bool(pieces) and all(self._is_piece_said(p, exactly=exactly) for p in pieces)

    def _is_piece_said(self, piece: str, *, exactly: bool = False) -> bool:
        if piece in self.pieces or (not exactly and stem(piece) in self.words):
            return True
        number = number_of(piece.removeprefix("x"))  # also of x2, two pieces
        if number is not None:
            return number in self.numbers
        return (len(piece) <= 2 and piece.isalpha()) or piece in ("the", "and", "for", "with")

    def _is_id_said(self, value: Value) -> bool:
        text = value.text
        if self.holds_token(text) or self._is_spelt_otherwise(text):
            return True
        if len(compact := _compacted(text)) >= 8 and compact in self.compact:
            return True
        raw = str(value.raw)
        if raw.isupper() and raw.isalpha() and len(raw) <= 4:
            return True
        if not any(c.isdigit() for c in text):
            return self._are_words_said(text) or text in self.made
        runs = re.findall(r"\d+", text)
        digits = max(runs, key=len)
        letters = [p for p in re.findall(r"[a-z]+", text)]
        is_named = all(any(w.startswith(p[:3]) for w in self.pieces) for p in letters)
        has_runs = all(run in self.pieces or run == "0" for run in runs)
        return len(digits) >= 3 and has_runs and is_named and len(letters) <= 1

    def _is_month_said(self, text: str) -> bool:
        """Return whether a month, 2026-04, was said: by its name, a day in it, or its distance."""
        if self.holds_token(text):
            return True
        year, month = map(int, text.split("-"))
        s = self.sources
        days = s.users.days | s.results.days | s.rules.days
        if any(
            day[1] == month and day[0] in (0, year) for day in days if self._is_users_month(day)
        ):
            return True
        name = _MONTHS[month - 1] if 1 <= month <= 12 else "?"
        if re.search(rf"\b{name}(?:{_MONTH_ENDS[name]})?\b", s.users.text):
            return True
        found = _MONTHS_AWAY.search(s.users.text)
        if found is None or self.today is None:
            return found is not None
        away = {"this": 0, "current": 0, "next": 1, "coming": 1, "last": -1, "previous": -1}
        at = self.today.year * 12 + self.today.month - 1 + away[found[1]]
        return (year, month) == (at // 12, at % 12 + 1)

    def _is_users_month(self, day: Day) -> bool:
        """Return whether a day is not only today's, which every instruction names."""
        today = self.today
        return today is None or day != (today.year, today.month, today.day)

    def _is_spelt_otherwise(self, text: str) -> bool:
        """Return whether an id was said with other marks between its parts: AB-12, ab 12, AB12."""
        parts = re.findall(r"[a-z]+|\d+", text)
        if len(parts) < 2 or len(parts) > 8:
            return False
        pattern = r"[-_ #/.:]{0,2}".join(map(re.escape, parts))
        return re.search(rf"(?<![^\W_]){pattern}(?![^\W_])", self.text) is not None

    def _is_path_said(self, value: Value) -> bool:
        text = value.text.rstrip("/").removeprefix("./")
        if not text or self.holds_token(text) or text in self.made:
            return True
        base = text.rpartition("/")[2]
        folders = text.rpartition("/")[0]
        pieces = _PIECE.findall(folders)
        has_base = self.holds_token(base) or self._are_words_said(base, exactly=True)
        return has_base and all(
            self._is_piece_said(p, exactly=True) or p in self.made for p in pieces
        )

    # --- numbers ------------------------------------------------------------------------------

    def _is_number_said(self, value: Value, tool: Tool | None) -> bool:
        number, names = value.number, set(name_words(value.path))
        last = name_words(value.path)[-1:]
        if number is None or (last and last[0] in CONTROL) or abs(number) > 1e8:
            return True
        if isinstance(value.raw, str) and value.raw.isdigit() and not names & (PEOPLE | _TIMED):
            return self._is_piece_said(value.text) or _describes_number(value, tool, number)
        if number in self.numbers or -number in self.numbers:
            return True
        if names & _DELTAS and self.sources.computed(number):
            return True
        if number in (0.0, 1.0) or (names & LOOSE and 0 < number <= 10):
            return True
        if _describes_number(value, tool, number):
            return True
        request = self.sources.users.text
        if names & PEOPLE and number <= 12 and not (self.plain_numbers - {1.0}):
            return bool(
                re.search(r"\b(?:me|us|we|my|our|and|family|couple|husband|wife)\b", request)
            )
        if names & _CLOCK_NAMES and self._is_time_part(number):
            return True
        if names & _TIMED and any(
            abs(number * f - n) < 1e-6 for f in (1.0, *_TIME_FACTORS) for n in self.spans() if n
        ):
            return True
        if 0 < number < 1 and round(number * 100, 4) in self.numbers:
            return True
        if self._is_converted(number, names, request):
            return True
        is_given_back = bool(set(name_words(tool.name) if tool else ()) & _GIVEN_BACK)
        return bool(_COMPUTES.search(request)) and self._is_computed(
            number, request, is_share_only=is_given_back or bool(names & _GIVEN_BACK)
        )

    def _is_converted(self, number: float, names: set[str], request: str) -> bool:
        """Return whether a number is one of the user's in another unit."""
        told = self.sources.users.numbers
        if "fahrenheit" in request or "celsius" in request or "\u00b0f" in request:
            other = [(n - 32) * 5 / 9 for n in told] + [n * 9 / 5 + 32 for n in told]
            if any(abs(number - n) < 0.6 for n in other):
                return True
        if names & {"cents", "cent", "pence", "minor"}:
            return number / 100 in told
        if names & {"percent", "percentage", "pct", "ratio"} and re.search(
            r"\bhalf|third|quarter", request
        ):
            return number in (50, 25, 75, 33, 0.5, 0.25, 0.75)
        if not _FACTORED.search(request):
            return False
        if any(re.search(rf"\d\s?{re.escape(name)}\b", request) for name in names):
            return False  # the user uses the argument's own unit
        factors = _factors(names, request) or _MEASURED
        return any(abs(number - n * f) <= 0.01 * abs(number) for f in factors for n in told if n)

    def spans(self) -> set[float]:
        """Return the numbers of users and results, and the spans of time in minutes."""
        told = self.sources.users.text
        spans = {_SPAN_MINUTES[span] for span in _SPANS.findall(told)}
        times = sorted(self.sources.users.times | self.sources.request.times)[:12]
        spans |= {float(b - a) for a in times for b in times if b > a}
        hours = {(float(n) + 0.5) for n in spoken_numbers(told) if "and a half" in told}
        return spans | hours | self.sources.users.numbers | self.sources.results.numbers

    def _is_time_part(self, number: float) -> bool:
        """Return whether a number is an hour, a minute, a day, a month or a year that was named."""
        times = self.sources.users.times | self.sources.results.times
        if any(number in (t // 60, t % 60, t // 60 % 12) for t in times):
            return True
        days = self.sources.users.days | self.sources.results.days
        days |= {(d.year, d.month, d.day) for d in self.relative}
        return any(number in day for day in days)

    def _is_computed(self, number: float, request: str, *, is_share_only: bool) -> bool:
        if self._is_share(number, request, is_share_only=is_share_only):
            return True
        if _REST.search(request) and number > max(self.numbers, default=0.0):
            return False
        is_percent = is_share_only and _PERCENT.search(request) is not None
        if not is_percent and not _BY_PART.search(request) and self.sources.computed(number):
            return True
        columns: dict[tuple[int, str], list[float]] = {}
        for record in self.sources.records[-60:]:
            for key, held in list(record.fields.items())[:20]:
                if (each := number_of(held)) is not None:
                    columns.setdefault((record.group, str(key)), []).append(each)
        sums = {round(sum(each), 2) for each in columns.values()}
        return any(abs(number - each) < 0.006 for each in sums)

    def _is_share(self, number: float, request: str, *, is_share_only: bool) -> bool:
        """Return whether a number is a part of one that was said: half, a third, 15 % off.

        With `is_share_only`, what is left after 15 % off is none: a credit is the 15 % itself.
        """
        shares = {0.5: "half", 1 / 3: "third", 2 / 3: "third", 0.25: "quarter", 0.75: "quarter",
                  2.0: "double twice", 3.0: "triple", 0.1: "tenth"}  # fmt: skip
        told = {
            share for share, names in shares.items() if any(n in request for n in names.split())
        }
        is_up, is_down = bool(_UP.search(request)), bool(_DOWN.search(request))
        if is_up != is_down and (by := _BY_PART.search(request)):
            part = {"half": 0.5, "third": 1 / 3, "quarter": 0.25, "tenth": 0.1}[by[1]]
            told = {1 + part if is_up else 1 - part}
        for percent in _PERCENT.findall(request)[:10]:
            share = float(percent) / 100
            if is_share_only:
                told.add(share)
                continue
            told |= {1 + share} if is_up and not is_down else {1 - share} if is_down else set()
            told |= {1 + share, 1 - share} if not is_up and not is_down else set()
            told.add(share)
        return any(abs(number - s * n) < 0.006 for s in told for n in self.numbers)


def _factors(names: set[str], request: str) -> list[float]:
    """Return the factors from the units of a request to that of an argument's name.

    Empty if either is not known.
    """
    words = set(_PIECE.findall(request)) | set(re.findall(r"(?<=\d)[a-z]+\b", request))
    for units in _BASES:
        own = [units[name] for name in names if name in units]
        told = [units[word] for word in words if word in units]
        if own and told:
            return [each / own[0] for each in told]
    return []


def _bases(text: str) -> dict[str, float]:
    found = {}
    for line in text.split("|"):
        base, *names = line.split()
        found |= dict.fromkeys(names, float(base))
    return found


_BASES = (  # units of a dimension, each in the first one
    _bases("1 g gram grams|1000 kg kilo kilos kilogram kilograms|1e6 t ton tons tonne tonnes"
           "|0.001 mg|453.592 lb lbs pound pounds|28.3495 oz ounce ounces"),
    _bases("1 m meter meters metre metres|1000 km kilometer kilometers kilometre kilometres"
           "|0.01 cm|0.001 mm|1609.344 mile miles|0.3048 ft feet foot|0.0254 inch inches"),
    _bases("1 l liter liters litre litres|0.001 ml|3.785412 gallon gallons"),
)  # fmt: skip


def holds_token(text: str, sought: str) -> bool:
    """Return whether a text has another as a word of its own, or with a plural's `s`."""
    at = text.find(sought)
    for _ in range(200):
        if at < 0:
            return False
        before = text[at - 1] if at else " "
        end = at + len(sought)
        after = text[end : end + 2] + "  "
        is_plural = after[0] == "s" and not after[1].isalnum()
        starts = not (before.isalnum() and sought[:1].isalnum())
        joins = before in ".+-" and "@" in sought  # joanna.anna@x.com is another address
        if starts and not joins and (not after[0].isalnum() or is_plural):
            return True
        at = text.find(sought, at + 1)
    return True


def _numbers_of(fields: object) -> Iterable[float]:
    values = fields.values() if isinstance(fields, dict) else ()
    return (number for each in islice(values, 30) if (number := number_of(each)) is not None)


def _schema_of(value: Value, tool: Tool | None) -> dict[str, object]:
    schema = tool.properties.get(value.path.partition(" ")[0]) if tool else None
    return schema if isinstance(schema, dict) else {}


def _is_default(value: Value, tool: Tool | None) -> bool:
    schema = _schema_of(value, tool)
    return "default" in schema and schema["default"] == value.raw


def _is_described(value: Value, tool: Tool | None) -> bool:
    """Return whether the description of a tool or an argument has the value."""
    described = _schema_of(value, tool).get("description")
    texts = [described[:MAX_DESCRIPTION] if isinstance(described, str) else ""]
    texts.append(tool.description if tool else "")
    return any(holds_token(text.lower(), value.text) for text in texts if text)


def is_worded(value: Value) -> bool:
    """Return whether the model words a value by itself: a text, a title, a query."""
    last = name_words(value.path)[-1:]
    is_free = bool(last) and last[0] in FREE
    return value.kind == "text" or (
        is_free and value.kind in ("name", "mail", "id", "path", "date")
    )


def _compacted(text: str) -> str:
    return re.sub(r"[\s\-./()]+", "", text)


def _describes_number(value: Value, tool: Tool | None, number: float) -> bool:
    """Return whether the description of an argument lists a number: 1 = cleaning, 2 = ironing."""
    described = _schema_of(value, tool).get("description")
    return isinstance(described, str) and holds_token(described[:MAX_DESCRIPTION], f"{number:g}")
