"""A request for a completion, parsed; upstream gets the client's own bytes.

A body that is too large once decompressed, or has too many JSON values, is refused here. One that
is too large as it arrives is refused in `http/listener/endpoint.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar

from calibrator import NotScorableError, Question
from policies import Facts, OfferedTools, ToolCall
from proxy.errors import BadRequestError, BodyTooLargeError, UpstreamBrokenError
from proxy.formats import Choice, Format
from proxy.formats.events.called import offered_tools, read_calls, tool_calls
from proxy.gate.allowance import Share, take_share
from proxy.http.wire.caller import ANYONE, Caller
from proxy.http.wire.encoding import (
    MAX_RATIO,
    DecodedTooLargeError,
    can_decode,
    decode_body,
    most_of,
)
from proxy.http.wire.headers import DOMAIN, TAGS
from proxy.http.wire.http import Request
from proxy.http.wire.json_splice import (
    RepeatedMemberError,
    TooManyValuesError,
    _object,
    _parse_leniently,
    _too_many,
    object_without_repeats,
    parse_json_object,
    replace_member,
    separators,
)
from proxy.http.wire.large_json import MAX_REQUEST_VALUES, check_members, has_many, loads_counted
from proxy.http.wire.worker_threads import apart

_LOOKED_AT = 200_000  # characters of instructions
_TURNS = 20  # the first messages: agents describe their surroundings at the beginning
_FOLDER = re.compile(
    r"(?:working directory|workspace(?: root)?|cwd)[ \t]{0,4}(?:is|:)[ \t]{0,4}"
    r"([/~][^\n<>\"']{0,500})",
    re.IGNORECASE,
)
_CODEX = re.compile(r"<cwd>\s{0,20}([^<\n]{1,500}?)\s{0,20}</cwd>")
_SURROUNDINGS = "<environment_context>"
Given = ParamSpec("Given")
Result = TypeVar("Result")
NO_TAGS: frozenset[str] = frozenset()
BYTES_A_VALUE = 3  # fewest bytes of JSON for a value
BYTES_A_KEPT_VALUE = 64  # bytes of memory for a value
NOTHING: Mapping[str, Any] = MappingProxyType({})
DECISIVE: Final = frozenset(
    {
        *("model", "messages", "prompt", "input", "instructions", "system", "tools", "functions"),
        *("n", "stream", "store", "background", "previous_response_id", "conversation"),
        *("role", "content", "type", "text"),
    }
)  # members of a request on which scores, rules and bindings depend
LONGEST_MODEL = 1_024  # characters of a name, which lines, rows and pages show


@dataclass(slots=True)
class CompletionRequest:
    """What routing, scoring and policies need of a request; the rest stays in `body` only."""

    format: Format
    body: bytes
    payload: dict[str, Any]
    model: str
    is_stream: bool
    domain: str | None = None
    tags: frozenset[str] = field(default=NO_TAGS)
    caller: Caller = ANYONE
    conversation: str | None = None  # its digest, see openings.py
    is_large: bool = False  # too many values to be read on the event loop
    share: Share | None = None  # of the allowance for large requests, until this is dropped
    _question: Question | None = field(default=None, init=False, repr=False)
    _no_question: tuple[str, str] | None = field(default=None, init=False, repr=False)
    _offered: OfferedTools | None = field(default=None, init=False, repr=False)
    _project: str | None = field(default=None, init=False, repr=False)

    def question(self) -> Question:
        """Return the question as the calibrator reads it, parsed once; raises NotScorableError."""
        if self._no_question is not None:
            raise NotScorableError(*self._no_question)
        if self._question is None:
            try:
                self._question = self.format.question(self.payload)
            except NotScorableError as error:
                self._no_question = error.reason, str(error)
                raise
        return self._question

    def calls_in(self, choice: Choice) -> tuple[ToolCall, ...]:
        """Return the calls of a choice as a client that offers these tools may read them."""
        calls = tool_calls(choice.message)
        if not calls:
            return ()
        if self._offered is None:
            self._offered = offered_tools(self.payload)
            self._project = project_of(*self.format.conversation(self.payload))
        return read_calls(calls, self._offered, choice.names, self._project)

    async def apart(
        self, work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        """Run work on the request and return its result; on a thread if the request is large."""
        return await apart(work, *args, **kwargs) if self.is_large else work(*args, **kwargs)

    def read_ahead(self) -> None:
        """Parse the question and keep it; an error is dropped here and raised where it is used."""
        try:
            self.question()
        except Exception:  # cheaper than `suppress`, which makes an object for every request
            return

    def facts(self) -> Facts:
        """Return the facts that a policy may use before there is a reply."""
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

    def body_for(self, model: str, changes: Mapping[str, Any] = NOTHING) -> bytes:
        """Return the client's bytes with another model and with `changes` to top-level members.

        Raises BadRequestError where the body cannot be changed in place.
        """
        try:
            body = self.body if model == self.model else replace_member(self.body, "model", model)
            for name, value in changes.items():
                body = replace_member(body, name, value)
            return body
        except ValueError as error:  # the parser accepted it, but no member can be replaced
            raise BadRequestError(f"the body is {error}", code="invalid_json") from error


def _parse_large_object(body: bytes) -> tuple[dict[str, Any], int]:
    """Parse a body with many values; return the object and its number of values.

    It takes long, so call it on a thread.
    """
    try:
        parse = partial(loads_counted, most=MAX_REQUEST_VALUES)
        value, values = _parse_leniently(body, parse)
    except TooManyValuesError as error:
        raise _too_many(error) from error
    return _object(value), values


def read_at_once(
    request: Request, format: Format, *, decisive: Collection[str] = ()
) -> CompletionRequest | None:
    """Parse a request without awaiting, or return None: await `read_completion_request` then.

    None is for an encoded body, a large one and, with `decisive` names, one that repeats a member.
    Raises BadRequestError as that does.
    """
    body = request.body
    if b"content-encoding" in request.values or has_many(body):
        return None
    return _read_small(request, format, body, decisive)


async def read_completion_request(
    request: Request, format: Format, max_body: int, *, decisive: Collection[str] = ()
) -> CompletionRequest:
    """Parse a request for a completion.

    A request without a model is valid: servers of a single model take it, and a prompt template
    that upstream keeps has its own. Raises BadRequestError for what cannot be read, and for members
    that readers could understand in two ways, where a policy depends on them (`decisive`). Other
    mistakes are left to upstream.
    """
    body, share, is_large = request.body, None, False
    if b"content-encoding" in request.values:
        share = await _share(request, most_of(body, max_body) // BYTES_A_VALUE)
        body = await _plain(request, max_body)
        share.shrink_to(separators(body) + len(body) // BYTES_A_KEPT_VALUE)
        is_large = has_many(body, len(request.body))
    elif is_large := has_many(body):
        share = await _share(request, separators(body))
    if share is not None and is_large:
        completion_request, values = await apart(_read_large, request, format, body)
        # the estimate also counted separators in strings
        share.shrink_to(values + len(body) // BYTES_A_KEPT_VALUE)
    elif small := _read_small(request, format, body, decisive):
        small.share = share
        return small
    else:
        completion_request = _parse_request(
            request, format, parse_json_object(body, is_counted=True)
        )
    completion_request.share = share
    if decisive:
        await _check_repeated(completion_request, body, decisive)
        _check_cases(completion_request.payload, decisive)
    return completion_request


def _read_small(
    request: Request, format: Format, body: bytes, decisive: Collection[str]
) -> CompletionRequest | None:
    """Parse a request with few values; return None if it repeats a member and `decisive` is set.

    `decisive` are the names on which a policy depends. Raises BadRequestError for a body that
    is no JSON object, and for a decisive name in another case, such as `Model`.
    """
    if not decisive:
        return _parse_request(request, format, parse_json_object(body, is_counted=True))
    payload = object_without_repeats(body)
    if payload is None:
        return None
    completion_request = _parse_request(request, format, payload)
    _check_cases(payload, decisive)
    return completion_request


async def _check_repeated(
    request: CompletionRequest, body: bytes, decisive: Collection[str]
) -> None:
    """Refuse a body with a repeated decisive member; raises BadRequestError."""
    try:
        await check_members(body, decisive, is_large=request.is_large)
    except RepeatedMemberError as error:
        raise BadRequestError(f"the body has {error}", code="repeated_member") from error


def _check_cases(payload: Mapping[str, Any], decisive: Collection[str]) -> None:
    """Refuse a member that readers who ignore case would take for a decisive one.

    Raises BadRequestError.
    """
    for name in payload:
        if name not in DECISIVE and name.casefold() in decisive:
            message = f"the member {name!r} is spelled {name.casefold()!r}"
            raise BadRequestError(message, param=name, code="repeated_member")


async def _share(request: Request, values: int) -> Share:
    """Take a share of the allowance for large requests.

    Requests with a key get an empty share, because keys have limits of their own. Raises
    OverloadedError.
    """
    return await take_share(values if request.caller.id is None else 0)


def _read_large(request: Request, format: Format, body: bytes) -> tuple[CompletionRequest, int]:
    """Parse a large request and its question; return it with its number of values.

    Call it on a thread.
    """
    payload, values = _parse_large_object(body)
    completion_request = _parse_request(request, format, payload)
    completion_request.is_large = True
    completion_request.read_ahead()
    return completion_request, values


def _parse_request(request: Request, format: Format, payload: dict[str, Any]) -> CompletionRequest:
    """Return the request with its payload, domain and tags; nothing else is checked than the model.

    Raises BadRequestError for a model's name of more than 1,024 characters.
    """
    model = payload.get("model")
    if isinstance(model, str) and len(model) > LONGEST_MODEL:
        message = f"a model's name has at most {LONGEST_MODEL} characters, not {len(model)}"
        raise BadRequestError(message, param="model", code="invalid_model")
    return CompletionRequest(
        format,
        request.body,
        payload,
        model if isinstance(model, str) else "",
        payload.get("stream") is True,
        request.header(DOMAIN) if DOMAIN in request.values else None,
        tags_of(request) if TAGS in request.values else NO_TAGS,
        request.caller,
    )


async def _plain(request: Request, max_body: int) -> bytes:
    """Decode an encoded body; upstream still gets the encoded one.

    Raises BadRequestError for an unknown or invalid encoding, BodyTooLargeError beyond the limit.
    """
    encoding = request.header(b"content-encoding")
    if not can_decode(encoding):
        raise BadRequestError(
            f"a body with content-encoding {encoding!r} is not read; send it plain",
            code="unsupported_encoding",
        )
    try:
        return await decode_body(request.body, encoding, max_body)
    except DecodedTooLargeError as error:
        raise BodyTooLargeError(
            f"the body is larger than may come out of {len(request.body)} bytes of {encoding} "
            f"(limits.max_body, at most {MAX_RATIO} times as many)"
        ) from error
    except UpstreamBrokenError as error:
        raise BadRequestError(
            f"the body is no valid {encoding}", code="invalid_encoding"
        ) from error


def tags_of(request: Request) -> frozenset[str]:
    """Return the tags of all header lines for them (RFC 9110, 5.3: several lines are one list)."""
    lines = [value.decode("latin-1") for name, value in request.headers if name == TAGS]
    return frozenset(tag.strip() for tag in ",".join(lines).split(",") if tag.strip())


def project_of(instructions: Any, messages: Any) -> str | None:
    """Return the project's folder that a coding agent's request names, such as `/home/me/app`.

    Only instructions count, and the block in which Codex describes its surroundings: a tool's
    result or a model's text cannot move the project elsewhere. None where they name no folder.
    """
    turns = messages[:_TURNS] if isinstance(messages, list) else []
    for text in _instructions(instructions, turns):
        if match := _FOLDER.search(text[:_LOOKED_AT]):
            return match[1].rstrip(" .`\r")
    for text in _texts_of(turns, ("user",)):
        if text.lstrip().startswith(_SURROUNDINGS) and (match := _CODEX.search(text[:_LOOKED_AT])):
            return match[1]
    return None


def _instructions(instructions: Any, messages: Sequence[Any]) -> Iterator[str]:
    """Yield the texts of `instructions` and of system and developer messages."""
    yield from _texts(instructions)
    yield from _texts_of(messages, ("system", "developer"))


def _texts_of(messages: Sequence[Any], roles: Sequence[str]) -> Iterator[str]:
    """Yield the texts of all messages that have one of the roles."""
    for message in messages:
        if isinstance(message, dict) and message.get("role") in roles:
            yield from _texts(message.get("content"))


def _texts(content: Any) -> Iterator[str]:
    """Yield the texts of a content: a string, or a list of strings and of parts with `text`."""
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text
