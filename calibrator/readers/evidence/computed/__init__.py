"""The checks of a reply that can be computed: sums, dates, JSON, SQL, code, form, language."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from calibrator.readers.evidence.computed.basics.verdict import Exchange, Verdict
from calibrator.readers.evidence.computed.calendar.dates import verify_dates
from calibrator.readers.evidence.computed.calendar.times import verify_times
from calibrator.readers.evidence.computed.code.blocks import has_program
from calibrator.readers.evidence.computed.code.checking import suspect_code, verify_code
from calibrator.readers.evidence.computed.code.python import verify_python
from calibrator.readers.evidence.computed.code.sql import verify_sql
from calibrator.readers.evidence.computed.form.reply_language import verify_language
from calibrator.readers.evidence.computed.form.short_answers import verify_labels
from calibrator.readers.evidence.computed.form.wishes import verify_form
from calibrator.readers.evidence.computed.last_turn import (
    challenged_question,
    completed_question,
    verify_last_turn,
    with_question,
)
from calibrator.readers.evidence.computed.structured.json_replies import verify_json
from calibrator.readers.evidence.computed.structured.json_support import (
    ValueSupport,
    support_of_values,
)
from calibrator.readers.evidence.computed.structured.tables import verify_tables
from calibrator.readers.evidence.computed.sums.arithmetic import verify_arithmetic
from calibrator.readers.evidence.computed.sums.claims import suspect_claim, suspect_equation
from calibrator.readers.evidence.computed.sums.letters import verify_letters
from calibrator.readers.evidence.computed.sums.units import verify_units
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding

__all__ = ["ValueSupport", "Verdict", "support_of_values", "suspect", "verify"]

Check = Callable[[Exchange], Verdict | None]


def _verify_json(exchange: Exchange) -> Verdict | None:
    """Judge a reply in JSON; None for one with a program, which may only read or write JSON."""
    return None if has_program(exchange.reply) else verify_json(exchange)


_QUESTIONS: Final[tuple[Check, ...]] = (
    verify_dates,
    verify_times,
    verify_units,
    verify_arithmetic,
    verify_letters,
)
_REPLIES: Final[tuple[Check, ...]] = (
    verify_tables,
    _verify_json,
    verify_sql,
    verify_python,
    verify_code,
    verify_labels,
    verify_form,
    verify_language,
    verify_last_turn,
)


_ALONE: Final[tuple[Check, ...]] = (verify_units, verify_arithmetic, verify_letters)
MAX_REQUEST: Final = 400  # characters of a request that tells something beside its question
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|\n+")
_OPTION: Final = re.compile(r"^\s*\(?[A-Ea-e][.):]\s", re.MULTILINE)
_CHANGES: Final = re.compile(
    r"\b(?:assume|suppose|let|if|instead|pretend|base|mod|modulo|joke|riddle|wrong|define|means|each"
    r"|every|but|rule|not|all|plus|also|then|per|round\w*)\b",
    re.IGNORECASE,
)


def verify(conversation: Conversation, reply: str) -> Verdict | None:
    """Judge a reply by a computation; None if no check applies or none is sure.

    The first check that finds the reply wrong decides; else the first that finds it right. Neither
    request nor reply is ever executed.
    """
    if not reply.strip():
        return None
    exchange = Exchange(conversation, reply)
    right: Verdict | None = None
    for check in (*_QUESTIONS, *_REPLIES):
        verdict = check(exchange)
        if verdict is not None:
            if not verdict.is_right:
                return verdict
            right = right or verdict
    return right or _follow_up(exchange) or _one_question(exchange)


def suspect(conversation: Conversation, reply: str) -> Finding | None:
    """Return a finding against a reply that is no proof, such as a false equation in it.

    Else None. Code is looked at first, then equations, then other claims.
    """
    exchange = Exchange(conversation, reply)
    return suspect_code(exchange) or suspect_equation(exchange) or suspect_claim(exchange)


def _one_question(exchange: Exchange) -> Verdict | None:
    """Judge a reply to the only question of a request that also tells something else.

    None otherwise. An example is `I am baking for friends. How many grams are 8 ounces?`. Only
    units, sums and letters are computed, and not if the rest may change them, as `instead` does.
    """
    request = exchange.request
    if len(request) > MAX_REQUEST or request.count("?") != 1:
        return None
    sentences = [each for each in _SENTENCE.split(request.strip()) if each.strip()]
    questions = [each for each in sentences if each.rstrip().endswith("?")]
    has_options = len(_OPTION.findall(request)) > 1
    if len(questions) != 1 or len(sentences) < 2 or has_options or _CHANGES.search(request):
        return None
    whole = Exchange(Conversation(questions[0]), exchange.reply)
    return next((verdict for check in _ALONE if (verdict := check(whole))), None)


def _follow_up(exchange: Exchange) -> Verdict | None:
    """Judge a reply to a short message that continues or doubts the exchange before it; else None.

    Examples are `And 30 %?` and `Are you sure?`; the completed or doubted question is judged.
    """
    if not exchange.conversation.earlier or len(exchange.request) > 120:
        return None
    question = challenged_question(exchange) or completed_question(exchange)
    if question is None:
        return None
    whole = with_question(exchange, question)
    return next((verdict for check in _QUESTIONS if (verdict := check(whole))), None)
