"""Synthetic rows of all kinds, mixed, and those about policies of fictional companies."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from calibrator.lab.data.evidence import dialogues, passages, tables
from calibrator.lab.data.evidence.facts import House, PolicyFact, draw_facts, random_house
from calibrator.lab.data.evidence.replies import MAKERS, NEEDS_QUESTION
from calibrator.lab.data.evidence.words.templates import choose_words, data, fill, plural
from calibrator.lab.data.evidence.words.values import MONTHS

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 18, 22)

Row = dict[str, str]


def made_rows(seed: int) -> Iterator[Row]:
    """Yield rows of all kinds without end, drawn by weight; the same seed gives the same rows.

    A row has `kind`, `group` (`made-SEED-N`, equal for rows about one context), `premise` (the
    context), `question` (may be empty), `hypothesis` (the reply) and `label`: `entail`,
    `contradict` or `neutral`.
    """
    number = 0
    while True:
        rng = random.Random(f"{seed}:{number}")
        maker = rng.choices(list(KINDS), list(KINDS.values()))[0]
        yield from maker(rng, f"made-{seed}-{number}")
        number += 1


def policy_rows(rng: random.Random, group: str) -> Iterator[Row]:
    """Yield the rows about one drawn policy: two or three replies of each label.

    All have the policy's text as `premise` and the same `group`. A label has fewer where no
    reply can be made; `question` is empty in 20 % of those that are clear without it.
    """
    house = random_house(rng)
    facts = draw_facts(house, rng.choice(SIZES), rng)
    premise = policy_text(house, facts, rng)
    for label, makers in MAKERS.items():
        for _ in range(2 if len(facts) < 6 else 3):
            maker = rng.choices(list(makers), list(makers.values()))[0]
            reply = maker(house, facts, rng) or next(iter(makers))(house, facts, rng)
            if reply is None:
                continue
            question = reply.question if rng.random() < 0.8 or maker in NEEDS_QUESTION else ""
            yield {
                "kind": "policies",
                "group": group,
                "premise": premise,
                "question": question,
                "hypothesis": dress(reply.text, rng),
                "label": label,
            }


def dress(reply: str, rng: random.Random) -> str:
    """Return the reply, in 30 % of the cases after an opening and in 25 % before a closing."""
    words = data("names")
    opening = rng.choice(words["opening"]) + " " if rng.random() < 0.3 else ""
    closing = " " + rng.choice(words["closing"]) if rng.random() < 0.25 else ""
    return opening + reply + closing


# --- the text -----------------------------------------------------------------------------------


def policy_text(house: House, facts: list[PolicyFact], rng: random.Random) -> str:
    """Return the facts as a policy's text, with some sentences that state no fact.

    The form is drawn: prose, a list, sections with headings, or questions with answers (without
    those sentences).
    """
    words = data("names")
    sentences = [fact.policy(rng) for fact in facts]
    for template in rng.sample(words["filler"], rng.randrange(0, 2 + len(facts) // 3)):
        sentences.insert(rng.randint(0, len(sentences)), _filler(template, house, rng))
    intro = fill(
        choose_words(rng.choice(words["intro"]), rng),
        {"name": house.name, "users": plural(house.user)},
    )
    form = rng.choice((_prose, _prose, _bullets, _sections, _answers))
    body = _answers(sentences, facts, rng) if form is _answers else form(sentences, facts, rng)
    return f"{intro}\n\n{body}".strip()


def _filler(template: str, house: House, rng: random.Random) -> str:
    """Return a template's text with drawn names, years and counts; such sentences state no fact."""
    words = data("names")
    texts = {
        "name": house.name,
        "users": plural(house.user),
        "year": str(rng.randint(1890, 2024)),
        "person": f"{rng.choice(words['given'])} {rng.choice(words['family'])}",
        "given": rng.choice(words["given"]),
        "place": rng.choice(words["place"]),
        "count": str(rng.randint(2, 90)),
        "month": rng.choice(MONTHS),
    }
    return fill(template, texts)


def _prose(sentences: list[str], _facts: list[PolicyFact], rng: random.Random) -> str:
    """Join the sentences into paragraphs of mostly three to seven, separated by empty lines."""
    parts: list[list[str]] = [[]]
    for sentence in sentences:
        if len(parts[-1]) >= rng.randint(3, 7):
            parts.append([])
        parts[-1].append(sentence)
    return "\n\n".join(" ".join(part) for part in parts)


def _bullets(sentences: list[str], _facts: list[PolicyFact], rng: random.Random) -> str:
    """Write the sentences one a line, each after a bullet or its number."""
    mark = rng.choice(("- ", "* ", "• ", "numbers"))
    lines = [
        (f"{number}. " if mark == "numbers" else mark) + sentence
        for number, sentence in enumerate(sentences, 1)
    ]
    return "\n".join(lines)


def _sections(sentences: list[str], _facts: list[PolicyFact], rng: random.Random) -> str:
    """Join the sentences in sections of two to four, each under a heading of one format."""
    headings = rng.sample(data("names")["heading"], 6)
    size = rng.randint(2, 4)
    parts = [sentences[at : at + size] for at in range(0, len(sentences), size)]
    mark = rng.choice(("## %s", "%s:", "**%s**", "%s"))
    return "\n\n".join(
        (mark % headings[number % 6]) + "\n" + " ".join(part) for number, part in enumerate(parts)
    )


def _answers(sentences: list[str], facts: list[PolicyFact], rng: random.Random) -> str:
    """Write each fact as `Q: ..` and `A: ..`; without facts join the sentences by blanks."""
    lines = [f"Q: {fact.question(rng)}\nA: {fact.policy(rng)}" for fact in facts]
    return "\n\n".join(lines) or " ".join(sentences)


# Weight of each kind.
KINDS: dict[Callable[[random.Random, str], Iterator[Row]], int] = {
    policy_rows: 4,
    tables.rows: 2,
    passages.rows: 3,
    dialogues.rows: 2,
}
