"""Numbers in a reply's working are found as by the pattern."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from calibrator.readers.inspection.working import _NUMBER, _numbers_in

PARTS = st.sampled_from([*"0179-.,+ =x", "1,000", "-2.5", "--3", "a1", "\u0664", "\n"])


@given(st.lists(PARTS | st.text(max_size=2), max_size=14).map("".join))
def test_numbers_are_those_of_the_pattern(text: str) -> None:
    """Numbers begin and end where the pattern finds them, with any text around them."""
    found = [number.span() for number in _numbers_in(text)]
    assert found == [number.span() for number in _NUMBER.finditer(text)]
