"""Questions about months, years and their lengths, stays with both ends, the order of dates."""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Verdict
from calibrator.readers.evidence.computed.calendar.date_answers import (
    DateQuestion,
    Judge,
    judge_count,
    judge_month,
    judge_yes,
)
from calibrator.readers.evidence.computed.calendar.reading import date_text, dates_in, months

_MONTH: Final = "|".join(sorted(months(), key=len, reverse=True))
_MONTH_AFTER: Final = re.compile(
    rf"^(?:what|which) month (?:comes|is|will it be|was it|falls) (?:(?:(?P<n>\d{{1,3}}) months?"
    rf" )?(?P<w>after|before|from)|right (?P<x>after|before)) (?P<m>{_MONTH})\s*\?*$",
    re.IGNORECASE,
)
_YEAR_AFTER: Final = re.compile(
    r"^(?:what|which) year (?:is|was|will be|comes|will it be|was it)(?: it)? (?:exactly )?"
    r"(?P<n>\d{1,4}) years? (?P<w>after|before|from) (?:the year )?(?P<y>\d{3,4})\s*\?*$",
    re.IGNORECASE,
)
_LEAP_YEARS: Final = re.compile(
    r"^how many leap years (?:are|were) (?:there )?(?:between|from) (?P<a>\d{4}) (?:and|to) "
    r"(?P<b>\d{4})(?: inclusive| \(inclusive\))?\s*\?*$",
    re.IGNORECASE,
)
_RUNS: Final = re.compile(
    r"^(?P<what>[^@?]{0,80}?)(?:runs?|lasts?|is|goes|takes place|stays?|going) from @(?P<d>\d) "
    r"(?:to|until|through|till) @(?P<d2>\d)(?P<incl>,? inclusive|,? \(inclusive\)|,? both days"
    r" included)[,.]? *how many days (?:is that|does it last|are that|in total|is it)\s*\?*$",
    re.IGNORECASE,
)

_LEAP: Final = re.compile(
    r"^[¿\s]*(?:is|was|will|ist|war|fue|es|est|était|l'année)\s*(?:the year |das jahr |el año "
    r"|l'année )?"
    r"(?P<y>\d{4})\s*(?:be |ein |una? |est(?:-elle)? |était |fue |a )*"
    r"(?:an? )?(?:leap year|schaltjahr|año bisiesto|bisiesto|année bissextile|bissextile)(?: or"
    r" not)?\s*[?.]*$",
    re.IGNORECASE,
)
_LENGTH: Final = re.compile(
    r"^[¿\s]*(?:how many|wie ?viele|cuántos|combien de) (?:days|tage|días|jours) "
    r"(?:(?:are|were|is|does|did|will|do|hat|hatte|tiene|tuvo|hay|a|y a-t-il|there|in|en|gab es"
    r"|gibt es|der|le mois de) )*"
    r"(?:the (?:month of |year )?|year |jahr |el año )?(?P<m>[^\W\d]+\.?)?(?: have)?\s*(?:of |in "
    r"|de |del )?(?P<y>\d{4})?"
    r"(?: have| has| be)?\s*[?.]*$",
    re.IGNORECASE,
)


def about_years(question: DateQuestion) -> Judge | None:
    """Compute a month or year some way off, a number of leap years, or the days of an event.

    Examples are `What month is 5 months after May?`, `What year is 30 years before 2010?`, `How
    many leap years are between 1990 and 2020?` and `The fair runs from @0 to @1 inclusive. How many
    days is that?`. Return the function that judges a reply; None for another question.
    """
    found = _MONTH_AFTER.match(question.text)
    if found:
        step = int(found["n"] or 1) * (-1 if (found["w"] or found["x"]).startswith("b") else 1)
        start = months()[found["m"].casefold()]
        wanted = (start - 1 + step) % 12 + 1
        return lambda reply: judge_month(reply, wanted, start)
    found = _YEAR_AFTER.match(question.text)
    if found:
        count, year = int(found["n"]), int(found["y"])
        value = year - count if found["w"].startswith("b") else year + count
        return lambda reply: judge_count(reply, value, set(), {year, count}, f"it is {value}")
    found = _LEAP_YEARS.match(question.text)
    if found:
        first, last = int(found["a"]), int(found["b"])
        if last - first > 4000:
            return None
        number = sum(map(isleap, range(first, last + 1)))
        inner = {number - isleap(first) - isleap(last)}
        return lambda reply: judge_count(reply, number, inner, {first, last}, f"there are {number}")
    found = _RUNS.match(question.text)
    if not found:
        return None
    first_day, last_day = (question.dates[int(found[key])].value for key in ("d", "d2"))
    if first_day is None or last_day is None or last_day < first_day:
        return None
    days = (last_day - first_day).days + 1
    known = {first_day.day, last_day.day}
    return lambda reply: judge_count(reply, days, set(), known, f"with both ends it is {days} days")


def about_leap_years(question: DateQuestion) -> Judge | None:
    """Compute whether a year is a leap year, or how many days a month or year has.

    An example is `How many days does February 2024 have?`. Return the function that judges a reply;
    None for another question and for February without a year.
    """
    found = _LEAP.match(question.text)
    if found:
        year = int(found["y"])
        is_leap = isleap(year)
        reason = f"{year} is {'' if is_leap else 'not '}a leap year"
        return lambda reply: judge_yes(reply, is_leap, reason)
    found = _LENGTH.match(question.text)
    if not found:
        return None
    name, year = (found["m"] or "").casefold().rstrip("."), int(found["y"] or 0)
    if name in months() and 1 <= year <= 9999:
        days = monthrange(year, months()[name])[1]
    elif name in months() and months()[name] != 2 and not year:
        days = monthrange(2001, months()[name])[1]
    elif year and name in ("", "year"):
        days = 366 if isleap(year) else 365
    else:
        return None
    return lambda reply: judge_count(reply, days, set(), {year}, f"it has {days} days")


_ORDERED: Final = re.compile(
    r"^(?:sort|order|put|arrange|list) (?:these |the |the following )*(?:dates|days|events)?"
    r"(?:[^@]{0,60}?)(?P<k>chronological(?:ly)?|earliest (?:to|first)|oldest (?:to|first)"
    r"|ascending|latest first|newest (?:to|first)|reverse chronological)",
    re.IGNORECASE,
)


def about_order(question: DateQuestion) -> Judge | None:
    """Compute the order of three or more dates: `Sort these dates chronologically: @0, @1, @2`.

    Return the function that judges a reply; None for another question or if a date has no year or
    two readings.
    """
    found = _ORDERED.match(question.text)
    days = [each.value for each in question.dates]
    if (
        found is None
        or len(days) < 3
        or None in days
        or not all(each.has_year for each in question.dates)
    ):
        return None
    is_reversed = found["k"].casefold().startswith(("latest", "newest", "reverse"))
    wanted = sorted((day for day in days if day), reverse=is_reversed)
    reason = f"in order they are {', '.join(map(date_text, wanted))}"

    def judge(reply: str) -> Verdict | None:
        """Judge whether a reply lists the dates in order.

        None if it has another number of dates.
        """
        stated = [each.value for each in dates_in(reply[:MAX_TEXT])]
        if len(stated) != len(wanted) or None in stated:
            return None
        return Verdict(stated == wanted, reason, "date")

    return judge
