"""The suite's forked processes: every test is counted once, also where its process ends."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running.live_proxy import ROOT, environment

CONFTEST = """
import os, pytest

@pytest.fixture(scope="session", autouse=True)
def of_the_session():
    yield
    open(f"ended-{os.getpid()}", "w").close()
"""
GOOD = """
import os, random, pytest

@pytest.mark.parametrize("number", range(40))
def test_good(number, tmp_path):
    assert not list(tmp_path.iterdir())
    with open("pids", "a") as file:
        file.write(f"{os.getpid()} {tmp_path.parent}\\n")

def test_bad():
    print("what it said")
    assert 1 == 2

@pytest.mark.skip(reason="not today")
def test_skipped():
    pass
"""
DYING = """
import os

def test_before():
    pass

def test_dying():
    os._exit(7)

def test_after():
    pass
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Three files on two processes, of which one ends in the middle of a file."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in (("dying", DYING), ("first", GOOD), ("second", GOOD)):
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.forked", "--processes", "2"]
    command += ["--rootdir", str(folder), "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    done = subprocess.run(
        command, cwd=folder, env=environment() | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return folder, done


def test_every_test_is_counted_once(run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Of 87 tests 81 pass, two fail, two are skipped, and two were lost with their process."""
    _, done = run
    assert done.returncode == 1
    assert re.search(r"=+ 4 failed, 81 passed, 2 skipped in ", done.stdout), done.stdout
    assert len(re.findall(r"- Captured stdout call -+\nwhat it said\n", done.stdout)) == 2


def test_what_a_lost_process_did_not_run_has_failed(
    run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """The test in which it ended is named, and the rest of its file; the other files are run."""
    _, done = run
    assert re.search(r"test_dying _+\n+its process has ended\n", done.stdout), done.stdout
    assert re.search(r"test_after _+\n+it was not run: the process that had its", done.stdout)


def test_fixtures_of_the_session_end_and_folders_are_apart(
    run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    """Each process that ends by itself tears down what it set up; no two share a folder."""
    folder, _ = run
    places = dict(line.split() for line in (folder / "pids").read_text().splitlines())
    assert {path.name for path in folder.glob("ended-*")} <= {f"ended-{pid}" for pid in places}
    assert len(list(folder.glob("ended-*"))) == 1, "the other one has died"
    assert len(set(places.values())) == len(places)
