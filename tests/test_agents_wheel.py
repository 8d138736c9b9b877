"""The small distribution for agents, and an application's packages that hide ours."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.running.live_proxy import ROOT, environment

AGENT = """
import calibrator, policies, proxy
from pinocchio.desk import Desk
from pinocchio.doubt import doubt
from pinocchio.langchain import at_desk, unsure
from pinocchio.openai_agents import at_desk, unsure
from pinocchio.pydantic_ai import at_desk, unsure

assert (policies.MINE, calibrator.MINE, proxy.MINE) == (1, 1, 1)
assert doubt(0.7, None)("refund", "{}", 0.5)
try:
    doubt(None, "agent-tools")
except ImportError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "wheel", "--no-deps"]
    options = ["--no-build-isolation", "-w", str(folder), str(ROOT / "deploy" / "agents")]
    subprocess.run([*pip, *options], check=True, timeout=120)
    [path] = folder.glob("*.whl")
    return path


def test_it_is_small_and_has_one_top_level_package(wheel: Path) -> None:
    """The wheel has less than 100 kB and one top-level package, `pinocchio`."""
    assert wheel.stat().st_size < 100_000
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"pinocchio"}


def test_an_agent_keeps_packages_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """An agent may have packages `policies`, `calibrator` and `proxy`; the error names them."""
    site, agent = tmp_path / "site", tmp_path / "agent"
    zipfile.ZipFile(wheel).extractall(site)
    for name in ("policies", "calibrator", "proxy"):
        (agent / name).mkdir(parents=True)
        (agent / name / "__init__.py").write_text("MINE = 1\n")
    (agent / "agent.py").write_text(AGENT)
    env = environment() | {"PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "agent.py"], cwd=agent, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert f"'policies' in {agent} comes before it: rename yours" in done.stdout


def test_what_the_whole_project_is_needed_for_says_so(wheel: Path, tmp_path: Path) -> None:
    """What the small distribution lacks is refused with a hint to install the whole project."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    env = environment() | {"PYTHONPATH": str(site)}
    for use in USES.values():
        done = subprocess.run(
            [sys.executable, "-S", "-c", use], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert "install the whole project instead of pinocchio-agents" in done.stderr


USES = {
    "policies": "from pinocchio.doubt import doubt; doubt(None, 'agent-tools')",
    "calibrator": "from pinocchio import Pinocchio",
}


@pytest.mark.parametrize(("name", "use"), USES.items())
@pytest.mark.parametrize("shape", ["folder", "package", "module"])
def test_a_package_of_ones_own_is_named(tmp_path: Path, name: str, use: str, shape: str) -> None:
    """The error names the package of the user's that hides ours."""
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
    if shape == "folder":  # a folder without `__init__.py` is no package: ours is found after it
        assert done.returncode == 0, done.stderr
        return
    assert f"'{name}' in {tmp_path} comes before it: rename yours" in done.stderr
