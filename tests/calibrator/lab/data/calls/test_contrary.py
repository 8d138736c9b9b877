"""Calls that do the contrary of the request, or do it to more than it names."""

from __future__ import annotations

from typing import Any

import pytest

from calibrator import ToolUse
from calibrator.lab.data.calls.contraries import commands
from tests.calibrator.readers.calls.conversations import call_message, earlier_call, tool, traits


def calling(request: str, name: str, arguments: dict[str, Any], before: Any = ()) -> Any:
    """Return the traits of a call after one request."""
    takes = dict.fromkeys(arguments, "string")
    messages = [{"role": "user", "content": request}, *before]
    return traits(ToolUse(messages, [tool(name, takes)], call_message(name, arguments)))


@pytest.mark.parametrize(
    ("request_", "name", "value", "trait"),
    [
        ("Dim the north lantern.", "dim_lantern", "south lantern", "contrary_value"),
        ("Mute the organ.", "unmute_instrument", "organ", "contrary_tool"),
        ("Pack kilns/red/cups.", "pack", "kilns/red", "path_above"),
    ],
)
def test_the_contrary_is_seen(request_: str, name: str, value: str, trait: str) -> None:
    """A contrary word, a contrary verb and a parent folder are found."""
    assert calling(request_, name, {"target": value})[trait] == 1


def test_words_of_the_request_are_not_contrary() -> None:
    """Words of the request raise nothing, even beside their contrary."""
    found = calling("Dim the north lantern, not the south one.", "dim", {"name": "north lantern"})
    assert found["contrary_value"] == found["contrary_tool"] == 0
    assert calling("Pack kilns/red/cups.", "pack", {"path": "kilns/red/cups"})["path_above"] == 0


@pytest.mark.parametrize(
    ("request_", "argument", "right", "wrong"),
    [
        ("Fire the kiln for 40 minutes.", "minutes", 40, 55),
        ("Fire the kiln for half an hour.", "minutes", 30, 60),
        ("Fire the kiln for 2 hours.", "minutes", 120, 60),
        ("Order 7 pieces.", "pieces", 7, 9),
    ],
)
def test_a_measure_has_its_unit(request_: str, argument: str, right: int, wrong: int) -> None:
    """A number is compared with the request's in the same unit or another."""
    assert calling(request_, "act", {argument: right})["measure_wrong"] == 0
    assert calling(request_, "act", {argument: wrong})["measure_wrong"] == 1


def test_values_under_each_others_names_are_seen() -> None:
    """Values that stood under each other's names before are found."""
    before = earlier_call("list_casts", {}, '[{"mould": "swan", "glaze": "ash"}]')
    right, wrong = {"mould": "swan", "glaze": "ash"}, {"mould": "ash", "glaze": "swan"}
    assert calling("Cast the ash swan.", "cast", right, before)["crossed"] == 0
    assert calling("Cast the ash swan.", "cast", wrong, before)["crossed"] == 1


@pytest.mark.parametrize(
    ("request_", "line", "trait"),
    [
        ("Set the glaze of mould 4 to 7.", "UPDATE moulds SET glaze = 7", "rows_unbounded"),
        ("Strike mould 4.", "DELETE FROM moulds WHERE id <> 4", "rows_loose"),
        ("Strike mould 4.", "DROP TABLE moulds", "table_dropped"),
        ("Throw away casts/old.", "rm -r casts/*", "whole_wiped"),
        ("Publish the glaze branch.", "git push --force origin glaze", "forced"),
        ("Which moulds are there?", "rm moulds", "changing_for_look"),
        ("The moulds with the highest glaze", "SELECT * FROM m ORDER BY glaze ASC", "order_turned"),
        ("The average glaze of moulds", "SELECT sum(glaze) FROM m", "aggregate_other"),
        ("All moulds above 20", "SELECT * FROM moulds", "unfiltered"),
    ],
)
def test_commands_that_do_more_are_seen(request_: str, line: str, trait: str) -> None:
    """Queries and commands that do more than the request are found, each by its trait."""
    assert calling(request_, "console", {"input": line})[trait] == 1


def test_scenes_of_commands_have_a_right_and_a_wrong_reply() -> None:
    """Scenes of commands have a right and a wrong reply, the same for a seed."""
    found = list(commands(40, 1))
    assert found == list(commands(40, 1))
    for right, wrong in zip(found[::2], found[1::2], strict=True):
        assert (right.correct, wrong.correct) == (1, 0)
        assert right.used.messages == wrong.used.messages
        assert right.used.message != wrong.used.message
