"""Names swapped, negations added or dropped, replies cut before their end."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

_NAME = re.compile(r"\b[A-Z][a-zà-ž]{2,}(?: (?:(?:of|the|de|von|van|la) )?[A-Z][a-zà-ž]+){0,3}\b")
_PLAIN = frozenset(
    """
    The This That These Those There They Then Therefore Thus Hence However Here His Her Its It In On
    At For From With Without When Where While Which Who What Why How And But Because Since So If As
    By To Of An A Are Is Was Were Be Been You Your We Our Let Now First Second Third Finally Step
    Answer Question Option Options Final Given Yes No Not One Two Three All Any Each Some Such After
    Before During Also Although Though Based According Note Solution Explanation Reasoning I
    """.split()  # noqa: SIM905  # a list of a hundred quoted words would be harder to read
)
_VERB = re.compile(r"\b(is|are|was|were|can|does|did|do|has|have|will|would|should)\b(?! not|n't)")
_NOT = re.compile(r"\b(is|are|was|were|can|does|did|do|has|have|will|would|should)(?: not\b|n't\b)")
MIN_CUT = 120  # characters: a shorter reply has no working that could be cut


def names_in(text: str) -> list[str]:
    """Names that a text holds: capitalised words that do not just begin a sentence."""
    found = []
    for each in _NAME.finditer(text):
        words = each[0].split()
        begins = each.start() == 0 or text[: each.start()].rstrip()[-1:] in ".!?:\n\"'*#-"
        if words[0] in _PLAIN:
            words = words[1:]
            begins = False
        if words and words[0] not in _PLAIN and not (begins and len(words) == 1):
            found.append(" ".join(words))
    return found


def entity_swapped(
    question: str, answer: str, pool: Sequence[str], rng: random.Random
) -> str | None:
    """The reply with one name that the question does not have replaced by another from `pool`."""
    own = [name for name in dict.fromkeys(names_in(answer)) if name not in question]
    if not own:
        return None
    name = own[-1] if len(own) == 1 else rng.choice(own)
    others = [each for each in pool if each not in answer and each != name]
    if not others:
        return None
    alike = [each for each in others if len(each.split()) == len(name.split())] or others
    return re.sub(rf"\b{re.escape(name)}\b", lambda _: rng.choice(alike), answer, count=0)


def negation_changed(answer: str, rng: random.Random) -> str | None:
    """The reply with a negation dropped where there is one, and otherwise one added."""
    dropped = list(_NOT.finditer(answer))
    if dropped:
        one = rng.choice(dropped)
        return answer[: one.start()] + one[1] + answer[one.end() :]
    added = list(_VERB.finditer(answer))
    if not added:
        return None
    one = added[-1] if rng.random() < 0.5 else rng.choice(added)
    return f"{answer[: one.end()]} not{answer[one.end() :]}"


def cut_off(answer: str, rng: random.Random) -> str | None:
    """The first third to four fifths of a reply that is long enough to have a working."""
    if len(answer) < MIN_CUT:
        return None
    return answer[: int(len(answer) * rng.uniform(0.33, 0.8))]
