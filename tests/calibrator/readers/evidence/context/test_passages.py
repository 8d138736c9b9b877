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
    """The sentences that are closest to a reply are found."""
    found = Passages([POLICY]).closest_units([("You can return it within 30 days.", 1.0)], 14)
    assert found[0] == "Returns are accepted within 30 days of purchase."
    assert not any("Dogs" in each for each in found)


def test_a_short_context_is_whole_and_in_order() -> None:
    """A short context is returned whole and in order."""
    found = Passages([POLICY]).closest_units([("anything", 1.0)], 500)
    assert found[0] == "Our shop opens at nine."
    assert found[-1] == "Dogs are welcome on a lead."


def test_a_row_brings_its_header() -> None:
    """A row of a table comes with its header."""
    rows = "\n".join(f"| city {at} | {at * 7} | {at * 13} |" for at in range(60))
    table = f"| name | area | people |\n|---|---|---|\n{rows}"
    found = Passages([table]).closest_units([("city 41 has 533 people", 1.0)], 12)
    assert found == ["| name | area | people |", "| city 41 | 287 | 533 |"]


def test_what_is_beyond_the_bound_is_reported() -> None:
    """A context that is not read to its end is reported as incomplete."""
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
    """Separators of thousands and trailing zeros make no other number."""
    assert number_of(word) == number


def test_forms_of_a_word_share_a_stem() -> None:
    """Plural and past forms have the same stem, and short words stay whole."""
    assert {stem("returns"), stem("returned"), stem("returning")} == {"return"}
    assert stem("was") == "was"


@given(st.text(max_size=300), st.text(max_size=60))
def test_any_text_can_be_searched(document: str, query: str) -> None:
    """Any text can be searched, with no more words than wanted."""
    found = Passages([document]).closest_units([(query, 1.0)], 20)
    assert sum(len(words_of(each)) for each in found) <= 20


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "| " * 60_000, "\n" * 200_000, ". " * 60_000, "1," * 60_000]
)
def test_hostile_contexts_take_linear_time(text: str) -> None:
    """Hostile contexts are cut and searched within two seconds."""
    began = time.process_time()
    Passages([text]).closest_units([("a | 1", 1.0)], 50)
    assert time.process_time() - began < 2
