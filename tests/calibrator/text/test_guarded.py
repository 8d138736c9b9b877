"""Guarded patterns match exactly where the patterns match."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import calibrator.embedded.evidence  # noqa: F401  # makes the patterns of all checks
from calibrator.text.guarded import SHORT, GuardedPattern, compile_guarded, needles_of
from calibrator.text.looking_for import letters_in, reading_of

CASES = Path(__file__).parents[1] / "evidence/computed/cases"
GUARDED = [each for each in gc.get_objects() if type(each) is GuardedPattern]
assert len(GUARDED) > 200
NEEDLES = sorted({each for one in GUARDED for kind in needles_of(one.pattern) for each in kind})
# Letters and digits whose case or kind `lower` or ASCII does not show, and signs beyond ASCII
ODD = ["\u017f", "\u0130", "\u0131", "\u212a", "\u0665", "ß", "É", "\u2019", "文", "_"]
PARTS = st.sampled_from([*NEEDLES, *ODD, " ", " ", ". ", "?", "\n", "7", "%", '"'])
TEXTS = st.lists(PARTS, max_size=12).map(lambda parts: "".join(parts) + " " * SHORT)


@given(TEXTS, st.booleans())
def test_no_guarded_pattern_is_passed_over_that_matches(text: str, is_upper: bool) -> None:
    """A guarded pattern is never skipped in a text that it matches."""
    text = text.upper() if is_upper else text
    passed_over = [each for each in GUARDED if not each.may_match(text)]
    assert [each.pattern.pattern for each in passed_over if each.pattern.search(text)] == []


@pytest.mark.parametrize("table", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_no_labelled_example_is_passed_over(table: Path) -> None:
    """No pattern that matches is skipped in the labelled examples."""
    for case in yaml.safe_load(table.read_text()):
        replies = [text for kind in ("right", "open", "wrong") for text in case.get(kind, ())]
        for text in (case["ask"], case.get("system", ""), *replies):
            for each in GUARDED:
                assert each.may_match(text) or not each.pattern.search(text), each.pattern.pattern


@pytest.mark.parametrize(
    ("pattern", "words", "parts"),
    [
        (r"\b(?:cat|dogs?)\b", {"cat", "dog", "dogs"}, set()),
        (r"\btranslat\w*|翻译", set(), {"translat", "翻译"}),
        (r"how (?:many|much)", set(), {"how many", "how much"}),
        (r"\s(?:not|no)\s", {"not", "no"}, set()),
        (r"\d+ (?:euros|dollars)", set(), {" euros", " dollars"}),
        (r"\bcat\b|cat\w*", {"cat"}, {"cat"}),
        (r"(?:very )?\w+", set(), set()),
        (r"a|.", set(), set()),
        (r"(?=secret)\w+", set(), set()),
        (r"[^abc]+x", set(), {"x"}),
    ],
)
def test_needles_are_what_each_match_contains(
    pattern: str, words: set[str], parts: set[str]
) -> None:
    """Needles are the words and parts that each match contains."""
    found = needles_of(re.compile(pattern))
    assert (set(found[0]), set(found[1])) == (words, parts)


def test_a_guarded_pattern_rules_out_most_texts() -> None:
    """A text without a needle is not searched, also with signs beyond ASCII."""
    pattern = compile_guarded("\\b(?:refund|don\u2019t)\\b", re.IGNORECASE)
    if reading_of("a" * SHORT).rough_index is None:
        pytest.skip("needs the compiled kernel")
    assert not pattern.may_match("The café \u2014 it\u2019s closed on Monday, sorry.")
    assert not pattern.may_match("Refunded orders are sent on Monday.")
    assert pattern.may_match("The REFUND is sent on Monday, sorry.")
    assert pattern.may_match("We don\u2019t send it on Monday, sorry.")


def test_methods_return_what_the_pattern_returns() -> None:
    """Methods of a guarded pattern return what the pattern returns."""
    pattern = compile_guarded("(b)a")
    for text in ("xxbaxxba" + "y" * SHORT, "c" * 2 * SHORT):
        bare = pattern.pattern
        assert pattern.findall(text) == bare.findall(text)
        assert [*map(str, pattern.finditer(text, 3))] == [*map(str, bare.finditer(text, 3))]
        assert pattern.sub("-", text, 1) == bare.sub("-", text, count=1)
        assert str(pattern.search(text)) == str(bare.search(text))


@given(st.text())
def test_letters_of_a_text(text: str) -> None:
    """Runs of letters equal the matches of the regular expression."""
    assert letters_in(text) == re.findall(r"[^\W\d_]+", text)
