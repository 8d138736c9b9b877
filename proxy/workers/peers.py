"""A worker's view of the others: it asks them, tells them, and answers what they ask.

    peers.on("result", lambda key: results.kept(*key))
    found = await peers.find("result", (request_id, key_hash))

All of it goes through the supervisor, and only where a worker lacks something: requests cost
nothing more. One thread reads; handlers are called on it and must not wait for long.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

import structlog

from proxy.wire.http import place
from proxy.workers.board import Board
from proxy.workers.channel import Channel, Message

log = structlog.get_logger(__name__)

ANSWER_S: Final = 2.0  # how long anybody waits for the others

Handler = Callable[[Any], Any]


class Peers:
    """What worker `index` knows of the others; number 0 does what is to be done once."""

    def __init__(self, index: int, board: Board, channel: Channel, standing: Any = None) -> None:
        self.index = index
        self.board = board
        self.standing = standing  # what held when this worker was started
        self._channel = channel
        self._handlers: dict[str, Handler] = {}
        self._asked: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)

    @property
    def leads(self) -> bool:
        """Whether this worker does what is to be done once."""
        return self.index == 0

    def on(self, kind: str, handler: Handler) -> None:
        """From now on this is called for what comes of that kind; what it returns is the answer."""
        self._handlers[kind] = handler

    def start(self, on_orphaned: Callable[[], None]) -> None:
        """Begins to read; `on_orphaned` is called, on that thread, when the supervisor is gone."""
        args = (on_orphaned,)
        threading.Thread(target=self._read, args=args, name="peers", daemon=True).start()

    def tell(self, kind: str, body: Any = None, number: int = 0) -> None:
        """Says something to the supervisor, from any thread."""
        with suppress(OSError):  # the supervisor is gone, and this worker is about to end
            self._channel.send(Message(kind, number, body))

    def tell_others(self, kind: str, body: Any = None) -> None:
        """Says something to all other workers, from any thread."""
        self.tell("tell", (kind, body))

    async def find(self, kind: str, body: Any) -> Any:
        """The first answer of another worker; None where nobody has one in time."""
        future = self._ask("find", (kind, body))
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.wrap_future(future), ANSWER_S)
        return None

    def gather(self, kind: str) -> Any:
        """What all workers say, this one too; belongs on a thread. None where it takes too long."""
        with suppress(TimeoutError):
            return self._ask("gather", (kind, None)).result(ANSWER_S)
        return None

    def _ask(self, how: str, what: tuple[str, Any]) -> Future[Any]:
        future: Future[Any] = Future()
        number = next(self._numbers)
        self._asked[number] = future
        future.add_done_callback(lambda _: self._asked.pop(number, None))
        self.tell(how, what, number)
        return future

    # --- on the reading thread --------------------------------------------------------------------

    def _read(self, on_orphaned: Callable[[], None]) -> None:
        for message in self._channel.messages():
            try:
                self._take(message)
            except Exception as error:  # a fault of ours; the others wait for their time alone
                log.error("peer_message_failed", message=message.kind, **place(error))
        on_orphaned()

    def _take(self, message: Message) -> None:
        kind, number, body = message
        if kind == "answered":
            future = self._asked.get(number)
            if future is not None and future.set_running_or_notify_cancel():
                future.set_result(body)
        elif kind == "asked":
            what, given = body
            handler = self._handlers.get(what)
            answer = None if handler is None else handler(given)
            self.tell("answer", answer, number)
        elif (handler := self._handlers.get(kind)) is not None:
            handler(body)
