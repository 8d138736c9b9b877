"""`pinocchio score --engine ray` on this machine alone, and its error messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calibrator.errors import install_command
from pinocchio.commands import cli
from tests.builders.labelled_rows import raw_rows, write
from tests.calibrator.lab.cluster.test_ray_cluster import check_against_one_process, files_of
from tests.running.live_proxy import environment, free_port
from tests.servers.ray_cluster import OURS


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("rows") / "rows.jsonl", raw_rows(5, seed=1))


@pytest.mark.slow  # Ray takes eight seconds of CPU to begin
def test_the_output_is_that_of_one_process(tmp_path: Path) -> None:
    """The output of good and bad rows equals one process's, in order."""
    files, output = files_of(tmp_path, 300), tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "pinocchio", "score", *map(str, files), "-o", str(output)]
    with subprocess.Popen(
        [*command, "--engine", "ray"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment() | OURS,
    ) as run:
        check_against_one_process(run, files, output)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # Ray's own deprecated options
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{rows}"], "--engine ray needs -o OUT: what is done is kept beside it"),
        (["{rows}", "-o", "{folder}"], "Is a directory"),
        (["{folder}/none.jsonl", "-o", "{out}"], "No such file or directory"),
        (["{rows}", "-o", "{out}", "--calibrator", "./nowhere"], "there is no checkpoint folder"),
        (["{rows}", "-o", "{out}", "--ray-address", "{closed}"], "Ray at '127.0.0.1:"),
        (
            ["{rows}", "-o", "{out}", "--ray-address", "nonsense"],
            "Ray at 'nonsense' cannot",
        ),
    ],
)
def test_mistakes_are_one_sentence(rows: Path, arguments: list[str], message: str) -> None:
    """A mistake gives one line on stderr, exit status 2 and no output."""
    places = {"rows": rows, "folder": rows.parent, "out": rows.with_name("out.jsonl")}
    closed = f"127.0.0.1:{free_port()}"
    words = [argument.format(**places, closed=closed) for argument in arguments]
    result = CliRunner().invoke(cli, ["score", "--engine", "ray", *words], env=OURS)
    assert (result.exit_code, result.stdout) == (2, ""), result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("pinocchio: ")
    assert message in line
    assert not places["out"].exists()


def test_without_its_extra_it_says_what_to_install(rows: Path) -> None:
    """Without ray installed the command names the extra, with exit status 1."""
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from pinocchio.__main__ import main\n"
        f"sys.argv = ['pinocchio', 'score', {str(rows)!r}, '-o', 'out', '--engine', 'ray']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60
    )
    sentence = f"ray is not installed; it comes with: {install_command('ray')}"
    assert (done.returncode, done.stderr) == (1, f"pinocchio: {sentence}\n")
