"""A chat request as the proxy needs it; the bytes that go upstream stay the client's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from calibrator import NotScorableError, question_text
from proxy.asgi import Request
from proxy.errors import BadRequestError
from proxy.headers import DOMAIN, TAGS
from proxy.json_splice import replace_member


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What routing, scoring and policies look at; everything else is left alone in `body`."""

    body: bytes
    payload: dict[str, Any]
    model: str
    is_stream: bool
    domain: str | None = None
    tags: frozenset[str] = frozenset()

    @property
    def wants_schema(self) -> bool:
        """A reply in a format that a placeholder's prose would break."""
        wanted = self.payload.get("response_format")
        return isinstance(wanted, dict) and wanted.get("type", "text") != "text"

    @property
    def include_usage(self) -> bool:
        options = self.payload.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    @property
    def n(self) -> int:
        """How many choices are asked for."""
        wanted = self.payload.get("n")
        return wanted if isinstance(wanted, int) and wanted > 1 else 1

    def question(self) -> str:
        """The question as the calibrator reads it; raises NotScorableError."""
        try:
            return question_text(self.payload.get("messages"), self.payload.get("tools"))
        except ValueError as error:  # upstream accepted what we cannot read
            raise NotScorableError("messages", str(error)) from error

    def body_for(self, model: str) -> bytes:
        """The client's bytes with another model's name in them; raises BadRequestError."""
        try:
            return self.body if model == self.model else replace_member(self.body, "model", model)
        except ValueError as error:  # could just be parsed, and cannot be walked through
            raise BadRequestError(f"the body is {error}", code="invalid_json") from error


def parse_json_object(body: bytes) -> dict[str, Any]:
    """The request's JSON object; raises BadRequestError that says where it breaks."""
    try:
        payload = json.loads(body.decode("utf-8-sig"))
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
    if not isinstance(payload, dict):
        kind = type(payload).__name__
        raise BadRequestError(f"the body must be a JSON object, not a {kind}", code="invalid_type")
    return payload


def parse_chat_request(request: Request) -> ChatRequest:
    """Raises BadRequestError for what cannot be routed; other mistakes are upstream's to name."""
    encoding = (request.header("content-encoding") or "identity").lower()
    if encoding != "identity":
        raise BadRequestError(
            f"a body with content-encoding {encoding!r} is not read; send it plain",
            code="unsupported_encoding",
        )
    payload = parse_json_object(request.body)
    model, stream = payload.get("model"), payload.get("stream")
    if model is None or model == "":
        raise BadRequestError(
            "you must provide a model parameter", param="model", code="missing_model"
        )
    if not isinstance(model, str):
        raise BadRequestError(
            f"model must be a string, not a {type(model).__name__}",
            param="model",
            code="invalid_type",
        )
    if stream is not None and not isinstance(stream, bool):
        raise BadRequestError(
            f"stream must be true or false, not {stream!r}", param="stream", code="invalid_type"
        )
    tags = (request.header(TAGS) or "").split(",")
    return ChatRequest(
        body=request.body,
        payload=payload,
        model=model,
        is_stream=bool(stream),
        domain=request.header(DOMAIN),
        tags=frozenset(tag.strip() for tag in tags if tag.strip()),
    )
