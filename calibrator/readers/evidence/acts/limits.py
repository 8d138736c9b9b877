"""The checks of wishes of form that can be counted: words, sentences, endings, signs."""

from __future__ import annotations

from typing import Final

from calibrator.readers.evidence.acts.recognition.wording import pattern
from calibrator.readers.evidence.finding import Finding
from calibrator.readers.evidence.number_words import NUMBER_WORDS

_NUMBERS: Final = {
    **NUMBER_WORDS,
    "thirty": 30,
    "fifty": 50,
    "a": 1,
    "a single": 1,
    "single": 1,
    "一": 1,
    "两": 2,
    "三": 3,
}
_MOST: Final = pattern("limits", "most")
_END: Final = pattern("limits", "end")
_BEGIN: Final = pattern("limits", "begin")
_OF_PART: Final = pattern("limits", "of_part")
_NO_SIGNS: Final = tuple(
    (pattern("limits", f"no_{sign}"), pattern("limits", sign), name)
    for sign, name in (
        ("emoji", "an emoji"),
        ("exclamation", "an exclamation mark"),
        ("list", "a list"),
        ("markdown", "Markdown"),
        ("digit", "a digit"),
    )
)
_UPPER: Final = pattern("limits", "upper")
_LOWER: Final = pattern("limits", "lower")
_YES_NO_ONLY: Final = pattern("limits", "yes_no_only")
_SENTENCE_END: Final = pattern("limits", "sentence_end")


_BEFORE_PART: Final = pattern("limits", "before_part")
_AFTER_PART: Final = pattern("limits", "after_part")
_OF_ALL_REPLIES: Final = pattern("limits", "of_all_replies")
_YES_OR_NO: Final = pattern("limits", "yes_or_no")


def check_form(wish: str, reply: str, body: str, source: str) -> Finding | None:
    """Compare a reply with the wishes about its form in one text, such as `at most 20 words`.

    `wish` is that text; `source` names it in the reason ("the request"); `body` is the reply
    without greetings. A wish counts as broken if both the reply and its body break it. Returns
    a finding against the reply for the first broken wish, a weak one for it if there are wishes
    and all are kept, and None if there are none that can be checked.
    """
    checks = (_too_long, _wrong_end, _wrong_beginning, _forbidden_sign, _wrong_case, _not_yes_or_no)
    is_checked = False
    for check in checks:
        problem = check(wish, reply)
        if problem and body != reply:
            problem = check(wish, body)
        if problem:
            return Finding(False, -2.5, f"{problem}, against {source}")
        is_checked |= problem == ""
    return Finding(None, 0.4, f"keeps the wishes of form in {source}") if is_checked else None


def _too_long(wish: str, reply: str) -> str | None:
    """Compare the length with a wish such as `in two sentences`: a fault, "" or None.

    The fault is a text such as "has 30 words where at most 20 were allowed"; "" means that all
    limits are kept (with some slack: 5 % of the words, one sentence above two) and None that
    there is no limit. A limit of a part (`each paragraph`, `a title of`) does not count.
    """
    limits = []
    for match in _MOST.finditer(wish):
        count, unit = [group for group in match.groups() if group]
        before = wish[max(0, match.start() - 60) : match.start()].lower()
        after = wish[match.end() : match.end() + 50].lower()
        is_of_part = _BEFORE_PART.search(before) or _AFTER_PART.match(after)
        if _OF_ALL_REPLIES.search(before):
            is_of_part = None
        if not is_of_part:
            limits.append((_NUMBERS.get(count.lower()) or int(count), unit.lower()))
    if not limits:
        return None
    text = reply.strip()
    for most, unit in limits:
        if unit == "word":
            many = len(text.split()) if text.isascii() or " " in text else len(text)
            slack = 0 if most <= 3 else max(1, most // 20)
        else:
            parts = _SENTENCE_END.split(text)
            many = sum(1 for part in parts if sum(map(str.isalpha, part)) > 3)
            slack = 0 if most <= 2 else 1
        if many > most + slack:
            return f"has {many} {unit}s where at most {most} were allowed"
    return ""


def _plain_text(text: str) -> str:
    """Return a text in lower case with single blanks, without full stops and quotes around it."""
    return " ".join(text.lower().replace("\u2019", "'").split()).strip(" .!\"'”“*_")


def _wrong_end(wish: str, reply: str) -> str | None:
    """Compare the end with a wish such as `end with "Yours"`: a fault, "" if kept, or None.

    None means that there is no such wish, or one about the end of a part (`end each line with
    ..`).
    """
    match = _END.search(wish)
    if match is None or _OF_PART.search(wish[max(0, match.start() - 60) : match.end()]):
        return None
    wanted = match.group(1) or match.group(2)
    if not _plain_text(wanted):
        return None
    return (
        "" if _plain_text(reply).endswith(_plain_text(wanted)) else f"does not end with {wanted!r}"
    )


def _wrong_beginning(wish: str, reply: str) -> str | None:
    """Compare the beginning with a wish such as `start with "Dear"`: a fault, "" or None.

    The text is "" if the wish is kept. None means that there is no such wish, or one about a
    part (`start each line with ..`).
    """
    match = _BEGIN.search(wish)
    if match is None or _OF_PART.search(wish[max(0, match.start() - 60) : match.end()]):
        return None
    wanted = match.group(1) or match.group(2)
    if not _plain_text(wanted):
        return None
    return (
        ""
        if _plain_text(reply).startswith(_plain_text(wanted))
        else f"does not begin with {wanted!r}"
    )


def _forbidden_sign(wish: str, reply: str) -> str | None:
    """Search for signs that a wish forbids (`no emojis`): a fault, "" if none, None without one.

    The signs are emojis, exclamation marks, lists, Markdown and digits.
    """
    is_named = False
    for rule, sign, name in _NO_SIGNS:
        if rule.search(wish):
            is_named = True
            if sign.search(reply):
                return f"has {name}"
    return "" if is_named else None


def _wrong_case(wish: str, reply: str) -> str | None:
    """Compare the case with a wish (`reply in all caps`): a fault, "" if kept, None without one.

    None also for replies with fewer than three letters. Up to 10 % small letters are allowed
    among capitals.
    """
    is_upper, is_lower = _UPPER.search(wish), _LOWER.search(wish)
    if not (is_upper or is_lower):
        return None
    letters = [sign for sign in reply[:4_000] if sign.isalpha() and sign.lower() != sign.upper()]
    if len(letters) < 3:
        return None
    if is_upper:
        is_broken = sum(map(str.islower, letters)) > 0.1 * len(letters)
        return "is not in capital letters" if is_broken else ""
    return "has capital letters" if any(sign.isupper() for sign in letters) else ""


def _not_yes_or_no(wish: str, reply: str) -> str | None:
    """Compare a reply with the wish `yes or no only`: a fault, "" if kept, None without one.

    A fault is a reply that does not begin with yes or no, in six languages, or has more than
    three words.
    """
    if not _YES_NO_ONLY.search(wish):
        return None
    beginning = _plain_text(reply[:200])
    if _YES_OR_NO.match(beginning):
        return "" if len(reply.split()) <= 3 else "says more than yes or no"
    return "does not answer yes or no"
