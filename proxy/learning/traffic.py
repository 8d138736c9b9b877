"""What a policy uses beyond the current reply: recent confidences, and its certificate.

Only policies with `lowest_share` or `max_error` need it (`Policy.follows_traffic`). Everything
happens on the event loop, except reads of files and the database, which a task makes every second.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from policies import (
    Certificate,
    Facts,
    InvalidDocumentError,
    Policy,
    RecentConfidences,
    SeenConversations,
    load_certificate,
)
from proxy.config.file_watcher import FileState, file_state
from proxy.errors import StoreError
from proxy.learning.certificates import CertifiedPolicy
from proxy.store.database.verdicts import VerdictStore, Withdrawal
from proxy.store.record.reader import (
    RecentConfidence,
    RecordedExchange,
    recent_confidences,
    verdicts_after,
)
from proxy.store.verdicts.drift import drifted_calibrators

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 1.0
MOST_KEYS: Final = 256  # keys with recent confidences of their own


@dataclass(slots=True)
class _Recent:
    """The confidences of recent replies for a policy and route, one of each conversation."""

    confidences: RecentConfidences = field(default_factory=RecentConfidences)
    counted: SeenConversations = field(default_factory=SeenConversations)

    def add(self, confidence: float, conversation: str | None, at_s: float) -> None:
        """Add a confidence, unless another reply of its conversation has counted lately.

        `at_s` is the time of the reply, in seconds.
        """
        if self.counted.is_first(conversation, at_s):
            self.confidences.add(confidence)


@dataclass(slots=True)
class _News:
    """The certificates, withdrawals, verdicts and drifted calibrators that a read found."""

    certificates: list[tuple[CertifiedPolicy, Certificate | None]]
    withdrawn: list[Withdrawal]
    verdicts: list[tuple[int, RecordedExchange]]
    distrusted: set[str]  # calibrators whose calibration has drifted


class Traffic:
    """The traffic and the certificates of a proxy's policies, kept apart for each policy."""

    def __init__(self, url: str, look_every_s: float = LOOK_EVERY_S) -> None:
        self._url = url
        self._look_every_s = look_every_s
        # by policy, route and checkpoint, since confidences of others cannot be compared
        self._recent: dict[tuple[str, str, str], _Recent] = {}
        self._of_key: dict[tuple[str, str, str, str], _Recent] = {}  # by key as well
        self._followed: dict[tuple[str, str], CertifiedPolicy] = {}
        self._file_states: dict[Path, FileState] = {}
        self._last_verdict = 0
        self._found: list[Withdrawal] = []  # all known withdrawals
        self._unwritten: list[Withdrawal] = []
        self._findings: VerdictStore | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def open(self, policies: Iterable[Policy], route_of: Callable[[str], str] = str) -> None:
        """Load what the record and the store know about these policies; raises StoreError.

        `route_of` returns the route of a model's name. Only policies that follow traffic are
        loaded.
        """
        following = [policy for policy in policies if policy.follows_traffic]
        for policy in following:
            self._follow(policy)
            if "share_below" in policy.looks_at:
                for each in await asyncio.to_thread(self._recent_confidences, policy.name):
                    about = policy.name, route_of(each.model), checkpoint_of(each.calibrator)
                    for recent in self._recent_of(about, each.key):
                        recent.add(each.confidence, each.conversation, each.at)
        if following:
            await self._refresh()

    async def aclose(self) -> None:
        """Stop the task, write the withdrawals that are not written yet, and close the store.

        A failure to write is logged.
        """
        if self._refreshing is not None:
            self._refreshing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._refreshing
        if self._findings is not None:
            try:
                await asyncio.to_thread(self._write)
            except StoreError as error:
                log.error("withdrawal_not_written", reason=error.message)
            self._findings.close()
            self._findings = None

    def certificates(self, calibrators: Container[str]) -> list[tuple[str, str, bool]]:
        """Return (name, certificate file's name, validity) of each policy with a certificate.

        Validity is whether all grants for these calibrators count, and there are any. May be called
        from any thread.
        """
        return [
            (each.original.name, path.name, each.counts_for(calibrators))
            for each in tuple(self._followed.values())
            if (path := each.original.certificate_path) is not None
        ]

    def policy_for(
        self, policy: Policy, facts: Facts, route: str, *, is_new: bool = True
    ) -> Policy:
        """Return the policy with its current certificate, and set the facts that come from traffic.

        `facts.share_below` is changed in place, if the policy reads it. Confidences are compared
        with those of the same calibrator and the same `route` of the configuration, whatever the
        model's name, and of the same key once there are enough. A reply that `is_new` counts as
        traffic, once for each conversation. Monitors look only at requests for one choice.
        """
        if "share_below" in policy.looks_at:
            self._rank(policy, facts, route, is_new)
        followed = self._follow(policy)
        if is_new and facts.n == 1 and (withdrawal := followed.see(facts)):
            self._note(withdrawal)
        return followed.policy

    def _rank(self, policy: Policy, facts: Facts, route: str, is_new: bool) -> None:
        """Set `facts.share_below`, the share of recent confidences below this one.

        They are those of the same policy, route and checkpoint: the key's own if there are enough,
        else those of all keys. It stays None without a confidence, or with too few. A reply that
        `is_new` is added to both afterwards.
        """
        if facts.confidence is None:
            return
        about = policy.name, route, checkpoint_of(facts.calibrator)
        recents = self._recent_of(about, facts.key)
        for recent in recents:  # the key's own if there are enough, else those of all keys
            facts.share_below = recent.confidences.share_below(facts.confidence)
            if facts.share_below is not None:
                break
        if is_new:
            for recent in recents:
                recent.add(facts.confidence, facts.conversation, time.time())

    def _recent_of(self, about: tuple[str, str, str], key: str | None) -> list[_Recent]:
        """Return the recent confidences of a key, if it has a name, and then those of all keys.

        `about` is (policy, route, checkpoint). Missing ones are created. Beyond `MOST_KEYS`, the
        key that was not seen for longest is dropped.
        """
        of_all = self._recent.setdefault(about, _Recent())
        if key is None:
            return [of_all]
        whose = *about, key
        own = self._of_key.pop(whose, None) or _Recent()
        self._of_key[whose] = own
        if len(self._of_key) > MOST_KEYS:
            del self._of_key[next(iter(self._of_key))]
        return [own, of_all]

    def _follow(self, policy: Policy) -> CertifiedPolicy:
        """Return the certified policy of a policy, created or taken over after a reload.

        The first one with a certificate starts the task that looks for changes.
        """
        key = policy.name, policy.source
        followed = self._followed.get(key)
        if followed is None or followed.original is not policy:
            followed = self._followed[key] = CertifiedPolicy(policy, self._found, followed)
            if policy.certificate_path is not None and self._refreshing is None:
                self._refreshing = asyncio.create_task(self._keep_refreshing())
        return followed

    def _note(self, withdrawal: Withdrawal) -> None:
        """Apply a withdrawal to all policies, and keep it until it is written."""
        self._found.append(withdrawal)
        self._unwritten.append(withdrawal)
        for followed in self._followed.values():
            followed.drop([withdrawal])

    # --- files and the database -----------------------------------------------------------------

    async def _keep_refreshing(self) -> None:
        """Look for changes forever, every `look_every_s`; an error of the store is logged."""
        while True:
            try:
                await self._refresh()
            except StoreError as error:
                log.error("traffic_not_read", reason=error.message)
            await asyncio.sleep(self._look_every_s)

    async def _refresh(self) -> None:
        """Apply what changed in files and the database since the last look."""
        async with self._lock:
            news = await asyncio.to_thread(self._read, tuple(self._followed.values()))
            self._apply(news)

    def _apply(self, news: _News) -> None:
        """Apply what a read found: certificates, withdrawals, verdicts and drifted calibrators."""
        for each, certificate in news.certificates:
            each.renew(certificate)
        self._found = news.withdrawn + self._unwritten
        for each in self._followed.values():
            each.drop(news.withdrawn)
        for id, verdict in news.verdicts:
            self._last_verdict = id
            for each in self._followed.values():
                if withdrawal := each.note_verdict(verdict):
                    self._note(withdrawal)
        for each in tuple(self._followed.values()):
            for withdrawal in each.distrust(news.distrusted):
                self._note(withdrawal)

    def _read(self, followed: Sequence[CertifiedPolicy]) -> _News:
        """Write withdrawals, then return what is new in files and the database.

        Runs on a worker thread. Raises StoreError.
        """
        self._write()
        findings = self._open_store()
        verdicts = verdicts_after(findings.engine, self._last_verdict)
        withdrawn, drifted = findings.withdrawals(), drifted_calibrators(findings.engine)
        # These files are read last, because `_has_changed` notes each change.
        paths = {each.original.certificate_path for each in followed}
        read = {path: _certificates(path) for path in paths if path and self._has_changed(path)}
        certificates = [
            (each, certificate)
            for each in followed
            if (path := each.original.certificate_path)
            for certificate in read.get(path, ())
        ]
        return _News(certificates, withdrawn, verdicts, drifted)

    def _recent_confidences(self, policy: str) -> list[RecentConfidence]:
        """Return the recorded confidences of a policy; runs on a worker thread."""
        return recent_confidences(self._open_store().engine, policy)

    def _open_store(self) -> VerdictStore:
        """Return the store of verdicts, which the first call opens; raises StoreError."""
        if self._findings is None:
            self._findings = VerdictStore(self._url)
        return self._findings

    def _write(self) -> None:
        """Write the withdrawals that are not written yet; raises StoreError.

        Runs on a worker thread.
        """
        while self._unwritten:
            self._open_store().withdraw(self._unwritten[0])
            del self._unwritten[0]

    def _has_changed(self, path: Path) -> bool:
        """Return whether a file has changed since the last call, which this one notes."""
        before, now = self._file_states.get(path), file_state(path)
        self._file_states[path] = now
        return now != before


def _certificates(path: Path) -> list[Certificate | None]:
    """Return the certificate in a file as a list of one, `[None]` where the file is gone.

    The list is empty where the file cannot be used. Both outcomes are logged.
    """
    try:
        certificate = load_certificate(path)
    except InvalidDocumentError as error:
        log.error("certificate_refused", reason=str(error), effect="the one before stays in force")
        return []
    grants = len(certificate.grants) if certificate else 0
    log.info("certificate_loaded", path=str(path), grants=grants)
    return [certificate]


def checkpoint_of(calibrator: str | None) -> str:
    """Return the checkpoint in a calibrator's name: `embedded@3f2a` of `embedded@3f2a+platt@9c1d`.

    An empty text for None.
    """
    return (calibrator or "").partition("+")[0]
