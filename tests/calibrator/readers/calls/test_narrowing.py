"""What narrows a request: exclusions, bounds, the week, the other one, lengths of time in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calibrator import ToolUse, call_notes
from tests.calibrator.readers.calls.test_marks import made, notes

Json = dict[str, Any]
TODAY = "Today is Monday, 2026-01-19."
BOATS = [{"berth": "B-11", "boat": "Anke"}, {"berth": "B-12", "boat": "Rosa"}]
FERRIES = [
    {"sailing": "F-1", "departs": "14:10", "price": 31},
    {"sailing": "F-2", "departs": "15:40", "price": 55},
]
SHIFT = {"shift": {"type": "string", "enum": ["early", "late"]}}


def names(said: str, tool: str, arguments: Json, **more: Any) -> set[str]:
    """Return the names of a call's marks."""
    return {mark.name for mark in notes(said, tool, arguments, **more).marks}


@pytest.mark.parametrize(
    ("said", "berths", "is_marked"),
    [
        ("Close berth B-11.", ["B-11"], False),
        ("Close berth B-11.", ["B-11", "B-12"], True),
        ("Close berth B 11.", ["B-11", "B-12"], False),  # too short to be read without a blank
        ("Close B-11 and the others.", ["B-11", "B-12"], False),
        ("Close both berths, B-11 too.", ["B-11", "B-12"], False),
        ("Close all berths.", ["B-11", "B-12"], False),
    ],
)
def test_a_list_has_no_more_than_was_named(said: str, berths: list[str], is_marked: bool) -> None:
    """Unless the request speaks of more than it names."""
    found = names(said, "close_berths", {"berths": berths}, found=BOATS)
    assert ("wider" in found) is is_marked


@pytest.mark.parametrize(
    ("said", "mail", "is_marked"),
    [
        ("Send it to ida@x.example, not to otto@x.example.", "otto@x.example", True),
        ("Send it to ida@x.example, not to otto@x.example.", "ida@x.example", False),
        ("To ida@x.example, not her boss, who wrote from otto@x.example.", "otto@x.example", True),
        ("Not today. Send it to otto@x.example tomorrow.", "otto@x.example", False),
        ("Mail ida@x.example; otto@x.example can wait.", "otto@x.example", True),
        ("Mail otto@x.example, ida@x.example can wait.", "otto@x.example", False),
    ],
)
def test_what_is_mentioned_to_be_left_out(said: str, mail: str, is_marked: bool) -> None:
    """By the clause of every mention, and by the relative clause behind it."""
    assert ("ruled_out" in names(said, "post_report", {"to": mail})) is is_marked


@pytest.mark.parametrize(
    ("said", "day", "is_marked"),
    [
        ("Fetch her on Thursday.", "2026-01-22", False),
        ("Fetch her on Thursday.", "2026-01-29", True),
        ("Fetch her next Thursday.", "2026-01-29", False),
        ("Fetch her on Thursday next week.", "2026-01-29", False),
        ("Fetch her on Monday.", "2026-01-26", False),
    ],
)
def test_a_bare_weekday_is_within_seven_days(said: str, day: str, is_marked: bool) -> None:
    """The same weekday of a later week is another day, unless the request speaks of one."""
    assert ("other_date" in names(said, "plan_pickup", {"day": day}, rules=TODAY)) is is_marked


@pytest.mark.parametrize(
    ("said", "sailing", "is_marked"),
    [
        ("Take the ferry after 15:00.", "F-1", True),
        ("Take the ferry after 15:00.", "F-2", False),
        ("Take the ferry before 15:00.", "F-2", True),
        ("Take a ferry under 40 euros.", "F-2", True),
        ("Take a ferry under 40 euros.", "F-1", False),
        ("Take a ferry after 16:00.", "F-2", False),  # none is: nothing is said about another
        ("Take the ferry at 14:10.", "F-1", False),
    ],
)
def test_a_record_within_the_bound_is_taken(said: str, sailing: str, is_marked: bool) -> None:
    """A time or a price that the request sets, where another of those listed keeps to it."""
    found = names(said, "reserve_ferry", {"sailing": sailing}, found=FERRIES)
    assert ("other_record" in found) is is_marked


@pytest.mark.parametrize(
    ("said", "shift", "is_marked"),
    [
        ("And Tom for the other one.", "late", True),
        ("And Tom for the other one.", "early", False),
        ("And Tom as well.", "late", False),
    ],
)
def test_the_other_one_of_two(said: str, shift: str, is_marked: bool) -> None:
    """Not the choice of the call before, where there are two."""
    first = made("appoint", {"person": "Ilse", "shift": "late"}, "c0")
    result = {"role": "tool", "tool_call_id": "c0", "content": "ok"}
    messages = [{"role": "user", "content": "Ilse takes the late shift."}, first, result]
    messages.append({"role": "user", "content": said})
    parameters = {"type": "object", "properties": {"person": {"type": "string"}, **SHIFT}}
    tool = {"type": "function", "function": {"name": "appoint", "parameters": parameters}}
    call = made("appoint", {"person": "Tom", "shift": shift}, "c1")
    [noted] = call_notes(ToolUse(messages, [tool], call)) or ()
    assert ("other_choice" in {mark.name for mark in noted.marks}) is is_marked


@pytest.mark.parametrize(
    ("said", "minutes"),
    [
        ("Run it for an hour and a half.", 90),
        ("Run it for three quarters of an hour.", 45),
        ("Run it for a quarter of an hour.", 15),
        ("Run it for two and a half hours.", 150),
    ],
)
def test_lengths_in_words_are_read_in_minutes(said: str, minutes: int) -> None:
    """They are no part of something, and no other number in this unit."""
    assert not names(said, "open_sluice", {"minutes": minutes}) & {"other_number"}


@pytest.mark.parametrize(
    ("said", "white", "black", "is_marked"),
    [
        ("Ferenc has white against Ana.", "Ferenc", "Ana", False),
        ("Ferenc has white against Ana.", "Ana", "Ferenc", True),
    ],
)
def test_a_role_is_said_with_a_verb(said: str, white: str, black: str, is_marked: bool) -> None:
    """A name that has, gets or plays a role belongs under the name of that role."""
    found = names(said, "pair_players", {"white": white, "black": black})
    assert ("swapped" in found) is is_marked


@pytest.mark.parametrize(
    ("said", "tool", "arguments", "mark"),
    [
        ("Key 0417 went from Petra to Ben.", "note", {"by": "Petra", "to": "Ben"}, None),
        ("Key 0417 went from Petra to Ben.", "note", {"by": "Ben", "to": "Petra"}, "swapped"),
        ("Last quarter Ines sold 4. Pay Ines.", "pay", {"payee": "Ines", "quarter": "Q2"}, None),
        ("Then Winter instead of Lange.", "summon", {"jurors": ["Winter"]}, None),
        ("Then Winter instead of Lange.", "summon", {"jurors": ["Lange"]}, "ruled_out"),
        ("Then Winter instead of Lange.", "swap", {"replaced": "Lange", "new": "Winter"}, None),
    ],
)
def test_who_is_meant(said: str, tool: str, arguments: Json, mark: str | None) -> None:
    """By whom and to whom, and instead of whom; "last quarter Ines .." says nothing of a name."""
    found = names(said, tool, arguments) & {"swapped", "ruled_out"}
    assert found == ({mark} if mark else set())


@pytest.mark.parametrize(
    ("articles", "is_marked"), [(["PE-17"], False), (["PE-17", "PE-18"], True)]
)
def test_a_list_has_no_more_than_was_described(articles: list[str], is_marked: bool) -> None:
    """A record that has what the request says, beside one that has nothing of it alone."""
    listed = [{"article": "PE-17", "batch": 2217}, {"article": "PE-18", "batch": 2218}]
    said = "Recall batch 2217."
    assert ("wider" in names(said, "recall", {"articles": articles}, found=listed)) is is_marked


@pytest.mark.parametrize(
    ("said", "flag", "wanted"),
    [
        ("He brings his own gear.", "rents_gear", False),
        ("She needs gear.", "rents_gear", None),
        ("Close it day and night.", "night_only", None),
        ("Close it at night.", "night_only", True),
    ],
)
def test_flags_by_what_somebody_has(said: str, flag: str, wanted: bool | None) -> None:
    """Whoever has their own rents none; day and night is no word for the night alone."""
    for value in (True, False):
        found = names(said, "join_climb", {flag: value})
        assert ("other_choice" in found) is (wanted is not None and value is not wanted)


@pytest.mark.parametrize(
    ("said", "sailing", "is_marked"),
    [
        ("Take the cheaper one.", "F-2", True),
        ("Take the cheaper one.", "F-1", False),
        ("Take the later of the two.", "F-2", False),
        ("Take a cheaper tariff.", "F-2", False),
    ],
)
def test_the_better_of_two(said: str, sailing: str, is_marked: bool) -> None:
    """A comparative with "one" or "of the two" picks one of two records."""
    found = names(said, "reserve_ferry", {"sailing": sailing}, found=FERRIES)
    assert ("other_record" in found) is is_marked


@pytest.mark.parametrize(
    ("said", "stands", "is_marked"),
    [
        ("Thin the spruces, but keep your hands off the oaks.", ["9a"], False),
        ("Thin the spruces, but keep your hands off the oaks.", ["9a", "9b"], True),
        ("Thin the oaks, but spare the spruces.", ["9b"], False),
        ("Thin the oaks. Not today, though.", ["9b"], False),
    ],
)
def test_a_kind_that_is_left_out(said: str, stands: list[str], is_marked: bool) -> None:
    """The records of a kind that the request names only to leave it out."""
    listed = [{"stand": "9a", "trees": "spruce"}, {"stand": "9b", "trees": "oak"}]
    found = names(said, "thin_forest", {"stands": stands}, found=listed)
    assert ("ruled_out" in found) is is_marked


@pytest.mark.parametrize(("candidate", "is_marked"), [("2231", False), ("2213", True)])
def test_another_id_than_the_named_one(candidate: str, is_marked: bool) -> None:
    """The user named one of the listed ids, and the call has another of the same form."""
    listed = [{"candidate": "2213"}, {"candidate": "2231"}]
    found = names("2231 gets 14.", "grade", {"candidate": candidate}, found=listed)
    assert ("other_record" in found) is is_marked


@pytest.mark.parametrize(("actor", "is_marked"), [("A-1", True), ("A-2", False), ("A-3", True)])
def test_a_property_that_must_not_hold(actor: str, is_marked: bool) -> None:
    """The deepest of those who are not away; somebody away is none of them."""
    listed = [
        {"actor": "A-1", "depth": 9, "away": True},
        {"actor": "A-2", "depth": 7, "away": False},
        {"actor": "A-3", "depth": 2, "away": False},
    ]
    found = names("The deepest voice that isn't away.", "hire", {"actor": actor}, found=listed)
    assert ("other_record" in found) is is_marked


@pytest.mark.parametrize(("degrees", "is_said"), [(270, True), (90, False)])
def test_points_of_the_compass_are_degrees(degrees: int, is_said: bool) -> None:
    """Only for arguments that are directions."""
    found = names("Point it due west.", "turn", {"azimuth_degrees": degrees})
    assert ("not_in_conversation" in found) is not is_said


def test_what_stays_open_is_not_closed() -> None:
    """It may stay open is a no to closing it."""
    said = "Put chlorine into the pool, it can stay open."
    for value in (True, False):
        assert ("other_choice" in names(said, "dose", {"close_pool": value})) is value


@pytest.mark.parametrize(("amount", "is_marked"), [(480, False), (400, True), (1.2, True)])
def test_an_amount_is_the_product(amount: float, is_marked: bool) -> None:
    """Neither the count nor the price of each alone is the amount of several."""
    said = "She sold 400 copies at 1.20 each, pay her."
    assert ("other_number" in names(said, "pay_author", {"amount": amount})) is is_marked


@pytest.mark.parametrize(("day", "is_marked"), [("2026-01-22", False), ("2026-01-24", True)])
def test_the_day_before_another(day: str, is_marked: bool) -> None:
    """A day beside the one that was named is said, on the right side of it."""
    said = "It is needed by Friday, come the day before."
    found = names(said, "plan_visit", {"day": day}, rules=TODAY)
    assert bool(found & {"other_date", "not_in_conversation"}) is is_marked


def test_nobody_is_written_to_without_need() -> None:
    """Not to write to somebody is not to notify."""
    said = "Renew it. Dr. Weiss knows already, no need to write to her."
    for value in (True, False):
        found = names(said, "extend_patent", {"notify_inventor": value})
        assert ("other_choice" in found) is value


def test_huge_requests_are_read_in_a_moment() -> None:
    """A request of nothing but exclusions and bounds, and a call with as many values."""
    said = "not a@b.example, " * 20_000 + "after 15:00 " * 20_000
    arguments = {"to": [f"a{n}@b.example" for n in range(500)]}
    assert json.dumps(sorted(names(said, "post_report", arguments)))
