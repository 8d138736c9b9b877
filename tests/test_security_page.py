"""The threat model: every line names its test, and these tests exist."""

from __future__ import annotations

import ast
import re

from scripts.checks.audit_pins import LOCKS, differences, lacking, mistakes, pins
from tests.running.live_proxy import ROOT

PAGE = (ROOT / "SECURITY.md").read_text()


def test_every_threat_names_a_test_that_exists() -> None:
    """Every threat names a test that exists."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    threats = [line for line in lines if not line.startswith("| threat")]
    named = [named_in(line.split(" | ")[-1]) for line in threats]
    assert len(threats) >= 35
    assert [line for line, found in zip(threats, named, strict=True) if not found] == []
    for file, test in (each for found in named for each in found):
        [path] = (ROOT / "tests").rglob(file.removeprefix("tests/"))
        tree = ast.parse(path.read_text())
        functions = ast.FunctionDef | ast.AsyncFunctionDef
        assert test in {node.name for node in tree.body if isinstance(node, functions)}, test


def named_in(cell: str) -> list[tuple[str, str]]:
    """Return file and name of each test in a cell; `::name` is in the file before it."""
    found: list[tuple[str, str]] = []
    for file, name in re.findall(r"`((?:tests/[\w/]+/)?test_\w+\.py)?::(\w+)`", cell):
        found.append((file or found[-1][0], name))
    return found


def test_every_kind_of_attacker_has_a_part() -> None:
    """The page has a section for every kind of attacker."""
    kinds = "Clients", "Upstreams", "Web pages", "Reviewers", "Other tenants", "Local users"
    for kind in (*kinds, "The supply chain"):
        assert f"### {kind}\n" in PAGE


def test_pins_that_differ_are_named() -> None:
    """Installed packages with another version or without a pin are reported, except pip's own."""
    pinned = pins("# Exact\nA.b_c==1.0\nd==2.0\n")
    assert differences(pinned, {"a-b-c": "1.0", "d": "2.0", "pip": "9"}) == []
    found = differences(pinned, {"a-b-c": "1.1", "e": "3"})
    assert [sentence.split(",")[0] for sentence in found] == [
        "a-b-c 1.1 is installed",
        "e 3 is installed",
    ]


def test_every_file_that_is_installed_has_a_hash() -> None:
    """Every pinned package has hashes in the lock files, except torch and uv."""
    pinned = pins((ROOT / "constraints.txt").read_text())
    texts = {file: (ROOT / file).read_text() for file in LOCKS}
    for file, text in texts.items():
        assert mistakes(pinned, file, text) == []
        assert "://" not in text
    assert lacking(pinned, *texts.values()) == {"torch", "uv"}
    setup = (ROOT / "scripts" / "setup").read_text()
    assert setup.count("hashed --requirement requirements.lock") == 2
    assert "--require-hashes --no-deps" in setup
    entry = "a==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\nb==2.0\n"
    assert mistakes({"a": "1.1", "b": "2.0"}, "x", entry) == [
        "x has a 1.0, constraints.txt pins 1.1",
        "x has no hash of b",
    ]
