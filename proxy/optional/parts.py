"""Makes the optional parts that a configuration names; each is imported when it is first needed.

No other module of the proxy imports them, except for commands, which do so when they are run.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proxy.config.sections import Config
from proxy.config.settings.telemetry import TelemetryConfig
from proxy.errors import ProxyError
from proxy.generations.reloading import Generations
from proxy.http.wire.http import Receive, Scope, Send
from proxy.observe.metrics import Metrics

if TYPE_CHECKING:
    from proxy.desk.decisions.desk import Desk
    from proxy.desk.listening import LinkPagesOf
    from proxy.desk.webhooks import Courier
    from proxy.observe.telemetry import ScoreReceiver, Telemetry
    from proxy.optional.guardrails.listening import GuardrailsServer


def telemetry_of(config: TelemetryConfig, metrics: Metrics) -> Telemetry | None:
    """Return the telemetry, or None where none is configured; raises StartupError."""
    if not config.is_on:
        return None
    from proxy.observe.telemetry import Telemetry

    receivers: list[ScoreReceiver] = []
    if config.langfuse is not None or config.phoenix is not None:
        from proxy.optional.scores.scores import score_keepers

        receivers += score_keepers(config)
    return Telemetry(config, metrics, receivers)


def courier_of(config: Config, desk_url: str | None) -> Courier:
    """Return the sender of webhooks, with chat messages if a webhook needs them."""
    from proxy.desk.webhooks import Courier

    if not any(each.is_chat or each.reviewer is not None for each in config.webhooks):
        return Courier(config, desk_url)
    from proxy.optional.chat.chat import Chat

    return Courier(config, desk_url, Chat(config.admin, desk_url))


def link_pages_of(config: Config) -> LinkPagesOf:
    """Return the function that makes the pages of links in chat messages."""

    def routes(desk: Desk, on_link: Callable[[str], None]) -> list[Any]:
        from proxy.optional.chat.link_pages import LinkPages
        from proxy.optional.chat.links import Signer

        return LinkPages(desk, Signer(config.admin.link_keys), config.webhooks, on_link).routes()

    return routes


def check_guardrails(config: Config) -> None:
    """Refuse a listener for other gateways that would not be safe; raises StartupError."""
    if config.guardrails is not None:
        from proxy.optional.guardrails import listening

        listening.check_guardrails(config.guardrails)


def bind_guardrails(config: Config) -> tuple[socket.socket | None, list[str]]:
    """Open the socket for other gateways, if one is configured, and return it with its greeting.

    Raises StartupError where the port is taken, the address is unusable, or the token is too short.
    """
    if config.guardrails is None:
        return None, []
    from proxy.optional.guardrails import listening

    opened = listening.bind_guardrails(config.guardrails)
    return opened, listening.greeting_of(opened)


def guardrails_server(
    opened: socket.socket, config: Config, holder: Generations, metrics: Metrics
) -> GuardrailsServer:
    """Return the server of an open socket for other gateways."""
    from proxy.optional.guardrails.listening import GuardrailsServer

    return GuardrailsServer(opened, config, holder, metrics)


async def refuse_websocket(error: ProxyError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the handshake of a WebSocket with an error."""
    from proxy.optional.websockets.websockets import refuse

    await refuse(error, scope, receive, send)
