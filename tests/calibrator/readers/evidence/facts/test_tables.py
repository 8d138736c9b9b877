"""Replies compared with the tables of facts."""

from __future__ import annotations

import pytest

from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.facts import check_facts
from calibrator.readers.evidence.facts.table_data import countries, elements


def verdict(question: str, reply: str) -> bool | None:
    """Return the verdict of the tables, None without one."""
    finding = check_facts(Conversation(question), reply)
    return None if finding is None else finding.is_right


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("What is the capital of Australia?", "Canberra.", "Sydney."),
        ("Capital of Turkey?", "It's Ankara, not Istanbul.", "Istanbul is the capital."),
        ("What is Brazil's capital?", "Brasília", "Rio de Janeiro"),
        ("What's the capital of Canada?", "The capital of Canada is Ottawa.", "Toronto"),
        ("Lima is the capital of which country?", "Peru", "Lima is the capital of Chile."),
        ("Is Sydney the capital of Australia?", "No, it is Canberra.", "Yes."),
        ("What currency is used in Japan?", "The yen.", "They use the yuan."),
        ("What is the currency of Switzerland?", "The Swiss franc", "The euro."),
        ("Which language do people speak in Brazil?", "Portuguese", "Spanish."),
        ("On which continent is Egypt?", "Africa", "Asia"),
        ("What is the chemical symbol for gold?", "Au", "The symbol is Ag."),
        ("Which element has the symbol Fe?", "Iron", "Fluorine"),
        ("What is the atomic number of carbon?", "6", "It is 12."),
        ("Which element has atomic number 8?", "Oxygen.", "Nitrogen"),
        ("Is 1900 a leap year?", "No.", "Yes, 1900 is a leap year."),
        ("How many days are in April?", "30", "April has 31 days."),
        ("Which day comes after Tuesday?", "Wednesday", "Thursday"),
        ("What is the third planet from the sun?", "Earth", "Venus"),
        ("What is the largest ocean in the world?", "The Pacific Ocean.", "The Atlantic."),
        ("How many continents are there?", "Seven.", "There are six."),
        ("How many legs does a spider have?", "Eight", "Spiders have 6 legs."),
        ("Hi! Can you tell me the capital of Peru, please?", "Sure! It's Lima.", "It's Cusco."),
    ],
)
def test_right_and_wrong_answers(question: str, right: str, wrong: str) -> None:
    """Right and wrong answers are decided."""
    assert verdict(question, right) is True
    assert verdict(question, wrong) is False


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("What is the capital of Australia?", "I don't know."),
        ("What is the capital of Australia?", "Canberra or Sydney."),
        ("What is the capital of Australia?", "I think it might be Sydney."),
        ("What is the capital of Atlantis?", "Poseidonis."),
        ("What was the capital of Germany in 1960?", "Bonn."),
        ("What is the capital of Australia known for?", "Its lake."),
        ("What is the largest ocean liner?", "The Icon."),
        ("How many legs does a spider have?", "Spiders have many legs."),
        ("What is the capital of Peru?", "Lima. " * 100),
        ("What is the capital of Peru? And of Chile?", "Lima and Santiago."),
        ("", ""),
    ],
)
def test_silence_where_question_or_reply_is_of_another_form(question: str, reply: str) -> None:
    """Hedged, double, long or unknown answers are not decided."""
    assert verdict(question, reply) is None


def test_a_long_system_message_may_say_otherwise() -> None:
    """A long system message may have its own facts, so nothing is decided."""
    rules = "In this story all names are different. " * 20
    conversation = Conversation("What is the capital of Peru?", rules)
    assert check_facts(conversation, "Cusco.") is None


def test_tables_are_whole() -> None:
    """Every country has all its cells, and the elements are in order."""
    assert len({id(country) for country in countries().values()}) > 175
    for country in countries().values():
        for cells in (country.capitals, country.currencies, country.languages, country.continents):
            assert cells
            assert all(cell.strip() for cell in cells), country
    assert len(elements()) == 118
    assert [elements()[at - 1][0] for at in (1, 26, 79, 92, 118)] == ["H", "Fe", "Au", "U", "Og"]
    assert len({symbol for symbol, _ in elements()}) == 118
