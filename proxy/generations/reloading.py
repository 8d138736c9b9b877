"""The change from one generation of the configuration to the next, while requests go on.

Changed files are read and checked on another thread. If they cannot be used, the log says so and
the old configuration stays. Otherwise the new one is in force from the next request on. The old
one's connections are closed when its last request has ended.

With several workers the supervisor watches the files, and each worker prepares the new generation
when it is asked to: only when all have, all swap (`proxy/http/workers/supervisor.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from policies import InvalidDocumentError
from proxy.config.file_watcher import ConfigWatch
from proxy.config.sections import CalibratorConfig, Config
from proxy.config.setup import Setup, problems_of
from proxy.errors import StartupError, StoreError
from proxy.gate.live_work import LiveWork
from proxy.generations.generation import Generation, Parts
from proxy.http.wire.http import place
from proxy.http.workers.peers import Peers
from proxy.store.database.client_keys import ClientKey, KeyStore

log = structlog.get_logger(__name__)

NEEDS_RESTART = (
    *("calibrator", "store", "records", "limits", "admin", "webhooks", "telemetry"),
    *("workers", "guardrails"),
)


NOTIFIED_LOOK_EVERY_S = 2.0  # between checks of the keys, while notifications of changes arrive


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reasons why the files cannot be used, and since when (seconds since the epoch)."""

    at: float
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GenerationState:
    """The state that a proxy starts with; a worker that starts later gets the state in force."""

    setup: Setup
    number: int = 1
    refusal: Refusal | None = None
    refusals: int = 0
    taken_at: float = field(default_factory=time.time)
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class _NextGeneration:
    """A generation that is not in use yet, and the keys that it was made with."""

    generation: Generation
    version: tuple[int, int] | None
    keys: list[ClientKey]


class Generations:
    """The holder of the `current` generation; `reload` reads the setup, or raises StartupError."""

    def __init__(
        self, state: GenerationState, parts: Parts, reload: Callable[[], Setup] | None
    ) -> None:
        self.current = first = Generation(state.number, state.setup, parts)
        self._parts = parts
        self._reload = reload
        self._retired: list[Generation] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._newest = first  # set on the watch's thread; about to be the current one
        self._suspects: frozenset[Path] = frozenset()  # files with the mistakes of a refused setup
        self.refusal = state.refusal  # of the files as they are now
        self.refusals = state.refusals  # the number of refusals since the start
        self.taken_at = state.taken_at  # when the newest usable configuration was read
        self._prepared: _NextGeneration | None = None  # waits for the supervisor's swap
        self._lock = threading.RLock()  # for the newest generation and the version of the keys
        self._keys = KeyStore(first.setup.config.store)
        self._keys_version: tuple[int, int] | None = None
        self._are_keys_readable = True
        self._known: list[ClientKey] = []
        self._next_end = math.inf  # when the next key expires
        self.is_notified = False  # whether notifications of changed keys arrive
        self._keys_looked_at = 0.0  # by time.monotonic
        self.live = LiveWork()
        self._watch = ConfigWatch(self._files, self._on_change, self._look_at_keys)

    async def start(self) -> None:
        """Read the keys where they are required, and start the watch.

        Raises StoreError where required keys cannot be read.
        """
        self._loop = asyncio.get_running_loop()
        if self.current.admission.needs_keys:
            self._keys_version, keys = await asyncio.to_thread(self._read_keys)
            self._use_keys(self.current, keys)
            if not keys:
                log.warning("no_client_keys", hint="pinocchio keys create makes one")
        if self._reload is not None or self.current.admission.needs_keys:
            self._watch.start()

    async def stop(self) -> None:
        """End watching the files, and close the store of keys and the connections to upstreams."""
        await asyncio.to_thread(self._watch.stop)
        self._keys.close()
        for generation in self._retired:
            await generation.router.aclose(kept=self.current.router.upstreams)
        await self.current.router.aclose()

    def ask(self) -> None:
        """Ask for a reload, as if a file had changed; signal handlers may call this."""
        self._watch.ask()

    def join(self, peers: Peers) -> None:
        """Let the supervisor of several workers decide when to read the files and to use them."""
        peers.on("prepare", lambda number: self._begin_to_prepare(peers, number))
        peers.on("swap", self._swap_prepared)
        peers.on("refused", self._on_refusal)

    @property
    def in_flight(self) -> int:
        """The number of requests that are being answered, by any generation."""
        return sum(each.in_flight for each in (self.current, *self._retired))

    async def serve(self, generation: Generation, work: Awaitable[None]) -> None:
        """Await the work of a request, and keep its generation open until it ends."""
        generation.in_flight += 1
        try:
            await work
        finally:
            generation.in_flight -= 1
            if not generation.in_flight and generation.is_retired:
                self.close_unused()

    # --- on the watch's thread ------------------------------------------------------------------

    def _files(self) -> frozenset[Path]:
        """Return the files to watch; none if reloading is off or another process watches them.

        They include those at fault in the last refusal.
        """
        if self._reload is None or self._parts.peers is not None:
            return frozenset()
        return self._suspects | self._newest.setup.files

    def _on_change(self) -> None:
        """Read the configuration again and use it, or note and log why it is refused.

        With several workers, only tells the process that leads them.
        """
        if self._parts.peers is not None:
            self._parts.peers.tell("reload")
            return
        if self._reload is None:
            return
        before = self._newest
        try:
            self._take(self._prepare(self._reload()))
        except (StartupError, StoreError) as error:
            self._suspects = suspects_of(error)
            problems = str(error).splitlines()
            self._refuse(tuple(problems))
            log.error(
                "configuration_refused",
                problems=problems,
                generation=before.number,
                hint="still using the previous configuration",
            )
        except Exception as error:
            self._refuse(("the proxy failed to read it; its log says where",))
            log.error("configuration_refused", generation=before.number, **place(error))

    def _refuse(self, problems: tuple[str, ...]) -> None:
        self.refusal = Refusal(time.time(), problems)
        self.refusals += 1

    def _prepare(self, setup: Setup) -> _NextGeneration:
        """Make the next generation from a setup, with its keys, without using it yet.

        Logs changed sections that need a restart. Raises StartupError and StoreError.
        """
        before = self._newest
        setup, unchanged = with_what_stays(before.setup, setup)
        if unchanged and self._leads:
            log.warning(
                "restart_needed", sections=unchanged, hint="these stay as they were at start"
            )
        generation = Generation(before.number + 1, setup, self._parts, before)
        version, keys = self._read_keys() if setup.config.needs_keys else (None, [])
        generation.admission.use_keys(keys)
        return _NextGeneration(generation, version, keys)

    def _take(self, prepared: _NextGeneration) -> None:
        """Make a prepared generation and its keys the current ones, soon, on the event loop.

        May be called from any thread. Clears the last refusal.
        """
        generation, keys = prepared.generation, prepared.keys
        with self._lock:
            self._newest, self._keys_version = generation, prepared.version
        self._suspects, self.refusal, self.taken_at = frozenset(), None, time.time()
        self._loop.call_soon_threadsafe(self._use_keys, generation, keys)
        self._loop.call_soon_threadsafe(self._swap, generation)

    @property
    def _leads(self) -> bool:
        return self._parts.peers is None or self._parts.peers.leads

    # --- under a supervisor -----------------------------------------------------------------------

    def _begin_to_prepare(self, peers: Peers, number: int) -> None:
        """Prepare on another thread: reading may take a while, and other workers need answers."""
        args = peers, number
        threading.Thread(target=self._prepare_for, args=args, name="prepare", daemon=True).start()

    def _prepare_for(self, peers: Peers, number: int) -> None:
        """Read generation `number` and tell the leading process its digest, or the problems.

        The digest is None if the configuration is refused or has another number here.
        """
        digest: str | None = None
        problems: tuple[str, ...] = ()
        try:
            assert self._reload is not None
            setup = self._reload()
            own_digest, self._prepared = digest_of(setup), self._prepare(setup)
            if self._prepared.generation.number == number:
                digest = own_digest
        except (StartupError, StoreError) as error:
            problems = tuple(str(error).splitlines())
        except Exception as error:
            log.error("configuration_refused", generation=self._newest.number, **place(error))
        peers.tell("prepared", (digest, problems), number)

    def _swap_prepared(self, number: int) -> None:
        """Use the generation that was prepared, if it has this number; drops it otherwise."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.generation.number == number:
            self._take(prepared)

    def _on_refusal(self, refusal: Refusal) -> None:
        self.refusal, self._prepared = refusal, None
        self.refusals += 1

    # --- keys -------------------------------------------------------------------------------------

    def _look_at_keys(self) -> None:
        """Check whether keys have changed; at long intervals where changes are notified.

        Between them only expired keys are looked for.
        """
        passed_s = time.monotonic() - self._keys_looked_at
        if self.is_notified and passed_s < NOTIFIED_LOOK_EVERY_S:
            self._look_at_times()
        else:
            self.look_at_keys()

    def look_at_keys(self) -> None:
        """Read the keys again if they have changed, and use them soon; not on the event loop."""
        with self._lock:
            self._keys_looked_at = time.monotonic()
            self._look_at_keys_of_newest()

    def _look_at_keys_of_newest(self) -> None:
        """Read the keys of the newest generation again if the store has changed, and use them.

        Keys that cannot be read are logged once, and the known ones stay valid.
        """
        if not self._newest.admission.needs_keys:
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
            self._on_change()  # a key may have been the reason of the refusal

    def _look_at_times(self) -> None:
        """End the requests of keys that have expired since the last look, soon."""
        if self._next_end <= time.time():
            self._next_end = math.inf  # set again on the event loop
            self._loop.call_soon_threadsafe(self._end_with_keys)

    def _read_keys(self) -> tuple[tuple[int, int], list[ClientKey]]:
        version = self._keys.version()  # read first, so that a later change is seen next time
        return version, self._keys.all()

    # --- on the event loop ----------------------------------------------------------------------

    def _use_keys(self, generation: Generation, keys: list[ClientKey]) -> None:
        """Let these keys in from now on, and end the requests whose key is no longer valid."""
        generation.admission.use_keys(keys)
        self._known = keys
        self._end_with_keys()

    def _end_with_keys(self) -> None:
        """End the work for keys that are no longer valid, and note when the next key expires."""
        now = time.time()
        active = [key for key in self._known if key.state(now) == "active"]
        self._next_end = min((key.expires_at or math.inf for key in active), default=math.inf)
        if self.current.admission.needs_keys:
            self.live.end_all_but({key.id for key in active})

    def _swap(self, generation: Generation) -> None:
        """Make a generation the current one, retire the one before, and log it."""
        before, self.current = self.current, generation
        before.is_retired = True
        self._retired.append(before)
        self.close_unused()
        policy = generation.setup.policy
        if self._leads:
            log.info(
                "configuration_reloaded",
                generation=generation.number,
                policy=f"{policy.name}@{policy.digest}",
                calibrator=generation.scores.name,
            )

    def close_unused(self) -> None:
        """Close the upstreams of idle retired generations, unless another generation needs them."""
        drained = [each for each in self._retired if not each.in_flight]
        self._retired = [each for each in self._retired if each.in_flight]
        kept = [u for each in (self.current, *self._retired) for u in each.router.upstreams]
        for generation in drained:
            task = asyncio.create_task(generation.router.aclose(kept))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def suspects_of(error: Exception) -> frozenset[Path]:
    """Return the files that hold the mistakes for which a configuration was refused.

    Empty where they are unknown.
    """
    cause = error.__cause__
    problems = cause.problems if isinstance(cause, InvalidDocumentError) else ()
    return frozenset(Path(problem.source) for problem in problems)


def digest_of(setup: Setup) -> str:
    """Return the SHA-256 of paths and content of the setup's files, as hexadecimal text.

    Processes that read the same files have the same.
    """
    digest = hashlib.sha256()
    for path in sorted(setup.files):
        text = path.read_bytes() if path.is_file() else b""
        digest.update(b"%b\0%d\0%b" % (str(path).encode(), len(text), text))
    return digest.hexdigest()


def with_what_stays(before: Setup, after: Setup) -> tuple[Setup, list[str]]:
    """Return the new setup with the old values of sections that need a restart.

    Also returns the names of those sections in which old and new differ.
    """
    config, unchanged = _with_what_stays(before.config, after.config)
    setup = replace(after, config=config)
    if "calibrator" in unchanged:  # the new files may be for another checkpoint
        old = before.recalibrations, before.of_stand_in
        setup = replace(setup, recalibrations=old[0], of_stand_in=old[1], facts=before.facts)
    return setup, unchanged


def _with_what_stays(before: Config, after: Config) -> tuple[Config, list[str]]:
    """Return the new configuration with the old sections that need a restart, and their names.

    Only the names of sections that differ are returned. Recalibrations and facts of the calibrator
    and its stand-in need no restart.
    """
    kept = {name: getattr(before, name) for name in NEEDS_RESTART}
    if _without_files(before.calibrator) == _without_files(after.calibrator):
        del kept["calibrator"]
    unchanged = [name for name, value in kept.items() if getattr(after, name) != value]
    return after.model_copy(update=kept), unchanged


def _without_files(calibrator: CalibratorConfig) -> CalibratorConfig:
    """Return the section without the recalibrations and facts that it names."""
    plain = calibrator.model_copy(update={"recalibration": (), "facts": None})
    if plain.stand_in is None:
        return plain
    stand_in = plain.stand_in.model_copy(update={"recalibration": ()})
    return plain.model_copy(update={"stand_in": stand_in})
