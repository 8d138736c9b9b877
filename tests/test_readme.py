"""What the README promises can be looked up: every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
README = (TESTS.parent / "README.md").read_text(encoding="utf-8")
CHANGES = README[README.index("## What it changes") : README.index("## What it costs")]
NAMED = sorted(set(re.findall(r"`(?:tests/)?(test_\w+\.py)(?:::(\w+))?`", README)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_the_readme_names_is_there(file: str, name: str) -> None:
    """The file exists and, where one is named, has the test."""
    text = (TESTS / file).read_text(encoding="utf-8")
    assert not name or re.search(rf"^(async )?def {name}\(", text, re.MULTILINE)


def test_every_change_has_its_test() -> None:
    """No row of the table of changes goes without a test."""
    rows = [line for line in CHANGES.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 10
    assert [row for row in rows if "`test_" not in row] == []
