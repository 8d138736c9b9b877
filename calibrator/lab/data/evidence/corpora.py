"""Pairs from given passages of text: sentences kept, shortened, changed, omitted or enlarged.

An edited sentence is as often in the context as in the reply, so that the traces of an edit say
nothing about the label.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from calibrator.lab.data.evidence.edits import (
    ADDITIONS,
    CHANGES,
    NUMBER,
    NUMBER_WORD,
    Edit,
    add_detail,
    apply,
    exchange,
    find_circumstance,
    is_year,
    names_in,
    ordinal,
    replace_match,
)
from calibrator.lab.data.evidence.words.templates import capital, data
from calibrator.lab.data.evidence.words.values import MONTHS, NUMBERS, clock_time, number_words

_DATE = re.compile(r"\b(\d{1,2}) (" + "|".join(MONTHS) + r")(?: (\d{4}))?\b")
_DATE_US = re.compile(r"\b(" + "|".join(MONTHS) + r") (\d{1,2})(?:, (\d{4}))?\b(?!,? \d)")
_CLOCK = re.compile(r"\b(\d{1,2})(?:[:.](\d\d))? ?([ap])\.?m\b\.?", re.I)
_CLOCK_24 = re.compile(r"\b([01]\d|2[0-3]):([0-5]\d)\b(?! ?[ap]\.?m)")
_SUBJECT = r"(?:the|a|an|he|she|it|they|this|these|his|her|its|their|we|I)\b"
# Parts that can be removed from a sentence without making it untrue.
_DROPPED = [
    re.compile(r" \([^()]{2,80}\)"),
    re.compile(
        r"^(?:In|On|At|During|Since|By|From|Over|As of|Throughout) [^,.;]{2,45}, (?="
        + _SUBJECT
        + ")"
    ),
    re.compile(r", (?:which|who|whose|where) [^,;]{5,90}(?=,)(?!, (?:and|or|but)\b),"),
    re.compile(r", (?:which|who|whose|where) [^,;]{5,90}(?=\.$)"),
    re.compile(r", \w+ing [^,;]{5,80}(?=\.$)"),
    re.compile(r"^(?:However|Moreover|Furthermore|Additionally|In addition|Also|Finally|Then), "),
]

Row = dict[str, str]
_END = re.compile(r"(?<=[.!?])[\"”')]?\s+(?=[\"“'(]?[A-Z0-9])")
_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|Gen|Col|Lt|Sgt|Inc|Ltd|Co|Corp|Jr|Sr|No|vs|etc|e\.g|i\.e|approx|[A-Z]|[ap]\.m|U\.S|U\.K)\.)$"
)

LONGEST = 14


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, with single spaces; `Mr.`, `e.g.` and initials end none."""
    parts: list[str] = []
    for piece in _END.split(" ".join(text.split())):
        if parts and _ABBREVIATION.search(parts[-1]):
            parts[-1] += " " + piece
        else:
            parts.append(piece)
    return [part for part in parts if part]


def is_claim(sentence: str) -> bool:
    """Return whether a sentence can be a reply: 5 to 45 words, a capital first, `.` or `!` last.

    More than 75 % must be letters and spaces, and it must not begin as web links do (`Click`,
    `Read`).
    """
    words = sentence.split()
    return (
        5 <= len(words) <= 45
        and sentence[0].isupper()
        and sentence[-1] in ".!"
        and sum(character.isalpha() or character == " " for character in sentence)
        > 0.75 * len(sentence)
        and not sentence.startswith(("Click", "Read", "See ", "Sign up"))
    )


def from_passages(
    passages: Iterable[str], rng: random.Random, kind: str = "corpora", name: str = "passage"
) -> Iterator[Row]:
    """Yield labelled rows from passages of English text, about as many of each label.

    Rows are as those of `mixture.made_rows`, with `kind` and the group `NAME-NUMBER`. Replies
    labelled `neutral` state a sentence omitted from the context, an added detail, or one of the
    passage before. Passages with fewer than two usable sentences yield none.
    """
    before: list[str] = []
    for number, passage in enumerate(passages):
        sentences = split_sentences(passage)
        claims = [sentence for sentence in sentences if is_claim(sentence)]
        if len(claims) < 2:
            continue
        yield from _pairs(sentences, before, f"{name}-{number}", kind, rng)
        before = claims


@dataclass(frozen=True)
class Claim:
    """A sentence to judge, its label, and the index of its sentence in the passage."""

    label: str
    text: str
    source: int


def _pairs(
    sentences: list[str], before: list[str], group: str, kind: str, rng: random.Random
) -> Iterator[Row]:
    """Yield rows about a window of 4 to 14 sentences of a passage; nothing if it has no usable one.

    Two to four sentences become right and wrong replies, one of four or more is omitted from
    the context. `before` are the sentences of the passage before.
    """
    start = rng.randrange(max(1, len(sentences) - LONGEST + 1))
    window = sentences[start : start + rng.randint(4, LONGEST)]
    claims = [at for at, sentence in enumerate(window) if is_claim(sentence)]
    rng.shuffle(claims)
    left_out = claims.pop() if len(claims) >= 4 else None
    text = " ".join(window)
    premise = list(window)
    drawn: list[Claim] = []
    for at in claims[: rng.randint(2, 4)]:
        drawn += _change_claim(premise, at, text, rng)
    if not drawn:
        return
    if left_out is not None:
        drawn += _left_out(window, left_out, rng)
    drawn += _enlarge_claim(premise, rng.choice(claims), drawn, before, rng)
    if before and rng.random() < 0.35:
        drawn.append(Claim("neutral", rng.choice(before), -1))
    context = " ".join(sentence for at, sentence in enumerate(premise) if at != left_out)
    yield from finish(_balance_labels(drawn, rng), context, group, kind, rng)


def _change_claim(premise: list[str], at: int, text: str, rng: random.Random) -> list[Claim]:
    """Return claims from sentence `at`: an entailed one and, if it can be changed, a contradicted.

    In half of the cases the changed form replaces the sentence in `premise`, in place, and is
    the right one. `text` is the passage.
    """
    sentence = premise[at]
    short = shorten(sentence, text, rng) if rng.random() < 0.4 else None
    changed = apply(CHANGES, short or sentence, text, rng)
    if changed is None:
        return [Claim("entail", short or sentence, at)]
    if rng.random() < 0.5:
        premise[at] = changed
        return [Claim("entail", changed, at), Claim("contradict", short or sentence, at)]
    return [Claim("entail", short or sentence, at), Claim("contradict", changed, at)]


def _left_out(window: list[str], at: int, rng: random.Random) -> list[Claim]:
    """Return neutral claims from the sentence `at`, which the context omits.

    The first is the sentence, in 30 % of the cases shortened; in 30 % a changed form follows.
    """
    sentence = window[at]
    if rng.random() < 0.3:
        sentence = shorten(sentence, "", rng) or sentence
    found = [Claim("neutral", sentence, at)]
    changed = apply(CHANGES, sentence, " ".join(window), rng) if rng.random() < 0.3 else None
    return found + ([Claim("neutral", changed, at)] if changed else [])


def _enlarge_claim(
    premise: list[str], at: int, drawn: list[Claim], before: list[str], rng: random.Random
) -> list[Claim]:
    """Return a neutral claim that says more than sentence `at`; empty if none can be made.

    It has an added detail, often one of `before`, or a stronger word. In half of the cases the
    context's sentence also gets a detail, in place in `premise`, and the claim has another one;
    then the new sentence is returned too, as entailed.
    """
    # A circumstance of another passage is harder to detect than one of our list.
    with_ending = [each for each in before if find_circumstance(each)]
    source = rng.choice(with_ending) if with_ending else ""
    sentence = premise[at]
    if rng.random() < 0.5:
        more = apply(ADDITIONS, sentence, source, rng)
        return [Claim("neutral", more, at)] if more else []
    stated, other = add_detail(sentence, source, rng), add_detail(sentence, "", rng)
    if not stated or not other or stated == other:
        return []
    premise[at] = stated
    # Shorter forms keep their labels: true claims stay true, and contradictions contradict.
    return [Claim("neutral", other, at), Claim("entail", stated, at)]


def _balance_labels(drawn: list[Claim], rng: random.Random) -> list[Claim]:
    """Return the claims with at most one more of each label than the rarest label has."""
    by_label: dict[str, list[Claim]] = {"entail": [], "contradict": [], "neutral": []}
    for claim in drawn:
        by_label[claim.label].append(claim)
    most = min(len(claims) for claims in by_label.values()) + 1
    return [
        claim
        for claims in by_label.values()
        for claim in rng.sample(claims, min(most, len(claims)))
    ]


def finish(
    drawn: list[Claim], premise: str, group: str, kind: str, rng: random.Random
) -> Iterator[Row]:
    """Yield a row for each claim, with edits that keep its meaning and that all labels get alike.

    40 % are reworded, 20 % stand beside an entailed claim, some are quoted, and 35 % get a
    question.
    """
    words = data("edits")
    for claim in drawn:
        text = claim.text
        if rng.random() < 0.4:
            text = apply(HARMLESS, text, premise, rng) or text
        company = [
            each.text for each in drawn if each.label == "entail" and each.source != claim.source
        ]
        if company and rng.random() < 0.2:
            both = [text, rng.choice(company)]
            rng.shuffle(both)
            text = " ".join(both)
        elif rng.random() < 0.1:
            text = rng.choice(words["quotes"]).replace("$s", _lower_first(text))
        yield {
            "kind": kind,
            "group": group,
            "premise": premise,
            "question": _question(text, rng),
            "hypothesis": text,
            "label": claim.label,
        }


def _question(text: str, rng: random.Random) -> str:
    """Return "" in 65 % of the cases, else a general question or one about a name in the text."""
    if rng.random() < 0.65:
        return ""
    names = names_in(text)
    if names and rng.random() < 0.5:
        return f"What do we learn about {rng.choice(names)[0]}?"
    return str(rng.choice(data("edits")["questions"]))


def _lower_first(sentence: str) -> str:
    """Return the sentence with a small first letter if it begins with a word such as `The`."""
    first = sentence.split()[0]
    common = (
        "The",
        "A",
        "An",
        "In",
        "On",
        "At",
        "It",
        "He",
        "She",
        "They",
        "This",
        "These",
        "There",
        "His",
        "Her",
        "Its",
        "Their",
        "We",
    )
    return sentence[0].lower() + sentence[1:] if first in common else sentence


def use_synonym(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Replace a word by a synonym; None if no word has one."""
    return exchange("synonyms", sentence, rng)


def rewrite_number(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Write a number in another way: `1,000` and `1000`, `twelve` and `12`, `5%` and `5 percent`.

    None if there is no such number; years stay.
    """
    ways = [
        (r"\b\d{1,3}(?:,\d{3})+\b", ""),
        (r"(?<![\w.,])([1-9]\d?)(\d{3})(?= [a-z])(?![\w.,]\d)", r"\1,\2"),
        (r"(\d)%", r"\1 percent"),
        (r"(\d) per ?cent\b", r"\1%"),
    ]
    rng.shuffle(ways)
    for pattern, new in ways:
        match = re.search(pattern, sentence)
        if match and not is_year(match[0]):
            return replace_match(
                sentence, match, match.expand(new) if new else match[0].replace(",", "")
            )
    match = NUMBER_WORD.search(sentence)
    if match and match[0].lower() in NUMBERS and sentence[match.end() : match.end() + 1] != "-":
        number = str(NUMBERS.index(match[0].lower()))
        return replace_match(sentence, match, number) if match.start() else None
    match = NUMBER.search(sentence)
    if match and match[0].isdigit() and _is_plain_count(sentence, match):
        return replace_match(sentence, match, number_words(int(match[0])))
    return None


def _is_plain_count(sentence: str, match: re.Match[str]) -> bool:
    """Return whether a number is 2 to 20 and counts things, as in `they saw 5 ships`.

    False beside names, months, signs and the sentence's ends.
    """
    before, after = sentence[: match.start()].split(), sentence[match.end() :].split()
    return (
        2 <= int(match[0]) <= 20
        and bool(before)
        and bool(after)
        and not before[-1][0].isupper()
        and after[0].isalpha()
        and after[0] not in MONTHS
    )


def rewrite_date(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Write a date or time in another way: `3 May` and `May 3`, `17:00` and `5 p.m.`.

    None without one, and for a date at the end of a span, such as `1 to 3 May`.
    """
    match = _DATE.search(sentence)
    if match and sentence[: match.start()].endswith((" to ", "-", "\u2013", " and ")):
        return None
    if match:
        year = f", {match[3]}" if match[3] else ""
        return replace_match(sentence, match, f"{match[2]} {match[1]}{year}")
    match = _DATE_US.search(sentence)
    if match:
        year = f" {match[3]}" if match[3] else ""
        day = rng.choice((match[2], ordinal(int(match[2])) if not year else match[2]))
        return replace_match(sentence, match, f"{day} {match[1]}{year}")
    match = _CLOCK.search(sentence)
    if match and 1 <= int(match[1]) <= 12:
        hour = int(match[1]) % 12 + (12 if match[3].lower() == "p" else 0)
        stop = "." if match[0].endswith(".") and match.end() == len(sentence) else ""
        return replace_match(sentence, match, f"{hour:02d}:{match[2] or '00'}{stop}")
    match = _CLOCK_24.search(sentence)
    if match:
        hours = int(match[1]) + int(match[2]) / 60
        at_end = match.end() >= len(sentence) - 1
        return replace_match(sentence, match, clock_time(hours, 2 if at_end else 1))
    return None


def contract(sentence: str, _passage: str, _rng: random.Random) -> str | None:
    """Write `is not` as `isn't`, `cannot` as `can't`, .., or the other way; None without one."""
    for pattern, new in (
        (r"\b(is|was|are|were|has|have|had|does|did|do|could|would|should) not\b", r"\1n't"),
        (r"\b(is|was|are|were|has|have|had|does|did|do|could|would|should)n't\b", r"\1 not"),
        (r"\bcannot\b", "can't"),
        (r"\bcan't\b", "cannot"),
        (r"\bwill not\b", "won't"),
        (r"\bwon't\b", "will not"),
    ):
        edited = re.sub(pattern, new, sentence, count=1)
        if edited != sentence:
            return edited
    return None


def shorten(sentence: str, _passage: str, rng: random.Random) -> str | None:
    """Drop a parenthesis, an opening phrase or a clause between commas.

    None if there is none, or under five words would be left.
    """
    for pattern in rng.sample(_DROPPED, len(_DROPPED)):
        edited = pattern.sub("", sentence, count=1)
        if edited != sentence and len(edited.split()) >= 5:
            return capital(edited)
    return None


# `shorten` is not among these: it could remove the change of another edit.
HARMLESS: dict[Edit, int] = {use_synonym: 4, rewrite_number: 3, rewrite_date: 4, contract: 4}
