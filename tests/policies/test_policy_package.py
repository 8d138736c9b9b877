"""The package policies: its exports, imports and errors."""

from __future__ import annotations

import ast
import pickle
import sys
from pathlib import Path

import policies
from policies import InvalidDocumentError, PolicyError, Problem

ROOT = Path(policies.__file__).parent


def imported_packages(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


def test_the_package_needs_nothing_but_pyyaml() -> None:
    """The package imports only the standard library, PyYAML and itself."""
    allowed = {"policies", "yaml", *sys.stdlib_module_names}
    for path in ROOT.glob("*.py"):
        assert imported_packages(path) <= allowed, path.name


def test_all_that_is_exported_exists() -> None:
    """`__all__` names each existing public name once."""
    assert all(hasattr(policies, name) for name in policies.__all__)
    assert len(set(policies.__all__)) == len(policies.__all__)
    assert (ROOT / "py.typed").is_file()


def test_a_problem_reads_as_file_line_and_sentence() -> None:
    """A problem reads as file, line and sentence; line 0 is not shown."""
    assert str(Problem("a.yaml", 12, "unknown key 'blow'")) == "a.yaml:12: unknown key 'blow'"
    assert str(Problem("a.yaml", 0, "there is no such file")) == "a.yaml: there is no such file"


def test_an_invalid_document_lists_its_problems_by_line() -> None:
    """An invalid document's error lists its problems by line and survives pickling."""
    problems = [Problem("a.yaml", 3, "third"), Problem("a.yaml", 1, "first")]
    error = InvalidDocumentError(problems)
    assert str(error) == "a.yaml:1: first\na.yaml:3: third"
    assert pickle.loads(pickle.dumps(error)).problems == tuple(reversed(problems))
    assert isinstance(error, PolicyError)
