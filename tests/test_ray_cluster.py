"""Scoring on a real Ray cluster of two machines, one of which is lost in the middle of the work."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from calibrator import Item, Score, load_scorer, version_of
from calibrator.commands import cli
from proxy.engines.wire import SCORE_PATH, SCORER_PATH, items_body, read_scores
from tests.labelled_rows import labelled, raw_rows, write
from tests.live_proxy import ROOT, environment, free_port, until
from tests.ray_cluster import OURS, RayCluster

SCORING = "ray::MapWorker(MapBatches(PartScorer)).submit"  # an actor with a part in hand


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[RayCluster]:
    with RayCluster() as found:
        yield found


@pytest.fixture
def cluster(running_cluster: RayCluster) -> RayCluster:
    """Both machines are there."""
    running_cluster.restore_second()
    return running_cluster


# --- files --------------------------------------------------------------------------------------


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


# --- requests -----------------------------------------------------------------------------------

VERSION = version_of("embedded")
SERVE_CONFIG = ROOT / "deploy" / "ray" / "serve_config.yaml"


@dataclass
class Client:
    """Asks until it is answered, as whoever needs a score does."""

    url: str
    answered: int = 0
    failed: list[str] = field(default_factory=list)

    def ask(self, items: Sequence[Item]) -> list[Score]:
        while True:
            try:
                reply = httpx.post(self.url + SCORE_PATH, content=items_body(items), timeout=5)
                if reply.status_code == 200:
                    break
                self.failed.append(reply.text)
            except httpx.TransportError as error:
                self.failed.append(repr(error))
        self.answered += 1
        return read_scores(reply.json(), VERSION, len(items))


def deployed(cluster: RayCluster, folder: Path) -> str:
    """The URL of two replicas, one on each machine."""
    config: dict[str, Any] = yaml.safe_load(SERVE_CONFIG.read_text())
    config["proxy_location"] = "HeadOnly"  # both machines have the same ports here
    config["http_options"]["port"] = port = free_port()
    ((options,),) = ([d for d in a["deployments"]] for a in config["applications"])
    options["autoscaling_config"] |= {"min_replicas": 2, "max_replicas": 2}
    path = folder / "serve_config.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [str(Path(sys.executable).with_name("serve")), "deploy", str(path)]
    subprocess.run(
        [*command, "--address", cluster.dashboard],
        check=True,
        capture_output=True,
        env=environment() | OURS,
    )
    until(lambda: cluster.replicas() == ["RUNNING"] * 2, 90)
    assert len(cluster.workers_of_second("ray::ServeReplica")) == 1
    return f"http://127.0.0.1:{port}"


def test_a_lost_machine_gives_no_wrong_score(cluster: RayCluster, tmp_path: Path) -> None:
    """SIGKILL to a machine with a replica under load: each request, asked again where it failed, is
    answered, and each score is that of the calibrator in this process."""
    scorer = load_scorer("embedded")
    items = [row.item("served") for row in labelled(40, seed=3)]
    expected = [score.confidence for score in scorer.score_batch(items)]
    client = Client(deployed(cluster, tmp_path))
    assert httpx.get(client.url + SCORER_PATH).json()["calibrator"] == scorer.name

    def ask(at: int) -> None:
        at %= len(items) - 3
        found = [score.confidence for score in client.ask(items[at : at + 3])]
        assert found == pytest.approx(expected[at : at + 3], abs=1e-6)

    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask, at) for at in range(300)]
        until(lambda: client.answered >= 50, 30)
        cluster.lose_second()
        assert client.answered < 250, "it was too late to lose anything"
        for each in asked:
            each.result(timeout=60)
    assert client.answered == 300
