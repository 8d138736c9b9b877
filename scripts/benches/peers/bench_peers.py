"""The cost of the proxy against its peers: ratios, measured in one run.

Every target is one worker process on its own core, load and upstream are on another. All of them
answer the same requests from the same canned upstream, in turns in every round, so that other work
on the machine affects all alike. Peers are installed into a scratch folder first.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from bench_board import BUSY
from bench_install import PINS, MissingPeerError
from bench_launches import (
    BARE,
    DIRECT,
    EMBEDDED,
    ENFORCE,
    INFO,
    LITELLM,
    OBSERVE,
    PEERS,
    QUIET,
    SCRIPTS,
    ours,
    peer,
)
from bench_load import LoadError
from bench_marks import limit_verdicts, limits_table, marks_table, verdicts
from bench_process import Cores, free_port, launched, pin, share_cores
from bench_scenarios import (
    FULL,
    QUICK,
    Bench,
    json_round,
    latency_round,
    size_round,
    start_up,
    stream_round,
)
from bench_scored import scored_rounds, scored_table
from bench_scoring import scoring_rounds
from bench_table import number_text, say, table
from bench_targets import Launch, Place, Target, running, verify

IN_TURNS: Mapping[str, Callable[[Bench, Sequence[Target], int], None]] = {
    "latency": latency_round,
    "json": json_round,
}
ROUNDS: Mapping[str, Callable[[Bench, Target, int], None]] = {
    "streams": stream_round,
    "sizes": size_round,
}
SCENARIOS = (*IN_TURNS, *ROUNDS, "scoring", "scored", "start")

NOTES = """\
Added latency: median of one request at a time minus the direct way's. While it is measured, a loop
of the lowest priority keeps each core awake: a virtual core that sleeps takes a tenth of a
millisecond to wake, longer where the host is busy, and that would be told of whoever is measured.
Latency and JSON: all targets in turns of a second or less. CPU: that of the target's processes,
threads and children, once its records have settled. Streams: CPU and first deltas with 60 deltas,
each written alone, about 1 ms apart; streams per second (and CPU "in one write") with all 60 in one
write, so that the load does not limit. Added time to first delta: against the median of the direct
way. The peers' times better are medians of the rounds' ratios.
ours: policy observe, in shadow; ours-enforce: 20 rules, of which the last one delivers at 0.73, so
that it buffers streams; both with records, and the calibrator fake:0.73. ours-info: with the log
line of every request."""

LABELS = {
    "latency_ms": "latency, 1 at once, median ms",
    "added_ms": "added latency, median ms",
    "cpu_ms": "CPU ms per request, 64 at once",
    "per_s": "requests per second",
    "upstream_connections": "connections made to upstream",
    "reconnects": "connections closed on clients",
    "stream_cpu_ms": "CPU ms per stream",
    "burst_cpu_ms": "CPU ms per stream in one write",
    "streams_per_s": "streams per second",
    "first_alone_ms": "first delta, written to received, ms",
    "first_p50_ms": "added to first delta, p50 ms",
    "first_p99_ms": "added to first delta, p99 ms",
    "start_s": "start to first reply, s",
    "start_mb": "memory then, MB",
}
OWN_LABELS = {
    "short_cpu_ms": "CPU ms per request, 10 messages",
    "long_cpu_ms": "CPU ms per request, 200 messages",
    "big_cpu_ms": "CPU ms per reply of 1 MB",
    "capacity_per_s": "scores per second, alone",
    "scores_per_s": "scores per second, overloaded",
    "shed_share": "share without a score then",
    "idle_per_s": "embeddings per second, scoring idle",
    "scoring_per_s": "embeddings per second, saturated",
    "idle_p99_ms": "embeddings p99 ms, scoring idle",
    "scoring_p99_ms": "embeddings p99 ms, saturated",
}


@contextmanager
def started(options: argparse.Namespace, scratch: Path) -> Iterator[Bench]:
    """Start the upstream, and yield the bench with everything that a run needs.

    The tree to measure is compiled first, and this process bound to the load's cores.
    """
    cores, port = share_cores(), free_port()
    packages = [options.root / name for name in ("pinocchio", "proxy", "policies", "calibrator")]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], check=True)  # as pip does
    command = [sys.executable, str(SCRIPTS / "benches/peers/bench_upstream.py"), str(port)]
    log = (scratch / "upstream.log").open("wb")
    with log, launched(command, stdout=log, stderr=log, cores=cores.upstream) as process:
        pin(cores.load)
        place = Place(options.root.resolve(), options.peers_folder.resolve(), scratch, cores, port)
        yield Bench(place, QUICK if options.quick else FULL, process.pid)


def launches(bench: Bench, names: list[str]) -> dict[str, Launch]:
    """Return the launches by name of peers that can be installed; note why others are left out."""
    found = {}
    for name in names:
        try:
            found[name] = peer(name, bench.place)
        except MissingPeerError as error:
            bench.board.note(f"{name} is left out: {error}")
    return found


def measure_rounds(bench: Bench, peers: Mapping[str, Launch], scenarios: list[str]) -> None:
    """Measure the scenarios of all targets side by side, each idle while another is asked.

    A peer that does not start or relays wrongly gets a note. Raises RuntimeError if one of ours
    does.
    """
    with ExitStack() as stack:
        direct = Launch(bench.place.upstream, [])
        targets = {DIRECT: Target(DIRECT, bench.upstream_pid, direct)}
        variants = {name: ours(name, bench.place) for name in (OBSERVE, ENFORCE, INFO)}
        for name, launch in {**variants, **peers}.items():
            say(f"starting {name} ...")
            try:
                target = stack.enter_context(running(name, bench.place, launch))
                verify(target)
            except RuntimeError as error:
                if name in variants:
                    raise
                bench.board.note(f"{name} is left out: {error}")
                continue
            targets[name] = target
        for number in range(1, bench.plan.rounds + 1):
            for scenario in [name for name in (*IN_TURNS, *ROUNDS) if name in scenarios]:
                say(f"round {number} of {bench.plan.rounds}: {scenario} ...")
                if scenario in IN_TURNS:
                    IN_TURNS[scenario](bench, [*targets.values()], number)
                    continue
                for target in targets.values():
                    _try(bench, ROUNDS[scenario], target, number)


def _try(
    bench: Bench, measure: Callable[[Bench, Target, int], None], target: Target, number: int
) -> None:
    """Measure one scenario of one target; note a peer that fails, raise the error of ours."""
    try:
        measure(bench, target, number)
    except (LoadError, TimeoutError) as error:
        bench.failed(target, number, error)


def measure_scoring(bench: Bench) -> None:
    """Measure what a saturated calibrator costs requests that wait for no score."""
    cores = bench.place.cores
    launch = ours(EMBEDDED, bench.place)
    with running(EMBEDDED, bench.place, launch, cores.target | cores.spare) as target:
        say("scoring ...")
        scoring_rounds(bench, target, bench.plan.rounds)


def measure_scored(bench: Bench, names: Sequence[str]) -> None:
    """Measure scored replies, beside LiteLLM's proxy without scores.

    Both may use every core, the load's too.
    """
    cores = bench.place.cores.all
    with ExitStack() as stack:
        targets = [Target(DIRECT, bench.upstream_pid, Launch(bench.place.upstream, []))]
        wanted = {EMBEDDED: ours(EMBEDDED, bench.place)}
        wanted |= launches(bench, [name for name in names if name == LITELLM])
        for name, launch in wanted.items():
            targets.append(stack.enter_context(running(name, bench.place, launch, cores)))
        for number in range(1, bench.plan.rounds + 1):
            say(f"round {number} of {bench.plan.rounds}: scored ...")
            scored_rounds(bench, targets, number)


def measure_starts(bench: Bench, names: list[str]) -> None:
    """Measure the starts of ours without calibrator and of the peers called `names`."""
    for number in range(1, bench.plan.starts + 1):
        say(f"start {number} of {bench.plan.starts} ...")
        start_up(bench, BARE, ours(BARE, bench.place), number)
        for name, launch in launches(bench, names).items():
            start_up(bench, name, launch, number)


# --- output --------------------------------------------------------------------------------------


def figures_table(bench: Bench) -> str:
    """Return the medians of all figures by target as a table, "" where nothing was measured."""
    names = [DIRECT, OBSERVE, ENFORCE, INFO, *PEERS]
    board = bench.board
    names = [n for n in names if any(n in board.values[figure] for figure in LABELS)]
    rows = [["", *names]]
    for figure, label in LABELS.items():
        if board.values[figure]:
            rows.append([label, *(number_text(board.median(figure, name)) for name in names)])
    return table(rows) if len(rows) > 1 else ""


def own_table(bench: Bench) -> str:
    """Return the medians of figures of ours alone as a table, "" where nothing was measured."""
    board = bench.board
    rows = [
        [label, number_text(board.median(figure, name))]
        for figure, label in OWN_LABELS.items()
        for name in (OBSERVE, EMBEDDED)
        if board.values[figure][name]
    ]
    return table([["ours alone", ""], *rows]) if rows else ""


def remarks(bench: Bench) -> Iterator[str]:
    """Yield sentences on how reliable the figures are, and on missing ones.

    They name other work on the machine, measurements that the load limited, replies without a
    score, the notes, and records that are missing.
    """
    board = bench.board
    shares = list(board.busy.values())
    if shares:
        yield (
            f"rest of the machine: busy {sorted(shares)[len(shares) // 2]:.1%} of the time "
            f"(median of {len(shares)} measurements), at most {max(shares):.1%}"
        )
    if board.doubtful:
        yield f"DOUBTFUL, others took over {BUSY:.0%}: " + ", ".join(
            f"{place} {share:.0%}" for place, share in board.doubtful.items()
        )
    for what in sorted(board.limited):
        yield f"limited by the load, not by the target: {what}"
    if board.shed:
        yield "replies without a score: " + ", ".join(f"{s} {n}" for s, n in board.shed.items())
    yield from board.notes
    for sentence in board.unrecorded:
        yield f"FAILED, records: {sentence}"
    if not board.unrecorded and any(r.is_kept for r in bench.records.values()):
        yield "records: as many rows as requests served, in every measurement of ours"


def machine(cores: Cores) -> str:
    """Return a line about the machine, its cores and load, and the peers' versions."""
    return (
        f"{os.cpu_count()} CPUs ({cores}), load average {os.getloadavg()[0]:.1f}, "
        f"Python {platform.python_version()}, {', '.join(PINS.values())}"
    )


def as_json(bench: Bench, about: str) -> str:
    """Return all values by figure, target and round as JSON, with null for nan.

    It also has the verdicts and the remarks; `about` is the line on the machine.
    """
    board = bench.board
    values = {
        figure: {n: list(vs.values()) for n, vs in by_name.items()}
        for figure, by_name in board.values.items()
        if by_name
    }
    marks = [
        {**asdict(v.mark), "factor": v.observe, "enforce": v.enforce, "outcome": v.outcome}
        for v in verdicts(board)
    ]
    limits = [
        {**asdict(v.limit), "measured": v.measured, "outcome": v.outcome}
        for v in limit_verdicts(board, bench.place.cores)
    ]
    facts = {"machine": about, "plan": asdict(bench.plan), "busy": board.busy}
    found = {**facts, "values": values, "marks": marks, "limits": limits}
    return json.dumps(_without_nan({**found, "remarks": list(remarks(bench))}), indent=1)


def _without_nan(value: object) -> object:
    """Return the value with None in place of each nan, also inside dicts and lists."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    assert __doc__ is not None
    root = SCRIPTS.parent
    parser = argparse.ArgumentParser(
        prog="scripts/bench peers", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="5 minutes, not 30: plausibility")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of tables")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=PEERS, help="these peers")
    parser.add_argument("--no-peers", action="store_true", help="ours alone")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument("--root", type=Path, default=root, help="the tree whose proxy is measured")
    parser.add_argument(
        "--peers-folder",
        type=Path,
        default=root / ".bench",
        help="folder of the peers' environments",
    )
    return parser.parse_args()


def measured(bench: Bench, scenarios: list[str], names: list[str]) -> None:
    """Measure the chosen scenarios of ours and of the peers called `names`, for the board."""
    if {*IN_TURNS, *ROUNDS} & set(scenarios):
        measure_rounds(bench, launches(bench, names), scenarios)
    if "scoring" in scenarios:
        measure_scoring(bench)
    if "scored" in scenarios:
        measure_scored(bench, names)
    if "start" in scenarios:
        measure_starts(bench, names)


def main() -> int:
    """Measure and print everything; return 1 if ours failed or a record is missing, else 0."""
    options = parsed()
    names = [] if options.no_peers else list(options.only)
    with tempfile.TemporaryDirectory() as scratch, started(options, Path(scratch)) as bench:
        about = machine(bench.place.cores)
        try:
            measured(bench, list(options.scenarios), names)
        except RuntimeError as error:  # one of ours did not start, or answered wrongly
            say(str(error))
            return 1
        if options.json:
            print(as_json(bench, about))
        else:
            parts = [about, NOTES, QUIET, figures_table(bench), own_table(bench)]
            parts.append(scored_table(bench.board))
            parts += [marks_table(bench.board), limits_table(bench.board, bench.place.cores)]
            print("\n\n".join(filter(None, [*parts, "\n".join(remarks(bench))])))
    return 1 if bench.board.unrecorded else 0


if __name__ == "__main__":
    sys.exit(main())
