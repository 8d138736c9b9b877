"""Leaves the tests of `nightly.txt` to the nightly run, as if each was marked slow."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent
NIGHTLY = frozenset(
    line
    for line in (FOLDER / "nightly.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the listed files, unless `-m` selects slow tests."""
    if config.option.markexpr != "not slow" or not collection_path.is_relative_to(TESTS):
        return None
    return collection_path.relative_to(TESTS).as_posix() in NIGHTLY or None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the listed tests, and all tests of the listed files, as slow."""
    if not item.path.is_relative_to(TESTS):
        return
    file = item.path.relative_to(TESTS).as_posix()
    names = {item.name, getattr(item, "originalname", item.name)}
    if file in NIGHTLY or any(f"{file}::{name}" in NIGHTLY for name in names):
        item.add_marker("slow")
