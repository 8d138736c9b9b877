"""Packages of an application's own that have the names of ours are named in the error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.running.live_proxy import environment

USES = {
    "policies": "from pinocchio.doubt import doubt; doubt(None, 'agent-tools')",
    "calibrator": "from pinocchio import Pinocchio",
}


@pytest.mark.parametrize(("name", "use"), USES.items())
@pytest.mark.parametrize("shape", ["folder", "package", "module"])
def test_a_package_of_ones_own_is_named(tmp_path: Path, name: str, use: str, shape: str) -> None:
    """Instead of an import that fails somewhere inside, the error says which one hides ours."""
    if shape == "module":
        (tmp_path / f"{name}.py").write_text("")
    else:
        (tmp_path / name).mkdir()
    if shape != "module":
        (tmp_path / name / ("__init__.py" if shape == "package" else "a.yaml")).write_text("")
    (tmp_path / "app.py").write_text(use)
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    if shape == "folder":  # no package: ours is found behind it
        assert done.returncode == 0, done.stderr
        return
    assert f"'{name}' in {tmp_path} comes before it: rename yours" in done.stderr
