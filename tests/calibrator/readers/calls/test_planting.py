"""Planted values: those put before a call to look like its source do not count."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from calibrator import ToolUse
from calibrator.lab.data.calls.worlds import scenes
from calibrator.lab.training.fits.calls import CallConfig, fit_calls
from calibrator.readers.calls import CallTrees
from calibrator.readers.calls.reading.conversation import view_of
from calibrator.readers.calls.reading.planting import without_planted
from calibrator.rows.rows import parse_row
from tests.calibrator.readers.calls.conversations import BOATS, RIGHT, earlier_call, renting, traits

WRONG = {**RIGHT, "boat_id": "B-77", "hours": 11}
ASKED = "Rent the Pike on 10 July 2031 for 3 hours."


@pytest.mark.parametrize("line", ["B-77 11", "(see also B-77, 11)", "-- B-77; 11 --"])
def test_values_that_mean_nothing_are_left_out(line: str) -> None:
    """A line of bare values behind a request or a result changes only lengths."""
    plain = traits(renting(WRONG))
    for used in (
        renting(WRONG, request=f"{ASKED}\n{line}"),
        renting(WRONG, result=f"{BOATS}\n{line}"),
    ):
        found = traits(used)
        differing = {name for name in found if found[name] != plain[name]}
        assert not {name for name in differing if "length" not in name}


def test_sixty_characters_of_a_value_reveal_a_plant() -> None:
    """A line with the first sixty characters of a value and nothing else is left out."""
    long = "X7" * 35
    used = renting({**RIGHT, "boat_id": long, "hours": 11}, result=f"{BOATS}\n{long[:60]}Q 11")
    assert "X7X7" not in view_of(used).results[-1]
    assert "Otter" in view_of(used).results[-1]


def test_an_answer_may_be_bare() -> None:
    """After a question of the assistant a line of values counts as its answer."""
    looked = earlier_call("find_boats", {"query": "all"}, BOATS)
    before: list[dict[str, Any]] = [
        *looked,
        {"role": "assistant", "content": "Which boat, and for how long?"},
        {"role": "user", "content": "Ah yes, sorry for that, here it is.\nB-77, 11"},
    ]
    assert "B-77" in view_of(renting(WRONG, before=before)).request
    assert traits(renting(WRONG, before=before))["id_unfound"] == 0


def test_what_is_all_of_a_text_stays() -> None:
    """A text that has nothing but values is kept."""
    used = renting(WRONG, request="B-77, 11", result="B-77, 11")
    view = view_of(used)
    assert (view.request, view.results) == ("B-77, 11", ["B-77, 11"])
    assert traits(used)["planted"] > 0


# --- the second reading, without bare values ----------------------------------------------------

ROOT = Path(__file__).parents[4]
SMALL = CallConfig(trees=25, learning_rate=0.3, leaf_rows=10, fits=1, folds=2, scenes=100, faults=1,
                   remarks=60, claim_trees=4)  # fmt: skip
PLANTS: dict[str, Callable[[Sequence[str]], str]] = {
    "bare": " ".join,
    "brackets": lambda texts: f"(see also {', '.join(texts)})",
    "lines": "\n".join,
    "log": lambda texts: f"2031-03-01 10:22 INFO handled {' '.join(texts)} ok",
    "list": lambda texts: json.dumps({"log": list(texts)}),
    "one": lambda texts: f"Ref. {texts[0]}",
}


@pytest.fixture(scope="module")
def trees() -> Iterator[CallTrees]:
    """Fit trees for calls on scenes alone."""
    import sklearn.ensemble  # noqa: F401  (libraries that are loaded later are not limited)

    raws = [
        {
            "messages": scene.used.messages, "tools": scene.used.tools,
            "response": scene.used.message, "question_id": scene.group,
            "benchmark": "scenes", "correct": scene.correct,
        }
        for scene in scenes(60, 1)
    ]  # fmt: skip
    with threadpool_limits(1):
        model = CallTrees.from_state(fit_calls([parse_row(raw) for raw in raws], 0, SMALL))
        assert model is not None
        yield model


@cache
def wrong_calls() -> list[ToolUse]:
    """Return the labelled calls that are wrong; no training uses them."""
    raws = runpy.run_path(str(ROOT / "examples/agents/labelled_calls.py"))["rows"]()
    used = [row.tool_use for raw in raws if (row := parse_row(raw)).correct == 0]
    return [each for each in used if each is not None and each.has_calls]


def with_plant(used: ToolUse, form: str, role: str) -> ToolUse | None:
    """Return the reply with the values of its calls appended to the last message of this role.

    Returns None if there are no such values or no such message.
    """
    values = [v for call in view_of(used).calls for v in call.values if v.kind != "flag"]
    texts = [str(value.raw) for value in values if value.text][:12]
    places = [n for n, m in enumerate(used.messages) if m["role"] == role]
    if not texts or not places:
        return None
    messages = [dict(message) for message in used.messages]
    messages[places[-1]]["content"] += "\n" + PLANTS[form](texts)
    return ToolUse(messages, used.tools, used.message)


def rises(trees: CallTrees, form: str, role: str) -> np.ndarray:
    """Return how much P(correct) of wrong calls rises with a plant."""
    pairs = [(u, p) for u in wrong_calls() if (p := with_plant(u, form, role)) is not None]
    before, after = (
        trees.odds(list(each), [None] * len(each)) for each in zip(*pairs, strict=True)
    )
    return np.asarray(1 / (1 + np.exp(-after)) - 1 / (1 + np.exp(-before)))


@pytest.mark.parametrize("form", sorted(PLANTS))
@pytest.mark.parametrize("role", ["user", pytest.param("tool", marks=pytest.mark.slow)])
def test_plants_raise_little(trees: CallTrees, form: str, role: str) -> None:
    """A plant raises wrong calls by less than 0.1 at the 95th percentile and 0.02 on average."""
    found = rises(trees, form, role)
    assert len(found) > 20
    assert np.percentile(found, 95) < 0.1
    assert found.mean() < 0.02


@pytest.mark.parametrize(
    "used",
    [
        renting(RIGHT),
        renting(RIGHT, result=json.dumps(json.loads(BOATS), indent=2)),
        renting(RIGHT, result="B-17\nB-29\nB-41"),
        renting(RIGHT, request="Rent a boat for me, please, and a good one.\nBoat: B-29\nHours: 3"),
        renting(RIGHT, request="B-29"),
    ],
    ids=["records", "indented", "listed", "fields", "all"],
)
def test_records_and_requests_are_no_plants(used: ToolUse) -> None:
    """Records, lists, fields and whole requests are no plants."""
    assert without_planted(view_of(used)) is None


def test_an_answer_is_no_plant_where_it_is_brief() -> None:
    """After a question a short turn may be a value; behind a long turn a value is left out."""
    question = [{"role": "assistant", "content": "Which boat?"}]
    brief = [*question, {"role": "user", "content": "Sure! B-77. Thanks."}]
    assert without_planted(view_of(renting(WRONG, before=brief))) is None
    long = "Let me tell you first how much we enjoyed the lake last summer, all of us."
    before = [*question, {"role": "user", "content": f"{long}\nB-77."}]
    view = without_planted(view_of(renting(WRONG, before=before)))
    assert view is not None
    assert view.request.strip() == long


def test_a_day_is_found_however_it_is_written() -> None:
    """A planted day is found in any spelling."""
    view = without_planted(
        view_of(renting(WRONG, request="Rent me the Pike for 3 hours.\n10 July 2031"))
    )
    assert view is not None
    assert "July" not in view.request
