"""List the names that are a participle alone, and the classes that share a name in a package.

python -m scripts.checks.names [PACKAGE ..]

Functions and methods are named with verbs, properties and classes with nouns. A regular participle
ends in -ed or -ing and is not in `nouns.txt`, which has the nouns and imperatives with these ends;
`participles.txt` has the irregular ones. Nested functions are left out. Exits with 1 for more than
`MOST_PARTICIPLES` or `MOST_TWICE`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOST_PARTICIPLES: Final = 20  # findings that are allowed; both only ever go down
MOST_TWICE: Final = 15
ROOMS: Final = ("pinocchio", "proxy", "policies", "calibrator")
_HERE: Final = Path(__file__).parent
IRREGULAR: Final = frozenset((_HERE / "participles.txt").read_text().split())
NOUNS: Final = frozenset((_HERE / "nouns.txt").read_text().split())


def participles(path: Path) -> Iterator[str]:
    """Yield `FILE:LINE: NAME` for each function or class that a participle alone names."""
    for node in _definitions(ast.parse(path.read_text(encoding="utf-8"))):
        if is_participle(node.name):
            yield f"{path}:{node.lineno}: {node.name}"


def is_participle(name: str) -> bool:
    """Return whether a name is one word, and that word a participle, such as `_scored` or `told`.

    Names of several words, such as `is_scored`, and dunder names are none; `nouns.txt` has
    exceptions.
    """
    word = name.strip("_")
    if name.endswith("__") or "_" in word or re.search(r".[A-Z0-9]", word):
        return False
    word = word.lower()
    return word in IRREGULAR or (word.endswith(("ed", "ing")) and word not in NOUNS)


def twice(package: Path) -> Iterator[str]:
    """Yield `NAME: FILE:LINE, ..` for each name that two or more classes of a package have.

    Classes inside others or in functions do not count.
    """
    places: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    for name, each in places.items():
        if len(each) > 1:
            yield f"{name}: {', '.join(each)}"


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(tree: ast.AST) -> Iterator[Definition]:
    """Yield the functions and classes of a module, and those of its classes.

    Nested functions are left out.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Definition):
            yield node
        if isinstance(node, ast.ClassDef | ast.If | ast.Try | ast.With):
            yield from _definitions(node)


def main() -> None:
    """Print the findings of the packages given, or of all; exit with 1 for too many."""
    folders = [Path(folder) for folder in sys.argv[1:] or ROOMS]
    named = [
        line
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        for line in participles(path)
    ]
    shared = [line for folder in folders for line in twice(folder)]
    print("\n".join([*named, *shared]))
    print(f"{len(named)} participles are names; {len(shared)} class names occur twice in a package")
    sys.exit(len(named) > MOST_PARTICIPLES or len(shared) > MOST_TWICE)


if __name__ == "__main__":
    main()
