"""Some cases of every fuzzer of `scripts/fuzz`, and that a run counts, finds and repeats."""

from __future__ import annotations

import multiprocessing
import os
import random
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from proxy.http.listener.logs import configure_logs
from tests.fuzz import fuzzing, http

CASES = {"checkpoints": 6, "desk": 10, "replies": 15}  # the slow ones: 0.1 s a case
OTHERS_CASES = 30
LONG_S = 20.0
PRELOADED = ["tests.fuzz.http", "tests.fuzz.proxied"]


@pytest.fixture(scope="module")
def reports() -> Iterator[Mapping[str, Future[fuzzing.Report]]]:
    """Run all fuzzers at once, each in a process of its own; return their reports."""
    forking, names = multiprocessing.get_context("forkserver"), fuzzing.names()
    forking.set_forkserver_preload(PRELOADED)
    with ProcessPoolExecutor(len(names), forking, initializer=_give_way) as pool:
        yield {name: pool.submit(_run, name, random.randrange(10**9)) for name in names}


def _give_way() -> None:
    """Let other tests have the CPU first, and make warnings findings, as in the suite."""
    os.nice(10)
    configure_logs("warning")
    warnings.simplefilter("error")


def _run(name: str, seed: int) -> fuzzing.Report:
    return fuzzing.run(name, seed, 0.0, least=cases_of(name))


def cases_of(name: str) -> int:
    return CASES.get(name, OTHERS_CASES)


@pytest.mark.parametrize("name", fuzzing.names())
def test_a_fuzzer_finds_nothing(reports: Mapping[str, Future[fuzzing.Report]], name: str) -> None:
    report = reports[name].result()
    print("\n".join(report.lines()))
    assert report.findings == [], "\n".join(report.lines())
    assert report.tried == sum(report.outcomes.values()) == cases_of(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzzing.names())
def test_a_fuzzer_finds_nothing_for_a_while(name: str) -> None:
    report = fuzzing.run(name, random.randrange(10**9), LONG_S, least=cases_of(name))
    assert report.findings == [], "\n".join(report.lines())


def test_fuzzer_finds_a_lost_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer of requests finds at once that uvicorn loses the body after an `Upgrade`."""
    ordinary = SimpleNamespace(cases=lambda: http.cases("httptools"))
    monkeypatch.setattr(fuzzing, "fuzzer", lambda name: ordinary)
    report = fuzzing.run("http", 1, 60, most=2_000)
    texts = [finding.text for finding in report.findings]
    assert [text for text in texts if "read differently" in text and "upgrade" in text.lower()]


@contextmanager
def _dice() -> Iterator[fuzzing.Case]:
    def case(chance: random.Random) -> str:
        roll = chance.randrange(100)
        assert roll != 7, "it was a seven"
        return "even" if roll % 2 == 0 else str(1 // (roll - 13) and "odd")

    yield case


def test_a_run_counts_finds_and_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report names each finding and crash with the command that repeats it."""
    monkeypatch.setattr(fuzzing, "fuzzer", lambda name: SimpleNamespace(cases=_dice))
    report = fuzzing.run("dice", 5, 60, most=10_000)
    assert len(report.findings) == fuzzing.MOST_FINDINGS < report.tried
    assert sum(report.outcomes.values()) + len(report.findings) == report.tried
    texts = [finding.text for finding in report.findings]
    sevens = [text for text in texts if text.startswith("it was a seven")]
    crashes = [text for text in texts if text.endswith("division or modulo by zero\n")]
    assert sevens
    assert crashes
    assert len(sevens) + len(crashes) == len(texts)
    again = fuzzing.run("dice", 5, 60, only=report.findings[0].number)
    assert again.findings == report.findings[:1]
    assert f"scripts/fuzz dice --seed 5 --case {again.findings[0].number}" in again.lines()[1]
