"""GitHub workflows run the project's own scripts and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
RELEASE = ROOT / "scripts" / "release"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = read(path)["jobs"]
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_steps_are_scripts_of_the_project(path: Path) -> None:
    """Every command of a workflow is an executable script, and every job has a time limit."""
    for job in jobs(path).values():
        assert job["timeout-minutes"] <= 120
        commands = [step["run"] for step in job["steps"] if "run" in step]
        assert commands
        for command in commands:
            script = re.fullmatch(r"(scripts/\w+)( .*)?", command)
            assert script is not None, command
            assert os.access(ROOT / script[1], os.X_OK)


def test_a_release_names_its_actions_by_commit() -> None:
    """The release workflow pins its actions by commit, and only its job may write."""
    path = GITHUB / "workflows" / "release.yml"
    assert read(path)["permissions"] == {}
    for line in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8")):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line), line


def test_a_release_runs_each_step_of_its_script_in_order() -> None:
    """The release workflow runs each step of its script in order, and attests the built image."""
    all_jobs = jobs(GITHUB / "workflows" / "release.yml")
    job = all_jobs["release"]
    steps = [step for each in all_jobs.values() for step in each["steps"] if "run" in step]
    run = [step["run"].split()[1] for step in steps]
    documented = re.findall(r"^#   scripts/release (\w+)", RELEASE.read_text(), re.MULTILINE)
    assert run == documented
    [build] = [step for step in job["steps"] if step.get("id") == "image"]
    assert (ROOT / build["with"]["file"]).is_file()
    assert build["with"]["platforms"] == "linux/amd64,linux/arm64"
    about = [step["with"] for step in job["steps"] if "subject-digest" in step.get("with", {})]
    assert {each["subject-digest"] for each in about} == {"${{ steps.image.outputs.digest }}"}
    assert len(about) == 2


@pytest.mark.parametrize(
    ("tag", "chart", "section", "message"),
    [
        ("v1.2.3", "1.2.3", "## 1.2.3 (2027-01-01)", ""),
        ("v1.2.4", "1.2.3", "## 1.2.3", "the tag is 'v1.2.4', this version's would be v1.2.3"),
        ("v1.2.3", "1.2.2", "## 1.2.3", "Chart.yaml is not of 1.2.3"),
        ("v1.2.3", "1.2.3", "## 1.2.30", "CHANGELOG.md has no section '## 1.2.3'"),
    ],
)
def test_a_release_is_checked_first(
    tmp_path: Path, tag: str, chart: str, section: str, message: str
) -> None:
    """A release is refused unless tag, package, chart and changelog have the same version."""
    files = {
        "pinocchio/__init__.py": '__version__ = "1.2.3"\n',
        "deploy/helm/pinocchio-proxy/Chart.yaml": f"version: {chart}\nappVersion: {chart}\n",
        "CHANGELOG.md": f"## Unreleased\n\n{section}\n\nBetter.\n\n## 1.0.0\n\nNew.\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(RELEASE, tmp_path / "scripts")
    env = {"PATH": os.environ["PATH"], "GITHUB_REF_NAME": tag}
    done = subprocess.run([script, "check"], env=env, capture_output=True, text=True, timeout=30)
    assert (done.returncode == 0) == (not message)
    assert message in done.stderr


def test_every_fuzzer_runs_at_night() -> None:
    """The nightly workflow lists every fuzzer."""
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
