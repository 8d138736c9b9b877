"""A thread that looks for drift once a minute and logs each finding once."""

from __future__ import annotations

from typing import Final

import structlog

from proxy.errors import StoreError
from proxy.http.wire.worker_threads import Worker
from proxy.store.database.verdicts import VerdictStore

log = structlog.get_logger(__name__)

EVERY_S: Final = 60.0
MOST_A_LOOK: Final = 1_000
"""The most replies of each look, spread evenly over all new ones: a hundredth of a second."""


class DriftWatch:
    """Watches the record that `records.Records` writes.

    `alarms` counts the alarms since the start.
    """

    def __init__(self, url: str, every_s: float = EVERY_S) -> None:
        self._url = url
        self._worker = Worker("drift", self._turn, every_s=every_s)
        self._findings: VerdictStore | None = None
        self.alarms = 0

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        self._worker.close()
        if self._findings is not None:
            self._findings.close()
            self._findings = None

    def _turn(self) -> None:
        try:
            self._findings = self._findings or VerdictStore(self._url)
            self._look(self._findings)
        except StoreError as error:
            log.error("drift_not_looked_for", reason=error.message)

    def _look(self, findings: VerdictStore) -> None:
        from proxy.learning.drift import look

        for alarm in look(findings.engine, most=MOST_A_LOOK):
            self.alarms += 1
            log.warning("drift_detected", **alarm.key._asdict(), after=alarm.seen, text=alarm.text)
