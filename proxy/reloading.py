"""From one generation of the configuration to the next, while requests go on.

What has changed is read and checked on another thread. What cannot be used is told in the log, and
the old configuration stays. Otherwise the new one holds from the next request on; the old one's
connections are closed when its last request has ended.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from policies import InvalidDocumentError
from proxy.config.file_watcher import Watch
from proxy.config.sections import Config
from proxy.config.setup import Setup, problems_of
from proxy.errors import StartupError, StoreError
from proxy.gate.live_work import LiveWork
from proxy.generation import Generation, Parts
from proxy.store.client_keys import ClientKey, KeyStore
from proxy.wire.http import place

log = structlog.get_logger(__name__)

NEEDS_RESTART = ("calibrator", "store", "records", "limits", "admin", "webhooks", "telemetry")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the files as they are cannot be used, since when (seconds since the epoch)."""

    at: float
    problems: tuple[str, ...]


class Reloading:
    """Holds the `current` generation; `reload` gives the setup anew, or raises StartupError."""

    def __init__(self, first: Generation, parts: Parts, reload: Callable[[], Setup] | None) -> None:
        self.current = first
        self._parts = parts
        self._reload = reload
        self._retired: list[Generation] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._newest = first  # on the watch's thread; about to be the current one
        self._suspects: frozenset[Path] = frozenset()  # files in which a refused setup is wrong
        self.refusal: Refusal | None = None  # of what the files say now
        self.refusals = 0  # so many times since the start
        self.taken_at = time.time()  # when the newest configuration that can be used was read
        self._keys = KeyStore(first.setup.config.store)
        self._keys_version: tuple[int, int] | None = None
        self._are_keys_readable = True
        self._known: list[ClientKey] = []
        self._next_end = math.inf  # when the next key expires
        self.live = LiveWork()
        self._watch = Watch(self._files, self._on_change, self._look_at_keys)

    async def start(self) -> None:
        """Raises StoreError where keys are required and cannot be read."""
        self._loop = asyncio.get_running_loop()
        if self.current.needs_keys:
            self._keys_version, keys = await asyncio.to_thread(self._read_keys)
            self._use_keys(self.current, keys)
            if not keys:
                log.warning("no_client_keys", hint="pinocchio keys create makes one")
        if self._reload is not None or self.current.needs_keys:
            self._watch.start()

    async def stop(self) -> None:
        await asyncio.to_thread(self._watch.stop)
        self._keys.close()
        for generation in self._retired:
            await generation.router.aclose(kept=self.current.router.upstreams)
        await self.current.router.aclose()

    def ask(self) -> None:
        self._watch.ask()

    @property
    def in_flight(self) -> int:
        """How many requests are being answered, by any generation."""
        return sum(each.in_flight for each in (self.current, *self._retired))

    # --- on the watch's thread ------------------------------------------------------------------

    def _files(self) -> frozenset[Path]:
        return self._suspects | self._newest.setup.files if self._reload else frozenset()

    def _on_change(self) -> None:
        if self._reload is None:
            return
        before = self._newest
        try:
            self._take(self._reload())
            self.refusal, self.taken_at = None, time.time()
        except (StartupError, StoreError) as error:
            cause = error.__cause__
            problems = cause.problems if isinstance(cause, InvalidDocumentError) else ()
            self._suspects = frozenset(Path(problem.source) for problem in problems)
            told = str(error).splitlines()
            self._refuse(tuple(told))
            log.error(
                "configuration_refused",
                problems=told,
                generation=before.number,
                hint="still using the previous configuration",
            )
        except Exception as error:
            self._refuse(("the proxy failed to read it; its log says where",))
            log.error("configuration_refused", generation=before.number, **place(error))

    def _refuse(self, problems: tuple[str, ...]) -> None:
        self.refusal = Refusal(time.time(), problems)
        self.refusals += 1

    def _take(self, setup: Setup) -> None:
        """Makes the next generation of what was read; raises StartupError, StoreError."""
        before = self._newest
        config, left = _with_what_stays(before.setup.config, setup.config)
        if left:
            log.warning("restart_needed", sections=left, hint="these stay as they were at start")
        setup = replace(setup, config=config)
        if "calibrator" in left:  # what was read may be for another checkpoint
            setup = replace(setup, recalibrations=before.setup.recalibrations)
        generation = Generation(before.number + 1, setup, self._parts, before)
        version, keys = self._read_keys() if config.needs_keys else (None, [])
        generation.use_keys(keys)
        self._newest, self._keys_version, self._suspects = generation, version, frozenset()
        self._loop.call_soon_threadsafe(self._use_keys, generation, keys)
        self._loop.call_soon_threadsafe(self._swap, generation)

    def _look_at_keys(self) -> None:
        """Hands the keys on when somebody has made or revoked one."""
        if not self._newest.needs_keys:
            return
        try:
            if self._keys.version() == self._keys_version:
                self._look_at_times()
                return
            self._keys_version, keys = self._read_keys()
        except StoreError as error:
            if self._are_keys_readable:
                log.error("keys_unreadable", reason=error.message, hint="the known ones still hold")
            self._are_keys_readable = False
            return
        self._are_keys_readable = True
        for problem in problems_of(keys, self._newest.setup):
            log.error("key_unusable", problem=problem)
        self._loop.call_soon_threadsafe(self._use_keys, self._newest, keys)
        if self.refusal is not None:
            self._on_change()  # a key may have been what was in the way

    def _look_at_times(self) -> None:
        """Whether a key has expired, which nobody writes down."""
        if self._next_end <= time.time():
            self._next_end = math.inf  # until the event loop has looked
            self._loop.call_soon_threadsafe(self._end_with_keys)

    def _read_keys(self) -> tuple[tuple[int, int], list[ClientKey]]:
        version = self._keys.version()  # first: what changes meanwhile is seen the next time
        return version, self._keys.all()

    # --- on the event loop ----------------------------------------------------------------------

    def _use_keys(self, generation: Generation, keys: list[ClientKey]) -> None:
        generation.use_keys(keys)
        self._known = keys
        self._end_with_keys()

    def _end_with_keys(self) -> None:
        """Work for keys that are not good any more ends."""
        now = time.time()
        active = [key for key in self._known if key.state(now) == "active"]
        self._next_end = min((key.expires_at or math.inf for key in active), default=math.inf)
        if self.current.needs_keys:
            self.live.end_all_but({key.id for key in active})

    def _swap(self, generation: Generation) -> None:
        before, self.current = self.current, generation
        before.is_retired = True
        self._retired.append(before)
        self.close_unused()
        policy = generation.setup.policy
        log.info(
            "configuration_reloaded",
            generation=generation.number,
            policy=f"{policy.name}@{policy.digest}",
            calibrator=generation.scores.name,
        )

    def close_unused(self) -> None:
        """Closes the upstreams of generations without requests that no other one needs."""
        drained = [each for each in self._retired if not each.in_flight]
        self._retired = [each for each in self._retired if each.in_flight]
        kept = [u for each in (self.current, *self._retired) for u in each.router.upstreams]
        for generation in drained:
            task = asyncio.create_task(generation.router.aclose(kept))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _with_what_stays(before: Config, after: Config) -> tuple[Config, list[str]]:
    """The new configuration with the sections that only a restart changes, and which have.

    Of the calibrator's, the recalibration needs none.
    """
    kept = {name: getattr(before, name) for name in NEEDS_RESTART}
    mended = {"recalibration": after.calibrator.recalibration}
    if before.calibrator.model_copy(update=mended) == after.calibrator:
        del kept["calibrator"]
    left = [name for name, value in kept.items() if getattr(after, name) != value]
    return after.model_copy(update=kept), left
