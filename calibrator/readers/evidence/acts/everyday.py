"""The checks of everyday requests: plans, ages, shared expenses, food, and alarms to be set."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.acts.recognition.recognising import Act, RequestWishes
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.computed.basics import numbers
from calibrator.readers.evidence.computed.calendar import reading
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding
from calibrator.text.guarded import compile_guarded

LOOK_AT_DEMAND: Final = 300  # characters of a request and of a reply
_DEMAND: Final = pattern("deeds", "demand")
_THING: Final = pattern("deeds", "thing")
_CLAIM: Final = pattern("deeds", "claim")
_NO_TOOLS: Final = pattern("deeds", "no_tools")
BEFORE = 40  # characters before a food that may say that it is left out
_WANTS_FOOD: Final = pattern("diet", "wants")
_FREE: Final = pattern("diet", "free")
_SUBSTITUTE: Final = pattern("diet", "after")
_EXCLUDED: Final = tuple(
    (pattern("diet", kind), pattern("diet", f"{kind}_foods"), name)
    for kind, name in (
        ("dairy", "dairy"),
        ("gluten", "gluten"),
        ("nuts", "nuts"),
        ("meat", "meat"),
        ("eggs", "eggs"),
        ("vegan", "anything from animals"),
    )
)
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
LOOK: Final = 3_000  # characters of a turn and of a reply
_BOUND: Final = compile_guarded(
    r"\b(?P<n>[^\W\d_]{3,20}?)s? (?:only )?(?P<k>closes?|shuts?|(?:is |are )?open (?:until|till)"
    r"|schließt|macht zu|cierra|ferme|opens?|öffnet|abre|ouvre)(?: at| um| a las?| à)?\s*$",
    re.IGNORECASE,
)
_OPENS: Final = ("opens", "open", "öffnet", "abre", "ouvre")
_SPAN: Final = re.compile(r"\s{0,2}(?:[-\u2013\u2014]|to|until|bis|a|à)\s{0,2}")
_HAS_BOUND: Final = compile_guarded(
    r"\b(?:clos|shut|open)(?:s|es|e)?\b|\bschließt\b|\böffnet\b|\bcierra\b|\babre\b|\bferme\b|\bouvre\b",
    re.IGNORECASE,
)
_BIRTHDAY: Final = compile_guarded(
    r"\b(?P<n>[A-Z][a-z]+)(?:['\u2019]s)? (?:\w+ )?birthday\b|\bbirthday\b[^.?!\n]{0,30}\b"
    r"(?:next|tomorrow|coming|soon|on|this|in)\b"
)
_IS_OLD: Final = re.compile(
    r"\b(?P<n>[A-Z][a-z]+)(?: is| \(|, )\s?(?P<a>\d{1,3})\b(?! ?(?:cm|kg|%|:|\.\d))"
)
_TURNS: Final = re.compile(
    r"\b(?P<n>[A-Z][a-z]+)(?: is|['\u2019]s)? turn(?:s|ing) (?P<a>\d{1,3})\b"
)


def find_closed_place(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a line of a plan that has a place before it opens or after it closes.

    For `the museum closes at 5 pm` in the request, the line `16:00 - 18:00 Museum` is found.
    Only lines that begin their text with the place after a span of two times are read. None if
    the request has no such time, the reply is code, data or a question back, or all lines fit.
    """
    wish = conversation.request[:LOOK]
    if act.kind in ("code", "data", "clarification") or not _HAS_BOUND.search(wish):
        return None
    bounds: dict[str, tuple[str, int, bool]] = {}
    for time in reading.times_in(wish):
        found = _BOUND.search(wish[max(0, time.start - 60) : time.start])
        if found:
            is_opening = found["k"].casefold() in _OPENS
            bounds[found["n"].casefold()] = (found["n"], time.minutes, is_opening)
    for line in reply[:LOOK].splitlines() if bounds else ():
        times = reading.times_in(line)
        is_span = len(times) == 2 and _SPAN.fullmatch(line[times[0].end : times[1].start])
        if not is_span:
            continue
        folded = line[times[1].end :].casefold()
        for key, (name, minutes, is_opening) in bounds.items():
            if not re.match(rf"\W*(?:the |at the )?{re.escape(key)}\b", folded):
                continue
            if is_opening and times[0].minutes < minutes:
                return Finding(None, -2.5, f"has the {name} before it opens")
            if not is_opening and minutes < times[1].minutes:
                return Finding(None, -2.5, f"has the {name} after it closes")
    return None


def find_wrong_age(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find another age than the next one for somebody whose birthday is near.

    If the user says that Mia is 6 and has her birthday soon, `Mia turns 6` is found and `Mia
    turns 7` is not. None without a birthday, an age and an English sentence with "turns".
    """
    turns = [turn.text for turn in conversation.earlier if turn.role == "user"]
    user_text = "\n".join([*turns, conversation.request])[-LOOK:]
    if " turn" not in reply or not _BIRTHDAY.search(user_text):
        return None
    ages = {found["n"]: int(found["a"]) for found in _IS_OLD.finditer(user_text)}
    for found in _TURNS.finditer(numbers.digits_for_words(reply[:LOOK])):
        age = ages.get(found["n"])
        if age is not None and int(found["a"]) != age + 1:
            return Finding(None, -2.5, f"{found['n']} is {age} and turns {age + 1}")
    return None


def check_shares(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Compare what the reply says each person owes with an equal split of all payments.

    Wanted is a request such as `Ann paid 60, Bob paid nothing, split it evenly` and a reply
    such as `Bob owes 30`. One that is more than 1 off gives a finding against the reply; a
    right one for everybody who owes gives a finding for it. None if exactly one person is not
    to get money back, payments of somebody in the group are missing, or the reply says nobody's
    share.
    """
    turns = [turn.text for turn in conversation.earlier if turn.role == "user"]
    user_text = numbers.digits_for_words("\n".join([*turns, conversation.request])[-LOOK:])
    if not _SPLITS.search(user_text) or "owe" not in reply:
        return None
    paid: dict[str, Fraction] = {}
    for found in _PAID.finditer(user_text):
        amount = Fraction(found["a"].replace(",", "")) if found["a"] else Fraction(0)
        paid[found["n"]] = paid.get(found["n"], Fraction(0)) + amount
    group = _GROUP.search(user_text)
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
            wanted_text = numbers.number_text(wanted, 2)
            return Finding(
                False, -3.0, f"{found['n']} owes {wanted_text} of {numbers.number_text(share)}"
            )
        hits += 1
    if hits == sum(amount < share for amount in paid.values()):
        return Finding(True, 2.0, "each owes what is left of an equal share")
    return None


def find_excluded_food(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a food in the reply that the user rules out: dairy, gluten, nuts, meat, eggs, animals.

    For `a cake without eggs`, a recipe with `2 eggs` is found, but not `egg-free` or `eggs, or
    a substitute`. None unless the user asks for food and excludes something, or if tools
    returned results.
    """
    if act.kind not in ("answer", "unknown") or conversation.results:
        return None
    turns = [turn.text for turn in conversation.earlier if turn.role == "user"]
    wish = "\n".join([*turns, conversation.request])[-LOOK:]
    if not _WANTS_FOOD.search(wish):
        return None
    for rule, foods, name in _EXCLUDED:
        if not rule.search(wish):
            continue
        for found in foods.finditer(reply[:LOOK]):
            before = reply[max(0, found.start() - BEFORE) : found.start()]
            after = reply[found.end() : found.end() + BEFORE]
            if not _FREE.search(before) and not _SUBSTITUTE.match(after):
                reason = f"has {found.group()}, but the request rules out {name}"
                return Finding(None, -2.0, reason)
    return None


def find_false_claim(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find the claim of a deed that no tool has done: "Done! Your alarm is set".

    None unless the request commands such a deed (`set an alarm for 7`), within 300 characters
    of request and reply. None also if tools returned results, or if there are rules that do not
    deny tools: such an app may act in its own way.
    """
    if act.kind in ("code", "data", "translation", "refusal") or conversation.results:
        return None
    rules = conversation.rules[:2_000]
    if rules.strip() and not _NO_TOOLS.search(rules):
        return None  # the app may act in its own way
    text = request.text[:LOOK_AT_DEMAND]
    if not (_DEMAND.match(text) and _THING.search(text)):
        return None
    found = _CLAIM.search(reply[:LOOK_AT_DEMAND])
    if found is None:
        return None
    return Finding(False, -2.5, f"claims a deed that no tool has done: {found.group().strip()!r}")
