"""The paths of Azure OpenAI, which are other spellings of those under `/v1/`.

Clients of class `AzureOpenAI` ask `/openai/deployments/{name}/chat/completions?api-version=..` or
`/openai/responses?api-version=..`, with their key in `api-key`. Such a request is rewritten before
anything else looks at it, so keys, surfaces and policies apply to it as to any other. As at Azure,
the deployment in the path is the model, whatever the body says.
"""

from __future__ import annotations

from functools import partial
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from proxy.errors import BadRequestError
from proxy.http.listener.endpoint import Endpoint
from proxy.http.wire.headers import Headers, name_of
from proxy.http.wire.http import ASGIApplication, Handler, Reply, Request, Scope
from proxy.http.wire.json_splice import TooManyValuesError, replace_member
from proxy.http.wire.large_json import has_many, large_object
from proxy.http.wire.spelling import means, names_in
from proxy.http.wire.worker_threads import apart

PREFIX: Final = "/openai/"
DEPLOYMENT: Final = "pinocchio.deployment"
"""The key of an ASGI scope that holds the deployment that its path named."""

_OF_DEPLOYMENTS: Final = (  # longer paths first: `/completions` ends `/chat/completions` too
    *("/chat/completions", "/completions", "/embeddings", "/responses"),
    *("/audio/transcriptions", "/audio/translations", "/audio/speech"),
    *("/images/generations", "/images/edits"),
)
_JSON: Final = b"application/json"


def rewrite(scope: Scope) -> None:
    """Change the scope of a request below `/openai/` to that of the same request under `/v1/`.

    Path, query, key field and, under `pinocchio.deployment`, the deployment are set in place. A
    path whose first name is encoded stays as it is: there is nothing at it.
    """
    raw: bytes = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
    if not raw.startswith(PREFIX.encode()):
        return
    rest = raw[len(PREFIX) - 1 :]
    is_v1 = rest == b"/v1" or rest.startswith(b"/v1/")
    deployment, path = _split(rest.removeprefix(b"/v1") if is_v1 else rest)
    raw = b"/v1" + path
    scope["raw_path"], scope["path"] = raw, unquote(raw.decode("latin-1"))
    scope["headers"] = _with_bearer(scope["headers"])
    if deployment or not is_v1:
        scope["query_string"] = _without_version(scope["query_string"], path == b"/realtime")
    if deployment:
        scope[DEPLOYMENT] = unquote_to_bytes(deployment).decode("utf-8", "replace")


def naming(scope: Scope, handler: ASGIApplication) -> ASGIApplication:
    """Return the handler, changed so that a request's `model` is the deployment in its path.

    It is unchanged without a deployment, or if it is no Endpoint.
    """
    deployment: str | None = scope.get(DEPLOYMENT)
    if deployment is None or not isinstance(handler, Endpoint):
        return handler
    return handler.around(partial(_handle_named, deployment))


async def _handle_named(deployment: str, handle: Handler, request: Request) -> Reply:
    """Set the model in a request's body to the deployment, then call `handle`."""
    request.body = await _with_model(request, deployment)
    return await handle(request)


async def _with_model(request: Request, deployment: str) -> bytes:
    """Return the body with the deployment as its model.

    Unchanged are an empty or encoded body, one that is not of type JSON, and one that cannot be
    read.
    """
    body = request.body
    kind = request.values.get(b"content-type", _JSON).lower()
    if not body or b"content-encoding" in request.values or not kind.startswith(_JSON):
        return body
    try:
        payload = await large_object(body)
        if payload is None or payload.get("model") == deployment:
            return body
        if has_many(body):
            return await apart(replace_member, body, "model", deployment)
        return replace_member(body, "model", deployment)
    except (TooManyValuesError, ValueError):  # whoever handles the request says what is wrong
        return body


def _split(path: bytes) -> tuple[bytes, bytes]:
    """Return the deployment in a path (empty where there is none) and the path without it.

    The SDK writes a model's name into its path as it is, so a deployment may contain slashes.
    """
    start, is_there, named = path.partition(b"/deployments/")
    if start or not is_there:
        return b"", path
    deployment, is_longer, below = named.partition(b"/")
    rest = b"/" + below
    if not is_longer:
        return b"", path
    try:
        names = names_in(rest.decode("latin-1"))
    except BadRequestError:  # which is said where the path is handled
        return deployment, rest
    if any(means(names, known) for known in _OF_DEPLOYMENTS):
        return deployment, rest
    for known in map(str.encode, _OF_DEPLOYMENTS):
        if named.endswith(known):
            return named[: -len(known)], known
    return deployment, rest


def _with_bearer(headers: Headers) -> Headers:
    """Return the fields with an `api-key` as `Authorization: Bearer`, unless they have that too.

    Two different keys are kept, to be refused.
    """
    keys = {value for name, value in headers if name == b"api-key"}
    if len(keys) != 1 or b"authorization" in map(name_of, headers):
        return headers
    kept = [field for field in headers if field[0] != b"api-key"]
    return [*kept, (b"authorization", b"Bearer " + keys.pop())]


def _without_version(query: bytes, is_realtime: bool) -> bytes:
    """Return the query without `api-version`, which upstream's `/v1` has no dates for.

    A WebSocket names its deployment in the query.
    """
    parts = [part for part in query.split(b"&") if not part.startswith(b"api-version=")]
    if is_realtime:
        parts = [
            b"model=" + part.removeprefix(b"deployment=")
            if part.startswith(b"deployment=")
            else part
            for part in parts
        ]
    return b"&".join(parts)
