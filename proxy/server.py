"""Starting and running one proxy, in reading order: check, bind, say, serve.

Mistakes a person makes at the start become one sentence and a named exit status.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from calibrator import CheckpointError, HubError, check_checkpoint
from policies import Escalate, InvalidDocumentError, Policy
from proxy.app import NO_CALIBRATOR, create_app
from proxy.config import Config, find_config, load_config, load_config_policy
from proxy.errors import ExitStatus, StartupError, UnknownModelError
from proxy.host_check import is_loopback
from proxy.logs import configure_logs
from proxy.routing import Router

GRACE_S = 30


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
        u.api_key.get_secret_value() for u in setup.config.upstreams.values()
    ):
        raise StartupError(
            ExitStatus.UNSAFE,
            f"listening on {host} with an upstream key and no client keys would lend the key to "
            "everyone who reaches this port; listen on 127.0.0.1, or remove the key so that "
            "clients send their own",
        )
    check_escalations(setup)
    checkpoint = setup.config.calibrator.checkpoint
    if checkpoint == NO_CALIBRATOR:
        return
    try:
        check_checkpoint(checkpoint)
    except HubError as error:
        raise StartupError(ExitStatus.HUB_UNREACHABLE, str(error)) from error
    except CheckpointError as error:
        raise StartupError(ExitStatus.CHECKPOINT_MISSING, str(error)) from error


def check_escalations(setup: Setup) -> None:
    """Every model that the policy escalates to must have a route; raises StartupError."""
    router = Router(setup.config)
    for rule in setup.policy.rules:
        if isinstance(rule.then, Escalate):
            try:
                router.name_for(rule.then.to)
            except UnknownModelError as error:
                message = f"policy {setup.policy.name}, rule {rule.name!r}: {error.message}"
                raise StartupError(ExitStatus.UNUSABLE_INPUT, message) from error


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
    app = create_app(setup.config, setup.policy, is_open=is_loopback(host))
    settings = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    for line in greeting(setup, *listening.getsockname()[:2]):
        say(line)
    uvicorn.Server(settings).run(sockets=[listening])


def check_store(config: Config) -> None:
    """The store's folder must exist and be writable before anything is promised to be held."""
    folder = Path(config.store.removeprefix("sqlite:///")).expanduser().resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise StartupError(
            ExitStatus.STORE_UNAVAILABLE,
            f"the store's folder {folder} does not exist or is not writable",
        )


def greeting(setup: Setup, host: str, port: int) -> list[str]:
    """What a newcomer needs: where, which calibrator and policy, and a line to paste."""
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
    policy = f"{setup.policy.name} ({setup.policy.mode})"
    lines = [
        f"Pinocchio Proxy listens on {url}",
        f"  calibrator {setup.config.calibrator.checkpoint}, policy {policy}, "
        f"configuration {setup.path or 'built in'}",
    ]
    if not any(upstream.demo for upstream in setup.config.upstreams.values()):
        return lines
    from proxy.demo import first_question

    body = {"model": "demo", "messages": [{"role": "user", "content": first_question()}]}
    quoted = json.dumps(body).replace("'", "'\\''")
    return [
        *lines,
        "Try it (the demo answers some questions right and some wrong):",
        f"  curl -si {url}/chat/completions -H 'content-type: application/json' -d '{quoted}'",
    ]
