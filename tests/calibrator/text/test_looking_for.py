"""Patterns that are passed over are those that match nowhere."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from calibrator.features.traits import _FINAL, _REFUSAL
from calibrator.inspection.wanted import _ASKED, _SAID
from calibrator.text.addressed_text import _IN_FAVOUR
from calibrator.text.looking_for import Reading, Sought, at_lines, beyond_ascii

SOUGHT = [
    _FINAL, _REFUSAL, _IN_FAVOUR, *(each for each in (*_ASKED, *_SAID) if isinstance(each, Sought))
]  # fmt: skip
WORDS = sorted({word for each in SOUGHT for word in re.findall(r"\w+", each.pattern.pattern)})
# with letters that match others where case is ignored, and one that grows when it is lowered
ODD = ["\u017f", "\u0130", "\u0131", "\u212a"]
PARTS = st.sampled_from([*WORDS, *ODD, " ", ".", "?", "'", "\n", "5", "-"])
TEXTS = st.lists(PARTS | st.text(max_size=3), max_size=8).map("".join)


@given(TEXTS)
def test_no_pattern_is_passed_over_that_matches(text: str) -> None:
    """Whatever the text, a pattern is found if and only if the bare pattern finds it."""
    reading = Reading(text)
    for each in SOUGHT:
        assert each.is_in(reading) == bool(each.pattern.search(text)), each.pattern.pattern
    assert _FINAL.all_in(reading) == _FINAL.pattern.findall(text)


@given(TEXTS)
def test_a_reading_is_what_patterns_find(text: str) -> None:
    """Words, beginnings of words and numbers are those of the patterns that they stand for."""
    reading = Reading(text)
    assert reading.in_order == re.findall(r"\w+", text.lower())
    runs = re.findall(r"[^\W\d_]+", text.lower())
    assert reading.beginnings == {run[:6] for run in runs if len(run) > 2}
    assert reading.numbers == re.findall(r"-?\d+(?:[.,]\d+)*", text)
    assert beyond_ascii(text) == sum(ord(character) > 127 for character in text)


@given(TEXTS)
def test_lines_are_looked_at_alone(text: str) -> None:
    """A pattern that begins with a line is found at each line where it is found in the text."""
    pattern = re.compile(r"(?m)^[ \t]*\w+[.?]")
    found = [each.span() for each in at_lines(pattern, text)]
    assert found == [each.span() for each in pattern.finditer(text)]
