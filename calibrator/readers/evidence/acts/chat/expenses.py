"""The settlement of shared expenses: what each person owes after an equal split."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.acts.recognition.recognising import Act
from calibrator.readers.evidence.acts.recognition.requests import RequestWishes
from calibrator.readers.evidence.computed.basics import numbers
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding
from calibrator.text.guarded import compile_guarded

LOOK: Final = 3_000  # characters of the user's messages and of a reply
_SPLITS: Final = compile_guarded(
    r"\b(?:split|share|divide|settle)\b[^.?!\n]{0,40}\b(?:equal\w*|even\w*|fair\w*)\b"
    r"|\b(?:equal\w*|even\w*)\b[^.?!\n]{0,30}\b(?:split|share|divide)\w*\b|\bwho owes\b",
    re.IGNORECASE,
)
_PAID: Final = re.compile(
    r"\b(?P<n>I|[A-Z][a-z]+) (?:paid|spent|bought|covered|got)\b(?:(?P<z> nothing)"
    r"|[^.;\d]{0,40}?\(?[$€£]?(?P<a>\d[\d,]*(?:\.\d\d)?)\)?)"
)
_GROUP: Final = re.compile(r"\b(?P<n>\d{1,2}) (?:of us|people|friends|flatmates|roommates)\b")
_OWES: Final = re.compile(
    r"\b(?P<n>[A-Z][a-z]+)(?: (?:still )?(?:owes?|pays?|gives?|has to pay))?(?: you| me)?:? "
    r"[$€£]?(?P<a>\d[\d,]*(?:\.\d\d)?)"
)


def check_shares(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Compare what each person owes with their share of all payments, if one person gets it."""
    turns = [turn.text for turn in conversation.earlier if turn.role == "user"]
    said = numbers.digits_for_words("\n".join([*turns, conversation.request])[-LOOK:])
    if not _SPLITS.search(said) or "owe" not in reply:
        return None
    paid: dict[str, Fraction] = {}
    for found in _PAID.finditer(said):
        amount = Fraction(found["a"].replace(",", "")) if found["a"] else Fraction(0)
        paid[found["n"]] = paid.get(found["n"], Fraction(0)) + amount
    group = _GROUP.search(said)
    if len(paid) < 2 or (group and int(group["n"]) != len(paid)):
        return None
    share = sum(paid.values(), Fraction(0)) / len(paid)
    if sum(amount > share for amount in paid.values()) != 1:
        return None
    owed = [found for found in _OWES.finditer(reply[:LOOK]) if found["n"] in paid]
    hits = 0
    for found in owed:
        wanted = share - paid[found["n"]]
        if wanted <= 0:
            continue
        if abs(Fraction(found["a"].replace(",", "")) - wanted) > 1:
            shown = numbers.number_text(wanted, 2)
            return Finding(
                False, -3.0, f"{found['n']} owes {shown} of {numbers.number_text(share)}"
            )
        hits += 1
    if hits == sum(amount < share for amount in paid.values()):
        return Finding(True, 2.0, "each owes what is left of an equal share")
    return None
