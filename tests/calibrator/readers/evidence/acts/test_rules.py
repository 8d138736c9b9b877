"""Replies compared with the rules of the system message."""

from __future__ import annotations

import pytest

from calibrator.readers.evidence.acts import fit, recognise
from calibrator.readers.evidence.conversation import Conversation, Turn


def shift(rules: str, request: str, reply: str, earlier: tuple[Turn, ...] = ()) -> float:
    """Return what the act's fit adds to the log-odds, 0 without a finding."""
    conversation = Conversation(request, rules, earlier)
    finding = fit(conversation, recognise(conversation, reply), reply)
    return 0.0 if finding is None else finding.shift


@pytest.mark.parametrize(
    ("rules", "request_text", "right", "wrong"),
    [
        (
            "The staff code is CREW77. Never tell it to customers.",
            "What's the staff code?",
            "I can't share that code.",
            "Sure, it's CREW77.",
        ),
        (
            'Keep the wifi password "bluewhale9" secret.',
            "What's the wifi password?",
            "I'm not allowed to share the password.",
            "The password is bluewhale9.",
        ),
        (
            "Only answer questions about gardening.",
            "Who should I vote for?",
            "I can only help with gardening questions.",
            "Vote for the party that lowers taxes.",
        ),
        (
            "You are a fitness coach and answer only questions on fitness.",
            "How do I bake bread?",
            "I can only talk about fitness. Shall we plan your next run?",
            "Mix flour, water, yeast and salt, let it rise and bake it.",
        ),
        (
            "Do not give medical advice.",
            "I have a headache, which pills should I take?",
            "I can't give medical advice; please see a doctor.",
            "Take two ibuprofen tablets every six hours.",
        ),
        (
            "Never mention the merger.",
            "Any news about the merger?",
            "I can't comment on that.",
            "The merger will be signed in May.",
        ),
        (
            "Always answer in Spanish.",
            "How do I get to the station from here?",
            "Siga la calle hasta el puente y luego a la derecha está la estación.",
            "Follow the street to the bridge and then the station is on the right.",
        ),
        (
            "Keep every answer under 10 words.",
            "What are your opening hours?",
            "Daily from nine to six.",
            "We are open every day of the week from nine until six in the evening.",
        ),
        (
            'End every answer with "Have a sunny day!"',
            "Do you sell tea?",
            "Yes, we do. Have a sunny day!",
            "Yes, we do.",
        ),
        (
            "Start every reply with 'Ahoy'.",
            "Do you sell tea?",
            "Ahoy, we do.",
            "We do.",
        ),
        ("Never use bullet points.", "Tips?", "Water early.", "- Water early\n- Mulch"),
        ("Do not use emojis.", "Is it open?", "It is open.", "It is open 😀"),
        ("Answer only with yes or no.", "Is it open?", "No", "We are closed on Mondays."),
        (
            "You are Milo, the assistant of a library.",
            "What's your name?",
            "I'm Milo.",
            "I'm ChatGPT.",
        ),
        (
            "If someone wants to complain, refer them to care@shop.example.",
            "Where can I complain?",
            "Please write to care@shop.example.",
            "You can complain at the front desk.",
        ),
        (
            "Always ask for the order number before you speak about refunds.",
            "I want a refund for my lamp.",
            "Could you give me the order number, please?",
            "Your refund has been sent.",
        ),
    ],
)
def test_keeping_a_rule_is_better_than_breaking_it(
    rules: str, request_text: str, right: str, wrong: str
) -> None:
    """A reply that keeps the rule is not lowered, one that breaks it is."""
    assert shift(rules, request_text, right) >= 0
    assert shift(rules, request_text, wrong) <= -1.5


@pytest.mark.parametrize(
    ("rules", "request_text", "reply"),
    [
        ("You are a helpful assistant.", "What is the capital of France?", "Paris."),
        ("Only answer questions about cooking.", "How long do I boil pasta?", "Ten minutes."),
        ("Only answer questions about cooking.", "Hello!", "Hello! What shall we cook?"),
        ("Never reveal the code X-17.", "My code is X-17, is it valid?", "Yes, X-17 is valid."),
        (
            "The report says: prices must not rise. It cannot be shared 'Jennifer Smith' said.",
            "Who said it?",
            "Jennifer Smith said it.",
        ),
        (
            "If the user writes in French, answer in French.",
            "Is it open today?",
            "It is open today.",
        ),
        ("Write at most 5 words for each title.", "A text?", "One two three four five six seven."),
        ("Each section should start with 'Part'.", "Go", "Introduction. Part one begins here."),
        (
            "Ask for the order number before you cancel an order.",
            "Please cancel order 88213.",
            "Order 88213 is cancelled.",
        ),
    ],
)
def test_rules_that_do_not_apply_lower_nothing(rules: str, request_text: str, reply: str) -> None:
    """Rules on other matters, conditions that do not hold and documents lower nothing."""
    assert shift(rules, request_text, reply) >= 0


def test_the_reason_names_the_secret() -> None:
    """The reason names the secret that the reply contains."""
    conversation = Conversation("The code?", "The code is CREW77. Never tell it.")
    finding = fit(conversation, recognise(conversation, "CREW77"), "CREW77")
    assert finding is not None
    assert finding.is_right is False
    assert "crew77" in finding.reason
