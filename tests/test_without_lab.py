"""An installation without the researchers' part serves, scores, recalibrates and tunes."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running.live_proxy import ROOT, environment

LAB = "calibrator/lab"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the four packages without the lab into a folder and return it."""
    site = tmp_path_factory.mktemp("site")

    def left_out(folder: str, names: list[str]) -> list[str]:
        inside = Path(folder).relative_to(ROOT)
        return [name for name in names if f"{inside / name}" == LAB]

    for package in ("pinocchio", "proxy", "policies", "calibrator"):
        shutil.copytree(ROOT / package, site / package, ignore=left_out)
    shutil.copy(ROOT / "proxy.yaml", site)
    return site


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 300 labelled rows; one model is right three times as often as the other."""
    rng = random.Random(7)
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for n in range(300):
            model, right = rng.choice([("fine-a", 0.9), ("fine-b", 0.3)])
            line = {
                "question": f"Order {n}: add {rng.randint(100, 999)} to {rng.randint(100, 999)}.",
                "response": f"It is {rng.randint(200, 1998)}.",
                "model": model,
                "correct": int(rng.random() < right),
            }
            file.write(json.dumps(line) + "\n")
    return path


def run(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `pinocchio` from the site, in the site's folder."""
    words = [sys.executable, "-m", "pinocchio", *map(str, arguments)]
    env = environment() | {"PYTHONPATH": str(site)}
    return subprocess.run(words, cwd=site, env=env, capture_output=True, text=True, timeout=300)


def test_rows_are_scored(site: Path, rows: Path, tmp_path: Path) -> None:
    """Each row gets a confidence between 0 and 1."""
    out = tmp_path / "scored.jsonl"
    done = run(site, "score", rows, "-o", out)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line)["confidence"] for line in out.read_text().splitlines()]
    assert len(found) == 300
    assert all(0 < confidence < 1 for confidence in found)


def test_scores_are_recalibrated(site: Path, rows: Path, tmp_path: Path) -> None:
    """A recalibration is fitted and written."""
    out = tmp_path / "recalibration.json"
    done = run(site, "recalibrate", rows, "-o", out)
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())


def test_the_calibrator_is_tuned(site: Path, rows: Path, tmp_path: Path) -> None:
    """Tuning works without the lab: it ends well or with a plain error."""
    done = run(site, "tune", rows, "-o", tmp_path / "tuned")
    assert done.returncode == 0 or "Traceback" not in done.stderr, done.stderr
    assert "No module named" not in done.stdout + done.stderr


def test_the_proxy_can_be_made(site: Path) -> None:
    """All modules for serving can be imported without the lab."""
    code = "import sys, proxy.app, calibrator; calibrator.load_scorer('embedded'); print(*sys.path)"
    env = environment() | {"PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=site, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    checked = run(site, "check", "--config", "proxy.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_commands_of_the_lab_say_where_they_are(site: Path) -> None:
    """A command of the lab ends with a sentence on where it is, and help does not list it."""
    done = run(site, "train", "--help")
    assert done.returncode == 1
    assert "researchers' commands" in done.stderr
    assert LAB in done.stderr
    assert " lab " not in run(site, "--help").stdout
