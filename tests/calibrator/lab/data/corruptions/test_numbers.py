"""Changed numbers keep their form, and nothing else changes."""

from __future__ import annotations

import random
import re
import time

import pytest

from calibrator.lab.data.corruptions.kinds import (
    arrival_changed,
    last_number_changed,
    move_number,
    result_changed,
)

WORKING = "He has 3 bags. 3 * 4 = 12 marbles, and 12 + 5 = 17.\nTherefore the answer is 17."


def rngs(count: int = 30) -> list[random.Random]:
    return [random.Random(seed) for seed in range(count)]


@pytest.mark.parametrize(
    "number", ["7", "0", "-3", "1,200", "3.50", "0.125", "1984", "05", "007", "1,000,000.5", "-0.5"]
)
def test_another_number_has_the_same_form(number: str) -> None:
    """Another number keeps separators, decimals and leading zeros, and has no new sign."""
    for rng in rngs():
        new = move_number(number, rng)
        assert float(new.replace(",", "")) != float(number.replace(",", ""))
        assert len(new.partition(".")[2]) == len(number.partition(".")[2])
        assert not new.startswith("-") or number.startswith("-")
        assert number[0] != "0" or "." in number or len(new) >= len(number)


def test_a_year_becomes_another_year() -> None:
    """A year becomes another year near it."""
    assert all(1900 < int(move_number("1984", rng)) < 2100 for rng in rngs(100))


def test_only_the_last_number_is_changed() -> None:
    """Only the last number changes."""
    for rng in rngs():
        changed = last_number_changed(WORKING, rng)
        assert changed is not None
        found = re.fullmatch(re.escape(WORKING[:-3]) + r"(\d+)\.", changed)
        assert found
        assert found[1] != "17"


@pytest.mark.parametrize("answer", ["", "Canberra.", "v1.25b", "x2", "9" * 40, "the 3rd", "\u0663"])
def test_no_number_no_change(answer: str) -> None:
    """Names with digits, identifiers and versions are no numbers."""
    assert last_number_changed(answer, random.Random(1)) is None


def test_only_an_inner_result_changes() -> None:
    """One of the results inside the working changes; its operands and the answer stay."""
    expected = re.compile(
        r"He has 3 bags\. 3 \* 4 = (\d+) marbles, and 12 \+ 5 = (\d+)\.\n"
        r"Therefore the answer is 17\."
    )
    places = set()
    for rng in rngs():
        found = expected.fullmatch(result_changed(WORKING, rng) or "")
        assert found
        places.add((found[1] != "12", found[2] != "17"))
    assert places == {(True, False), (False, True)}


@pytest.mark.parametrize(
    "answer",
    [
        "6 * 7 = 42",  # the last number, which another kind changes
        "[find_flights(day=5, month=6, limit=10)]",
        "https://x.org/a?db=1&retmax=5 gives 7",
        "if n % 2 != 0: return 1",
        "k = 5, so 7",
        "no sums at all",
        "",
    ],
)
def test_what_is_no_result_inside_a_working_is_left_alone(answer: str) -> None:
    """Arguments of calls, addresses, comparisons, assignments and the last number stay."""
    assert result_changed(answer, random.Random(1)) is None


def test_a_comma_after_a_result_stays() -> None:
    """Only the digits of a result change."""
    changed = result_changed("2 + 3 = 5, and then 6", random.Random(2))
    assert re.fullmatch(r"2 \+ 3 = \d+, and then 6", changed or "")


@pytest.mark.parametrize(
    "text",
    ["1" * 100_000 + "." * 100_000 + "x", "= " * 60_000, "=" + " " * 100_000, "1,111" * 30_000],
)
def test_hostile_text_takes_no_time(text: str) -> None:
    """Hostile text of 100 kB is read within a second."""
    start = time.perf_counter()
    last_number_changed(text, random.Random(1))
    result_changed(text, random.Random(1))
    assert time.perf_counter() - start < 1


def test_a_changed_arrival_keeps_the_end() -> None:
    """The result of the working changes throughout, and the last number stays."""
    for rng in rngs():
        made = arrival_changed(WORKING, rng)
        assert made is not None
        assert made.endswith("Therefore the answer is 17.")
        assert "12 + 5 = 17.\n" not in made
        assert made.startswith("He has 3 bags. 3 * 4 = 12 marbles, and 12 + 5 = ")
    assert arrival_changed("It is 17.", random.Random(0)) is None
    assert arrival_changed("3 bags and 17 marbles", random.Random(0)) is None
