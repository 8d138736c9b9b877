"""For LiteLLM's proxy: a callback that adds the confidence to its replies.

    # pinocchio_scores.py, beside litellm.yaml, where `callbacks: pinocchio_scores.scores` names it
    from pinocchio.litellm import scoring

    scores = scoring("http://127.0.0.1:8002", token)

The callback asks the guardrails listener about each chat completion, with its question: the same
calibrator, policies and record as for any gateway. A whole reply gets the proxy's headers and the
member `pinocchio`; a stream's member is on the chunk that finishes, since headers go out before its
text. A reply that a policy holds or blocks becomes an error, which for a stream replaces its end.

This needs the standard library and LiteLLM, which is imported by `scoring`.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import OrderedDict
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any, Final

_MOST_CALLS: Final = 10_000
_HEADERS: Final = {
    "confidence": "x-pinocchio-confidence",
    "status": "x-pinocchio-confidence-status",
    "reason": "x-pinocchio-confidence-reason",
    "support": "x-pinocchio-support",
    "basis": "x-pinocchio-basis",
    "action": "x-pinocchio-action",
    "policy": "x-pinocchio-policy",
    "calibrator": "x-pinocchio-calibrator",
    "request_id": "x-pinocchio-request-id",
}
_WITHHELD: Final = 422
_PENDING: Final = {"x-pinocchio-confidence-status": "pending"}
_UNKNOWN: Final[dict[str, Any]] = {"confidence": None, "status": "error", "reason": "unreachable"}
_REQUEST_FIELDS: Final = ("model", "messages", "tools", "response_format", "n", "stream")


class WithheldError(Exception):
    """An error that ends a stream.

    LiteLLM turns it into an event; an HTTP error would break the stream off.
    """

    def __init__(self, detail: dict[str, Any]) -> None:
        """Make an error from the detail of an HTTP error: its text is the member `error`."""
        super().__init__(detail["error"])
        self.message, self.type, self.status_code = detail["error"], "policy_error", _WITHHELD


def scoring(url: str, token: str, *, timeout_s: float = 5.0, fail_closed: bool = False) -> Any:
    """Return a callback for LiteLLM's `callbacks`.

    While nobody answers at `url`, replies pass with `status: error`, or with `fail_closed` they are
    withheld.
    """
    base: Any = import_module("litellm.integrations.custom_logger").CustomLogger

    listener = _Listener(url, token, timeout_s, fail_closed=fail_closed)

    class ScoringLogger(base):  # type: ignore[misc]  # the base is known only at run time
        async def async_post_call_success_hook(
            self, data: Any, user_api_key_dict: Any, response: Any
        ) -> Any:
            """Add the facts about a chat completion to it; raises if it is withheld."""
            if not _is_chat(data, response):
                return response
            facts = await listener.ask(data, user_api_key_dict, response)
            listener.keep(data, facts)
            response.pinocchio = facts
            return response

        async def async_post_call_response_headers_hook(
            self,
            data: Any,
            user_api_key_dict: Any,
            response: Any,
            request_headers: Any = None,
        ) -> dict[str, str]:
            """Return headers with the facts about a reply; for a stream, that they are pending."""
            if data.get("stream") and "messages" in data:
                return {**_PENDING}
            return _headers(listener.take(data))

        async def async_post_call_streaming_iterator_hook(
            self, user_api_key_dict: Any, response: Any, request_data: Any
        ) -> AsyncIterator[Any]:
            """Yield chunks as they come, but the finishing ones only with the facts."""
            chunks: list[Any] = []
            held: list[Any] = []
            async for chunk in response:
                chunks.append(chunk)
                if held or _finishes(chunk):
                    held.append(chunk)
                else:
                    yield chunk
            if chunks and "messages" in request_data:
                build = import_module("litellm").stream_chunk_builder
                whole = build(chunks, messages=request_data["messages"])
                try:
                    facts = await listener.ask(request_data, user_api_key_dict, whole)
                except import_module("fastapi").HTTPException as error:
                    raise WithheldError(error.detail) from error
                if held:
                    _put_on(held[0], facts)
            for chunk in held:
                yield chunk

    return ScoringLogger()


class _Listener:
    """A client of the guardrails listener, with the facts for headers that are still to be sent."""

    def __init__(self, url: str, token: str, timeout_s: float, *, fail_closed: bool) -> None:
        """Make a client of the listener at `url`; `token` is sent as a bearer token."""
        self._at, self._token = f"{url.rstrip('/')}/litellm", token
        self._timeout_s, self._fail_closed = timeout_s, fail_closed
        self._facts: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def keep(self, data: Any, facts: dict[str, Any]) -> None:
        """Keep the facts about a call of LiteLLM until `take`; drop the oldest beyond a limit."""
        self._facts[data.get("litellm_call_id") or ""] = facts
        while len(self._facts) > _MOST_CALLS:
            self._facts.popitem(last=False)

    def take(self, data: Any) -> dict[str, Any]:
        """Return the facts that were kept for this call, and forget them; {} if there are none."""
        return self._facts.pop(data.get("litellm_call_id") or "", {})

    async def ask(self, data: Any, caller: Any, response: Any) -> dict[str, Any]:
        """Ask the listener about a reply, and return the facts of its member `pinocchio`.

        Raises LiteLLM's error (FastAPI's HTTPException) for a withheld reply. Where the listener
        does not answer, the status is `error`, or with `fail_closed` the reply is withheld.
        """
        visit = {
            "request": {name: data[name] for name in _REQUEST_FIELDS if data.get(name) is not None},
            "response": response.model_dump(mode="json"),
            "user_api_key_alias": getattr(caller, "key_alias", None),
            "user_api_key_team_alias": getattr(caller, "team_alias", None),
        }
        body = json.dumps(visit, default=str).encode()
        try:
            answer = await asyncio.to_thread(self._post, body)
        except (OSError, ValueError):  # HTTP errors are OSErrors
            answer = {"verdict": not self._fail_closed, "data": {**_UNKNOWN}}
        facts: dict[str, Any] = answer.get("data") or {}
        if not answer.get("verdict"):
            raise _withheld_error(facts)
        return facts

    def _post(self, body: bytes) -> Any:
        """Send a JSON body to the listener and return its answer; raises OSError, ValueError."""
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        request = urllib.request.Request(self._at, body, headers)
        with urllib.request.urlopen(request, timeout=self._timeout_s) as reply:
            return json.load(reply)


def _is_chat(data: Any, response: Any) -> bool:
    """Return whether a reply is a chat completion of LiteLLM, and not, say, an embedding."""
    return "messages" in data and hasattr(response, "choices") and hasattr(response, "model_dump")


def _finishes(chunk: Any) -> bool:
    """Return whether a chunk of a stream ends one of its choices."""
    return any(each.finish_reason is not None for each in getattr(chunk, "choices", None) or ())


def _put_on(chunk: Any, facts: dict[str, Any]) -> None:
    """Set a chunk's `pinocchio` to the facts, in place.

    `provider_specific_fields` becomes {} where it is None or missing, as LiteLLM omits unknown
    members without it.
    """
    chunk.pinocchio = facts
    if getattr(chunk, "provider_specific_fields", None) is None:
        chunk.provider_specific_fields = {}


def _headers(facts: dict[str, Any]) -> dict[str, str]:
    """Return the facts as response headers, such as `x-pinocchio-confidence: 0.9312`."""
    fields = {_HEADERS[name]: facts[name] for name in _HEADERS if facts.get(name) is not None}
    return {name: _in_header(value) for name, value in fields.items()}


def _in_header(value: Any) -> str:
    """Return a fact as the text of a header: lists with commas, numbers with four decimals."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _withheld_error(facts: dict[str, Any]) -> Exception:
    """Return the HTTPException (status 422) for a withheld reply, with its facts and headers.

    It is FastAPI's, with which LiteLLM's proxy is built; clients do not retry this status.
    """
    review_id = facts.get("review_id")
    text = "the reply is held for review" if review_id else "the reply is withheld"
    text += f" ({review_id})" if review_id else ""
    code = facts.get("code") or ("held_for_review" if review_id else "withheld")
    detail = {"error": text, "code": code, "pinocchio": facts}
    error: Exception = import_module("fastapi").HTTPException(_WITHHELD, detail, _headers(facts))
    return error
