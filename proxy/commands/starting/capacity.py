"""`pinocchio capacity`: the cores, GPUs, memory, database and money that a load needs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from proxy.commands.exits import stop
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from proxy.capacity.costs import Costs
    from proxy.capacity.planning import Assumptions, Load, Plan

SECONDS: Final = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
CALIBRATORS: Final = ("embedded", "llm", "none")
SIMULATED: Final = 20_000  # requests of one process
SCORED_AT_ONCE: Final = 64


Requests = Annotated[str, typer.Option(help="How many requests: 1000/s, 50/min, 2e6/d.")]
Tokens = Annotated[float, typer.Option(min=1, help="Tokens of a reply.")]
PromptTokens = Annotated[float, typer.Option(min=0, help="Tokens of the messages of a request.")]
Streams = Annotated[float, typer.Option(min=0, max=1, help="Share of requests for a stream.")]
Held = Annotated[float, typer.Option(min=0, max=1, help="Share of replies held for people.")]
Calibrator = Annotated[str, typer.Option(help="The calibrator: embedded, llm (on GPUs) or none.")]
Parameters = Annotated[
    float, typer.Option(min=0.01, help="Billions of parameters of the calibrator, for llm.")
]
GpuTflops = Annotated[float, typer.Option(min=1, help="TFLOP/s of one GPU, in bf16 and dense.")]
GpuShare = Annotated[
    float, typer.Option(min=0.01, max=1, help="Share of these TFLOP/s that scoring reaches.")
]
UpstreamSpeed = Annotated[
    float, typer.Option(min=0.1, help="Tokens a second in which upstream writes one reply.")
]
FirstToken = Annotated[float, typer.Option(min=0, help="Seconds until upstream begins to reply.")]
Utilisation = Annotated[
    float, typer.Option(min=0.05, max=0.95, help="Share of each core that the load may take.")
]
KeepDays = Annotated[float, typer.Option(min=0, help="Days for which the record is kept.")]
CoreUsd = Annotated[float, typer.Option(min=0, help="Price of a core for an hour.")]
MemoryUsd = Annotated[float, typer.Option(min=0, help="Price of a GB of memory for an hour.")]
GpuUsd = Annotated[float, typer.Option(min=0, help="Price of a GPU for an hour.")]
DiskUsd = Annotated[float, typer.Option(min=0, help="Price of a GB of disk for a month.")]
CostsFile = Annotated[
    Path | None, typer.Option("--costs", help="Costs of your machine: scripts/bench capacity -o.")
]
Simulate = Annotated[bool, typer.Option(help="Simulate how long requests wait in a process, too.")]


def capacity(
    requests: Requests = "10/s",
    tokens: Tokens = 600,
    prompt_tokens: PromptTokens = 1_000,
    streams: Streams = 0.5,
    held: Held = 0.01,
    calibrator: Calibrator = "embedded",
    parameters: Parameters = 0.8,
    gpu_tflops: GpuTflops = 990,
    gpu_share: GpuShare = 0.3,
    upstream_tokens_per_s: UpstreamSpeed = 80,
    first_token_s: FirstToken = 0.4,
    utilisation: Utilisation = 0.6,
    keep_days: KeepDays = 30,
    core_usd: CoreUsd = 0.04,
    memory_usd: MemoryUsd = 0.005,
    gpu_usd: GpuUsd = 3.0,
    disk_usd: DiskUsd = 0.12,
    costs: CostsFile = None,
    simulate: Simulate = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a load takes: cores, GPUs, memory, database and money, from measured costs."""
    from proxy.capacity.costs import MEASURED
    from proxy.capacity.planning import Assumptions, Load, plan

    if calibrator not in CALIBRATORS:
        names = ", ".join(CALIBRATORS)
        raise stop(ExitStatus.UNUSABLE_INPUT, f"--calibrator is one of {names}")
    rate, each = _rate(requests), (tokens, prompt_tokens, streams, float(calibrator != "none"))
    load = Load(rate, *each, held, upstream_tokens_per_s, first_token_s)
    computed = (calibrator, parameters, gpu_tflops, gpu_share, utilisation, keep_days)
    given = Assumptions(*computed, core_usd, memory_usd, gpu_usd, disk_usd)
    known, source = _costs(costs or MEASURED)
    found = plan(known, load, given)
    waits = _waits(known, load, given, found) if simulate else {}
    if as_json:
        told: dict[str, Any] = {"load": asdict(load), "assumptions": asdict(given)}
        told["costs"] = known.as_dict()
        told |= {"measured": source, "plan": asdict(found) | {"cores": found.cores}}
        typer.echo(json.dumps(told | ({"simulation": waits} if waits else {}), indent=1))
        return
    for name, value in _lines(load, given, found, waits):
        typer.echo(f"{name:<22}{value}")
    typer.echo(f"\nCosts: {source}. Every assumption is an option: pinocchio capacity --help")


def _rate(text: str) -> float:
    """Return requests per second; end the process for text that is no rate."""
    found = re.fullmatch(r"([0-9.,]+(?:e[0-9]+)?)(?:/(s|min|h|d))?", text.strip())
    try:
        rate = float(found[1].replace(",", "")) / SECONDS[found[2] or "s"] if found else 0.0
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e9:
        message = f"{text!r} is no rate of requests; say 1000/s, 50/min, 10/h or 2e6/d"
        raise stop(ExitStatus.UNUSABLE_INPUT, message)
    return rate


def _costs(path: Path) -> tuple[Costs, str]:
    from proxy.capacity.costs import read_costs

    try:
        return read_costs(path)
    except (OSError, ValueError) as error:
        message = f"{path}: {error}; scripts/bench capacity -o FILE writes such a file"
        raise stop(ExitStatus.UNUSABLE_INPUT, message) from error


def _lines(
    load: Load, given: Assumptions, found: Plan, waits: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the names and values to print."""
    rate = _amount(load.requests_per_s)
    yield "requests", f"{rate} a second, {load.in_flight:,.0f} under way"
    processes = _number(found.workers, "process", "es")
    cores = _number(math.ceil(found.loop_cores), "core")
    yield "proxy", f"{processes} on {cores} ({found.request_ms:.2f} ms a request)"
    if given.calibrator == "embedded":
        cores = _number(math.ceil(found.score_cores), "core")
        yield "scores", f"{cores} ({found.score_ms:.1f} ms a score)"
    elif given.calibrator == "llm":
        gpus = _number(found.gpus, "GPU")
        yield "scores", f"{gpus}, reckoned from FLOP/s and not measured"
    yield "memory", f"{found.memory_gb:,.1f} GB"
    servers = "" if found.databases == 1 else f", {found.databases} servers"
    cores = _number(math.ceil(found.database_cores), "core")
    yield "database", f"{rate} rows a second on {cores}{servers}"
    yield "disk", f"{found.disk_gb:,.1f} GB for {given.keep_days:g} days"
    yield "money", f"{found.usd_month:,.0f} USD a month"
    for name, value in waits.items():
        yield name, value if isinstance(value, str) else f"{value:,.3g}"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _number(count: int, what: str, plural: str = "s") -> str:
    return f"{count:,} {what}{'' if count == 1 else plural}"


def _waits(costs: Costs, load: Load, given: Assumptions, found: Plan) -> dict[str, Any]:
    """Simulate one of the processes, with its share of the load, and return the figures."""
    from proxy.capacity.planning import request_ms
    from proxy.capacity.queues import Process, arriving, mean, simulate, tail

    loop_s = request_ms(costs, load) / 1_000
    scorers = max(1, math.ceil(found.score_cores / found.workers))
    each_s = found.score_ms / 1_000 / scorers
    process = Process(
        loop_in_s=loop_s / 2,
        loop_out_s=loop_s / 2,
        score_s=(lambda replies: replies * each_s) if each_s else None,
        most_at_once=SCORED_AT_ONCE,
    )
    per_s = load.requests_per_s / found.workers
    run = simulate(process, arriving(per_s, SIMULATED, load.upstream_s, load.stream_share))
    return {
        "simulated": f"{SIMULATED:,} requests of one process, at {per_s:,.4g} a second",
        "own time, mean ms": mean(run.own_s) * 1_000,
        "own time, p99 ms": tail(run.own_s) * 1_000,
        "wait for a score, ms": mean(run.waits_s) * 1_000,
        "replies a batch": mean([float(each) for each in run.batches]),
        "late scores": run.late / SIMULATED,
        "unscored": run.unscored / SIMULATED,
    }
