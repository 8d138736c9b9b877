"""Print the paper's checklist with its code and tests: `python -m scripts.checks.checklist`.

A row is linked where a docstring of the product, or of a test, names it, or where `checklist.yaml`
beside this names a file or a test. A link counts only if both exist. Rows without a link or a
reason are printed to standard error, and the exit status is then 1.
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
PACKAGES = ("calibrator", "proxy", "policies", "pinocchio")
NO_CODE = ("calibrator/lab/paper/catalogue.py",)  # it names every row and implements none
SHOWN = 3  # most links of each kind in a line

_ID = re.compile(r"\b([A-U])(\d\d)(?: ?(?:to|-) ?([A-U])(\d\d))?\b")

HEAD = """# What of the paper is here

Each row of the paper's checklist that asks for code (C), an experiment (R) or a page (D), with the
code that does it and the tests that hold it. The numbers that rows ask for are in the report of
`pinocchio study`.

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
        """Whether the row has code and tests, and no reason for missing ones."""
        return bool(self.code and self.tests) and not self.why


def rows_named(text: str) -> set[str]:
    """Return the rows that a text names, such as `{"K10"}`.

    `K10-K13` and `K10 to K13` name four.
    """
    found = set()
    for letter, first, other, last in _ID.findall(text):
        end = int(last) if last and letter == other else int(first)
        found |= {f"{letter}{number:02}" for number in range(int(first), end + 1)}
        if last and letter != other:
            found.add(f"{other}{last}")
    return found


@cache
def _documented(path: Path) -> tuple[tuple[str, str], ...]:
    """Return (name, docstring) of the module and of each class and function of a file, in order.

    The module's name is ""; a missing docstring is "".
    """
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
    """Return for each row that the product names the files that do, such as `proxy/app.py`.

    Those that name it in the docstring of a class or function come first.
    """
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
    """Return for each row the tests whose docstring names it, such as `tests/test_a.py::test_b`."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT).as_posix()
        for name, text in _documented(path):
            if name.startswith("test_"):
                for row in rows_named(text):
                    found[row].append(f"{place}::{name}")
    return found


def rows() -> list[Row]:
    """Return all rows of `checklist.yaml` in its order, with their links.

    Files and tests that it names come before those that are found by their docstrings.
    """
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
    """Return a sentence for each row that lacks links and a reason, and for each broken link.

    A row needs code and a test. A broken link is a file or test that does not exist.
    """
    sentences = []
    known = {test for tests in named_in_tests_all().values() for test in tests}
    for row in found:
        for place in row.code:
            if not (ROOT / place).is_file():
                sentences.append(f"{row.id}: there is no {place}")
        for test in row.tests:
            if test not in known:
                sentences.append(f"{row.id}: there is no test {test}")
        if not row.is_covered and not row.why:
            lacks = "code" if not row.code else "a test"
            sentences.append(f"{row.id} ({row.what}) has no {lacks} and no reason")
    return sentences


def named_in_tests_all() -> Mapping[str, list[str]]:
    """Return all tests by the path of their file, each as `FILE::NAME`."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT).as_posix()
        names = [name for name, _ in _documented(path) if name.startswith("test_")]
        found[place] = [f"{place}::{name}" for name in names]
    return found


def page(found: Sequence[Row]) -> str:
    """Return the checklist as Markdown: covered rows with links, then others with the reason.

    `found` are all rows; a row is covered if it has code, a test and no reason.
    """
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
    """Return the first `SHOWN` places as Markdown code, with `and N more` for the rest."""
    links = [f"`{place}`" for place in places[:SHOWN]]
    return ", ".join(links) + (f" and {len(places) - SHOWN} more" if len(places) > SHOWN else "")


def main() -> None:
    """Print the checklist and, to standard error, what is missing; exit with 1 if anything is."""
    found = rows()
    print(page(found), end="")
    missing = missing_links(found)
    for sentence in missing:
        print(sentence, file=sys.stderr)
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
