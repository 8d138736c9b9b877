"""Questions about dates: weekdays, spans, days before and after, leap years, lengths of months."""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from calibrator.readers.evidence.computed.basics.numbers import digits_for_words
from calibrator.readers.evidence.computed.basics.verdict import MAX_TEXT, Exchange, Verdict
from calibrator.readers.evidence.computed.calendar.date_answers import (
    DateQuestion,
    Judge,
    judge_count,
    judge_date,
    judge_other_weekday,
    judge_weekday,
    judge_yes,
    moved_date,
    read_question,
)
from calibrator.readers.evidence.computed.calendar.reading import (
    NAMES,
    date_text,
    dates_in,
    weekdays,
    weekdays_in,
)
from calibrator.readers.evidence.computed.calendar.years import (
    about_leap_years,
    about_order,
    about_years,
)
from calibrator.text.guarded import compile_guarded

MAX_QUESTION: Final = 300  # characters
_QUICK: Final = compile_guarded(
    r"\b(?:days?|weeks?|months?|years?|date|weekday|monday|tuesday|wednesday|thursday|friday"
    r"|saturday"
    r"|sunday|tomorrow|yesterday|old|tage?|wochen?|wochentag|datum|iso|schaltjahr|jahr|día"
    r"|semanas?|fecha|año"
    r"|bisiesto|jour|semaines?|année|bissextile|montag|dienstag|mittwoch|donnerstag|freitag|samstag"
    r"|sonntag|lunes|martes|jueves|viernes|domingo|lundi|mardi|mercredi|jeudi|vendredi|samedi"
    r"|dimanche)",
    re.IGNORECASE,
)
_FIXED: Final = {
    "christmas day": (12, 25), "christmas eve": (12, 24), "christmas": (12, 25),
    "boxing day": (12, 26), "new year's day": (1, 1), "new years day": (1, 1),
    "new year's eve": (12, 31), "new years eve": (12, 31), "halloween": (10, 31),
    "valentine's day": (2, 14), "valentines day": (2, 14), "independence day": (7, 4),
    "bastille day": (7, 14), "st patrick's day": (3, 17), "heiligabend": (12, 24),
    "silvester": (12, 31), "neujahr": (1, 1), "navidad": (12, 25), "noël": (12, 25),
}  # fmt: skip
_FEAST: Final = compile_guarded(
    r"\b("
    + "|".join(sorted(map(re.escape, _FIXED), key=len, reverse=True))
    + r")(?: day)?,?(?:(?: in| of| im jahr| en)?(?:\s+"
    r"(?P<y>\d{4})))?(?!\w)",
    re.IGNORECASE,
)
_TODAY: Final = compile_guarded(
    r"\b(?:today(?:'s date)? is|(?:the )?current date(?: is)?:?|today:|date:|it is(?: now)?(?:"
    r" today)?|heute ist(?: der)?|hoy es|nous sommes(?: le)?|aujourd'hui,? (?:nous sommes"
    r"|c'est))\s*:?\s*",
    re.IGNORECASE,
)


def today_of(text: str) -> tuple[date | None, int | None]:
    """Return (date, weekday) of today as a text states them.

    An example is `Today is Monday, 6 May 2024`. Each is None if the first such statement lacks it;
    both if there is no statement. Monday is 0.
    """
    for found in _TODAY.finditer(text[:MAX_TEXT]):
        rest = text[found.end() : found.end() + 60].split("\n")[0]
        sentence = re.split(r"[.?!](?:\s|$)(?!\d)", rest)[0]
        days = dates_in(sentence)
        day = next((each.value for each in days if each.has_year and each.start < 25), None)
        names = [number for number, start in weekdays_in(sentence) if start < 4]
        if day or names:
            return day, names[0] if names else None
    return None, None


def verify_dates(exchange: Exchange) -> Verdict | None:
    """Judge a reply to a question about dates, such as `What day was 4 July 2021?`.

    None if the question has no known form or the reply's answer is not clear.
    """
    question = exchange.question
    if not question or len(question) > MAX_QUESTION or not _QUICK.search(question):
        return None
    today, weekday = today_of(f"{exchange.conversation.rules}\n{exchange.request}")
    read = read_question(
        _named_days(digits_for_words(_without_today(question)), today), today, weekday
    )
    if read is None:
        return None
    for form in _FORMS:
        answer = form(read)
        if answer is not None:
            return answer(exchange.reply)
    return None


def _without_today(question: str) -> str:
    """Return a question without a leading clause about today, such as `Today is 6 May 2024.`.

    The question is unchanged if nothing else would remain.
    """
    text = re.sub(
        r"^(?:if |assum(?:e|ing)(?: that)? |given(?: that)? |suppose |since |wenn |si )?"
        r"(?:today(?:'s date)? is|today:|it is|it's|heute|hoy es|heute ist|aujourd'hui,? (?:nous"
        r" sommes|c'est))[^.?!,;]*?"
        r"(?:\b[12]\d{3}(?:-\d\d-\d\d)?\b|day\b|tag\b|woch\b|lunes|martes|jueves|viernes|domingo"
        r"|di\b)\s*(?:ist)?(?:\s*\([^)]*\))?\s*[.,;!]\s*(?:then |and )?",
        "",
        question,
        flags=re.IGNORECASE,
    )
    return text or question


def _named_days(question: str, today: date | None) -> str:
    """Return a question with feasts as dates: `2024-12-25` for `Christmas 2024`.

    A feast without a year is the next one from today, and stays as it is if `today` is None.
    """

    def replace_name(found: re.Match[str]) -> str:
        """Return the date of a feast's match, or its text if the year is unknown."""
        month, day = _FIXED[found[1].casefold()]
        if found["y"] is None:
            if today is None:
                return found[0]
            year = today.year + (date(today.year, month, day) < today)
            return f"{year}-{month:02d}-{day:02d}"
        return f"{found['y']}-{month:02d}-{day:02d}"

    return _FEAST.sub(replace_name, question.replace("’", "'"))


_NAMES: Final = "|".join(weekdays())
_UNIT: Final = (
    r"(?P<u>days?|weeks?|months?|years?|tage?n?|wochen?|monate?n?|jahre?n?|días?|semanas?|meses|mes"
    r"|años?|jours?|semaines?|mois|ans?)"
)
_WEEKDAY: Final = re.compile(
    r"^[¿\s]*(?:on |an |am |a )?"
    r"(?:(?:what|which)(?: weekday| day(?: of (?:the )?week)?)"
    r"(?: (?:was|is|will|did|does|do|falls?|fell))*(?: it| be)?(?: on)?"
    r"|(?:was für ein(?:en)?|welcher|welchem|welchen) (?:wochentag|tag)(?: (?:war|ist|fällt|fiel"
    r"|auf|in|es))*"
    r"|(?:en )?qu[eé] d[ií]a(?: de la semana)?(?: (?:fue|es|será|cae|cayó|era))*"
    r"|quel jour(?: de la semaine)?(?: (?:était|est|sera|tombe|tombait|étions-nous|fut))*)"
    r"\s*(?:the date )?@(?P<d>\d)(?: (?:fall|land|fell|falls|be|on|auf|was|is|in|occur))*\s*[?.]*$",
    re.IGNORECASE,
)
_IS_WEEKDAY: Final = re.compile(
    rf"^[¿\s]*(?:is|was|will|does|did|fällt|fiel|war|ist|fue|es|est)\s+@(?P<d>\d)\s+"
    rf"(?:be |fall on |on |ein |auf einen |un |an? )*(?P<name>{_NAMES}|weekend|weekday)\s*\?*$",
    re.IGNORECASE,
)
_BETWEEN: Final = re.compile(
    r"^[¿\s]*(?:how (?:many|long)(?: in)? ?(?P<u>days|weeks|nights)?"
    r"(?: (?:are|is|were|was|lie|it|will|there|pass|passed|elapsed?|have))*"
    r"|(?:calculate |what is |find )?the (?:number of (?P<u2>days|weeks)|time)"
    r"|wie ?viele (?P<u3>tage|wochen)(?: (?:sind|liegen|vergehen|es))*"
    r"|cuánt[oa]s (?P<u4>días|semanas)(?: hay| pasan)?"
    r"|combien de (?P<u5>jours|semaines)(?: (?:y a-t-il|il y a))?|(?P<u6>days|weeks))"
    r"\s*(?:between|from|zwischen|von|vom|entre(?: le| el)?|desde(?: el)?|del?|du)\s*@(?P<d>\d)"
    r"\s*(?:,? ?and|to|until|till|through|und|bis(?: zum)?|y(?: el)?|hasta(?: el)?|al?|et(?: le)?"
    r"|au)\s*@(?P<d2>\d)"
    r"(?P<incl>,? ?\(?(?:inclusive|including both|both (?:days )?included)[^?]*)?\s*[?.]*$",
    re.IGNORECASE,
)
_AFTER: Final = re.compile(
    r"^[¿\s]*(?:what(?:'s| is| was| will be)?(?: the)?|which|on (?:what|which)|give me the|find the"
    r"|calculate the|welches|was (?:ist|war) das|qué|cuál es la|quelle est la|quel(?:le)?)"
    r"\s*(?P<what>date|day of the week|day|weekday|datum|fecha|jour|día)?"
    r"\s*(?:is|was|will be|will it be|would be|ist|war|es|será|est|comes|falls|it is)?\s*"
    r"(?:exactly )?"
    rf"(?P<n>\d{{1,5}})\s*{_UNIT}\s*"
    r"(?P<way>after|from|before|prior to|later than|past|following|nach|vor|después del?|antes"
    r" del?|après|avant)"
    r"\s*@(?P<d>\d)(?: fall on)?\s*[?.]*$",
    re.IGNORECASE,
)
_PLUS: Final = re.compile(
    rf"^(?:add|what(?:'s| is)(?: the date)?(?: of)?)\s+(?:(?P<n>\d{{1,5}})\s*{_UNIT} to @(?P<d>\d)"
    r"|@(?P<d2>\d)\s*(?P<sign>plus|minus|\+|-)\s*(?P<n2>\d{1,5})\s*(?P<u2>days?|weeks?|months?"
    r"|years?))\s*[?.]*$",
    re.IGNORECASE,
)
_AGE: Final = re.compile(
    r"^(?:(?:if )?(?:someone|a person|he|she|i|somebody|\w+) (?:was|were|is|am) born (?:on )?@"
    r"(?P<d>\d)[,.]?\s*"
    r"(?:how old (?:is|was|are|will|would|am)\s*(?:he|she|they|i|the person|someone|\w+)?\s*(?:be"
    r" )?(?:on |as of )?"
    r"|what (?:is|was) (?:his|her|their) age (?:on )?)@(?P<d2>\d)"
    r"|how old (?:is|was|will|would) (?:someone|a person|anyone|somebody) (?:who (?:was|is) )?born"
    r" (?:on )?@(?P<d3>\d) (?:be )?(?:on )?@(?P<d4>\d))"
    r"\s*[?.]*$",
    re.IGNORECASE,
)
_ISO: Final = re.compile(
    r"^(?:write|convert|express|give|format|rewrite|put|what is)\s*(?:the date )?@(?P<d>\d)\s+"
    r"(?:in|to|as|into)\s+(?:the )?"
    r"(?:iso(?: ?8601)?(?: format)?|yyyy-mm-dd(?: format)?|the format yyyy-mm-dd)\s*[?.]*$",
    re.IGNORECASE,
)
_RELATIVE: Final = re.compile(
    r"^(?:(?:what|which|on what)(?:'s| is| was| will be)?(?: the)?) (?P<what>date|day(?: of the"
    r" week)?|weekday) (?:(?:is|was|will|would) (?:it |be )*)?(?:it )?(?:be )?(?:in )?"
    r"(?P<rel>tomorrow|yesterday|the day after tomorrow|the day before yesterday"
    r"|(?:in )?(?P<n>\d{1,5}) (?P<u>days?|weeks?|months?|years?)(?: (?P<way>from (?:now|today)|ago"
    r"|later|after today|before today|before|from tomorrow))?)"
    r"\s*(?:be)?(?:,? (?:if|given that|assuming) today is [^?]*)?\s*[?.]*$",
    re.IGNORECASE,
)
_UNTIL: Final = re.compile(
    r"^[¿\s]*(?:how many|wie ?viele|cuántos|combien de) (?P<u>days|weeks|tage|días|jours) "
    r"(?:(?:are|is|until|till|to|left|remain|there|sind|es|bis|zum|faltan|hasta|para|before|from"
    r"|today|now|it|have|passed|since"
    r"|the|le|el|noch|reste-t-il|avant|jusqu'au|between|and) )*@(?P<d>\d)"
    r"(?:,? (?:if|given that|assuming) today is @\d)?\s*[?.]*$",
    re.IGNORECASE,
)
_DAYNAME: Final = re.compile(
    rf"^(?:if )?(?:(?:today|it) is (?P<a>{_NAMES})[,.]?\s*)?(?:then )?(?:what|which) (?:day"
    r"|weekday)(?: of the week)? "
    r"(?:(?:comes|is|was|will|would|it|be|falls) )*(?:in )?"
    r"(?:(?P<n>\d{1,5}) (?P<u>days?|weeks?|months?|years?)?|(?P<day>the day)|comes)\s*"
    r"(?P<way>after|before|from|later|ago|from now)?"
    rf"\s*(?P<b>{_NAMES})?(?: be)?\s*[?.]*$",
    re.IGNORECASE,
)


def _weekday(question: DateQuestion) -> Judge | None:
    """Compute a date's weekday (`What day was @0?`) or whether it is one (`Was @0 a Monday?`).

    Return the function that judges a reply; None for another question or an unclear date.
    """
    found = _WEEKDAY.match(question.text)
    if found:
        day = question.day(found["d"])
        if day is None:
            return None
        number, weekday_text = day.weekday(), f"{date_text(day)} was a {NAMES[day.weekday()]}"
        return lambda reply: judge_weekday(reply, number, weekday_text)
    found = _IS_WEEKDAY.match(question.text)
    if not found:
        return None
    day = question.day(found["d"])
    if day is None:
        return None
    name = found["name"].casefold()
    is_weekend = day.weekday() >= 5
    is_true = (
        is_weekend == (name == "weekend")
        if name.startswith("week")
        else weekdays()[name] == day.weekday()
    )
    reason = f"{date_text(day)} was a {NAMES[day.weekday()]}"
    return lambda reply: judge_yes(reply, is_true, reason)


def _days_between(question: DateQuestion) -> Judge | None:
    """Compute the days or whole weeks between two dates: `How many days from @0 to @1?`.

    Return the function that judges a reply; None for another question, an unclear date, weeks that
    are not whole, and where an unknown year decides about 29 February.
    """
    found = _BETWEEN.match(question.text)
    if not found:
        return None
    first, second = question.dates[int(found["d"])], question.dates[int(found["d2"])]
    if first.value is None or second.value is None:
        return None
    start, end = first.value, second.value
    if first.has_year != second.has_year:
        year = (second if second.has_year else first).value
        assert year is not None
        start, end = start.replace(year=year.year), end.replace(year=year.year)
    elif not first.has_year and start < end and start < date(2000, 3, 1) <= end:
        return None  # the year decides whether there is a 29 February
    days = abs((end - start).days)
    unit = next(
        (found[key] for key in ("u", "u2", "u3", "u4", "u5", "u6") if found[key]), "days"
    ).casefold()
    if unit.startswith(("w", "s")):
        if days % 7:
            return None
        count, near = days // 7, set()
        reason = f"it is {count} weeks"
    else:
        count = days + 1 if found["incl"] else days
        near = set() if found["incl"] else {days + 1, days - 1}
        reason = f"from {date_text(start)} to {date_text(end)} it is {days} days"
    known = {start.day, end.day, start.year, end.year, start.month, end.month}
    return lambda reply: judge_count(reply, count, near, known, reason)


def _day_after(question: DateQuestion) -> Judge | None:
    """Compute a date some time away from another.

    An example is `What date is 30 days after @0?`, `@0 plus 2 weeks`. Return the function that
    judges a reply; None for another question or an unclear date.
    """
    found = _AFTER.match(question.text)
    if found:
        day = question.day(found["d"])
        way = found["way"].casefold()
        sign = -1 if way.startswith(("before", "prior", "vor", "antes", "avant")) else 1
        count, unit = sign * int(found["n"]), found["u"]
        what = (found["what"] or "").casefold()
    else:
        found = _PLUS.match(question.text)
        if not found:
            return None
        day = question.day(found["d"] or found["d2"])
        count, unit = int(found["n"] or found["n2"]), found["u"] or found["u2"]
        count = -count if (found["sign"] or "") in ("minus", "-") else count
        what = "date"
    wanted = moved_date(day, count, unit) if day else None
    if wanted is None:
        return None
    is_day = "day" in what
    return lambda reply: judge_date(reply, wanted, day, is_day_asked=is_day)


def _age(question: DateQuestion) -> Judge | None:
    """Compute an age in years: `Someone was born on @0. How old are they on @1?`.

    Return the function that judges a reply; None for another question or an unclear date.
    """
    found = _AGE.match(question.text)
    if not found:
        return None
    born, then = question.day(found["d"] or found["d3"]), question.day(found["d2"] or found["d4"])
    if born is None or then is None or then < born:
        return None
    age = then.year - born.year - ((then.month, then.day) < (born.month, born.day))
    return lambda reply: judge_count(reply, age, set(), {born.year, then.year}, f"the age is {age}")


def _iso(question: DateQuestion) -> Judge | None:
    """Write a date as YYYY-MM-DD: `Convert @0 to ISO format.`.

    Return the function that judges a reply by its last such date; None for another question or an
    unclear date.
    """
    found = _ISO.match(question.text)
    day = question.day(found["d"]) if found else None
    if day is None:
        return None
    wanted = day.isoformat()

    def judge(reply: str) -> Verdict | None:
        """Judge the last date of the form YYYY-MM-DD in a reply; None without one."""
        written = re.findall(r"\b\d{4}-\d{2}-\d{2}\b", reply[:MAX_TEXT])
        return Verdict(written[-1] == wanted, f"it is {wanted}", "date") if written else None

    return judge


def _relative_day(question: DateQuestion) -> Judge | None:
    """Compute a day relative to today: `What date is it in 10 days?`, `What day is tomorrow?`.

    Return the function that judges a reply; None for another question or if the text does not say
    what today is.
    """
    found = _RELATIVE.match(question.text)
    today, weekday = question.today, question.weekday
    if not found or (today is None and weekday is None):
        return None
    words = found["rel"].casefold()
    fixed = {
        "tomorrow": 1,
        "yesterday": -1,
        "the day after tomorrow": 2,
        "the day before yesterday": -2,
    }
    way = (found["way"] or "").casefold()
    if "tomorrow" in way:
        return None
    count = fixed.get(words)
    unit = "day"
    if count is None:
        count = int(found["n"]) * (-1 if way.startswith(("ago", "before")) else 1)
        unit = found["u"]
    is_day = "day" in found["what"].casefold()
    if today is not None:
        wanted = moved_date(today, count, unit)
        return (
            None
            if wanted is None
            else lambda reply: judge_date(reply, wanted, today, is_day_asked=is_day)
        )
    if not is_day or weekday is None or unit.startswith(("mo", "y")):
        return None
    number = (weekday + count * (7 if unit.startswith("week") else 1)) % 7
    return lambda reply: judge_other_weekday(reply, number, weekday)


def _dayname(question: DateQuestion) -> Judge | None:
    """Compute a weekday from a weekday: `If today is Friday, what day is it in 10 days?`.

    Return the function that judges a reply; None for another question and for months and years.
    """
    found = _DAYNAME.match(question.text)
    if not found:
        return None
    start = found["a"] or found["b"]
    number = weekdays()[start.casefold()] if start else question.weekday
    unit = (found["u"] or "days").casefold()
    if number is None or unit.startswith(("mo", "y")):
        return None
    way = (found["way"] or "").casefold()
    sign = -1 if way in ("before", "ago") else 1
    wanted = (number + sign * int(found["n"] or 1) * (7 if unit.startswith("week") else 1)) % 7
    return lambda reply: judge_other_weekday(reply, wanted, number)


def _days_until(question: DateQuestion) -> Judge | None:
    """Compute the days from today until a date: `How many days until @0?`.

    Return the function that judges a reply; None for another question, for weeks, and if today's
    date is unknown. A date without a year is the next one.
    """
    found = _UNTIL.match(question.text)
    today = question.today
    if not found or today is None:
        return None
    read = question.dates[int(found["d"])]
    day = read.value
    if day is None:
        return None
    if not read.has_year and day < today:
        day = day.replace(year=day.year + 1)
    days = abs((day - today).days)
    if found["u"].casefold() == "weeks":
        return None
    known = {day.day, day.year, today.day, today.year}
    reason = f"from {date_text(today)} to {date_text(day)} it is {days} days"
    return lambda reply: judge_count(reply, days, {days + 1, days - 1}, known, reason)


_FORMS: Final = (
    about_years,
    about_order,
    _weekday,
    _days_between,
    _day_after,
    about_leap_years,
    _age,
    _iso,
    _relative_day,
    _dayname,
    _days_until,
)
