"""Equations that a reply states."""

from __future__ import annotations

import pytest

from calibrator.readers.evidence.computed import suspect
from calibrator.readers.evidence.conversation import Conversation

FALSE = [
    ("So each pays 40 + 3 * 12.50 = 87.50 in all.", "40 + 3 * 12.50 is 77.5, not 87.50"),
    ("Check: (18 - 4) \u00d7 2 = 26", "(18 - 4) \u00d7 2 is 28, not 26"),
    ("$45.20 + $30.10 = $75.40", "$45.20 + $30.10 is 75.3, not $75.40"),
    ("Together that is 1,200 + 350 = 1,650.", "1,200 + 350 is 1550, not 1,650"),
    ("20% * 80 = 18", "20% * 80 is 16, not 18"),
]
TRUE = [
    "So each pays 40 + 3 * 12.50 = 77.50 in all.",
    "10 / 3 = 3.33, and 200 / 3 = 67",
    "1 / 8 = 12.5%",
    "x = 2 + 3 = 6",
    "7 - 3 = 4 - 1 = 3",
    "sqrt(50 / 2) = 5 and \u221a(50 / 2) = 5",
    "2024-05-17 = 12 days, pages 3-5 = 12, a score of 6-4 = 10",
    "```\n1 + 1 = 3\n```",
    "The binary sum is 1 + 1 = 10.",
    "A common mistake is 2 + 3 * 4 = 20.",
    "= = = 1 + = 3 + 4 (",
    "",
]


@pytest.mark.parametrize(("reply", "reason"), FALSE)
def test_a_false_equation_is_named_with_its_value(reply: str, reason: str) -> None:
    """A false equation lowers the reply, and the reason has the right value."""
    found = suspect(Conversation("How do we split the bill?"), reply)
    assert found is not None
    assert found.shift < 0
    assert found.reason == reason


@pytest.mark.parametrize("reply", TRUE)
def test_no_other_text_is_a_false_equation(reply: str) -> None:
    """True, rounded, partial and quoted equations give no finding."""
    assert suspect(Conversation("How do we split the bill?"), reply) is None
