"""Starting and running one proxy, in reading order: check, bind, say, serve.

Mistakes a person makes at the start become one sentence and a named exit status.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import uvicorn

from calibrator import CheckpointError, HubError
from policies import InvalidDocumentError, lint, load_document
from proxy.app import create_app_of, load_recalibration
from proxy.config import (
    NO_CALIBRATOR,
    CalibratorConfig,
    Config,
    find_config,
    load_config,
    load_config_policy,
)
from proxy.config_problems import located
from proxy.desk.listening import bind_admin, check_admin
from proxy.domains import NONE_PICKS, picks_curves
from proxy.errors import ExitStatus, StartupError, StoreError, UnknownModelError
from proxy.generation import Setup, problems_of
from proxy.host_check import is_loopback
from proxy.http_server import HttpProtocol
from proxy.logs import configure_logs
from proxy.loops import check_upstreams
from proxy.open_files import connections_for, raise_file_limit
from proxy.policy_book import PolicyBook
from proxy.policy_models import model_problems
from proxy.routes import ASGIApplication
from proxy.routing import Router
from proxy.store.audit_chain import KEY_VARIABLE, say_if_off
from proxy.store.client_keys import KeyStore
from proxy.store.database import open_engine, path_of
from proxy.upstream_lines import upstream_lines
from proxy.websocket_settings import websocket_settings

if TYPE_CHECKING:
    from calibrator import Recalibration

log = structlog.get_logger(__name__)

GRACE_S = 30
PLACEHOLDER = "YOUR_KEY"  # for whoever pastes the invitation to fill in
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
KEPT_BYTES = 2**25
GC_THRESHOLDS = (50_000, 20, 50)  # requests make hardly any cycles


def load_setup(path: Path | None, policy: str | None = None) -> Setup:
    """Reads configuration and policy; raises StartupError with every problem's file and line."""
    found, config = find_config(path), load_store_config(path)
    with _told_of_policy(found, *(() if policy else ("policies",))):
        default = load_config_policy(config, found, policy)
    book = PolicyBook(default, found.parent if found else None)
    for name, team in config.teams.items():
        with _told_of_policy(found, "teams", name, "policy"):
            book.load(team.policy)
    return Setup(found, config, book)


@contextmanager
def _told_of_policy(path: Path | None, *key: str) -> Iterator[None]:
    """A policy that cannot be read is a mistake of the key that names it; others have lines."""
    try:
        yield
    except InvalidDocumentError as error:
        told = [str(p) if p.line else located(path, key, str(p)) for p in error.problems]
        raise StartupError(ExitStatus.UNUSABLE_INPUT, "\n".join(told)) from error


def load_store_config(path: Path | None) -> Config:
    """The configuration alone: whoever only needs the store is not stopped by a broken policy."""
    try:
        return load_config(find_config(path))
    except InvalidDocumentError as error:
        raise _unusable(error) from error


def _unusable(error: InvalidDocumentError) -> StartupError:
    return StartupError(ExitStatus.UNUSABLE_INPUT, "\n".join(map(str, error.problems)))


def reload_setup(
    path: Path, policy: str | None, host: str, listening: tuple[str, int] | None = None
) -> Setup:
    """Reads the files of a proxy that is `listening` again; raises StartupError for what cannot be
    used."""
    try:
        if load_document(path, env=os.environ).value is None:  # by accident: defaults may be laxer
            raise StartupError(ExitStatus.UNUSABLE_INPUT, f"{path}: the file is empty")
    except InvalidDocumentError as error:
        raise _unusable(error) from error
    setup = load_setup(path, policy)
    check_exposure(setup, host)
    if listening is not None:
        check_upstreams(setup.config, path, *listening)
    check_models(setup)
    check_keys(setup)
    check_calibrator(setup.config.calibrator, setup.path)
    return with_recalibration(setup)


def check_exposure(setup: Setup, host: str) -> None:
    """Refuses to lend an upstream key to everybody; raises StartupError."""
    config = setup.config
    if is_loopback(host) or config.needs_keys:
        return
    if any(upstream.lends_a_key for upstream in config.upstreams.values()):
        raise StartupError(
            ExitStatus.UNSAFE,
            f"listening on {host} with an upstream key and no client keys would lend the key to "
            "everyone who reaches this port; give clients keys of their own ('keys: required' in "
            "proxy.yaml, and `pinocchio keys create`), or listen on 127.0.0.1, or remove the key "
            "so that clients send their own",
        )


def check_keys(setup: Setup) -> None:
    """Client keys must name teams and policies that exist; raises StartupError."""
    if not setup.config.needs_keys:
        return
    store = KeyStore(setup.config.store)
    try:
        problems = problems_of(store.all(), setup)
    except StoreError as error:
        raise StartupError(ExitStatus.STORE_UNAVAILABLE, error.message) from error
    finally:
        store.close()
    if problems:
        advice = "; correct the configuration, or revoke the key with `pinocchio keys revoke ID`"
        lines = "\n".join(problem + advice for problem in problems)
        raise StartupError(ExitStatus.UNUSABLE_INPUT, lines)
    check_models(setup)  # the book has the policies of the keys by now


def check_stored_keys(setup: Setup) -> None:
    """As `check_keys`, where the store is there already: a check makes none."""
    path = path_of(setup.config.store)
    if path is None or path.exists():
        check_keys(setup)


def check_setup(setup: Setup, host: str) -> None:
    """Refuses what could not work or would not be safe; raises StartupError."""
    check_exposure(setup, host)
    with _told_at(setup.path, "admin", "host"):
        check_admin(setup.config.admin)
    check_models(setup)
    with _told_at(setup.path, "store"):
        check_folder(setup.config.store)
    check_calibrator(setup.config.calibrator, setup.path)


@contextmanager
def _told_at(path: Path | None, *key: str) -> Iterator[None]:
    """A refusal is told with file and line of the key that it is about."""
    try:
        yield
    except StartupError as error:
        raise StartupError(error.status, located(path, key, str(error))) from error


def check_calibrator(config: CalibratorConfig, path: Path | None) -> None:
    """The checkpoint and its recalibration must be there, and fit; raises StartupError.

    An engine need not be there yet.
    """
    if config.checkpoint == NO_CALIBRATOR:
        return
    from proxy.engines.opening import check_calibrator_config

    with _told_of_calibrator(path, "recalibration"):
        load_recalibration(config)
    with _told_of_calibrator(path, "checkpoint"):
        check_calibrator_config(config)


@contextmanager
def _told_of_calibrator(path: Path | None, key: str) -> Iterator[None]:
    """What the calibrator refuses, with file and line of the key that names it."""
    with _told_at(path, "calibrator", key):
        try:
            yield
        except HubError as error:
            raise StartupError(ExitStatus.HUB_UNREACHABLE, str(error)) from error
        except CheckpointError as error:
            raise StartupError(ExitStatus.CHECKPOINT_MISSING, str(error)) from error


def with_recalibration(setup: Setup) -> Setup:
    """The setup with what its configuration corrects confidences with; raises StartupError."""
    with _told_of_calibrator(setup.path, "recalibration"):
        found = load_recalibration(setup.config.calibrator)
    if text := without_domains(setup.config, found):
        log.warning("recalibration_without_domains", hint=text)
    return replace(setup, recalibration=found)


def without_domains(config: Config, recalibration: Recalibration | None) -> str:
    """A sentence about curves that no reply can get; empty where there are none."""
    goes_by_domain = recalibration is not None and recalibration.by == "domain"
    return NONE_PICKS if goes_by_domain and not picks_curves(config) else ""


def check_models(setup: Setup) -> None:
    """Every model that a policy has asked must have a route; raises StartupError."""
    router = Router(setup.config)
    if problems := [found for policy in setup.book for found in model_problems(policy, router)]:
        raise StartupError(ExitStatus.UNUSABLE_INPUT, "\n".join(map(str, problems)))


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; raises StartupError when the port is taken or the address is not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2_048)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} on {host} is taken; choose another with --port"
            raise StartupError(ExitStatus.PORT_TAKEN, message) from error
        raise StartupError(
            ExitStatus.UNUSABLE_INPUT, f"cannot listen on {host}:{port}: {error.strerror}"
        ) from error
    except (OverflowError, UnicodeError) as error:
        listening.close()
        raise StartupError(
            ExitStatus.UNUSABLE_INPUT, f"cannot listen on {host}:{port}: {error}"
        ) from error
    return listening


def serve(
    path: Path | None, host: str, port: int, policy: str | None, say: Callable[[str], None]
) -> None:
    """Runs one proxy until it is told to stop; raises StartupError before it listens."""
    configure_logs(os.environ.get("PINOCCHIO_LOG_LEVEL", "info"))
    setup = load_setup(path, policy)
    check_setup(setup, host)
    setup = with_recalibration(setup)
    check_store(setup.config)
    check_keys(setup)
    is_unchained = say_if_off(setup.config.store)
    listening = bind(host, port)
    place: tuple[str, int] = listening.getsockname()[:2]
    check_upstreams(setup.config, setup.path, *place)
    admin, url = bind_admin(setup.config.admin), url_of(*place)

    def say_try() -> None:
        settle_memory()
        for line in invitation(setup, url):
            say(line)
        for each in setup.book:
            for warning in lint(each):  # only now: with a thousand rules it takes seconds
                log.warning("policy_warning", policy=each.name, warning=str(warning))

    reload = partial(reload_setup, setup.path, policy, host, place) if setup.path else None
    app = create_app_of(
        setup, on_ready=say_try, reload=reload, is_open=is_loopback(host), admin=admin
    )
    if reload is not None and hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: app.reload())
    settings = server_settings(app, setup.config)
    for line in [
        *greeting(setup, url),
        *([admin.greeting(is_terminal=sys.stdout.isatty())] if admin else []),
    ]:
        say(line)
    if is_unchained:
        say(f"  no audit chain: set {KEY_VARIABLE}, else nobody can tell whether rows were changed")
    settle_memory()
    uvicorn.Server(settings).run(sockets=[listening])


def server_settings(app: ASGIApplication, config: Config, grace_s: int = GRACE_S) -> uvicorn.Config:
    """How uvicorn runs the application: it adds no header, no log line and no limit of its own."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_graceful_shutdown=grace_s,
        limit_concurrency=config.limits.max_connections or connections_for(raise_file_limit()),
        http=HttpProtocol,
        **websocket_settings(config.limits.max_body),
    )


def settle_memory() -> None:
    """What is loaded by now stays: the garbage collector need not look through it at every turn."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Large bodies come and go: glibc would ask the kernel for each, and give it back.

    That costs more than the copying; a reply of 1 MB takes a fifth less CPU without.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def check_folder(store: str) -> None:
    """A database in a file needs a folder that can be written to; raises StartupError."""
    if path := path_of(store):
        folder = path.resolve().parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise StartupError(
                ExitStatus.STORE_UNAVAILABLE,
                f"the store's folder {folder} does not exist or is not writable",
            )


def check_store(config: Config) -> None:
    """The store must open before anything is promised to be held; raises StartupError."""
    check_folder(config.store)
    try:
        open_engine(config.store).dispose()
    except StoreError as error:
        raise StartupError(ExitStatus.STORE_UNAVAILABLE, error.message) from error


def url_of(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def greeting(setup: Setup, url: str) -> list[str]:
    """What is known at once: where it listens, which calibrator, policy and upstreams."""
    return [
        f"Pinocchio Proxy listens on {url}",
        f"  calibrator {setup.config.calibrator.summary} (loading), "
        f"policy {setup.policy.name} ({setup.policy.mode}), "
        f"configuration {setup.path or 'built in'}",
        *(f"  {line}" for line in upstream_lines(setup.config, setup.path)),
    ]


def invitation(setup: Setup, url: str) -> list[str]:
    """A line to paste, once there is a calibrator to answer it, and what its figure means."""
    if (model := demo_model(setup.config)) is None:
        return []
    from proxy.demo import EMBEDDED_AUROC, first_question, rows

    body = {"model": model, "messages": [{"role": "user", "content": first_question()}]}
    quoted = json.dumps(body).replace("'", "'\\''")
    key, whose = "", ""
    if setup.config.needs_keys:
        key = f" -H 'authorization: Bearer {PLACEHOLDER}'"
        whose = f" ({PLACEHOLDER} is what `pinocchio keys create` prints)"
    lines = [
        f"Ready. Try a question that the demo answers wrongly{whose}:",
        f"  curl -si {url}/chat/completions -H 'content-type: application/json'{key} -d '{quoted}'",
    ]
    if setup.config.calibrator.summary != "embedded":
        return lines
    return [
        *lines,
        f"  On the demo's {len(rows())} answers the embedded calibrator ranks right above wrong "
        f"with AUROC {EMBEDDED_AUROC:.2f}",
        "  (0.5 is chance): it knows few facts, mostly how right answers look.",
    ]


def demo_model(config: Config) -> str | None:
    """A model that the demo answers for, not always rightly; None where no route names one."""
    if not any(upstream.demo for upstream in config.upstreams.values()):
        return None
    from proxy.demo import STRONG

    router = Router(config)
    for name in ("demo", *router.local_models):
        with suppress(UnknownModelError):
            if name != STRONG and config.upstreams[router.name_for(name)].demo:
                return name
    return None
