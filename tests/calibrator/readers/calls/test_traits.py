"""Traits of calls: the origin of values, the intended record, the steps before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrator import ToolUse
from calibrator.readers.calls.model import read_call
from calibrator.readers.calls.reading.conversation import view_of
from calibrator.readers.calls.reading.sources import Source, _unwrap_text
from calibrator.readers.calls.reading.steps import _share_of_nothing
from calibrator.readers.calls.reading.traits import NAMES, TRAITS
from calibrator.readers.calls.reading.values import value_at
from tests.calibrator.readers.calls.conversations import BOATS, RIGHT, earlier_call, renting, traits


def test_a_date_matches_only_with_its_time() -> None:
    """A date matches only with its time; midnight means that there is no time."""
    source = Source.from_texts("Book it for 2026-03-04 at 14:30, please.")
    assert source.holds(value_at("when", "2026-03-04T14:30"))
    assert not source.holds(value_at("when", "2026-03-04T09:15"))
    assert not source.holds(value_at("when", "2026-03-05T14:30"))
    assert source.holds(value_at("when", "2026-03-04T00:00"))


def test_looks_alone_can_find_nothing() -> None:
    """Only look-ups count as finding nothing, not changes."""
    look = replace(view_of(renting()).earlier[0], name="find_boat", result="[]")
    change = replace(look, name="delete_boat", result="done")
    assert _share_of_nothing([look, change]) == 1
    assert _share_of_nothing([change]) == 0


def test_a_plain_right_call_raises_no_alarm() -> None:
    """A plain right call raises none of the traits of faults."""
    found = traits(renting())
    for name in (
        "unfound", "placeholder", "number_invented", "same_again", "weekday_wrong", "order_wrong",
        "limit_passed", "required_missing", "type_wrong", "unknown_tool", "write_unlooked",
        "argument_unknown", "unreadable", "year_off", "named_day_wrong",
    ):  # fmt: skip
        assert found[name] == 0, name
    assert found["record_gap"] < 0


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({**RIGHT, "boat_id": "B-77"}, "id_unfound"),
        ({**RIGHT, "hours": 11}, "number_unfound"),
        ({**RIGHT, "hours": 173}, "number_invented"),
        ({**RIGHT, "day": "2031-07-19"}, "named_day_wrong"),
        ({**RIGHT, "day": "2031-02-30"}, "date_unreal"),
        ({**RIGHT, "day": "2038-07-10"}, "year_off"),
        ({**RIGHT, "boat_id": "your_boat_id"}, "placeholder"),
        ({**RIGHT, "hours": "three"}, "type_wrong"),
        ({**RIGHT, "colour": "red"}, "argument_unknown"),
        ({"boat_id": "B-29"}, "required_missing"),
        ({**RIGHT, "day": ""}, "empty"),
    ],
)
def test_a_value_that_is_off_is_seen(values: dict[str, object], name: str) -> None:
    """Each fault raises its trait above the right call's."""
    assert traits(renting(values))[name] > traits(renting())[name]


def test_the_record_is_compared_with_what_was_named() -> None:
    """The id of another record than the named one fits worse."""
    wrong = traits(renting({**RIGHT, "boat_id": "B-41"}))
    assert wrong["record_gap"] > 0 > traits(renting())["record_gap"]


def test_the_cheapest_is_the_one_that_costs_least() -> None:
    """The cheapest record of a list is found if the user asks for it."""
    question = "Rent the cheapest boat by price on 10 July 2031 for 3 hours."
    right = traits(renting(request=question))
    wrong = traits(renting({**RIGHT, "boat_id": "B-41"}, request=question))
    assert (right["extreme"], right["extreme_missed"]) == (1, 0)
    assert (wrong["extreme"], wrong["extreme_missed"]) == (0, 1)


@pytest.mark.parametrize(
    ("request_text", "hours"),
    [("for 180 minutes, in hours", 3), ("for three hours", 3), ("for half of 8 hours", 4)],
)
def test_numbers_that_follow_are_not_invented(request_text: str, hours: int) -> None:
    """A number in words, in another unit or computed from known numbers counts as found."""
    question = f"Rent the Pike on 10 July 2031 {request_text}."
    found = traits(renting({**RIGHT, "hours": hours}, request=question))
    assert found["number_unfound"] == 0 or found["number_converted"] or found["number_computed"]


def test_a_weekday_is_a_day() -> None:
    """The words "next Thursday" mean the Thursday after today."""
    question = "Rent the Pike next Thursday for 3 hours."
    assert traits(renting(request=question))["weekday_wrong"] == 0
    assert traits(renting({**RIGHT, "day": "2031-07-11"}, request=question))["weekday_wrong"] == 1


@pytest.mark.parametrize(
    ("begin", "end"),
    [("start_date", "end_date"), ("from", "to"), ("valid.after", "valid.before"),
     ("checkin", "checkout"), ("min_day", "max_day")],
)  # fmt: skip
def test_what_ends_before_it_begins_is_off(begin: str, end: str) -> None:
    """A range that ends before it begins is found under any pair of names."""
    early, late = "2031-07-10", "2031-07-12"
    for first, last, is_off in ((late, early, 1), (early, late, 0), (early, early, 0)):
        found = traits(renting({**RIGHT, begin: first, end: last}))
        assert found["order_wrong"] == is_off, (first, last)
    assert traits(renting({**RIGHT, begin: late}))["order_wrong"] == 0


def test_what_was_quoted_and_not_taken() -> None:
    """The trait is the share of quoted texts that no argument has."""
    for quoted, share in (("'Otter Bay'", 1), ("'Otter Bay' or 'Pike Hill'", 1), ("'b-29'", 0),
                          ("'Otter Bay', 'Heron Pier' or 'B-29'", 2 / 3), ("", 0)):  # fmt: skip
        found = traits(renting(request=f"Rent the Pike on 10 July 2031 for 3 hours. {quoted}"))
        assert found["quotes_left"] == pytest.approx(share), quoted


def test_turns_are_the_users() -> None:
    """Each message of the user is a turn; messages of tools and of the model are none."""
    more = [{"role": "assistant", "content": "Which day?"}, {"role": "user", "content": "Today."}]
    for count in range(3):
        found = traits(
            renting(before=[*earlier_call("find_boats", {"query": "Pike"}, BOATS), *more * count])
        )
        assert found["turns"] == pytest.approx(np.log1p(1 + count))


def test_steps_before_the_call() -> None:
    """The same call again and a change without a look-up are found."""
    looked = earlier_call("find_boats", {"query": "Pike"}, BOATS)
    again = traits(renting(before=[*looked, *earlier_call("rent_boat", RIGHT, "Rented.", 2)]))
    refused = traits(
        renting(before=[*looked, *earlier_call("rent_boat", RIGHT, "Error: closed", 2)])
    )
    assert again["same_again_after_success"] == refused["same_again_after_error"] == 1
    assert again["same_again_after_error"] == refused["same_again_after_success"] == 0
    assert traits(renting(before=[]))["write_unlooked"] == 1


def test_a_tool_that_was_not_offered() -> None:
    """A tool that was not offered is unknown."""
    assert traits(renting(name="sink_boat"))["unknown_tool"] == 1


def test_names_and_tools_are_no_trait() -> None:
    """Traits do not depend on the names of tools or things."""
    assert not any("boat" in name for name in NAMES)
    assert len(set(NAMES)) == TRAITS


def test_the_worst_call_counts() -> None:
    """Of several calls the worst one counts."""
    used = renting()
    wrong = renting({**RIGHT, "boat_id": "B-77"}).message["tool_calls"]
    both = {**used.message, "tool_calls": [*used.message["tool_calls"], *wrong]}
    assert traits(ToolUse(used.messages, used.tools, both))["id_unfound"] == 1


def test_the_same_reply_has_the_same_traits() -> None:
    """Reading the same reply twice gives the same traits and changes no conversation."""
    used, twin = renting(), renting()
    assert np.array_equal(read_call(used)[0], read_call(used)[0])
    assert used == twin


def test_records_with_a_type_are_no_envelope_of_a_tool_server() -> None:
    """Only parts that all have text are the envelope of a tool server."""
    assert _unwrap_text([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]) == "a\nb"
    for content in ([{"type": "invoice", "id": 5}], {"type": "invoice"}, [1, 2], [], 7):
        assert _unwrap_text(content) is None
