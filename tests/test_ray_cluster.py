"""Scoring on a real Ray cluster of two machines, one of which is lost in the middle of the work."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calibrator.commands import cli
from tests.labelled_rows import raw_rows, write
from tests.live_proxy import environment, until
from tests.ray_cluster import OURS, RayCluster

SCORING = "ray::MapWorker(MapBatches(PartScorer)).submit"  # an actor with a part in hand


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster() as found:
        yield found


def score_on(cluster: RayCluster, *arguments: object) -> subprocess.Popen[str]:
    given = [*arguments, "--engine", "ray", "--ray-address", cluster.address]
    return subprocess.Popen(
        [sys.executable, "-m", "pinocchio", "score", *map(str, given)],
        stdout=subprocess.DEVNULL,  # where Ray tells of lost machines
        stderr=subprocess.PIPE,
        text=True,
        env=environment() | OURS,
    )


def files_of(folder: Path, count: int) -> list[Path]:
    """Rows in two files, one packed, with two bad ones."""
    rows = raw_rows(count, seed=1)
    plain = write(folder / "plain.jsonl", [*rows[: count // 2], 5, {"question": "q"}])
    packed = folder / "packed.jsonl.gz"
    text = "".join(json.dumps(row) + "\n" for row in rows[count // 2 :])
    packed.write_bytes(gzip.compress(text.encode()))
    return [plain, packed]


def check_against_one_process(run: subprocess.Popen[str], files: list[Path], output: Path) -> None:
    """Ends the run, and compares its output, messages and status with those of `score` alone."""
    expected = output.with_name("expected.jsonl")
    alone = CliRunner().invoke(cli, ["score", *map(str, files), "-o", str(expected)])
    _, stderr = run.communicate(timeout=90)
    ours = ("pinocchio", str(output.parent))
    told = [line for line in stderr.splitlines() if line.startswith(ours)]
    assert (run.returncode, told) == (alone.exit_code, alone.stderr.splitlines()), stderr
    assert output.read_bytes() == expected.read_bytes()
    assert not Path(f"{output}.parts").exists()


def parts_of(output: Path) -> set[Path]:
    return set(Path(f"{output}.parts").glob("0*.jsonl"))


def test_a_lost_machine_loses_no_row(cluster: RayCluster, tmp_path: Path) -> None:
    """SIGKILL to a machine with a part in hand: the output is that of one process, byte by byte."""
    files, output = files_of(tmp_path, 4_000), tmp_path / "out.jsonl"
    run = score_on(cluster, *files, "-o", output)
    until(lambda: cluster.workers_of_second(SCORING), 60)
    cluster.lose_second()
    assert len(parts_of(output)) < 5, "it was too late to lose anything"
    check_against_one_process(run, files, output)


@pytest.mark.slow
def test_an_interrupted_run_goes_on(cluster: RayCluster, tmp_path: Path) -> None:
    """SIGKILL to the driver: the same command scores what is missing, and nothing else."""
    files, output = files_of(tmp_path, 20_000), tmp_path / "out.jsonl"
    run = score_on(cluster, *files, "-o", output)
    until(lambda: len(parts_of(output)) >= 4, 60)
    run.kill()
    run.communicate()
    until(lambda: not cluster.workers(SCORING), 60)
    done = {path: path.stat().st_mtime_ns for path in parts_of(output)}
    assert not output.exists()
    again = score_on(cluster, *files, "-o", output)
    until(lambda: len(parts_of(output)) > len(done), 60)
    assert done.items() <= {p: p.stat().st_mtime_ns for p in parts_of(output)}.items()
    check_against_one_process(again, files, output)
