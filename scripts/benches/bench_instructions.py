"""The processor instructions of a request, counted by valgrind, so without a clock.

    scripts/bench instructions [--streams|--scores] [--at-once N] [--root TREE] [--json]

The request is a whole reply, or a stream of 60 deltas in one write, 64 or 16 at once, through
`pinocchio serve` in the peers' setting `ours`; or a reply that the embedded calibrator scores, in
other words each time, 8 at once. The output has the instructions of the event loop's thread and of
the others, for each request. Two runs of one tree differ by some 0.3 % on the loop, so a change of
one percent shows on any machine, however busy. It takes a minute and Debian's package `valgrind`.
The figure of the thread that writes rows is too high: valgrind does not know the processor's SHA
instructions, and a proxy that is fifty times slower has fewer rows in a batch.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bench_launches import EMBEDDED, OBSERVE, SCRIPTS, ours
from bench_load import closed_loop, run
from bench_process import Cores, free_port, launched, pin, share_cores
from bench_targets import Launch, Place, running

REPLY, STREAM, SCORE = "a whole reply", "a stream of 60 deltas in one write", "a scored reply"
AT_ONCE = {REPLY: 64, STREAM: 16, SCORE: 8}
WARM_UP_S, COUNTED_S, SETTLE_S = 4, 10, 2  # SETTLE_S: rows are written in batches
LEAST_SHARE = 0.001  # share of all instructions; threads with less are left out
_TOTAL = re.compile(r"^totals: (\d+)", re.MULTILINE)
_THREAD = re.compile(r"-(\d+)$")


def counting(launch: Launch, out: Path) -> Launch:
    """Return the launch under valgrind, which counts once it is switched on."""
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes"]
    command = [*valgrind, f"--callgrind-out-file={out}", *launch.command]
    return replace(launch, command=command, env={**launch.env, "PYTHONHASHSEED": "0"})


def tell(pid: int, *words: str) -> None:
    quiet = subprocess.DEVNULL
    subprocess.run(["callgrind_control", *words, str(pid)], check=True, stdout=quiet, stderr=quiet)


def instructions(place: Place, what: str, at_once: int) -> tuple[int, list[int]]:
    """Return the number of requests served, and each thread's instructions, the loop's first."""
    out = place.scratch / "callgrind.out"
    is_scored = what == SCORE
    name = EMBEDDED if is_scored else OBSERVE
    launch = counting(ours(name, place), out)
    with running(name, place, launch) as target:
        job = target.varied_job() if is_scored else target.job(is_stream=what == STREAM)
        run(closed_loop(job, at_once, WARM_UP_S))
        time.sleep(SETTLE_S)
        tell(target.pid, "-i", "on")
        served = run(closed_loop(job, at_once, COUNTED_S)).served
        time.sleep(SETTLE_S)
        tell(target.pid, "-i", "off")
        tell(target.pid, "-d")
    return served, counted(place.scratch.glob(f"{out.name}.*"))


def counted(files: Iterable[Path]) -> list[int]:
    """Return the totals of the threads with work, in the order of their start."""
    totals: dict[int, int] = {}
    for path in files:
        thread = _THREAD.search(path.name)
        if thread and (total := _TOTAL.search(path.read_text(errors="replace"))):
            number = int(thread[1])
            totals[number] = totals.get(number, 0) + int(total[1])
    least = LEAST_SHARE * sum(totals.values())
    return [total for _, total in sorted(totals.items()) if total > least]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--streams", action="store_const", dest="what", const=STREAM, default=REPLY)
    kind.add_argument("--scores", action="store_const", dest="what", const=SCORE)
    parser.add_argument("--at-once", type=int, default=0)
    parser.add_argument("--root", type=Path, default=SCRIPTS.parent, help="the tree to measure")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    if shutil.which("valgrind") is None:
        print("valgrind is missing: apt-get install valgrind", file=sys.stderr)
        return 1
    at_once = options.at_once or AT_ONCE[options.what]
    cores: Cores = share_cores()
    with tempfile.TemporaryDirectory() as folder:
        scratch, port = Path(folder), free_port()
        upstream = [sys.executable, str(SCRIPTS / "benches/peers/bench_upstream.py"), str(port)]
        log = (scratch / "upstream.log").open("wb")
        with log, launched(upstream, stdout=log, stderr=log, cores=cores.upstream):
            pin(cores.load)
            place = Place(options.root.resolve(), scratch, scratch, cores, port)
            served, threads = instructions(place, options.what, at_once)
    loop, *others = (round(total / served) for total in threads)
    if options.json:
        print(json.dumps({"served": served, "loop": loop, "others": others, "at_once": at_once}))
    else:
        load = f"load average {os.getloadavg()[0]:.1f}"
        print(f"{options.what}, {at_once} at once, {served} of them ({load})")
        print(f"  event loop      {loop:>10,}\n  other threads   {sum(others):>10,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
