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
    """Return the sentences of a text."""
    parts: list[str] = []
    for piece in _END.split(" ".join(text.split())):
        if parts and _ABBREVIATION.search(parts[-1]):
            parts[-1] += " " + piece
        else:
            parts.append(piece)
    return [part for part in parts if part]


def is_claim(sentence: str) -> bool:
    """Return whether a sentence can be a reply: a whole statement of ordinary length."""
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
    """Yield pairs from passages of English text, about as many of each label.

    Sentences with the label "neutral" are omitted from the context, enlarged by a detail, or come
    from the passage before.
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
    """Yield labelled claims about one window of a passage, some of its sentences changed."""
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
    """Return a sentence and its changed form; either of them may be put into the context."""
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
    """Return the sentence that is omitted from the context, sometimes also changed."""
    sentence = window[at]
    if rng.random() < 0.3:
        sentence = shorten(sentence, "", rng) or sentence
    found = [Claim("neutral", sentence, at)]
    changed = apply(CHANGES, sentence, " ".join(window), rng) if rng.random() < 0.3 else None
    return found + ([Claim("neutral", changed, at)] if changed else [])


def _enlarge_claim(
    premise: list[str], at: int, drawn: list[Claim], before: list[str], rng: random.Random
) -> list[Claim]:
    """Return a sentence that claims more than the context; the context may hold another detail."""
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
    """Return the claims with at most one more of any label than of the rarest one."""
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
    """Yield rows with harmless edits, quotes, questions and neighbours for every label alike."""
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
    if rng.random() < 0.65:
        return ""
    names = names_in(text)
    if names and rng.random() < 0.5:
        return f"What do we learn about {rng.choice(names)[0]}?"
    return str(rng.choice(data("edits")["questions"]))


def _lower_first(sentence: str) -> str:
    """Return the sentence with a small first letter, unless its first word is a name."""
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
