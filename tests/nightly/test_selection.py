"""The list of nightly tests names tests that exist."""

from __future__ import annotations

import ast

import pytest

from tests.nightly.selection import NIGHTLY, TESTS


@pytest.mark.parametrize("entry", sorted(NIGHTLY))
def test_every_entry_names_a_test(entry: str) -> None:
    """Each entry is a test that exists; otherwise a renamed one would run in the suite again."""
    file, _, name = entry.partition("::")
    tree = ast.parse((TESTS / file).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert not name or name.partition("[")[0] in functions
