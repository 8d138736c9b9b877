"""Two formulas are the same if they have the same value, in any notation."""

from __future__ import annotations

import time

import pytest

from calibrator.lab.data.grading.formulas import same_formula

SAME = [
    ("\\frac{1}{2}", "0.5"),
    ("\\dfrac12", "1/2"),
    ("$\\sqrt{8}$", "2\\sqrt2"),
    ("x = 5", "5"),
    ("1,234", "1234"),
    ("(x+1)^2", "x^2+2x+1"),
    ("\\{1,2\\}", "\\{2,1\\}"),
    ("3 and 5", "5, 3"),
    ("[0,1)", "\\left[0, 1\\right)"),
    ("1 \\pm \\sqrt{2}", "1+\\sqrt2, 1-\\sqrt 2"),
    ("2\\frac{1}{2}", "5/2"),
    ("\\log_2 8", "3"),
    ("\\binom{5}{2}", "5!/12"),
    (
        "\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}",
        "\\begin{bmatrix}1&2\\\\3&4\\end{bmatrix}",
    ),
    ("(-\\infty, 3) \\cup (5,\\infty)", "(-\\infty,3)\\cup(5,\\infty)"),
    ("90^\\circ", "90"),
    ("\\$12", "12"),
    ("10\\pi \\text{ cm}^2", "10\\pi"),
    ("e^{i\\pi}", "-1"),
    ("3.1416", "\\pi"),
    ("\\sqrt[3]{-27}", "-3"),
    ("\\sin^2 x+\\cos^2 x", "1"),
    ("\\text{east}", "east"),
    ("|-3|", "3"),
]
OTHER = [
    ("1/2", "1/3"),
    ("x", "y"),
    ("x_1", "x_2"),
    ("(1,2)", "(2,1)"),
    ("[0,1)", "[0,1]"),
    ("10", "10.1"),
    ("3.14", "\\pi"),
    ("x^2", "2x"),
    ("\\{1,2\\}", "\\{1,3\\}"),
    ("1,2", "1,2,3"),
    ("", ""),
    ("\\frac{1}{0}", "\\infty"),
    ("\\unknown{3}", "3"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_value_in_other_signs(one: str, other: str) -> None:
    """The same value in another notation is equal, in either order."""
    assert same_formula(one, other)
    assert same_formula(other, one)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_another_value(one: str, other: str) -> None:
    """Another value is different, and empty, undefined or unreadable text equals nothing."""
    assert not same_formula(one, other)
    assert not same_formula(other, one)


@pytest.mark.parametrize(
    "text",
    ["9^9^9^9^9", "(" * 10_000, "2^" * 5_000 + "2", "170!!!", "\\frac" * 3_000, "1" * 100_000],
)
def test_no_formula_takes_long(text: str) -> None:
    """Any formula is compared within 0.2 s."""
    began = time.process_time()
    assert not same_formula(text, "7")
    assert time.process_time() - began < 0.2
