"""How many files a completion passes through, the main path of the proxy."""

from __future__ import annotations

import subprocess
import sys

from tests.running.live_proxy import ROOT, environment


def test_the_main_path_is_short() -> None:
    """A completion passes eight files from the client's socket to
    upstream's and ten on the way back, whole and streamed alike.
    """
    done = subprocess.run(
        [sys.executable, "-m", "scripts.checks.main_path", "--most", "8", "10"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "completions/flow.py" in done.stdout
