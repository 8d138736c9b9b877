"""The scoring server: one calibrator for several processes, over HTTP.

    pinocchio serve --scorer-only --config proxy.yaml

`proxy/scoring/engines/scorer_protocol.py` defines its messages. It reads `calibrator`,
`scorer.token` and `limits.max_body` of the configuration and has the proxy's own queue, deadline
and HTTP server; it has no upstream, no policy and no store. Its clients apply a deployment's
recalibration.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import structlog
import uvicorn

from calibrator import (
    CalibratorError,
    Item,
    NotScorableError,
    QueueFullError,
    Score,
    Scorer,
    Ticket,
)
from proxy.config.sections import NO_CALIBRATOR, Config, find_config
from proxy.config.settings.engines import ScoringServer
from proxy.config.setup import load_store_config
from proxy.errors import (
    BodyTooLargeError,
    ExitStatus,
    InvalidKeyError,
    NotFoundError,
    ProxyError,
    RateLimitedError,
    StartupError,
)
from proxy.gate.host_check import check_local, is_loopback
from proxy.http.listener.endpoint import Endpoint, send_reply
from proxy.http.listener.logs import configure_logs
from proxy.http.listener.sockets import bind, server_settings, settle_memory, url_of
from proxy.http.wire.headers import Headers, header
from proxy.http.wire.http import CLIENT, JSON, Receive, Reply, Request, Scope, Send, error_reply
from proxy.scoring.engines.scorer_protocol import (
    DEADLINE,
    LOADING,
    SCORE_PATH,
    SCORER_PATH,
    Failure,
    read_items,
    scores_body,
)
from proxy.scoring.loader import check_calibrator, scorer_loader
from proxy.scoring.scoring import Scoring, describe_error

log = structlog.get_logger(__name__)

BUSY_S = 1.0  # seconds that a client should wait when the queue is full
PROBES = ("/livez", "/readyz")  # paths for operators, without a token
IMAGE = Failure("image", "the question has an image; this calibrator reads text only")


class NotReadyError(ProxyError):
    """The calibrator is loading, or failed to load."""

    status, type, code = 503, "server_error", LOADING


class ScoresItems(Protocol):
    """A queue in front of the calibrator: `Scoring`, or a replacement for it."""

    @property
    def name(self) -> str | None: ...
    @property
    def reads_images(self) -> bool: ...
    @property
    def reads_tool_use(self) -> bool: ...
    @property
    def opinion(self) -> str: ...
    @property
    def is_ready(self) -> bool: ...
    def start(self) -> None: ...
    def close(self) -> None: ...
    async def tickets(self, items: Sequence[Item]) -> list[Ticket]: ...


class ScoringApp:
    """The ASGI application of the scoring server."""

    def __init__(self, config: Config, scoring: ScoresItems, *, is_open: bool) -> None:
        self._scoring = scoring
        self._token = config.scorer.token.get_secret_value()
        self._is_open = is_open and not self._token
        self._max_items = config.calibrator.max_queue
        self._endpoints = {
            route: Endpoint(handler, max_body=config.limits.max_body)
            for route, handler in {
                ("GET", "/livez"): self._live,
                ("GET", "/readyz"): self._ready,
                ("GET", SCORER_PATH): self._scorer,
                ("POST", SCORE_PATH): self._score,
            }.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an ASGI request; refusals become JSON errors, and WebSockets are closed."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        try:
            self._admit(scope["path"], scope["headers"])
            endpoint = self._endpoint(scope["method"], scope["path"])
        except ProxyError as error:
            await send_reply(error_reply(error), send)
            return
        if CLIENT in scope:
            scope[CLIENT].note_known(has_key=True)
        await endpoint(scope, receive, send)

    def _endpoint(self, method: str, path: str) -> Endpoint:
        """Return the handler of a method and path; raises NotFoundError for an unknown pair."""
        if (endpoint := self._endpoints.get((method, path))) is None:
            text = f"a scoring server has nothing at {method} {path}"
            raise NotFoundError(text, code="unknown_url")
        return endpoint

    def _admit(self, path: str, headers: Headers) -> None:
        """Check the host name and the token of a request.

        Raises InvalidKeyError or HostNotAllowedError; probes such as `/readyz` need no token.
        """
        if self._is_open:
            check_local(headers, "while the scoring server has no token")
        if not self._token or path in PROBES:
            return
        presented = (header(headers, b"authorization") or "").removeprefix("Bearer ")
        if not hmac.compare_digest(presented.encode(), self._token.encode()):
            raise InvalidKeyError("the request has no valid token of this scoring server")

    async def _live(self, _: Request) -> Reply:
        return Reply(200, JSON, b'{"status":"ok"}')

    async def _ready(self, _: Request) -> Reply:
        """Return `{"status": .., "calibrator": ..}`, with status code 503 while it is loading."""
        is_ready = self._scoring.is_ready
        facts = {"status": "ok" if is_ready else "loading", "calibrator": self._scoring.name}
        return Reply(200 if is_ready else 503, JSON, json.dumps(facts).encode())

    async def _scorer(self, _: Request) -> Reply:
        """Return the calibrator's name and what it reads, as JSON.

        Raises NotReadyError while it is loading.
        """
        facts = {
            "calibrator": self._name(),
            "reads_images": self._scoring.reads_images,
            "reads_tool_use": self._scoring.reads_tool_use,
            "reads_messages": True,
            "reads_facts": True,
        }
        if opinion := self._scoring.opinion:
            facts["opinion"] = opinion
        return Reply(200, JSON, json.dumps(facts).encode())

    def _name(self) -> str:
        """Return the calibrator's name; raises NotReadyError while it is loading."""
        if (name := self._scoring.name) is None:
            raise NotReadyError("the calibrator is not loaded; /readyz tells when, and the log why")
        return name

    async def _score(self, request: Request) -> Reply:
        """Return the scores of a request's items as JSON, and log their number and time.

        Raises NotReadyError, BadRequestError for items that cannot be read, and BodyTooLargeError
        for more than `calibrator.max_queue`.
        """
        name, items = self._name(), read_items(request.body)
        if len(items) > self._max_items:
            text = f"{len(items)} items, {self._max_items} are allowed (calibrator.max_queue)"
            raise BodyTooLargeError(text)
        results = await self._results(items)
        log.info(
            "scored",
            items=len(items),
            failed=sum(isinstance(result, Failure) for result in results),
            ms=round((time.perf_counter() - request.started) * 1_000, 1),
        )
        return Reply(200, JSON, scores_body(name, results))

    async def _results(self, items: Sequence[Item]) -> list[Score | Failure]:
        """Return one result for each item; one with images fails if the calibrator reads only text.

        Raises RateLimitedError where the queue is full, and NotReadyError where there is no scorer.
        """
        is_scorable = [self._scoring.reads_images or not item.images for item in items]
        try:
            scorable = [item for item, is_it in zip(items, is_scorable, strict=True) if is_it]
            tickets = iter(await self._scoring.tickets(scorable))
        except QueueFullError as error:
            log.warning("queue_full", items=len(items))
            raise RateLimitedError(f"the queue is full: {error}", BUSY_S) from error
        except CalibratorError as error:
            raise NotReadyError(str(error)) from error
        return [_result(next(tickets)) if is_it else IMAGE for is_it in is_scorable]

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Load the calibrator when the server starts, and close it when the server ends."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._scoring.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await asyncio.to_thread(self._scoring.close)
                await send({"type": "lifespan.shutdown.complete"})
                return


def _result(ticket: Ticket) -> Score | Failure:
    """Return the score of a finished item, or the failure that the client gets instead.

    Messages of unknown errors are left out, because they may quote the item's text.
    """
    if not ticket.is_done:
        return Failure(DEADLINE, "time was up")
    error = ticket.error
    if isinstance(error, NotScorableError):
        return Failure(error.reason, str(error))
    if error is not None:
        log.error("score_failed", **describe_error(error))
        return Failure("scorer_failed", f"the calibrator failed ({type(error).__name__})")
    if (score := ticket.score) is None:
        return Failure("scorer_closed", "the scoring server is stopping")
    if not (0 <= score.score <= 1 and 0 <= score.confidence <= 1):  # also true for NaN
        log.error("score_failed", error=f"{score} is no probability")
        return Failure("scorer_failed", "the calibrator gave no probability")
    return score


def check_scoring_server(config: Config, host: str) -> None:
    """Raise StartupError for a configuration that could not work or would be unsafe.

    For example no token on a host beyond loopback, no calibrator, or settings that only a proxy
    has.
    """
    calibrator = config.calibrator
    if not is_loopback(host) and not config.scorer.token.get_secret_value():
        raise StartupError(
            ExitStatus.UNSAFE,
            f"listening on {host} without a token, the scoring server would score for everyone who "
            "reaches this port; set scorer.token in proxy.yaml (or PINOCCHIO_SCORER_TOKEN), or "
            "listen on 127.0.0.1",
        )
    problem = None
    if calibrator.checkpoint == NO_CALIBRATOR:
        problem = "'checkpoint: none' leaves a scoring server nothing to score with"
    elif isinstance(calibrator.engine, ScoringServer):
        problem = "a scoring server that asks another one is of no use; remove calibrator.engine"
    elif calibrator.recalibration:
        problem = (
            "calibrator.recalibration is for the proxies that ask a scoring server; remove it here"
        )
    elif calibrator.facts is not None:
        problem = "calibrator.facts is for the proxies that ask a scoring server; remove it here"
    elif calibrator.stand_in is not None:
        problem = "calibrator.stand_in is for the proxies that ask a scoring server; remove it here"
    if problem:
        raise StartupError(ExitStatus.UNUSABLE_INPUT, problem)


def serve_scorer(path: Path | None, host: str, port: int, say: Callable[[str], None]) -> None:
    """Run a scoring server until it is stopped; raises StartupError before it listens."""
    config = load_store_config(path)
    check_scoring_server(config, host)
    check_calibrator(config.calibrator, find_config(path))
    configure_logs()
    listening = bind(host, port)
    app = scoring_app(config, is_open=is_loopback(host), on_ready=settle_memory)
    url = url_of(*listening.getsockname()[:2]).removesuffix("/v1")
    access = "with its token" if config.scorer.token.get_secret_value() else "for this machine"
    say(f"Scoring server listens on {url}")
    say(f"  calibrator {config.calibrator.summary} (loading), {access}")
    uvicorn.Server(server_settings(app, config.limits)).run(sockets=[listening])


def scoring_app(
    config: Config,
    *,
    load: Callable[[], Scorer] | None = None,
    is_open: bool = True,
    on_ready: Callable[[], None] = lambda: None,
) -> ScoringApp:
    """Build the ASGI application of a scoring server.

    `load` replaces the configured calibrator; `is_open` says that only this machine can reach it;
    `on_ready` is called when the calibrator is loaded or has failed.
    """
    scoring = Scoring(
        load or scorer_loader(config.calibrator),
        timeout_s=config.calibrator.timeout_s,
        max_queue=config.calibrator.max_queue,
        on_ready=on_ready,
    )
    return ScoringApp(config, scoring, is_open=is_open)
