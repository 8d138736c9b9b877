"""Starting and running one proxy, in reading order: check, bind, say, serve.

Mistakes a person makes at the start become one sentence and a named exit status.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from calibrator import CheckpointError, HubError, check_checkpoint
from policies import InvalidDocumentError, Policy
from proxy.app import App, create_app
from proxy.config import NO_CALIBRATOR, Config, find_config, load_config, load_config_policy
from proxy.database import open_engine, path_of
from proxy.errors import ExitStatus, StartupError, StoreError
from proxy.host_check import is_loopback
from proxy.http_server import HttpProtocol
from proxy.logs import configure_logs
from proxy.policy_models import model_problems
from proxy.routing import Router
from proxy.websocket_server import websocket_settings

GRACE_S = 30
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
KEPT_BYTES = 2**25
GC_THRESHOLDS = (50_000, 20, 50)  # requests make hardly any cycles


@dataclass(frozen=True, slots=True)
class Setup:
    """What the configuration gave, checked."""

    path: Path | None
    config: Config
    policy: Policy


def load_setup(path: Path | None, policy: str | None = None) -> Setup:
    """Reads configuration and policy; raises StartupError with every problem's file and line."""
    found = find_config(path)
    try:
        config = load_config(found)
        return Setup(found, config, load_config_policy(config, found, policy))
    except InvalidDocumentError as error:
        lines = "\n".join(map(str, error.problems))
        raise StartupError(ExitStatus.UNUSABLE_INPUT, lines) from error


def check_setup(setup: Setup, host: str) -> None:
    """Refuses what could not work or would not be safe; raises StartupError."""
    if not is_loopback(host) and any(
        upstream.lends_a_key for upstream in setup.config.upstreams.values()
    ):
        raise StartupError(
            ExitStatus.UNSAFE,
            f"listening on {host} with an upstream key and no client keys would lend the key to "
            "everyone who reaches this port; listen on 127.0.0.1, or remove the key so that "
            "clients send their own",
        )
    check_models(setup)
    calibrator = setup.config.calibrator
    if calibrator.checkpoint == NO_CALIBRATOR:
        return
    try:
        check_checkpoint(calibrator.checkpoint, calibrator.recalibration)
    except HubError as error:
        raise StartupError(ExitStatus.HUB_UNREACHABLE, str(error)) from error
    except CheckpointError as error:
        raise StartupError(ExitStatus.CHECKPOINT_MISSING, str(error)) from error


def check_models(setup: Setup) -> None:
    """Every model that the policy has asked must have a route; raises StartupError."""
    if problems := model_problems(setup.policy, Router(setup.config)):
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
    check_store(setup.config)
    listening = bind(host, port)
    url = url_of(*listening.getsockname()[:2])

    def say_try() -> None:
        settle_memory()
        for line in invitation(setup, url):
            say(line)

    app = create_app(setup.config, setup.policy, on_ready=say_try, is_open=is_loopback(host))
    settings = server_settings(app, setup.config)
    for line in greeting(setup, url):
        say(line)
    settle_memory()
    uvicorn.Server(settings).run(sockets=[listening])


def server_settings(app: App, config: Config, grace_s: int = GRACE_S) -> uvicorn.Config:
    """How uvicorn runs the application: it adds no header, no log line and no limit of its own."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_graceful_shutdown=grace_s,
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
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def check_store(config: Config) -> None:
    """The store must open before anything is promised to be held; raises StartupError."""
    folder = path_of(config.store).resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise StartupError(
            ExitStatus.STORE_UNAVAILABLE,
            f"the store's folder {folder} does not exist or is not writable",
        )
    try:
        open_engine(config.store).dispose()
    except StoreError as error:
        raise StartupError(ExitStatus.STORE_UNAVAILABLE, error.message) from error


def url_of(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def greeting(setup: Setup, url: str) -> list[str]:
    """What is known at once: where it listens, which calibrator and policy."""
    return [
        f"Pinocchio Proxy listens on {url}",
        f"  calibrator {setup.config.calibrator.checkpoint} (loading), "
        f"policy {setup.policy.name} ({setup.policy.mode}), "
        f"configuration {setup.path or 'built in'}",
    ]


def invitation(setup: Setup, url: str) -> list[str]:
    """A line to paste, once there is a calibrator to answer it, and what its figure means."""
    if not any(upstream.demo for upstream in setup.config.upstreams.values()):
        return []
    from proxy.demo import EMBEDDED_AUROC, first_question, rows

    body = {"model": "demo", "messages": [{"role": "user", "content": first_question()}]}
    quoted = json.dumps(body).replace("'", "'\\''")
    lines = [
        "Ready. Try a question that the demo answers wrongly:",
        f"  curl -si {url}/chat/completions -H 'content-type: application/json' -d '{quoted}'",
    ]
    if setup.config.calibrator.checkpoint != "embedded":
        return lines
    return [
        *lines,
        f"  On the demo's {len(rows())} answers the embedded calibrator ranks right above wrong "
        f"with AUROC {EMBEDDED_AUROC:.2f}",
        "  (0.5 is chance): 22 million parameters know few facts, mostly how right answers look.",
    ]
