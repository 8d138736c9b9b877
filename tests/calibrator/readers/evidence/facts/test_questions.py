"""Short questions of fact."""

from __future__ import annotations

import pytest

from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.facts import needs_facts


@pytest.mark.parametrize(
    "text",
    [
        "Who painted the Night Watch?",
        "who sang the first song at the 1969 festival",
        "When was the Suez Canal opened?",
        "In which city is the Uffizi?",
        "How many moons does Neptune have?",
        "How tall is the Shard?",
        "What is the capital of Mongolia?",
        "What year did the Berlin Wall fall?",
        "Is the Nile longer than the Danube?",
        "For which film did Kubrick win an Oscar?",
        "Name the author of Middlemarch.",
        "¿Quién escribió Rayuela?",
        "Quand a été construite la tour Eiffel ?",
        "Wann wurde die Elbphilharmonie eröffnet?",
        "Qual è il fiume più lungo d'Italia?",
        "Kdo napsal Babičku?",
        "谁写了《红楼梦》\uff1f",
    ],
)
def test_short_questions_about_the_world_need_facts(text: str) -> None:
    """Short questions for who, when, where, which and how many need facts, in several languages."""
    assert needs_facts(Conversation(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hi!",
        "Thanks a lot.",
        "What is 15 % of 240?",
        "How many minutes are in three hours?",
        "Tom has 3 apples and buys 4 more. How many apples does he have?",
        "How do I boil rice?",
        "Why is the sky blue?",
        "Should I buy or rent?",
        "What should I cook tonight?",
        "Where is my order?",
        "When does it close?",
        "Write a poem about Napoleon.",
        "Translate into French: who are you?",
        "Explain inflation.",
        "What do you think of jazz?",
        "def f(x): what does it return?",
        "Which is right?\nA. one\nB. two\nC. three",
        "Who signed the contract in the text below?",
        "Which fox " * 200,
    ],
)
def test_other_requests_do_not(text: str) -> None:
    """Sums, advice, tasks, opinions, private matters and options need no facts."""
    assert not needs_facts(Conversation(text))


def test_a_question_with_its_source_needs_none() -> None:
    """A question with a document or a tool's result needs no facts."""
    question = "When was the library opened?"
    assert needs_facts(Conversation(question))
    assert needs_facts(Conversation(question, "You are a friendly assistant."))
    assert not needs_facts(Conversation(question, "The library of Arden was opened in 1921."))
    assert not needs_facts(Conversation(question, "Use this document: " + "Opened in 1921. " * 99))
    assert not needs_facts(Conversation(question, results=('{"opened": 1921}',)))
