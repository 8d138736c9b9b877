"""The review desk, for agents whose own framework has stopped a tool call.

    desk = Desk("http://127.0.0.1:8000/v1", key)
    told = desk.hold("call_1", "refund", {"amount": 84.2}, messages)
    told = desk.verdict(told.review_id, wait_s=30)      # open until it is decided

Holding the same call again, from any process, gives the same review. `at_desk` of
`pinocchio.langchain`, `pinocchio.openai_agents` and `pinocchio.pydantic_ai` does both for all calls
that stop a run. This module needs only the standard library.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

_TIMEOUT_S: Final = 30.0
_PAUSE_S: Final = 1.0  # seconds between two tries to reach a restarting proxy
_RESTARTING: Final = (502, 503, 504)  # statuses of a gateway without its proxy
_PATH: Final = "/pinocchio/v1/calls"
EXPIRED: Final = "Nobody approved this call in time."
REJECTED: Final = "A reviewer rejected this call."


class DeskError(Exception):
    """A refusal by the proxy, in its own words; `code` is its machine word."""

    def __init__(self, status: int, code: str | None, message: str) -> None:
        """Make an error of an HTTP status, the machine word `code` (or None) and a sentence."""
        super().__init__(f"{status} {code}: {message}" if code else f"{status}: {message}")
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class HeldCall:
    """The state of a held call; `verdict` is None while it is open.

    `name` and `arguments` are those to run, which after an `edit` are the reviewer's. `message` is
    the text for the model about a rejection, or the reviewer's note. `approvals` says how many
    people it needs (`needed`), and how many have approved it (`given`).
    """

    review_id: str
    state: Literal["open", "released", "rejected", "expired"]
    verdict: Literal["approve", "edit", "reject"] | None
    name: str | None = None
    arguments: Mapping[str, Any] | None = None
    message: str | None = None
    approvals: Mapping[str, int] | None = None

    @property
    def is_open(self) -> bool:
        return self.verdict is None

    @property
    def refusal(self) -> str:
        """The text for the model about a call that is not run."""
        return self.message or (EXPIRED if self.state == "expired" else REJECTED)


@dataclass(frozen=True, slots=True)
class StoppedCall:
    """A tool call that waits for a person; `messages` is the conversation before it."""

    id: str
    name: str
    arguments: Any
    messages: Sequence[Mapping[str, Any]]
    request_id: str | None = None


def made_call(id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return an assistant message that makes one call; `arguments` are JSON text."""
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class Desk:
    """A client of the proxy's review desk.

    `url` is the proxy's, as clients use it, and `key` the key that they send. All other settings
    apply to every call. `approvals` is how many different people have to approve: one number, or a
    number for each tool by its name, where other tools need one. After `escalate_after_s` seconds
    without a verdict a call moves to the queue `escalate_to`. `below` is the threshold of `unsure`,
    which the desk shows beside the confidence.

    While the proxy cannot be reached, as during a restart, methods try again for `patience_s`
    seconds: held calls survive, and a call that is held twice is held once. They raise DeskError,
    also for a `url` without a proxy, and OSError where nothing answers in time.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        queue: str | None = None,
        expires_s: float | None = None,
        escalate_after_s: float | None = None,
        escalate_to: str | None = None,
        approvals: int | Mapping[str, int] = 1,
        below: float | None = None,
        patience_s: float = 60.0,
    ) -> None:
        """Make a client; no request is sent yet. Raises ValueError for half of an escalation."""
        if (escalate_after_s is None) != (escalate_to is None):
            raise ValueError("escalate_after_s and escalate_to go together")
        self._url = url.rstrip("/").removesuffix("/v1") + _PATH
        self._key = key
        escalate = {"after_s": escalate_after_s, "to": escalate_to} if escalate_to else None
        settings = {"queue": queue, "expires_s": expires_s, "escalate": escalate, "below": below}
        self._settings = {name: value for name, value in settings.items() if value is not None}
        self._approvals = approvals
        self._patience_s = patience_s

    def hold(
        self,
        call_id: str,
        name: str,
        arguments: Any,
        messages: Iterable[Mapping[str, Any]],
        *,
        tools: Iterable[Mapping[str, Any]] = (),
        request_id: str | None = None,
        run: str | None = None,
    ) -> HeldCall:
        """Hold a call at the desk, or find it there, and return its state.

        `messages` are those of a chat completion. `run` names the agent's run, to which an approval
        then belongs. Without one, the same call in the same conversation needs a new approval an
        hour after its approval was first read. With a `request_id`, from the proxy's member or
        header, the desk shows the confidence of the reply, and the reply's label is kept. Raises
        DeskError and OSError.
        """
        call = {"id": call_id, "name": name, "arguments": arguments}
        body = {**self._settings, "call": call, "messages": [*messages]}
        if (needed := self._approvals_for(name)) != 1:
            body["approvals"] = needed
        if tools:
            body["tools"] = [*tools]
        if request_id is not None:
            body["request_id"] = request_id
        if run is not None:
            body["run"] = run
        return self._ask(self._url, json.dumps(body).encode())

    def _approvals_for(self, tool: str) -> int:
        """Return how many people have to approve a call of this tool, 1 if nothing is set."""
        approvals = self._approvals
        return approvals if isinstance(approvals, int) else approvals.get(tool, 1)

    def verdict(self, review_id: str, wait_s: float = 0.0) -> HeldCall:
        """Return the state of a held call, after waiting up to `wait_s` seconds for a verdict."""
        return self._ask(f"{self._url}/{review_id}?wait_s={wait_s}", None, wait_s)

    def decided(
        self, stopped: Sequence[StoppedCall], wait_s: float = 0.0, *, run: str | None = None
    ) -> list[HeldCall] | None:
        """Hold these calls and return their verdicts in order, or None while one is open.

        Each open call is waited for at most `wait_s` seconds.
        """
        held = [
            self.hold(
                each.id,
                each.name,
                each.arguments,
                each.messages,
                request_id=each.request_id,
                run=run,
            )
            for each in stopped
        ]
        if wait_s > 0:
            held = [self.verdict(each.review_id, wait_s) if each.is_open else each for each in held]
        return None if any(each.is_open for each in held) else held

    def _ask(self, url: str, body: bytes | None, wait_s: float = 0.0) -> HeldCall:
        """Send a request to the desk, a POST where there is a body, and return the call's state.

        A proxy that restarts is asked again each second for `patience_s`. Raises DeskError for a
        refusal, and OSError where nothing answers in that time.
        """
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        request = urllib.request.Request(url, body, headers)
        give_up = time.monotonic() + self._patience_s
        while True:
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S + wait_s) as reply:
                    return _read_call_state(json.load(reply), url)
            except urllib.error.HTTPError as error:
                desk_error = _error_of(error, url)
                if desk_error.status not in _RESTARTING or time.monotonic() > give_up:
                    raise desk_error from error
            except ValueError as error:  # no JSON
                raise _no_desk(200, url) from error
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() > give_up:
                    raise OSError(f"nothing answers at {url}: {error}") from error
            time.sleep(_PAUSE_S)


def _read_call_state(state: Any, url: str) -> HeldCall:
    """Return the desk's JSON answer as a state; raises DeskError for an answer that is none."""
    if not isinstance(state, dict) or not isinstance(state.get("review_id"), str):
        raise _no_desk(200, url)
    names = ("review_id", "state", "verdict", "name", "arguments", "message", "approvals")
    fields: dict[str, Any] = {name: state.get(name) for name in names}
    return HeldCall(**fields)


def _error_of(error: urllib.error.HTTPError, url: str) -> DeskError:
    """Return the DeskError for an HTTP error, in the proxy's words.

    It says that there is no review desk where the answer is not the desk's own.
    """
    try:
        fields = json.load(error)["error"]
        code, message = fields["code"], fields["message"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return _no_desk(error.code, url)
    if str(code).startswith("upstream_"):  # a proxy relays paths that it does not know
        return _no_desk(404, url)
    if code == "unknown_url" or (error.code == 404 and code is None):
        return _no_desk(error.code, url)
    return DeskError(error.code, code, message)


def _no_desk(status: int, url: str) -> DeskError:
    """Return the error for an address without a review desk."""
    where = url.partition(_PATH)[0]
    return DeskError(status, "no_review_desk", f"no review desk at {where}; is this the proxy?")
