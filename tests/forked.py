"""Runs the suite in several processes that are forked once all tests are collected.

Collecting takes 25 s of CPU, most of it imports: processes that begin by themselves spend it each,
`--processes 4` spends it once. A process takes one test file after the other, in their order; what
it reports goes to the first process, which prints and counts it as if the tests had run there.
Warnings are not passed on: in this suite they are errors.
"""

from __future__ import annotations

import atexit
import os
import pickle
import random
import select
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NoReturn

import pytest

SIZE = 4  # bytes of a number in a pipe
Location = tuple[str, int | None, str]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--processes", type=int, default=0, metavar="N", help="run test files in N forked processes"
    )


def processes_of(config: pytest.Config) -> int:
    """How many processes are asked for: none where `-n` has another wish."""
    if config.option.collectonly or config.getoption("numprocesses", None) is not None:
        return 0
    count: int = config.getoption("processes")
    return count


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Takes the place of pytest's own loop where `--processes` asks for it."""
    config = session.config
    count = processes_of(config)
    if not count or session.testsfailed:
        return None
    files = files_of(session.items)
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.showfspath = False  # letters of several files come in turn
    base = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    sys.stdout.flush()
    numbers = _waiting_numbers(len(files))
    processes = []
    for place in range(min(count, len(files))):
        readable, writable = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(readable)
            _become_process(session, files, numbers, writable, base / f"process{place}")
        os.close(writable)
        processes.append(Process(pid, os.fdopen(readable, "rb")))
    os.close(numbers)
    _gather(session, processes)
    return True


def files_of(items: Sequence[pytest.Item]) -> list[list[pytest.Item]]:
    """The tests of each file together, files in the order of their first test."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        found.setdefault(str(item.path), []).append(item)
    return list(found.values())


def _waiting_numbers(count: int) -> int:
    """A pipe with the numbers of all files: whoever reads one has it for itself."""
    readable, writable = os.pipe()
    os.write(writable, b"".join(number.to_bytes(SIZE, "big") for number in range(count)))
    os.close(writable)
    return readable


# --- the first process ---------------------------------------------------------------------------


@dataclass
class Process:
    """One of the forked processes, as the first one knows it."""

    pid: int
    pipe: BinaryIO
    running: tuple[str, Location] | None = None  # the test that it began and has not ended
    trouble: str = ""  # what went wrong outside of tests

    def has_ended(self) -> bool:
        """Waits for its end; True where it ended by itself."""
        self.pipe.close()
        return os.waitpid(self.pid, 0)[1] == 0


def _gather(session: pytest.Session, processes: list[Process]) -> None:
    """Passes on what all processes report; raises as pytest's loop does where a run ends early."""
    hook = session.config.hook
    seen: set[str] = set()
    lost: list[tuple[str, Location, str]] = []
    open_ones = {process.pipe: process for process in processes}
    try:
        while open_ones:
            for pipe in select.select(list(open_ones), [], [])[0]:
                process = open_ones[pipe]
                message = _read(pipe)
                if message is None:
                    del open_ones[pipe]
                    if not process.has_ended() or process.running:
                        name, place = process.running or ("a process of the suite", ("", 0, ""))
                        lost.append((name, place, process.trouble or "its process has ended"))
                        seen.add(name)
                    continue
                _pass_on(session, process, message, seen)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
    finally:
        for process in open_ones.values():
            os.kill(process.pid, signal.SIGINT)  # its fixtures end what they started
        for process in open_ones.values():
            process.has_ended()
    lost += [
        (item.nodeid, item.location, "it was not run: the process that had its file has ended")
        for item in session.items
        if item.nodeid not in seen
    ]
    for name, place, why in lost:
        hook.pytest_runtest_logreport(
            report=pytest.TestReport(name, place, {}, "failed", why, "call")
        )


def _pass_on(
    session: pytest.Session, process: Process, message: tuple[str, Any], seen: set[str]
) -> None:
    hook, (kind, value) = session.config.hook, message
    if kind == "trouble":
        process.trouble = value
    elif kind == "start":
        process.running = value
        hook.pytest_runtest_logstart(nodeid=value[0], location=value[1])
    else:
        for data in value:
            report = hook.pytest_report_from_serializable(config=session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
        assert process.running is not None
        name, location = process.running
        seen.add(name)
        process.running = None
        hook.pytest_runtest_logfinish(nodeid=name, location=location)


def _read(pipe: BinaryIO) -> tuple[str, Any] | None:
    size = pipe.read(SIZE)
    if len(size) < SIZE:
        return None
    found: tuple[str, Any] = pickle.loads(pipe.read(int.from_bytes(size, "big")))
    return found


# --- the others ----------------------------------------------------------------------------------


@dataclass
class Reports:
    """A plugin that sends what becomes of each test, once it has ended."""

    config: pytest.Config
    pipe: int
    gathered: list[Any] = field(default_factory=list)

    def pytest_runtest_logstart(self, nodeid: str, location: Location) -> None:
        self.send("start", (nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self.config.hook
        self.gathered.append(hook.pytest_report_to_serializable(config=self.config, report=report))

    def pytest_runtest_logfinish(self) -> None:
        self.send("finish", self.gathered)
        self.gathered = []

    def send(self, kind: str, value: Any) -> None:
        text = pickle.dumps((kind, value))
        left = memoryview(len(text).to_bytes(SIZE, "big") + text)
        while left:
            left = left[os.write(self.pipe, left) :]


def _become_process(
    session: pytest.Session, files: list[list[pytest.Item]], numbers: int, pipe: int, folder: Any
) -> NoReturn:
    """Runs files until there are none; never returns to the loop that it was forked from."""
    reports, status = Reports(session.config, pipe), 0
    try:
        atexit._clear()  # what is to be done at the end of the first process is that one's
        random.seed()
        _own_what_was_shared(session.config, folder)
        session.config.pluginmanager.register(reports)
        _run(session, files, numbers)
    except BaseException:
        reports.send("trouble", traceback.format_exc())
        status = 1
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        os._exit(status)


def _own_what_was_shared(config: pytest.Config, folder: Any) -> None:
    """Files for what tests print, and a folder for theirs."""
    capturing: Any = config.pluginmanager.getplugin("capturemanager")
    capturing.stop_global_capturing()
    capturing.start_global_capturing()
    config.pluginmanager.unregister(name="terminalreporter")
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]


def _run(session: pytest.Session, files: list[list[pytest.Item]], numbers: int) -> None:
    rest = Rest.from_parent(session, name="rest")
    try:
        for number in iter(lambda: os.read(numbers, SIZE), b""):
            items = files[int.from_bytes(number, "big")]
            for item, following in zip(items, [*items[1:], rest], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    finally:
        session._setupstate.teardown_exact(None)


class Rest(pytest.Item):
    """Whatever follows the last test of a file: of what was set up, only the session's stays."""

    def runtest(self) -> None:
        raise NotImplementedError
