"""Openings and closings are removed, and answers stay."""

from __future__ import annotations

import time

import pytest

from calibrator.readers.evidence.acts import without_opening

ANSWER = "We do not match prices of other shops."


@pytest.mark.parametrize(
    "opening",
    [
        "Hi! ",
        "Hello there! ",
        "Good morning, Anna! ",
        "Great question! ",
        "**That's a really good question!** ",
        "Sure! ",
        "Of course. ",
        "Certainly! Here is the answer:\n",
        "Happy to help! 😊 ",
        "Sure, happy to help. ",
        "Good morning, and thank you for writing to us. ",
        "Oh no, that is annoying, sorry! ",
        "Certainly, here is what I can tell you. ",
        "Let me have a look at that for you. ",
        "I see what you mean. ",
        "According to the document, ",
        "Based on the information provided, ",
        "Thank you for reaching out. ",
        "Hello! Thanks for your question. I'm glad you asked. ",
        "I'm sorry about that. ",
        "I\u2019m so sorry to hear that. ",
        "I apologize for the inconvenience. ",
        "My apologies for the delay. ",
        "I completely understand your frustration. ",
        "¡Hola! ",
        "¡Buena pregunta! ",
        "Lo siento mucho. ",
        "Bonjour ! ",
        "Excellente question ! ",
        "Je suis vraiment désolé. ",
        "Guten Tag! ",
        "Gerne! ",
        "Es tut mir sehr leid. ",
        "Ciao! ",
        "Mi dispiace molto. ",
        "Olá! ",
        "Com certeza! ",
        "Hoi! ",
        "Onze excuses voor het ongemak. ",
        "你好\uff01",
        "非常抱歉。",
        "好的\uff0c",
    ],
)
def test_an_opening_leaves_the_answer(opening: str) -> None:
    """A greeting, praise, thanks or apology is removed, and the rest stays unchanged."""
    assert without_opening(opening + ANSWER) == ANSWER


@pytest.mark.parametrize(
    "lead",
    [
        "I'm sorry, but we",
        "Sorry, we",
        "Sorry, but unfortunately we",
        "I'm afraid we",
        "I'm afraid that we",
        "Unfortunately, we",
        "I regret to inform you that we",
        "I apologize, but we",
        "Thank you for your question, but we",
        "Hi Anna, we",
        "Lo siento, pero we",
        "Malheureusement, we",
        "Leider we",
        "Purtroppo we",
        "Infelizmente, we",
        "Helaas we",
    ],
)
def test_the_beginning_of_a_sentence_is_removed(lead: str) -> None:
    """An apology at the beginning of a sentence is removed."""
    assert without_opening(lead + ANSWER[2:]) == ANSWER


@pytest.mark.parametrize(
    "closing",
    [
        " Let me know if you need anything else!",
        " Is there anything else I can help you with?",
        " I hope this helps!",
        " If you have any other questions, feel free to ask. Have a great day!",
        "\n\nPlease don't hesitate to reach out.",
        " We apologize for any inconvenience.",
        " ¿Hay algo más en lo que pueda ayudarte?",
        " N'hésitez pas à revenir vers nous.",
        " Kann ich sonst noch etwas für Sie tun?",
        " Spero che questo ti aiuti.",
        " Obrigado pela compreensão.",
    ],
)
def test_closing_offers_are_removed(closing: str) -> None:
    """Offers of more help at the end are removed."""
    assert without_opening(ANSWER + closing) == ANSWER


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "   ",
        "...",
        "Hello! How can I help?",
        "I'm sorry about that.",
        "You're welcome!",
        "Hello, world!",
        "Hi-fi is short for high fidelity.",
        "Sorry is a board game from 1929.",
        "Sure enough, the cat came back the very next day.",
        "Well-being is a state of health.",
        "I'm afraid of spiders.",
        "Let me know which size you need.",
        "Certainly not.",
        "```python\nprint('Hi! Sorry.')\n```",
        '{"greeting": "Hello! How are you?"}',
        "- Hi!\n- Hello!\n- Let me know if you need help.",
        '"Hi! Great question!" said the fox. "Let me know if you come."',
        "> Hello! It is quoted.",
    ],
)
def test_what_is_no_opening_stays(reply: str) -> None:
    """Replies of an opening alone, code, JSON, lists and quotations stay unchanged."""
    assert without_opening(reply) == reply


def test_a_requested_text_keeps_its_greeting() -> None:
    """In a mail or a translation the greeting stays."""
    mail = "Hello Tom, thank you for your letter. Let me know if you can come."
    assert without_opening(mail, "Write a short mail to Tom.") == mail
    assert without_opening("Sure! Here is the mail:\n" + mail, "Write a mail to Tom.") == mail
    assert without_opening("Hello, how are you?", "Translate: Hola, ¿cómo estás?").startswith("H")


def test_an_assent_that_answers_stays() -> None:
    """An "Of course" stays if it answers a yes-or-no question and hardly anything follows."""
    assert without_opening("Of course. It is.", "Is the sun a star?") == "Of course. It is."


@pytest.mark.parametrize(
    "part", ["sorry ", "if you ", ".", "Sure! ", "\n", "a", "\uff1f", "*", "Hi, "]
)
def test_huge_replies_take_linear_time(part: str) -> None:
    """A reply of 300,000 characters is read within half a second."""
    reply = (part * 300_000)[:300_000]
    started = time.process_time()
    without_opening(reply)
    assert time.process_time() - started < 0.5
