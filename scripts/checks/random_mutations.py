"""Breaks the product in places drawn at random and asks the nearest tests whether they see it.

    python -m scripts.checks.random_mutations 60 --seed 22

A place is a comparison, an operator, a condition, a number, a value that is returned, or a whole
statement. Each change is made in a copy of the tree, one at a time, and the test files nearest to
the module run until one fails: those named after it, those that import it, those of its room,
those that name what encloses the place, and those that share its rarest words. A test that fails
without the change too does not count. A place keeps its name, and with it its chance to be drawn,
where other code changes. The file of results says what became of each, and what stands in it is
not tried again; `--again` tries those again that no test saw. Where no test could see a change, the
row is made "equivalent" by hand, and `by` says why.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import heapq
import json
import math
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from scripts.checks.checklist import PACKAGES, ROOT
from scripts.checks.mutations import change, is_changeable, tests_run

RESULTS = Path(__file__).with_suffix(".jsonl")
TIMEOUT_S = 240  # of one run of tests
MOST_FILES, MOST_FURTHER = 8, 4
STEPS = (0, 1, 3, MOST_FILES, MOST_FILES + MOST_FURTHER)  # most changes end with the nearest file
WORD = re.compile(r"[A-Za-z_]{4,}")
LEFT_OUT = ("node_modules", ".git", ".venv*", "runs", ".mypy_cache", ".hypothesis", ".ruff_cache")
KILLED, SURVIVED, UNDETERMINED = "killed", "survived", "undetermined"
EQUIVALENT = "equivalent"
NOTHING_RAN = 5  # pytest's exit status where all tests of a file are slow
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CONDITIONS = (ast.If, ast.IfExp, ast.While)
STATEMENTS = (ast.Assign, ast.AugAssign, ast.Raise, ast.Expr)


@dataclass(frozen=True, slots=True)
class Place:
    """Something that can be broken: its function and text, and the node's number in `ast.walk`."""

    file: str
    name: str
    number: int


@dataclass(slots=True)
class Result:
    """What became of one change; `by` is the test that saw it, or why none can."""

    file: str
    name: str
    what: str
    result: str
    by: str = ""


def places_in(file: str, source: str) -> Iterator[Place]:
    """Every place of a file inside a function, but for docstrings."""
    tree, met = ast.parse(source), Counter[str]()
    functions = dict(_enclosing(tree))
    for number, node in enumerate(ast.walk(tree)):
        if node in functions and (is_changeable(node) or _is_condition(node) or _can_go(node)):
            text = ast.unparse(node.test if isinstance(node, CONDITIONS) else node)
            name = f"{functions[node]}: {type(node).__name__} {text[:80]}"
            met[name] += 1
            yield Place(file, f"{name} ({met[name]})" if met[name] > 1 else name, number)


def _enclosing(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """The nodes of the bodies of functions, each with the names of what encloses it."""
    left: list[tuple[ast.AST, tuple[str, ...], bool]] = [(tree, (), False)]
    while left:
        node, names, is_inside = left.pop()
        if is_inside:
            yield node, ".".join(names)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names = (*names, node.name)
        body = node.body if isinstance(node, FUNCTIONS) else ()
        for child in ast.iter_child_nodes(node):
            left.append((child, names, is_inside or child in body))


def _is_condition(node: ast.AST) -> bool:
    return isinstance(node, CONDITIONS) and not isinstance(node.test, ast.Constant)


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
    tree: ast.AST = ast.parse(source)
    node = list(ast.walk(tree))[place.number]
    line = getattr(node, "lineno", 0)
    if isinstance(node, STATEMENTS):
        what = f"line {line}: dropped `{ast.unparse(node)[:80]}`"
        tree = _Drop(node).visit(tree)
    elif isinstance(node, CONDITIONS):
        what = f"line {line}: the opposite of `{ast.unparse(node.test)[:80]}`"
        node.test = ast.UnaryOp(ast.Not(), node.test)
    else:
        text = ast.unparse(node)[:80]
        what = f"{change(node)} in `{text}`"
    return ast.unparse(ast.fix_missing_locations(tree)), what


def drawn(root: Path, count: int, seed: int) -> list[Place]:
    """Places of the product, each equally likely; those whose code stays are drawn again."""

    def lot(place: Place) -> bytes:
        return hashlib.sha256(f"{seed} {place.file} {place.name}".encode()).digest()

    found = (
        place
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
        for place in places_in(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
    )
    return heapq.nsmallest(count, found, key=lot)


def nearest_tests(root: Path, place: Place) -> list[str]:
    """The test files nearest to a place, the nearest first; then those that share its words."""
    path = Path(place.file)
    module, stem, room = ".".join(path.with_suffix("").parts), path.stem, path.parent
    imports = re.compile(
        rf"\b{re.escape(module)}\b|from {re.escape('.'.join(room.parts))} import .*\b{stem}\b"
    )
    home = next(each for each in (room, *room.parents) if (root / "tests" / each).is_dir())
    around = place.name.partition(":")[0].split(".")
    names = [each.strip("_") for each in around if not each.startswith("__")]
    ranked, tests = [], _tests(root)
    for test, text in tests.items():
        its_room = test.parent.relative_to("tests")
        rank = 8 * (test.stem == f"test_{stem}") + 4 * bool(imports.search(text))
        rank += 2 * sum(bool(re.search(rf"\b{name}\b", text)) for name in names)
        rank += 3 * (its_room == home) + (its_room in room.parents) + (stem in test.stem)
        rank += bool(re.search(rf"\b{stem}\b", text))
        if rank > 1:
            ranked.append((-rank, len(text), str(test)))
    words = _words_around((root / path).read_text(encoding="utf-8"), place.number)
    nearest = [test for *_, test in sorted(ranked)[:MOST_FILES]]
    further = [test for test in _sharing(words, tests) if test not in nearest]
    return nearest + further[:MOST_FURTHER]


@lru_cache(maxsize=1)
def _tests(root: Path) -> dict[Path, str]:
    """The test files, by their place in the project, and their text."""
    found = sorted((root / "tests").rglob("test_*.py"))
    return {path.relative_to(root): path.read_text(encoding="utf-8") for path in found}


def _words_around(source: str, number: int) -> set[str]:
    """The words of the innermost function around a node."""
    nodes = list(ast.walk(ast.parse(source)))
    around = [n for n in nodes if isinstance(n, FUNCTIONS) and nodes[number] in ast.walk(n)]
    return set(WORD.findall(ast.unparse(around[-1])))


def _sharing(words: set[str], tests: Mapping[Path, str]) -> list[str]:
    """The test files that have these words, first those with the most of the rarest."""
    had = {test: words.intersection(WORD.findall(text)) for test, text in tests.items()}
    files = Counter(word for each in had.values() for word in each)
    weights = {
        test: sum(math.log(len(tests) / files[word]) for word in its) for test, its in had.items()
    }
    return [str(test) for test in sorted(tests, key=lambda test: -weights[test]) if weights[test]]


class Tree:
    """A copy of the project, in which one file at a time is broken."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._failing = folder, list[str]()
        ignored = shutil.ignore_patterns(*LEFT_OUT)
        shutil.copytree(ROOT, folder, ignore=ignored, symlinks=True, dirs_exist_ok=True)
        for linked in (".venv", "tests/node/node_modules", "examples/node/node_modules"):
            if (ROOT / linked).exists():
                (folder / linked).symlink_to((ROOT / linked).resolve())
        subprocess.run(["git", "init", "-q", folder], check=True)  # tests ask what it ignores

    def tried(self, place: Place) -> Result:
        """Break one place, and run the nearest tests, a few files at a time."""
        path = self._folder / place.file
        source = (ROOT / place.file).read_text(encoding="utf-8")
        changed, what = broken(source, place)
        result, tests = Result(place.file, place.name, what, SURVIVED), nearest_tests(ROOT, place)
        try:
            for begin, end in pairwise(STEPS):
                if tests[begin:end] and result.result == SURVIVED:
                    self._ask(tests[begin:end], path, (source, changed), result)
        finally:
            path.write_text(source, encoding="utf-8")
        return result

    def _ask(
        self, tests: Sequence[str], path: Path, texts: tuple[str, str], result: Result
    ) -> None:
        """Note what these tests say; one that fails as the code was is left out from then on."""
        source, changed = texts
        code, failed = self._run(tests, path, changed)
        while code == 1 and failed not in ("", *self._failing):
            if self._run([failed], path, source)[0] == 0:
                result.result, result.by = KILLED, failed
                return
            self._failing.append(failed)
            code, failed = self._run(tests, path, changed)
        if code not in (0, NOTHING_RAN):
            result.result, result.by = KILLED if code == 2 else UNDETERMINED, failed

    def _run(self, tests: Sequence[str], path: Path, text: str) -> tuple[int | None, str]:
        """The exit status of pytest with a file's text, None where it took too long, and the first
        test to fail."""
        path.write_text(text, encoding="utf-8")
        left_out = [option for test in self._failing for option in ("--deselect", test)]
        done = tests_run(self._folder, [*tests, *left_out], TIMEOUT_S)
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
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file of results")
    parser.add_argument("--again", action="store_true", help="try what no test saw again")
    options = parser.parse_args()
    done = results_in(options.out)
    places = drawn(ROOT, options.count, options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Tree(Path(scratch))
        for place in places:
            known = done.get((place.file, place.name))
            if known is None or (options.again and known.result not in (KILLED, EQUIVALENT)):
                result = done[place.file, place.name] = tree.tried(place)
                write(done.values(), options.out)
                print(f"{result.result}: {place.file}, {result.what} {result.by}", flush=True)
    these = (done[place.file, place.name] for place in places)
    for which, results in (("drawn", these), ("in the file", done.values())):
        print(which, dict(Counter(each.result for each in results)))


def results_in(path: Path) -> dict[tuple[str, str], Result]:
    """The results of a file, by file and name of the place."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {(row.file, row.name): row for row in (Result(**json.loads(line)) for line in lines)}


def write(results: Iterable[Result], path: Path) -> None:
    """Writes the file of results, in place of what it was."""
    lines = (json.dumps(asdict(each)) + "\n" for each in results)
    path.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
