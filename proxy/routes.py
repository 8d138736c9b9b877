"""Which path goes to which handler, for callers that one configuration treats alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from proxy.asgi import Endpoint, ErrorBody, Receive, Scope, Send
from proxy.chat import Completions
from proxy.errors import ProxyError
from proxy.fetched_responses import fetch_response, fetched_id
from proxy.formats import FORMATS, MESSAGES
from proxy.generated_images import PATH as GENERATIONS
from proxy.generated_images import score_generated
from proxy.surfaces import Surfaces

ASGIApplication = Callable[[Scope, Receive, Send], Awaitable[None]]


class Routes:
    """Handlers of everything under `/v1/`."""

    def __init__(self, completions: Completions, surfaces: Surfaces) -> None:
        endpoint = partial(Endpoint, max_body=completions.config.limits.max_body)
        self.exact: dict[tuple[str, str], ASGIApplication] = {
            ("GET", "/v1/models"): endpoint(surfaces.models)
        }
        for format in FORMATS:
            scored = endpoint(partial(completions.handle, format), error_body=format.error_body)
            self.exact["POST", f"/v1{format.path}"] = scored
            self.exact["POST", f"/v1{format.path}/"] = scored
        if completions.config.calibrator.images.score_generated:
            generated = partial(score_generated, completions, surfaces)
            self.exact["POST", GENERATIONS] = self.exact["POST", f"{GENERATIONS}/"] = endpoint(
                generated
            )
        self._fetches = tuple({f"/v1{format.fetch_path}/" for format in FORMATS})
        self._held = endpoint(surfaces.completion)
        self._response = endpoint(partial(fetch_response, completions))
        self._model = endpoint(surfaces.model)
        self._relay = endpoint(surfaces.relay)
        in_anthropics_words = partial(endpoint, error_body=MESSAGES.error_body)
        self._held_messages = in_anthropics_words(surfaces.completion)
        self._relay_messages = in_anthropics_words(surfaces.relay)

    def other(self, method: str, path: str) -> ASGIApplication | None:
        """Whoever answers what is no exact path; None for what is not under `/v1/`."""
        is_anthropics = _is_anthropics(path)
        if fetched_id(method, path):
            return self._response
        if method == "GET" and path.startswith(self._fetches) and path.count("/") <= 4:
            return self._held_messages if is_anthropics else self._held
        if method == "GET" and path.startswith("/v1/models/"):
            return self._model
        if path.startswith("/v1/"):
            return self._relay_messages if is_anthropics else self._relay
        return None


def _is_anthropics(path: str) -> bool:
    return path.startswith(f"/v1{MESSAGES.path}")


def error_body_for(path: str) -> ErrorBody:
    """The envelope that clients of this path read."""
    return MESSAGES.error_body if _is_anthropics(path) else ProxyError.body
