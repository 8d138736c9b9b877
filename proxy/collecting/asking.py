"""Puts many requests to models, so many at a time, each until it is answered or hopeless.

What may pass is tried again: silence, broken connections, statuses that say so (408, 409, 425, 429
and 5xx), and a 200 that holds no completion. Between attempts the wait doubles, or is what upstream
asked for. A key that is refused (401, 403) ends all of it: the next requests would fail as well.
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

from proxy.collecting.kept_answers import KeptAnswers
from proxy.errors import ExitStatus, ProxyError, StartupError, UpstreamTimeoutError
from proxy.upstreams.router import Router
from proxy.upstreams.upstream import UpstreamReply, UpstreamRequest
from proxy.wire.encoding import decoded
from proxy.wire.json_splice import dumps

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
class Ask:
    """One chat completion's request, of which `beside` are further members.

    The same body is the same request, whenever it is made, but for a sample of another `number`; it
    is written when it is needed, since images in it may be large.
    """

    model: str
    messages: Sequence[Json]
    beside: Mapping[str, Any]
    number: int = 0

    @property
    def body(self) -> bytes:
        return dumps({"model": self.model, "messages": list(self.messages), **self.beside})

    @cached_property
    def key(self) -> str:
        again = f"\n{self.number}".encode() if self.number else b""
        return hashlib.sha256(self.body + again).hexdigest()[:32]

    @property
    def characters(self) -> int:
        """How long it is, an image as long as the tokens that one comes to, about."""
        text, images = _IMAGE.subn(b"", self.body)
        return len(text) + IMAGE_CHARACTERS * images


class RefusedError(Exception):
    """A reply that will not be another one however often it is asked for; `reason` is one word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PassingError(RefusedError):
    """What may be over at the next attempt, after `wait_s` where upstream said so."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class TooExpensiveError(Exception):
    """What was answered so far has cost as much as it may."""


@dataclass
class Asking:
    """Asks models and keeps what they answer; `failed` counts what came to nothing, by reason.

    `note` is called for each answer, and may raise to end the work; `told` for each attempt that
    failed.
    """

    router: Router
    kept: KeptAnswers
    concurrency: int = 8
    attempts: int = 6
    timeout_s: float = 300.0
    note: Callable[[Ask, Json], None] = lambda ask, answer: None
    failed: Counter[str] = field(default_factory=Counter)
    retries: int = 0

    async def ask_all(self, asks: Sequence[Ask], advance: Callable[[], None]) -> None:
        """Ask what is not answered yet; raises StartupError where a key is refused."""
        waiting = iter([ask for ask in {each.key: each for each in asks}.values()])
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.concurrency):
                    group.create_task(self._work(waiting, advance))
        except* (StartupError, TooExpensiveError) as errors:
            raise errors.exceptions[0] from None

    async def _work(self, waiting: Any, advance: Callable[[], None]) -> None:
        for ask in waiting:
            if ask.key not in self.kept:
                await self._ask(ask)
            advance()

    async def _ask(self, ask: Ask) -> None:
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

    async def _answer(self, ask: Ask) -> Json:
        """The answer as it is kept; raises RefusedError, and StartupError for a refused key."""
        try:
            name = self.router.name_for(ask.model)
            request = UpstreamRequest(
                "POST", "/chat/completions", _HEADERS, ask.body, model=ask.model
            )
            reply = await self.router.upstream(name).send(request)
            try:
                body = await decoded(await reply.read(MAX_REPLY), reply.header(b"content-encoding"))
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
        return _kept(ask, body)


def _refuse(reply: UpstreamReply) -> None:
    """Raises what a status means."""
    reason = f"status {reply.status}"
    if reply.status in PASSING or reply.status >= 500:
        raise PassingError(reason, _asked_s(reply))
    raise RefusedError(reason)


def _kept(ask: Ask, body: bytes) -> Json:
    """Of a completion what is needed later; raises PassingError for anything else."""
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
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _asked_s(reply: UpstreamReply) -> float | None:
    """How long upstream asks to wait, where it says so in a number."""
    for name, unit_s in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        try:
            return float(reply.header(name) or "") * unit_s
        except ValueError:
            continue
    return None


def _wait_s(attempt: int, asked: float | None) -> float:
    """How long to wait after an attempt; a little by chance, so that not all come back at once."""
    if asked is not None and asked >= 0:  # nor a number that is none
        return min(asked, LONGEST_WAIT_S)
    return float(
        min(FIRST_WAIT_S * 2 ** (attempt - 1), LONGEST_WAIT_S) * random.uniform(0.75, 1.25)
    )
