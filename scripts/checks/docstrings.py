"""List the functions whose docstring does not begin with an imperative verb.

python -m scripts.checks.docstrings [FOLDER ..]

The first word has to be in `verbs.txt`, one verb a line. Properties, nested functions, tests and
fixtures are left out: they are described, not ordered. Exits with 1 for more than `MOST`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOST: Final = 1  # findings that are allowed; it only ever goes down
ROOMS: Final = ("pinocchio", "proxy", "policies", "calibrator", "scripts")
VERBS: Final = frozenset((Path(__file__).parent / "verbs.txt").read_text().split())
_DESCRIBED: Final = frozenset(
    {"property", "cached_property", "kept", "setter", "overload", "fixture"}
)


def findings(path: Path) -> Iterator[str]:
    """Yield `FILE:LINE: NAME: docstring` for each function whose docstring begins with no verb.

    Functions without a docstring, properties and fixtures are skipped.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in _functions(tree):
        text = ast.get_docstring(node)
        if text is None or _DESCRIBED & {_name(each) for each in node.decorator_list}:
            continue
        first = text.split(maxsplit=1)[0].strip(".,:;").lower() if text.strip() else ""
        if first not in VERBS:
            yield f"{path}:{node.lineno}: {node.name}: {text.splitlines()[0]}"


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions of a module and the methods of its classes, but no nested functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef | ast.If | ast.Try | ast.With):
            yield from _functions(node)


def _name(decorator: ast.expr) -> str:
    """Return the last name of a decorator, without its arguments: `setter` for `@x.setter`.

    Return "" for other expressions.
    """
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    return decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")


def main() -> None:
    """Print the findings of the folders given, or of all; exit with 1 for more than `MOST`."""
    found = [
        line
        for folder in sys.argv[1:] or ROOMS
        for path in sorted(Path(folder).rglob("*.py"))
        for line in findings(path)
    ]
    print("\n".join([*found, f"{len(found)} docstrings begin with no verb"]))
    sys.exit(len(found) > MOST)


if __name__ == "__main__":
    main()
