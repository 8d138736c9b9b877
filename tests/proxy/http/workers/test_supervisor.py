"""The supervisor with real processes as workers, each of which writes what it hears."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from proxy.http.workers.board import Board
from proxy.http.workers.peers import Peers
from proxy.http.workers.supervisor import Supervisor
from tests.proxy.http.workers.several import children_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
DIGEST = "what the files say"


@dataclass(frozen=True)
class Standing:
    number: int = 1


@dataclass
class Configuration:
    """A configuration whose files change once, as soon as all workers are up."""

    standing: Standing = field(default_factory=Standing)
    changes: int = 1
    told: tuple[str, ...] = ()

    def has_changed(self) -> bool:
        self.changes -= 1
        return self.changes == 0

    def ask(self) -> None:
        self.changes = 1

    def read(self) -> str:
        return DIGEST

    def take(self) -> None:
        self.standing = replace(self.standing, number=self.standing.number + 1)

    def refuse(self, problems: tuple[str, ...]) -> tuple[str, ...]:
        return problems

    def drain(self) -> None: ...


def supervised(
    runs: Mapping[int, Callable[[Peers], int]],
    configuration: Configuration,
    log: int | None = None,
) -> int:
    """Fork a supervisor of these runs, which writes its log into `log`; return its pid."""
    if pid := os.fork():
        return pid
    if log is not None:
        logger = structlog.WriteLoggerFactory(os.fdopen(log, "w"))
        structlog.configure([structlog.processors.JSONRenderer()], logger_factory=logger)
    board = Board(len(runs))
    options: dict[str, Any] = {"add": list, "on_stop": lambda: None, "drain_s": 0, "grace_s": 0}
    os._exit(Supervisor(runs, board, configuration, **options).run())


def worker(problems: tuple[str, ...], write: int) -> Callable[[Peers], int]:
    """Return a worker that can prepare a change or has these problems, and writes what it hears."""

    def run(peers: Peers) -> int:
        is_over = threading.Event()

        def prepare(number: int) -> None:
            peers.tell("prepared", (None if problems else DIGEST, problems), number)

        def note(what: str) -> Callable[[Any], None]:
            return lambda body: void(os.write(write, f"{peers.index} {what} {body}\n".encode()))

        peers.on("prepare", prepare)
        peers.on("swap", note("swaps"))
        peers.on("refused", note("refuses"))
        peers.on("stop", lambda _: is_over.set())
        peers.start(is_over.set)
        peers.tell("up")
        is_over.wait(30)
        return 0

    return run


def void(_: object) -> None: ...


@pytest.mark.parametrize(
    ("problems", "written"),
    [((), "swaps 2"), (("proxy.yaml:3: no",), "refuses ('proxy.yaml:3: no',)")],
    ids=["all can", "one cannot"],
)
def test_all_swap_or_none_does(problems: tuple[str, ...], written: str) -> None:
    """A worker that cannot prepare a change keeps all of them from it."""
    reads, write = os.pipe()
    runs = {0: worker((), write), 1: worker(problems, write)}
    pid = supervised(runs, Configuration())
    os.close(write)
    with os.fdopen(reads) as output:
        lines = {output.readline().strip() for _ in runs}
        os.kill(pid, signal.SIGTERM)
        assert output.read() == ""  # and that was all
    _, status = os.waitpid(pid, 0)
    assert lines == {f"0 {written}", f"1 {written}"}
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


def test_what_cannot_start_is_not_tried_for_ever() -> None:
    """Where no worker can start, the proxy ends with its status."""
    reads, write = os.pipe()
    pid = supervised({0: lambda _: 7, 1: lambda _: 7}, Configuration(changes=0), write)
    os.close(write)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert children_of(pid) == []
    first = next(logged(reads, "worker_not_started"))
    assert (first["process"][:6], first["status"]) == ("worker", 7)


def test_dead_worker_is_restarted_and_stuck_one_killed(tmp_path: Path) -> None:
    """A dead worker is replaced and a stuck one is killed, each logged with its index."""
    reads, write = os.pipe()
    runs = {0: worker((), write), 1: deaf_once_started_anew(tmp_path / "died")}
    pid = supervised(runs, Configuration(changes=0), write)
    os.close(write)
    lines = logged(reads, "worker_")
    assert [next(lines)["event"] for _ in range(2)] == ["worker_died", "worker_restarted"]
    for _ in range(2):  # the second signal means at once
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.2)
    killed = next(lines)
    assert (killed["event"], killed["process"]) == ("worker_killed", "worker 1")
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
    assert children_of(pid) == []


def deaf_once_started_anew(died: Path) -> Callable[[Peers], int]:
    """Return a worker that dies once it is up; its replacement ignores requests to end."""

    def run(peers: Peers) -> int:
        peers.start(lambda: None)
        peers.tell("up")
        if died.exists():
            time.sleep(30)
        died.touch()
        return 3

    return run


def logged(reads: int, begins: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a supervisor's log whose event begins like this, as they arrive."""
    with os.fdopen(reads) as output:
        for line in output:
            if line.startswith("{") and (event := json.loads(line))["event"].startswith(begins):
                yield event
