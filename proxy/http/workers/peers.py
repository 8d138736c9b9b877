"""A worker's view of the others: it asks them, sends to them, and answers their questions.

    peers.on("result", lambda key: results.kept(*key))
    found = await peers.find("result", (request_id, key_hash))

All messages go through the supervisor, and only where a worker lacks something: ordinary requests
cost nothing more. One thread reads; it calls the handlers, which must not block for long.
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

from proxy.http.wire.http import place
from proxy.http.workers.board import Board
from proxy.http.workers.channel import Channel, Message

log = structlog.get_logger(__name__)

ANSWER_S: Final = 2.0  # the longest wait for an answer

Handler = Callable[[Any], Any]


class Peers:
    """Worker `index`'s connection to the others; worker 0 does the work that is done only once."""

    def __init__(self, index: int, board: Board, channel: Channel, standing: Any = None) -> None:
        self.index = index
        self.board = board
        self.standing = standing  # the state in force when this worker was started
        self._channel = channel
        self._handlers: dict[str, Handler] = {}
        self._futures: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)

    @property
    def leads(self) -> bool:
        """Whether this worker does the work that is done only once."""
        return self.index == 0

    def on(self, kind: str, handler: Handler) -> None:
        """Set the handler of a kind of message; its return value is the answer to a question."""
        self._handlers[kind] = handler

    def start(self, on_orphaned: Callable[[], None]) -> None:
        """Start the reading thread; it calls `on_orphaned` when the supervisor is gone."""
        args = (on_orphaned,)
        threading.Thread(target=self._read, args=args, name="peers", daemon=True).start()

    def tell(self, kind: str, body: Any = None, number: int = 0) -> None:
        """Send a message to the supervisor, from any thread; do nothing where it is gone."""
        with suppress(OSError):  # the supervisor is gone, and this worker is about to end
            self._channel.send(Message(kind, number, body))

    def tell_others(self, kind: str, body: Any = None) -> None:
        """Send a message to all other workers, from any thread."""
        self.tell("tell", (kind, body))

    async def find(self, kind: str, body: Any) -> Any:
        """Return the first answer of another worker, or None where none comes within ANSWER_S."""
        future = self._ask("find", (kind, body))
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.wrap_future(future), ANSWER_S)
        return None

    def gather(self, kind: str) -> Any:
        """Return the answers of all workers, this one included, as a `WorkerAnswers`.

        Returns None where they take longer than ANSWER_S. Blocks, so call it on a thread.
        """
        with suppress(TimeoutError):
            return self._ask("gather", (kind, None)).result(ANSWER_S)
        return None

    def _ask(self, kind: str, body: tuple[str, Any]) -> Future[Any]:
        """Send a question (`kind` is "find" or "gather") and return the future of its answer."""
        future: Future[Any] = Future()
        number = next(self._numbers)
        self._futures[number] = future
        future.add_done_callback(lambda _: self._futures.pop(number, None))
        self.tell(kind, body, number)
        return future

    # --- on the reading thread --------------------------------------------------------------------

    def _read(self, on_orphaned: Callable[[], None]) -> None:
        """Handle messages until the supervisor is gone, then call `on_orphaned`; log errors."""
        for message in self._channel.messages():
            try:
                self._take(message)
            except Exception as error:  # a fault of ours; the asker waits until its time is up
                log.error("peer_message_failed", message=message.kind, **place(error))
        on_orphaned()

    def _take(self, message: Message) -> None:
        """Handle a message: an answer to our question, a question to answer, or a notification."""
        kind, number, body = message
        if kind == "answered":
            future = self._futures.get(number)
            if future is not None and future.set_running_or_notify_cancel():
                future.set_result(body)
        elif kind == "asked":
            topic, question = body
            handler = self._handlers.get(topic)
            answer = None if handler is None else handler(question)
            self.tell("answer", answer, number)
        elif (handler := self._handlers.get(kind)) is not None:
            handler(body)
