"""A request for a completion as the proxy needs it; what goes upstream stays the client's bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from calibrator import Question
from policies import Facts
from proxy.asgi import Request
from proxy.callers import ANYONE, Caller
from proxy.encoding import can_decode, decode
from proxy.errors import BadRequestError, UpstreamBrokenError
from proxy.formats import Format
from proxy.headers import DOMAIN, TAGS
from proxy.json_splice import loads, replace_member

NO_TAGS: frozenset[str] = frozenset()


@dataclass(slots=True)
class CompletionRequest:
    """What routing, scoring and policies look at; everything else is left alone in `body`."""

    format: Format
    body: bytes
    payload: dict[str, Any]
    model: str
    is_stream: bool
    domain: str | None = None
    tags: frozenset[str] = field(default=NO_TAGS)
    caller: Caller = ANYONE
    conversation: str | None = None  # that it belongs to, see openings.py
    _question: Question | None = field(default=None, init=False, repr=False)

    def question(self) -> Question:
        """The question as the calibrator reads it, read once; raises NotScorableError."""
        if self._question is None:
            self._question = self.format.question(self.payload)
        return self._question

    def read_ahead(self) -> None:
        """Reads the question before it is needed; what is wrong with it is told when it is."""
        try:
            self.question()
        except Exception:  # a `with suppress` would be another object for every request
            return

    def facts(self) -> Facts:
        """What a policy may look at before there is a reply."""
        return Facts(
            None,
            self.model,
            stream=self.is_stream,
            n=self.format.count(self.payload),
            domain=self.domain,
            tags=self.tags,
            team=self.caller.team,
            key=self.caller.key,
        )

    def body_for(self, model: str) -> bytes:
        """The client's bytes with another model's name in them; raises BadRequestError."""
        try:
            return self.body if model == self.model else replace_member(self.body, "model", model)
        except ValueError as error:  # could just be parsed, and cannot be walked through
            raise BadRequestError(f"the body is {error}", code="invalid_json") from error


def parse_json_object(body: bytes) -> dict[str, Any]:
    """The request's JSON object; raises BadRequestError that says where it breaks."""
    try:
        payload = loads(body)
    except ValueError:
        payload = _parse_leniently(body)
    if not isinstance(payload, dict):
        kind = type(payload).__name__
        raise BadRequestError(f"the body must be a JSON object, not a {kind}", code="invalid_type")
    return payload


def _parse_leniently(body: bytes) -> Any:
    """What the standard library still takes, such as half a surrogate pair; upstream may too."""
    try:
        return json.loads(body.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadRequestError(
            f"the body is not UTF-8 (byte {error.start})", code="invalid_encoding"
        ) from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadRequestError(
            f"the body is not JSON: {error.msg} at {place}", code="invalid_json"
        ) from error
    except (RecursionError, ValueError) as error:
        raise BadRequestError(
            "the body is JSON nested too deeply or with too long a number", code="invalid_json"
        ) from error


def parse_completion_request(request: Request, format: Format) -> CompletionRequest:
    """Raises BadRequestError for what cannot be read; other mistakes are upstream's to name.

    A request without a model is one: servers of a single model take it, and a prompt template that
    upstream keeps has its own.
    """
    payload = parse_json_object(_plain(request))
    model = payload.get("model")
    return CompletionRequest(
        format,
        request.body,
        payload,
        model if isinstance(model, str) else "",
        payload.get("stream") is True,
        request.header(DOMAIN),
        tags_of(request),
        request.caller,
    )


def _plain(request: Request) -> bytes:
    """The body to read; an encoded one goes upstream as it is."""
    if b"content-encoding" not in request.values:
        return request.body
    encoding = request.header(b"content-encoding")
    if not can_decode(encoding):
        raise BadRequestError(
            f"a body with content-encoding {encoding!r} is not read; send it plain",
            code="unsupported_encoding",
        )
    try:
        return decode(request.body, encoding)
    except UpstreamBrokenError as error:
        raise BadRequestError(
            f"the body is no valid {encoding}", code="invalid_encoding"
        ) from error


def tags_of(request: Request) -> frozenset[str]:
    """What all header lines for tags list (RFC 9110, 5.3: several are one)."""
    if TAGS not in request.values:
        return NO_TAGS
    lines = [value.decode("latin-1") for name, value in request.headers if name == TAGS]
    return frozenset(tag.strip() for tag in ",".join(lines).split(",") if tag.strip())
