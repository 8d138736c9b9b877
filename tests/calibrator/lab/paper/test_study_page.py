"""docs/study.md and the checklist of the paper fit the report."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from calibrator.lab.paper.catalogue import CATALOGUE, NOT_HERE
from scripts.checks.checklist import Row, missing_links, page, rows, rows_named
from scripts.checks.mutations import killed_of
from scripts.studies.headlines import BEGIN, END, with_tables
from tests.running.live_proxy import environment

ROOT = Path(__file__).parents[4]
STUDY = ROOT / "docs" / "study.md"


@pytest.fixture(scope="module")
def linked() -> list[Row]:
    return rows()


def test_every_row_has_code_and_a_test(linked: list[Row]) -> None:
    """Every row has code and a test or a reason, all links exist, and all rows are printed."""
    assert missing_links(linked) == []
    printed = re.findall(r"^\| ([A-U]\d\d) \|", page(linked), re.MULTILINE)
    assert sorted(printed) == sorted(row.id for row in linked)


def test_a_broken_link_is_reported() -> None:
    """A link to a missing file or test, and a row without code, are reported."""
    gone = Row("H01", "C", "AUROC", ["calibrator/gone.py"], ["tests/test_gone.py::test_it"], "")
    bare = Row("H02", "C", "BCa", [], [], "")
    assert missing_links([gone, bare]) == [
        "H01: there is no calibrator/gone.py",
        "H01: there is no test tests/test_gone.py::test_it",
        "H02 (BCa) has no code and no reason",
    ]


def test_ranges_of_rows_are_read() -> None:
    """Ranges of rows such as `K10-K13` are read."""
    assert rows_named("K10-K13, L01 to L03 and V31; SHA256 U2F") == {
        *("K10", "K11", "K12", "K13", "L01", "L02", "L03"),
    }


def test_tables_answer_rows_that_there_are(linked: list[Row]) -> None:
    """Tables name only rows that exist."""
    known = {row.id for row in linked}
    own = {f"J{n:02}" for n in range(1, 16)} | {"J06", "K01", "K09", "Q01", "Q05", "R02"} | {"M07"}
    for entry in CATALOGUE:
        assert set(entry.rows) <= known | own, entry.id
    assert set(NOT_HERE) <= known | own


def test_tables_of_a_page_are_exchanged() -> None:
    """The page's tables are replaced between its comments; without these it is refused."""
    text = f"a\n{BEGIN}old{END}\nb\n"
    assert with_tables(text, "new\n") == f"a\n{BEGIN}new\n{END}\nb\n"
    with pytest.raises(ValueError, match="lacks the comments"):
        with_tables("a", "new")


def test_needs_of_methods_are_listed() -> None:
    """The page says what eight kinds of methods need (A08)."""
    text = STUDY.read_text(encoding="utf-8")
    table = text.partition("What each kind of method needs:")[2].partition("## Figures")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(lines) == 9
    assert {line.count("|") for line in lines} == {7}


def test_commands_of_the_page_have_these_options() -> None:
    """Every option on the page exists in its command."""
    text = STUDY.read_text(encoding="utf-8")
    for command in ("study", "elicit"):
        done = subprocess.run(
            [sys.executable, "-m", "pinocchio", command, "--help"],
            capture_output=True,
            text=True,
            env=environment() | {"COLUMNS": "200"},
            timeout=60,
        )
        lines = re.findall(rf"^ +pinocchio {command} (.*)$", text, re.MULTILINE)
        assert lines
        for option in {word for line in lines for word in re.findall(r"--[a-z-]+", line)}:
            assert option in done.stdout, (command, option)


@pytest.mark.slow
def test_tests_fail_when_the_code_is_broken(linked: list[Row]) -> None:
    """Breaking the code of a covered row fails one of its tests, for a tenth of the rows."""
    covered = [row for row in linked if row.is_covered and row.code[0].endswith(".py")]
    drawn = random.Random(27).sample(covered, len(covered) // 10)
    survived = [row.id for row in drawn if killed_of(ROOT, row) is None]
    assert survived == []
