"""Scoring on a real Ray cluster of two machines, one of which is lost during the work."""

from __future__ import annotations

import gzip
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from calibrator import CalibratorError, Item, Score, load_scorer, version_of
from pinocchio.commands import cli
from proxy.scoring.engines.scorer_protocol import SCORE_PATH, SCORER_PATH, items_body, read_scores
from tests.builders.labelled_rows import labelled, raw_rows, write
from tests.running.live_proxy import ROOT, environment, until
from tests.servers.ray_cluster import OURS, RayCluster

DEPLOY = ROOT / "deploy" / "ray"
SCORING = "ray::MapWorker(MapBatches(PartScorer)).submit"  # an actor that works on a part


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[RayCluster]:
    with RayCluster() as found:
        yield found


@pytest.fixture
def cluster(running_cluster: RayCluster) -> RayCluster:
    """Return the cluster with both machines running."""
    running_cluster.restore_second()
    return running_cluster


# --- files --------------------------------------------------------------------------------------


def documented(command: str) -> list[str]:
    """Return the arguments of the command in deploy/ray/README.md that begins with these words."""
    lines = map(str.strip, (DEPLOY / "README.md").read_text().splitlines())
    (found,) = [line for line in lines if line.startswith(command)]
    return shlex.split(found, comments=True)


@contextmanager
def scoring_on(
    cluster: RayCluster, files: list[Path], output: Path
) -> Iterator[subprocess.Popen[str]]:
    """Start scoring as the README says; stop it at the end of the context."""
    plain, packed = files
    places = {"rows.jsonl": plain, "more.jsonl.gz": packed, "scored.jsonl": output}
    places["10.0.0.1:6379"] = Path(cluster.address)
    _, *arguments = documented("pinocchio score")
    run = subprocess.Popen(
        [sys.executable, "-m", "pinocchio", *(str(places.get(a, a)) for a in arguments)],
        stdout=subprocess.DEVNULL,  # Ray prints lost machines there
        stderr=subprocess.PIPE,
        text=True,
        env=environment() | OURS,
    )
    with run:
        try:
            yield run
        finally:
            run.kill()


def files_of(folder: Path, count: int) -> list[Path]:
    """Write rows to two files, one packed, with two bad rows."""
    rows = raw_rows(count, seed=1)
    plain = write(folder / "plain.jsonl", [*rows[: count // 2], 5, {"question": "q"}])
    packed = folder / "packed.jsonl.gz"
    text = "".join(json.dumps(row) + "\n" for row in rows[count // 2 :])
    packed.write_bytes(gzip.compress(text.encode()))
    return [plain, packed]


def check_against_one_process(run: subprocess.Popen[str], files: list[Path], output: Path) -> None:
    """Wait for the run's end, and compare its output, messages and status with those of `score`."""
    expected = output.with_name("expected.jsonl")
    alone = CliRunner().invoke(cli, ["score", *map(str, files), "-o", str(expected)])
    _, stderr = run.communicate(timeout=300)
    ours = ("pinocchio", str(output.parent))
    messages, expected_messages = (  # without the progress of long work
        [line for line in text.splitlines() if line.startswith(ours)]
        for text in (stderr, alone.stderr)
    )
    assert (run.returncode, messages) == (alone.exit_code, expected_messages), stderr
    (rows, numbers), (same_rows, same_numbers) = map(rows_and_numbers, (output, expected))
    assert rows == same_rows
    assert numbers == pytest.approx(same_numbers, abs=1.1e-6)  # they have six digits
    assert not Path(f"{output}.parts").exists()


def rows_and_numbers(path: Path) -> tuple[list[Any], list[float]]:
    """Return the rows of a file without their scores and confidences, and those numbers."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return rows, [row.pop(name) for row in rows for name in ("score", "confidence")]


def parts_of(output: Path) -> set[Path]:
    return set(Path(f"{output}.parts").glob("0*.jsonl"))


@pytest.mark.slow
def test_a_lost_machine_loses_no_row(cluster: RayCluster, tmp_path: Path) -> None:
    """A machine lost by SIGKILL loses no row: the output equals one process's, in order."""
    files, output = files_of(tmp_path, 4_000), tmp_path / "out.jsonl"
    with scoring_on(cluster, files, output) as run:
        until(lambda: cluster.workers_of_second(SCORING), 60)
        cluster.lose_second()
        assert len(parts_of(output)) < 5, "it was too late to lose anything"
        check_against_one_process(run, files, output)


@pytest.mark.slow
def test_an_interrupted_run_goes_on(cluster: RayCluster, tmp_path: Path) -> None:
    """After SIGKILL to the driver the same command scores only what is missing."""
    files, output = files_of(tmp_path, 20_000), tmp_path / "out.jsonl"
    with scoring_on(cluster, files, output) as run:
        until(lambda: len(parts_of(output)) >= 4, 60)
        run.kill()
        run.wait()
    until(lambda: not cluster.workers(SCORING), 60)
    done = {path: path.stat().st_mtime_ns for path in parts_of(output)}
    assert not output.exists()
    with scoring_on(cluster, files, output) as again:
        until(lambda: len(parts_of(output)) > len(done), 60)
        assert done.items() <= {p: p.stat().st_mtime_ns for p in parts_of(output)}.items()
        check_against_one_process(again, files, output)


# --- requests -----------------------------------------------------------------------------------

VERSION = version_of("embedded")


@dataclass
class Client:
    """A client that asks until it gets an answer."""

    url: str
    answered: int = 0
    failed: list[str] = field(default_factory=list)

    def ask(self, items: Sequence[Item]) -> list[Score]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                reply = httpx.post(self.url + SCORE_PATH, content=items_body(items), timeout=5)
                if reply.status_code == 200:
                    self.answered += 1
                    return read_scores(reply.json(), VERSION, len(items))
                self.failed.append(reply.text)
            except httpx.TransportError as error:
                self.failed.append(repr(error))
        raise TimeoutError(f"not answered: {self.failed[-3:]}")


def serve_config(
    cluster: RayCluster,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return deploy/'s Serve configuration for shared ports, its application and its deployment."""
    config = yaml.safe_load((DEPLOY / "serve_config.yaml").read_text())
    config["proxy_location"] = "HeadOnly"
    config["http_options"]["port"] = cluster.serve_port
    (application,) = config["applications"]
    (deployment,) = application["deployments"]
    return config, application, deployment


def deploy(cluster: RayCluster, config: dict[str, Any], path: Path) -> str:
    """Deploy as the README says, and return the URL once all replicas are running."""
    path.write_text(yaml.safe_dump(config))
    program, *arguments = documented("serve deploy")
    places = {"serve_config.yaml": path, "http://10.0.0.1:8265": cluster.dashboard}
    command = [Path(sys.executable).with_name(program), *(places.get(a, a) for a in arguments)]
    subprocess.run(command, check=True, capture_output=True, env=environment() | OURS)
    count = config["applications"][0]["deployments"][0]["autoscaling_config"]["min_replicas"]
    until(lambda: cluster.replicas() == ["RUNNING"] * count, 90)
    return f"http://127.0.0.1:{cluster.serve_port}"


@pytest.mark.slow
def test_a_lost_machine_gives_no_wrong_score(cluster: RayCluster, tmp_path: Path) -> None:
    """A machine lost by SIGKILL under load gives no wrong score: failed requests are repeated."""
    scorer = load_scorer("embedded")
    items = [row.item("served") for row in labelled(40, seed=3)]
    expected = [score.confidence for score in scorer.score_batch(items)]
    config, _, deployment = serve_config(cluster)
    deployment["autoscaling_config"] |= {"min_replicas": 2, "max_replicas": 2}
    client = Client(deploy(cluster, config, tmp_path / "serve_config.yaml"))
    assert len(cluster.workers_of_second("ray::ServeReplica")) == 1
    assert httpx.get(client.url + SCORER_PATH).json()["calibrator"] == scorer.name

    def ask(at: int) -> None:
        at %= len(items) - 3
        found = [score.confidence for score in client.ask(items[at : at + 3])]
        assert found == pytest.approx(expected[at : at + 3], abs=1e-6)

    with ThreadPoolExecutor(4) as threads:
        requests = [threads.submit(ask, at) for at in range(300)]
        until(lambda: client.answered >= 50, 30)
        cluster.lose_second()
        assert client.answered < 250, "it was too late to lose anything"
        for each in requests:
            each.result(timeout=60)
    assert client.answered == 300


@pytest.mark.slow
def test_a_replica_that_is_not_healthy_is_replaced(cluster: RayCluster, tmp_path: Path) -> None:
    """A replica whose calibrator breaks is replaced and gives no number."""
    broken = tmp_path / "broken"
    config, application, deployment = serve_config(cluster)
    application["import_path"] = "tests.running.fragile_replica:app"
    application["args"]["broken"] = str(broken)
    deployment |= {"health_check_period_s": 0.5}
    deployment["autoscaling_config"] |= {"min_replicas": 1, "max_replicas": 1}
    client = Client(deploy(cluster, config, tmp_path / "serve_config.yaml"))
    item = Item("1 + 1?", "2")
    (first,) = client.ask([item])
    (replica,) = cluster.workers("ray::ServeReplica")
    broken.touch()
    with pytest.raises(CalibratorError):
        client.ask([item])
    until(lambda: replica not in cluster.workers("ray::ServeReplica"), 60)
    broken.unlink()
    until(lambda: cluster.replicas() == ["RUNNING"], 60)
    (second,) = client.ask([item])
    assert second.confidence == pytest.approx(first.confidence, abs=1e-6)
