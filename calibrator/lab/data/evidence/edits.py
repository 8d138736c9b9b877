"""Edits of a sentence that change its claim, or make it claim more.

Every edit takes a sentence, the passage around it and a random generator. It returns the changed
sentence, or None if it does not apply. No edit returns the sentence unchanged.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache

from calibrator.lab.data.evidence.words.templates import capital, data
from calibrator.lab.data.evidence.words.values import (
    MONTHS,
    NUMBERS,
    WEEKDAYS,
)

Edit = Callable[[str, str, random.Random], str | None]

NUMBER = re.compile(r"(?<![\w.,:/-])(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\w:/-]|[.,]\d)")
_ORDINAL = re.compile(r"\b(\d{1,2})(st|nd|rd|th)\b")
NUMBER_WORD = re.compile(
    r"\b(" + "|".join(NUMBERS[2:]) + r"|thirty|forty|fifty|sixty|seventy|eighty|ninety)\b", re.I
)
_ORDINAL_WORDS = [
    *("first", "second", "third", "fourth", "fifth"),
    *("sixth", "seventh", "eighth", "ninth", "tenth"),
]
_ORDINAL_WORD = re.compile(r"\b(" + "|".join(_ORDINAL_WORDS) + r")\b")
_MONTH = re.compile(r"\b(" + "|".join(MONTHS) + r")\b")
_WEEKDAY = re.compile(r"\b(" + "|".join(WEEKDAYS) + r")(?=s?\b)")
_NAME = re.compile(
    r"\b[A-Z][\w'\u2019-]+(?:\s+(?:(?:of|de|van|von|del|la)\s+)?[A-Z][\w'\u2019-]+)*"
)
_NEGATIVE = re.compile(
    r"\b(not|never|no|none|nobody|nothing|neither|nor|cannot|without)\b|n't\b", re.I
)
_AUXILIARY = re.compile(
    r"\b(is|was|are|were|can|could|will|would|should|must)\b(?! (?:not|never|no)\b)(?=\s+\w)"
)
_PERFECT = re.compile(r"\b(has|have|had)\b(?=\s+(?:been|become|\w+ed|\w+en)\b)")
_REMOVED_NOT = re.compile(
    r"\b(is|was|are|were|has|have|had|could|will|would|should|must|may|might|can|do|does|did) not\b"
)
_NOT_NAMES = {
    *MONTHS,
    *WEEKDAYS,
    "The",
    "In",
    "On",
    "At",
    "It",
    "He",
    "She",
    "They",
    "We",
    "This",
    "That",
}
_BEFORE_PARTICIPLE = {
    *("is", "was", "are", "were", "be", "been", "being", "has", "have", "had", "the", "a", "an"),
    *("and", "or", "of", "by", "in", "on", "with", "to", "as", "recently", "newly", "also"),
    *("most", "best", "well"),
}
_AFTER_PARTICIPLE = {"by", "in", "at", "from", "on", "with", "for", "as"}
# Fixed phrases, in which the opposite of a word has no opposite meaning.
_FIXED = re.compile(
    r"\b(?:look|looks|looked|looking|named|takes?|took|in|at|called|so|no|any)"
    r" (?:after|common|rare|first|last|more|less|best|late|most|all|longer)$",
    re.I,
)
_FIXED_START = ("high school", "light year", "right away", "left hand", "short story", "old age")


@cache
def _pairs(name: str) -> dict[str, list[str]]:
    """Return a list of `words/edits.yaml` as a mapping of a word or phrase to its replacements.

    Antonyms and phrases are mapped in both directions.
    """
    found: dict[str, list[str]] = {}
    for line in data("edits")[name].splitlines():
        one, other = line.split(" = ") if " = " in line else line.split()
        one, other = one.replace("_", " "), other.replace("_", " ")
        found.setdefault(one, []).append(other)
        if name in ("antonyms", "phrases"):
            found.setdefault(other, []).append(one)
    return found


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """Return the pattern that finds the words and phrases of a list, longest first, in any case."""
    words = sorted(_pairs(name), key=len, reverse=True)
    return re.compile(
        r"(?<![\w'-])(" + "|".join(map(re.escape, words)) + r")(?![\w'\u2019-])", re.I
    )


def replace_match(sentence: str, found: re.Match[str], text: str, group: int = 0) -> str | None:
    """Return the sentence with a match, or one of its groups, replaced; None if unchanged."""
    new = sentence[: found.start(group)] + text + sentence[found.end(group) :]
    return None if new == sentence else new


def exchange(name: str, sentence: str, rng: random.Random) -> str | None:
    """Return the sentence with one word or phrase of the list `name` replaced by its partner.

    `a` and `an` are corrected. None if no listed one is there; names and fixed phrases (`high
    school`) are left alone.
    """
    found = [
        match
        for match in _pattern(name).finditer(sentence)
        if (match[0].islower() or match.start() == 0)
        and not _FIXED.search(sentence[max(0, match.start() - 9) : match.end()])
        and not sentence[match.start() :].lower().startswith(_FIXED_START)
    ]
    if not found:
        return None
    match = rng.choice(found)
    new = rng.choice(_pairs(name)[match[0].lower()])
    edited = replace_match(sentence, match, capital(new) if match[0][0].isupper() else new)
    return articles(edited) if edited else None


def articles(text: str) -> str:
    """Return the text with `a` and `an` corrected where the next word's letter is a clear case."""
    text = re.sub(r"\b([Aa]) (?=[aeio]\w\w)", r"\1n ", text)
    return re.sub(r"\b([Aa])n (?=[bcdfgjklmnpqrstvwxz]\w\w)", r"\1 ", text)


# --- edits that change the claim ----------------------------------------------------------------


def change_number(sentence: str, passage: str, rng: random.Random) -> str | None:
    """Replace a number in digits by another one of the passage, or by a similar one.

    Years are replaced by years. None if there is no number outside names such as `Apollo 11`,
    or the new one is in the sentence already.
    """
    found = [each for each in NUMBER.finditer(sentence) if not _in_name(sentence, each)]
    if not found:
        return None
    match = rng.choice(found)
    year = is_year(match[0])
    here = {each[0].replace(",", "") for each in NUMBER.finditer(sentence)}
    others = [
        each[0]
        for each in NUMBER.finditer(passage)
        if each[0].replace(",", "") not in here and is_year(each[0]) == year
    ]
    if others and rng.random() < 0.5:
        return replace_match(sentence, match, rng.choice(others))
    new = _near_number(match[0], year, rng)
    return replace_match(sentence, match, new) if new.replace(",", "") not in here else None


def is_year(text: str) -> bool:
    """Return whether a text is a whole number of four digits from 1000 to 2100."""
    return text.isdigit() and len(text) == 4 and 1000 <= int(text) <= 2100


def _in_name(sentence: str, match: re.Match[str]) -> bool:
    """Return whether the number follows a capitalised word, not the first, as in `Apollo 11`.

    Months do not count, so that `May 11` is no name.
    """
    before = sentence[: match.start()].split()
    return bool(before) and before[-1][0].isupper() and before[-1] not in MONTHS and len(before) > 1


def _near_number(text: str, year: bool, rng: random.Random) -> str:
    """Return a different number or year near the one in `text` (double, +1, digits swapped).

    Decimals and commas stay; a number from 10,000 on may get commas.
    """
    plain = text.replace(",", "")
    if year:
        return str(
            min(
                2100,
                int(plain)
                + rng.choice((-30, -20, -11, -10, -5, -3, -2, -1, 1, 2, 3, 4, 7, 10, 20)),
            )
        )
    if "." in plain:
        places = len(plain.split(".")[1])
        return f"{float(plain) * rng.choice((0.5, 0.8, 1.2, 1.5, 2)) + 0.1:.{places}f}"
    number = int(plain)
    steps = [number + 1, number + 2, number * 2, number * 10, number + 10]
    steps += (
        [number - 1] * (number > 2) + [number // 2] * (number > 5) + [number // 10] * (number > 99)
    )
    if number > 99:
        swapped = list(plain)
        swapped[0], swapped[1] = swapped[1], swapped[0]
        steps += [int("".join(swapped)), int(number * 1.2), int(number * 0.7)]
    new = rng.choice([step for step in steps if step not in (0, number)])
    return f"{new:,}" if "," in text or (new > 9999 and rng.random() < 0.5) else str(new)


def change_number_word(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Replace a number in words or an ordinal (`third`, `3rd`) by another one; None without one."""
    found = [*NUMBER_WORD.finditer(sentence), *_ORDINAL_WORD.finditer(sentence)]
    found += list(_ORDINAL.finditer(sentence))
    if not found:
        return None
    match = rng.choice(found)
    if match.re is _ORDINAL:
        number = max(1, min(31, int(match[1]) + rng.choice((-3, -2, -1, 1, 2, 3, 10))))
        return replace_match(sentence, match, ordinal(number))
    words = _ORDINAL_WORDS[:6] if match.re is _ORDINAL_WORD else NUMBERS[2:13]
    new = rng.choice([word for word in words if word != match[0].lower()])
    return replace_match(sentence, match, capital(new) if match[0][0].isupper() else new)


def ordinal(number: int) -> str:
    """Return a number from 1 to 99 as "1st", "2nd", "13th"."""
    ending = "th" if 10 < number < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def change_calendar(sentence: str, passage: str, rng: random.Random) -> str | None:
    """Replace a month or weekday by another one, in half of the cases one of the passage.

    None without one; the sentence's first word does not count, since it may be another word
    (`May`).
    """
    found = [*_MONTH.finditer(sentence), *_WEEKDAY.finditer(sentence)]
    # "March" and "May" at the start of a sentence may be other words.
    found = [each for each in found if each.start() > 0]
    if not found:
        return None
    match = rng.choice(found)
    names = MONTHS if match[1] in MONTHS else WEEKDAYS
    near = [name for name in names if name in passage and name not in sentence]
    far = [name for name in names if name not in sentence]
    return replace_match(
        sentence, match, rng.choice(near if near and rng.random() < 0.5 else far), 1
    )


def change_name(sentence: str, passage: str, rng: random.Random) -> str | None:
    """Replace a name by another of the passage with as many words and a similar word before it.

    None if the sentence has no name, or the passage no other such name.
    """
    here = names_in(sentence)
    if not here:
        return None
    match = rng.choice(here)
    words = {word for each in here for word in each[0].split()}
    others = [
        each
        for each in names_in(passage)
        if not words & set(each[0].split())
        and len(each[0].split()) == len(match[0].split())
        and _role(passage, each) == _role(sentence, match)
    ]
    return replace_match(sentence, match, rng.choice(others)[0]) if others else None


def names_in(text: str) -> list[re.Match[str]]:
    """Return the names in a text: words with capitals that do not start a sentence."""
    return [
        each
        for each in _NAME.finditer(text)
        if each[0].split()[0] not in _NOT_NAMES
        and not (each.start() == 0 or text[max(0, each.start() - 2)] in '.!?:\n"“•-')
        and not each[0].isupper()
        and each[0][-1].isalnum()
    ]


def _role(text: str, match: re.Match[str]) -> str:
    """Return the role of a name by the word before it: "place", "the", "person" or "other"."""
    before = text[: match.start()].split()
    word = before[-1].lower() if before else ""
    for role, words in (
        ("place", ("in", "at", "near", "from", "to", "into", "around")),
        ("the", ("the", "a", "an")),
        ("person", ("by", "with", "and", "mr", "mrs", "dr", "said")),
    ):
        if word in words:
            return role
    return "other"


def exchange_names(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Exchange the names before and after a directed verb: `Ann hired Bob` gives `Bob hired Ann`.

    None if there is no such pair of different names, and in 20 % of the other cases.
    """
    verbs = "|".join(map(re.escape, data("edits")["directed"]))
    name = r"([A-Z][\w'\u2019-]+(?: [A-Z][\w'\u2019-]+)*)"
    match = re.search(rf"\b{name} (?:has |had |have )?(?:{verbs}) {name}(?! [a-z]+ed\b)", sentence)
    if not match or match[1] == match[2] or match[1] in _NOT_NAMES or rng.random() < 0.2:
        return None
    start, end = match.start(1), match.end(2)
    middle = sentence[match.end(1) : match.start(2)]
    return sentence[:start] + match[2] + middle + match[1] + sentence[end:]


def change_antonym(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Replace a word by its opposite (`early` by `late`); None if no word has one."""
    return exchange("antonyms", sentence, rng)


def change_phrase(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Replace a phrase of quantity or order by its opposite, such as `up to 5` by `at least 5`.

    None if the sentence has no such phrase.
    """
    match = re.search(r"\bboth ([^,.]{2,40}?) and ", sentence)
    if match:
        return replace_match(sentence, match, f"neither {match[1]} nor ")
    match = re.search(r"\bup to (?=[\d£$€])", sentence)
    if match:
        return replace_match(sentence, match, "at least ")
    return exchange("phrases", sentence, rng) or exchange("one_way", sentence, rng)


def add_negation(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Add a negation to the first verb: `was` gives `was not` or `wasn't`, `found` `did not find`.

    None for a question, a sentence with a negation, or one without a verb that is recognized.
    """
    if _NEGATIVE.search(sentence) or "?" in sentence:
        return None
    main = re.split(r",? (?:which|who|that|when|where|because|if|although|while) ", sentence)[0]
    match = _AUXILIARY.search(main) or _PERFECT.search(main)
    past = re.search(r"\b(" + "|".join(_pairs("past")) + r")\b(?! by\b)", main)
    if match and (not past or match.start() < past.start()):
        verb = match[1]
        if verb == "can":
            new = rng.choice(("cannot", "can't"))
        elif verb == "will":
            new = rng.choice(("will not", "won't"))
        else:
            new = rng.choice((f"{verb} not", f"{verb} not", f"{verb}n't", f"{verb} never"))
        return replace_match(sentence, match, new)
    if past and past.start() > 0 and _is_finite(main, past):
        base = _pairs("past")[past[1]][0]
        return replace_match(
            sentence, past, rng.choice((f"did not {base}", f"didn't {base}", f"never {past[1]}"))
        )
    return None


def _is_finite(main: str, past: re.Match[str]) -> bool:
    """Return whether a past form is the verb of the sentence, as in `the team found a ..`.

    False if it may be a participle (`the book found in ..`) by the words beside it, or has none
    on a side.
    """
    before = main[: past.start()].split()
    if not before:
        return False
    if before[-1].endswith(",") or before[-1].lower() in _BEFORE_PARTICIPLE:
        return False
    after = main[past.end() :].split()
    # "found" is a participle in "the book found in ..", and a verb in "the team found a ..".
    return bool(after) and after[0].lower() not in _AFTER_PARTICIPLE


def remove_negation(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Remove the only negation of a sentence: `cannot` gives `can`, `never` `always` or `often`.

    None if it has none or several, or one of another kind, such as `without`.
    """
    if len(_NEGATIVE.findall(sentence)) != 1:
        return None
    for pattern, new in (
        (r"\bcannot\b", "can"),
        (r"\bcan't\b", "can"),
        (r"\bwon't\b", "will"),
        (r"\b(is|was|are|were|has|have|had|does|did|do|could|would|should|must)n't\b", r"\1"),
        (_REMOVED_NOT.pattern, r"\1"),
        (r"\bnever ", rng.choice(("always ", "often "))),
    ):
        edited = re.sub(pattern, new, sentence, count=1)
        if edited != sentence:
            edited = re.sub(r"\b(at all|any longer|yet|anymore)\b", "", edited)
            return re.sub(r" +([.,])", r"\1", re.sub(r" {2,}", " ", edited))
    return None


CHANGES: dict[Edit, int] = {
    change_number: 5,
    change_number_word: 2,
    change_calendar: 3,
    change_name: 5,
    exchange_names: 4,
    change_antonym: 6,
    change_phrase: 3,
    add_negation: 3,
    remove_negation: 5,
}


# --- edits that claim more than the text ----------------------------------------------------------


def claim_more(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Replace a cautious word by a strong one (`may` by `will`); None if there is none."""
    return exchange("stronger", sentence, rng)


def add_detail(sentence: str, passage: str, rng: random.Random) -> str | None:
    """Add a circumstance at the end of the sentence, such as `in the spring of 1920`.

    It is often the ending of another sentence, `passage`, else a listed one. None for over 30
    words, a sentence without a full stop, or one that has the circumstance.
    """
    if not sentence.endswith(".") or len(sentence.split()) > 30:
        return None
    detail = find_circumstance(passage) if passage and rng.random() < 0.8 else None
    detail = detail or rng.choice(data("edits")["details"])
    return None if detail in sentence else f"{sentence[:-1].rstrip()} {detail}."


def find_circumstance(sentence: str) -> str | None:
    """Return the circumstance at the end of a sentence, such as `in the spring of 1920`.

    It begins with a preposition and precedes the full stop. None if there is none.
    """
    match = re.search(
        r" ((?:in|at|on|after|during|with|for|by|before|since|until|despite|because of|without)"
        r" (?:(?!\b(?:in|at|on|after|during|with|for|by)\b)[\w' -]){5,45})\.$",
        sentence,
    )
    return match[1] if match else None


ADDITIONS: dict[Edit, int] = {claim_more: 4, add_detail: 3}


def apply(edits: dict[Edit, int], sentence: str, passage: str, rng: random.Random) -> str | None:
    """Return the sentence after one edit that applies, drawn by weight; None if none does."""
    remaining = dict(edits)
    while remaining:
        edit = rng.choices(list(remaining), list(remaining.values()))[0]
        edited = edit(sentence, passage, rng)
        if edited is not None and edited != sentence:
            return edited
        del remaining[edit]
    return None
