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
    add_detail,
    apply,
    find_circumstance,
    names_in,
)
from calibrator.lab.data.evidence.rewording import HARMLESS, shorten
from calibrator.lab.data.evidence.words.templates import data

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
    shown = " ".join(sentence for at, sentence in enumerate(premise) if at != left_out)
    yield from finish(_balance_labels(drawn, rng), shown, group, kind, rng)


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
