"""Conversions, weekdays and totals that a reply states."""

from __future__ import annotations

import time

import pytest

from calibrator.readers.evidence.computed import suspect
from calibrator.readers.evidence.conversation import Conversation

LIST = "- Cake: $30\n- Drinks: $25\n- Balloons: $15\n"
FALSE = [
    ("", "350 °F is about 150 °C.", "350 °F are 176.7 °C, not 150"),
    ("", "The trail is 8 miles (20 km) long.", "8 miles are 12.9 kilometres, not 20"),
    ("", "3 cups of flour sind etwa 300 ml", "3 cups are 709.8 millilitres, not 300"),
    ("", "Your flight is on Monday, 14 March 2023.", "2023-03-14 is a Tuesday"),
    ("", "El viernes 10 de junio de 2021", "2021-06-10 is a Thursday"),
    ("", f"{LIST}- **Total: $90**", "the amounts add up to 70, not 90"),
    ("Our budget is $60 for the party", f"{LIST}- **Total: $70**", "the total of 70 is above 60"),
    (
        "at most €20",
        "| Brot | 5 € |\n| Käse | 18 € |\n| Total | 23 € |",
        "the total of 23 is above 20",
    ),
]
TRUE = [
    ("", "350 °F is about 175 °C, and 8 miles (13 km) are far."),
    ("", "5-6 miles (8-10 km), 5 ft 10 in (178 cm), 1 cup is roughly 250 ml"),
    ("", "In winter it is -30 °C (-22 °F), and 100 m is not 1 km."),
    ("Translate: the town is 15 miles (20 km) away", "La ville est à 15 miles (20 km)"),
    ("", "Tuesday, 14 March 2023, and Monday the 3rd"),
    ("", f"{LIST}- **Total: $70**"),
    ("", "- Cake: $30 each\n- Drinks: $25\n- Two more: $15\n- Total: $130"),
    ("My budget is $100", f"{LIST}- **Total: $70**"),
    ("", ""),
]


@pytest.mark.parametrize(("request_text", "reply", "reason"), FALSE)
def test_false_statements_are_named(request_text: str, reply: str, reason: str) -> None:
    """A false statement lowers its reply, and the reason has the right value."""
    found = suspect(Conversation(request_text), reply)
    assert found is not None
    assert found.is_right is None
    assert found.shift <= -2.0
    assert found.reason == reason


@pytest.mark.parametrize(("request_text", "reply"), TRUE)
def test_true_and_unclear_statements_are_left_alone(request_text: str, reply: str) -> None:
    """Roundings, ranges, quotations and mixed lists give no finding."""
    assert suspect(Conversation(request_text), reply) is None


@pytest.mark.parametrize("piece", ["3 miles (", "5 km is ", "- $3\n", "1 March 2020 ", "total "])
def test_long_replies_take_linear_time(piece: str) -> None:
    """Repeated pieces are checked within a second."""
    start = time.process_time()
    suspect(Conversation("budget $3 " * 100), (piece * 4_000)[:3_900])
    assert time.process_time() - start < 1.0
