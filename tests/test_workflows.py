"""What runs on each change: the project's own scripts, and nothing that only a workflow knows."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = read(path)["jobs"]
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_steps_are_scripts_of_the_project(path: Path) -> None:
    """Every command is one script that is there and can be run, within a stated time."""
    for job in jobs(path).values():
        assert job["timeout-minutes"] <= 120
        commands = [step["run"] for step in job["steps"] if "run" in step]
        assert commands
        for command in commands:
            script = re.fullmatch(r"(scripts/\w+)( .*)?", command)
            assert script is not None, command
            assert os.access(ROOT / script[1], os.X_OK)


def test_every_fuzzer_runs_at_night() -> None:
    """The workflow's list is that of the fuzzers."""
    listed = jobs(GITHUB / "workflows" / "nightly.yml")["fuzz"]["strategy"]["matrix"]["fuzzer"]
    there = [
        path.stem
        for path in (ROOT / "tests" / "fuzz").glob("*.py")
        if re.search(r"^def cases\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert listed == sorted(there)


def test_forms_can_be_read() -> None:
    """Each form has a name, a description and fields with labels."""
    for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml"):
        form = read(path)
        if path.stem == "config":
            continue
        assert form["name"]
        assert form["description"]
        assert all(field["attributes"]["label"] for field in form["body"])
