"""The application: which path goes to which handler, and what lives as long as the proxy does.

Pure ASGI: a relayed request passes no framework. FastAPI serves what is the proxy's own, under
`/pinocchio/v1/`, and is imported by the first request for it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from functools import partial

from calibrator import Scorer, load_scorer
from policies import Policy, load_policy
from proxy.asgi import (
    Endpoint,
    Receive,
    Reply,
    Request,
    Scope,
    Send,
    error_reply,
    send_reply,
    sender,
)
from proxy.chat import Completions
from proxy.config import NO_CALIBRATOR, CalibratorConfig, Config
from proxy.errors import HostNotAllowedError, NotFoundError
from proxy.fetched_responses import fetch_response, fetched_id
from proxy.formats import FORMATS, MESSAGES
from proxy.host_check import check_host
from proxy.records import Records
from proxy.results import Results
from proxy.routing import Router
from proxy.scoring import Scoring
from proxy.store import Store
from proxy.surfaces import JSON, Surfaces

ASGIApplication = Callable[[Scope, Receive, Send], Awaitable[None]]


def scorer_loader(config: CalibratorConfig) -> Callable[[], Scorer] | None:
    """How the configured calibrator is loaded, later and on another thread."""
    if config.checkpoint == NO_CALIBRATOR:
        return None
    threads = config.threads or min(4, max(1, (os.cpu_count() or 1) // 2))
    return partial(
        load_scorer,
        config.checkpoint,
        config.device,
        threads=threads,
        recalibration=config.recalibration,
    )


def create_app(
    config: Config | None = None,
    policy: Policy | None = None,
    *,
    load: Callable[[], Scorer] | None = None,
    on_ready: Callable[[], None] = lambda: None,
    is_open: bool = True,
) -> App:
    """One proxy. `load` replaces the configured calibrator; `is_open` turns the Host check on.

    `on_ready` is called once, from another thread, when the calibrator is there.
    Nothing is opened before the application starts up.
    """
    config = config or Config()
    policy = policy or load_policy(config.policies)
    scoring = Scoring(
        load or scorer_loader(config.calibrator),
        timeout_s=config.calibrator.timeout_s,
        max_queue=config.calibrator.max_queue,
        on_ready=on_ready,
    )
    keep_days = config.records.keep_days
    records = Records(config.store, keep_days) if keep_days else None
    store = Store(config.store, config.limits.max_held)
    return App(config, policy, scoring, store, records, is_open=is_open)


class App:
    """The ASGI application; its parts live from start-up to shutdown."""

    def __init__(
        self,
        config: Config,
        policy: Policy,
        scoring: Scoring,
        store: Store,
        records: Records | None,
        *,
        is_open: bool,
    ) -> None:
        self._config = config
        self._scoring = scoring
        self._store = store
        self._records = records
        self._is_open = is_open
        self._router = Router(config)
        self._results = Results()
        self._own: ASGIApplication | None = None
        self._realtime: ASGIApplication | None = None
        completions = Completions(
            config, policy, self._router, scoring, store, self._results, records
        )
        self._holding = completions.holding
        surfaces = Surfaces(self._router, store, config.attach, records, completions.conversations)
        endpoint = partial(Endpoint, max_body=config.limits.max_body)
        self._exact: dict[tuple[str, str], ASGIApplication] = {
            ("GET", "/v1/models"): endpoint(surfaces.models),
            ("GET", "/livez"): endpoint(self._live),
            ("GET", "/readyz"): endpoint(self._ready),
        }
        for format in FORMATS:
            scored = endpoint(partial(completions.handle, format), error_body=format.error_body)
            self._exact["POST", f"/v1{format.path}"] = scored
            self._exact["POST", f"/v1{format.path}/"] = scored
        self._fetches = tuple({f"/v1{format.fetch_path}/" for format in FORMATS})
        self._held = endpoint(surfaces.completion)
        self._response = endpoint(partial(fetch_response, completions))
        self._model = endpoint(surfaces.model)
        self._relay = endpoint(surfaces.relay)
        in_anthropics_words = partial(endpoint, error_body=MESSAGES.error_body)
        self._held_messages = in_anthropics_words(surfaces.completion)
        self._relay_messages = in_anthropics_words(surfaces.relay)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            if self._realtime is None:
                self._realtime = self._load_realtime()
            await self._realtime(scope, receive, send)
            return
        if self._is_open:
            try:
                check_host(scope["headers"])
            except HostNotAllowedError as error:
                await send_reply(error_reply(error), sender(scope, send))
                return
        handler = self._exact.get((scope["method"], scope["path"])) or await self._handler(scope)
        await handler(scope, receive, send)

    async def _handler(self, scope: Scope) -> ASGIApplication:
        """Whoever answers what is no exact path of ours."""
        method, path = scope["method"], scope["path"]
        is_anthropics = path.startswith(f"/v1{MESSAGES.path}")
        if fetched_id(method, path):
            return self._response
        if method == "GET" and path.startswith(self._fetches) and path.count("/") <= 4:
            return self._held_messages if is_anthropics else self._held
        if method == "GET" and path.startswith("/v1/models/"):
            return self._model
        if path.startswith("/v1/"):
            return self._relay_messages if is_anthropics else self._relay
        if path.startswith("/pinocchio/"):
            if self._own is None:
                self._own = await asyncio.to_thread(self._load_own)
            return self._own
        return _not_found

    def _load_own(self) -> ASGIApplication:
        from proxy.own_api import create_api

        return create_api(self._results)

    def _load_realtime(self) -> ASGIApplication:
        from proxy.realtime import Realtime

        return Realtime(self._config, self._router, self._records, is_open=self._is_open)

    async def _live(self, _: Request) -> Reply:
        return Reply(200, JSON, b'{"status":"ok"}')

    async def _ready(self, _: Request) -> Reply:
        is_ready = self._scoring.is_ready
        facts = {"status": "ok" if is_ready else "loading", "calibrator": self._scoring.name}
        return Reply(200 if is_ready else 503, JSON, json.dumps(facts).encode())

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._start()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _start(self) -> None:
        self._scoring.start()
        await self._store.open()
        if self._records is not None:
            self._records.open()

    async def _stop(self) -> None:
        self._scoring.close()
        await self._router.aclose()
        await self._holding.aclose()
        await self._store.aclose()
        if self._records is not None:
            await asyncio.to_thread(self._records.close)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    error = NotFoundError(
        f"there is nothing at {scope['path']}; the API is under /v1/", code="unknown_url"
    )
    await send_reply(error_reply(error), sender(scope, send))
