"""Words that narrow a request: exclusions, bounds, weekdays, the other one, lengths of time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calibrator import ToolUse, call_notes
from tests.calibrator.readers.calls.test_marks import call_message, notes

Json = dict[str, Any]
TODAY = "Today is Monday, 2026-01-19."
BOATS = [{"berth": "B-11", "boat": "Anke"}, {"berth": "B-12", "boat": "Rosa"}]
FERRIES = [
    {"sailing": "F-1", "departs": "14:10", "price": 31},
    {"sailing": "F-2", "departs": "15:40", "price": 55},
]
SHIFT = {"shift": {"type": "string", "enum": ["early", "late"]}}


def names(request_text: str, tool: str, arguments: Json, **more: Any) -> set[str]:
    """Return the names of a call's marks."""
    return {mark.name for mark in notes(request_text, tool, arguments, **more).marks}


@pytest.mark.parametrize(
    ("request_text", "berths", "is_marked"),
    [
        ("Close berth B-11.", ["B-11"], False),
        ("Close berth B-11.", ["B-11", "B-12"], True),
        ("Close berth B 11.", ["B-11", "B-12"], False),  # too short to be read without a blank
        ("Close B-11 and the others.", ["B-11", "B-12"], False),
        ("Close both berths, B-11 too.", ["B-11", "B-12"], False),
        ("Close all berths.", ["B-11", "B-12"], False),
    ],
)
def test_a_list_has_no_more_than_was_named(
    request_text: str, berths: list[str], is_marked: bool
) -> None:
    """A list with more than the request names is marked, unless the request says more."""
    found = names(request_text, "close_berths", {"berths": berths}, found=BOATS)
    assert ("wider" in found) is is_marked


@pytest.mark.parametrize(
    ("request_text", "mail", "is_marked"),
    [
        ("Send it to ida@x.example, not to otto@x.example.", "otto@x.example", True),
        ("Send it to ida@x.example, not to otto@x.example.", "ida@x.example", False),
        ("To ida@x.example, not her boss, who wrote from otto@x.example.", "otto@x.example", True),
        ("Not today. Send it to otto@x.example tomorrow.", "otto@x.example", False),
        ("Mail ida@x.example; otto@x.example can wait.", "otto@x.example", True),
        ("Mail otto@x.example, ida@x.example can wait.", "otto@x.example", False),
    ],
)
def test_what_is_mentioned_to_be_left_out(request_text: str, mail: str, is_marked: bool) -> None:
    """A value that is mentioned only to be excluded is marked, by the clause of each mention."""
    assert ("ruled_out" in names(request_text, "post_report", {"to": mail})) is is_marked


@pytest.mark.parametrize(
    ("request_text", "day", "is_marked"),
    [
        ("Fetch her on Thursday.", "2026-01-22", False),
        ("Fetch her on Thursday.", "2026-01-29", True),
        ("Fetch her next Thursday.", "2026-01-29", False),
        ("Fetch her on Thursday next week.", "2026-01-29", False),
        ("Fetch her on Monday.", "2026-01-26", False),
    ],
)
def test_a_bare_weekday_is_within_seven_days(request_text: str, day: str, is_marked: bool) -> None:
    """A bare weekday is within seven days, unless the request names a later week."""
    assert (
        "other_date" in names(request_text, "plan_pickup", {"day": day}, rules=TODAY)
    ) is is_marked


@pytest.mark.parametrize(
    ("request_text", "sailing", "is_marked"),
    [
        ("Take the ferry after 15:00.", "F-1", True),
        ("Take the ferry after 15:00.", "F-2", False),
        ("Take the ferry before 15:00.", "F-2", True),
        ("Take a ferry under 40 euros.", "F-2", True),
        ("Take a ferry under 40 euros.", "F-1", False),
        ("Take a ferry after 16:00.", "F-2", False),  # none is after 16:00, so nothing is marked
        ("Take the ferry at 14:10.", "F-1", False),
    ],
)
def test_a_record_within_the_bound_is_taken(
    request_text: str, sailing: str, is_marked: bool
) -> None:
    """A record beyond a time or price of the request is marked if another one keeps to it."""
    found = names(request_text, "reserve_ferry", {"sailing": sailing}, found=FERRIES)
    assert ("other_record" in found) is is_marked


@pytest.mark.parametrize(
    ("request_text", "shift", "is_marked"),
    [
        ("And Tom for the other one.", "late", True),
        ("And Tom for the other one.", "early", False),
        ("And Tom as well.", "late", False),
    ],
)
def test_the_other_one_of_two(request_text: str, shift: str, is_marked: bool) -> None:
    """The words "the other one" exclude the choice of the call before."""
    first = call_message("appoint", {"person": "Ilse", "shift": "late"}, "c0")
    result = {"role": "tool", "tool_call_id": "c0", "content": "ok"}
    messages = [{"role": "user", "content": "Ilse takes the late shift."}, first, result]
    messages.append({"role": "user", "content": request_text})
    parameters = {"type": "object", "properties": {"person": {"type": "string"}, **SHIFT}}
    tool = {"type": "function", "function": {"name": "appoint", "parameters": parameters}}
    call = call_message("appoint", {"person": "Tom", "shift": shift}, "c1")
    [noted] = call_notes(ToolUse(messages, [tool], call)) or ()
    assert ("other_choice" in {mark.name for mark in noted.marks}) is is_marked


@pytest.mark.parametrize(
    ("request_text", "minutes"),
    [
        ("Run it for an hour and a half.", 90),
        ("Run it for three quarters of an hour.", 45),
        ("Run it for a quarter of an hour.", 15),
        ("Run it for two and a half hours.", 150),
    ],
)
def test_lengths_in_words_are_read_in_minutes(request_text: str, minutes: int) -> None:
    """Lengths of time in words are read in minutes."""
    assert not names(request_text, "open_sluice", {"minutes": minutes}) & {"other_number"}


@pytest.mark.parametrize(
    ("request_text", "white", "black", "is_marked"),
    [
        ("Ferenc has white against Ana.", "Ferenc", "Ana", False),
        ("Ferenc has white against Ana.", "Ana", "Ferenc", True),
    ],
)
def test_a_verb_assigns_a_role(request_text: str, white: str, black: str, is_marked: bool) -> None:
    """A name that has, gets or plays a role belongs to the argument of that role."""
    found = names(request_text, "pair_players", {"white": white, "black": black})
    assert ("swapped" in found) is is_marked


@pytest.mark.parametrize(
    ("request_text", "tool", "arguments", "mark"),
    [
        ("Key 0417 went from Petra to Ben.", "note", {"by": "Petra", "to": "Ben"}, None),
        ("Key 0417 went from Petra to Ben.", "note", {"by": "Ben", "to": "Petra"}, "swapped"),
        ("Last quarter Ines sold 4. Pay Ines.", "pay", {"payee": "Ines", "quarter": "Q2"}, None),
        ("Then Winter instead of Lange.", "summon", {"jurors": ["Winter"]}, None),
        ("Then Winter instead of Lange.", "summon", {"jurors": ["Lange"]}, "ruled_out"),
        ("Then Winter instead of Lange.", "swap", {"replaced": "Lange", "new": "Winter"}, None),
    ],
)
def test_prepositions_assign_people(
    request_text: str, tool: str, arguments: Json, mark: str | None
) -> None:
    """The words "from", "to" and "instead of" show which person belongs where."""
    found = names(request_text, tool, arguments) & {"swapped", "ruled_out"}
    assert found == ({mark} if mark else set())


@pytest.mark.parametrize(
    ("articles", "is_marked"), [(["PE-17"], False), (["PE-17", "PE-18"], True)]
)
def test_a_list_has_no_more_than_was_described(articles: list[str], is_marked: bool) -> None:
    """A list with a record that the request does not describe is marked."""
    listed = [{"article": "PE-17", "batch": 2217}, {"article": "PE-18", "batch": 2218}]
    request = "Recall batch 2217."
    assert ("wider" in names(request, "recall", {"articles": articles}, found=listed)) is is_marked


@pytest.mark.parametrize(
    ("request_text", "flag", "wanted"),
    [
        ("He brings his own gear.", "rents_gear", False),
        ("She needs gear.", "rents_gear", None),
        ("Close it day and night.", "night_only", None),
        ("Close it at night.", "night_only", True),
    ],
)
def test_flags_by_what_somebody_has(request_text: str, flag: str, wanted: bool | None) -> None:
    """Having one's own means not to rent; "day and night" is not only the night."""
    for value in (True, False):
        found = names(request_text, "join_climb", {flag: value})
        assert ("other_choice" in found) is (wanted is not None and value is not wanted)


@pytest.mark.parametrize(
    ("request_text", "sailing", "is_marked"),
    [
        ("Take the cheaper one.", "F-2", True),
        ("Take the cheaper one.", "F-1", False),
        ("Take the later of the two.", "F-2", False),
        ("Take a cheaper tariff.", "F-2", False),
    ],
)
def test_the_better_of_two(request_text: str, sailing: str, is_marked: bool) -> None:
    """A comparative picks one of two records."""
    found = names(request_text, "reserve_ferry", {"sailing": sailing}, found=FERRIES)
    assert ("other_record" in found) is is_marked


@pytest.mark.parametrize(
    ("request_text", "stands", "is_marked"),
    [
        ("Thin the spruces, but keep your hands off the oaks.", ["9a"], False),
        ("Thin the spruces, but keep your hands off the oaks.", ["9a", "9b"], True),
        ("Thin the oaks, but spare the spruces.", ["9b"], False),
        ("Thin the oaks. Not today, though.", ["9b"], False),
    ],
)
def test_a_kind_that_is_left_out(request_text: str, stands: list[str], is_marked: bool) -> None:
    """Records of a kind that the request excludes are marked."""
    listed = [{"stand": "9a", "trees": "spruce"}, {"stand": "9b", "trees": "oak"}]
    found = names(request_text, "thin_forest", {"stands": stands}, found=listed)
    assert ("ruled_out" in found) is is_marked


@pytest.mark.parametrize(("candidate", "is_marked"), [("2231", False), ("2213", True)])
def test_another_id_than_the_named_one(candidate: str, is_marked: bool) -> None:
    """Another id than the one the user named is marked."""
    listed = [{"candidate": "2213"}, {"candidate": "2231"}]
    found = names("2231 gets 14.", "grade", {"candidate": candidate}, found=listed)
    assert ("other_record" in found) is is_marked


@pytest.mark.parametrize(("actor", "is_marked"), [("A-1", True), ("A-2", False), ("A-3", True)])
def test_a_property_that_must_not_hold(actor: str, is_marked: bool) -> None:
    """A record with an excluded property is marked, even if it is extreme."""
    listed = [
        {"actor": "A-1", "depth": 9, "away": True},
        {"actor": "A-2", "depth": 7, "away": False},
        {"actor": "A-3", "depth": 2, "away": False},
    ]
    found = names("The deepest voice that isn't away.", "hire", {"actor": actor}, found=listed)
    assert ("other_record" in found) is is_marked


@pytest.mark.parametrize(("degrees", "is_said"), [(270, True), (90, False)])
def test_points_of_the_compass_are_degrees(degrees: int, is_said: bool) -> None:
    """Points of the compass are degrees, for arguments that are directions."""
    found = names("Point it due west.", "turn", {"azimuth_degrees": degrees})
    assert ("not_in_conversation" in found) is not is_said


def test_what_stays_open_is_not_closed() -> None:
    """The words "it can stay open" mean not to close it."""
    request = "Put chlorine into the pool, it can stay open."
    for value in (True, False):
        assert ("other_choice" in names(request, "dose", {"close_pool": value})) is value


@pytest.mark.parametrize(("amount", "is_marked"), [(480, False), (400, True), (1.2, True)])
def test_an_amount_is_the_product(amount: float, is_marked: bool) -> None:
    """The amount of several is count times price, not one of both."""
    request = "She sold 400 copies at 1.20 each, pay her."
    assert ("other_number" in names(request, "pay_author", {"amount": amount})) is is_marked


@pytest.mark.parametrize(("day", "is_marked"), [("2026-01-22", False), ("2026-01-24", True)])
def test_the_day_before_another(day: str, is_marked: bool) -> None:
    """The day before a named day is known, on the right side of it."""
    request = "It is needed by Friday, come the day before."
    found = names(request, "plan_visit", {"day": day}, rules=TODAY)
    assert bool(found & {"other_date", "not_in_conversation"}) is is_marked


def test_nobody_is_written_to_without_need() -> None:
    """The words "no need to write" mean not to notify."""
    request = "Renew it. Dr. Weiss knows already, no need to write to her."
    for value in (True, False):
        found = names(request, "extend_patent", {"notify_inventor": value})
        assert ("other_choice" in found) is value


def test_huge_requests_are_read_in_a_moment() -> None:
    """A huge request of exclusions and bounds, with as many values, is read."""
    request = "not a@b.example, " * 20_000 + "after 15:00 " * 20_000
    arguments = {"to": [f"a{n}@b.example" for n in range(500)]}
    assert json.dumps(sorted(names(request, "post_report", arguments)))
