"""CPU, memory and open files of all processes of a proxy, under the usual names (Linux).

The processes of a proxy with several workers add up: supervisor, workers and scorer. The CPU time
of a worker that has died still counts. Memory that several of them share counts once: it is the sum
of their proportional sets (`Pss` of proc(5)), where the system tells these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

LEAST: Final = ("process_start_time_seconds", "process_max_fds")  # minimum instead of sum
CPU: Final = "process_cpu_seconds"
RESIDENT: Final = "process_resident_memory_bytes"


def process_metrics(
    pids: Iterable[int | str] = ("self",), dead_cpu_s: float = 0
) -> Iterator[Metric]:
    """Yield the metrics of these processes, or nothing where the system does not provide them.

    `dead_cpu_s` is the CPU time of workers that have died, in seconds.
    """
    pids, values = list(pids), dict[str, list[float]]()
    meanings: dict[str, str] = {}
    for pid in pids:
        for family in _of(pid):
            meanings[family.name] = family.documentation
            values.setdefault(family.name, []).append(family.samples[0].value)
    if len(pids) > 1 and RESIDENT in values:
        with suppress(OSError):
            values[RESIDENT] = [proportional_bytes(pid) for pid in pids]
    for name, found in values.items():
        total = _together(name, found)
        if name == CPU:
            yield CounterMetricFamily(name, meanings[name], value=total + dead_cpu_s)
        else:
            yield GaugeMetricFamily(name, meanings[name], value=total)


def proportional_bytes(pid: int | str) -> float:
    """Return the memory of a process in bytes, of shared pages its share; raises OSError."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return float(line.split()[1]) * 1_024
    raise FileNotFoundError(pid)


def _of(pid: int | str) -> list[Metric]:
    return list(ProcessCollector(pid=lambda: pid, registry=None).collect())


def _together(name: str, values: Sequence[float]) -> float:
    return min(values) if name in LEAST else sum(values)
