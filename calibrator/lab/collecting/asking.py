"""Sends many requests to models, several at a time, until each is answered or has failed.

Failures that may pass are retried: timeouts, broken connections, statuses that say so (408, 409,
425, 429 and 5xx), and a 200 without a completion. The wait doubles between attempts, unless
upstream names one. A refused key (401, 403) ends the whole run, because the next requests would
fail as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from calibrator.lab.collecting.kept_answers import KeptAnswers
from proxy.errors import ExitStatus, ProxyError, StartupError, UpstreamTimeoutError
from proxy.http.wire.encoding import decode_body
from proxy.http.wire.json_splice import dumps
from proxy.http.wire.upstream import UpstreamReply, UpstreamRequest
from proxy.upstreams.router import Router

Json = dict[str, Any]
PASSING: Final = frozenset({408, 409, 425, 429})
REFUSED_KEY: Final = frozenset({401, 403})
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 60.0
MAX_REPLY: Final = 16 * 2**20
IMAGE_CHARACTERS: Final = 4_000
_IMAGE = re.compile(rb"data:image/[^\"]+")
_HEADERS: Final = [(b"content-type", b"application/json")]


@dataclass(frozen=True, eq=False)
class ModelRequest:
    """A request for a chat completion; `beside` are other members, such as `{"temperature": 0}`.

    Equal bodies are the same request, whenever they are made, except samples with another `number`.
    The body is serialized on demand, since its images may be large.
    """

    model: str
    messages: Sequence[Json]
    beside: Mapping[str, Any]
    number: int = 0

    @property
    def body(self) -> bytes:
        """The request's JSON body."""
        return dumps({"model": self.model, "messages": list(self.messages), **self.beside})

    @cached_property
    def key(self) -> str:
        """The request's identity: 32 hexadecimal digits of a SHA-256 over its body and number."""
        again = f"\n{self.number}".encode() if self.number else b""
        return hashlib.sha256(self.body + again).hexdigest()[:32]

    @property
    def characters(self) -> int:
        """The length of the body in bytes, an image counted as `IMAGE_CHARACTERS` of them."""
        text, images = _IMAGE.subn(b"", self.body)
        return len(text) + IMAGE_CHARACTERS * images


class RefusedError(Exception):
    """A failure that no retry will change; `reason` is a few words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PassingError(RefusedError):
    """A failure that may pass by the next attempt; upstream may name a wait of `wait_s` seconds."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class TooExpensiveError(Exception):
    """The answers so far have cost as much as the run may cost."""


@dataclass
class RequestSender:
    """Sends requests to models and keeps the answers.

    At most `concurrency` requests run at once. Each has at most `attempts` attempts of `timeout_s`
    seconds. `failed` counts the requests that failed for good, by model and reason, such as
    `gpt-4o: status 400`; `retries` counts the further attempts. `note` is called for each answer,
    and may raise to end the work.
    """

    router: Router
    kept: KeptAnswers
    concurrency: int = 8
    attempts: int = 6
    timeout_s: float = 300.0
    note: Callable[[ModelRequest, Json], None] = lambda ask, answer: None
    failed: Counter[str] = field(default_factory=Counter)
    retries: int = 0

    async def ask_all(self, asks: Sequence[ModelRequest], advance: Callable[[], None]) -> None:
        """Send each request whose answer is not kept yet, once, and keep its answer.

        Requests with equal keys count as one. `advance` is called for each distinct request that is
        done: answered before, answered now, or failed for good, which `failed` counts. Raises
        StartupError where a key is refused, and TooExpensiveError where `note` does; both end all
        requests.
        """
        waiting = iter([ask for ask in {each.key: each for each in asks}.values()])
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.concurrency):
                    group.create_task(self._work(waiting, advance))
        except* (StartupError, TooExpensiveError) as errors:
            raise errors.exceptions[0] from None

    async def _work(self, waiting: Any, advance: Callable[[], None]) -> None:
        """Send the unanswered requests of the iterator `waiting`, which workers share, one by one.

        Call `advance` after each, also after those that were already answered.
        """
        for ask in waiting:
            if ask.key not in self.kept:
                await self._ask(ask)
            advance()

    async def _ask(self, ask: ModelRequest) -> None:
        """Send one request until it is answered, refused or has failed `attempts` times.

        An answer is kept and noted. A failure for good is counted in `failed` and not raised; each
        retry is counted in `retries`, after a wait. Raises StartupError for a refused key, and what
        `note` does.
        """
        for attempt in range(1, self.attempts + 1):
            try:
                async with asyncio.timeout(self.timeout_s):
                    answer = await self._answer(ask)
            except (PassingError, TimeoutError) as error:
                found = error if isinstance(error, PassingError) else PassingError("timeout")
                if attempt == self.attempts:
                    self.failed[f"{ask.model}: {found.reason}"] += 1
                    return
                self.retries += 1
                await asyncio.sleep(_wait_s(attempt, found.wait_s))
            except RefusedError as error:
                self.failed[f"{ask.model}: {error.reason}"] += 1
                return
            else:
                self.kept.add(ask.key, answer)
                self.note(ask, answer)
                return

    async def _answer(self, ask: ModelRequest) -> Json:
        """Send a request once and return its answer as `_read_completion` gives it.

        Raises RefusedError for a failure that no retry changes, PassingError for one that may pass,
        and StartupError for a refused key (401, 403).
        """
        try:
            name = self.router.name_for(ask.model)
            request = UpstreamRequest(
                "POST", "/chat/completions", _HEADERS, ask.body, model=ask.model
            )
            reply = await self.router.upstream(name).send(request)
            try:
                body = await decode_body(
                    await reply.read(MAX_REPLY), reply.header(b"content-encoding")
                )
            finally:
                await reply.aclose()
        except UpstreamTimeoutError:
            raise PassingError("timeout") from None
        except ProxyError as error:
            raise (PassingError if error.status >= 500 else RefusedError)(
                error.machine_code
            ) from None
        if reply.status in REFUSED_KEY:
            text = f"upstream {name} refused the key for model {ask.model} ({reply.status})"
            raise StartupError(ExitStatus.UNUSABLE_INPUT, text)
        if reply.status != 200:
            _refuse(reply)
        return _read_completion(ask, body)


def _refuse(reply: UpstreamReply) -> None:
    """Raise the error of a status other than 200: PassingError if it may pass, else RefusedError.

    408, 409, 425, 429 and 5xx may pass; the error then has the wait that upstream names, if any.
    """
    reason = f"status {reply.status}"
    if reply.status in PASSING or reply.status >= 500:
        raise PassingError(reason, _retry_after_s(reply))
    raise RefusedError(reason)


def _read_completion(ask: ModelRequest, body: bytes) -> Json:
    """Return the parts of a completion's body that are kept, as a dict for JSON.

    It has `model` (the requested one), `message` (the first choice's, without members that are
    null), `finish_reason`, `prompt_tokens` and `completion_tokens` (0 where none is stated). Raises
    PassingError for a body that is not a completion.
    """
    try:
        found = json.loads(body)
        choice = found["choices"][0]
        message = choice["message"]
        if not isinstance(message, dict):
            raise TypeError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise PassingError("no completion") from None
    usage = found.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return {
        "model": ask.model,
        "message": {name: value for name, value in message.items() if value is not None},
        "finish_reason": choice.get("finish_reason"),
        "prompt_tokens": _count(counts.get("prompt_tokens")),
        "completion_tokens": _count(counts.get("completion_tokens")),
    }


def _count(value: Any) -> int:
    """Return `value` if it is a whole number from 0 on; 0 for anything else, also for True."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _retry_after_s(reply: UpstreamReply) -> float | None:
    """Return the seconds to wait that the header `retry-after-ms`, or else `retry-after`, names.

    It is None where neither holds a number, as with a date.
    """
    for name, unit_s in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        try:
            return float(reply.header(name) or "") * unit_s
        except ValueError:
            continue
    return None


def _wait_s(attempt: int, retry_after_s: float | None) -> float:
    """Return the seconds to wait after attempt number `attempt`, from 1, before the next.

    It is `retry_after_s`, which upstream named, if it is not negative. Otherwise it is
    `FIRST_WAIT_S`, doubled with each further attempt and varied by up to a quarter at random, so
    that requests do not all return at once. `LONGEST_WAIT_S` limits it (before the variation).
    """
    if retry_after_s is not None and retry_after_s >= 0:  # excludes NaN too
        return min(retry_after_s, LONGEST_WAIT_S)
    return float(
        min(FIRST_WAIT_S * 2 ** (attempt - 1), LONGEST_WAIT_S) * random.uniform(0.75, 1.25)
    )
