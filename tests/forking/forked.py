"""Runs the suite in several processes that are forked once all tests are collected.

Collecting takes 25 s of CPU, most of it imports: processes that begin by themselves spend it each,
`--processes 4` spends it once. A process takes one test file after the other, in their order; what
it reports goes to the first process, which prints and counts it as if the tests had run there.
Where a process ends within a test, this test has failed and a new process takes the rest of its
file. Warnings are not passed on: in this suite they are errors.
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
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

SIZE = 4  # bytes of a number in a pipe
PATIENCE_S = 20  # for what fixtures do at the end, once a run is interrupted
SHOWN = 2000  # characters of what a process wrote last
Location = tuple[str, int | None, str]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--processes", type=int, default=0, metavar="N", help="run test files in N forked processes"
    )


def processes_of(config: pytest.Config) -> int:
    """How many processes are asked for: none where `-n` has another wish, or a person debugs."""
    option = config.option
    if option.collectonly or option.usepdb or config.getoption("numprocesses", None) is not None:
        return 0
    count: int = config.getoption("processes")
    return count


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Replace pytest's own loop if `--processes` is set."""
    config = session.config
    count = processes_of(config)
    if not count or session.testsfailed:
        return None
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.showfspath = False  # letters of several files come in turn
    Run(session).run(count)
    return True


def files_of(items: Sequence[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the tests of each file together, files in the order of their first test."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        found.setdefault(str(item.path), []).append(item)
    return list(found.values())


def _waiting_numbers(count: int) -> int:
    """Return a pipe with the numbers of all files; each number can be read once."""
    readable, writable = os.pipe()
    os.write(writable, b"".join(number.to_bytes(SIZE, "big") for number in range(count)))
    os.close(writable)
    return readable


# --- the first process ---------------------------------------------------------------------------


@dataclass
class Process:
    """One of the forked processes, as the first one knows it."""

    pid: int
    pipe: int
    folder: Path
    begun: tuple[str, Location] | None = None  # the test that it began last
    is_running: bool = False  # that test
    trouble: str = ""  # what went wrong outside of tests

    def has_ended(self, patience_s: float | None = None) -> int:
        """Wait for the process to end and return its exit status as a shell would.

        Kills it after `patience_s` seconds, if any.
        """
        os.close(self.pipe)
        if patience_s is not None:
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    return os.waitstatus_to_exitcode(status)
                time.sleep(0.02)
            os.kill(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def written(self) -> str:
        """Return the end of what the process wrote outside of tests."""
        with suppress(FileNotFoundError):
            return output_of(self.folder).read_bytes().decode(errors="replace")[-SHOWN:]
        return ""


def output_of(folder: Path) -> Path:
    """Where a process writes what no test captures: threads go on logging between two tests."""
    return folder.with_suffix(".out")


class Run:
    """A run of all tests in processes, as the first one directs it."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.files = files_of(session.items)
        self.numbers = _waiting_numbers(len(self.files))
        self.begun = 0
        self.processes: dict[int, Process] = {}  # by the pipes that they report by
        self.reported: set[str] = set()

    def run(self, count: int) -> None:
        """Begins so many processes and passes on what they report; raises as pytest's loop does
        where a run ends early.
        """
        for _ in range(min(count, len(self.files))):
            self._begin([])
        try:
            while self.processes:
                for pipe in select.select(list(self.processes), [], [])[0]:
                    message = _read(pipe)
                    if message is None:
                        self._end(self.processes.pop(pipe))
                    else:
                        self._pass_on(self.processes[pipe], message)
                    if self.session.shouldfail:
                        raise self.session.Failed(self.session.shouldfail)
                    if self.session.shouldstop:
                        raise self.session.Interrupted(self.session.shouldstop)
        except KeyboardInterrupt:
            self._read_on()
            raise
        finally:
            self._interrupt()
            os.close(self.numbers)
        for item in self.session.items:
            if item.nodeid not in self.reported:
                self._fail(item.nodeid, item.location, "it was not run: its process has ended")

    def _begin(self, first: list[pytest.Item]) -> None:
        """Forks a process that begins with these tests."""
        base = self.session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        folder = base / f"process{self.begun}"
        self.begun += 1
        sys.stdout.flush()
        readable, writable = os.pipe()
        pid = os.fork()
        if pid == 0:
            for pipe in (readable, *self.processes):
                os.close(pipe)
            _become_process(self, first, writable, folder)
        os.close(writable)
        self.processes[readable] = Process(pid, readable, folder)

    def _end(self, process: Process) -> None:
        """Tells what is lost with a process, and begins another one in its place."""
        status = process.has_ended()
        if status == 0 and not process.is_running:
            return
        name, place = "a process of the suite", ("", 0, "")
        if process.begun and process.is_running:
            name, place = process.begun
        why = process.trouble or f"its process has ended with {status}"
        self._fail(name, place, f"{why}\n{process.written()}")
        if process.begun:
            self._begin(self._following(process.begun[0]))

    def _following(self, name: str) -> list[pytest.Item]:
        """Return the tests of a file after this one."""
        for items in self.files:
            names = [item.nodeid for item in items]
            if name in names:
                return items[names.index(name) + 1 :]
        raise LookupError(name)

    def _read_on(self) -> None:
        """Pass on the reports from before Ctrl-C, unless it came in the middle of a message."""
        with suppress(Exception):
            for _ in range(1_000):
                for pipe in select.select(list(self.processes), [], [], 0)[0]:
                    if (message := _read(pipe)) is None:
                        return
                    self._pass_on(self.processes[pipe], message)

    def _interrupt(self) -> None:
        """Interrupt the processes that still run, and print which test each of them was in."""
        for process in self.processes.values():
            if process.is_running and process.begun:
                print(f"\nit was in {process.begun[0]}", end="", flush=True)
            os.kill(process.pid, signal.SIGINT)  # its fixtures end what they started
        deadline = time.monotonic() + PATIENCE_S
        for process in self.processes.values():
            process.has_ended(max(0.0, deadline - time.monotonic()))

    def _fail(self, name: str, place: Location, why: str) -> None:
        self.reported.add(name)
        self.session.config.hook.pytest_runtest_logreport(
            report=pytest.TestReport(name, place, {}, "failed", why, "call")
        )

    def _pass_on(self, process: Process, message: tuple[str, Any]) -> None:
        hook, (kind, value) = self.session.config.hook, message
        if kind == "trouble":
            process.trouble = value
        elif kind == "start":
            process.begun, process.is_running = value, True
            hook.pytest_runtest_logstart(nodeid=value[0], location=value[1])
        else:
            for data in value:
                report = hook.pytest_report_from_serializable(config=self.session.config, data=data)
                hook.pytest_runtest_logreport(report=report)
            assert process.begun is not None
            name, location = process.begun
            self.reported.add(name)
            process.is_running = False
            hook.pytest_runtest_logfinish(nodeid=name, location=location)


def _read(pipe: int) -> tuple[str, Any] | None:
    """Return the next message, or None once the pipe has ended, even amid a message."""
    if (size := _read_exactly(pipe, SIZE)) is None:
        return None
    text = _read_exactly(pipe, int.from_bytes(size, "big"))
    found: tuple[str, Any] | None = None if text is None else pickle.loads(text)
    return found


def _read_exactly(pipe: int, size: int) -> bytes | None:
    read = b""
    while len(read) < size:
        part = os.read(pipe, size - len(read))
        if not part:
            return None
        read += part
    return read


# --- the others ----------------------------------------------------------------------------------


@dataclass(eq=False)  # pytest keeps plugins in sets where a folder has a conftest of its own
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


def _become_process(run: Run, first: list[pytest.Item], pipe: int, folder: Path) -> NoReturn:
    """Run files until there are none; never return to the loop that it was forked from."""
    config = run.session.config
    reports, status = Reports(config, pipe), 0
    try:
        os.setpgid(0, 0)  # of Ctrl-C the first process tells, once
        atexit._clear()  # what is to be done at the end of the first process is that one's
        random.seed()
        _own_what_was_shared(config, folder)
        config.pluginmanager.register(reports)
        _run(run, first)
    except BaseException:
        status = 1
        with suppress(BrokenPipeError):  # the first process is gone
            reports.send("trouble", traceback.format_exc())
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        os._exit(status)


def _own_what_was_shared(config: pytest.Config, folder: Path) -> None:
    """Files for what is printed in tests and between them, and a folder for those of tests."""
    capturing: Any = config.pluginmanager.getplugin("capturemanager")
    capturing.stop_global_capturing()
    if config.option.capture != "no":
        file = os.open(output_of(folder), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
    capturing.start_global_capturing()
    config.pluginmanager.unregister(name="terminalreporter")
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]


def _run(run: Run, first: list[pytest.Item]) -> None:
    rest = Rest.from_parent(run.session, name="rest")
    try:
        _run_file(first, rest)
        for number in iter(lambda: os.read(run.numbers, SIZE), b""):
            _run_file(run.files[int.from_bytes(number, "big")], rest)
    finally:
        run.session._setupstate.teardown_exact(None)


def _run_file(items: list[pytest.Item], rest: Rest) -> None:
    for item, following in zip(items, [*items[1:], rest][: len(items)], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


class Rest(pytest.Item):
    """Whatever follows the last test of a file: of what was set up, only the session's stays."""

    def runtest(self) -> None:
        raise NotImplementedError
