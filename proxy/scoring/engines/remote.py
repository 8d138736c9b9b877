"""A scorer whose scores are computed elsewhere: the common part of all engines over HTTP.

An engine is called on an event loop of its own, on one thread; the threads of the batcher wait
there for their batches, each at most `timeout_s`, whatever the engine does. After several failures
in a row, or one without a connection, the engine counts as down: no batch waits for it any more,
and a probe, the score of a short text, is sent now and then until it answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Protocol, TypeVar

import structlog

from calibrator import CalibratorError, Item, Score
from proxy.scoring.engines.errors import BUSY, DOWN, TIMEOUT, EngineError

log = structlog.get_logger(__name__)

FAILURES = 3  # failures in a row, after which an engine counts as down
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0
PROBE = Item("warm-up", "warm-up")
T = TypeVar("T")


class Engine(Protocol):
    """A server that computes scores; its methods are called on one event loop.

    They raise EngineError, NotScorableError, or CalibratorError for an item without a score.
    """

    address: str  # its location for people, without any key
    reads_images: bool
    reads_tool_use: bool

    async def connect(self) -> str:
        """Check that the server is there as configured, and return the name of its scores."""
        ...

    async def score(self, items: Sequence[Item]) -> list[Score]:
        """Return one score for each item, in order."""
        ...

    async def aclose(self) -> None: ...


def pauses() -> Iterator[float]:
    """Yield the seconds between attempts to reach an engine: doubled each time, up to a limit."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


class RemoteScorer:
    """A Scorer for an engine, made by `connect_to`."""

    def __init__(self, engine: Engine, *, timeout_s: float, concurrency: int) -> None:
        self.concurrency = concurrency  # batches at a time
        self.name = ""  # empty until it is connected
        self._engine = engine
        self._timeout_s = timeout_s
        self._failures = 0
        self._last_reason: str | None = None  # of the last failure in the log
        self._probing: asyncio.Task[None] | None = None  # set while the engine counts as down
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._thread.start()

    @property
    def reads_images(self) -> bool:
        return self._engine.reads_images

    @property
    def reads_tool_use(self) -> bool:
        return self._engine.reads_tool_use

    @property
    def opinion(self) -> str:
        """The provenance of scores that know other replies; empty if the engine reads none."""
        return str(getattr(self._engine, "opinion", ""))

    @property
    def is_down(self) -> bool:
        """Whether the engine failed and is being probed."""
        return self._probing is not None

    def connect(self) -> None:
        """Connect to the engine and compute a first score; raises EngineError."""
        self.name = self._run(self._connect())

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        """Return one score for each item, in order.

        Raises EngineError, immediately if the engine is down, and CalibratorError for items that
        the engine refuses.
        """
        if self.is_down:
            raise EngineError(DOWN, f"{self._engine.address} is down and not asked")
        try:
            scores = self._run(self._in_time(self._engine.score(items)))
        except EngineError as error:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(self._note_failure, error)
            raise
        self._failures, self._last_reason = 0, None
        return scores

    def close(self) -> None:
        """Cancel all running calls, close the connections and end the thread."""
        if self._is_closed:
            return
        self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        if not self._thread.is_alive():
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work on the loop's thread and wait for it here; raises EngineError if closed."""
        closed = EngineError(DOWN, f"{self._engine.address} is not asked any more")
        if self._is_closed:
            work.close()
            raise closed
        try:
            # The limit only matters for work that was submitted after the loop has ended.
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(3 * self._timeout_s)
        except (CancelledError, FutureTimeoutError) as error:
            raise closed from error

    # --- On the event loop ----------------------------------------------------------------------

    async def _connect(self) -> str:
        """Connect to the engine, let it score a short text, and return the name of its scores.

        Raises EngineError if either fails or is too slow.
        """
        name = await self._in_time(self._engine.connect())
        try:
            await self._in_time(self._engine.score([PROBE]))
        except EngineError:
            raise
        except CalibratorError as error:
            text = f"{self._engine.address} gives no score to a short text"
            raise EngineError("engine_answer", text) from error
        return name

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a call of the engine, at most `timeout_s` seconds, and return its result.

        Raises EngineError, whose text begins with the engine's address, also for a timeout and for
        an answer that cannot be read; CalibratorError is raised unchanged.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError as error:
            text = f"{self._engine.address} did not answer within {self._timeout_s:g} s"
            raise EngineError(TIMEOUT, text) from error
        except EngineError as error:
            raise EngineError(error.reason, f"{self._engine.address} {error}") from error
        except CalibratorError:
            raise
        except Exception as error:  # our own fault, in reading an unforeseen answer
            text = f"{self._engine.address} answered what cannot be read ({type(error).__name__})"
            raise EngineError("engine_answer", text) from error

    def _note_failure(self, error: EngineError) -> None:
        """Log a failure and count it; after several, the engine counts as down and is probed.

        A busy engine is not counted; one without a connection is down at once.
        """
        self._log_failure(error)
        if error.reason == BUSY:
            return
        self._failures += 1
        is_enough = self._failures >= FAILURES or error.reason == "engine_unreachable"
        if is_enough and not self.is_down and not self._is_closed:
            log.error(
                "engine_down", engine=self._engine.address, hint="asked again until it answers"
            )
            self._probing = self._loop.create_task(self._probe())

    async def _probe(self) -> None:
        """Try to connect, with growing pauses, until the engine answers under the same name.

        Then it no longer counts as down, which is logged.
        """
        for pause_s in pauses():
            await asyncio.sleep(pause_s)
            try:
                if (name := await self._connect()) == self.name:
                    break
                text = f"{self._engine.address} scores with {name} now, which needs a restart here"
                self._log_failure(EngineError("engine_other", text))
            except EngineError as error:
                self._log_failure(error)
        log.info("engine_up", engine=self._engine.address, calibrator=self.name)
        self._failures, self._last_reason, self._probing = 0, None, None

    def _log_failure(self, error: EngineError) -> None:
        """Log a failure, unless the last one had the same reason."""
        if error.reason != self._last_reason:
            log.error("engine_failed", reason=error.reason, error=str(error), calibrator=self.name)
        self._last_reason = error.reason

    async def _end(self) -> None:
        """Cancel the other tasks of the loop and close the engine's connections."""
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._engine.aclose()


def connect_to(
    open_engine: Callable[[], Engine], *, timeout_s: float, concurrency: int
) -> RemoteScorer:
    """Return a scorer that has given a first score.

    Raises EngineError, with everything closed, where the engine gives none.
    """
    scorer = RemoteScorer(open_engine(), timeout_s=timeout_s, concurrency=concurrency)
    try:
        scorer.connect()
    except BaseException:
        scorer.close()
        raise
    return scorer
