"""Drift in the store: what monitors read, when they raise an alarm, and its consequences."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from calibrator.metrics.metrics import Floats
from calibrator.recalibration.curves import Platt, Recalibration
from calibrator.recalibration.versions import RecalibrationVersions
from proxy.learning.drift import DriftWatch, look, monitor_states
from proxy.store.database.verdicts import VerdictStore
from proxy.store.verdicts.drift import (
    Monitor,
    MonitorKey,
    Position,
    drifted_calibrators,
    forget_monitors,
    read_monitors,
    write_monitors,
)
from tests.builders.simulated_traffic import CALIBRATOR, Traffic, overconfident
from tests.running.live_proxy import until
from tests.sharing.captured_logs import capture_logs


def harder(rng: np.random.Generator, count: int) -> Floats:
    """Return questions of another kind: right half of the time instead of two thirds."""
    return rng.beta(2, 2.2, count)


@pytest.fixture
def traffic(tmp_path: Path) -> Traffic:
    return Traffic(tmp_path, seed=2)


def test_score_shift_alarms_for_one_model_only(traffic: Traffic) -> None:
    """An alarm of scores names the model and the reply, and the other model's monitor has none."""
    for _ in range(5):
        traffic.pass_by(200, 2, model="old")
        traffic.pass_by(200, 2, model="new")
    findings = VerdictStore(traffic.url)
    assert look(findings.engine) == []
    start = len(traffic.ids)
    traffic.pass_by(300, 2, model="new", truth=harder)
    [alarm] = look(findings.engine)
    assert alarm.key == MonitorKey("scores", CALIBRATOR, "new")
    assert alarm.request_id in traffic.ids[start:]
    assert "model new" in alarm.text
    assert look(findings.engine) == []  # reported once
    by_model = {each.key.model: each for each in monitor_states(findings.engine)}
    assert by_model["old"].alarm is None
    assert (by_model["old"].seen, by_model["new"].alarm) == (1_000, alarm)
    findings.close()


def test_many_new_replies_are_looked_at_evenly(traffic: Traffic) -> None:
    """A look of about 100 replies takes a tenth of a thousand, and none of them again."""
    traffic.pass_by(1_000, 2)
    findings = VerdictStore(traffic.url)
    look(findings.engine, most=100)
    [only] = monitor_states(findings.engine)
    look(findings.engine)
    assert monitor_states(findings.engine) == [only]
    findings.close()
    assert 70 <= only.seen <= 130


def test_what_another_process_has_read_is_not_read_again(store_url: str) -> None:
    """Of two processes that read the same replies one writes, on both databases."""
    findings = VerdictStore(store_url)
    key = MonitorKey("calibration", "c", "", "")
    first = Monitor(key, 1, {"a": 1}, 5.0, "req_1")
    after = Position("req_1", 1)
    assert write_monitors(findings.engine, [first], Position(), after)
    assert not write_monitors(findings.engine, [Monitor(key, 9, {})], Position(), after)
    assert read_monitors(findings.engine) == ([first], after)
    assert drifted_calibrators(findings.engine) == {"c"}
    assert write_monitors(findings.engine, [Monitor(key, 2, {})], after, Position("req_2", 1))
    assert forget_monitors(findings.engine) == 1
    assert read_monitors(findings.engine) == ([], Position("req_2", 1))
    findings.close()


def test_verdicts_show_a_calibration_that_is_off(traffic: Traffic) -> None:
    """Audited verdicts find an overconfident calibrator, which is distrusted until a reset."""
    traffic.pass_by(250, 7, audit_share=1.0, says=lambda p: overconfident(overconfident(p)))
    traffic.label()
    done = traffic.run("report", "drift")
    assert done.returncode == 3
    assert "are too high" in done.stdout
    findings = VerdictStore(traffic.url)
    assert drifted_calibrators(findings.engine) == {CALIBRATOR}
    assert traffic.run("report", "drift", "--reset").returncode == 0
    assert drifted_calibrators(findings.engine) == set()
    assert look(findings.engine) == []
    findings.close()


def test_the_alarm_of_a_calibrator_that_was_mended_is_past(traffic: Traffic) -> None:
    """Once another version scores, the earlier alarm is listed and not current."""
    traffic.pass_by(250, 7, audit_share=1.0, says=lambda p: overconfident(overconfident(p)))
    traffic.label()
    findings = VerdictStore(traffic.url)
    look(findings.engine)
    found = Recalibration("platt", Platt(0.3, 0.0), labels=250)
    RecalibrationVersions(traffic.current.parent).promote(found, {})
    traffic.pass_by(20, 1)
    [calibration, scores] = monitor_states(findings.engine)
    findings.close()
    assert calibration.alarm is not None
    assert (calibration.is_current, scores.is_current) == (False, True)


def test_held_verdicts_are_no_evidence_of_drift(traffic: Traffic) -> None:
    """Only audited replies count as evidence, since reviewers choose what they look at."""
    traffic.pass_by(100, 7, held=1.0)
    assert traffic.label() == 100
    findings = VerdictStore(traffic.url)
    look(findings.engine)
    assert [each.key.kind for each in monitor_states(findings.engine)] == ["scores"]
    findings.close()


def test_the_proxys_watch_finds_it_too(traffic: Traffic) -> None:
    """A thread of the proxy checks the record, reports an alarm once and counts it."""
    traffic.pass_by(600, 7)
    traffic.pass_by(400, 7, truth=harder)
    watch = DriftWatch(traffic.url, every_s=0.01)
    with capture_logs() as lines:
        watch.start()
        until(lambda: watch.alarms)
        time.sleep(0.1)
        watch.stop()
    assert watch.alarms == 1
    [line] = [each for each in lines if each["event"] == "drift_detected"]
    assert (line["kind"], line["calibrator"], line["log_level"]) == (
        "scores",
        CALIBRATOR,
        "warning",
    )


def test_the_watch_survives_a_store_that_is_not_there(tmp_path: Path) -> None:
    """While the store is away the watch tries again, without an error elsewhere."""
    watch = DriftWatch(f"sqlite:///{tmp_path / 'no' / 'store.db'}", every_s=0.01)
    with capture_logs() as lines:
        watch.start()
        until(lambda: len(lines) > 1)
        watch.stop()
    assert watch.alarms == 0
    assert {line["event"] for line in lines} == {"drift_not_looked_for"}


def test_the_simulated_calibrator_is_too_sure() -> None:
    """The simulated calibrator says 0.90 where 0.70 are right, as the other tests assume."""
    assert overconfident(np.array([0.7]))[0] == pytest.approx(0.90, abs=0.005)


@pytest.mark.parametrize("is_recalibrated", [False, True])
def test_opinions_are_not_drift(store_url: str, tmp_path: Path, is_recalibrated: bool) -> None:
    """Opinions and recalibrations of scores are no drift, on
    both databases, and a shift of the replies' own scores is.
    """
    traffic = Traffic(tmp_path, seed=2, url=store_url)
    traffic.pass_by(1_000, 10)
    if is_recalibrated:
        versions = RecalibrationVersions(traffic.current.parent)
        for name in (CALIBRATOR, traffic.opinion):
            curve = Platt(0.5, -1.0)
            versions.promote(Recalibration("platt", curve, labels=99, calibrator=name), {})
    traffic.pass_by(1_000, 10, heard=0.7)
    findings = VerdictStore(traffic.url)
    assert look(findings.engine) == []
    assert {each.key for each in monitor_states(findings.engine)} == {
        MonitorKey("scores", CALIBRATOR, "m")
    }
    traffic.pass_by(400, 3, heard=0.7, truth=harder)
    assert [alarm.key.kind for alarm in look(findings.engine)] == ["scores"]
    findings.close()


def test_both_kinds_of_numbers_are_current(traffic: Traffic) -> None:
    """Monitors of numbers with and without opinions are both current."""
    traffic.pass_by(400, 10, audit_share=0.5, heard=0.5)
    traffic.label()
    findings = VerdictStore(traffic.url)
    look(findings.engine)
    found = {each.key.calibrator: each.is_current for each in monitor_states(findings.engine)}
    assert found == {CALIBRATOR: True, traffic.opinion: True}
    findings.close()
