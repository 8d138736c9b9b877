"""Drift: whether the scores' distribution changes, and whether confidences are still calibrated.

    alarms = look(engine)                  # continues where the last look ended
    standing(engine)                       # the state of every monitor

One reply of each conversation counts, and again after a day: turns, retries and load tests are no
independent evidence (`policies.SeenConversations`). For each model and team a monitor of scores
(`policies.ScoreMonitor`) sees the calibrator's own score of each reply, labelled or not. A new
recalibration is no drift to it. For each calibrator with its recalibration a monitor of calibration
(`policies.CalibrationMonitor`) sees verdicts on audited replies. Each monitor raises a false alarm
with a probability of at most `FALSE_ALARM_RATE` over all time, however often one looks. An alarm
stays until `pinocchio report drift --reset`. `DriftWatch` looks once a minute on a thread.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from calibrator import knows_others, knows_signals
from policies import CalibrationMonitor, ScoreMonitor, SeenConversations
from proxy.errors import StoreError
from proxy.http.wire.worker_threads import Worker
from proxy.store.database.verdicts import VerdictStore
from proxy.store.verdicts.drift import (
    AuditVerdict,
    CountedReply,
    Monitor,
    MonitorKey,
    Position,
    ReplyScore,
    count_scored,
    counted_of,
    judged_after,
    newest_calibrators,
    read_monitors,
    scored_after,
    write_monitors,
)
from proxy.store.verdicts.labels import base_of

if TYPE_CHECKING:
    from policies import VerdictBand


FALSE_ALARM_RATE: Final = 0.01
LAG_S: Final = 60.0
"""The age in seconds that a reply must have.

Others that began before it may not be recorded yet.
"""
AT_ONCE: Final = 5_000
MOST_GROUPS: Final = 64
"""The most pairs of model and team that are watched; clients choose the names of models."""
LONGEST_MODEL: Final = 128
"""Characters by which models are told apart: PostgreSQL has no key of more than 2,700 bytes."""

log = structlog.get_logger(__name__)
EVERY_S: Final = 60.0
MOST_A_LOOK: Final = 1_000
"""The most replies of each look, spread evenly over all new ones: a hundredth of a second."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm of a monitor after `seen` replies or verdicts; `text` is for people."""

    key: MonitorKey
    seen: int
    at: float
    request_id: str | None
    text: str


@dataclass(frozen=True, slots=True)
class MonitorState:
    """The state of a monitor; `bands` are those of calibration, empty for scores.

    It `is_current` if its calibrator gave the newest confidence of a reply alone, or the newest
    that knows others. Monitors of earlier calibrators are not.
    """

    key: MonitorKey
    seen: int
    is_current: bool
    alarm: Alarm | None
    bands: Sequence[VerdictBand] = ()


def look(engine: Any, *, lag_s: float = LAG_S, most: int | None = None) -> list[Alarm]:
    """Show what is new since the last look to the monitors, and return the new alarms.

    Replies younger than `lag_s` seconds are left for the next look. With `most`, at most about that
    many of the new replies are read, spread evenly, so that a look stays cheap. The monitors are
    written to the store. Raises StoreError.
    """
    alarms: list[Alarm] = []
    before = time.time() - lag_s
    _, start = read_monitors(engine)
    waiting, end = count_scored(engine, start.request_id, before)
    share = 1.0 if most is None else min(1.0, most / max(waiting, 1))
    while True:
        monitors, position = read_monitors(engine)
        scored = scored_after(engine, position.request_id, before, AT_ONCE, share)
        judged = judged_after(engine, position.verdict_id, AT_ONCE)
        if not scored and not judged and position.request_id >= end:
            return alarms
        last = scored[-1].request_id if len(scored) == AT_ONCE else max(end, position.request_id)
        reader = _Reader(monitors, counted_of(engine, _conversations(scored, judged)))
        for each in scored:
            reader.take_score(each)
        for verdict in judged:
            reader.take_verdict(verdict)
        after = Position(last, judged[-1].verdict_id if judged else position.verdict_id)
        if not write_monitors(engine, reader.updated_monitors(), position, after, reader.counted):
            return alarms  # another process looks at the same time, and reports its findings
        alarms += reader.alarms


class _Reader:
    """The stored monitors while new scores and verdicts are shown to them.

    `before` are the replies that have counted for them. `counted` and `alarms` gather what is new.
    """

    def __init__(self, monitors: Sequence[Monitor], before: Sequence[CountedReply]) -> None:
        self._rows = {each.key: each for each in monitors}
        self._seen: dict[str, SeenConversations] = defaultdict(_no_conversations)
        for each in before:
            self._seen[each.about].is_first(each.conversation, each.at)
        self.counted: list[CountedReply] = []  # conversations that count newly
        self._monitors: dict[MonitorKey, ScoreMonitor | CalibrationMonitor] = {}
        self.alarms: list[Alarm] = []

    def take_score(self, scored: ReplyScore) -> None:
        """Show a score to the monitor of its model and team, unless it has raised an alarm.

        Further replies of a conversation within a day do not count.
        """
        model = scored.model[:LONGEST_MODEL]
        key = MonitorKey("scores", scored.calibrator, model, scored.team)
        row = self._row(key)
        if row is None or row.alarmed_at is not None or self._has_counted(key, scored):
            return
        monitor = self._monitors.get(key)
        if not isinstance(monitor, ScoreMonitor):
            monitor = _score_monitor(row)
            self._monitors[key] = monitor
        monitor.add(scored.score)
        self._count(row, monitor.is_alarmed, scored.request_id)

    def take_verdict(self, judged: AuditVerdict) -> None:
        """Show a verdict to the monitor of its calibrator, unless it has raised an alarm.

        Further verdicts in a conversation within a day do not count.
        """
        key = MonitorKey("calibration", judged.calibrator)
        row = self._row(key)
        if row is None or row.alarmed_at is not None or self._has_counted(key, judged):
            return
        monitor = self._monitors.get(key)
        if not isinstance(monitor, CalibrationMonitor):
            monitor = _calibration_monitor(row)
            self._monitors[key] = monitor
        monitor.add(judged.confidence, is_correct=judged.is_correct)
        self._count(row, monitor.is_alarmed, judged.request_id)

    def _has_counted(self, key: MonitorKey, reply: ReplyScore | AuditVerdict) -> bool:
        """Return whether another reply of its conversation counted for this monitor within a day.

        If not, this reply is noted as the one that counts.
        """
        if reply.conversation is None:
            return False
        about = json.dumps(key)
        if not self._seen[about].is_first(reply.conversation, reply.at):
            return True
        self.counted.append(CountedReply(about, reply.conversation, reply.at))
        return False

    def updated_monitors(self) -> list[Monitor]:
        """Return the rows of the monitors that were fed, with their new state."""
        for key, monitor in self._monitors.items():
            self._rows[key].state = monitor.as_dict()
        return [self._rows[key] for key in self._monitors]

    def _row(self, key: MonitorKey) -> Monitor | None:
        """Return the monitor's row, made if it is missing.

        None beyond `MOST_GROUPS` of its kind.
        """
        row = self._rows.get(key)
        if row is None:
            if sum(known.kind == key.kind for known in self._rows) >= MOST_GROUPS:
                return None
            row = self._rows[key] = Monitor(key, 0, {})
        return row

    def _count(self, row: Monitor, is_alarmed: bool, request_id: str) -> None:
        """Count a reply for a monitor; if it is newly alarmed, note that and add to `alarms`."""
        row.seen += 1
        if is_alarmed and row.alarmed_at is None:
            row.alarmed_at, row.alarmed_by = time.time(), request_id
            row.state = self._monitors[row.key].as_dict()
            if (alarm := _alarm_of(row)) is not None:
                self.alarms.append(alarm)


def _no_conversations() -> SeenConversations:
    """Return an empty memory of conversations, without a bound."""
    return SeenConversations(most=None)


def _conversations(*replies: Sequence[ReplyScore | AuditVerdict]) -> list[str]:
    """Return the names of the conversations of these replies, sorted, each once."""
    named = {each.conversation for some in replies for each in some}
    return sorted(each for each in named if each is not None)


def monitor_states(engine: Any) -> list[MonitorState]:
    """Return the state of every monitor, in the order of their keys; raises StoreError."""
    monitors, _ = read_monitors(engine)
    newest = newest_calibrators(engine)
    now = {"scores": set(map(base_of, newest)), "calibration": newest}
    return [
        MonitorState(
            each.key,
            each.seen,
            each.key.calibrator in now[each.key.kind],
            _alarm_of(each),
            _calibration_monitor(each).bands if each.key.kind == "calibration" else (),
        )
        for each in monitors
    ]


def alarms_now(engine: Any) -> dict[tuple[str, str], int]:
    """Return the number of alarmed monitors by (kind, calibrator), for calibrators in use.

    Those without an alarm have 0. Raises StoreError.
    """
    counts: dict[tuple[str, str], int] = {}
    for each in monitor_states(engine):
        if each.is_current:
            about = each.key.kind, each.key.calibrator
            counts[about] = counts.get(about, 0) + (each.alarm is not None)
    return counts


def _score_monitor(row: Monitor) -> ScoreMonitor:
    """Return the monitor of scores that a row stores, or a new one.

    Ranks within a bin are drawn at random, with the count of replies as the seed.
    """
    if not row.state:
        return ScoreMonitor(false_alarm_rate=FALSE_ALARM_RATE)
    return ScoreMonitor.from_dict(row.state, FALSE_ALARM_RATE, seed=row.seen)


def _calibration_monitor(row: Monitor) -> CalibrationMonitor:
    """Return the monitor of calibration that a row stores, or a new one."""
    if not row.state:
        return CalibrationMonitor(FALSE_ALARM_RATE)
    return CalibrationMonitor.from_dict(row.state, FALSE_ALARM_RATE)


def _alarm_of(row: Monitor) -> Alarm | None:
    """Return the alarm of a monitor, or None if it has raised none."""
    if row.alarmed_at is None:
        return None
    return Alarm(row.key, row.seen, row.alarmed_at, row.alarmed_by, _text(row))


def _text(row: Monitor) -> str:
    """Return a sentence about what an alarmed monitor found and what to do."""
    key, kind = row.key, row.key.kind
    if kind == "scores":
        subject = f"model {key.model}" + (f", team {key.team}" if key.team else "")
        return (
            f"scores of {subject} have shifted since monitoring began; certificates and "
            "recalibrations may no longer apply"
        )
    finding = _calibration_monitor(row).finding
    low, high = finding.band
    where = "overall" if finding.band == (0.0, 1.0) else f"between {low:g} and {high:g}"
    direction = "too high" if finding.is_too_sure else "too low"
    return (
        f"confidences of {key.calibrator} are {direction} {where} by more than 5 points, going by "
        "audited verdicts: pinocchio recalibrate --from-store" + _option(key.calibrator)
    )


def _option(calibrator: str) -> str:
    """Return the option of `pinocchio recalibrate` for a calibrator, such as ` --signals`.

    Empty for one that scores replies alone.
    """
    if knows_signals(calibrator):
        return " --signals"
    return " --second-opinion" if knows_others(calibrator) else ""


class DriftWatch:
    """A thread that looks for drift in the record once in `every_s` seconds.

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
        """End the thread and close the store."""
        self._worker.close()
        if self._findings is not None:
            self._findings.close()
            self._findings = None

    def _turn(self) -> None:
        """Look once; an error of the store is logged."""
        try:
            self._findings = self._findings or VerdictStore(self._url)
            self._look(self._findings)
        except StoreError as error:
            log.error("drift_not_looked_for", reason=error.message)

    def _look(self, findings: VerdictStore) -> None:
        """Look for drift in up to `MOST_A_LOOK` new replies; log and count each new alarm."""
        for alarm in look(findings.engine, most=MOST_A_LOOK):
            self.alarms += 1
            log.warning("drift_detected", **alarm.key._asdict(), after=alarm.seen, text=alarm.text)
