"""Functions that run a Node program with its folder's packages and read its tests' results."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tests.running.live_proxy import environment

TIMEOUT_S = 180  # of a program that hangs; on a busy machine one takes more than a minute
SKIPPED = "skipped"


def run_node(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `node ARGUMENTS` in a folder; fail with the remedy if Node or packages are missing."""
    node = shutil.which("node")
    assert node, "Node is not installed; these tests need version 20 or newer and npm"
    installed = (folder / "node_modules").is_dir()
    assert installed, (
        f"the packages of {folder} are not installed: run npm ci there, or scripts/test"
    )
    return subprocess.run(
        [node, *arguments],
        cwd=folder,
        env=environment() | env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def sentences_of(program: Path) -> list[str]:
    """Return the sentences of the tests in a Node program."""
    found = re.findall(r"""\btest\(["`](.+)["`], """, program.read_text())
    return [
        sentence.replace("${stream}", word)
        for sentence in found
        for word in (("false", "true") if "${stream}" in sentence else ("",))
    ]


def failures_of(junit: str) -> dict[str, str | None]:
    """Return the failure of each test by its sentence: None if it passed, SKIPPED if not run."""
    return {
        case.attrib["name"]: _failure_of(case)
        for case in ElementTree.fromstring(junit).iter("testcase")
    }


def _failure_of(case: ElementTree.Element) -> str | None:
    if case.find("skipped") is not None:
        return SKIPPED
    failed = case.find("failure")
    return None if failed is None else failed.text
