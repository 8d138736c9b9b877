"""Policies of made companies and offices, and right, wrong and unsupported replies about them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from calibrator.evidence.making.facts import (
    Fact,
    House,
    Reply,
    draw_fact,
    draw_facts,
    fits,
    random_house,
)
from calibrator.evidence.making.templates import capital, choose_words, data, fill, plural
from calibrator.evidence.making.values import MONTHS

Row = dict[str, str]
SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 18, 22)


def rows(rng: random.Random, group: str) -> Iterator[Row]:
    """Make one policy and the rows about it: as many of each label."""
    house = random_house(rng)
    facts = draw_facts(house, rng.choice(SIZES), rng)
    premise = policy_text(house, facts, rng)
    for label, makers in (("entail", ENTAIL), ("contradict", CONTRADICT), ("neutral", NEUTRAL)):
        for _ in range(2 if len(facts) < 6 else 3):
            maker = rng.choices(list(makers), list(makers.values()))[0]
            reply = maker(house, facts, rng) or _first(makers)(house, facts, rng)
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


def _first(makers: dict[Maker, int]) -> Maker:
    return next(iter(makers))


def dress(reply: str, rng: random.Random) -> str:
    """Return the reply with an opening and a closing, some of the time and whatever its label."""
    words = data("words")
    opening = rng.choice(words["opening"]) + " " if rng.random() < 0.3 else ""
    closing = " " + rng.choice(words["closing"]) if rng.random() < 0.25 else ""
    return opening + reply + closing


# --- the text -----------------------------------------------------------------------------------


def policy_text(house: House, facts: list[Fact], rng: random.Random) -> str:
    """Return the facts as a policy: prose, a list, sections or questions with answers."""
    words = data("words")
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
    words = data("words")
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


def _prose(sentences: list[str], _facts: list[Fact], rng: random.Random) -> str:
    parts: list[list[str]] = [[]]
    for sentence in sentences:
        if len(parts[-1]) >= rng.randint(3, 7):
            parts.append([])
        parts[-1].append(sentence)
    return "\n\n".join(" ".join(part) for part in parts)


def _bullets(sentences: list[str], _facts: list[Fact], rng: random.Random) -> str:
    mark = rng.choice(("- ", "* ", "• ", "numbers"))
    lines = [
        (f"{number}. " if mark == "numbers" else mark) + sentence
        for number, sentence in enumerate(sentences, 1)
    ]
    return "\n".join(lines)


def _sections(sentences: list[str], _facts: list[Fact], rng: random.Random) -> str:
    headings = rng.sample(data("words")["heading"], 6)
    size = rng.randint(2, 4)
    parts = [sentences[at : at + size] for at in range(0, len(sentences), size)]
    mark = rng.choice(("## %s", "%s:", "**%s**", "%s"))
    return "\n\n".join(
        (mark % headings[number % 6]) + "\n" + " ".join(part) for number, part in enumerate(parts)
    )


def _answers(sentences: list[str], facts: list[Fact], rng: random.Random) -> str:
    lines = [f"Q: {fact.question(rng)}\nA: {fact.policy(rng)}" for fact in facts]
    return "\n\n".join(lines) or " ".join(sentences)


# --- the replies --------------------------------------------------------------------------------

Maker = Callable[[House, list[Fact], random.Random], Reply | None]


def right(_house: House, facts: list[Fact], rng: random.Random) -> Reply:
    """Return a right reply about one fact."""
    return rng.choice(facts).right(rng)


def right_twice(_house: House, facts: list[Fact], rng: random.Random) -> Reply | None:
    """Return a reply that states two facts rightly."""
    return _both([fact.right(rng) for fact in _two(facts, rng)], rng)


def right_with_tail(_house: House, facts: list[Fact], rng: random.Random) -> Reply | None:
    """Return a right reply with a remark that claims nothing."""
    return _with_tail(rng.choice(facts).right(rng), "harmless_tail", rng)


def wrong(_house: House, facts: list[Fact], rng: random.Random) -> Reply:
    """Return a reply that says otherwise about one fact."""
    return rng.choice(facts).wrong(rng)


def wrong_beside_right(_house: House, facts: list[Fact], rng: random.Random) -> Reply | None:
    """Return a reply that states one fact rightly and another one wrongly."""
    two = _two(facts, rng)
    return _both([two[0].right(rng), two[1].wrong(rng)], rng) if len(two) == 2 else None


def wrong_with_tail(_house: House, facts: list[Fact], rng: random.Random) -> Reply | None:
    """Return a wrong reply with a remark that claims nothing."""
    return _with_tail(rng.choice(facts).wrong(rng), "harmless_tail", rng)


def unknown_is_right(house: House, facts: list[Fact], rng: random.Random) -> Reply | None:
    """Return "I don't have that information" to a question that the text does not answer."""
    absent = absent_fact(house, facts, rng)
    return Reply(absent.question(rng), no_information(absent, rng)) if absent else None


def unknown_is_wrong(_house: House, facts: list[Fact], rng: random.Random) -> Reply:
    """Return "I don't have that information" to a question that the text answers."""
    fact = rng.choice(facts)
    return Reply(fact.question(rng), no_information(fact, rng))


def absent(house: House, facts: list[Fact], rng: random.Random) -> Reply | None:
    """Return a reply about something that the text does not mention."""
    fact = absent_fact(house, facts, rng)
    return fact.right(rng) if fact else None


def absent_subject(house: House, facts: list[Fact], rng: random.Random) -> Reply | None:
    """Return a fact of the text told of a subject about which the text says nothing."""
    fact = rng.choice(facts)
    slot = fact.spec.get("subject")
    if slot is None:
        return None
    for _ in range(20):
        other = draw_fact(fact.kind, house, rng)
        if fits(other, facts):
            return fact.shifted(str(other.values[slot].raw), rng)
    return None


def absent_beside_right(house: House, facts: list[Fact], rng: random.Random) -> Reply | None:
    """Return a right reply that also states something the text does not mention."""
    fact = absent_fact(house, facts, rng)
    return _both([rng.choice(facts).right(rng), fact.right(rng)], rng) if fact else None


def added_detail(_house: House, facts: list[Fact], rng: random.Random) -> Reply | None:
    """Return a right reply with a detail that the text does not mention."""
    return _with_tail(rng.choice(facts).right(rng), "added_tail", rng)


ENTAIL: dict[Maker, int] = {right: 10, right_twice: 3, right_with_tail: 2, unknown_is_right: 3}
CONTRADICT: dict[Maker, int] = {
    wrong: 10,
    wrong_beside_right: 3,
    wrong_with_tail: 2,
    unknown_is_wrong: 3,
}
NEUTRAL: dict[Maker, int] = {
    absent: 7,
    absent_subject: 5,
    absent_beside_right: 3,
    added_detail: 3,
}
NEEDS_QUESTION = (unknown_is_right, unknown_is_wrong)


def absent_fact(house: House, facts: list[Fact], rng: random.Random) -> Fact | None:
    """Draw a fact of the house of which the text says nothing; None where none was found."""
    for _ in range(30):
        fact = draw_facts(house, 1, rng)[0]
        # Another subject of a kind in the text is left to `absent_subject`, except for frames.
        if fits(fact, facts) and fact.kind not in {other.kind for other in facts}:
            fact.near = [value for other in facts for value in other.values.values()]
            return fact
    return None


def no_information(fact: Fact, rng: random.Random) -> str:
    """Return a sentence that says one does not know about the fact's topic."""
    form = choose_words(rng.choice(data("words")["no_information"]), rng)
    return fill(form, {"topic": fact.topic})


def _two(facts: list[Fact], rng: random.Random) -> list[Fact]:
    return rng.sample(facts, 2) if len(facts) > 1 else []


def _both(replies: list[Reply], rng: random.Random) -> Reply | None:
    if len(replies) < 2:
        return None
    question = replies[0].question if rng.random() < 0.5 else " ".join(r.question for r in replies)
    ordered = rng.sample(replies, 2) if rng.random() < 0.5 else replies
    link = rng.choice((" ", " ", " Also, note: ", " And: ", "\n"))
    return Reply(question, ordered[0].text + link + capital(ordered[1].text))


def _with_tail(reply: Reply, pool: str, rng: random.Random) -> Reply:
    text = reply.text.rstrip()
    stop = text[-1] if text[-1] in ".!" else ""
    return Reply(
        reply.question, text.rstrip(".!") + rng.choice(data("words")[pool]) + (stop or ".")
    )
