"""The gain of a second worker: CPU, memory and throughput with 1 and 2, beside LiteLLM's proxy.

    scripts/bench workers [--quick] [--json]

All targets answer the same requests from one canned upstream, in turns in every round. "A core for
each" is computed from CPU time: the requests a second that workers and scorer serve when each has
its own core and is always busy. It includes the costs that they cause each other, but not the time
they wait for each other, nor idle time with too few connections. It needs no idle machine. "Here"
is the measured throughput, with load and upstream on the same cores where there are fewer than
four. Each worker has the same number of clients. Memory is proportional (shared pages counted once,
PSS), and read after the load.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench_install import PINS, MissingPeerError
from bench_launches import EMBEDDED, FAKE, SCRIPTS, ours, peer
from bench_load import ClosedLoop
from bench_process import cpu_s, free_port, launched, pin, share_cores, tree
from bench_table import say, shown, table
from bench_targets import Launch, Place, Target, running

CLIENTS = {"off": 64, "on": 16}  # clients of each worker; more scores at once would be late
FIGURES = {
    "cpu_ms": "CPU ms a request, all processes",
    "each_per_s": "requests/s, a core for each",
    "here_per_s": "requests/s here",
    "memory_mb": "memory MB",
    "busiest": "share of the busiest worker",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One target; `scored` is the group that it is compared in: `off`, `on` or `litellm`."""

    name: str
    scored: str
    workers: int
    launch: Launch
    has_scorer: bool = False  # whether scoring has its own process


def entries(place: Place, *, has_peers: bool) -> Iterator[Entry]:
    for workers in (1, 2):
        yield Entry(f"off, {workers}", "off", workers, several(place, FAKE, workers))
    for workers, scorer in ((1, "each"), (2, "each"), (2, "shared")):
        name = f"on, {workers}" + (" each" if workers > 1 and scorer == "each" else "")
        name += " shared" if scorer == "shared" else ""
        yield Entry(
            name, "on", workers, several(place, EMBEDDED, workers, scorer), scorer == "shared"
        )
    for workers in (1, 2) if has_peers else ():
        try:
            launch = peer("litellm", place)
        except MissingPeerError as error:
            say(f"litellm is left out: {error}")
            return
        command = [*launch.command]
        command[command.index("--num_workers") + 1] = str(workers)
        command += ["--timeout_worker_healthcheck", "300"]  # slow imports would fail the check
        yield Entry(f"litellm, {workers}", "litellm", workers, replace(launch, command=command))


def several(place: Place, what: str, workers: int, scorer: str = "each") -> Launch:
    """Return `pinocchio serve` with several workers.

    The fake calibrator costs nothing, so everything but the scoring is the same as with a real one.
    """
    launch = ours("ours-embedded" if what == EMBEDDED else "ours", place)
    assert launch.records is not None
    path = launch.records.parent / "proxy.yaml"
    config = json.loads(path.read_text())
    config["workers"] = {"count": workers, "scorer": scorer}
    config["admin"] = False
    if what == EMBEDDED:
        config["calibrator"]["timeout_s"] = 60.0
    path.write_text(json.dumps(config))
    return launch


def measure(target: Target, entry: Entry, for_s: float) -> dict[str, float]:
    """Run the load once and return the figures."""
    pids = tree(target.pid)
    before, at = {pid: own_cpu_s(pid) for pid in pids}, time.monotonic()
    clients = entry.workers * CLIENTS["on" if entry.scored == "on" else "off"]
    sample = asyncio.run(ClosedLoopOf(target).run(clients, for_s))
    took_s = time.monotonic() - at
    used = sorted((own_cpu_s(pid) - was for pid, was in before.items()), reverse=True)
    scorer_s = used.pop(0) if entry.has_scorer else 0.0  # the busiest by far
    workers = used[: entry.workers]
    return {
        "cpu_ms": 1_000 * (sum(used) + scorer_s) / sample,
        "each_per_s": sample / max(sum(workers) / entry.workers, scorer_s),
        "here_per_s": sample / took_s,
        "memory_mb": sum(map(memory_mb, pids)),
        "busiest": workers[0] / sum(workers),
    }


class ClosedLoopOf:
    """The load on one target; `run` returns the number of requests served."""

    def __init__(self, target: Target) -> None:
        self._job = target.job()

    async def run(self, clients: int, for_s: float) -> int:
        sample = await ClosedLoop(self._job).run(clients, for_s)
        return sample.served


def own_cpu_s(pid: int) -> float:
    """Return the CPU seconds of this process alone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return int(text.partition("Pss:")[2].split()[0]) / 1_000


def run_all(
    place: Place, rounds: int, for_s: float, *, has_peers: bool
) -> dict[str, dict[str, list[float]]]:
    """Return the values of all rounds, by target and figure."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    everywhere = frozenset(os.sched_getaffinity(0))
    with ExitStack() as stack:
        targets = []
        for entry in entries(place, has_peers=has_peers):
            say(f"starting {entry.name} ...")
            started = running(entry.name.replace(" ", "-"), place, entry.launch, everywhere)
            try:
                targets.append((entry, stack.enter_context(started)))
            except RuntimeError as error:
                if entry.scored != "litellm":
                    raise
                say(f"{entry.name} is left out: {error}")
        for number in range(1, rounds + 1):
            for entry, target in targets:
                say(f"round {number} of {rounds}: {entry.name} ...")
                for figure, value in measure(target, entry, for_s).items():
                    found[entry.name][figure].append(value)
    return found


def gains(found: dict[str, dict[str, list[float]]]) -> Iterator[str]:
    """Yield how much more several workers serve than one, each with a core of its own.

    It is the median of the rounds' ratios.
    """
    for one, several_ in (
        ("off, 1", "off, 2"),
        ("on, 1", "on, 2 each"),
        ("on, 1", "on, 2 shared"),
        ("litellm, 1", "litellm, 2"),
    ):
        if one in found and several_ in found:
            pairs = zip(found[several_]["each_per_s"], found[one]["each_per_s"], strict=True)
            ratios = sorted(after / before for after, before in pairs)
            middle = f"{statistics.median(ratios):.2f} times {one}"
            yield f"{several_}: {middle}, a core for each ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench workers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 3 s, not 7 of 6")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    parser.add_argument("--no-peers", action="store_true", help="ours alone")
    parser.add_argument("--peers-folder", type=Path, default=SCRIPTS.parent / ".bench")
    options = parser.parse_args()
    rounds, for_s = (3, 3.0) if options.quick else (7, 6.0)
    cores, port = share_cores(), free_port()
    command = [sys.executable, str(SCRIPTS / "benches/peers/bench_upstream.py"), str(port)]
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("wb") as log:
        scratch = Path(folder)
        with launched(command, stdout=log, stderr=log) as upstream:
            place = Place(SCRIPTS.parent, options.peers_folder.resolve(), scratch, cores, port)
            if len(cores.all) >= 4:  # enough for workers to have their own cores
                pin(cores.load)
            found = run_all(place, rounds, for_s, has_peers=not options.no_peers)
            assert cpu_s(upstream.pid) > 0
    load = f"load average {os.getloadavg()[0]:.1f}"
    about = f"{os.cpu_count()} CPUs, {load}, {rounds} rounds of {for_s:g} s, {PINS['litellm']}"
    if options.json:
        print(json.dumps({"about": about, "values": found, "gains": [*gains(found)]}, indent=1))
        return 0
    rows = [["", *found]]
    for figure, label in FIGURES.items():
        medians = (statistics.median(found[name][figure]) for name in found)
        rows.append([label, *map(shown, medians)])
    print("\n\n".join([about, table(rows), "\n".join(gains(found))]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
