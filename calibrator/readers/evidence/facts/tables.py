"""The check of the simplest questions of fact: capitals, currencies, elements, calendar.

A finding needs a question of an exact form and a short reply with one answer. The tables were
written for this project; disputed entries are left out or have several answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from calibrator.readers.evidence.acts import without_opening
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.facts.table_data import TableFact, fold
from calibrator.readers.evidence.facts.table_questions import fact_asked_for
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


def check_facts(conversation: Conversation, reply: str) -> Finding | None:
    """Compare a reply with the tables; None unless question and reply are of the exact form."""
    request = conversation.request.strip()
    if len(request) > MAX_QUESTION or len(conversation.rules) > MAX_RULES:
        return None
    question = fold(request).rstrip(" ?.!\uff1f")
    question = _SUFFIX.sub("", _PREFIX.sub("", question)).rstrip(" ?.!")
    fact = fact_asked_for(question)
    if fact is None:
        return None
    said = without_opening(reply).strip()
    if len(said) > MAX_REPLY:
        return None
    is_right = _compare(fact, question, said)
    if is_right is None:
        return None
    reason = f"{fact.text}, as tables of facts say" if is_right else fact.text
    return Finding(is_right, 3.0 if is_right else -3.0, reason)


def _compare(fact: TableFact, question: str, said: str) -> bool | None:
    """Return True for an accepted answer, False for another one, None for neither or both."""
    text = fold(said)
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
    return False if is_other or (fact.is_capital and _is_other_name(question, said)) else None


def _without_parts(names: Iterable[str], whole: Iterable[str]) -> list[str]:
    """Return the names that are no part of an accepted one, as "guinea" is of "new guinea"."""
    return [name for name in names if not any(name in each or each in name for each in whole)]


def _names_any(names: Iterable[str], text: str) -> bool:
    """Return whether a text has one of the names as words, and does not deny it."""
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


def _is_other_name(question: str, said: str) -> bool:
    """Return whether a reply to a question for a capital is nothing but another name."""
    match = _CAPITAL_IS.match(said.replace("\u2019", "'"))
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
    wanted = float(fact.accepted[0])
    asked = set(_figures(question))
    found = {number for number in _figures(text) if number not in asked}
    if wanted in found:
        return True if len(found) == 1 else None
    return False if len(found) == 1 else None


def _figures(text: str) -> list[float]:
    digits = [float(each.replace(",", "")) for each in re.findall(r"\d{1,12}(?:,\d{3})*", text)]
    return digits + [float(_NUMBERS[w]) for w in re.findall(r"[a-z]+", text) if w in _NUMBERS]
