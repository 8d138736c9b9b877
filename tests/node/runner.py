"""Runs a Node program with the packages of its own folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.live_proxy import environment

TIMEOUT_S = 60


def run_node(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`node ARGUMENTS` in a folder; fails with the remedy where Node or packages are missing."""
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
