"""Evidence of the shipped calibrator: replies are checked against their conversations."""

from __future__ import annotations

import pytest

from calibrator.checkpoints.checkpoint import CHECKPOINTS, EMBEDDED
from calibrator.embedded.calibrator import EmbeddedCalibrator, load_embedded
from calibrator.scorer import COMPUTED, CONTEXT, FACTS, LIKENESS, Item, Score
from calibrator.text.transcript import read_question

RULES = """You are the assistant of the Elm Street swimming pool. Be friendly and brief.
The pool is open from 6:30 to 21:00 on weekdays and from 8:00 to 19:00 on weekends.
A single ticket costs 5 euros, a ten-visit card 42 euros. Children under 6 swim for free.
Lost locker keys cost 15 euros. Glass bottles are not allowed. Swimming caps are required in lane 1.
Courses can be cancelled free of charge up to seven days before they begin."""
PAIRS = [  # a question, a right reply, a wrong reply
    ("What does a ticket cost?", "A single ticket costs 5 euros.", "A single ticket is 9 euros."),
    ("I lost my key!", "A lost locker key costs 15 euros.", "A lost locker key costs 40 euros."),
    ("Can I bring glass?", "Glass bottles are not allowed.", "Sure, glass bottles are allowed."),
    ("Until when on Sunday?", "On weekends we close at 19:00.", "On weekends we close at 23:00."),
    ("My son is four.", "Children under 6 swim for free.", "Children under 6 pay 3 euros."),
    ("Can I rent a towel?", "I have no information about towels.", "Yes, towels are 2 euros."),
]  # fmt: skip


@pytest.fixture(scope="module")
def scorer() -> EmbeddedCalibrator:
    """Return the shipped calibrator."""
    return load_embedded(CHECKPOINTS / EMBEDDED)


def score(scorer: EmbeddedCalibrator, question: str, reply: str, rules: str = "") -> Score:
    """Score a reply to a question, after a system message if there are rules."""
    messages = [{"role": "system", "content": rules}] if rules else []
    messages.append({"role": "user", "content": question})
    item = Item(read_question(messages).text, reply, messages=messages)
    [found] = scorer.score_batch([item])
    return found


def test_a_policy_is_read(scorer: EmbeddedCalibrator) -> None:
    """Replies that the system message supports score higher than others."""
    in_order = 0
    for question, right, wrong in PAIRS:
        supported, other = (score(scorer, question, each, RULES) for each in (right, wrong))
        assert supported.basis == other.basis == (CONTEXT,)
        in_order += supported.confidence > other.confidence
    assert in_order >= len(PAIRS) - 1


def test_what_is_not_supported_is_named(scorer: EmbeddedCalibrator) -> None:
    """An unsupported sentence is named, and the reason has its words."""
    found = score(scorer, "What does a ticket cost?", "A ticket costs 97 dollars a month.", RULES)
    assert found.support is not None
    assert found.support < 0.5
    assert found.unsupported[0].sentence == "A ticket costs 97 dollars a month."
    assert "97" in found.unsupported[0].words
    assert any("97" in reason for reason in found.because)


def test_another_context_gives_another_confidence(scorer: EmbeddedCalibrator) -> None:
    """The same reply has another confidence after another policy."""
    other = RULES.replace("15 euros", "33 euros")
    reply = "A lost locker key costs 15 euros."
    first, second = (score(scorer, "I lost my key!", reply, rules) for rules in (RULES, other))
    assert first.confidence > second.confidence + 0.05


@pytest.mark.parametrize(
    ("question", "right", "wrong", "basis", "reason"),
    [
        ("What is 15 % of 240?", "36", "32", COMPUTED, "36"),
        ("What is 18 * 12?", "18 * 12 is 216.", "18 * 12 is 226.", COMPUTED, "216"),
        ("What is the capital of Canada?", "Ottawa", "Toronto", FACTS, "Ottawa"),
    ],
)
def test_what_can_be_known_decides(
    scorer: EmbeddedCalibrator, question: str, right: str, wrong: str, basis: str, reason: str
) -> None:
    """A sum or a tabled fact decides, and the reason has the right answer."""
    sure, unsure = score(scorer, question, right), score(scorer, question, wrong)
    assert sure.basis == unsure.basis == (basis,)
    assert sure.confidence > 0.8
    assert unsure.confidence < 0.2
    assert any(reason in each for each in unsure.because)


def test_what_nothing_was_checked_of_says_so(scorer: EmbeddedCalibrator) -> None:
    """An unknown fact is judged by likeness and marked as needing facts."""
    found = score(scorer, "Who painted The Night Watch?", "Rembrandt painted it.")
    assert found.basis == (LIKENESS,)
    assert found.needs_facts
    assert found.support is None


@pytest.mark.parametrize("opening", ["Hi! ", "Great question! ", "I'm sorry about that. "])
def test_an_opening_changes_little(scorer: EmbeddedCalibrator, opening: str) -> None:
    """A polite opening changes the confidence by at most 0.03."""
    for question, right, _ in PAIRS:
        plain = score(scorer, question, right, RULES).confidence
        assert score(scorer, question, opening + right, RULES).confidence == pytest.approx(
            plain, abs=0.03
        )


def test_a_context_that_was_not_read_is_truncated(scorer: EmbeddedCalibrator) -> None:
    """A context beyond the bound gives a truncated score with its reason."""
    found = score(scorer, "What does a ticket cost?", "It costs 5 euros.", RULES * 200)
    assert found.is_truncated
    assert found.unread == "context_not_read"


def test_neighbours_do_not_change_a_score(scorer: EmbeddedCalibrator) -> None:
    """Items score the same alone and in a batch."""
    items = [
        Item(
            question,
            reply,
            messages=[{"role": "system", "content": RULES}, {"role": "user", "content": question}],
        )
        for question, *replies in PAIRS
        for reply in replies
    ]
    alone = [scorer.score_batch([item])[0].confidence for item in items]
    assert [x.confidence for x in scorer.score_batch(items)] == pytest.approx(alone, abs=1e-4)
