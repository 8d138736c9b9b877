"""The application: which path goes to which handler, and what lives as long as the proxy does."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from calibrator import Scorer, load_scorer
from policies import Policy, load_policy
from proxy.asgi import Endpoint, error_reply, send_reply
from proxy.chat import ChatCompletions
from proxy.config import CalibratorConfig, Config
from proxy.errors import NotFoundError
from proxy.host_check import LoopbackHostOnly
from proxy.results import Results
from proxy.routing import Router
from proxy.scoring import Scoring
from proxy.store import Store
from proxy.surfaces import Surfaces

NO_CALIBRATOR = "none"


def scorer_loader(config: CalibratorConfig) -> Callable[[], Scorer] | None:
    """How the configured calibrator is loaded, later and on another thread."""
    if config.checkpoint == NO_CALIBRATOR:
        return None
    threads = config.threads or min(4, max(1, (os.cpu_count() or 1) // 2))
    return partial(load_scorer, config.checkpoint, config.device, threads=threads)


def create_app(
    config: Config | None = None,
    policy: Policy | None = None,
    *,
    load: Callable[[], Scorer] | None = None,
    on_ready: Callable[[], None] = lambda: None,
    is_open: bool = True,
) -> FastAPI:
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
    router, results = Router(config), Results()
    store = Store(config.store, config.limits.max_held)
    chat = ChatCompletions(config, policy, router, scoring, store, results)
    surfaces = Surfaces(router, store, results, config.attach)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        scoring.start()
        await store.open()
        yield
        scoring.close()
        await router.aclose()
        await store.aclose()

    app = FastAPI(
        title="Pinocchio Proxy", lifespan=lifespan, openapi_url=None, redirect_slashes=False
    )
    endpoint = partial(Endpoint, max_body=config.limits.max_body)
    app.router.routes += [
        Route("/v1/chat/completions", endpoint(chat.handle), methods=["POST"]),
        Route("/v1/chat/completions/", endpoint(chat.handle), methods=["POST"]),
        Route("/v1/chat/completions/{id}", endpoint(surfaces.completion), methods=["GET"]),
        Route("/v1/models", endpoint(surfaces.models), methods=["GET"]),
        Route("/v1/models/{id:path}", endpoint(surfaces.model), methods=["GET"]),
        Route("/v1/{path:path}", endpoint(surfaces.relay)),
        Route("/pinocchio/v1/results/{id}", endpoint(surfaces.result), methods=["GET"]),
    ]
    _add_health(app, scoring)
    app.router.default = _not_found
    if is_open:
        app.add_middleware(LoopbackHostOnly)
    return app


def _add_health(app: FastAPI, scoring: Scoring) -> None:
    @app.get("/livez")
    async def live() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @app.get("/readyz")
    async def ready() -> JSONResponse:
        facts = {"status": "ok" if scoring.is_ready else "loading", "calibrator": scoring.name}
        return JSONResponse(facts, status_code=200 if scoring.is_ready else 503)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1000})
        return
    error = NotFoundError(
        f"there is nothing at {scope['path']}; the API is under /v1/", code="unknown_url"
    )
    await send_reply(error_reply(error), send)
