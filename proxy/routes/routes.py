"""The handlers of all paths, for callers that one configuration treats alike."""

from __future__ import annotations

from functools import partial

from proxy.completions.fetched_responses import fetch_response, fetches
from proxy.completions.flow import handle
from proxy.completions.generated_images import PATH as GENERATIONS
from proxy.completions.generated_images import score_generated
from proxy.completions.services import Services
from proxy.completions.surfaces import Surfaces
from proxy.errors import BadRequestError, InvalidKeyError, ProxyError, UpgradeRefusedError
from proxy.formats import FORMATS, MESSAGES, Format
from proxy.gate.live_work import GONE
from proxy.http.listener.endpoint import Endpoint, send_reply
from proxy.http.wire.http import (
    ASGIApplication,
    Client,
    ErrorBody,
    Receive,
    Reply,
    Request,
    Scope,
    Send,
    error_reply,
    raw_path_of,
)
from proxy.http.wire.spelling import ANY_ID, id_at, is_listed, means, names_in, shows_answers


class Routes:
    """Handlers of everything under `/v1/`.

    A path in its usual spelling is looked up. Any other is handled by what it may mean to the
    upstream, so that no spelling avoids a policy's decision.
    """

    def __init__(self, services: Services, surfaces: Surfaces) -> None:
        endpoint = partial(Endpoint, max_body=services.max_body)
        self.services = services
        self.is_enforced = services.governing.is_enforced
        self.needs_keys = services.config.needs_keys
        self.refuses_websockets = services.config.websockets == "refuse"
        self.exact: dict[tuple[str, str], ASGIApplication] = {
            ("GET", "/v1/models"): endpoint(surfaces.models)
        }
        self._scored: list[tuple[str, ASGIApplication, ASGIApplication]] = []
        for format in FORMATS:
            of_format = partial(endpoint, error_body=format.error_body)
            scored = of_format(partial(handle, format, services))
            other_method = of_format(partial(_other_method, services, surfaces, format))
            self._scored.append((f"/v1{format.path}", scored, other_method))
            self.exact["POST", f"/v1{format.path}"] = scored
            self.exact["POST", f"/v1{format.path}/"] = scored
        self._generated: ASGIApplication | None = None
        if services.config.calibrator.images.score_generated:
            self._generated = endpoint(partial(score_generated, services, surfaces))
            self.exact["POST", GENERATIONS] = self._generated
        self._fetches = tuple({f"/v1{format.fetch_path}" for format in FORMATS})
        self._held = endpoint(surfaces.completion)
        self._response = endpoint(partial(fetch_response, services))
        self._model = endpoint(surfaces.model)
        self._relay = endpoint(surfaces.relay)
        self._refused = endpoint(_refuse_spelling)
        in_anthropics_words = partial(endpoint, error_body=MESSAGES.error_body)
        self._held_messages = in_anthropics_words(surfaces.completion)
        self._relay_messages = in_anthropics_words(surfaces.relay)

    def other(self, scope: Scope) -> ASGIApplication | None:
        """Return the handler of a path that `exact` lacks, or None outside `/v1/`.

        The path is read as a lenient upstream may read it. One that can be read in two ways is
        refused by its handler.
        """
        method, path = scope["method"], scope["path"]
        if not path.startswith("/v1/"):
            return None
        try:
            names = names_in(raw_path_of(scope))
        except BadRequestError:
            return self._refused
        for scored_path, scored, other_method in self._scored:
            if means(names, scored_path):
                return scored if method == "POST" else other_method
        if self._generated is not None and method == "POST" and means(names, GENERATIONS):
            return self._generated
        return self._unscored_route(method, path, names)

    def check_websocket(self, scope: Scope) -> None:
        """Refuse a WebSocket that would avoid a policy, a check of ids, or the configuration.

        A WebSocket is refused where a policy decides, where a request could name what is another
        key's, and on a scored surface where `websockets: refuse` is configured. Raises
        UpgradeRefusedError for a scored surface, which can be used over HTTP, and BadRequestError
        for any other path.
        """
        is_strict = self.is_enforced or self.needs_keys or self.refuses_websockets
        if not is_strict or not scope["path"].startswith("/v1/"):
            return
        names = names_in(raw_path_of(scope))
        is_scored = any(means(names, path) for path, *_ in self._scored)
        reason = "replies are scored"
        if self.is_enforced:
            reason = "a policy decides on these answers"
        elif self.needs_keys:
            reason = "ids in these requests are checked"
        sentence = f"{reason}, which is not possible in a WebSocket; ask over HTTP"
        if is_scored:
            raise UpgradeRefusedError(sentence)
        if self.is_enforced and (shows_answers(names) or not is_listed(names)):
            raise BadRequestError(sentence, code="websocket_undecided")

    def _unscored_route(self, method: str, path: str, names: tuple[str, ...]) -> ASGIApplication:
        """Return the handler of a path below `/v1/` that is not scored.

        It fetches a stored reply, a held one or a model, or relays the request.
        """
        is_anthropics = _is_anthropics(path)
        if fetches(method, names, is_decided=self.is_enforced):
            return self._response
        if method == "GET" and any(
            id_at(names, [*at.strip("/").split("/"), ANY_ID]) for at in self._fetches
        ):
            return self._held_messages if is_anthropics else self._held
        if method == "GET" and path.startswith("/v1/models/"):
            return self._model
        return self._relay_messages if is_anthropics else self._relay


async def _other_method(
    services: Services, surfaces: Surfaces, format: Format, request: Request
) -> Reply:
    """Answer a request on a completion's path with another method than POST.

    Many servers ignore the method, so a request with a body is handled as a completion. Any other
    is relayed.
    """
    if request.body:
        return await handle(format, services, request)
    return await surfaces.relay(request)


async def _refuse_spelling(request: Request) -> Reply:
    """Raise the BadRequestError that explains the mistake in the path."""
    names_in(request.path)
    raise BadRequestError("the path cannot be read", code="invalid_path")


def _is_anthropics(path: str) -> bool:
    """Return whether a path is below Anthropic's `/v1/messages`."""
    return path.startswith(f"/v1{MESSAGES.path}")


def error_body_for(path: str) -> ErrorBody:
    """Return the function that formats errors for clients of this path."""
    return MESSAGES.error_body if _is_anthropics(path) else ProxyError.body


async def refuse(error: ProxyError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that is not admitted, as an ASGI application, in its API's error format."""
    await send_reply(error_reply(error, error_body_for(scope["path"])), send)


async def end_with_key(key: str, client: Client) -> None:
    """Answer 401 to a client whose key has ended; if its reply has begun, close the connection."""
    if client.status:
        client.hang_up()
    else:
        error = InvalidKeyError(f"{GONE}: {key}")
        reply = error_reply(error, error_body_for(client.scope["path"]))
        await client.write_whole(reply.status, reply.headers, (reply.whole(),))
