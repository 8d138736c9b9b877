"""Counts agree with their nouns: 1 label, 2 labels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policies import plural
from proxy.desk.console.pages import _templates

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("count", "words", "wanted"),
    [
        (0, ("label",), "0 labels"),
        (1, ("label",), "1 label"),
        (2, ("reply", "replies"), "2 replies"),
        (1, ("reply lacks", "replies lack"), "1 reply lacks"),
        (1_204, ("exchange",), "1,204 exchanges"),
    ],
)
def test_a_count_agrees_with_its_noun(count: int, words: tuple[str, ...], wanted: str) -> None:
    """A count agrees with its noun, and thousands are separated."""
    assert plural(count, *words) == wanted


def test_pages_count_alike() -> None:
    """The console's filter counts in the same way."""
    filters = _templates().filters
    assert filters["counted"](1.2, "label") == "1 label"
    assert filters["counted"](3, "reply", "replies") == "3 replies"


NOUNS = "verdicts|labels|replies|rows|entries|exchanges|fixtures|conversations|questions"


def test_no_command_writes_a_bare_plural() -> None:
    """Commands and the console write counts with `plural`."""
    bare = re.compile(rf'f"[^"]*\{{[\w.]+(:,)?\}} ({NOUNS})\b')
    allowed = re.compile(r"of \{|LEAST_|_of_")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (*ROOT.glob("proxy/*commands.py"), *ROOT.glob("proxy/learning/*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if bare.search(line) and not allowed.search(line)
    ]
    assert found == []
