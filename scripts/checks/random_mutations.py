"""Breaks the product in places drawn at random and asks the nearest tests whether they see it.

    python -m scripts.checks.random_mutations 60 --seed 22 --out FILE.jsonl

A place is a comparison, an operator, a condition, a number, a value that is returned, or a whole
statement. Each change is made in a copy of the tree, one at a time, and the test files nearest to
the module run until one fails: those named after it, those that import it, those of its room, and
those that name what encloses the place. A test that fails without the change too does not count.
FILE keeps the results, and what stands in it is not tried again; `--again` tries those again that
no test saw.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.checks.checklist import PACKAGES, ROOT
from scripts.checks.mutations import change, is_changeable, tests_run

TIMEOUT_S = 600  # of one run of tests
MOST_FILES = 8
LEFT_OUT = ("node_modules", ".git", ".venv*", "runs", ".mypy_cache", ".hypothesis", ".ruff_cache")
KILLED, SURVIVED, UNDETERMINED = "killed", "survived", "undetermined"
STATEMENTS = (ast.Assign, ast.AugAssign, ast.Raise, ast.Expr)


@dataclass(frozen=True, slots=True)
class Place:
    """Something that can be broken: the file, and the number of the node in `ast.walk`."""

    file: str
    number: int


@dataclass(slots=True)
class Result:
    """What became of one change; `by` is the test that saw it."""

    file: str
    number: int
    what: str
    tests: Sequence[str]
    result: str
    by: str = ""


def places_in(file: str, source: str) -> Iterator[Place]:
    """Every place of a file inside a function, but for docstrings."""
    tree = ast.parse(source)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    within = {id(node) for each in functions for line in each.body for node in ast.walk(line)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in within and (is_changeable(node) or _is_condition(node) or _can_go(node)):
            yield Place(file, number)


def _is_condition(node: ast.AST) -> bool:
    return isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(
        node.test, ast.Constant
    )


def _can_go(node: ast.AST) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return isinstance(node, STATEMENTS) and not is_text


class _Drop(ast.NodeTransformer):
    """Puts `pass` in place of one statement."""

    def __init__(self, node: ast.AST) -> None:
        self._node = node

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.copy_location(ast.Pass(), node) if node is self._node else super().visit(node)


def broken(source: str, place: Place) -> tuple[str, str]:
    """The file's source with one change, and what was done."""
    tree = copy.deepcopy(ast.parse(source))
    node = list(ast.walk(tree))[place.number]
    line = getattr(node, "lineno", 0)
    if isinstance(node, STATEMENTS):
        what = f"line {line}: dropped `{ast.unparse(node)[:80]}`"
        tree = _Drop(node).visit(tree)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        what = f"line {line}: the opposite of `{ast.unparse(node.test)[:80]}`"
        node.test = ast.UnaryOp(ast.Not(), node.test)
    else:
        text = ast.unparse(node)[:80]
        what = f"{change(node)} in `{text}`"
    return ast.unparse(ast.fix_missing_locations(tree)), what


def drawn(root: Path, count: int, seed: int) -> list[Place]:
    """Places of the product, each equally likely; the same for the same seed and code."""
    found = [
        place
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
        for place in places_in(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
    ]
    return random.Random(seed).sample(found, count)


def nearest_tests(root: Path, place: Place) -> list[str]:
    """The test files nearest to a place, the nearest first."""
    path = Path(place.file)
    module, stem, room = ".".join(path.with_suffix("").parts), path.stem, path.parent
    imports = re.compile(
        rf"\b{re.escape(module)}\b|from {re.escape('.'.join(room.parts))} import .*\b{stem}\b"
    )
    names = _enclosing(ast.parse((root / path).read_text(encoding="utf-8")), place.number)
    ranked = []
    for test in sorted((root / "tests").rglob("test_*.py")):
        text, its_room = test.read_text(encoding="utf-8"), test.parent.relative_to(root / "tests")
        rank = 8 * (test.stem == f"test_{stem}") + 4 * bool(imports.search(text))
        rank += 2 * sum(bool(re.search(rf"\b{name}\b", text)) for name in names)
        rank += 3 * (its_room == room) + (its_room in room.parents) + (stem in test.stem)
        rank += bool(re.search(rf"\b{stem}\b", text))
        if rank > 1:
            ranked.append((-rank, len(text), str(test.relative_to(root))))
    return [test for *_, test in sorted(ranked)[:MOST_FILES]]


def _enclosing(tree: ast.Module, number: int) -> list[str]:
    """The names of the functions and classes around a node."""
    wanted = list(ast.walk(tree))[number]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    around = [n for n in ast.walk(tree) if isinstance(n, kinds) and wanted in ast.walk(n)]
    return [each.name.strip("_") for each in around if not each.name.startswith("__")]


class Tree:
    """A copy of the project, in which one file at a time is broken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ignored = shutil.ignore_patterns(*LEFT_OUT)
        shutil.copytree(ROOT, folder, ignore=ignored, symlinks=True, dirs_exist_ok=True)
        for linked in (".venv", "tests/node/node_modules", "examples/node/node_modules"):
            if (ROOT / linked).exists():
                (folder / linked).symlink_to((ROOT / linked).resolve())

    def tried(self, place: Place) -> Result:
        """Break one place, and run the nearest tests."""
        path, tests = self._folder / place.file, nearest_tests(ROOT, place)
        source = (ROOT / place.file).read_text(encoding="utf-8")
        changed, what = broken(source, place)
        path.write_text(changed, encoding="utf-8")
        try:
            code, failed = self._run(tests)
        finally:
            path.write_text(source, encoding="utf-8")
        result = Result(place.file, place.number, what, tests, SURVIVED, failed)
        if code is None or code > 2:
            result.result = UNDETERMINED
        elif code:
            fails_anyway = self._run([failed] if failed else tests)[0] != 0
            result.result = UNDETERMINED if fails_anyway else KILLED
        return result

    def _run(self, tests: Sequence[str]) -> tuple[int | None, str]:
        """The exit status of pytest, None where it took too long, and the first test to fail."""
        done = tests_run(self._folder, tests, TIMEOUT_S)
        if done is None:
            return None, ""
        failed = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", done.stdout, re.M)
        return done.returncode, failed[1] if failed else ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--again", action="store_true", help="try what no test saw again")
    options = parser.parse_args()
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    done = {(row["file"], row["number"]): row["result"] for row in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as scratch, options.out.open("a") as log:
        tree = Tree(Path(scratch))
        for place in drawn(ROOT, options.count, options.seed):
            known = done.get((place.file, place.number))
            if known is None or (options.again and known != KILLED):
                result = tree.tried(place)
                done[place.file, place.number] = result.result
                print(json.dumps(asdict(result)), file=log, flush=True)
                print(f"{result.result}: {place.file}, {result.what} {result.by}", flush=True)
    print(dict(Counter(done.values())))


if __name__ == "__main__":
    main()
