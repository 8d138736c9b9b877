"""The check of the simplest questions of fact: capitals, currencies, elements, calendar.

A finding needs a question of an exact form and a short reply with one answer. The tables were
written for this project; disputed entries are left out or have several answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

from calibrator.readers.evidence.acts import without_opening
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.facts.table_data import (
    MONTHS,
    PLANETS,
    WEEKDAYS,
    TableFact,
    all_of,
    countries,
    elements,
    fold,
    plain_facts,
)
from calibrator.readers.evidence.finding import Finding
from calibrator.readers.evidence.number_words import NUMBER_WORDS

MAX_QUESTION = 160  # characters
MAX_RULES = 300  # characters of a system message; a longer one may change the answer
MAX_REPLY = 300  # characters; a longer reply has more than one fact
_NUMBERS: Final = {
    **NUMBER_WORDS,
    "thirty": 30,
    "fifty": 50,
    "sixty": 60,
    "hundred": 100,
    "thousand": 1000,
}
_PREFIX: Final = re.compile(
    r"^(?:(?:hi|hello|hey|please|quick question|question|q|so|and|ok|can you tell me"
    r"|could you tell me|do you know|tell me|i want to know|i wonder)\b[\s,:!.-]*)+"
)
_SUFFIX: Final = re.compile(
    r"[\s,]*(?:please|(?:answer|reply) (?:in|with) (?:one|a single) (?:word|sentence)|in one word)$"
)
_HEDGE: Final = re.compile(
    r"\b(?:i think|maybe|perhaps|might|not sure|n't know|do not know|could be|depends|or|unsure"
    r"|until|before|formerly|used to|was once|historically)\b"
)
_NOT: Final = r"(?:not|rather than|instead of|unlike|as opposed to|than) (?:the )?"

_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ORDINALS: Final = {
    word: at
    for at, words in enumerate(
        [
            "first 1st",
            "second 2nd",
            "third 3rd",
            "fourth 4th",
            "fifth 5th",
            "sixth 6th",
            "seventh 7th",
            "eighth 8th",
            "ninth 9th",
            "tenth 10th",
            "eleventh 11th",
            "twelfth 12th",
        ]
    )
    for word in words.split()
}
_X: Final = r"(?P<x>[\w'., -]{2,40})"
_CAPITAL: Final = re.compile(
    rf"(?:(?:what|which)(?:'s| is| city is)? |name )?(?:the )?(?:current )?capital"
    rf"(?: city)? of {_X}"
    rf"|(?:what(?:'s| is) )(?P<owner>[\w'., -]{{2,40}}?)'s capital(?: city)?"
)
_CAPITAL_OF: Final = re.compile(
    r"(?P<y>[\w'., -]{2,40}?) is the capital(?: city)? of (?:which|what) country"
    r"|(?:of )?(?:which|what) country is (?P<z>[\w'., -]{2,40}?) the capital(?: of)?"
)
_IS_CAPITAL: Final = re.compile(rf"is (?P<y>[\w'., -]{{2,40}}?) the capital(?: city)? of {_X}")
_CURRENCY: Final = re.compile(
    rf"(?:what|which)(?:'s| is)? (?:the )?(?:official )?currency (?:of|in|used in|is used in"
    rf"|do they use in|do people use in) {_X}|currency of (?P<owner>[\w'., -]{{2,40}})"
)
_LANGUAGE: Final = re.compile(
    rf"(?:what|which)(?:'s| is)? (?:the )?(?:official |main |national )?language (?:of|in"
    rf"|is spoken in|do they speak in|do people speak in|is mainly spoken in) {_X}"
)
_CONTINENT: Final = re.compile(
    rf"(?:on|in) (?:which|what) continent is {_X}"
    r"|(?:which|what) continent is (?P<owner>[\w'., -]{2,40}?) (?:on|in|located in|part of)"
)
_SYMBOL: Final = re.compile(
    r"what(?:'s| is) the (?:chemical )?symbol (?:of|for) (?:the element )?(?P<name>[a-z]{3,14})"
)
_BY_SYMBOL: Final = re.compile(
    r"(?:which|what) (?:chemical )?element (?:has|is represented by)(?: the)?(?: chemical)?"
    r"(?: symbol)? '?\"?(?P<symbol>[a-z]{1,2})'?\"?"
)
_ATOMIC: Final = re.compile(r"what(?:'s| is) the atomic number (?:of|for) (?P<name>[a-z]{3,14})")
_BY_NUMBER: Final = re.compile(
    r"(?:which|what) (?:chemical )?element has (?:the )?atomic number (?P<number>\d{1,3})"
)
_LEAP: Final = re.compile(r"(?:is|was|will) (?:the year )?(?P<year>\d{4}) (?:be )?a leap year")
_MONTH_DAYS: Final = re.compile(
    r"how many days (?:are (?:there )?in|does|has|in) (?P<month>[a-z]+)(?: have| has)?"
)
_NEXT: Final = re.compile(
    r"(?:which|what) (?:month|day|weekday)(?: of the (?:week|year))? (?:comes|is) (?:right "
    r"|directly )?(?P<way>after|before) (?P<name>[a-z]+)"
)
_NTH: Final = re.compile(
    r"(?:what|which)(?:'s| is)? (?:the )?(?:planet is (?:the )?)?(?P<n>[a-z0-9]+)"
    r"(?: (?P<kind>month|planet))?(?: (?:of the year|from the sun|in the (?:year|solar system)))"
)
_ASKS_PLAIN: Final = re.compile(
    r"(?:(?:what|which)(?:'s| is| are)? |name )(?:the )?(?:name of the )?(?P<key>.{4,60})"
)
_IS_MOST: Final = re.compile(
    r"(?:what|which) (?P<noun>planet|ocean|continent|country|animal|mammal|bird|lake|island|element"
    r"|land animal|month) is (?:the )?(?P<most>\w+)(?P<rest> .{2,40})?"
)
_WHERE: Final = re.compile(
    r" (?:in|on|of) (?:the )?(?:world|earth|planet earth|planet|globe|whole world|entire world)$"
)
_HOW_MANY: Final = re.compile(r"how many (?P<key>.{4,50})")


def check_facts(conversation: Conversation, reply: str) -> Finding | None:
    """Compare a reply with the tables of facts and return the finding, for or against it.

    None unless the question has an exact form such as `What is the capital of Peru?` and the reply
    is short and clear.
    """
    request = conversation.request.strip()
    if len(request) > MAX_QUESTION or len(conversation.rules) > MAX_RULES:
        return None
    question = fold(request).rstrip(" ?.!\uff1f")
    question = _SUFFIX.sub("", _PREFIX.sub("", question)).rstrip(" ?.!")
    fact = fact_asked_for(question)
    if fact is None:
        return None
    answer = without_opening(reply).strip()
    if len(answer) > MAX_REPLY:
        return None
    is_right = _compare(fact, question, answer)
    if is_right is None:
        return None
    reason = f"{fact.text}, as tables of facts say" if is_right else fact.text
    return Finding(is_right, 3.0 if is_right else -3.0, reason)


def _compare(fact: TableFact, question: str, answer: str) -> bool | None:
    """Return True for an accepted answer, False for another one, None for neither or both."""
    text = fold(answer)
    if _HEDGE.search(text):
        return None
    if fact.is_number:
        return _compare_number(fact, question, text)
    if fact.accepted[0] in ("yes", "no"):
        match = re.match(r"\W*(yes|no)\b", text)
        return match.group(1) == fact.accepted[0] if match else None
    # an answer that is also in the question, such as a country's capital, is no evidence
    is_named = _names_any(fact.accepted, text)
    others = [name for name in fact.others if name not in fact.accepted and name not in question]
    is_other = _names_any(_without_parts(others, fact.accepted), text)
    if is_named:
        return None if is_other else True
    return False if is_other or (fact.is_capital and _is_other_name(question, answer)) else None


def _without_parts(names: Iterable[str], whole: Iterable[str]) -> list[str]:
    """Return the names that are no part of an accepted one, as "guinea" is of "new guinea"."""
    return [name for name in names if not any(name in each or each in name for each in whole)]


def _names_any(names: Iterable[str], text: str) -> bool:
    """Return whether a text has one of the names as words and does not deny it.

    `it is not lima` denies `lima`. False without names.
    """
    words = "|".join(re.escape(name) for name in names if name)
    if not words:
        return False
    pattern = rf"(?<!\w)(?P<denied>{_NOT})?(?:{words})(?!\w)"
    return any(match.group("denied") is None for match in re.finditer(pattern, text))


_CAPITAL_IS: Final = re.compile(
    r"^(?:(?:The )?capital(?: city)?(?: of [\w' .-]{2,40}?)? is (?:the city of )?"
    r"|It(?:'s| is) |That(?:'s| is) |)(?P<name>[A-Z][\w'.-]+(?: [A-Z][\w'.-]+){0,3})"
    r"(?: is (?:the|its) capital(?: city)?(?: of [\w' .-]{2,40})?)?[.!]?$"
)


def _is_other_name(question: str, answer: str) -> bool:
    """Return whether a reply to a question for a capital is nothing but another name."""
    match = _CAPITAL_IS.match(answer.replace("\u2019", "'"))
    if match is None:
        return False
    name = fold(match.group("name")).rstrip(".")
    return name not in question and name not in (
        "i",
        "yes",
        "no",
        "the",
        "unknown",
        "sorry",
        "none",
    )


def _compare_number(fact: TableFact, question: str, text: str) -> bool | None:
    """Return whether a text states the right number; None for none, or several.

    Numbers of the question do not count.
    """
    wanted = float(fact.accepted[0])
    question_numbers = set(_figures(question))
    found = {number for number in _figures(text) if number not in question_numbers}
    if wanted in found:
        return True if len(found) == 1 else None
    return False if len(found) == 1 else None


def _figures(text: str) -> list[float]:
    """Return the numbers of a text, in digits and then in words."""
    digits = [float(each.replace(",", "")) for each in re.findall(r"\d{1,12}(?:,\d{3})*", text)]
    return digits + [float(_NUMBERS[w]) for w in re.findall(r"[a-z]+", text) if w in _NUMBERS]


def _country_fact(question: str) -> TableFact | None:
    """Return the fact of `What is the capital of Peru?`, currency, language or continent.

    Else None.
    """
    kinds: tuple[tuple[re.Pattern[str], str, str], ...] = (
        (_CAPITAL, "capitals", "the capital of"),
        (_CURRENCY, "currencies", "the currency of"),
        (_LANGUAGE, "languages", "a language of"),
        (_CONTINENT, "continents", "the continent of"),
    )
    for pattern, kind, words in kinds:
        match = pattern.fullmatch(question)
        if match is None:
            continue
        name = (match.group("x") or match.group("owner") or "").removesuffix(" located")
        country = countries().get(name.strip())
        if country is None:
            return None
        accepted: tuple[str, ...] = getattr(country, kind)
        text = f"{words} {country.name} is {_title(accepted[0])}"
        return TableFact(
            text, _with_base(accepted, kind), all_of(kind), is_capital=kind == "capitals"
        )
    return None


def _with_base(accepted: tuple[str, ...], kind: str) -> tuple[str, ...]:
    """Return the accepted answers; for currencies also the noun, as `peso` for `mexican peso`."""
    if kind != "currencies":
        return accepted
    return (*accepted, *(name.split()[-1] for name in accepted))


def _title(name: str) -> str:
    """Return a name with capitals, except currencies such as `euro`."""
    return name.title() if name not in ("euro", "yen", "rand", "won", "sol") else name


def _capital_fact(question: str) -> TableFact | None:
    """Return the fact of `Lima is the capital of which country?` or `Is Lima the capital of Peru?`.

    None for another question or an unknown name.
    """
    match = _CAPITAL_OF.fullmatch(question)
    by_name = countries()
    if match is not None:
        city = (match.group("y") or match.group("z")).strip()
        names = tuple(name for name, each in by_name.items() if city in each.capitals)
        if not names:
            return None
        text = f"{_title(city)} is the capital of {by_name[names[0]].name}"
        return TableFact(text, names, tuple(by_name))
    match = _IS_CAPITAL.fullmatch(question)
    if match is None:
        return None
    country = by_name.get(match.group("x").strip())
    city = match.group("y").strip()
    if country is None or (city not in all_of("capitals")):
        return None
    answer = "yes" if city in country.capitals else "no"
    return TableFact(f"the capital of {country.name} is {_title(country.capitals[0])}", (answer,))


@cache
def _elements_by_name() -> dict[str, int]:
    """Return the index of each chemical element by its names."""
    return {name: at for at, (_, names) in enumerate(elements()) for name in names}


def _element_fact(question: str) -> TableFact | None:
    """Return the fact of a question such as `What is the symbol of iron?`; None for others."""
    table, by_name = elements(), _elements_by_name()
    if match := _SYMBOL.fullmatch(question) or _ATOMIC.fullmatch(question):
        at = by_name.get(match.group("name"))
        if at is None:
            return None
        symbol, names = table[at]
        if "number" in question:
            text = f"the atomic number of {names[0]} is {at + 1}"
            return TableFact(text, (str(at + 1),), is_number=True)
        others = _symbols(each.lower() for each, _ in table if each != symbol)
        return TableFact(f"the symbol of {names[0]} is {symbol}", (symbol.lower(),), others)
    if match := _BY_NUMBER.fullmatch(question):
        number = int(match.group("number"))
        if 1 <= number <= len(table):
            names = table[number - 1][1]
            return TableFact(f"element {number} is {names[0]}", names, tuple(by_name))
    if match := _BY_SYMBOL.fullmatch(question):
        for symbol, names in table:
            if match.group("symbol") == symbol.lower():
                return TableFact(f"{symbol} is the symbol of {names[0]}", names, tuple(by_name))
    return None


def _symbols(symbols: Iterable[str]) -> tuple[str, ...]:
    """Return symbols without those that are words, such as `he` and `in`."""
    words = {"he", "i", "in", "as", "at", "no", "be", "am", "u", "o", "y", "s", "es", "la", "ho"}
    return tuple(symbol for symbol in symbols if symbol not in words)


def _calendar_fact(question: str) -> TableFact | None:
    """Return the fact of a question on leap years, months, weekdays or planets; None for others.

    An example is `What day comes after Monday?`.
    """
    if match := _LEAP.fullmatch(question):
        year = int(match.group("year"))
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        text = f"{year} is {'' if is_leap else 'not '}a leap year"
        return TableFact(text, ("yes" if is_leap else "no",))
    if match := _MONTH_DAYS.fullmatch(question):
        month = match.group("month")
        if month in MONTHS and month != "february":
            days = str(_DAYS[MONTHS.index(month)])
            return TableFact(f"{month.title()} has {days} days", (days,), is_number=True)
        return None
    if match := _NEXT.fullmatch(question):
        for names in (MONTHS, WEEKDAYS):
            if match.group("name") in names:
                step = 1 if match.group("way") == "after" else -1
                found = names[(names.index(match.group("name")) + step) % len(names)]
                text = f"{match.group('way')} {match.group('name').title()} comes {found.title()}"
                return TableFact(text, (found,), names)
    if (match := _NTH.fullmatch(question)) and match.group("n") in _ORDINALS:
        names = PLANETS if "sun" in question else MONTHS if "month" in question else ()
        at = _ORDINALS[match.group("n")]
        if at < len(names):
            return TableFact(f"{names[at].title()} is the {match.group('n')}", (names[at],), names)
    return None


def _plain_fact(question: str) -> TableFact | None:
    """Return the listed fact of `what is the largest ocean` or `how many continents are there`.

    The question is folded and has no final sign. None for other questions, and where no fact is
    listed.
    """
    facts = plain_facts()
    if match := _HOW_MANY.fullmatch(question):
        key = match.group("key")
        for form in (key, _WHERE.sub("", key), re.sub(r" (?:are there|are)(?: there)?\b", "", key)):
            if fact := facts.get(f"how many {_WHERE.sub('', form)}") or facts.get(
                f"how many {form}"
            ):
                return fact
        return None
    keys = []
    if match := _IS_MOST.fullmatch(question):
        keys.append(f"{match.group('most')} {match.group('noun')}{match.group('rest') or ''}")
        keys.append(question.removeprefix("which ").removeprefix("what "))
    if match := _ASKS_PLAIN.fullmatch(question):
        keys.append(match.group("key"))
    for key in keys:
        if fact := facts.get(key) or facts.get(_WHERE.sub("", key)):
            return fact
    return None


_READERS: Final[tuple[Callable[[str], TableFact | None], ...]] = (
    _country_fact,
    _capital_fact,
    _element_fact,
    _calendar_fact,
    _plain_fact,
)


def fact_asked_for(question: str) -> TableFact | None:
    """Return the fact that a question asks for; None if the tables have no answer.

    The question is folded (see `fold`) and has no final sign.
    """
    return next((fact for read in _READERS if (fact := read(question)) is not None), None)
