"""Patterns that are skipped are those that match nowhere."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from calibrator.features import checks, traits
from calibrator.features.traits import _FINAL, _HEDGE, _REFUSAL
from calibrator.readers.inspection import wanted, working
from calibrator.text import options
from calibrator.text.looking_for import PatternGroup, PreparedText, at_lines, beyond_ascii
from calibrator.text.stripping import _IN_FAVOUR

SOUGHT = [
    _FINAL, _REFUSAL, _HEDGE, _IN_FAVOUR, wanted._ASKS_ON, wanted._SUM, wanted._PRICE,
    working.RESULT, working._EQUALS, working._NOT,
    *wanted._QUESTION_TESTS.patterns, *wanted._ANSWER_TESTS.patterns,
]  # fmt: skip
assert len(SOUGHT) > 20
WORDS = sorted({word for each in SOUGHT for word in re.findall(r"\w+", each.pattern.pattern)})
# With letters that match others if case is ignored, and one that grows in lower case
ODD = ["\u017f", "\u0130", "\u0131", "\u212a"]
PARTS = st.sampled_from([*WORDS, *ODD, " ", ".", "?", "'", "\n", "5", "-"])
TEXTS = st.lists(PARTS | st.text(max_size=3), max_size=8).map("".join)


@given(TEXTS)
def test_no_pattern_is_passed_over_that_matches(text: str) -> None:
    """A pattern is found exactly where the bare pattern is found."""
    reading = PreparedText(text)
    for each in SOUGHT:
        assert each.is_in(reading) == bool(each.pattern.search(text)), each.pattern.pattern
    assert PatternGroup(*SOUGHT).are_in(reading) == [each.is_in(reading) for each in SOUGHT]
    assert _FINAL.all_in(reading) == _FINAL.pattern.findall(text)


# Texts that match some pattern or nearly do, and beginnings and ends of lines and sentences
SHAPED = st.lists(
    st.sampled_from(
        [
            *("Ann Lee", "ann Lee", "Ann ", "B. ", "É", "ü", "1984", "x1984", "2084_", "20"),
            *("5", "5%", "7 km", "7  km", "9 M", "3 PERCENT", "3\u2003m"),
            *("A) ", "(b. one", "C: two", " (D) ", "e.g. ", "\n", "\r", "\t", "\x1f"),
            *(". ", "? ", "! ", "Is it", "will", "so?", "."),
        ]
    ),
    max_size=9,
).map("".join)


@given(SHAPED)
def test_no_text_is_passed_over_for_its_shape(text: str) -> None:
    """Texts that are skipped by their signs match no pattern."""
    reading = PreparedText(text)
    assert wanted._is_person(reading) == wanted._at_word(wanted._PERSON, text)
    assert wanted._is_year(reading) == wanted._at_word(wanted._YEAR, text)
    amounts = wanted._AMOUNT.search(text) or wanted._PRICE.pattern.search(text)
    assert wanted._is_amount(reading) == bool(amounts)
    assert wanted._asks_on(reading) == bool(wanted._ASKS_ON.pattern.search(text))
    for pattern in (wanted._OPTION, options._OPTION, checks._OPTION):
        assert reading.may_list_options or not pattern.search(text)
    assert traits._MAY_NAME_OPTION.may_be_in(text) or not traits._OPTION.search(text)


@given(TEXTS)
def test_a_reading_is_what_patterns_find(text: str) -> None:
    """Words, their beginnings and numbers equal the matches of the patterns."""
    reading = PreparedText(text)
    assert reading.in_order == re.findall(r"\w+", text.lower())
    runs = re.findall(r"[^\W\d_]+", text.lower())
    assert reading.beginnings == {run[:6] for run in runs if len(run) > 2}
    assert reading.numbers == re.findall(r"-?\d+(?:[.,]\d+)*", text)
    assert reading.digits == [run.start() for run in re.finditer(r"\d+", text)]
    assert beyond_ascii(text) == sum(ord(character) > 127 for character in text)


@given(TEXTS)
def test_lines_are_looked_at_alone(text: str) -> None:
    """A pattern that begins with a line is found at the same lines."""
    pattern = re.compile(r"(?m)^[ \t]*\w+[.?]")
    found = [each.span() for each in at_lines(pattern, text)]
    assert found == [each.span() for each in pattern.finditer(text)]
