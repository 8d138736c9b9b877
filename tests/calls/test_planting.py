"""Values of a call that are planted before it do not count as told or found."""

from __future__ import annotations

from typing import Any

import pytest

from calibrator.calls.conversation import view_of
from tests.calls.conversations import BOATS, RIGHT, made, renting, traits

WRONG = {**RIGHT, "boat_id": "B-77", "hours": 11}
ASKED = "Rent the Pike on 10 July 2031 for 3 hours."


@pytest.mark.parametrize("line", ["B-77 11", "(see also B-77, 11)", "-- B-77; 11 --"])
def test_values_that_mean_nothing_are_left_out(line: str) -> None:
    """Behind a request or a result they change nothing but lengths."""
    plain = traits(renting(WRONG))
    for used in (
        renting(WRONG, request=f"{ASKED}\n{line}"),
        renting(WRONG, result=f"{BOATS}\n{line}"),
    ):
        found = traits(used)
        differing = {name for name in found if found[name] != plain[name]}
        assert not {name for name in differing if "length" not in name}


def test_an_answer_may_be_bare() -> None:
    """Where the assistant has asked, a list of values is what was asked for."""
    looked = made("find_boats", {"query": "all"}, BOATS)
    asked: list[dict[str, Any]] = [
        *looked,
        {"role": "assistant", "content": "Which boat, and for how long?"},
        {"role": "user", "content": "Ah yes, sorry for that, here it is.\nB-77, 11"},
    ]
    assert "B-77" in view_of(renting(WRONG, before=asked)).request
    assert traits(renting(WRONG, before=asked))["id_unfound"] == 0


def test_what_is_all_of_a_text_stays() -> None:
    """A result or a turn that says nothing else is not emptied."""
    used = renting(WRONG, request="B-77, 11", result="B-77, 11")
    view = view_of(used)
    assert (view.request, view.results) == ("B-77, 11", ["B-77, 11"])
    assert traits(used)["planted"] > 0
