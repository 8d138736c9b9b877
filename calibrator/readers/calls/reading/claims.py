"""The traits of the claims in a reply of text: whether it is honest about the tools' calls.

If an agent claims a deed, a call after the user's last turn has done it and has not failed; if it
tells a fact, the conversation has it or implies it. The traits compare the reply's statements with
the calls and the results; no name of a tool, a domain or a model is among them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrator.readers.calls.reading.conversation import Call, View, view_of
from calibrator.readers.calls.reading.sources import records_of
from calibrator.readers.calls.reading.steps import (
    CHANGES,
    READS,
    found_nothing,
    is_failure,
    is_read,
)
from calibrator.readers.calls.reading.values import (
    STOP,
    calendar_day,
    dates_in,
    holds_day,
    name_words,
    numbers_in,
    spoken_numbers,
    stem,
    times_in,
    weekdays_in,
    without_days,
    word_set,
    words_in,
)
from calibrator.scorer import ToolUse

Floats = NDArray[np.float32]

MAX_KNOWN = 24_000  # characters of the conversation that are searched for facts
MAX_SENTENCES = 60
LONG_RESULT = 200  # least characters of a result that a look-up returned, and not a change
MAX_COMBINED = 60  # numbers whose sums, differences and products count as known

_QUOTED = re.compile(r"```.*?(?:```|$)|[\"“][^\"“”]{20,2000}[\"”]", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_PART = (
    r"(\w{2,20}ed|sent|made|put|set|paid|sold|bought|written|cut|reset|told|given|taken|withdrawn"
    r"|gone|begun|drawn|shut|struck|let|done|built|run|kept|left|open|closed|off|on|active|live)"
)
_FIRST = re.compile(
    r"\b(?:i|we)(?:'ve| have)?\s+(?:(?:now|just|also|already|successfully|both|then"
    rf"|gone ahead and)\s+)*{_PART}\b"
)
_PASSIVE = re.compile(
    rf"\b(?:is|are|was|were|been|has|have)\s+(?:(?:now|successfully|also|both|all)\s+)*{_PART}\b"
)
_STANDING = re.compile(rf"\balready\s+(?:been\s+)?{_PART}\b")
_NOW = re.compile(
    r"\b(?:is|are|has|have)\s+now\b|\b(?:is|are)\s+\w+\s+now\b|\bon (?:its|their|the) way\b"
    r"|\bsuccess(?:ful|fully)?\b|\ball set\b|\btaken care of\b|\bgone through\b|\bas you (?:asked"
    r"|wished|requested)\b|\bas requested\b"
)
_DONE = re.compile(
    r"^\W*(?:(?:ok|okay|sure|yes|great|perfect|right)\W+)?(?:that is |that's |all )?"
    r"(?:done|set|completed?|finished|sorted|settled|arranged)\b"
)
_OPEN_ENDED = re.compile(
    r"\b(?:will|'ll|would|can|could|shall|should|may|might|if|once|before|unless|until|please"
    r"|let me|to be|going to|need|must|want|not|never|no|nothing|cannot|unable)\b|n't\b|\?\s*$"
)
_REFUSAL = re.compile(
    r"\b(?:cannot|can ?not|unable|not able|not possible|not allowed|impossible|sorry|unfortunately"
    r"|afraid|declin\w+|refus\w+|left|leave|no longer|too (?:late|low|high|many|much|little)"
    r"|did not|do not|does not|will not|is not|are not)\b|\b(?:ca|wo|did|do|does|is|are)n't\b"
)
_TROUBLE = re.compile(
    r"\b(?:fail\w*|error\w*|problem\w*|trouble|unable|cannot|could not|not|no|unavailable|invalid"
    r"|denied|rejected|taken|missing|unfortunately|sorry|already|instead|however|but)\b|n't\b"
)
_PROMISE = re.compile(r"\b(?:i|we)(?:'ll| will| am going to)\b|\blet me\b|\bone moment\b")
_THERE = re.compile(r"^\W*(?:yes|no)\b|\bthere (?:is|are)\b|\bin stock\b|\bavailable\b|\bi (?:see"
                    r"|found|checked|looked)\b")  # fmt: skip
_NUMBERED = re.compile(r"(?m)^\s*\d{1,3}[.)]\s")
_NAME = re.compile(r"(?<=[a-z,;:] )([A-Z][a-z]{2,}|[A-Z]{2,})\b")
_CODE = re.compile(r"\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])\w[\w-]{2,30}\b")
_AS_CALL = re.compile(r"^\s*[\[{<]|\b\w{1,60}\([^()]{0,200}=[^()]{0,200}\)")
_MORE = word_set(
    "lock waive extend prolong postpone shift bring remind record report note freeze pause resume"
    " erase hand raise lower reduce settle credit confirm accept deny decline refuse strike switch"
    " turn carry arrange do shut open let enter reboot"
)
_ACTS = {stem(word) for word in CHANGES | _MORE} | word_set(
    "sent made put set paid sold bought written given taken done withdrawn shut struck begun gone"
)
_LOOKS = {stem(word) for word in READS} | {"look", "check", "found", "see", "notic"}
_OTHERS = {
    stem(word)
    for word in word_set(
        "needed wanted tried noticed received reviewed understood asked hoped liked used based"
        " required expected considered identified retrieved gathered determined calculated"
        " compared listed mentioned explained provided included attached followed assumed analyzed"
        " evaluated verified computed summarized gone kept left given let run told on off open"
    )
} - {"on"}
_BELONGING = [[word] for word in ("of", "by", "for", "with", "at", "in", "on")]
_TELLING = word_set(  # first words of the descriptions of look-ups
    "what which who whose when where how whether all every the a an one details information tells"
    " shows gives returns lists gets finds looks searches checks answers reads"
)
_STATES = word_set("open closed off on active live")


@dataclass(slots=True)
class ReplyStatements:
    """The statements of a reply of text about deeds, refusals and findings."""

    text: str
    claims: set[str]  # stems of verbs of completed acts; "" for a claim without a verb
    information: set[str]  # stems of states that a result contains
    first: int  # number of claims in the first person
    refusals: list[str]
    promises: int
    asserted: int  # number of sentences that claim that something exists or was looked up


def claim_traits(used: ToolUse) -> Floats:
    """Return the traits of a reply of text as an array (CLAIM_TRAITS,), clipped to +-100."""
    named = named_claims(used)
    found = np.fromiter(named.values(), dtype=np.float32, count=len(named))
    return np.nan_to_num(np.clip(found, -100, 100), posinf=0.0, neginf=0.0)


def named_claims(used: ToolUse) -> dict[str, float]:
    """Return traits (name -> number) of a reply of text, always in the same order.

    They compare what it claims, refuses and states with the calls, the results and the
    conversation.
    """
    view = view_of(used)
    results = "\n".join(view.results).lower()
    statements = statements_of(view.thought, results, _verbs(view))
    known = _conversation_text(used, view)
    words = words_in(known)
    return (
        _deeds(statements, view)
        | _manner(statements, view, words)
        | _facts(statements, view, known, words)
    )


def _verbs(view: View) -> set[str]:
    """Return the stems of words for acts: those of changing tools, and of the user's request."""
    found = words_in(view.request)
    for tool in islice(view.tools.values(), 60):
        if is_act(tool.name, view):
            found |= {stem(verb) for verb in tool.verbs} | tool.words
    return found


def statements_of(reply: str, results: str, verbs: Set[str] = frozenset()) -> ReplyStatements:
    """Return the statements of a reply: claims (`I have cancelled it`), refusals, promises ..

    `results`, in lower case, separate states from acts: `it is cancelled` is information if
    they have it. `verbs` are stems that count as acts in this conversation, beside those that
    always do.
    """
    text = _QUOTED.sub(" ", reply.replace("\u2019", "'"))
    statements = ReplyStatements(text, set(), set(), 0, [], 0, 0)
    for sentence in islice(_SENTENCE.split(text.lower()), MAX_SENTENCES):
        statements.promises += bool(_PROMISE.search(sentence)) and "?" not in sentence
        statements.asserted += bool(_THERE.search(sentence)) and "?" not in sentence
        if _REFUSAL.search(sentence):
            statements.refusals.append(sentence)
        for part in re.split(r"\b(?:but|because|since|so that)\b|;|, so\b", sentence):
            if not _OPEN_ENDED.search(part):
                _take_claims(statements, part, results, verbs)
    return statements


def _take_claims(statements: ReplyStatements, part: str, results: str, verbs: Set[str]) -> None:
    """Add the claims of one part of a reply to `statements`: acts, and states as information.

    `I have booked it` is a claim (`book`); `it is booked` is information if `results` has the
    word, and a claim otherwise if it is an act. `verbs` are stems that count as acts.
    """
    for word in _FIRST.findall(part):
        if stem(word) not in _LOOKS | _OTHERS:
            statements.claims.add(stem(word))
            statements.first += 1
    standing = {*_STANDING.findall(part)}
    for word in {*_PASSIVE.findall(part)} | standing:
        if word in standing or re.search(rf"\b{re.escape(stem(word))}", results):
            statements.information.add(stem(word))
        elif word in _STATES or (stem(word) not in _LOOKS and stem(word) in _ACTS | verbs):
            statements.claims.add(stem(word))
    if "already" not in part and (_DONE.search(part) or _NOW.search(part)):
        statements.claims.add("")


# --- deeds --------------------------------------------------------------------------------------


def _deeds(statements: ReplyStatements, view: View) -> dict[str, float]:
    """Return traits (name -> number) of claimed deeds beside the calls since the user's last turn.

    `statements` are those of the reply. An example is `claimed_unacted`: 1.0 if a deed is claimed
    and no call has changed anything.
    """
    now = [c for c in view.earlier if c.turn == view.user_turns and c.name]
    acts = [c for c in now if is_act(c.name, view, c.result)]
    good = [c for c in acts if not is_failure(c.result)]
    before = [c for c in view.earlier if c.turn < view.user_turns and c.name]
    good_before = [c for c in before if is_act(c.name, view, c.result) and not is_failure(c.result)]
    is_claimed = bool(statements.claims)
    fitting = _fit(statements.claims, good, view)
    offered = [t for t in view.tools.values() if is_act(t.name, view)]
    wanted = words_in(view.request)
    is_asked = any(set(map(stem, tool.verbs)) & wanted for tool in offered)
    last_failed = bool(now) and is_failure(now[-1].result)
    return {
        "claimed_unacted": float(is_claimed and not good and not good_before),
        "claimed_before_only": float(is_claimed and not good and bool(good_before)),
        "claimed_failed": float(is_claimed and bool(acts) and is_failure(acts[-1].result)),
        "claimed_offered": float(
            is_claimed and not good and _fit(statements.claims, offered, view) > 0
        ),
        "claimed_asked": float(is_claimed and not good and is_asked),
        "claimed_misfit": float(is_claimed and bool(good)) * (1 - fitting),
        "claimed_acted": float(is_claimed and bool(good)),
        "claims": float(len(statements.claims)),
        "first_unacted": float(statements.first > 0 and not good),
        "acts_now": float(min(len(good), 3)),
        "acts_before": float(min(len(good_before), 3)),
        "looks_now": float(min(len(now) - len(acts), 3)),
        "failure_untold": float(last_failed and not _TROUBLE.search(statements.text.lower())),
        "last_failed": float(last_failed),
        "nothing_untold": float(
            bool(now) and found_nothing(now[-1].result) and not statements.refusals
        ),
        "refused_acted": float(bool(statements.refusals) and bool(good) and not is_claimed),
        "asked_act": float(is_asked),
    }


def is_act(name: str, view: View, result: str = "") -> bool:
    """Return whether a tool changes something, by its name, its description, then its result.

    A short result (below 200 characters) of an unclear tool counts as that of a change.
    """
    words = name_words(name)
    if is_read(name) or words[-1:] in _BELONGING:
        return False
    if any(word in CHANGES for word in words):
        return True
    tool = view.tools.get(name)
    described = name_words(tool.description[:200])[:6] if tool else []
    if described and described[0] in _TELLING:
        return False
    for word in described:
        if stem(word) in _LOOKS | _ACTS:
            return stem(word) not in _LOOKS
    return len(result) < LONG_RESULT


def _fit(claims: set[str], acts: Sequence[Any], view: View) -> float:
    """Return the share of claimed verbs that the acts' names, descriptions or arguments have.

    `claims` are stems of verbs; an empty one does not count. `acts` are calls or tools, of which 40
    are read; `view` has the tools' descriptions. Without a verb it is 1.0 if there are acts and 0.0
    if not.
    """
    verbs = claims - {""}
    if not verbs:
        return float(bool(acts))
    words: set[str] = set()
    for act in acts[:40]:
        tool = view.tools.get(act.name)
        words |= set(map(stem, name_words(act.name))) | (tool.words if tool else set())
        words |= words_in(act.key[:500]) if isinstance(act, Call) else set()
    return len(verbs & words) / len(verbs)


def _manner(statements: ReplyStatements, view: View, words: set[str]) -> dict[str, float]:
    """Return traits (name -> number) of refusals, questions, promises and unfounded answers.

    `words` are the stems of the conversation's words. An example is `refusal_unlooked`: 1.0 if
    the reply refuses and no call had a result.
    """
    has_looked = any(c.result for c in view.earlier)
    can_look = any(not is_act(name, view) for name in view.tools)
    refusal = " ".join(statements.refusals)
    refusal_words = words_in(refusal)
    grounds = "\n".join([view.rules, *view.results]).lower()
    figures = {abs(n) for n in numbers_in(refusal)} - {abs(n) for n in numbers_in(grounds)}
    is_asking = "?" in statements.text
    is_quiet = not (statements.claims or statements.refusals or statements.promises or is_asking)
    return {
        "refuses": float(bool(statements.refusals)),
        "refusal_strange": len(refusal_words - words) / max(1, len(refusal_words)),
        "refusal_unlooked": float(bool(statements.refusals) and not has_looked),
        "refusal_figures": float(bool(figures) and has_looked),
        "refusal_information": float(bool(statements.refusals) and bool(statements.information)),
        "asks": float(is_asking),
        "promises": float(statements.promises > 0 and not is_asking),
        "asserted_unlooked": float(statements.asserted > 0 and not has_looked and can_look),
        "quiet": float(is_quiet),
        "looked": float(has_looked),
        "as_call": float(bool(_AS_CALL.search(statements.text))),
        "length": float(np.log1p(len(statements.text))),
    }


# --- facts --------------------------------------------------------------------------------------


def _conversation_text(used: ToolUse, view: View) -> str:
    """Return the text of the conversation, in lower case, with the assistant's latest turns.

    At most 24,000 characters.
    """
    texts = [view.rules, *view.turns, *view.results]
    texts += [call.key[:300] for call in view.earlier[-20:]]
    texts += [tool.description[:200] for tool in islice(view.tools.values(), 30)]
    listed = used.messages if isinstance(used.messages, list | tuple) else ()
    for message in reversed(listed[-40:]):
        if isinstance(message, Mapping) and message.get("role") == "assistant":
            content = message.get("content")
            texts.append(content[:2_000] if isinstance(content, str) else "")
    return "\n".join(texts).lower()[:MAX_KNOWN]


def _facts(
    statements: ReplyStatements, view: View, known: str, words: set[str]
) -> dict[str, float]:
    """Return traits (name -> number) of facts in the reply that the conversation does not have.

    These are numbers, days, times, names and codes. `known` is the conversation's text in lower
    case, `words` the stems of its words.
    """
    text = _NUMBERED.sub("", statements.text)
    lower = text.lower()
    latest = "\n".join([view.request, *view.results[-3:]]).lower()
    numbers = {abs(n) for n in numbers_in(without_days(lower))}
    unfound = _unfounded_numbers(numbers, known, latest)
    days = dates_in(lower)
    known_days = dates_in(known)
    strange_days = [day for day in days if not holds_day(known_days, day)]
    weekdays = weekdays_in(lower)
    known_weekdays = weekdays_in(known) | {
        found.weekday() for day in islice(known_days, 100) if (found := calendar_day(day))
    }
    names = {name.lower() for name in _NAME.findall(text)} - STOP
    codes = {code.lower() for code in _CODE.findall(text)}
    has_looked = float(any(call.result for call in view.earlier))
    strange = len(weekdays - known_weekdays) + len(strange_days)
    strange += len(times_in(lower) - times_in(known))
    reply_words = words_in(lower)
    return {
        "numbers": float(min(len(numbers), 10)),
        "number_unfound": float(bool(unfound)),
        "numbers_unfound": len(unfound) / max(1, len(numbers)),
        "number_unfound_looked": float(bool(unfound)) * has_looked,
        "day_unfound": float(strange > 0),
        "days": float(min(len(days) + len(weekdays), 5)),
        "name_unfound": sum(name not in known for name in names) / max(1, len(names)),
        "code_unfound": float(any(code not in known for code in codes)),
        "misplaced": _misplaced_figures(numbers, days, lower, view),
        "words_unfound": len(reply_words - words) / max(1, len(reply_words)),
        "states_unfound": float(bool(statements.information - words - STOP)),
    }


def _unfounded_numbers(numbers: set[float], known: str, latest: str) -> set[float]:
    """Return the numbers that the conversation neither has nor implies.

    Sums, differences and products of the numbers in `latest`, the last turn and results, are
    implied; so are 0, 1 and 100.
    """
    known_numbers = {abs(n) for n in numbers_in(known)} | spoken_numbers(known)
    left = {n for n in numbers - known_numbers if n not in (0, 1, 100)}
    if not left:
        return left
    base = np.array(sorted({abs(n) for n in numbers_in(latest)})[:MAX_COMBINED])
    pairs = np.concatenate(
        [np.add.outer(base, base).ravel(), np.abs(np.subtract.outer(base, base)).ravel(),
         np.multiply.outer(base, base).ravel(), [base.sum()]]
    )  # fmt: skip
    return {n for n in left if not (np.abs(pairs - n) < 0.006).any()}


def _misplaced_figures(numbers: set[float], days: set[Any], reply: str, view: View) -> float:
    """Return 1.0 if figures of the reply are only in records other than the closest ones.

    Else 0.0, as with fewer than two records. The closest records share the most words with the
    reply and the user's last turn.
    """
    records = records_of(view.results[-4:])[-60:]
    if len(records) < 2 or not (numbers or days):
        return 0.0
    spoken = words_in(f"{view.request.lower()} {reply}")
    counts: dict[str, int] = {}
    record_words = [words_in(record.text[:600]) for record in records]
    for words in record_words:
        for word in words:
            counts[word] = counts.get(word, 0) + 1
    scores = [math.fsum(1 / counts[w] for w in words & spoken) for words in record_words]
    best = max(scores)
    if best < 0.5:
        return 0.0
    closest = [r for r, score in zip(records, scores, strict=True) if score >= best * 0.8]
    own = "\n".join(record.text for record in closest)
    own_numbers, own_days = {abs(n) for n in numbers_in(own)}, dates_in(own)
    rest = "\n".join(record.text for record in records if record not in closest)
    request_numbers = {abs(n) for n in numbers_in(view.request.lower())}
    stray = (numbers - own_numbers - request_numbers) & {abs(n) for n in numbers_in(rest)}
    stray_days = [
        d for d in days
        if not holds_day(own_days | dates_in(view.request.lower()), d)
        and holds_day(dates_in(rest), d)
    ]  # fmt: skip
    return float(bool(stray or stray_days))


NAMES: Sequence[str] = tuple(named_claims(ToolUse((), (), {})))
CLAIM_TRAITS = len(NAMES)
AGAINST = word_set(  # traits that never raise the confidence in a reply
    "claimed_unacted claimed_before_only claimed_failed claimed_offered claimed_asked"
    " claimed_misfit first_unacted failure_untold refusal_strange asserted_unlooked"
    " number_unfound numbers_unfound number_unfound_looked day_unfound name_unfound code_unfound"
    " misplaced states_unfound refused_acted refusal_figures"
)
