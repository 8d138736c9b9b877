"""Right, wrong and unsupported replies about a policy.

Every maker takes the house, the facts of its policy and a random generator. It returns a reply with
its question, or None if the policy lacks what the maker needs.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from calibrator.lab.data.evidence.facts import (
    House,
    PolicyFact,
    Reply,
    draw_fact,
    draw_facts,
    fits,
    with_tail,
)
from calibrator.lab.data.evidence.words.templates import capital, choose_words, data, fill

Maker = Callable[[House, list[PolicyFact], random.Random], Reply | None]


def right_reply(_house: House, facts: list[PolicyFact], rng: random.Random) -> Reply:
    """Return a right reply about one drawn fact, with its question."""
    return rng.choice(facts).right_reply(rng)


def right_twice(_house: House, facts: list[PolicyFact], rng: random.Random) -> Reply | None:
    """Return a reply that states two facts rightly; None if the policy has only one."""
    return _join_replies([fact.right_reply(rng) for fact in _two(facts, rng)], rng)


def right_with_tail(_house: House, facts: list[PolicyFact], rng: random.Random) -> Reply | None:
    """Return a right reply that ends in a remark without a claim, such as a greeting."""
    return _with_tail(rng.choice(facts).right_reply(rng), "harmless_tail", rng)


def right_with_stated_tail(
    _house: House, facts: list[PolicyFact], rng: random.Random
) -> Reply | None:
    """Return a right reply that ends in the policy's remark on the fact; None without one."""
    return _stated_tail(facts, True, rng)


def asking_is_right(_house: House, facts: list[PolicyFact], rng: random.Random) -> Reply | None:
    """Return a question back to a user who left out a condition on which the answer depends.

    None if no kind of fact occurs for several subjects.
    """
    return _ask_back(facts, True, rng)


def asking_is_wrong(_house: House, facts: list[PolicyFact], rng: random.Random) -> Reply | None:
    """Return a needless question back to a user who named every condition of the answer.

    None if no kind of fact occurs for several subjects.
    """
    return _ask_back(facts, False, rng)


def wrong_with_stated_tail(
    _house: House, facts: list[PolicyFact], rng: random.Random
) -> Reply | None:
    """Return a wrong reply that ends in the policy's remark on the fact; None without one."""
    return _stated_tail(facts, False, rng)


def wrong_reply(_house: House, facts: list[PolicyFact], rng: random.Random) -> Reply:
    """Return a reply that contradicts one drawn fact, with its question."""
    return rng.choice(facts).wrong_reply(rng)


def wrong_beside_right(_house: House, facts: list[PolicyFact], rng: random.Random) -> Reply | None:
    """Return a reply that states one fact rightly and another wrongly; None with only one fact."""
    two = _two(facts, rng)
    return (
        _join_replies([two[0].right_reply(rng), two[1].wrong_reply(rng)], rng)
        if len(two) == 2
        else None
    )


def wrong_with_tail(_house: House, facts: list[PolicyFact], rng: random.Random) -> Reply | None:
    """Return a wrong reply that ends in a remark without a claim."""
    return _with_tail(rng.choice(facts).wrong_reply(rng), "harmless_tail", rng)


def unknown_is_right(house: House, facts: list[PolicyFact], rng: random.Random) -> Reply | None:
    """Return a question that the policy leaves open, answered by `I don't have that information`.

    None if no such fact was drawn.
    """
    absent = absent_fact(house, facts, rng)
    return Reply(absent.question(rng), no_information(absent, rng)) if absent else None


def unknown_is_wrong(_house: House, facts: list[PolicyFact], rng: random.Random) -> Reply:
    """Return a question that the policy answers, answered by `I don't have that information`."""
    fact = rng.choice(facts)
    return Reply(fact.question(rng), no_information(fact, rng))


def absent_reply(house: House, facts: list[PolicyFact], rng: random.Random) -> Reply | None:
    """Return a reply on something the policy does not mention; None if no such fact was drawn."""
    fact = absent_fact(house, facts, rng)
    return fact.right_reply(rng) if fact else None


def absent_subject(house: House, facts: list[PolicyFact], rng: random.Random) -> Reply | None:
    """Return a reply with a fact of the policy, but about a subject that it does not mention.

    None if the drawn fact has no subject, or no other one was found in 20 draws.
    """
    fact = rng.choice(facts)
    slot = fact.spec.get("subject")
    if slot is None:
        return None
    for _ in range(20):
        other = draw_fact(fact.kind, house, rng)
        if fits(other, facts):
            return fact.reply_about(str(other.values[slot].raw), rng)
    return None


def absent_beside_right(house: House, facts: list[PolicyFact], rng: random.Random) -> Reply | None:
    """Return a right reply that also states something not in the policy; None if none was drawn."""
    fact = absent_fact(house, facts, rng)
    return (
        _join_replies([rng.choice(facts).right_reply(rng), fact.right_reply(rng)], rng)
        if fact
        else None
    )


def absent_with_tail(house: House, facts: list[PolicyFact], rng: random.Random) -> Reply | None:
    """Return a reply on something absent that ends in a remark without a claim; None without it."""
    reply = absent_reply(house, facts, rng)
    return _with_tail(reply, "harmless_tail", rng) if reply else None


def added_detail(_house: House, facts: list[PolicyFact], rng: random.Random) -> Reply | None:
    """Return a right reply that ends in a detail which the policy does not mention."""
    fact = rng.choice(facts)
    tails = [tail for tail in data("names")["added_tail"] if tail not in {f.tail for f in facts}]
    reply = fact.right_reply(rng)
    return Reply(reply.question, with_tail(reply.text, rng.choice(tails)))


ENTAIL: dict[Maker, int] = {
    right_reply: 10,
    right_twice: 3,
    right_with_tail: 2,
    unknown_is_right: 3,
}
CONTRADICT: dict[Maker, int] = {
    wrong_reply: 10,
    wrong_beside_right: 3,
    wrong_with_tail: 2,
    unknown_is_wrong: 3,
}
NEUTRAL: dict[Maker, int] = {
    absent_reply: 7,
    absent_subject: 5,
    absent_beside_right: 3,
    added_detail: 3,
}
MAKERS = {"entail": ENTAIL, "contradict": CONTRADICT, "neutral": NEUTRAL}
# The replies that have no meaning without their question.
NEEDS_QUESTION = (unknown_is_right, unknown_is_wrong, asking_is_right, asking_is_wrong)


def absent_fact(house: House, facts: list[PolicyFact], rng: random.Random) -> PolicyFact | None:
    """Draw a fact of a kind that the policy does not have; None if 30 draws find none.

    Its `near` are the values of the policy's facts.
    """
    for _ in range(30):
        fact = draw_facts(house, 1, rng)[0]
        # `absent_subject` makes replies about other subjects of kinds in the text.
        if fits(fact, facts) and fact.kind not in {other.kind for other in facts}:
            fact.near = [value for other in facts for value in other.values.values()]
            return fact
    return None


def no_information(fact: PolicyFact, rng: random.Random) -> str:
    """Return a sentence such as `I have no information on the fee.`, with the fact's topic."""
    form = choose_words(rng.choice(data("names")["no_information"]), rng)
    return fill(form, {"topic": fact.topic})


def _two(facts: list[PolicyFact], rng: random.Random) -> list[PolicyFact]:
    """Return two different facts, drawn at random; empty if there are fewer."""
    return rng.sample(facts, 2) if len(facts) > 1 else []


def _join_replies(replies: list[Reply], rng: random.Random) -> Reply | None:
    """Return two replies as one, in half of the cases in random order; None for fewer than two.

    Its question is the first one's, or in half of the cases both.
    """
    if len(replies) < 2:
        return None
    question = replies[0].question if rng.random() < 0.5 else " ".join(r.question for r in replies)
    ordered = rng.sample(replies, 2) if rng.random() < 0.5 else replies
    link = rng.choice((" ", " ", " Also, note: ", " And: ", "\n"))
    return Reply(question, ordered[0].text + link + capital(ordered[1].text))


def _with_tail(reply: Reply, pool: str, rng: random.Random) -> Reply:
    """Return the reply with a text of the list `pool` (`harmless_tail`) before its full stop."""
    return Reply(reply.question, with_tail(reply.text, rng.choice(data("names")[pool])))


def _stated_tail(facts: list[PolicyFact], correct: bool, rng: random.Random) -> Reply | None:
    """Return a right or wrong reply about a fact, ending in the policy's remark about it.

    None if no fact has a remark.
    """
    remarked = [fact for fact in facts if fact.tail]
    if not remarked:
        return None
    fact = rng.choice(remarked)
    reply = fact.right_reply(rng) if correct else fact.wrong_reply(rng)
    return Reply(reply.question, with_tail(reply.text, fact.tail))


# The nouns for subjects that a question has to name if a kind of fact has several.
NAMED = {
    "good": "item",
    "grp": "group",
    "plan": "plan",
    "d": "day",
    "zone": "region",
    "city": "city",
    "chan": "channel",
    "what": "matter",
}


def _ask_back(facts: list[PolicyFact], needed: bool, rng: random.Random) -> Reply | None:
    """Return a question back, such as `Which item do you mean?`, to a user's question.

    If `needed`, the user asked about the kind of fact alone, else also named its subject. None
    if no kind of fact occurs for several subjects.
    """
    several = [
        fact
        for fact in facts
        if fact.spec.get("subject") in NAMED and sum(f.kind == fact.kind for f in facts) > 1
    ]
    if not several:
        return None
    fact = rng.choice(several)
    question = (
        rng.choice(
            (
                "I have a question about the {k}. What applies to me?",
                "What is the {k}?",
                "Tell me the {k}, please.",
            )
        )
        if needed
        else fact.question(rng)
    ).format(k=fact.kind)
    word = NAMED[fact.spec["subject"]]
    back = rng.choice(
        (
            f"That depends on the {word}. Which {word} do you mean?",
            f"Which {word} is it about?",
            f"I need to know the {word} to answer that. Which one is it?",
            f"It differs from {word} to {word}; could you tell me which one you mean?",
        )
    )
    return Reply(question, back)
