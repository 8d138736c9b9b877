"""Changes to the options that a multiple-choice reply names: at its end, or in its working."""

from __future__ import annotations

import random
import re

from calibrator.text.looking_for import at_lines, reading_of

_OPTION = re.compile(r"(?m)^[ \t]*\(?([A-J])[).:][ \t]*(.+)$")
_FINAL = re.compile(
    r"(?:answer is|answer:|answer\"\s?:|answer\*\*:?|option is|choose|correct (?:option|choice) is"
    r"|\\boxed\{|答案[是为]?[:\uff1a]?)[\"'(*\s\[]{0,8}(?:\\text\{)?[\"'(*\s\[]{0,8}"
    # A and I are also words that begin a sentence.
    r"((?-i:[B-HJ]|[AI](?! ?[a-z])))(?![\w'\u2019])",
    re.IGNORECASE,
)
MIN_TEXT = 3  # characters of an option's text that is searched for in a working
_GAP = 8  # characters between a letter and the option's text


def options_of(question: str) -> dict[str, str]:
    """Return a multiple-choice question's options, such as `{"A": "Paris", "B": "Rome"}`.

    An option is a line that begins with a capital from A to J, perhaps in a bracket, then one of
    `).:` and a text. Empty for fewer than two.
    """
    if not reading_of(question).may_list_options:
        return {}
    found = {each[1]: each[2].strip() for each in at_lines(_OPTION, question)}
    return found if len(found) > 1 else {}


def final_letter(answer: str) -> re.Match[str] | None:
    """Return the last match of a phrase that names the chosen option, such as `the answer is (B)`.

    Group 1 is the letter, A to J. None if the reply has no such phrase.
    """
    found = None
    for found in _FINAL.finditer(answer):  # noqa: B007  # the last one is used
        pass
    return found


def final_option_changed(question: str, answer: str, rng: random.Random) -> str | None:
    """Return a multiple-choice reply with another final option, to make a wrong reply, or None.

    `rng` draws the other letter from the question's options. Every phrase that states the same
    letter, such as `the answer is B`, is changed, together with the option's text if it follows
    within a few characters. The working, which argues for the letter or its text in other words,
    stays. None if the reply names no final option, or one that the question does not offer.
    """
    options, found = options_of(question), final_letter(answer)
    if found is None or found[1] not in options:
        return None
    letter = found[1]
    other = rng.choice(sorted(set(options) - {letter}))
    parts, end = [], 0
    for stated in _FINAL.finditer(answer):
        if stated[1] != letter or stated.start(1) < end:
            continue
        parts += [answer[end : stated.start(1)], other]
        end = stated.end(1)
        text = options[letter]
        at = answer.find(text, end, end + len(text) + _GAP) if text else -1
        if at >= 0:
            parts += [answer[end:at], options[other]]
            end = at + len(text)
    return "".join([*parts, answer[end:]])


def argued_option_changed(question: str, answer: str, rng: random.Random) -> str | None:
    """Return the reply with the same final option and a working that argues for another, or None.

    `rng` draws the other option. Its letter (where the working writes it as `(B)`, `option B` or
    `choice B`) and its text replace those of the final option before the last phrase that states
    it. None if the reply names no final option of the question, or the working does not mention it.
    """
    options, found = options_of(question), final_letter(answer)
    if found is None or found[1] not in options:
        return None
    letter = found[1]
    other = rng.choice(sorted(set(options) - {letter}))
    working, end = answer[: found.start()], answer[found.start() :]
    changed = working
    if len(options[letter]) >= MIN_TEXT:
        changed = changed.replace(options[letter], options[other])
    named = rf"(?<=\()({letter})(?=\))|(?<=[Oo]ption )({letter})\b|(?<=[Cc]hoice )({letter})\b"
    changed = re.sub(named, other, changed)
    return None if changed == working else changed + end
