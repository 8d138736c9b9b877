"""Hints on what to install fit the installation: a clone, a wheel, or a package index."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from calibrator.checkpoints.extras import check_installed, is_installed
from calibrator.errors import MissingExtraError, install_command
from tests.running.live_proxy import ROOT, environment, until

EDITABLE = f"-e '{ROOT}[train]'"
ORIGINS = {
    '{"url": "file:///a%20b/clone", "dir_info": {"editable": true}}': "-e '/a b/clone[train]'",
    '{"url": "file:///clone", "dir_info": {}}': "'/clone[train]'",
    '{"url": "file:///x/p.whl", "archive_info": {}}': "'pinocchio-proxy[train] @ file:///x/p.whl'",
    None: "'pinocchio-proxy[train]'",
}


def test_from_a_clone_the_clone_is_named() -> None:
    """In a clone the hint installs the clone into the running Python.

    The suite's own installation is editable, as `scripts/setup` makes it. Another `pip` would look
    for a package that no index has.
    """
    assert install_command("train") == f"{sys.executable} -m pip install {EDITABLE}"
    error = MissingExtraError("torch", "train")
    assert str(error) == f"torch is not installed; it comes with: {install_command('train')}"


@pytest.mark.parametrize(("origin", "wanted"), ORIGINS.items())
def test_the_command_follows_from_where_the_distribution_came_from(
    origin: str | None, wanted: str, tmp_path: Path
) -> None:
    """The hint follows the distribution's origin, as pip notes it (PEP 610)."""
    facts = tmp_path / "pinocchio_proxy-0.1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pinocchio-proxy\nVersion: 0.1.0\n"
    )
    if origin is not None:
        (facts / "direct_url.json").write_text(origin)
    shutil.copytree(ROOT / "calibrator", tmp_path / "calibrator", ignore=only_modules)
    code = "from calibrator.errors import install_command; print(install_command('train'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"{sys.executable} -m pip install {wanted}\n", done.stderr


def only_modules(folder: str, names: list[str]) -> list[str]:
    """Return the names that `copytree` leaves out: files that are not Python, such as weights."""
    others = [name for name in names if not name.endswith(".py")]
    return [name for name in others if not Path(folder, name).is_dir()]


def test_a_missing_extra_is_reported_without_import() -> None:
    """A missing extra is reported without importing it."""
    check_installed("json", "json", "train")
    assert not is_installed("no_such_module_of_ours")
    with pytest.raises(MissingExtraError, match="no-such is not installed"):
        check_installed("no_such_module_of_ours", "no-such", "train")


def test_no_page_promises_a_package_on_an_index() -> None:
    """No page says `pip install pinocchio-proxy`, since no index has it."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*.toml")]
    for folder in (
        "calibrator",
        "proxy",
        "policies",
        "deploy",
        "examples",
        "scripts",
        "docs",
        ".github",
    ):
        pages += [
            path for path in (ROOT / folder).rglob("*.md") if "node_modules" not in path.parts
        ]
    promise = re.compile(r"pip install [\"']?pinocchio-proxy")
    found = [path for path in pages if promise.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_setup_says_how_long_and_how_much_before_it_begins(tmp_path: Path) -> None:
    """`scripts/setup` first prints its download, size on disk and minutes, then each step."""
    (tmp_path / "scripts").mkdir()
    for name in ("scripts/setup", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "PIP_NO_INDEX": "1"}
    done = subprocess.run(
        [tmp_path / "scripts" / "setup", "serve"],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0, "without an index nothing can be installed"
    first = done.stderr.splitlines()[0]
    assert re.search(r"about \d+ MB to download, \d+ MB on disk, \d to \d minutes", first), first
    assert "once" in first
    steps = [line for line in done.stderr.splitlines() if line.startswith("  ")]
    assert steps[0].startswith("  1 of 3: ")


PYTHON_STUB = """#!/usr/bin/env bash
# Stands for a python with venv and pip: notes what it does, and takes a while.
case "$*" in
    -c*) exit 0 ;;
    "-m venv .venv") mkdir -p .venv/bin && sleep 0.3 && cp "$0" .venv/bin/python ;;
    *) echo "begins $PPID" >> log && sleep 0.3 && echo "ends $PPID" >> log ;;
esac
"""
COMMANDS = ("bash", "cat", "cp", "cut", "dirname", "env", "mkdir", "rm", "sha256sum", "sleep")


@pytest.mark.parametrize("has_flock", [True, False])
def test_of_two_setups_at_once_one_waits(tmp_path: Path, has_flock: bool) -> None:
    """Of two setups at once one waits and says so, with and without `flock`; only one installs."""
    running = [setting_up(tmp_path, has_flock=has_flock) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], outputs
    [waited] = [text for text in outputs if "3 of 3" not in text]
    assert waited == "another setup of this folder is under way; this one waits for it\n"
    lines = (tmp_path / "log").read_text().split()
    assert lines[::2] == ["begins", "ends"] * 2
    assert len({*lines[1::2]}) == 1
    assert not (tmp_path / ".setup-lock.d").exists()


def test_a_lock_of_a_killed_setup_is_reported(tmp_path: Path) -> None:
    """Without `flock`, a lock left by a killed setup is reported and not waited for."""
    (tmp_path / ".setup-lock.d").mkdir()
    (tmp_path / ".setup-lock.d" / "pid").write_text("999999999")
    process = setting_up(tmp_path, has_flock=False)
    assert "was killed; remove that folder" in process.communicate(timeout=60)[1]
    assert process.returncode == 1


def setting_up(tmp_path: Path, *, has_flock: bool) -> subprocess.Popen[str]:
    """Start `scripts/setup serve` in a folder, with a python that installs nothing."""
    command = [tmp_path / "scripts" / "setup", "serve"]
    if not command[0].exists():
        (tmp_path / "scripts").mkdir()
        for name in ("scripts/setup", "pyproject.toml", "requirements.lock"):
            shutil.copy(ROOT / name, tmp_path / name)
        (tmp_path / "bin").mkdir()
        for name in (*COMMANDS, *(["flock"] if has_flock else [])):
            found = shutil.which(name)
            assert found is not None, name
            (tmp_path / "bin" / name).symlink_to(found)
        stub = tmp_path / "bin" / "python3"
        stub.write_text(PYTHON_STUB)
        stub.chmod(0o755)
    environment = {"PATH": str(tmp_path / "bin")}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def test_uninstalling_names_every_place_that_a_proxy_writes_to(tmp_path: Path) -> None:
    """The page on uninstalling names every place that a run with the defaults writes to."""
    home, work, scratch = (tmp_path / name for name in ("home", "work", "tmp"))
    for folder in (home, work, scratch):
        folder.mkdir()
    env = environment() | {"HOME": str(home), "TMPDIR": str(scratch)}
    for name in ("PINOCCHIO_CACHE", "XDG_CACHE_HOME"):
        env.pop(name, None)
    with (
        (tmp_path / "said").open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", "pinocchio", "serve", "--port", "0"],
            cwd=work,
            env=env,
            stdout=output,
            stderr=subprocess.DEVNULL,
        ) as process,
    ):
        until(lambda: "Ready" in (tmp_path / "said").read_text(), 60)
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    page = (
        (ROOT / "docs" / "install.md").read_text().partition("## Uninstall")[2].partition("##")[0]
    )
    left = {path.name for path in work.iterdir()}
    assert "pinocchio.db" in left
    assert all(f"`{name}`" in page for name in left), left
    assert not list(scratch.glob("pinocchio*"))
    files = [path.relative_to(home) for path in home.rglob("*") if path.is_file()]
    assert all(path.parts[:2] == (".cache", "pinocchio") for path in files), files
    assert "`~/.cache/pinocchio`" in page
