"""The start of one proxy, in reading order: check, bind, announce, serve.

Mistakes of the person who starts it become one sentence and a named exit status.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from pydantic import ValidationError

from policies import InvalidDocumentError, lint, load_document
from proxy.app import create_app_of
from proxy.config.sections import (
    Config,
)
from proxy.config.settings.workers import WorkersConfig
from proxy.config.setup import Setup, load_setup, problems_of, refusal_placed, unusable
from proxy.desk.listening import AdminSocket, bind_admin, check_admin, remove_secret_files
from proxy.errors import ExitStatus, StartupError, StoreError, UnknownModelError
from proxy.gate.host_check import is_loopback
from proxy.http.listener.logs import configure_logs
from proxy.http.listener.server import Server, Terminal
from proxy.http.listener.sockets import bind, server_settings, settle_memory, url_of
from proxy.optional.parts import bind_guardrails, check_guardrails
from proxy.scoring.loader import (
    calibrator_refusal_placed,
    check_calibrator,
    load_fact_file,
    load_recalibrations,
    recalibrations_of_stand_in,
    shares_scorer,
)
from proxy.store.database.chain import KEY_VARIABLE, warn_if_unchained
from proxy.store.database.client_keys import KeyStore
from proxy.store.database.database import open_engine
from proxy.store.database.tables import path_of
from proxy.upstreams.loops import check_upstreams
from proxy.upstreams.router import NONE_PICKS, Router, model_problems, picks_curves
from proxy.upstreams.upstream_lines import upstream_lines

if TYPE_CHECKING:
    from calibrator import Recalibrations

log = structlog.get_logger(__name__)

PLACEHOLDER = "YOUR_KEY"  # the reader of the invitation replaces it


def reload_setup(
    path: Path,
    policy: str | None,
    host: str,
    listening: tuple[str, int] | None = None,
    workers: int | None = None,
) -> Setup:
    """Read and check the files of a running proxy again, and return the new setup.

    `policy` and `workers` replace what is configured; `listening` is the proxy's host and port.
    Raises StartupError for a setup that cannot be used.
    """
    try:
        if load_document(path, env=os.environ).value is None:  # an accident; defaults may be laxer
            raise StartupError(ExitStatus.UNUSABLE_INPUT, f"{path}: the file is empty")
    except InvalidDocumentError as error:
        raise unusable(error) from error
    setup = with_workers(load_setup(path, policy), workers)
    check_exposure(setup, host)
    if listening is not None:
        check_upstreams(setup.config, path, *listening)
    check_models(setup)
    check_keys(setup)
    check_calibrator(setup.config.calibrator, setup.path)
    return with_files(setup)


def check_exposure(setup: Setup, host: str) -> None:
    """Raise StartupError if strangers could use an upstream key of this proxy.

    That is so on a host beyond loopback with an upstream key and no client keys.
    """
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
    """Check that client keys name teams and policies that exist; raises StartupError."""
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
    check_models(setup)  # again, since the book now holds the policies of the keys


def check_stored_keys(setup: Setup) -> None:
    """Check the keys as `check_keys`, if the store exists: a check makes none.

    Raises StartupError.
    """
    path = path_of(setup.config.store)
    if path is None or path.exists():
        check_keys(setup)


def check_setup(setup: Setup, host: str) -> None:
    """Refuse a setup that could not work or would not be safe; raises StartupError."""
    check_exposure(setup, host)
    with refusal_placed(setup.path, "admin", "host"):
        check_admin(setup.config.admin)
    with refusal_placed(setup.path, "guardrails", "host"):
        check_guardrails(setup.config)
    check_models(setup)
    with refusal_placed(setup.path, "store"):
        check_folder(setup.config.store)
    check_calibrator(setup.config.calibrator, setup.path)


def with_files(setup: Setup) -> Setup:
    """Return the setup with recalibrations and facts loaded from the files that it names.

    Logs a recalibration by domains if none are configured. Raises StartupError.
    """
    with calibrator_refusal_placed(setup.path, "recalibration"):
        found = load_recalibrations(setup.config.calibrator)
    with calibrator_refusal_placed(setup.path, "stand_in"):
        of_stand_in = recalibrations_of_stand_in(setup.config.calibrator)
    if text := without_domains(setup.config, found):
        log.warning("recalibration_without_domains", hint=text)
    with calibrator_refusal_placed(setup.path, "facts"):
        facts = load_fact_file(setup.config.calibrator)
    if facts is not None:
        log.info("facts_loaded", path=str(facts.path), entries=facts.count)
    return replace(setup, recalibrations=found, of_stand_in=of_stand_in, facts=facts)


def without_domains(config: Config, recalibrations: Recalibrations | None) -> str:
    """Return a warning if recalibrations go by domain and no reply can get a domain; else ""."""
    has_domains = any(each.by == "domain" for each in recalibrations or ())
    return NONE_PICKS if has_domains and not picks_curves(config) else ""


def check_models(setup: Setup) -> None:
    """Check that every model that a policy asks has a route; raises StartupError."""
    router = Router(setup.config)
    if problems := [found for policy in setup.book for found in model_problems(policy, router)]:
        raise StartupError(ExitStatus.UNUSABLE_INPUT, "\n".join(map(str, problems)))


def with_workers(setup: Setup, count: int | None) -> Setup:
    """Return the setup with `count` workers; None changes nothing. Raises StartupError."""
    if count is None:
        return setup
    try:
        workers = WorkersConfig(count=count, scorer=setup.config.workers.scorer)
    except ValidationError as error:
        raise StartupError(
            ExitStatus.UNUSABLE_INPUT, f"--workers: {error.errors()[0]['msg']}"
        ) from error
    return replace(setup, config=setup.config.model_copy(update={"workers": workers}))


def serve(
    path: Path | None,
    host: str,
    port: int,
    policy: str | None,
    say: Callable[[str], None],
    workers: int | None = None,
) -> None:
    """Run one proxy until it is stopped; raises StartupError before it serves.

    `say` prints a line for people. `policy` and `workers` replace what is configured.
    """
    configure_logs()
    setup = with_workers(load_setup(path, policy), workers)
    check_setup(setup, host)
    setup = with_files(setup)
    check_store(setup.config)
    check_keys(setup)
    is_unchained = warn_if_unchained(setup.config.store)
    listening = bind(host, port)
    address: tuple[str, int] = listening.getsockname()[:2]
    check_upstreams(setup.config, setup.path, *address)
    admin, url = bind_admin(setup.config.admin), url_of(*address)
    guardrails, about_guardrails = bind_guardrails(setup.config)

    def on_ready() -> None:
        """Print how to try the proxy, and log warnings about the policies."""
        settle_memory()
        for line in invitation(setup, url):
            say(line)
        for text in setup.book.namesakes():
            log.warning("policies_share_a_name", hint=text)
        for each in setup.book:
            for warning in lint(each):  # after the start, since a thousand rules take seconds
                log.warning("policy_warning", policy=each.name, warning=str(warning))

    reload = None
    if setup.path:
        reload = partial(reload_setup, setup.path, policy, host, address, workers)
    for line in [
        *greeting(setup, url),
        *([admin.greeting(is_terminal=sys.stdout.isatty())] if admin else []),
        *about_guardrails,
    ]:
        say(line)
    if is_unchained:
        say(f"  no audit chain: set {KEY_VARIABLE}, else nobody can tell whether rows were changed")
    started = StartedProxy(setup, listening, admin, guardrails, reload, is_loopback(host), on_ready)
    if setup.config.workers.count > 1:
        _run_several(started)
    else:
        _run_one(started)


@dataclass(frozen=True, slots=True)
class StartedProxy:
    """The sockets that listen, and what they will serve."""

    setup: Setup
    listening: socket.socket
    admin: AdminSocket | None
    guardrails: socket.socket | None
    reload: Callable[[], Setup] | None
    is_open: bool
    on_ready: Callable[[], None]


def _run_one(started: StartedProxy) -> None:
    """Run the proxy in this process until it is stopped.

    SIGHUP reloads the configuration, or ends the proxy if its terminal was closed or reloading is
    off.
    """
    app = create_app_of(
        started.setup,
        on_ready=started.on_ready,
        reload=started.reload,
        is_open=started.is_open,
        admin=started.admin,
        guardrails=started.guardrails,
    )
    config, terminal = started.setup.config, Terminal()
    server = Server(server_settings(app, config.limits), app, config.limits.drain_s)

    def on_hangup(*_: object) -> None:
        """Reload the configuration, or end the proxy.

        It ends if its terminal was closed or it cannot reload.
        """
        if started.reload is not None and not terminal.is_closed():
            app.reload()
        else:
            server.handle_exit(signal.SIGTERM, None)

    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, on_hangup)
    signal.signal(signal.SIGTERM, _end)  # uvicorn raises it again once the server has ended
    settle_memory()
    server.run(sockets=[started.listening])


def _end(number: int, _: object) -> None:
    """End this process by a signal, without the files that hold secrets."""
    remove_secret_files()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _run_several(started: StartedProxy) -> None:
    """Run several workers; raises SystemExit with the status of one that could not start."""
    from proxy.startup.multiprocess import SharedResources, serve_workers

    shared = SharedResources(
        started.listening,
        started.admin,
        started.guardrails,
        started.reload,
        started.is_open,
        started.on_ready,
    )
    if status := serve_workers(started.setup, shared):
        raise SystemExit(status)


def check_folder(store: str) -> None:
    """Check that the folder of a database file exists and is writable; raises StartupError."""
    if path := path_of(store):
        folder = path.resolve().parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise StartupError(
                ExitStatus.STORE_UNAVAILABLE,
                f"the store's folder {folder} does not exist or is not writable",
            )


def check_store(config: Config) -> None:
    """Check that the store opens, before any reply is held; raises StartupError."""
    check_folder(config.store)
    try:
        open_engine(config.store).dispose()
    except StoreError as error:
        raise StartupError(ExitStatus.STORE_UNAVAILABLE, error.message) from error


def greeting(setup: Setup, url: str) -> list[str]:
    """Return the lines of the start: address, calibrator, policy, upstreams and workers."""
    return [
        f"Pinocchio Proxy listens on {url}",
        f"  calibrator {setup.config.calibrator.summary} (loading), "
        f"policy {setup.policy.name} ({setup.policy.mode}), "
        f"configuration {setup.path or 'built in'}",
        *workers_line(setup.config),
        *(f"  {line}" for line in upstream_lines(setup.config, setup.path)),
        *gpu_line(setup.config),
    ]


def gpu_line(config: Config) -> list[str]:
    """Return how to score on a GPU, where one is idle; torch is not imported for that."""
    from calibrator import ON_A_GPU, has_gpu_and_torch

    is_idle = config.calibrator.summary == "embedded" and has_gpu_and_torch()
    return [f"  a GPU is here: {ON_A_GPU}"] if is_idle else []


def workers_line(config: Config) -> list[str]:
    """Return a line with the number of workers and the place of their scores; empty for one."""
    if config.workers.count == 1:
        return []
    scorers = "one scorer for all of them" if shares_scorer(config) else "each scores for itself"
    return [f"  {config.workers.count} workers, {scorers}"]


def invitation(setup: Setup, url: str) -> list[str]:
    """Return a command to paste, for when the calibrator is loaded, and what its figure means.

    Empty where no route leads to the demo.
    """
    if (model := demo_model(setup.config)) is None:
        return []
    from proxy.upstreams.demo.demo import EMBEDDED_AUROC, first_question, rows

    body = {"model": model, "messages": [{"role": "user", "content": first_question()}]}
    quoted = json.dumps(body).replace("'", "'\\''")
    key, hint = "", ""
    if setup.config.needs_keys:
        key = f" -H 'authorization: Bearer {PLACEHOLDER}'"
        hint = f" ({PLACEHOLDER} is what `pinocchio keys create` prints)"
    lines = [
        f"Ready. Try a question that the demo answers wrongly{hint}:",
        f"  curl -si {url}/chat/completions -H 'content-type: application/json'{key} -d '{quoted}'",
    ]
    if setup.config.calibrator.summary != "embedded":
        return lines
    return [
        *lines,
        "  `basis` says what its confidence is based on, `because` what speaks against it.",
        f"  On the demo's {len(rows())} answers the embedded calibrator ranks right above wrong "
        f"with AUROC {EMBEDDED_AUROC:.2f}",
        "  (0.5 is chance): it knows few facts, and mostly what right answers look like.",
    ]


def demo_model(config: Config) -> str | None:
    """Return a model that the demo answers, not always rightly; None where no route leads there."""
    if not any(upstream.demo for upstream in config.upstreams.values()):
        return None
    from proxy.upstreams.demo.demo import STRONG

    router = Router(config)
    for name in ("demo", *router.local_models):
        with suppress(UnknownModelError):
            if name != STRONG and config.upstreams[router.name_for(name)].demo:
                return name
    return None
