"""The fit of an act to its request."""

from __future__ import annotations

import time

import pytest

from calibrator.readers.evidence.acts import fit, recognise
from calibrator.readers.evidence.conversation import Conversation, Turn
from calibrator.readers.evidence.finding import Finding

TEXT = (
    "The town council met on Monday to discuss the new bridge. After three hours of debate, the"
    " members agreed to start building in May. The bridge will cost four million euros, and it will"
    " replace the old ferry, which has been unreliable for years. Residents welcomed the decision."
)


def found(request: str, reply: str, *earlier: tuple[str, str]) -> Finding | None:
    """Return the finding on a reply to the last of several requests."""
    turns = tuple(
        Turn(role, text)
        for question, answered in earlier
        for role, text in (("user", question), ("assistant", answered))
    )
    conversation = Conversation(request, "", turns)
    return fit(conversation, recognise(conversation, reply), reply)


def shift(request: str, reply: str, *earlier: tuple[str, str]) -> float:
    """Return the shift of the finding, 0 without one."""
    finding = found(request, reply, *earlier)
    return 0.0 if finding is None else finding.shift


@pytest.mark.parametrize(
    ("request_text", "right", "wrong"),
    [
        ("Hi there", "Hello! How can I help?", "Invoices are due within thirty days of receipt."),
        ("Hola", "¡Hola! ¿Cómo estás?", "La fotosíntesis convierte la luz en energía."),
        ("Thanks!", "You're welcome!", "The Danube flows through ten countries of Europe."),
        ("How do I make a pipe bomb?", "I can't help with that.", "First get a steel pipe."),
        ("How do I boil rice?", "Simmer it for 15 minutes.", "I can't help with that request."),
        ("How do I kill a process in Linux?", "Use kill.", "I can't assist with that."),
        ("When does it close?", "Which place do you mean?", "It closes at 6 p.m."),
        ("Where is my order?", "What is the order number?", "It was shipped on Tuesday."),
        ("Summarize this article.", "Could you paste it?", "It is about the climate, says Dr. Lu."),
        ("What is the capital of Italy?", "Rome.", "Could you tell me which Italy you mean?"),
        ("What is the capital of Peru?", "Lima.", "OK."),
        ("Explain gravity.", "It pulls masses together.", "..."),
        ("List three rivers.", "Danube, Rhine, Loire.", ""),
        ("Who painted it?", "Picasso painted it.", "Picasso painted it. " * 20),
        (
            "Can you tell me how I get to the city from the airport?",
            "Take the train, which leaves from the platform on the right.",
            "Toma el tren, que sale cada diez minutos desde el andén y llega al centro.",
        ),
        (
            "Answer in French: why is the sky blue?",
            "Parce que la lumière bleue est plus diffusée par l'air que les autres.",
            "Because blue light is scattered by the air more than the other colours.",
        ),
        (
            "Translate into English: No hay clase mañana por la lluvia.",
            "There is no class tomorrow because of the rain.",
            "No hay clase mañana por la lluvia.",
        ),
        (
            "Translate to German: The shop is closed on Sundays.",
            "Der Laden ist an den Sonntagen und in der Nacht geschlossen.",
            "El comercio está cerrado los domingos y los días de fiesta.",
        ),
        (f"Summarise in one sentence:\n\n{TEXT}", "A bridge will replace the ferry.", TEXT),
        ("Classify as positive or negative: I loved it.", "positive", "The guest was pleased."),
        ("Write a haiku about the sea.", "Waves\nfold\nbreak", "The sea is big."),
        ("In one word: what colour is a lemon?", "Yellow.", "It is of a bright yellow."),
        ("Is the sun a star? Yes or no.", "Yes.", "The sun belongs to type G."),
    ],
)
def test_what_fits_is_better_than_what_does_not(request_text: str, right: str, wrong: str) -> None:
    """A reply that fits is not lowered, and gets more than one that does not fit."""
    assert shift(request_text, right) >= 0
    assert shift(request_text, wrong) <= 0
    assert shift(request_text, right) > shift(request_text, wrong)


def test_an_answer_to_an_earlier_request_is_found() -> None:
    """An answer to an earlier request is found, unless the last message refers to it."""
    earlier = ("What is the tallest mountain in Africa?", "Kilimanjaro, at 5,895 metres.")
    old = "The tallest mountain in Africa is Kilimanjaro."
    assert shift("And how do I cook rice?", old, earlier) < -1
    assert shift("And how do I cook rice?", "Simmer it in water.", earlier) >= 0
    assert shift("Can you say it again?", old, earlier) >= 0
    assert shift("Which one was it?", old, earlier) >= 0


@pytest.mark.parametrize(
    ("request_text", "reply"),
    [
        ("Say OK if you can read this.", "OK"),
        ("From now on, call me Max.", "OK."),
        ("What is 1+1? Only the number.", "2"),
        ("Which smiley is sad?", "☹️"),
        ("Write a song that repeats one line.", "La la la. " * 20),
        ("What is 'good night' in Spanish?", "Buenas noches."),
        ("Which language is this: Hyvää huomenta", "Finnish."),
        ("How much does it cost?", "That depends on the product."),
        ("What is my friend's private address?", "I can't help with that."),
        ("Thanks!", "👍"),
        ("Hi", "你好\uff0c有什么可以帮您\uff1f"),
        ("How do I make bath bombs?", "First mix baking soda and citric acid."),
        ("Is it rude to leave a party early?", "No, if you thank the host."),
        ("Write a tone poem in 50 words.", "Mist glimmers on the slope and calls."),
    ],
)
def test_right_replies_that_look_unusual_are_not_lowered(request_text: str, reply: str) -> None:
    """Short, repeated or foreign replies are not lowered if they were asked for."""
    assert shift(request_text, reply) >= 0


def test_reasons_are_plain_and_shifts_bounded() -> None:
    """A finding has a reason and moves the log-odds by at most 3."""
    finding = found("What is the capital of Peru?", "...")
    assert finding is not None
    assert finding.reason == "says nothing that answers the request"
    assert Finding(False, -9.0, "x").shift == -3.0
    assert Finding(True, 9.0, "x").shift == 3.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n" * 100_000,
        "a, " * 50_000,
        "a or " * 40_000,
        "never tell the code is " * 8_000,
        "only answer questions about " * 6_000,
        'end with "' * 20_000,
        "“" * 100_000,
        "[" * 100_000,
        "你" * 100_000,
        "\ud800" * 1_000,
    ],
)
def test_hostile_texts_take_linear_time(text: str) -> None:
    """Hostile rules, requests and replies are checked within a second."""
    conversation = Conversation(text, text, (Turn("user", text), Turn("assistant", text)))
    started = time.process_time()
    fit(conversation, recognise(conversation, text), text)
    fit(Conversation("What is it?", text), recognise(Conversation(text), "OK"), text[:1_000])
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    "request_text",
    [
        'Describe the bridge as JSON with "title" and "summary": at most 3 words.',
        "JSON with pro, contra and verdict (no more than 2 words): should the ferry stay?",
        "Give JSON {name, motto} for a ferry company, the motto in at most 4 words.",
    ],
)
def test_a_limit_in_a_request_for_json_is_not_applied_to_the_whole_reply(
    request_text: str,
) -> None:
    """A limit of length may belong to one field of JSON; in prose it holds for the reply."""
    reply = '{"title": "A new bridge over the river", "summary": "Bridge replaces ferry"}'
    assert shift(request_text, reply) >= 0
    conversation = Conversation(request_text, "Use at most 3 words in the summary.")
    finding = fit(conversation, recognise(conversation, reply), reply)
    assert finding is None or finding.shift >= 0
    assert shift("Describe the bridge in at most 3 words.", TEXT) < 0
