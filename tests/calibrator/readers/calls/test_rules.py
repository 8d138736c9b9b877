"""Calls compared with the instructions: limits, opening hours, states, confirmations."""

from __future__ import annotations

import pytest

from calibrator.readers.calls import read_reply, reasons
from tests.calibrator.readers.calls.conversations import BOATS, RIGHT, earlier_call, renting, traits

RULES = "You rent boats. Today is 2031-07-07. "


@pytest.mark.parametrize(
    ("rule", "is_passed"),
    [
        ("The hours of a boat may be at most 2.", True),
        ("The hours of a boat may be at most 5.", False),
        ("Nobody may rent a boat for more than 2 hours.", True),
        ("Boats are rented for at least 4 hours.", True),
        ("Boats are rented for at least 2 hours.", False),
    ],
)
def test_a_stated_limit(rule: str, is_passed: bool) -> None:
    """A number above the most or below the least that a rule names is found."""
    assert traits(renting(rules=RULES + rule))["limit_passed"] == float(is_passed)


def test_hours_of_opening() -> None:
    """A time outside the hours of a rule is found."""
    rules = RULES + "Boats must be rented between 09:00 and 17:00 only."
    early = {**RIGHT, "day": "2031-07-10 07:30"}
    late = {**RIGHT, "day": "2031-07-10 16:30"}
    assert traits(renting(early, rules=rules))["time_outside"] == 1
    assert traits(renting(late, rules=rules))["time_outside"] == 0


def test_a_state_that_a_rule_asks_for() -> None:
    """A record's state is compared with the one that a rule demands."""
    rules = RULES + "Only a boat that is moored may be rented."
    result = BOATS.replace('"price": 18', '"price": 18, "state": "{}"')
    moored = traits(renting(rules=rules, result=result.replace("{}", "moored")))
    elsewhere = result.replace("{}", "afloat").replace('"price": 45', '"state": "moored"')
    afloat = traits(renting(rules=rules, result=elsewhere))
    assert (moored["state_listed"], moored["state_unlisted"]) == (1, 0)
    assert (afloat["state_listed"], afloat["state_unlisted"]) == (0, 1)


def test_what_must_be_confirmed() -> None:
    """If a rule demands a confirmation, a call without one is found."""
    rules = RULES + "Before you rent a boat, ask the user to confirm it."
    assert traits(renting(rules=rules))["yes_missing"] == 1
    looked = earlier_call("find_boats", {"query": "Pike"}, BOATS)
    before = [*looked, {"role": "assistant", "content": "The Pike, 3 hours?"},
             {"role": "user", "content": "Yes, please."}]  # fmt: skip
    assert traits(renting(rules=rules, before=before))["yes_missing"] == 0


def test_more_than_there_is() -> None:
    """A number above the one that a look-up gives as left is found."""
    for left, is_above in (("hours_left: 2", 1.0), ("hours_left: 9", 0.0)):
        looked = [
            *earlier_call("find_boats", {"query": "Pike"}, BOATS),
            *earlier_call("hours", {}, left, 2),
        ]
        rules = RULES + "The hours that are left are the limit."
        assert traits(renting(rules=rules, before=looked))["above_found"] == is_above


def test_reasons_name_the_argument_or_the_rule() -> None:
    """Reasons name the argument or the rule, at most three, and none for a right call."""
    assert reasons(read_reply(renting())) == []
    wrong = renting({**RIGHT, "boat_id": "B-77"}, rules=RULES + "Boats: at most 2 hours.")
    assert "value not in conversation: boat_id, differs from b-17" in reasons(read_reply(wrong))
    assert len(reasons(read_reply(wrong))) <= 3
