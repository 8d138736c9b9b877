"""Questions about times of day: 12 and 24 hours, spans, times before and after, stated zones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.numbers import digits_for_words, numbers_in
from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange, Verdict
from calibrator.readers.evidence.computed.calendar.reading import (
    DAY,
    FoundTime,
    time_text,
    times_in,
)
from calibrator.readers.evidence.computed.calendar.zones import moves_between
from calibrator.text.guarded import compile_guarded

MAX_QUESTION: Final = 350  # characters
_QUICK: Final = compile_guarded(
    r"\d\s?(?:[:h.]\s?\d\d|[ap]\.?m\b|uhr|o'clock)|noon|midnight|mittag|mitternacht", re.IGNORECASE
)
_ASKS_SPAN: Final = re.compile(
    r"\bhow (?:long|much time|many (?:hours|minutes))\b|\bwie lange\b|\bwie ?viele (?:stunden"
    r"|minuten)\b|\bcuánto (?:tiempo|dura)\b|\bcuántas horas\b|\bcombien de temps\b|\b(?:length"
    r"|duration)\b",
    re.IGNORECASE,
)
_ASKS_TIME: Final = re.compile(
    r"\b(?:what time|when|at what time|which time|what is the time|what's the time)\b|\b(?:wann|um"
    r" wie ?viel uhr|wie spät)\b|\ba qué hora\b|\bqué hora\b|\bà quelle heure\b|\bquelle heure\b",
    re.IGNORECASE,
)
_DURATION: Final = re.compile(
    r"(?P<half>\bhalf an hour\b|\ban hour and a half\b|\beine halbe stunde\b|\banderthalb"
    r" stunden\b|\beineinhalb stunden\b|\bquarter of an hour\b)"
    r"|(?<![\d:.])(?P<h>\d{1,3}(?:[.,]\d+)?)\s?-?(?:hours?|hrs?|h|stunden?|horas?|heures?)\b(?!\s?"
    r"(?:format|clock|time|notation))"
    r"(?:\s?(?:,|and|und|y|et)?\s?(?P<m>\d{1,3})(?:\s?-?(?:minutes?|mins?|min|m|minuten?"
    r"|minutos?)\b|(?=\W*$)))?"
    r"|(?<![\d:.])(?P<m2>\d{1,4})\s?-?(?:minutes?|mins?|min|minuten?|minutos?)\b",
    re.IGNORECASE,
)
_FORMAT: Final = re.compile(
    r"^(?:what time is|what(?:'s| is)|convert|write|express|how (?:do you|would you) (?:write|say)"
    r"|change|give|was ist|schreibe)?\s*(?:the time )?(?P<t>[\d:.]+\s?(?:[ap]\.?\s?m\.?|uhr|hours"
    r"|h|hrs)?|noon|midnight)\s*(?:\(?(?:24|12)[- ]?(?:hour|h)[^)]*\)?\s*)?(?:to|in|into|as"
    r"|using)?\s*(?:the |a )?(?P<k>24|12|twenty-four|twelve)?[- ]?(?:hour|hr|h|stunden|am/pm"
    r"|military|am\s?/\s?pm|am or pm)?[- ]?(?:format|time|clock|notation|am/pm|form|system)?(?: "
    r"(?:format|time|clock|notation))?\s*[?.]*$",
    re.IGNORECASE,
)
_BACK: Final = re.compile(
    r"\b(?:before|earlier|ago|prior|vor|antes|avant|must (?:i|we|you) (?:leave|start)|should (?:i"
    r"|we|you) (?:leave|start|put)|need to (?:leave|start)|do (?:i|we) (?:need|have) to (?:leave"
    r"|start)|latest)\b",
    re.IGNORECASE,
)
_FORTH: Final = re.compile(
    r"\b(?:after|later|from|lasts?|takes?|long|ends?|arrive|finish|over|done|ready|back|runs? for"
    r"|past|nach|später|braucht|dauert|endet|dura|termina|después|dure|finit|se termine|if it"
    r"|starts?|begins?|leaves?|departs?|in \d)\b",
    re.IGNORECASE,
)
_STRANGE: Final = re.compile(
    r"\b(?:time ?zones?|utc|gmt|est|pst|cet|cest|bst|ist|edt|pdt|behind|ahead|every|each|per|twice"
    r"|speed|km|miles?|shift|break|pause|lunch|delay(?:ed)?|stops?|clock (?:loses|gains)|fast|slow"
    r"|angle|hands?|open(?:s|ing)?|clos(?:e|es|ing)|if not|unless|except|opening)\b",
    re.IGNORECASE,
)


def verify_times(exchange: Exchange) -> Verdict | None:
    """Judge a reply to a question about times of day.

    An example is `What time is 3 hours after 9:15 am?`. None if the question has no known form or
    the reply's answer is not clear.
    """
    question = exchange.question
    if not question or len(question) > MAX_QUESTION or not _QUICK.search(question):
        return None
    question = digits_for_words(question)
    for form in (_format, _zone, _span, _move_time):
        judge = form(question)
        if judge is not None:
            return judge(exchange.reply)
    return None


Judge = Callable[[str], Verdict | None]


def _format(question: str) -> Judge | None:
    """Convert a time between 12 and 24 hours: `Write 3:45 pm in 24-hour format`.

    Return the function that judges a reply; None for another question.
    """
    if not re.search(r"24|12|military|am/pm|am or pm", question, re.IGNORECASE):
        return None
    found = _FORMAT.match(question)
    if not found or not re.search(
        r"hour|format|clock|military|am/pm|\bh\b|stunden", question, re.IGNORECASE
    ):
        return None
    times = times_in(found["t"])
    if len(times) != 1:
        return None
    time = times[0]
    is_24 = bool(re.search(r"24|twenty|military", question[found.end("t") :], re.IGNORECASE))

    def judge(reply: str) -> Verdict | None:
        """Judge the times in a reply, for 24 hours also `1545`; None if they are not clear."""
        stated = _military(reply) if is_24 else []
        stated += [each for each in times_in(reply[:MAX_TEXT])]
        fresh = [each for each in stated if not (is_24 and _is_half(reply, each))] or stated
        if is_24 and time.minutes < DAY // 2 and len(fresh) != 1:
            return None
        return _judge_times(fresh, time.minutes, f"it is {time_text(time.minutes)}", is_exact=True)

    return judge


def _military(reply: str) -> list[FoundTime]:
    """Return the first time of four digits in a reply, such as `1545 hours`, as a list.

    Empty without one. Only the first 200 characters are read.
    """
    found = re.search(
        r"(?<![\d:.])([01]\d|2[0-3])([0-5]\d)(?:\s?h(?:ou)?rs?\.?)?"
        r"(?![\d:])",
        reply[:200],
    )
    if not found:
        return []
    return [FoundTime(int(found[1]) * 60 + int(found[2]), True, found.start(), found.end())]


def _is_half(reply: str, time: FoundTime) -> bool:
    """Return whether a time of a reply is written with am or pm."""
    return bool(re.search(r"[ap]\.?\s?m", reply[time.start : time.end], re.IGNORECASE))


def _judge_times(
    stated: list[FoundTime], wanted: int, reason: str, *, is_exact: bool = False
) -> Verdict | None:
    """Judge the times that a reply states; right if the first or last is `wanted` (minutes).

    None without a time, with `wanted` in the middle, and for more than three others. A time without
    am or pm may mean either half of the day, unless `is_exact`. `reason` goes into the verdict.
    """
    if not stated:
        return None

    def is_wanted(time: FoundTime) -> bool:
        """Return whether a time, in one of its readings, is the wanted one."""
        if time.minutes % DAY == wanted % DAY:
            return True
        is_open = not time.is_clear and not is_exact
        return is_open and (time.minutes + DAY // 2) % DAY == wanted % DAY

    hits = [is_wanted(time) for time in stated]
    if hits[-1] or hits[0]:
        return Verdict(True, reason, "time")
    if not any(hits) and len(hits) <= 3:
        return Verdict(False, reason, "time")
    return None


def durations_in(text: str) -> list[tuple[int, int, int]]:
    """Return (minutes, start, end) of each duration in a text: 150 for `2 hours and 30 minutes`.

    At most 50, in order.
    """
    found: list[tuple[int, int, int]] = []
    for match in _DURATION.finditer(text[:MAX_TEXT]):
        if match["half"]:
            words = match["half"].casefold()
            minutes = (
                90
                if words.startswith(("an hour", "ander", "einein"))
                else 15
                if "quarter" in words
                else 30
            )
        elif match["h"]:
            hours = Fraction(match["h"].replace(",", "."))
            minutes = int(hours * 60) + int(match["m"] or 0)
        else:
            minutes = int(match["m2"])
        found.append((minutes, match.start(), match.end()))
    return found[:50]


def _span(question: str) -> Judge | None:
    """Compute the time from one time of day to another: `How long is it from 9:15 to 11:40?`.

    Return the function that judges a reply; None for another question, other numbers in it, and
    times whose halves of the day are not clear.
    """
    times = times_in(question)
    if len(times) != 2 or not _ASKS_SPAN.search(question) or _STRANGE.search(question):
        return None
    if durations_in(question) or _has_other_numbers(question, times):
        return None
    first, second = times
    if not re.search(
        r"\b(?:from|between|starts?|begins?|leaves?|departs?|von"
        r"|zwischen|desde|entre|de|beginnt|sleep|slept|went|woke|opens?|until|till|to|bis)\b",
        question,
        re.IGNORECASE,
    ):
        return None
    wanted = (second.minutes - first.minutes) % DAY
    reason = (
        f"from {time_text(first.minutes)} to"
        f" {time_text(second.minutes)} it is {wanted // 60} h {wanted % 60} min"
    )
    is_clear = first.is_clear == second.is_clear
    if not is_clear and second.minutes <= first.minutes:
        return None
    if not first.is_clear and not second.is_clear and second.minutes < first.minutes:
        wanted %= DAY // 2
        reason = f"it is {wanted // 60} h {wanted % 60} min"

    def judge(reply: str) -> Verdict | None:
        """Judge the durations in a reply, or its only number as hours or minutes.

        None if not clear.
        """
        stated = [minutes for minutes, _, _ in durations_in(digits_for_words(reply[:MAX_TEXT]))]
        if not stated:
            numbers = [number.value for number in numbers_in(reply[:200])]
            if len(numbers) == 1 and not times_in(reply[:200]):
                is_minutes = "minute" in question.casefold()
                return Verdict(numbers[0] * (1 if is_minutes else 60) == wanted, reason, "time")
            return None
        if stated[-1] == wanted or stated[0] == wanted:
            return Verdict(True, reason, "time")
        if wanted in stated or sum(stated) == wanted or len(stated) > 3:
            return None
        if any(wanted - each in (0, *stated) for each in stated):
            return None
        return Verdict(False, reason, "time")

    return judge


def _has_other_numbers(question: str, times: list[FoundTime]) -> bool:
    """Return whether a question has digits outside of its times."""
    rest, end = [], 0
    for time in times:
        rest.append(question[end : time.start])
        end = time.end
    rest.append(question[end:])
    return any(character.isdigit() for character in "".join(rest))


def _move_time(question: str) -> Judge | None:
    """Compute a time of day before or after another: `A train leaves at 9:15 and takes 2 hours.

    When ..?`. Return the function that judges a reply; None for another question or an unclear
    direction.
    """
    times, spans = times_in(question), durations_in(question)
    if len(times) != 1 or not spans or len(spans) > 2 or not _ASKS_TIME.search(question):
        return None
    if _STRANGE.search(question):
        return None
    is_back, is_forth = bool(_BACK.search(question)), bool(_FORTH.search(question))
    if (
        is_back
        and re.search(
            r"\b(?:lasts?|takes?|starts?|begins?|leaves? at|departs?)\b", question, re.IGNORECASE
        )
        and not re.search(
            r"\b(?:before|earlier|must|should|need|have to|latest)\b", question, re.IGNORECASE
        )
    ):
        is_back = False
    if not is_back and not is_forth:
        return None
    if is_back and re.search(r"\b(?:after|later)\b", question, re.IGNORECASE):
        return None
    span = sum(minutes for minutes, _, _ in spans)
    start = times[0]
    wanted = start.minutes + (-span if is_back else span)
    reason = f"it is {time_text(wanted)}"
    is_same = span % DAY == 0

    def judge(reply: str) -> Verdict | None:
        """Judge the times in a reply beside the one of the question.

        None if they are not clear.
        """
        stated = times_in(reply[:MAX_TEXT])
        fresh = [each for each in stated if each.minutes % DAY != start.minutes % DAY or is_same]
        if not fresh:
            return Verdict(False, reason, "time") if stated and len(reply) < 40 else None
        return _judge_times(
            fresh, wanted, reason, is_exact=start.is_clear and all(e.is_clear for e in fresh)
        )

    return judge


_OFFSET: Final = re.compile(r"\b(?:UTC|GMT)\s?(?P<o>[+−–-]\s?\d{1,2}(?::?[0-5]\d)?)?(?![\w+])")
_AHEAD: Final = re.compile(
    r"\b(?P<a>[A-Z][\w ]{1,20}?) is (?P<n>\d{1,2}(?:\.5)?) hours? (?P<way>ahead of|behind) "
    r"(?P<b>[A-Z][\w ]{1,20}?)[.,;]"
)


def _zone(question: str) -> Judge | None:
    """Compute a time in another zone: `It is 9:00 UTC+1. What time is it in UTC-5?`.

    The question states both offsets, the difference (`Lima is 6 hours behind Rome.`) or two known
    cities. Return the function that judges a reply; None for another question.
    """
    times = times_in(_OFFSET.sub(" ", question))
    if len(times) != 1:
        return None
    moves = moves_between(question, times[0].start)
    if moves:
        start = times[0]
        return lambda reply: _any_zone_verdict(reply, start, moves)
    offsets = list(_OFFSET.finditer(question))
    if len(offsets) == 2 and re.search(
        r"\bwhat time|\bwhat is|\bconvert|\bin UTC", question, re.IGNORECASE
    ):
        first, second = (_hours(each["o"]) for each in offsets)
        time = times[0]
        is_target_first = (
            bool(re.match(r"^(?:what time is it in|what is the time in)", question, re.IGNORECASE))
            and offsets[0].start() < times_in(question)[0].start
            if times_in(question)
            else False
        )
        move = (first - second) if is_target_first else (second - first)
        wanted = time.minutes + move
        return lambda reply: _zone_verdict(reply, time, wanted)
    ahead = _AHEAD.search(question)
    if not ahead:
        return None
    difference = int(Fraction(ahead["n"]) * 60) * (1 if ahead["way"].startswith("a") else -1)
    target = re.search(
        r"what time (?:is it|will it be) in "
        rf"(?P<p>{re.escape(ahead['a'].strip())}|{re.escape(ahead['b'].strip())})\b",
        question,
        re.IGNORECASE,
    )
    if not target:
        return None
    is_first_asked = target["p"].casefold() == ahead["a"].strip().casefold()
    wanted = times[0].minutes + (difference if is_first_asked else -difference)
    return lambda reply: _zone_verdict(reply, times[0], wanted)


def _any_zone_verdict(reply: str, start: FoundTime, moves: Iterable[int]) -> Verdict | None:
    """Judge a reply whose time is `start` moved by one of several differences in minutes.

    Two cities may change their clocks on different days. Right if the reply fits one of them; None
    if only some of them show it wrong. `moves` must not be empty.
    """
    verdicts = [_zone_verdict(reply, start, start.minutes + move) for move in moves]
    right = [verdict for verdict in verdicts if verdict is not None and verdict.is_right]
    if right or len(verdicts) == 1:
        return (right or verdicts)[0]
    return verdicts[0] if all(verdict is not None for verdict in verdicts) else None


def _zone_verdict(reply: str, start: FoundTime, wanted: int) -> Verdict | None:
    """Judge whether a reply states the time `wanted` (minutes), beside the question's time `start`.

    Offsets such as `UTC+2` are no times. None if its times are not clear.
    """
    text = _OFFSET.sub(" ", reply[:MAX_TEXT])
    fresh = [
        each
        for each in times_in(text)
        if each.minutes % DAY != start.minutes % DAY or wanted % DAY == start.minutes % DAY
    ]
    return _judge_times(fresh, wanted, f"it is {time_text(wanted)}")


def _hours(text: str | None) -> int:
    """Return an offset in minutes: 330 for `+5:30`, -300 for `-5`; 0 for None or an empty text."""
    if not text:
        return 0
    plain = re.sub(r"[\s:]", "", text)
    sign = 1 if plain[0] == "+" else -1
    digits = plain[1:]
    if len(digits) <= 2:
        return sign * int(digits) * 60
    return sign * (int(digits[:-2]) * 60 + int(digits[-2:]))
