"""Links of the paper's checklist to code and tests: `python -m scripts.checks.checklist`.

A row is linked where a docstring of the product, or of a test, names it, or where `checklist.yaml`
beside this names a file or a test. A link counts only if both exist. `--check` prints the rows
without link or reason, and the links of the page that are outdated.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "scripts" / "checks" / "checklist.yaml"
PAGE = ROOT / "docs" / "checklist.md"
PACKAGES = ("calibrator", "proxy", "policies", "pinocchio")
NO_CODE = ("calibrator/paper/catalogue.py",)  # it names every row and implements none
SHOWN = 3  # most links of each kind in a line

_LINK = re.compile(r"\[([^\]]+)\]\(\.\./([^)]+)\)")
_ID = re.compile(r"\b([A-U])(\d\d)(?: ?(?:to|-) ?([A-U])(\d\d))?\b")

HEAD = """# What of the paper is here

Each row of the paper's checklist that asks for code (C), an experiment (R) or a page (D), with the
code that does it and the tests that hold it. `python -m scripts.checks.checklist` writes this page
from the docstrings that name a row; a test checks that it is up to date, that every link exists
and, for a tenth of the rows drawn at random, that a test fails when the code is broken. The numbers
that rows ask for stand in the [report](study.md).

"""


@dataclass(frozen=True, slots=True)
class Row:
    """One row with its links; `why` is the reason for missing ones."""

    id: str
    kind: str
    what: str
    code: Sequence[str]
    tests: Sequence[str]
    why: str

    @property
    def is_covered(self) -> bool:
        return bool(self.code and self.tests) and not self.why


def rows_named(text: str) -> set[str]:
    """Return the rows that a text names; `K10-K13` and `K10 to K13` name four."""
    found = set()
    for letter, first, other, last in _ID.findall(text):
        end = int(last) if last and letter == other else int(first)
        found |= {f"{letter}{number:02}" for number in range(int(first), end + 1)}
        if last and letter != other:
            found.add(f"{other}{last}")
    return found


@cache
def _documented(path: Path) -> tuple[tuple[str, str], ...]:
    """Return each definition's name with its docstring; a module's name is empty."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    found = []
    while waiting:
        node = waiting.pop()
        if isinstance(node, kinds):  # only the bodies of definitions hold other definitions
            found.append((getattr(node, "name", ""), ast.get_docstring(node) or ""))
            waiting += reversed(node.body)
    return tuple(found)


def named_in_code() -> Mapping[str, list[str]]:
    """Return files of the product by row, those named in a definition's docstring first."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            if place in NO_CODE:
                continue
            if not (named := rows_named(path.read_text(encoding="utf-8"))):
                continue
            for row in named:
                found[row][place] = 1
            for name, text in _documented(path):
                for row in rows_named(text):
                    found[row][place] = min(found[row][place], 0 if name else 1)
    return {row: sorted(files, key=lambda one: (files[one], one)) for row, files in found.items()}


def named_in_tests() -> Mapping[str, list[str]]:
    """Return tests by row, as pytest names them."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT).as_posix()
        for name, text in _documented(path):
            if name.startswith("test_"):
                for row in rows_named(text):
                    found[row].append(f"{place}::{name}")
    return found


def rows() -> list[Row]:
    """Return all rows with their links, those of the data file first."""
    data: dict[str, dict[str, Any]] = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    code, tests = named_in_code(), named_in_tests()
    return [
        Row(
            id,
            one["kind"],
            one["what"],
            list(dict.fromkeys([*one.get("code", []), *code.get(id, [])])),
            list(dict.fromkeys([*one.get("tests", []), *tests.get(id, [])])),
            one.get("why", ""),
        )
        for id, one in data.items()
    ]


def missing_links(found: Sequence[Row]) -> list[str]:
    """Return sentences about rows without links or a reason, and about broken links."""
    told = []
    known = {test for tests in named_in_tests_all().values() for test in tests}
    for row in found:
        for place in row.code:
            if not (ROOT / place).is_file():
                told.append(f"{row.id}: there is no {place}")
        for test in row.tests:
            if test not in known:
                told.append(f"{row.id}: there is no test {test}")
        if not row.is_covered and not row.why:
            lacks = "code" if not row.code else "a test"
            told.append(f"{row.id} ({row.what}) has no {lacks} and no reason")
    return told


def named_in_tests_all() -> Mapping[str, list[str]]:
    """Return all tests, by file."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT).as_posix()
        names = [name for name, _ in _documented(path) if name.startswith("test_")]
        found[place] = [f"{place}::{name}" for name in names]
    return found


def faults_of(text: str, found: Sequence[Row]) -> list[str]:
    """Return sentences about a page's missing rows and outdated links.

    A new link is no fault, because the page shows only a few of each row.
    """
    told = []
    for row in found:
        lines = [line for line in text.splitlines() if line.startswith(f"| {row.id} | ")]
        if len(lines) != 1:
            told.append(f"{row.id} has {len(lines)} lines")
            continue
        is_linked = lines[0].count("](../") > 0
        if is_linked != row.is_covered:
            told.append(f"{row.id} is {'' if row.is_covered else 'not '}covered")
        for name, place in _LINK.findall(lines[0]):
            is_test = place.startswith("tests/")
            if (f"{place}::{name}" not in row.tests) if is_test else (place not in row.code):
                told.append(f"{row.id}: {name} of {place} names it no more")
    return told


def page(found: Sequence[Row]) -> str:
    """Return the whole page."""
    covered = [row for row in found if row.is_covered]
    lines = [
        HEAD,
        f"{len(covered)} of {len(found)} rows are covered.\n\n",
        "| row | kind | what | code | tests |\n|---|---|---|---|---|\n",
    ]
    for row in covered:
        code, tests = (_links(each) for each in (row.code, row.tests))
        lines.append(f"| {row.id} | {row.kind} | {row.what} | {code} | {tests} |\n")
    lines.append("\nNot covered, and why:\n\n| row | kind | what | why |\n|---|---|---|---|\n")
    for row in found:
        if not row.is_covered:
            lines.append(f"| {row.id} | {row.kind} | {row.what} | {row.why} |\n")
    return "".join(lines)


def _links(places: Sequence[str]) -> str:
    shown = [
        f"[{place.rpartition('::')[2].rpartition('/')[2]}](../{place.partition('::')[0]})"
        for place in places[:SHOWN]
    ]
    return ", ".join(shown) + (f" and {len(places) - SHOWN} more" if len(places) > SHOWN else "")


def main() -> None:
    found = rows()
    for sentence in (told := missing_links(found)):
        print(sentence, file=sys.stderr)
    if "--check" in sys.argv[1:]:
        old = faults_of(PAGE.read_text(encoding="utf-8") if PAGE.exists() else "", found)
        for sentence in old:
            print(f"{PAGE.relative_to(ROOT)}: {sentence}; write it again", file=sys.stderr)
        sys.exit(bool(told or old))
    PAGE.write_text(page(found), encoding="utf-8")
    print(f"{sum(row.is_covered for row in found)} of {len(found)} rows in {PAGE}")
    sys.exit(bool(told))


if __name__ == "__main__":
    main()
