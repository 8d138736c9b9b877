"""A load and assumptions, turned into cores, GPUs, memory, a database and money.

All of it is arithmetic on mean costs: what is busy for a share of `utilisation` has the rest of
its time for bursts, and `queues.py` says what waits then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from proxy.capacity.costs import Costs

HOURS_A_MONTH: Final = 730.0
SECONDS_A_DAY: Final = 86_400
MOST_CONNECTIONS: Final = 4_096  # of one process, see proxy/listener/open_files.py
FLOP_A_PARAMETER: Final = 2  # of a forward pass, for each token


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked, and of whom; `tokens` are those of a reply, `prompt_tokens` before it."""

    requests_per_s: float
    tokens: float = 600.0
    prompt_tokens: float = 1_000.0
    stream_share: float = 0.5
    scored_share: float = 1.0
    held_share: float = 0.01
    tokens_per_s: float = 80.0  # with which upstream writes one reply
    first_token_s: float = 0.4

    @property
    def upstream_s(self) -> float:
        """How long a request waits for upstream, on average."""
        return self.first_token_s + self.tokens / self.tokens_per_s

    @property
    def in_flight(self) -> float:
        return self.requests_per_s * self.upstream_s


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is not measured here: how full, how long, and prices in US dollars.

    `calibrator` is `embedded`, `llm` (a language model on GPUs) or `none`.
    """

    calibrator: str = "embedded"
    parameters_b: float = 0.8  # of a language model, in billions
    gpu_tflops: float = 990.0  # dense, bf16: an H100
    gpu_share: float = 0.3  # of them that a forward pass gets
    utilisation: float = 0.6  # of cores and GPUs
    keep_days: float = 30.0
    core_usd_h: float = 0.04
    gb_usd_h: float = 0.005  # of memory
    gpu_usd_h: float = 3.0
    disk_gb_usd_month: float = 0.12
    database_cores: float = 32.0  # of the largest machine for one


@dataclass(frozen=True, slots=True)
class Plan:
    """What it takes; cores are whole ones, also where a fraction would do."""

    request_ms: float  # CPU of a request on the event loop, its row with it
    score_ms: float  # CPU of a score, 0 on GPUs
    workers: int  # processes, each with an event loop
    loop_cores: float
    score_cores: float
    gpus: int
    memory_gb: float
    in_flight: float
    database_cores: float
    databases: int
    rows_per_s: float
    disk_gb: float
    usd_month: float

    @property
    def cores(self) -> int:
        """Of the proxies, scoring with them."""
        return math.ceil(self.loop_cores) + math.ceil(self.score_cores)


def request_ms(costs: Costs, load: Load) -> float:
    """CPU of a request on the event loop, its row with it, without its score."""
    plain = costs.plain_ms + costs.plain_token_ms * load.tokens
    stream = costs.stream_ms + costs.stream_token_ms * load.tokens
    mixed = (1 - load.stream_share) * plain + load.stream_share * stream
    return mixed + costs.row_ms


def score_ms(costs: Costs, load: Load) -> float:
    """CPU of an embedded score."""
    return costs.score_ms + costs.score_token_ms * load.tokens


def plan(costs: Costs, load: Load, given: Assumptions) -> Plan:
    """Turn a load into what it takes."""
    rate, room = load.requests_per_s, given.utilisation
    each_ms, each_score_ms = request_ms(costs, load), 0.0
    if given.calibrator == "embedded":
        each_score_ms = score_ms(costs, load)
    loop_cores = rate * each_ms / 1_000 / room
    score_cores = rate * load.scored_share * each_score_ms / 1_000 / room
    workers = max(1, math.ceil(loop_cores), math.ceil(load.in_flight / MOST_CONNECTIONS))
    own_kb = costs.process_kb + (costs.calibrator_kb if each_score_ms else 0.0)
    memory_gb = (workers * own_kb + load.in_flight * costs.stream_kb) / 1e6
    gpus = math.ceil(_gpu_s(load, given) * rate * load.scored_share / room)
    database_cores = rate * costs.row_database_ms / 1_000 / room
    kept = rate * SECONDS_A_DAY * given.keep_days
    disk_gb = kept * (costs.row_kb + load.held_share * costs.held_kb) / 1e6
    cores = math.ceil(loop_cores) + math.ceil(score_cores) + math.ceil(database_cores)
    hourly = cores * given.core_usd_h + memory_gb * given.gb_usd_h + gpus * given.gpu_usd_h
    return Plan(
        request_ms=each_ms,
        score_ms=each_score_ms,
        workers=workers,
        loop_cores=loop_cores,
        score_cores=score_cores,
        gpus=gpus,
        memory_gb=memory_gb,
        in_flight=load.in_flight,
        database_cores=database_cores,
        databases=max(1, math.ceil(database_cores / given.database_cores)),
        rows_per_s=rate,
        disk_gb=disk_gb,
        usd_month=hourly * HOURS_A_MONTH + disk_gb * given.disk_gb_usd_month,
    )


def _gpu_s(load: Load, given: Assumptions) -> float:
    """How long a GPU computes one score of a language model."""
    if given.calibrator != "llm":
        return 0.0
    flop = FLOP_A_PARAMETER * given.parameters_b * 1e9 * (load.prompt_tokens + load.tokens)
    return flop / (given.gpu_tflops * 1e12 * given.gpu_share)
