"""The listener's ASGI application: authorization, the path of each contract, and held replies."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from proxy.completions.services import Services
from proxy.config.settings.guardrails import GuardrailsConfig
from proxy.errors import InvalidKeyError, NotFoundError, ProxyError
from proxy.formats import Json
from proxy.gate.host_check import check_local
from proxy.generations.reloading import Generations
from proxy.holds.held import fetch_held, held_format
from proxy.http.listener.endpoint import Endpoint, send_reply
from proxy.http.wire.caller import ANYONE
from proxy.http.wire.http import (
    CLIENT,
    JSON,
    METRICS,
    Receive,
    Reply,
    Request,
    Scope,
    Send,
    error_reply,
    request_of,
)
from proxy.http.wire.json_splice import dumps
from proxy.observe.metrics import Metrics
from proxy.optional.guardrails import agentgateway, analyze, litellm, portkey, systemone
from proxy.optional.guardrails.questions import Questions
from proxy.optional.guardrails.reading import read_object
from proxy.optional.guardrails.visits import Visit, VisitResult, assess, request_for, score_visit

LIVE: Final = "/livez"
BEARER: Final = b"bearer "
Read = Callable[[Json, Request], Visit | None]
Answer = Callable[[VisitResult], Json]


def presented_token(request: Request) -> bytes:
    """Return the token in `Authorization` or `x-api-key`, empty where there is none."""
    value = request.values.get(b"authorization", b"")
    if value[: len(BEARER)].lower() == BEARER:
        return value[len(BEARER) :].strip()
    return value or request.values.get(b"x-api-key", b"")


class GuardrailsApplication:
    """Answers gateways by the configuration in force.

    `_secret` is empty where no token is configured; then only programs on this machine are
    answered.
    """

    def __init__(
        self, config: GuardrailsConfig, max_body: int, holder: Generations, metrics: Metrics
    ) -> None:
        self._secret = config.secret
        self._holder = holder
        self._metrics = metrics
        self._questions = questions = Questions()
        self._endpoint = partial(Endpoint, max_body=max_body)
        contracts: dict[str, tuple[Read, Answer, Json]] = {
            litellm.PATH: (
                lambda payload, _: litellm.read(payload, questions),
                litellm.answer,
                litellm.PASS,
            ),
            litellm.WHOLE_PATH: (
                lambda payload, _: litellm.read_whole(payload),
                litellm.answer_whole,
                litellm.PASS,
            ),
            portkey.PATH: (lambda payload, _: portkey.read(payload), portkey.answer, portkey.PASS),
            agentgateway.REQUEST_PATH: (
                lambda payload, http: agentgateway.keep(payload, http, questions),
                agentgateway.answer,
                agentgateway.PASS,
            ),
            agentgateway.RESPONSE_PATH: (
                lambda payload, http: agentgateway.read(payload, http, questions),
                agentgateway.answer,
                agentgateway.PASS,
            ),
            analyze.PATH: (lambda payload, _: analyze.read(payload), analyze.answer, analyze.PASS),
        }
        self._visited: dict[str, Callable[[Services, Request], Awaitable[Reply]]]
        self._visited = {path: partial(self._visit, *each) for path, each in contracts.items()}
        self._visited[systemone.PATH] = self._answer_score

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a gateway's request under the configuration in force."""
        generation = self._holder.current  # a reload does not change it during the visit
        answering = self._answer(generation.routes.services, scope, receive, send)
        await self._holder.serve(generation, answering)

    async def _answer(self, services: Services, scope: Scope, receive: Receive, send: Send) -> None:
        """Check who sent a request, then let its handler answer it."""
        scope[METRICS] = self._metrics
        try:
            self._check(scope)
            handler = self._handler(services, scope)
        except ProxyError as error:
            await send_reply(error_reply(error), send)
            return
        await self._endpoint(handler)(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        """Refuse a request of another machine, or one without the listener's token.

        The token is checked where one is configured, except for `/livez`. Raises
        HostNotAllowedError or InvalidKeyError.
        """
        if not self._secret:
            check_local(scope["headers"], "while guardrails.token is not set")
        elif scope["path"] != LIVE and not self._is_token(presented_token(request_of(scope))):
            text = "the guardrails listener asks for its token (guardrails.token)"
            raise InvalidKeyError(text)
        if CLIENT in scope:
            scope[CLIENT].note_known(bool(self._secret))

    def _is_token(self, presented: bytes) -> bool:
        """Return whether a token is the configured one; compared in constant time."""
        return hmac.compare_digest(presented, self._secret)

    def _handler(self, services: Services, scope: Scope) -> Callable[[Request], Awaitable[Reply]]:
        """Return the handler of a request's path; raises NotFoundError for an unknown one."""
        method, path = scope["method"], scope["path"]
        if method == "POST" and (visited := self._visited.get(path)):
            return partial(visited, services)
        if method == "GET" and path == LIVE:
            return _live
        id = path.rpartition("/")[2]
        format = held_format(id)
        if method == "GET" and format and path == f"/v1{format.fetch_path}/{id}":
            return partial(self._fetch, services, id)
        paths = ", ".join(sorted(self._visited))
        raise NotFoundError(
            f"there is nothing at {method} {path} of the guardrails listener; gateways POST to "
            f"{paths}",
            code="unknown_url",
        )

    async def _visit(
        self, read: Read, answer: Answer, passing: Json, services: Services, http: Request
    ) -> Reply:
        """Check a reply and answer in the gateway's own form; a visit without a reply passes."""
        visit = read(await read_object(http.body), http)
        if visit is None:
            return Reply(200, JSON, dumps(passing))
        finding = await assess(services, http, visit, self._credentials)
        has_number = finding.outcome is not None and finding.outcome.confidence is not None
        outcome = "withheld" if finding.is_withheld else "passed"
        if not finding.is_withheld and finding.completion is not None:
            outcome = "changed"
        self._metrics.note_visit(visit.gateway, outcome, has_number=has_number)
        return Reply(200, JSON, dumps(answer(finding)))

    async def _answer_score(self, services: Services, http: Request) -> Reply:
        """Score a reply and answer with its number; nothing is held."""
        payload = await read_object(http.body)
        outcome = await score_visit(services, http, systemone.read(payload), self._credentials)
        has_number = outcome.confidence is not None
        self._metrics.note_visit(systemone.GATEWAY, "passed", has_number=has_number)
        return Reply(200, JSON, dumps(systemone.answer(payload, outcome)))

    async def _fetch(self, services: Services, id: str, http: Request) -> Reply:
        """Return the reply that is held under an id, whoever asks; raises NotFoundError.

        The id must have the form of a held one (`held_format`).
        """
        format = held_format(id)
        assert format is not None
        request = request_for(http, b"", self._credentials, ANYONE)
        return await fetch_held(services.store, format, id, request, services.config.attach)

    @property
    def _credentials(self) -> bytes:
        """The credentials that identify the replies of this listener's gateways."""
        return BEARER.title() + self._secret if self._secret else b"guardrails"


async def _live(_: Request) -> Reply:
    """Answer `/livez`: the listener serves requests."""
    return Reply(200, JSON, b'{"status":"ok"}')
