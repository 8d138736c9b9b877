"""The wheel, built like a release, installed outside the clone, and run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import pinocchio
from tests.running.live_proxy import ROOT, environment, until

INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the release with `scripts/release build`; return its folder."""
    folder = tmp_path_factory.mktemp("dist")
    env = os.environ | {"DIST": str(folder), "PYTHON": sys.executable}
    env["PIP_NO_BUILD_ISOLATION"] = "false"  # pip reads false as yes: use the suite's hatchling
    subprocess.run([ROOT / "scripts" / "release", "build"], env=env, check=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def wheel(release: Path) -> Path:
    [path] = release.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a folder and return it; dependencies are the suite's."""
    site = tmp_path_factory.mktemp("site")
    install = ["install", "--no-deps", "--no-index", "--no-compile", "-t", str(site), str(wheel)]
    subprocess.run([*PIP, *install], check=True, timeout=120)
    return site


def command(site: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return the command `pinocchio ARGUMENTS` of the installed wheel and its environment."""
    return (
        [sys.executable, "-m", "pinocchio", *arguments],
        environment() | {"PYTHONPATH": str(site), "PYTHONUNBUFFERED": "1"},
    )


def run(site: Path, folder: Path, *arguments: str) -> str:
    words, env = command(site, *arguments)
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow  # builds a whole release
def test_checksums_cover_the_files_of_a_release(release: Path, site: Path) -> None:
    """A release's checksums cover its files, and the list of weights fits those installed."""
    names = {path.name for path in release.iterdir()} - {"SHA256SUMS"}
    sums = (release / "SHA256SUMS").read_text()
    assert {line.split()[1] for line in sums.splitlines()} == names
    assert f"pinocchio-proxy-{pinocchio.__version__}.tgz" in names
    weights = (release / "WEIGHTS.sha256").read_text()
    assert "embedded/model.safetensors\n" in weights
    for folder, text in ((release, sums), (site, weights)):
        check = ["sha256sum", "--check", "--strict", "-"]
        done = subprocess.run(check, cwd=folder, input=text, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


def test_its_size_is_the_stated_one(wheel: Path) -> None:
    """The wheel has the size that the page on installing states, and only the four packages."""
    [stated] = re.findall(r"pinocchio_proxy-\*\.whl, (\d+) MB", INSTALL)
    assert wheel.stat().st_size == pytest.approx(int(stated) * 1e6, rel=0.1)
    folders = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    version = pinocchio.__version__
    packages = {"pinocchio", "proxy", "policies", "calibrator"}
    assert folders == packages | {f"pinocchio_proxy-{version}.dist-info"}


def test_it_holds_the_embedded_checkpoint(site: Path) -> None:
    """The wheel contains each file of the embedded checkpoint, byte for byte."""
    files = [
        path for path in (ROOT / "calibrator/checkpoints/embedded").iterdir() if path.is_file()
    ]
    assert "model.safetensors" in {path.name for path in files}
    for path in files:
        packed = site / path.relative_to(ROOT)
        assert packed.read_bytes() == path.read_bytes(), path.name


@pytest.fixture
def serving(site: Path, tmp_path: Path) -> Iterator[str]:
    """Run `pinocchio init` and `serve` in an empty folder; yield what it prints."""
    run(site, tmp_path, "init")
    words, env = command(site, "serve", "--port", "0")
    with (tmp_path / "stdout").open("w") as out, (tmp_path / "stderr").open("w") as err:
        process = subprocess.Popen(words, cwd=tmp_path, env=env, stdout=out, stderr=err)
    try:
        printed = tmp_path / "stdout"
        until(lambda: "curl" in printed.read_text() or process.poll() is not None, 60)
        assert process.poll() is None, (tmp_path / "stderr").read_text()
        yield printed.read_text()
    finally:
        process.terminate()
        process.wait(30)
    assert process.returncode in (0, -15)


def test_a_newcomer_gets_a_confidence(serving: str) -> None:
    """The printed curl command gets a reply with a confidence of the embedded calibrator."""
    [line] = [line.strip() for line in serving.splitlines() if "curl" in line]
    url, body = re.findall(r"https?://\S+", line)[0], line.split(" -d ")[1].strip("'")
    reply = httpx.post(
        url, json=json.loads(body.replace("'\\''", "'")), trust_env=False, timeout=30
    )
    assert reply.status_code == 200
    assert 0 < float(reply.headers["x-pinocchio-confidence"]) < 1
    assert reply.headers["x-pinocchio-calibrator"].startswith("embedded@")


def test_it_is_the_wheel_that_runs(site: Path, tmp_path: Path) -> None:
    """The installed wheel runs, not the clone."""
    code = "import proxy, calibrator; print(proxy.__file__, calibrator.__file__)"
    env = environment() | {"PYTHONPATH": str(site)}
    words = [sys.executable, "-c", code]
    printed = subprocess.run(
        words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert all(Path(each).is_relative_to(site) for each in printed.stdout.split())
    assert run(site, tmp_path, "--version").strip().endswith(pinocchio.__version__)
