"""The cores and memory of this machine or container, and whether a proxy can do with them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from policies import plural

CGROUP: Final = Path("/sys/fs/cgroup")
MEMINFO: Final = Path("/proc/meminfo")
FIRST_MB: Final = 70.0  # of one process without a calibrator (docs/performance.md)
FURTHER_MB: Final = 25.0  # of each forked process, its own pages


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of a proxy; `calibrator` is its memory in bytes, None where unknown.

    With `is_forked` the workers share that memory, and with `has_scorer` one process scores for all
    workers.
    """

    workers: int
    calibrator: int | None
    has_scorer: bool = False
    is_forked: bool = False

    @property
    def memory_mb(self) -> float:
        """The memory of all processes together, with shared pages counted once."""
        workers = self.workers if self.workers > 1 else 0
        copies = 1 if self.has_scorer or self.is_forked or not workers else workers
        own_mb = FIRST_MB + FURTHER_MB * (workers + self.has_scorer)
        return own_mb + copies * (self.calibrator or 0) / 1e6

    @property
    def summary(self) -> str:
        """A phrase with the number of workers, who has the calibrator, and the memory."""
        if self.calibrator is None:
            note = " (calibrators not counted)"
        elif self.workers == 1:
            note = ""
        elif self.has_scorer:
            note = ", one scorer for all of them"
        elif self.is_forked:
            note = ", which share the memory of the calibrator"
        else:
            note = ", each with a calibrator of its own"
        return f"{plural(self.workers, 'worker')}{note}: about {self.memory_mb:,.0f} MB of memory"


@dataclass(frozen=True, slots=True)
class Machine:
    """The cores, and the bytes of memory that may still be used, None where unknown."""

    cores: float
    free: int | None

    @classmethod
    def here(cls) -> Machine:
        """Return the machine that this process runs on."""
        return cls(cores(), free_memory())

    def suits(self, processes: Processes) -> tuple[Literal["ok", "warn"], str]:
        """Return `ok` or `warn`, and a sentence on whether this is enough for the processes."""
        whole_cores = max(1, int(self.cores))
        sentence = f"{processes.summary}; here are {plural(whole_cores, 'core')}"
        if self.cores < 1:
            sentence = f"{processes.summary}; here is {self.cores:g} of a core"
        if self.free is not None:
            sentence += f" and {self.free / 1e6:,.0f} MB"
            if processes.memory_mb * 1e6 > self.free:
                return "warn", f"{sentence}: too little memory for so many"
        if processes.workers > whole_cores:
            return "warn", f"{sentence}: workers that share a core only take turns"
        if processes.workers < whole_cores:
            return "ok", f"{sentence}: `workers: {whole_cores}` would use them all"
        return "ok", sentence


def cores(cgroup: Path = CGROUP) -> float:
    """Return how many cores this process may use, such as 0.5 of a container's quota."""
    if sys.platform == "linux":
        count: float = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no quota, or none that can be read
        quota, period = (cgroup / "cpu.max").read_text().split()
        count = min(count, int(quota) / int(period))
    return count


def free_memory(cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int | None:
    """Return how many bytes of memory are free, in a container too; None where unknown."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        text = meminfo.read_text().partition("MemAvailable:")[2]
        found.append(int(text.split()[0]) * 1_024)
    with suppress(OSError, ValueError):
        limit = int((cgroup / "memory.max").read_text())
        found.append(max(0, limit - int((cgroup / "memory.current").read_text())))
    return min(found, default=None)


def resident_memory() -> int:
    """Return how many bytes of memory this process occupies; 0 where unknown."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0
