"""What every fuzzer is, and how one is run.

A fuzzer is a module of this folder that has `cases()`: a context manager that opens what the
fuzzer needs and gives a function, which tries one case.

    @contextmanager
    def cases() -> Iterator[Case]:
        with serving() as port:
            yield lambda chance: try_one(chance, port)

A case takes all of its chance from the `random.Random` that it is given, so that seed and number
bring it back. It returns in a few words what became of the input ("refused", "answered"), which is
counted, and raises for a finding: AssertionError with the input in its message; any other exception
is a finding too.
"""

from __future__ import annotations

import importlib
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

FOLDER = Path(__file__).parent
NOT_FUZZERS = ("__main__", "fuzzing")
MOST_FINDINGS = 10  # a run ends then, as further findings are mostly the same

Case = Callable[[random.Random], str]


class Fuzzer(Protocol):
    """A module of this folder that has `cases()`."""

    __doc__: str | None

    def cases(self) -> AbstractContextManager[Case]: ...


@dataclass(frozen=True)
class Finding:
    number: int
    text: str


@dataclass
class Report:
    """The result of one run."""

    name: str
    seed: int
    tried: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    passed_s: float = 0.0

    def lines(self) -> list[str]:
        counted = ", ".join(f"{count:,} {name}" for name, count in self.outcomes.most_common())
        found = [
            f"{self.name}: {self.tried:,} cases in {self.passed_s:.0f} s (seed {self.seed}): "
            f"{counted or 'none ended'}; {len(self.findings)} findings"
        ]
        for finding in self.findings:
            again = f"scripts/fuzz {self.name} --seed {self.seed} --case {finding.number}"
            found += [f"\n{again}", finding.text]
        return found


def names() -> list[str]:
    """Return the names of the fuzzers: the modules of this folder that have `cases`."""
    modules = (path for path in FOLDER.glob("*.py") if path.stem not in NOT_FUZZERS)
    return sorted(path.stem for path in modules if "\ndef cases(" in path.read_text())


def fuzzer(name: str) -> Fuzzer:
    return cast(Fuzzer, importlib.import_module(f"tests.fuzz.{name}"))


def run(
    name: str,
    seed: int,
    seconds: float,
    *,
    least: int = 0,
    most: int | None = None,
    only: int | None = None,
) -> Report:
    """Try cases until enough are tried or enough findings are made; return the report.

    Stops once the seconds are over and `least` are tried, `most` are tried, or MOST_FINDINGS are
    found. With `only`, tries that case alone.
    """
    report = Report(name, seed)
    with fuzzer(name).cases() as case:
        began = time.monotonic()
        while only is None or report.tried == 0:
            is_over = time.monotonic() - began >= seconds and report.tried >= least
            if is_over or report.tried == most or len(report.findings) >= MOST_FINDINGS:
                break
            _try(report, case, report.tried if only is None else only)
        report.passed_s = time.monotonic() - began
    return report


def _try(report: Report, case: Case, number: int) -> None:
    report.tried += 1
    try:
        report.outcomes[case(random.Random(f"{report.seed}:{number}"))] += 1
    except AssertionError as error:
        report.findings.append(Finding(number, str(error)))
    except Exception:
        report.findings.append(Finding(number, traceback.format_exc()))
