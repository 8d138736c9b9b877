"""A thread that looks for drift once a minute, and says once what it finds."""

from __future__ import annotations

import threading
from typing import Final

import structlog

from proxy.errors import StoreError
from proxy.store.verdicts.verdicts import Findings

log = structlog.get_logger(__name__)

EVERY_S: Final = 60.0
MOST_A_LOOK: Final = 1_000
"""Replies that are looked at each time, evenly over all: a hundredth of a second."""


class DriftWatch:
    """Reads the record that `records.Records` writes; `alarms` counts those raised since start."""

    def __init__(self, url: str, every_s: float = EVERY_S) -> None:
        self._url = url
        self._every_s = every_s
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self.alarms = 0

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="drift", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._thread is not None:
            self._closing.set()
            self._thread.join(timeout=10)
            self._thread = None

    def _run(self) -> None:
        findings: Findings | None = None
        while not self._closing.wait(self._every_s):
            try:
                findings = findings or Findings(self._url)
                self._look(findings)
            except StoreError as error:
                log.error("drift_not_looked_for", reason=error.message)
        if findings is not None:
            findings.close()

    def _look(self, findings: Findings) -> None:
        from proxy.learning.drift import look

        for alarm in look(findings.engine, most=MOST_A_LOOK):
            self.alarms += 1
            log.warning("drift_detected", **alarm.key._asdict(), after=alarm.seen, text=alarm.text)
