"""The listener's own server, in the proxy's process and event loop.

Of several workers the first one runs it, because a question and its reply must reach the same
process.
"""

from __future__ import annotations

import asyncio
import errno
import socket

from proxy.config.sections import Config
from proxy.config.settings.guardrails import GuardrailsConfig
from proxy.errors import ExitStatus, StartupError
from proxy.gate.host_check import is_loopback
from proxy.generations.reloading import Generations
from proxy.http.listener.server import SecondServer
from proxy.http.listener.sockets import open_socket
from proxy.observe.metrics import Metrics

GRACE_S = 3
MOST_CONNECTIONS = 1_024
SHORTEST_TOKEN = 16  # characters, where other machines can connect


def check_guardrails(config: GuardrailsConfig | None) -> None:
    """Refuse a listener on another address than loopback without a token that is long enough.

    Raises StartupError.
    """
    if config is None or is_loopback(config.host):
        return
    if len(config.secret) < SHORTEST_TOKEN:
        raise StartupError(
            ExitStatus.UNSAFE,
            f"the guardrails listener on {config.host} is reached from other machines: set "
            f"guardrails.token, of at least {SHORTEST_TOKEN} characters, in proxy.yaml (or "
            "PINOCCHIO_GUARDRAILS_TOKEN), or listen on 127.0.0.1",
        )


def bind_guardrails(config: GuardrailsConfig | None) -> socket.socket | None:
    """Open the listener's socket and return it, or None where no listener is configured.

    Raises StartupError where the port is taken, the address is unusable, or the token is too short.
    """
    if config is None:
        return None
    check_guardrails(config)
    try:
        return open_socket(config.host, config.port, MOST_CONNECTIONS)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            text = f"guardrails.port {config.port} on {config.host} is taken; choose another"
            raise StartupError(ExitStatus.PORT_TAKEN, text) from error
        text = f"the guardrails listener cannot listen on {config.host}: {error.strerror or error}"
        raise StartupError(ExitStatus.UNUSABLE_INPUT, text) from error


def greeting_of(listening: socket.socket | None) -> list[str]:
    """Return a line with the address that gateways use, or no line without a socket."""
    if listening is None:
        return []
    host, port = listening.getsockname()[:2]
    return [
        f"  guardrails of other gateways at http://{f'[{host}]' if ':' in host else host}:{port}"
    ]


class GuardrailsServer:
    """The server of the listener's socket; `holder` has the configuration in force."""

    def __init__(
        self, listening: socket.socket, config: Config, holder: Generations, metrics: Metrics
    ) -> None:
        from proxy.optional.guardrails.application import GuardrailsApplication  # rarely needed

        assert config.guardrails is not None
        self._listening = listening
        application = GuardrailsApplication(
            config.guardrails, config.limits.max_body, holder, metrics
        )
        self._server = SecondServer(application, MOST_CONNECTIONS, GRACE_S)
        self._serving: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start serving in a task of the running event loop."""
        self._serving = asyncio.create_task(self._server.serve([self._listening]))

    async def stop(self) -> None:
        """Stop the server, and wait until it has ended."""
        if self._serving is None:
            return
        self._server.should_exit = True
        await self._serving
        self._serving = None
