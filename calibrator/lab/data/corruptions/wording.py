"""Changes to the wording of a reply: names swapped, negations added or dropped, ends cut off."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Sequence

_NAME = re.compile(r"\b[A-Z][a-zà-ž]{2,}(?: (?:(?:of|the|de|von|van|la) )?[A-Z][a-zà-ž]+){0,3}\b")
_PLAIN = frozenset(
    """
    The This That These Those There They Then Therefore Thus Hence However Here His Her Its It In On
    At For From With Without When Where While Which Who What Why How And But Because Since So If As
    By To Of An A Are Is Was Were Be Been You Your We Our Let Now First Second Third Finally Step
    Answer Question Option Options Final Given Yes No Not One Two Three All Any Each Some Such After
    Before During Also Although Though Based According Note Solution Explanation Reasoning I
    True False None Null
    """.split()  # noqa: SIM905  # a list of a hundred quoted words would be harder to read
)
_AUXILIARIES = "is|are|was|were|can|could|does|did|do|has|have|had|will|would|should|must"
# `has` and `have` are negated only before a participle. `do` and `did` are missing, since no other
# verb follows them in a plain statement.
_VERB = re.compile(
    r"\b(is|are|was|were|can|will|would|should|(?:has|have)(?= (?:been|\w{2,20}ed)\b))\b"
    r"(?!\s{1,3}not\b|n?['\u2019]t)"
)
_NOT = re.compile(
    rf"\b(?:(?P<verb>{_AUXILIARIES})(?:\s{{1,3}}not\b|n['\u2019]t\b)"
    r"|(?P<can>can)(?:not|['\u2019]t)\b|(?P<will>wo)n['\u2019]t\b)"
)
MIN_CUT = 120  # characters; a shorter reply has no working to cut
MAX_NAMES = 200  # names of a reply, and candidates to replace one of them
LOOK_BACK = 4  # characters before a name that show whether it begins a sentence


def names_in(text: str) -> list[str]:
    """Return the names in a text, in order, repeats included: capitalised words as `Marie Curie`.

    Common words (`The`, `However`) at a name's start are dropped, and a single word that begins
    a sentence does not count.
    """
    found = []
    for each in _NAME.finditer(text):
        words = each[0].split()
        before = text[max(0, each.start() - LOOK_BACK) : each.start()].rstrip()
        begins = not before or before[-1] in ".!?:\n\"'*#-"
        while words and (words[0] in _PLAIN or words[0].islower()):
            words, begins = words[1:], False
        if words and not (begins and len(words) == 1):
            found.append(" ".join(words))
    return found


def entity_swapped(
    question: str,
    answer: str,
    pool: Sequence[str],
    rng: random.Random,
    ordinary: Collection[str] = (),
) -> str | None:
    """Return the reply with one name replaced everywhere by another one of `pool`.

    The name is not in the question and not in `ordinary`, capitalised words that name nothing.
    The new one is not in the reply and mostly has as many words. None if there is no such name.
    """
    names = [name for name in dict.fromkeys(names_in(answer)) if name not in ordinary][:MAX_NAMES]
    own = [name for name in names if name not in question]
    if not own:
        return None
    name = rng.choice(own)
    drawn = rng.sample(pool, min(MAX_NAMES, len(pool)))
    others = [each for each in drawn if each not in answer and name not in each]
    if not others:
        return None
    other = rng.choice(
        [each for each in others if len(each.split()) == len(name.split())] or others
    )
    return re.sub(rf"\b{re.escape(name)}\b", lambda _: other, answer)


def negation_changed(answer: str, rng: random.Random) -> str | None:
    """Return the reply with a negation dropped, `is not` to `is`, or else one added to a verb.

    None if it has neither a negation nor a verb to negate, such as `is`, `can` or `has been`.
    """
    dropped = list(_NOT.finditer(answer))
    if dropped:
        one = rng.choice(dropped)
        verb = one["verb"] or one["can"] or "will"
        return answer[: one.start()] + verb + answer[one.end() :]
    added = list(_VERB.finditer(answer))
    if not added:
        return None
    one = added[-1] if rng.random() < 0.5 else rng.choice(added)
    return f"{answer[: one.end()]} not{answer[one.end() :]}"


def cut_off(answer: str, rng: random.Random) -> str | None:
    """Return the first 33 to 80 % of the reply's characters; None below `MIN_CUT` characters."""
    if len(answer) < MIN_CUT:
        return None
    return answer[: int(len(answer) * rng.uniform(0.33, 0.8))]
