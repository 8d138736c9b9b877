"""The support of a text for the values of a JSON reply."""

from __future__ import annotations

import json
import time

import pytest

from calibrator.readers.evidence.computed import support_of_values
from calibrator.readers.evidence.computed.structured.json_templates import templates_in
from calibrator.readers.evidence.conversation import read_conversation

ASK = 'Extract {"guest": str, "room": str, "arrival": str} as JSON, in the words used.'
SAID = "Mr Teodor Brandt Lind takes the Harbour Suite, coming on 3 August."


def support(values: dict[str, object], text: str = SAID) -> float:
    """Return the support of values that were extracted from a text."""
    messages = [{"role": "system", "content": ASK}, {"role": "user", "content": text}]
    found = support_of_values(read_conversation(messages), json.dumps(values))
    assert found is not None
    return found.support


GOOD: dict[str, object] = {
    "guest": "Teodor Brandt Lind",
    "room": "Harbour Suite",
    "arrival": "3 August",
}


@pytest.mark.parametrize(
    "change",
    [
        {"guest": "Mirela Osei"},
        {"guest": "Teodor Brandt"},
        {"room": "3 August", "arrival": "Harbour Suite"},
        {"room": "Garden Suite"},
    ],
)
def test_a_faulty_value_lowers_the_support(change: dict[str, object]) -> None:
    """An invented, shortened, swapped or half invented value lowers the support."""
    assert support({**GOOD, **change}) < support(GOOD)


def test_a_declined_offer_has_less_support() -> None:
    """An offer that the user declined has less support than the user's choice."""
    chat = "User: A room, please.\nAgent: The Attic?\nUser: No, the Cellar.\nAgent: Cellar, then."
    assert support({"room": "Attic"}, chat) < support({"room": "Cellar"}, chat)


def test_doubtful_values_are_named() -> None:
    """Doubtful values are reported with their keys."""
    messages = [{"role": "system", "content": ASK}, {"role": "user", "content": SAID}]
    reply = json.dumps({**GOOD, "guest": "Mirela Osei"})
    found = support_of_values(read_conversation(messages), reply)
    assert found is not None
    assert ("guest", "Mirela Osei", "missing") in found.doubts


def test_prose_and_invented_data_are_not_judged() -> None:
    """Prose and requests to invent data have no support."""
    messages = [{"role": "user", "content": "Make up three users as JSON."}]
    conversation = read_conversation(messages)
    assert support_of_values(conversation, "Here you are.") is None
    assert support_of_values(conversation, '[{"name": "Ada"}]') is None


@pytest.mark.parametrize(
    "text",
    [
        *("{" * 20_000, '{"a": [' * 3_000, "[{" * 9_000),
        *('{"a"|' * 4_000, '"' * 20_000, "{a (" * 5_000),
        *("[1, }]", '{"a": [}', '[{"a": [1, ) ] }', "[|]"),
    ],
)
def test_hostile_templates_are_read_quickly(text: str) -> None:
    """Text of brackets, bars and quotes is read within two seconds."""
    begin = time.process_time()
    list(templates_in(text))
    messages = [{"role": "system", "content": f"JSON {text}"}, {"role": "user", "content": text}]
    support_of_values(read_conversation(messages), '{"a": "b", "c": 1}')
    assert time.process_time() - begin < 2
