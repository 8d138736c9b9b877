"""The cost of one hostile client or upstream at 10 Mbit/s to everybody else: latency and memory.

For each attack a new proxy is started. A well-behaved client asks it at a steady pace, first alone
and then beside the attacker, which is a process of its own. This is done in several rounds, in
turns with the other attacks, and medians are shown. The budget: p99 of the others moves by less
than 50 ms, the proxy's memory by less than 100 MB.

`own` is the CPU time of the proxy's event loop, for any work, during one of the others' requests
(p99). It is judged where other work keeps the machine busy: with a tenth of a core, everything
takes ten times as long. It does not include the time that the loop waited for the interpreter while
another thread held it; p99 on a quiet machine includes that too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench_attacks import ATTACKS
from bench_http import CHAT, SHORT, Reader, request
from bench_launches import FAKE, SCORED, SCRIPTS
from bench_load import Job, run
from bench_process import Others as Foreign
from bench_process import cpu_s, free_port, launched, pin, share_cores
from bench_table import number_text, say, table
from bench_targets import Launch, Target, wait_until_it_answers

BUDGET_MS, BUDGET_MB = 50.0, 100.0
PER_S: Final = 40.0  # requests a second of the others
MOST_TRIES: Final = 5
GIVE_UP_S: Final = 30.0
BUSY: Final = 0.1  # share of the machine used by other work
UPSTREAMS: Final[list[int]] = []  # process ids
HERE: Final = Path(__file__).parent
CORES: Final = share_cores()


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    window_s: float  # seconds with, and without, the attacker
    first_s: float = 1.5  # seconds of an attack before it is measured


@dataclass(slots=True)
class Seen:
    """The times of the others and the state of the process in one window."""

    times_ms: list[float] = field(default_factory=list)
    own_ms: list[float] = field(default_factory=list)  # CPU time of the proxy's loop in these
    broken: int = 0  # connections closed during a request, which was sent again
    failed: int = 0
    peak_mb: float = math.nan
    cpu: float = math.nan  # cores used
    busy: float = math.nan  # share of the cores used by other work

    def percentile(self, share: float, of: str = "times_ms") -> float:
        """Return a quantile of the times, such as `share` 0.99, or inf without any.

        `of` is `times_ms` or `own_ms`.
        """
        ranked = sorted(getattr(self, of))
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else math.inf


class Others:
    """Clients that ask at a steady pace, keep their connections, and retry as usual clients do."""

    def __init__(self, job: Job, pid: int) -> None:
        self._job = job
        self._pid = pid
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.seen = Seen()

    async def ask_for(self, for_s: float) -> Seen:
        """Ask `PER_S` times a second for `for_s` seconds; return what was seen of these requests.

        All replies are waited for. Raises LoadError for a wrong one.
        """
        begun, requests = time.monotonic(), []
        for number in range(int(for_s * PER_S)):
            await asyncio.sleep(max(0.0, begun + number / PER_S - time.monotonic()))
            requests.append(asyncio.create_task(self._ask()))
        await asyncio.gather(*requests)
        seen, self.seen = self.seen, Seen()
        return seen

    async def _ask(self) -> None:
        """Ask once, with up to `MOST_TRIES` tries after broken connections, and note the times.

        Without an answer it counts as failed, with `GIVE_UP_S` as its time.
        """
        begun, spent = time.monotonic(), loop_s(self._pid)
        for number in range(MOST_TRIES):
            try:
                async with asyncio.timeout(GIVE_UP_S):
                    await self._ask_once(is_again=number > 0)
                self.seen.times_ms.append((time.monotonic() - begun) * 1_000)
                self.seen.own_ms.append((loop_s(self._pid) - spent) * 1_000)
                return
            except (TimeoutError, ValueError):
                break
            except (OSError, EOFError):
                self.seen.broken += 1
        self.seen.failed += 1
        self.seen.times_ms.append(GIVE_UP_S * 1_000)

    async def _ask_once(self, is_again: bool) -> None:
        """Send the request on an idle connection, or on a new one, and check the reply.

        With `is_again` it is always a new one. Raises EOFError or OSError for a broken connection,
        LoadError for a wrong reply, ValueError for bytes that are no HTTP.
        """
        if self._idle and not is_again:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._job.port)
        writer.write(self._job.request)
        reply = Reader()
        while not reply.feed(data := await reader.read(2**16)):
            if not data:
                writer.close()
                raise EOFError
        self._job.check(reply.head, reply.body)
        self._idle.append((reader, writer))

    def close(self) -> None:
        """Close the idle connections."""
        for _, writer in self._idle:
            writer.close()


# --- the processes -------------------------------------------------------------------------------


@contextmanager
def proxied(folder: Path, hostile: int) -> Iterator[Target]:
    """Run `pinocchio serve`, open to everybody, in front of the demo and the hostile upstream.

    It yields the proxy. `hostile` is that upstream's port. Raises RuntimeError if it does not
    start.
    """
    folder.mkdir()
    port, path = free_port(), folder / "proxy.yaml"
    config = {
        "upstreams": {
            "hostile": {"base_url": f"http://127.0.0.1:{hostile}/v1", "timeout_s": 20},
            "demo": {"demo": True},  # for the others, as it has no process that could wait
        },
        "models": [
            {"match": "hostile-*", "upstream": "hostile"},
            {"match": "*", "upstream": "demo"},
        ],
        "calibrator": {"checkpoint": FAKE, "device": "cpu"},
        "store": f"sqlite:///{folder}/bench.db",
        "admin": False,
    }
    path.write_text(json.dumps(config))  # JSON is YAML
    command = [sys.executable, "-m", "pinocchio", "serve", "--config", str(path)]
    with (
        (folder / "log").open("wb") as log,
        launched(
            [*command, "--port", str(port)],
            stdout=log,
            stderr=log,
            env={"PINOCCHIO_LOG_LEVEL": "error"},
            cwd=SCRIPTS.parent,
            cores=CORES.all,  # for its threads too
        ) as process,
    ):
        target = Target("ours", process.pid, Launch(port, command, must_hold=SCORED))
        error = wait_until_it_answers(target, lambda: process.poll() is None)
        if error is not None:
            raise RuntimeError(f"the proxy did not come up: {error}\n{folder / 'log'}")
        yield target


@contextmanager
def serving(script: str, port: int, scratch: Path) -> Iterator[int]:
    """Run a script of the benches on a port until the block ends, and yield its process id.

    `script` is such as `hostile/bench_hostile_upstream.py`; its output goes to a log in `scratch`.
    """
    log = (scratch / f"{Path(script).stem}.log").open("wb")
    command = [sys.executable, str(SCRIPTS / "benches" / script), str(port)]
    with log, launched(command, stdout=log, stderr=log, cores=CORES.upstream) as process:
        yield process.pid


@contextmanager
def attacked(name: str, port: int) -> Iterator[int]:
    """Run an attacker at the lowest priority until the block ends, and yield its process id.

    So its effect on the proxy is measured, not that on a shared core. It stays in this session, as
    Linux gives each session its share of a core at any priority.
    """
    command = ["nice", "-n", "19", sys.executable, str(HERE / "bench_attacks.py"), name, str(port)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def loop_s(pid: int) -> float:
    """Return the CPU seconds of a process's first thread, which runs the event loop.

    Return those of all its threads where the system does not separate them.
    """
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return cpu_s(pid)


def forget_peak(pid: int) -> None:
    """Reset the peak of a process's memory on Linux; do nothing elsewhere."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return


def peak_mb(pid: int) -> float:
    """Return the peak of resident memory in MB since `forget_peak`, nan where it is unknown."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return math.nan
    [found] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(found) * 1_024 / 10**6


# --- measuring -----------------------------------------------------------------------------------


async def window(others: Others, pid: int, for_s: float, *more: int) -> Seen:
    """Let the others ask for `for_s` seconds; return what they saw, with the proxy's use of memory.

    It also has the cores that the proxy used and the share used by other work. `more` are further
    process ids of the bench.
    """
    pids = (pid, *UPSTREAMS, *more)
    forget_peak(pid)
    before, begun = cpu_s(pid), time.monotonic()
    machine = Foreign.watch(CORES.all, pids)
    seen = await others.ask_for(for_s)
    seen.busy = machine.share()
    seen.cpu = (cpu_s(pid) - before) / (time.monotonic() - begun)
    seen.peak_mb = peak_mb(pid)
    return seen


async def beside(name: str, target: Target, plan: Plan) -> tuple[Seen, Seen]:
    """Return what the others saw (without the attacker, with it), each for one window."""
    others = Others(Job(target.launch.port, request(CHAT, SHORT), SCORED), target.pid)
    await others.ask_for(1.0)
    quiet = await window(others, target.pid, plan.window_s)
    with attacked(name, target.launch.port) as attacker:
        await asyncio.sleep(plan.first_s)
        loud = await window(others, target.pid, plan.window_s, attacker)
    others.close()
    return quiet, loud


@dataclass(slots=True)
class Measured:
    """All rounds of one attack."""

    name: str
    rounds: list[tuple[Seen, Seen]] = field(default_factory=list)

    def median(self, of: str, which: int) -> float:
        """Return the median over rounds of a figure, such as `p99`.

        `which` is 0 for the others alone, 1 for attacked.
        """
        values = [_figure(each[which], of) for each in self.rounds]
        return statistics.median(values)

    def difference(self, of: str) -> float:
        """Return the median over rounds of a figure attacked less the same alone."""
        return statistics.median(
            _figure(loud, of) - _figure(quiet, of) for quiet, loud in self.rounds
        )

    @property
    def is_within(self) -> bool:
        """Whether the budget was kept: memory, latency, and no request without an answer.

        On a busy machine the loop's own CPU time is judged, not the latency.
        """
        failed = sum(loud.failed for _, loud in self.rounds)
        is_small = not self.difference("peak_mb") >= BUDGET_MB
        delay = "own" if self.is_doubtful else "p99"
        return is_small and self.difference(delay) < BUDGET_MS and not failed

    @property
    def is_doubtful(self) -> bool:
        """Whether other work kept the machine busy, so that latencies are due to it."""
        return statistics.median(each.busy for pair in self.rounds for each in pair) > BUSY

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as [alone, attacked, difference] by name, and counts, for JSON."""
        figures = ("p50", "p99", "own", "peak_mb", "cpu")
        values = {f: [self.median(f, 0), self.median(f, 1), self.difference(f)] for f in figures}
        loud = [each for _, each in self.rounds]
        counts = {"broken": sum(s.broken for s in loud), "failed": sum(s.failed for s in loud)}
        return {"name": self.name, **values, **counts, "is_within": self.is_within}


def _figure(seen: Seen, name: str) -> float:
    """Return a figure of a window: `own`, a percentile such as `p99`, or an attribute."""
    if name == "own":
        return seen.percentile(0.99, "own_ms")
    if name.startswith("p") and name[1:].isdigit():
        return seen.percentile(int(name[1:]) / 100)
    value: float = getattr(seen, name)
    return value


def measured(names: list[str], plan: Plan, scratch: Path) -> list[Measured]:
    """Run all rounds of the attacks called `names`, and return them in this order.

    Each starts a new proxy; `scratch` gets the logs. This process is bound to the load's cores.
    """
    found = [Measured(name) for name in names]
    hostile = free_port()
    pin(CORES.load)
    with serving("hostile/bench_hostile_upstream.py", hostile, scratch) as upstream_pid:
        UPSTREAMS[:] = [upstream_pid]
        for number in range(1, plan.rounds + 1):
            for each in found:
                say(f"round {number} of {plan.rounds}: {each.name} ...")
                folder = scratch / f"{number} {each.name.replace(':', '')}"
                with proxied(folder, hostile) as target:
                    each.rounds.append(run(beside(each.name, target, plan)))
    return found


def medians_table(found: list[Measured]) -> str:
    """Return the medians of the attacks as a table, as text.

    A last column says whether the budget was `kept` or `BROKEN`.
    """
    head = [
        "p99 ms alone",
        "attacked",
        "more",
        "own ms",
        "attacked",
        "more",
        "memory MB alone",
        "attacked",
        "more",
        "CPU",
        "budget",
    ]
    rows = [["", *head]]
    for each in found:
        figures = [
            *(each.median("p99", 0), each.median("p99", 1), each.difference("p99")),
            *(each.median("own", 0), each.median("own", 1), each.difference("own")),
            *(each.median("peak_mb", 0), each.median("peak_mb", 1), each.difference("peak_mb")),
        ]
        cpu = f"{each.median('cpu', 1):.0%}"
        rows.append(
            [each.name, *map(number_text, figures), cpu, "kept" if each.is_within else "BROKEN"]
        )
    return table(rows)


def remarks(found: list[Measured]) -> Iterator[str]:
    """Yield sentences on a busy machine, requests without an answer, and broken connections."""
    if doubtful := [each.name for each in found if each.is_doubtful]:
        yield f"the machine was busy with other work, judged by own ms: {', '.join(doubtful)}"
    for each in found:
        counts = each.as_dict()
        if counts["failed"]:
            yield f"{each.name}: {counts['failed']} requests of the others got no answer"
        elif counts["broken"]:
            yield f"{each.name}: {counts['broken']} idle connections were closed and made again"


def main() -> int:
    """Measure the attacks and print them; return 0 if all keep the budget, else 1."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="scripts/bench hostile", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="one round of 5 s each")
    parser.add_argument("--rounds", type=int, help="3 unless --quick")
    parser.add_argument("--seconds", type=float, help="of each window; 10 unless --quick")
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=[*ATTACKS])
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    options = parser.parse_args()
    usual = (1, 5.0) if options.quick else (3, 10.0)
    plan = Plan(options.rounds or usual[0], options.seconds or usual[1])
    with tempfile.TemporaryDirectory() as scratch:
        found = measured(options.only, plan, Path(scratch))
    if options.json:
        print(json.dumps({"attacks": [each.as_dict() for each in found]}, indent=1))
    else:
        load = f"load average {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
        print(f"{os.cpu_count()} CPUs ({CORES}), {load}")
        budget = f"less than {BUDGET_MS:.0f} ms and {BUDGET_MB:.0f} MB more"
        print(f"10 Mbit/s of attack; the others ask {PER_S:.0f} times a second; budget: {budget}\n")
        print("\n".join([medians_table(found), *remarks(found)]))
    return 0 if all(each.is_within for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
