"""The comparison of an edited or translated text with its source: numbers, negations, mistakes."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from calibrator.readers.evidence.acts.recognition.languages import language_of
from calibrator.readers.evidence.acts.recognition.recognising import Act, RequestWishes
from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.finding import Finding
from calibrator.readers.evidence.number_words import TO_TWELVE

LOOK = 6_000  # characters of a text
SHORT = 60  # words
MAX_COUNTED = 800  # characters of a text whose numbers are compared
MAX_NEGATED = 400  # characters of a text whose negations are counted
SAME_TEXT = 0.4  # least share of the source's words in an edited text
MAX_CHANGED = 0.7  # largest share of changed words if only mistakes had to be corrected

_WANTS: Final = pattern("editing", "wants")
_ONLY_MISTAKES: Final = pattern("editing", "only_mistakes")
_MISTAKES: Final = pattern("editing", "mistakes")
_NEGATION: Final = pattern("editing", "negation")
_NEGATES: Final = pattern("editing", "negates")
_LANGUAGES: Final = frozenset({"en", "de", "es", "fr", "it", "pt", "nl"})
_DOUBLE: Final = pattern("editing", "double")
_QUOTED: Final = pattern("wishes", "source")
_SUMMARY: Final = pattern("editing", "summary")
_NUMBER: Final = re.compile(r"(?<![\w.,])\d+(?:[.,:]\d+)*")
_LONG_QUOTE: Final = re.compile(r"[\"“«](.{40,})[\"”»]", re.DOTALL)
_WORD: Final = re.compile(r"[^\W\d_]+")
_AMOUNT: Final = re.compile(
    rf"(?<![\w.,-])(?P<n>\d+|{'|'.join(TO_TWELVE)})\s(?P<t>[a-z]{{3,}}s)\b", re.IGNORECASE
)
_NO_ADDITIONS: Final = pattern("editing", "no_additions")
_FROM_NOTES: Final = pattern("editing", "from_notes")
_NOTE: Final = re.compile(r"(?m)^\s*(?:[-*•\u2013]|\d{1,2}[.)])\s+(\S.*)$")
_NUMBER_IN_WORD: Final = re.compile(r"\d+(?:[.,:]\d+)*")
LEAST_NOTES = 3  # lines that are notes
_NO_EDIT: Final = ("refusal", "unknown", "apology", "code", "data")


def is_editing(conversation: Conversation) -> bool:
    """Return whether the task is to write a given text in other words, as in `Polish this email`.

    Read are the first 600 characters of the rules, or of the instruction without rules. Always
    False if tools returned results.
    """
    if conversation.results:
        return False
    return bool(_WANTS.search(conversation.rules[:600] or conversation.instruction[:600]))


def has_only_its_text(conversation: Conversation) -> bool:
    """Return whether the rules ask to edit messages and the request is a short first message.

    Short means fewer than 60 words; the first 600 characters of the rules are read. Then a reply
    relies on nothing but that text. False without rules, with earlier turns or results of tools.
    """
    is_short = len(conversation.request.split()) < SHORT and not conversation.earlier
    return is_short and not conversation.results and bool(_WANTS.search(conversation.rules[:600]))


def source_of(conversation: Conversation) -> str:
    """Return the text that has to be edited; empty if the conversation does not contain it.

    This is the whole request if the rules ask for edits; else a quotation that makes up more
    than half of the request, the request's document, or a text in quotes or behind a colon, as
    in `Fix the grammar: he go home`.
    """
    if _WANTS.search(conversation.rules[:600]):
        return conversation.request.strip()
    quoted = _LONG_QUOTE.search(conversation.request[:LOOK])
    if quoted and 2 * len(quoted[1]) > len(conversation.request):
        return quoted[1].strip()
    if conversation.document.strip() and conversation.document != conversation.request:
        return conversation.document.strip()
    found = _QUOTED.search(conversation.request[:LOOK])
    return (found.group(1) or found.group(2) or "").strip() if found else ""


def find_wrong_edit(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find an edited, translated or summarised text that differs from its source in the facts.

    Compared are numbers, amounts such as `six weeks`, negations, and mistakes that had to be
    corrected. None if nothing had to be edited, the source is not in the conversation (15 to
    6,000 characters), the reply does not edit (a refusal, a question back, code, data), or no
    difference is sure. Beyond 800 characters of source only left mistakes are looked for; in a
    translation those are not.
    """
    if act.kind in _NO_EDIT:
        return None
    wants_summary = request.wants_summary or bool(_SUMMARY.search(conversation.request[:200]))
    if not (is_editing(conversation) or request.wants_translation or wants_summary):
        return None
    source, body = source_of(conversation), (act.body or reply).strip()
    if len(source) < 15 or len(source) > LOOK or len(body) > 3 * len(source) + 200:
        return None
    if act.kind == "clarification" and _share_kept(source, body) < SAME_TEXT:
        return None  # a question about the text
    if not request.wants_translation:
        left = _left_mistake(conversation, source, body)
        if left is not None:
            return left
    if len(source) > MAX_COUNTED:
        return None
    if wants_summary:
        return _amounts(source, body)
    return _numbers(source, body) or _amounts(source, body) or _negations(source, body)


def find_added_number(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a number in the reply that nobody named, if the request forbids additions.

    A request forbids them in words such as `do not add anything`. Numbers count as named if any
    turn or rule has them, also as words up to twelve. None without such a wish or such a
    number, or after results of tools.
    """
    wish = conversation.request[:LOOK]
    if act.kind in _NO_EDIT or conversation.results or not _NO_ADDITIONS.search(wish):
        return None
    turns = [turn.text for turn in conversation.earlier]
    all_text = "\n".join([conversation.rules, *turns, conversation.request])
    own = {_plain_digits(each) for each in _NUMBER_IN_WORD.findall(all_text)}
    words = {
        str(value) for word, value in TO_TWELVE.items() if re.search(rf"(?i)\b{word}\b", all_text)
    }
    for number in _NUMBER_IN_WORD.findall(_without_list(act.body or reply)):
        if _plain_digits(number) and _plain_digits(number) not in own | words:
            return Finding(None, -2.0, f"adds {number}, which nobody named")
    return None


def _numbers(source: str, body: str) -> Finding | None:
    """Return a finding if exactly one number of an edited text is not in its source, or None.

    None also if both texts have different counts of numbers; then numbers may have been left
    out on purpose. Numbers of list items (`1.`) do not count.
    """
    own = [_plain_digits(each) for each in _NUMBER.findall(source)]
    written = _NUMBER.findall(_without_list(body))
    new = [each for each in written if _plain_digits(each) not in own]
    if len(new) != 1 or len(written) != len(own):
        return None
    return Finding(None, -2.0, f"has {new[0]}, which the text does not have")


def _amounts(source: str, body: str) -> Finding | None:
    """Return a finding for an amount with another number than in the source, or None.

    In `six weeks`, the number is `six` and the thing `weeks`: `five weeks` in the edited text
    is found if the source speaks of weeks and never of five.
    """
    before = {(_value(found["n"]), found["t"].lower()) for found in _AMOUNT.finditer(source)}
    things = {thing for _, thing in before}
    for found in _AMOUNT.finditer(body):
        value, thing = _value(found["n"]), found["t"].lower()
        if thing in things and (value, thing) not in before and not thing.endswith("s of"):
            return Finding(None, -2.0, f"has {found.group()!r}, which the text does not have")
    return None


def find_omission(
    conversation: Conversation, request: RequestWishes, act: Act, reply: str
) -> Finding | None:
    """Find a number of the user's notes that the text made of them leaves out.

    None unless the request asks to turn at least three notes (`- arrive at 9`) into a text, or
    if it wants a summary or a translation.
    """
    if act.kind in _NO_EDIT or request.wants_translation or conversation.results:
        return None
    if not _FROM_NOTES.search(conversation.request[:LOOK]):
        return None
    source, body = _NOTE.findall(conversation.request[:LOOK]), reply[:LOOK]
    if len(source) < LEAST_NOTES or request.wants_summary:
        return None
    written = {_plain_digits(each) for each in _NUMBER_IN_WORD.findall(body)}
    words = {str(value) for word, value in TO_TWELVE.items() if re.search(rf"(?i)\b{word}\b", body)}
    for note in source:
        for number in _NUMBER_IN_WORD.findall(note):
            if _plain_digits(number) and _plain_digits(number) not in written | words:
                return Finding(None, -1.5, f"leaves out {number}, which the notes have")
    return None


def _value(number: str) -> str:
    """Return a number in digits: `six` becomes `6`; words above twelve only in lower case."""
    return str(TO_TWELVE.get(number.lower(), number.lower()))


def _plain_digits(number: str) -> str:
    """Return the digits of a number without leading zeros, so that 1,000 and 1.000 are the same."""
    return re.sub(r"\D", "", number).lstrip("0")


def _without_list(text: str) -> str:
    """Return a text without the numbers of its list items, `1.` or `2)` at a line's start."""
    return re.sub(r"(?m)^\s*\d{1,2}[.)]\s", "", text)


def _negations(source: str, body: str) -> Finding | None:
    """Return a finding if a short edited text has no negation and its source has one, or None.

    None also if either text is longer than 400 characters, the source has words that can be
    said without a negation (`no longer`, `don't hesitate`), or the language of the edited text
    is not one of seven with known negations.
    """
    if max(len(source), len(body)) > MAX_NEGATED or not _NEGATES.search(source):
        return None
    if _DOUBLE.search(source) or _NEGATION.search(body) or language_of(body) not in _LANGUAGES:
        return None
    return Finding(None, -1.5, "loses a negation of the text")


def _left_mistake(conversation: Conversation, source: str, body: str) -> Finding | None:
    """Return a finding for a mistake that had to be corrected, or for too many changes, or None.

    None unless the request asks to correct. A mistake is a form that is wrong in any text, such
    as `should of`. If only mistakes had to be corrected, a text of six words or more that keeps
    less than 30 % of its words is changed too much.
    """
    if not _ONLY_MISTAKES.search(conversation.request) and "orrect" not in conversation.request:
        return None
    mistake = _MISTAKES.search(body)
    if mistake and len(body) < 2 * len(source) + 80:
        return Finding(None, -2.5, f"leaves a mistake: {mistake.group()!r}")
    if not _ONLY_MISTAKES.search(conversation.request):
        return None
    if len(source.split()) >= 6 and _share_kept(source, body) < 1 - MAX_CHANGED:
        return Finding(None, -2.0, "changes more than the mistakes")
    return None


def _share_kept(source: str, body: str) -> float:
    """Return the share, 0 to 1, of the words of `source` that `body` has; repeated words count."""
    own, old = (Counter(_WORD.findall(text.lower())) for text in (body, source))
    return (own & old).total() / max(1, old.total())
