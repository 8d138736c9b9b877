"""The application: from a connection to the configuration in force, and from there to a handler.

It is pure ASGI: a relayed request passes no framework. FastAPI serves the proxy's own API under
`/pinocchio/v1/`, and is imported by the first request for it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog

from calibrator import Scorer
from proxy.config.sections import CalibratorConfig
from proxy.config.setup import Setup
from proxy.desk.figures import figures_of
from proxy.desk.listening import AdminSocket, DeskServer
from proxy.errors import HostNotAllowedError, NotFoundError, ProxyError
from proxy.exchange.exchange import Exchange
from proxy.gate.key_hash import read_credentials
from proxy.gate.live_work import GONE
from proxy.gate.rate_limits import Buckets, TakesRequests
from proxy.gate.secret_keys import mask_keys
from proxy.generations.generation import Generation, Parts
from proxy.generations.reloading import Generations, GenerationState
from proxy.holds.conversations import Conversations
from proxy.holds.stream_results import Results
from proxy.holds.waiting import Verdicts
from proxy.http.listener.endpoint import Endpoint, send_reply
from proxy.http.listener.http_cycle import KnownHead
from proxy.http.wire.caller import CALLER
from proxy.http.wire.http import (
    CLIENT,
    JSON,
    KNOWN,
    METRICS,
    ASGIApplication,
    Client,
    Counts,
    Receive,
    Reply,
    Request,
    Scope,
    Send,
    error_reply,
    request_of,
)
from proxy.http.workers.peers import Peers
from proxy.learning.drift import DriftWatch
from proxy.learning.traffic import Traffic
from proxy.observe.metrics import Metrics
from proxy.optional.parts import (
    courier_of,
    guardrails_server,
    link_pages_of,
    refuse_websocket,
    telemetry_of,
)
from proxy.routes import azure
from proxy.routes.admission import ALIVE, READY, Guest
from proxy.routes.routes import end_with_key, refuse
from proxy.scoring.images import Images
from proxy.scoring.loader import (
    NOTHING_LOADED,
    PreloadedCalibrators,
)
from proxy.scoring.scoring import Scoring
from proxy.store.database.database import LazyEngine
from proxy.store.database.notifications import DECIDED, KEYS, Notifications
from proxy.store.database.owned_ids import OwnedIds
from proxy.store.record.reader import OwnRecord
from proxy.store.record.writer import Records
from proxy.store.retention import Retention
from proxy.store.reviews.audit_writer import AuditWriter
from proxy.store.reviews.held_replies import Store
from proxy.store.verdicts.feedback import FeedbackStore

if TYPE_CHECKING:
    from proxy.desk.webhooks import Courier
    from proxy.optional.guardrails.listening import GuardrailsServer

log = structlog.get_logger()

POLICY_VIOLATION = 1008  # of RFC 6455


def create_app_of(
    setup: Setup,
    *,
    load: Callable[[], Scorer] | None = None,
    preloaded: PreloadedCalibrators = NOTHING_LOADED,
    reload: Callable[[], Setup] | None = None,
    on_ready: Callable[[], None] = lambda: None,
    is_open: bool = True,
    admin: AdminSocket | None = None,
    guardrails: socket.socket | None = None,
    peers: Peers | None = None,
    buckets: TakesRequests | None = None,
) -> App:
    """Create a proxy from a setup; nothing is opened before it starts up.

    `load` replaces the configured calibrator. `on_ready` is called once, from another thread, when
    the calibrator is loaded. `is_open` turns the Host check on, as long as no keys are required.
    `admin` serves the review desk, `guardrails` other gateways.

    `reload` reads the setup again when its files have changed, on another thread, and raises
    StartupError for one that cannot be used. One of several workers has `peers`, and shares
    `buckets` and `preloaded` calibrators with them.
    """
    state = GenerationState(setup) if peers is None else peers.standing
    config = state.setup.config
    scoring = Scoring(
        load or preloaded.loader(config.calibrator),
        timeout_s=config.calibrator.timeout_s,
        max_queue=config.calibrator.max_queue,
        images=Images(config.calibrator.images),
        on_ready=on_ready,
        rated_like=config.calibrator.rated_like,
    )
    stand_in = _stand_in_of(config.calibrator, preloaded)
    ask = None if peers is None else partial(peers.find, "owners")
    records = Records(config.store) if config.records.keep_days else None
    store = Store(config.store, config.limits.max_held)
    traffic, verdicts = Traffic(config.store), Verdicts(store)
    parts = Parts(
        scoring,
        stand_in,
        store,
        records,
        Results(peers=peers),
        verdicts,
        Conversations(owned=OwnedIds(config.store, ask), peers=peers),
        buckets or Buckets(),
        traffic,
        AuditWriter(config.store),
        metrics := Metrics(config.calibrator.engine.kind),
        telemetry_of(config.telemetry, metrics),
        is_open,
        peers,
    )
    return App(state, parts, reload, admin, guardrails)


def _stand_in_of(config: CalibratorConfig, preloaded: PreloadedCalibrators) -> Scoring | None:
    """Return the stand-in's scoring, or None where none is configured."""
    if config.stand_in is None:
        return None
    return Scoring(
        preloaded.loader_of_stand_in(config),
        timeout_s=config.stand_in.timeout_s,
        max_queue=config.max_queue,
        images=Images(config.images),
        rated_like=config.rated_like,
    )


class App:
    """The ASGI application; its parts live from start-up to shutdown."""

    def __init__(
        self,
        state: GenerationState,
        parts: Parts,
        reload: Callable[[], Setup] | None,
        admin: AdminSocket | None = None,
        guardrails: socket.socket | None = None,
    ) -> None:
        self._parts = parts
        config, peers = state.setup.config, parts.peers
        self._reloading = Generations(state, parts, reload)
        self._leads = peers is None or peers.leads  # the leader does the work that is done once
        self._desk: DeskServer | None = None
        self._admin_url = config.admin.url or (admin.url if admin else None)
        if admin is not None and self._leads:
            links = link_pages_of(config)
            self._desk = DeskServer(admin, config, parts, self._reloading, self.drain, links)
        elif admin is not None:
            admin.listening.close()
        self._guardrails: GuardrailsServer | None = None
        if guardrails is not None and self._leads:
            metrics = parts.metrics
            self._guardrails = guardrails_server(guardrails, config, self._reloading, metrics)
        elif guardrails is not None:
            guardrails.close()
        self.is_draining = state.is_draining
        self._courier: Courier | None = None
        self._telemetry = parts.telemetry
        self._counts: Counts = parts.telemetry or parts.metrics
        store, records = config.store, config.records
        has_drift = parts.records is not None and self._leads
        self._drift = DriftWatch(store) if has_drift else None
        self._retention = Retention(store, records.keep_days, records.keep_content_days)
        self._notifications = Notifications(store, self._on_notification, self._note_notified)
        self._own: ASGIApplication | None = None
        self._feedback_engine = LazyEngine(store)
        probe = partial(Endpoint, max_body=config.limits.max_body)
        live, ready = probe(self._live), probe(self._ready)
        self._probes = {**dict.fromkeys(ALIVE, live), **dict.fromkeys(READY, ready)}
        if peers is not None:
            self._join(peers)

    def _join(self, peers: Peers) -> None:
        """Register handlers for the messages of other workers, which run on another thread."""
        parts = self._parts
        peers.on("result", lambda key: parts.results.find_result(*key))
        peers.on("response", lambda key: parts.conversations.answer_for(*key))
        peers.on("approval", parts.conversations.approvals.find_call)
        peers.on("owners", parts.conversations.owned.cached_owners)
        peers.on("figures", lambda _: figures_of(parts, self._reloading))
        peers.on("decided", lambda id: self._loop.call_soon_threadsafe(parts.verdicts.wake, id))
        peers.on("notification", lambda event: self._on_notification(*event))
        peers.on("notified", self._note_notified)
        peers.on("drain", lambda _: self._begin_to_drain())
        self._reloading.join(peers)

    def reload(self) -> None:
        """Ask for a reload of the configuration; signal handlers may call this."""
        self._reloading.ask()

    def drain(self) -> None:
        """Report at `/readyz` from now on that the proxy will end; requests are still answered."""
        if self._parts.peers is not None and not self.is_draining:
            self._parts.peers.tell("drain")  # the supervisor sends it on to all workers
        self._begin_to_drain()

    def _begin_to_drain(self) -> None:
        """Report `draining` at `/readyz` from now on, and log it once."""
        if not self.is_draining:
            self.is_draining = True
            log.info("draining", in_flight=self._reloading.in_flight)

    def end_waits(self) -> None:
        """End all waits for reviewers; clients are told where they can fetch their reply."""
        self._parts.verdicts.end_waits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an ASGI connection under the current configuration: HTTP, WebSocket or lifespan."""
        kind = scope["type"]
        if kind == "lifespan":
            await self._lifespan(receive, send)
            return
        if self._telemetry is not None:
            self._telemetry.enter(scope["headers"])
        if scope["path"].startswith(azure.PREFIX):
            azure.rewrite(scope)
        generation = self._reloading.current  # used for this request to its end
        if kind == "websocket":
            work: Awaitable[None] = self._websocket(generation, scope, receive, send)
        else:
            client: Client | None = scope.get(CLIENT)
            work = self._handler(generation, scope)(scope, receive, send)
            if client is not None:
                work = self._ending_with(scope[CALLER].id, work, client)
        await self._reloading.serve(generation, work)

    def _again(
        self, guest: Guest, endpoint: Endpoint, request: Request, client: Client
    ) -> Awaitable[None] | None:
        """Answer a request whose head was admitted before, without reading that head again.

        Returns None, with nothing done, where it has to be admitted like the first one: the key has
        ended, a limit is reached, or the configuration has changed.
        """
        generation = self._reloading.current
        try:
            if not generation.admission.enter_again(guest):
                return None
        except ProxyError:  # the usual admission answers with the reason
            return None
        if self._telemetry is not None:
            self._telemetry.enter(request.headers)
        work = endpoint.answer(request.again(), client)
        return self._reloading.serve(generation, self._ending_with(guest.caller.id, work, client))

    def _ending_with(
        self, key: str | None, work: Awaitable[None], client: Client
    ) -> Awaitable[None]:
        """Return work that ends early if the client key with the id `key` ends.

        With None it is the work itself.
        """
        if key is None:
            return work
        return self._reloading.live.run(key, work, partial(end_with_key, key, client))

    def _handler(self, generation: Generation, scope: Scope) -> ASGIApplication:
        """Admit a request and return the application that answers it; a refusal is one too.

        A head that may be repeated learns how to answer the next request with it.
        """
        admission = generation.admission
        try:
            scope[METRICS] = self._counts
            guest = admission.enter(scope)
        except ProxyError as error:
            self._note_refusal(scope, error)
            return partial(refuse, error.with_traceback(None))  # frames would keep the request
        has_key = guest.key is not None
        if CLIENT in scope and (has_key or not admission.needs_keys):
            scope[CLIENT].note_known(has_key)
        method, path, routes = scope["method"], scope["path"], guest.routes
        handler = routes.exact.get((method, path)) or routes.other(scope)
        handler = azure.naming(scope, handler or self._other(method, path))
        known: KnownHead | None = scope.get(KNOWN)
        if known is not None and isinstance(handler, Endpoint):
            request = request_of(scope)
            read_credentials(request)  # read once, for all further requests with this head
            request.keep()
            known.again = partial(self._again, guest, handler, request)
        return handler

    async def _websocket(
        self, generation: Generation, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Admit a WebSocket and serve it to its end; it is closed with 1008 when its key ends."""
        scope[METRICS] = self._counts
        try:
            generation.admission.enter(scope).routes.check_websocket(scope)
        except ProxyError as error:
            self._note_refusal(scope, error)
            await refuse_websocket(error, scope, receive, send)
            return
        work = generation.realtime()(scope, receive, send)
        if (key := scope[CALLER].id) is None:
            await work
            return

        async def hang_up() -> None:
            with suppress(OSError, RuntimeError):  # the client has left, or was refused
                await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": GONE})

        await self._reloading.live.run(key, work, hang_up)

    def _note_refusal(self, scope: Scope, error: ProxyError) -> None:
        """Log a request that is refused, and record it where its key is known."""
        if isinstance(error, HostNotAllowedError):
            return  # a page in a browser may send any number of such requests
        request = request_of({"method": "GET", **scope})
        request.path = mask_keys(request.path)
        is_known = scope[CALLER].id is not None
        exchange = Exchange(request, self._parts.records if is_known else None)
        exchange.close(error.status, error.machine_code)

    def _other(self, method: str, path: str) -> ASGIApplication:
        """Return the application for a path outside `/v1/`: a probe, the own API, or 404."""
        if method == "GET" and path in self._probes:
            return self._probes[path]
        return self._own_api if path.startswith("/pinocchio/") else self._not_found

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an unknown path with the places of the API, the state and the desk."""
        places = "the API is under /v1/, the proxy's state is at /readyz"
        if self._admin_url and self._parts.is_loopback:
            places += f", the review desk is {self._admin_url}"
        error = NotFoundError(f"there is nothing at {scope['path']}; {places}", code="unknown_url")
        await send_reply(error_reply(error), send)

    async def _own_api(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the proxy's own API, `/pinocchio/v1/`; FastAPI is imported at the first request."""
        if self._own is None:
            self._own = await asyncio.to_thread(self._load_own)
        await self._own(scope, receive, send)

    def _load_own(self) -> ASGIApplication:
        """Import and create the proxy's own API; call it on a thread, since it takes a while."""
        from proxy.holds.interrupted_calls import InterruptedCalls
        from proxy.routes.results_api import create_api

        parts, engine = self._parts, self._feedback_engine.get
        record = None if parts.records is None else OwnRecord(engine)
        calls = InterruptedCalls(parts.store, parts.verdicts, record, parts.metrics)
        return create_api(parts.results, FeedbackStore(engine), calls)

    async def _live(self, _: Request) -> Reply:
        """Answer `/livez`: the process serves requests."""
        return Reply(200, JSON, b'{"status":"ok"}')

    async def _ready(self, _: Request) -> Reply:
        """Answer `/readyz`: 200 once the calibrator is loaded, 503 while loading or draining.

        The body also names calibrator, generation and configuration.
        """
        scoring, current = self._parts.scoring, self._reloading.current
        refusal, peers = self._reloading.refusal, self._parts.peers
        is_ready = scoring.is_ready if peers is None else peers.board.is_ready
        status = "draining" if self.is_draining else "ok" if is_ready else "loading"
        facts: dict[str, object] = {
            "status": status,
            "calibrator": current.scores.name,
            "generation": current.number,
            "configuration_digest": current.digest,
            "configuration": "current" if refusal is None else "refused",
        }
        if peers is not None:
            facts["worker"] = peers.index
            facts["workers"] = {"wanted": peers.board.wanted, "running": peers.board.worker_count}
        if refusal is not None:  # without the reasons, since anybody may read this
            facts["configuration_refused_at"] = round(refusal.at, 3)
        return Reply(200 if status == "ok" else 503, JSON, json.dumps(facts).encode())

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Start and stop the parts when the server says so; a failed start is reported to it."""
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
        """Start all parts: scoring, store, records, desk and background work."""
        self._loop = asyncio.get_running_loop()
        self._parts.scoring.start()
        if self._parts.stand_in is not None:
            self._parts.stand_in.start()
        await self._parts.store.open()
        if self._parts.records is not None:
            self._parts.records.open()
        await self._parts.traffic.open(
            self._reloading.current.setup.book, self._reloading.current.router.route_of
        )
        await self._reloading.start()
        if self._leads:
            self._retention.start()
        if self._telemetry is not None:
            self._telemetry.start()
        if self._desk is not None:
            await self._desk.start()
        if self._guardrails is not None:
            self._guardrails.start()
        if self._drift is not None:
            self._drift.start()
        config = self._reloading.current.setup.config
        if self._leads:
            self._notifications.start()
        if config.webhooks and self._leads:
            self._courier = courier_of(config, self._admin_url)
            self._courier.start()

    def _on_notification(self, kind: str, id: str) -> None:
        """Handle the store's notification that keys or a decision changed; runs on a thread."""
        if self._parts.peers is not None and self._leads:
            self._parts.peers.tell_others("notification", (kind, id))
        if kind == KEYS:
            self._reloading.look_at_keys()
        elif kind == DECIDED:
            self._loop.call_soon_threadsafe(self._parts.verdicts.wake, id)

    def _note_notified(self, is_notified: bool) -> None:
        """Note whether notifications of the store arrive, so that it is polled less often."""
        if self._parts.peers is not None and self._leads:
            self._parts.peers.tell_others("notified", is_notified)
        self._reloading.is_notified = self._parts.verdicts.is_notified = is_notified

    async def _stop(self) -> None:
        """Stop all parts in the order in which they depend on each other."""
        if self._guardrails is not None:
            await self._guardrails.stop()
        if self._desk is not None:
            await self._desk.stop()
        if self._courier is not None:
            await self._courier.aclose()
        self._parts.scoring.close()
        if self._parts.stand_in is not None:
            self._parts.stand_in.close()
        await asyncio.to_thread(self._notifications.close)
        await self._reloading.stop()
        if self._drift is not None:
            await asyncio.to_thread(self._drift.stop)
        if self._telemetry is not None:
            await asyncio.to_thread(self._telemetry.close)
        await self._parts.verdicts.aclose()
        await self._parts.traffic.aclose()
        await self._parts.store.aclose()
        await asyncio.to_thread(self._retention.close)
        await asyncio.to_thread(self._feedback_engine.close)
        await asyncio.to_thread(self._parts.audits.close)
        await asyncio.to_thread(self._parts.conversations.owned.close)
        if self._parts.records is not None:
            await asyncio.to_thread(self._parts.records.close)
