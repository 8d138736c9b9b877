"""Breaks a piece of code in one place and asks tests whether they see it.

    python -m scripts.checks.mutations H04 I12      # rows of the checklist

What is broken is the body of the definitions whose docstring names the row, or else of all in its
file: a comparison turned round, a sum into a difference, a number off by one, a return without its
value. Every change is made in a copy of the tree.
"""

from __future__ import annotations

import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.checks.checklist import ROOT, Row, rows, rows_named

TOPS = ("calibrator", "policies", "pinocchio", "proxy", "scripts", "tests", "docs", "examples")
MOST = 6  # changes of one row
TIMEOUT_S = 300

_TURNED: dict[type[ast.AST], ast.AST] = {
    ast.Lt: ast.GtE(), ast.LtE: ast.Gt(), ast.Gt: ast.LtE(), ast.GtE: ast.Lt(),
    ast.Eq: ast.NotEq(), ast.NotEq: ast.Eq(), ast.In: ast.NotIn(), ast.NotIn: ast.In(),
    ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Div(), ast.Div: ast.Mult(),
    ast.And: ast.Or(), ast.Or: ast.And(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed file; `what` names the line and the change."""

    root: Path
    place: str
    source: str
    what: str

    def is_killed_by(self, tests: Sequence[str]) -> bool:
        """Return whether one of these tests, such as `tests/a.py::test_b`, fails with the change.

        They run in a copy of the tree. A test that hangs counts, and so does an error on import.
        """
        with tempfile.TemporaryDirectory() as scratch:
            for top in TOPS:
                shutil.copytree(
                    self.root / top,
                    Path(scratch) / top,
                    ignore=shutil.ignore_patterns("node_modules", "__pycache__"),
                    symlinks=True,
                )
            for path in self.root.iterdir():
                if path.is_file():
                    shutil.copy(path, scratch)
            (Path(scratch) / self.place).write_text(self.source, encoding="utf-8")
            done = tests_run(Path(scratch), tests, TIMEOUT_S)
        return done is None or done.returncode in (1, 2)  # 2: what cannot even be collected


def tests_run(
    folder: Path, tests: Sequence[str], timeout_s: float
) -> subprocess.CompletedProcess[str] | None:
    """Run tests in a copy of the tree, up to the first failure, and return the ended process.

    Return None if they take longer than `timeout_s` seconds.
    """
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-rfE"]
    there = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=folder,
            env=os.environ | there,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return None


def killed_of(root: Path, row: Row) -> Mutant | None:
    """Return the first change of a row's code that one of its tests detects, or None.

    Code whose definitions name the row is tried before whole files, such as a table of the report.
    """
    places = [place for place in row.code if place.endswith(".py")]
    for place in sorted(places, key=lambda place: not _names(root, place, row.id)):
        for mutant in mutants_of(root, place, row.id):
            if mutant.is_killed_by(row.tests):
                return mutant
    return None


def mutants_of(root: Path, place: str, row: str) -> Iterator[Mutant]:
    """Yield at most `MOST` changes of the code that a file has for a row, spread over it.

    `place` is the file's path below `root`, `row` is such as `H04`.
    """
    tree = ast.parse((root / place).read_text(encoding="utf-8"))
    targets = list(_targets(tree, row))
    step = max(1, len(targets) // MOST)
    for number in targets[::step][:MOST]:
        changed = copy.deepcopy(tree)
        node = list(ast.walk(changed))[number]
        what = change(node)
        yield Mutant(root, place, ast.unparse(ast.fix_missing_locations(changed)), what)


def _names(root: Path, place: str, row: str) -> bool:
    """Return whether a class or function of a file names the row in its docstring."""
    return bool(_named(ast.parse((root / place).read_text(encoding="utf-8")), row))


def _named(tree: ast.Module, row: str) -> list[ast.AST]:
    """Return the classes and functions whose docstring names the row, such as `H04`."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, kinds) and row in rows_named(ast.get_docstring(node) or "")
    ]


def _targets(tree: ast.Module, row: str) -> Iterator[int]:
    """Yield the positions, in the order of `ast.walk`, of nodes that can be changed for the row.

    These are in the definitions that name the row, or anywhere if none does.
    """
    named = _named(tree, row)
    within = {id(node) for one in named or [tree] for node in ast.walk(one)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in within and is_changeable(node):
            yield number


def is_changeable(node: ast.AST) -> bool:
    """Return whether `change` can break the node: some operators, a returned value, or a number."""
    if isinstance(node, ast.Compare):
        return type(node.ops[0]) in _TURNED
    if isinstance(node, ast.BinOp | ast.BoolOp):
        return type(node.op) in _TURNED
    if isinstance(node, ast.Return):
        return node.value is not None and not _is_none(node.value)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def change(node: ast.AST) -> str:
    """Break the node in place; return a description such as `line 3: another operator`.

    A comparison is negated, an operator exchanged, a returned value dropped, a number raised by
    one. The node must be one that `is_changeable` accepts.
    """
    line = getattr(node, "lineno", 0)
    if isinstance(node, ast.Compare):
        node.ops[0] = _TURNED[type(node.ops[0])]  # type: ignore[call-overload]
        return f"line {line}: the comparison turned round"
    if isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = _TURNED[type(node.op)]  # type: ignore[assignment]
        return f"line {line}: another operator"
    if isinstance(node, ast.Return):
        node.value = ast.Constant(None)
        return f"line {line}: nothing returned"
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int | float)
    node.value = node.value + 1
    return f"line {line}: a number one higher"


def main() -> None:
    """Print for each given row whether its tests see a change; exit with 1 if one does not.

    Rows that are not covered are skipped.
    """
    wanted, has_survivor = set(sys.argv[1:]), False
    for row in rows():
        if row.id in wanted and row.is_covered:
            killed = killed_of(ROOT, row)
            has_survivor |= killed is None
            print(f"{row.id}: {f'{killed.place}, {killed.what}: seen' if killed else 'not seen'}")
    sys.exit(has_survivor)


if __name__ == "__main__":
    main()
