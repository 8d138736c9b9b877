"""The suite's forked processes: every test is counted once, also where its process ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

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
import os, signal

def test_before():
    pass

def test_dying():
    os._exit(7)

def test_killed():
    os.kill(os.getpid(), signal.SIGSEGV)

def test_after():
    pass
"""


HANGING = """
import threading, time

def test_logging():
    def log():
        while True:
            print("a line of a thread", flush=True)
            time.sleep(0.001)
    threading.Thread(target=log, daemon=True).start()

def test_hanging():
    open("hangs", "w").close()
    time.sleep(100)
"""
Ran = tuple[Path, subprocess.CompletedProcess[str]]


def started(folder: Path, *options: str, **files: str) -> subprocess.Popen[str]:
    """pytest on these files, in two processes."""
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.forking.forked", "--processes", "2"]
    command += ["--rootdir", str(folder), "-p", "no:schemathesis", *options]
    return subprocess.Popen(
        command, cwd=folder, env=environment() | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Three files on two processes, of which two end in the middle of a file."""
    folder = tmp_path_factory.mktemp("suite")
    files = {"dying": DYING, "first": GOOD, "second": GOOD}
    with started(folder, "--junitxml", "all.xml", **files) as process:
        output, _ = process.communicate(timeout=120)
    return folder, subprocess.CompletedProcess([], process.returncode, output)


def test_every_test_is_counted_once(run: Ran) -> None:
    """Of 88 tests 82 pass, four fail, two of them with their process, and two are skipped."""
    folder, done = run
    assert done.returncode == 1
    assert re.search(r"=+ 4 failed, 82 passed, 2 skipped in ", done.stdout), done.stdout
    assert len(re.findall(r"- Captured stdout call -+\nwhat it said\n", done.stdout)) == 2
    counted = ElementTree.parse(folder / "all.xml").find("testsuite")
    assert counted is not None
    assert [counted.get(name) for name in ("tests", "failures", "skipped")] == ["88", "4", "2"]


def test_a_test_that_ends_its_process_has_failed(run: Ran) -> None:
    """It is named, with the status; another process takes the rest of its file."""
    _, done = run
    assert re.search(r"test_dying _+\n+its process has ended with 7\n", done.stdout), done.stdout
    assert re.search(r"test_killed _+\n+its process has ended with -11\n", done.stdout)
    assert "test_after" not in done.stdout


def test_fixtures_of_the_session_end_and_folders_are_apart(run: Ran) -> None:
    """Each process that ends by itself tears down what it set up; no two share a folder."""
    folder, _ = run
    places = dict(line.split() for line in (folder / "pids").read_text().splitlines())
    assert len(list(folder.glob("ended-*"))) == 2, "two others have died"
    assert len(set(places.values())) == len(places)


def test_what_failed_is_run_again(run: Ran) -> None:
    """pytest's own choices hold: here of the last failures, and to end with the first one."""
    folder, _ = run
    (folder / "pids").unlink()
    with started(folder, "--last-failed", "-x", "-k", "bad") as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert re.search(r"=+ 1 failed, 3 deselected in |stopping after 1 failures", output), output
    assert not (folder / "pids").exists(), "what passed was run too"


def test_an_interrupted_run_ends_and_says_where_it_was(tmp_path: Path) -> None:
    """Ctrl-C: fixtures are torn down; what a thread prints between tests never shows."""
    with started(tmp_path, hanging=HANGING) as process:
        while not (tmp_path / "hangs").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "it was in test_hanging.py::test_hanging" in output
    assert "1 passed in " in output
    assert "a line of a thread" not in output
    assert len(list(tmp_path.glob("ended-*"))) == 1
