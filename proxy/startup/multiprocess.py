"""Several workers as one proxy: the processes that the supervisor forks, and what they share.

The socket is bound once, and all workers accept on it: a free worker takes the next connection, and
one that dies leaves nothing behind in a queue of its own. The first worker has the desk, and does
the work that is done only once. Counters of limits are in shared memory.
"""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog
import uvicorn
from pydantic import SecretStr

from proxy.app import create_app_of
from proxy.config.file_watcher import ConfigWatch
from proxy.config.sections import Config, ScorerConfig
from proxy.config.settings.engines import ScoringServer
from proxy.config.setup import Setup
from proxy.desk.figures import left_by
from proxy.desk.listening import AdminSocket, remove_secret_files
from proxy.errors import StartupError, StoreError
from proxy.gate.rate_limits import SharedBuckets
from proxy.generations.reloading import (
    GenerationState,
    Refusal,
    digest_of,
    suspects_of,
    with_what_stays,
)
from proxy.http.listener.logs import note_worker
from proxy.http.listener.server import Application, Server, Terminal
from proxy.http.listener.sockets import bind, server_settings, settle_memory, url_of
from proxy.http.wire.http import place
from proxy.http.workers.board import READY, Board
from proxy.http.workers.peers import Peers
from proxy.http.workers.supervisor import NOT_STARTED, SCORER, RefusedError, Supervisor
from proxy.scoring.loader import NOTHING_LOADED, PreloadedCalibrators, preload, shares_scorer

log = structlog.get_logger(__name__)

LOOPBACK = "127.0.0.1"
ORPHAN_MARGIN_S = 15.0  # added to the grace, after which an orphaned worker exits at once


@dataclass(frozen=True, slots=True)
class SharedResources:
    """Resources of all workers, made before they are forked.

    `on_ready` is called in the first worker, each time that it is ready.
    """

    listening: socket.socket
    admin: AdminSocket | None
    guardrails: socket.socket | None
    reload: Callable[[], Setup] | None
    is_open: bool
    on_ready: Callable[[], None]
    buckets: SharedBuckets = field(default_factory=SharedBuckets)
    preloaded: PreloadedCalibrators = NOTHING_LOADED


def serve_workers(setup: Setup, shared: SharedResources) -> int:
    """Run the supervisor and all workers until they are stopped, and return the exit status.

    If one process computes all scores, it is started too, and the workers get their scores there.
    """
    config = setup.config
    runs, reload = {}, shared.reload
    if shares_scorer(config):
        token, scoring = secrets.token_urlsafe(32), bind(LOOPBACK, 0)
        url = url_of(*scoring.getsockname()[:2]).removesuffix("/v1")
        runs[SCORER] = partial(_run_scorer, _scorer_config(config, token), scoring)
        with_scorer = partial(_with_scorer, url, token)
        setup = with_scorer(setup)
        if reload is not None:
            read = reload
            shared = replace(shared, reload=lambda: with_scorer(read()))
    shared = replace(shared, preloaded=preload(setup.config.calibrator))
    for index in range(config.workers.count):
        runs[index] = partial(_run_worker, shared)
    gc.collect()
    gc.freeze()  # pages of loaded objects stay shared as long as nobody writes to them
    supervisor = Supervisor(
        runs,
        Board(config.workers.count),
        _Configuration(setup, shared.reload),
        add=left_by,
        on_stop=partial(_stop_listening, shared.listening),
        drain_s=config.limits.drain_s,
        grace_s=config.limits.grace_s,
        is_left=Terminal().is_closed,
    )
    return supervisor.run()


def _stop_listening(listening: socket.socket) -> None:
    """Close the supervisor's socket, and remove its files with secrets: a signal will end it."""
    listening.close()
    remove_secret_files()


def _scorer_config(config: Config, token: str) -> Config:
    """Return the configuration of the scorer's process, with this token for its clients.

    It has no recalibrations and facts, which the workers apply themselves.
    """
    calibrator = config.calibrator.model_copy(update={"recalibration": (), "facts": None})
    changed = {"calibrator": calibrator, "scorer": ScorerConfig(token=SecretStr(token))}
    return config.model_copy(update=changed)


def _with_scorer(url: str, token: str, setup: Setup) -> Setup:
    """Return the setup of a worker that gets its scores from the scorer's process."""
    engine = ScoringServer(kind="scorer", base_url=url, api_key=SecretStr(token))
    elsewhere = {"engine": engine, "device": "auto", "threads": None}
    calibrator = setup.config.calibrator.model_copy(update=elsewhere)
    return replace(setup, config=setup.config.model_copy(update={"calibrator": calibrator}))


class _Configuration:
    """The supervisor's view of the configuration; `standing` is what a new worker starts with."""

    def __init__(self, setup: Setup, reload: Callable[[], Setup] | None) -> None:
        self.standing = GenerationState(setup)
        self._reload = reload
        self._read: Setup | None = None
        self._suspects: frozenset[Path] = frozenset()
        self._has_changed = False
        self._watch = ConfigWatch(self._files, self._note_change, lambda: None)
        self._watch.begin()

    def has_changed(self) -> bool:
        """Check the files once, and return whether they have changed and can be reloaded."""
        self._watch.turn()
        changed, self._has_changed = self._has_changed, False
        return changed and self._reload is not None

    def ask(self) -> None:
        self._watch.ask()

    def read(self) -> str:
        """Read the configuration and return its digest; raises RefusedError with its problems."""
        assert self._reload is not None
        try:
            self._read = self._reload()
        except (StartupError, StoreError) as error:
            self._suspects = suspects_of(error)
            raise RefusedError(*str(error).splitlines()) from error
        except Exception as error:
            log.error("configuration_unreadable", **place(error))
            raise RefusedError("the proxy failed to read it; its log says where") from error
        return digest_of(self._read)

    def take(self) -> None:
        """Make the configuration that was read the current one, under the next number."""
        before, read = self.standing, self._read
        assert read is not None
        setup, _ = with_what_stays(before.setup, read)
        self._suspects = frozenset()
        self.standing = replace(
            before, setup=setup, number=before.number + 1, refusal=None, taken_at=time.time()
        )

    def refuse(self, problems: tuple[str, ...]) -> Refusal:
        """Note and log that the configuration is refused, and return the refusal.

        The previous configuration stays current.
        """
        before, refusal = self.standing, Refusal(time.time(), problems)
        self.standing = replace(before, refusal=refusal, refusals=before.refusals + 1)
        log.error(
            "configuration_refused",
            problems=list(problems),
            generation=before.number,
            hint="still using the previous configuration",
        )
        return refusal

    def drain(self) -> None:
        self.standing = replace(self.standing, is_draining=True)

    def _files(self) -> frozenset[Path]:
        return self._suspects | self.standing.setup.files

    def _note_change(self) -> None:
        self._has_changed = True


# --- in a worker ----------------------------------------------------------------------------------


class _WorkerServer(Server):
    """A server that is stopped by the supervisor, and reports when it serves."""

    peers: Peers

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve on the sockets, and tell the leading process if that worked."""
        await super().startup(sockets)
        if self.started:
            self.peers.tell("up")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Scorer:
    """The scoring server's side of its end: no client waits there for a reviewer."""

    is_draining = False

    def drain(self) -> None: ...

    def end_waits(self) -> None: ...


def _run_worker(shared: SharedResources, peers: Peers) -> int:
    """Run a worker process until it is stopped, and return its exit status."""

    def on_ready() -> None:
        settle_memory()
        peers.board.note(peers.index, READY)
        if peers.leads:
            shared.on_ready()

    note_worker(peers.index)
    standing: GenerationState = peers.standing
    app = create_app_of(
        standing.setup,
        reload=shared.reload,
        on_ready=on_ready,
        is_open=shared.is_open,
        admin=shared.admin,
        guardrails=shared.guardrails,
        peers=peers,
        buckets=shared.buckets,
        preloaded=shared.preloaded,
    )
    config = standing.setup.config
    settings = server_settings(app, config.limits, share=config.workers.count)
    return _serve(settings, app, peers, shared.listening, config)


def _run_scorer(config: Config, listening: socket.socket, peers: Peers) -> int:
    """Run the process that computes the scores of all workers, and return its exit status."""
    from proxy.scoring.server.app import scoring_app

    app = scoring_app(config, on_ready=settle_memory)
    settings = server_settings(app, config.limits, grace_s=1)
    return _serve(settings, _Scorer(), peers, listening, config)


def _serve(
    settings: uvicorn.Config,
    application: Application,
    peers: Peers,
    listening: socket.socket,
    config: Config,
) -> int:
    """Serve on the socket until the leading process sends `stop` or ends; returns the exit status.

    That is 0, or NOT_STARTED if the application did not start.
    """
    limits = config.limits
    server = _WorkerServer(settings, application, limits.drain_s)
    server.peers = peers
    peers.on("stop", lambda number: server.handle_exit(number, None))
    peers.start(partial(_end_orphaned, server, limits.drain_s + limits.grace_s))
    server.run(sockets=[listening])
    return 0 if server.started else NOT_STARTED


def _end_orphaned(server: Server, within_s: float) -> None:
    """End this worker, whose supervisor is gone: in order, or by force after some time.

    The limit is `within_s` seconds and a margin.
    """
    log.error("supervisor_gone", hint="this worker ends what goes on, and then itself")
    server.handle_exit(signal.SIGTERM, None)
    ending = threading.Timer(within_s + ORPHAN_MARGIN_S, os._exit, [NOT_STARTED])
    ending.daemon = True
    ending.start()
