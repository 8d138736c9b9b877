"""The form of a task, as read from its request."""

from __future__ import annotations

import time

import pytest

from calibrator.readers.evidence import task_form
from calibrator.readers.evidence.conversation import Conversation, Turn
from calibrator.readers.evidence.familiarity import places_of
from calibrator.readers.evidence.task_form import HEAD, TAIL, own_rules, read_request

HOSTILE = (
    "",
    " " * 1_000_000,
    "\n" * 1_000_000,
    "(" * 200_000,
    "a) " * 200_000,
    "if for if " * 100_000,
    "\0\ud800\udfff" * 100_000,
    "x" * 1_000_000,
    "ß" * 300_000,
    "词" * 300_000,
)


@pytest.mark.parametrize(
    "rules",
    [
        "",
        "You are a helpful assistant.",
        "You are ChatGPT, a large language model trained by OpenAI.",
        "You are a helpful AI assistant. Answer the user's questions. Be concise.",
        "Think step by step.",
        "Today is Tuesday, 4 June.",
    ],
)
def test_a_system_message_that_says_nothing_is_passed_over(rules: str) -> None:
    """Generic sentences of a system message are no rules of a task."""
    assert own_rules(rules) == 0


@pytest.mark.parametrize(
    "rules",
    [
        "You are the assistant of a hotel. Breakfast is from 7 to 10.",
        "You are a pirate.",
        "Translate everything into Dutch.",
        "Answer from the documents only. [1] The mill burned down in 1902.",
    ],
)
def test_rules_of_a_task_are_counted(rules: str) -> None:
    """A policy, a role or a document in the system message counts as rules."""
    assert own_rules(rules) > 0


def test_both_ends_of_a_long_request_are_read() -> None:
    """Both ends of a long request are read."""
    long = "Summarize this. " + "filler " * 5_000 + "Use at most ten words."
    found = read_request(Conversation(long))
    assert found.head[:2] == ["summarize", "this"]
    assert found.tail[-3:] == ["ten", "words", "."]
    assert len(found.text) <= HEAD + TAIL + 1
    assert found.length == len(long)


def test_what_goes_with_a_request_is_counted() -> None:
    """Rules, earlier turns, results and tools each have their number."""
    conversation = Conversation("Why?", "Be rude to dentists.", (Turn("user", "Hi"),), ("{}",))
    numbers = dict(
        zip(
            task_form.NAMES,
            task_form.form_of(read_request(conversation, has_tools=True)),
            strict=True,
        )
    )
    assert numbers["rules"] > 0
    assert (numbers["turns"], numbers["results"], numbers["tools"]) == (1, 1, 1)


def test_the_last_paragraph_has_places_of_its_own() -> None:
    """Words of the last paragraph have places of their own."""
    after = places_of(read_request(Conversation("A short note.\n\nTranslate into Dutch")))
    within = places_of(read_request(Conversation("A short note. Translate into Dutch")))
    assert set(after.ngrams) - set(within.ngrams)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_read_quickly(text: str) -> None:
    """Hostile text is read within 0.1 s, in the request or in the rules."""
    begin = time.process_time()
    for conversation in (
        Conversation(text),
        Conversation("Hi", text),
        Conversation("Hi", text[:399]),
    ):
        request = read_request(conversation)
        assert len(task_form.form_of(request)) == task_form.WIDTH
        places_of(request)
    assert time.process_time() - begin < 0.1
