"""The parent of all workers: starts them, restarts those that die, and ends them.

It has one thread and one loop that never blocks: the processes' sockets, signals, and a check four
times a second for what is due. It forks, so that a worker that starts later has the configuration
in force and not whatever the files say by then. Signals are for the supervisor. Workers ignore them
and receive a stop over their channel, so that a signal for the whole group counts once. A worker
whose supervisor is gone ends by itself.

A reload has two phases: all workers change their configuration, or none. First each worker
prepares: it reads the files, builds what it needs, and reports a digest of what it read. When all
have prepared the same, all swap. If one cannot, or read something else, none swaps (`Agreement`).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Literal, NoReturn, Protocol

import structlog

from proxy.http.workers.board import ABSENT, LOADING, Board
from proxy.http.workers.channel import Channel, Message, WorkerLink
from proxy.http.workers.hub import Hub
from proxy.http.workers.peers import Peers

PREPARE_S: Final = 60.0  # the time in which every worker has to prepare

Outcome = Literal["pending", "agreed", "refused"]

OTHER_FILES: Final = "the files changed while the workers read them; they are read again"
TOO_LATE: Final = f"a worker did not prepare the new configuration within {PREPARE_S:g} s"

log = structlog.get_logger(__name__)
SCORER: Final = -1  # the index of the scorer's process
LOOK_EVERY_S: Final = 0.25
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0  # before a process that died is restarted
STEADY_S: Final = 10.0  # a process that lived longer is restarted after the first pause
MARGIN_S: Final = 10.0  # in addition to the grace, for a worker's last writes
AT_ONCE_S: Final = 3.0  # the time that is left after a second signal
NOT_STARTED: Final = 3  # the exit status where a first worker cannot serve
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class Agreement:
    """The vote of `voters` on generation `number`, whose files have this digest."""

    def __init__(self, number: int, digest: str, voters: Iterable[int]) -> None:
        self.number = number
        self.problems: tuple[str, ...] = ()
        self.read_again = False  # True where only the files' timing was at fault
        self._digest = digest
        self._awaited = set(voters)
        self._until = time.monotonic() + PREPARE_S

    @property
    def outcome(self) -> Outcome:
        """The outcome so far: refused by one, agreed by all, or pending."""
        if self.problems:
            return "refused"
        return "pending" if self._awaited else "agreed"

    def note_vote(self, voter: int, digest: str | None, problems: Iterable[str] = ()) -> None:
        """Count one worker's vote: the digest that it prepared, or None and its problems.

        Votes of others, and second votes, are ignored.
        """
        if voter not in self._awaited:
            return
        self._awaited.discard(voter)
        if digest is None:
            self.problems = tuple(problems) or ("a worker could not prepare it",)
        elif digest != self._digest:
            self.problems, self.read_again = (OTHER_FILES,), True

    def leave(self, voter: int) -> None:
        """Stop waiting for a worker that is gone; its replacement starts with what is in force."""
        self._awaited.discard(voter)

    def look(self, now: float) -> None:
        """Refuse the change where votes are missing after PREPARE_S; `now` is time.monotonic()."""
        if self.outcome == "pending" and now > self._until:
            self.problems = (TOO_LATE,)


class RefusedError(Exception):
    """The configuration cannot be used; the problems are the arguments."""


class Configuration(Protocol):
    """The configuration of all workers, and how it changes; a new worker starts with `standing`."""

    standing: Any

    def has_changed(self) -> bool:
        """Return whether its files have changed, or a reload was asked for."""

    def ask(self) -> None:
        """Ask for a reload, as if a file had changed."""

    def read(self) -> str:
        """Read the files and return a digest of their content; raises RefusedError."""

    def take(self) -> None:
        """Put what was read in force."""

    def refuse(self, problems: tuple[str, ...]) -> Any:
        """Discard what was read, and return the message about it for the workers."""

    def drain(self) -> None:
        """Make workers that start from now on report that they will end."""


@dataclass(slots=True)
class Process:
    """One child; `run` does its work and returns its exit status."""

    index: int
    run: Callable[[Peers], int]
    pid: int = 0
    link: WorkerLink | None = None
    is_up: bool = False
    started_at: float = 0.0
    pause_s: float = 0.0
    due_at: float | None = None  # when it is restarted, by time.monotonic
    is_stopping: bool = False  # whether it has been asked to end

    @property
    def name(self) -> str:
        """The process's name in logs: `scorer`, or `worker` and its index."""
        return "scorer" if self.index == SCORER else f"worker {self.index}"


class Supervisor:
    """The supervisor of the processes in `runs`, by their index.

    `add` combines gathered answers (`Hub`). `on_stop` is called once when it begins to end, which
    may take `drain_s` and `grace_s`. On SIGHUP it ends where `is_left` returns True, because its
    terminal was closed; otherwise it reads the configuration.
    """

    def __init__(
        self,
        runs: Mapping[int, Callable[[Peers], int]],
        board: Board,
        configuration: Configuration,
        *,
        add: Callable[[Iterable[Any]], Any],
        on_stop: Callable[[], None],
        drain_s: float,
        grace_s: float,
        is_left: Callable[[], bool] = lambda: False,
    ) -> None:
        self._processes = {index: Process(index, run) for index, run in runs.items()}
        self._board = board
        self._configuration = configuration
        self._on_stop = on_stop
        self._drain_s, self._grace_s = drain_s, grace_s
        self._links: dict[int, WorkerLink] = {}  # of the workers that are up
        self._hub = Hub(self._links, add, self._facts)
        self._agreement: Agreement | None = None
        self._signals: list[int] = []
        self._is_left = is_left
        self._deadline: float | None = None  # by time.monotonic, once it ends
        self._stop_signal = 0
        self._status = 0
        self._restarts = 0
        self._dead_cpu_s = 0.0
        self._wakes, self._wake = socket.socketpair()
        for end in (self._wakes, self._wake):
            end.setblocking(False)

    def run(self) -> int:
        """Run all processes until they have ended.

        Return the exit status: 0, or that of a worker that could not start. Where a signal ended
        it, the supervisor ends itself by the same signal.
        """
        handlers = {number: signal.signal(number, self._note) for number in SIGNALS}
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        try:
            for process in self._processes.values():
                self._start(process)
            while any(each.pid for each in self._processes.values()):
                self._wait()
                self._reap()
                self._look(time.monotonic())
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self._stop_signal and not self._status:
            signal.signal(self._stop_signal, signal.SIG_DFL)
            signal.raise_signal(self._stop_signal)  # the parent sees by which signal it ended
        return self._status

    def _note(self, number: int, _: FrameType | None) -> None:
        """Keep a signal for the next turn; one about a dead child only wakes the loop."""
        if number != signal.SIGCHLD:
            self._signals.append(number)

    # --- processes --------------------------------------------------------------------------------

    def _start(self, process: Process) -> None:
        """Fork a process with a channel to it; the child runs and never returns from here."""
        own_end, worker_end = socket.socketpair()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        sys.stdout.flush()
        with warnings.catch_warnings():  # about threads, which belong to a library of numpy's
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            own_end.close()
            self._run_child(process, worker_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        worker_end.close()
        process.pid, process.link = pid, WorkerLink(own_end)
        process.is_up, process.due_at, process.started_at = False, None, time.monotonic()
        if process.index != SCORER:
            self._board.note(process.index, LOADING)

    def _run_child(self, process: Process, end: socket.socket) -> NoReturn:
        """Run a process in the child, with nothing of the supervisor's but the configuration."""
        status = 1
        try:
            os.setpgid(0, 0)  # a Ctrl-C is for the supervisor
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            for other in self._processes.values():
                if other.link is not None:
                    other.link.close()
            self._wakes.close()
            self._wake.close()
            channel, standing = Channel(end), self._configuration.standing
            status = process.run(Peers(process.index, self._board, channel, standing))
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        """Handle all processes that have ended: count their CPU time and bury them."""
        for process in self._processes.values():
            if not process.pid:
                continue
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                self._dead_cpu_s += usage.ru_utime + usage.ru_stime
                self._bury(process, os.waitstatus_to_exitcode(status))

    def _bury(self, process: Process, status: int) -> None:
        """Handle a process's end: read its last messages, close its link, plan its restart.

        The pause before a restart doubles each time. A process that never came up ends everything,
        with its status.
        """
        assert process.link is not None
        for message in process.link.receive():  # its last messages
            self._take(process, message)
        process.link.close()
        was_up, lived_s = process.is_up, time.monotonic() - process.started_at
        process.pid, process.link, process.is_up = 0, None, False
        if process.index != SCORER:
            self._board.note(process.index, ABSENT)
            self._links.pop(process.index, None)
            self._hub.leave(process.index)
            if self._agreement is not None:
                self._agreement.leave(process.index)
        if self._deadline is not None:
            return
        fields = {"process": process.name, "status": status, "lived_s": round(lived_s, 1)}
        if not was_up and not self._restarts:  # it never worked, so a restart would not help
            log.error("worker_not_started", **fields)
            self._status = status if status > 0 else NOT_STARTED
            self._stop(signal.SIGTERM)
            return
        process.pause_s = min(2 * process.pause_s, LONGEST_PAUSE_S) or FIRST_PAUSE_S
        if lived_s > STEADY_S:
            process.pause_s = FIRST_PAUSE_S
        process.due_at = time.monotonic() + process.pause_s
        self._restarts += 1
        log.error("worker_died", **fields, starts_in_s=round(process.pause_s, 1))

    def _facts(self) -> Mapping[str, Any]:
        """Return the process ids, the number of restarts and the CPU seconds of dead processes."""
        return {
            "pids": [os.getpid(), *(p.pid for p in self._processes.values() if p.pid)],
            "restarts": self._restarts,
            "dead_cpu_s": self._dead_cpu_s,
        }

    # --- a turn -----------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait for messages until it is time for the next check, and handle them."""
        poll, by_fd = select.poll(), {}
        poll.register(self._wakes, select.POLLIN)
        for process in self._processes.values():
            if process.link is not None:
                wanted = select.POLLIN | (select.POLLOUT if process.link.has_unsent else 0)
                poll.register(process.link.end, wanted)
                by_fd[process.link.end.fileno()] = process
        found = poll.poll(LOOK_EVERY_S * 1_000)
        with suppress(BlockingIOError):
            self._wakes.recv(4_096)
        for fd, events in found:
            process_at = by_fd.get(fd)
            if process_at is None or process_at.link is None:
                continue
            if events & select.POLLOUT:
                process_at.link.flush()
            for message in process_at.link.receive():
                self._take(process_at, message)
            if events & select.POLLHUP:  # its end is reaped in a moment
                time.sleep(0.005)

    def _look(self, now: float) -> None:
        """Do what is due: handle signals, questions, votes, restarts, changed files, the end.

        `now` is time.monotonic().
        """
        signals, self._signals = self._signals, []
        for number in signals:
            if number != signal.SIGHUP:
                self._stop(number)
            elif self._is_left():
                self._stop(signal.SIGTERM)
            else:
                self._configuration.ask()
        self._hub.look(now)
        if self._deadline is not None:
            self._end(now)
            return
        if self._agreement is not None:
            self._agreement.look(now)
            self._conclude(self._agreement)
            return
        for process in self._processes.values():
            if process.due_at is not None and now >= process.due_at:
                log.info("worker_restarted", process=process.name)
                self._start(process)
        workers = [each for each in self._processes.values() if each.index != SCORER]
        is_steady = all(each.is_up for each in workers if each.pid)
        if is_steady and self._configuration.has_changed():
            self._reload()

    def _take(self, process: Process, message: Message) -> None:
        """Handle a message of a process: up, drain, reload, a vote, or one for the hub."""
        if message.kind == "up":
            process.is_up = True
            if process.index != SCORER and process.link is not None:
                self._links[process.index] = process.link
        elif message.kind == "drain":
            self._configuration.drain()
            self._broadcast(Message("drain"))
        elif message.kind == "reload":
            self._configuration.ask()
        elif message.kind == "prepared":
            if self._agreement is not None and self._agreement.number == message.number:
                self._agreement.note_vote(process.index, *message.body)
        else:
            self._hub.take(process.index, message)

    def _broadcast(self, message: Message) -> None:
        """Send a message to all workers that are up."""
        for link in self._links.values():
            link.send(message)

    # --- another configuration --------------------------------------------------------------------

    def _reload(self) -> None:
        """Read the files, then let all workers do so."""
        try:
            digest = self._configuration.read()
        except RefusedError as error:
            self._refuse(error.args)
            return
        number = self._configuration.standing.number + 1
        self._agreement = Agreement(number, digest, self._links)
        self._broadcast(Message("prepare", 0, number))

    def _conclude(self, agreement: Agreement) -> None:
        """Carry out the outcome of a vote: all workers swap, or none; nothing while pending."""
        if agreement.outcome == "pending":
            return
        self._agreement = None
        if agreement.outcome == "agreed":
            self._configuration.take()
            self._broadcast(Message("swap", 0, agreement.number))
            return
        self._refuse(agreement.problems)
        if agreement.read_again:
            self._configuration.ask()

    def _refuse(self, problems: tuple[str, ...]) -> None:
        """Tell all workers that the changed configuration is refused, and why."""
        self._broadcast(Message("refused", 0, self._configuration.refuse(problems)))

    # --- the end ----------------------------------------------------------------------------------

    def _stop(self, number: int) -> None:
        """Begin to end because of signal `number`, and tell the workers; a second call hurries."""
        now = time.monotonic()
        if self._deadline is None:
            self._stop_signal = number
            drain_s = self._drain_s if number == signal.SIGTERM else 0.0
            self._deadline = now + drain_s + self._grace_s + MARGIN_S
            self._on_stop()
        else:
            self._deadline = min(self._deadline, now + AT_ONCE_S)
        for process in self._processes.values():
            if process.index != SCORER and process.link is not None:
                process.link.send(Message("stop", 0, number))

    def _end(self, now: float) -> None:
        """Stop the scorer once no worker is left, and kill processes that take too long.

        Workers end first, because they go on scoring.
        """
        assert self._deadline is not None
        living = [each for each in self._processes.values() if each.pid]
        workers = [each for each in living if each.index != SCORER]
        for scorer in living if not workers else ():
            if scorer.link is not None and not scorer.is_stopping:
                scorer.is_stopping = True
                scorer.link.send(Message("stop", 0, signal.SIGINT))
        if now > self._deadline:
            for process in living:
                log.error("worker_killed", process=process.name, hint="it did not end in time")
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
