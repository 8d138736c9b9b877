"""CPU, memory and open files of all processes of a proxy, under the usual names (Linux).

The processes of a proxy with several workers add up: supervisor, workers and scorer. The CPU time
of a worker that has died still counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

LEAST: Final = ("process_start_time_seconds", "process_max_fds")  # minimum instead of sum
CPU: Final = "process_cpu_seconds"


def process_metrics(
    pids: Iterable[int | str] = ("self",), dead_cpu_s: float = 0
) -> Iterator[Metric]:
    """Yield the metrics of these processes, or nothing where the system does not provide them.

    `dead_cpu_s` is the CPU time of workers that have died, in seconds.
    """
    values: dict[str, list[float]] = {}
    meanings: dict[str, str] = {}
    for pid in pids:
        for family in _of(pid):
            meanings[family.name] = family.documentation
            values.setdefault(family.name, []).append(family.samples[0].value)
    for name, found in values.items():
        total = _together(name, found)
        if name == CPU:
            yield CounterMetricFamily(name, meanings[name], value=total + dead_cpu_s)
        else:
            yield GaugeMetricFamily(name, meanings[name], value=total)


def _of(pid: int | str) -> list[Metric]:
    return list(ProcessCollector(pid=lambda: pid, registry=None).collect())


def _together(name: str, values: Sequence[float]) -> float:
    return min(values) if name in LEAST else sum(values)
