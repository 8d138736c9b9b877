"""Long contexts are cut into units, and those closest to a reply are found."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator.readers.evidence.context.passages import (
    MAX_CONTEXT,
    Passages,
    number_of,
    stem,
    words_of,
)

POLICY = """Our shop opens at nine. Returns are accepted within 30 days of purchase.
Sale items cannot be returned. Delivery to Norway costs 12 euros.
The café on the first floor serves lunch until 14:30. Dogs are welcome on a lead."""


def test_the_closest_sentence_is_found() -> None:
    """A reply about returns brings the sentences on returns, not those on dogs."""
    found = Passages([POLICY]).closest_units([("You can return it within 30 days.", 1.0)], 14)
    assert found[0] == "Returns are accepted within 30 days of purchase."
    assert not any("Dogs" in each for each in found)


def test_a_short_context_is_whole_and_in_order() -> None:
    """What fits is returned as it is, without a choice."""
    found = Passages([POLICY]).closest_units([("anything", 1.0)], 500)
    assert found[0] == "Our shop opens at nine."
    assert found[-1] == "Dogs are welcome on a lead."


def test_a_row_brings_its_header() -> None:
    """A row of a table means little without the names of its columns."""
    rows = "\n".join(f"| city {at} | {at * 7} | {at * 13} |" for at in range(60))
    table = f"| name | area | people |\n|---|---|---|\n{rows}"
    found = Passages([table]).closest_units([("city 41 has 533 people", 1.0)], 12)
    assert found == ["| name | area | people |", "| city 41 | 287 | 533 |"]


def test_what_is_beyond_the_bound_is_reported() -> None:
    """A context that was not read to its end is not complete."""
    assert Passages(["word " * 100]).is_complete
    found = Passages(["a sentence. " * 6_000])
    assert not found.is_complete
    assert sum(len(unit.text) for unit in found.units) <= MAX_CONTEXT


@pytest.mark.parametrize(
    ("word", "number"),
    [("1,000", "1000"), ("1.000.000", "1000000"), ("2.50", "2.5"), ("two", "2"), ("14:30", "14:30"),
     ("house", ""), ("007", "007")],
)  # fmt: skip
def test_numbers_have_one_spelling(word: str, number: str) -> None:
    """Separators of thousands and trailing zeros do not make another number."""
    assert number_of(word) == number


def test_forms_of_a_word_share_a_stem() -> None:
    """Plural and past forms count as the same word; short words stay whole."""
    assert {stem("returns"), stem("returned"), stem("returning")} == {"return"}
    assert stem("was") == "was"


@given(st.text(max_size=300), st.text(max_size=60))
def test_any_text_can_be_searched(document: str, query: str) -> None:
    """Whatever the text, units are found in it, and no more words than were asked for."""
    found = Passages([document]).closest_units([(query, 1.0)], 20)
    assert sum(len(words_of(each)) for each in found) <= 20


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "| " * 60_000, "\n" * 200_000, ". " * 60_000, "1," * 60_000]
)
def test_hostile_contexts_take_linear_time(text: str) -> None:
    """A long context of any shape is cut and searched within a second on a slow machine."""
    began = time.process_time()
    Passages([text]).closest_units([("a | 1", 1.0)], 50)
    assert time.process_time() - began < 2
