"""The worth of second opinions by the record and the verdicts of a real store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from calibrator.recalibration.curves import Platt, Recalibration
from calibrator.recalibration.versions import RecalibrationVersions
from proxy.learning.second_opinions import SecondOpinions, read_second_opinions
from proxy.store.database.verdicts import VerdictStore
from proxy.store.verdicts.statistics import Window, opinion_exchanges
from tests.builders.simulated_traffic import Traffic


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def month(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Traffic, VerdictStore]]:
    """Store 1,200 replies, half of them with a second opinion, the last ones recalibrated."""
    is_postgres = request.param == "postgresql"
    url = request.getfixturevalue("postgres").new_database() if is_postgres else ""
    traffic = Traffic(tmp_path_factory.mktemp("month"), seed=8, url=url)
    traffic.pass_by(1_000, 20, audit_share=0.3, heard=0.5, held=0.3)
    RecalibrationVersions(traffic.current.parent).promote(
        Recalibration("platt", Platt(1.0, 1.5), labels=99, calibrator=traffic.opinion), {}
    )
    traffic.pass_by(200, 7, audit_share=0.15, heard=0.5, model="other")
    traffic.label()
    findings = VerdictStore(traffic.url)
    yield traffic, findings
    findings.close()


def told(month: tuple[Traffic, VerdictStore], days: float = 30, **of: str) -> SecondOpinions:
    return read_second_opinions(month[1].engine, days, **of)


def test_both_numbers_are_held_against_the_verdicts(month: tuple[Traffic, VerdictStore]) -> None:
    """Both numbers are compared by the verdicts: equal ranking gains nothing,
    other names are measured separately, and too few labels not at all.
    """
    found = told(month)
    assert 500 < found.replies == found.agreed < 700
    assert (found.differed, found.untold, found.is_whole) == (0, 0, True)
    first, second = found.measured
    assert first.calibrator == month[0].opinion
    assert second.calibrator.startswith(f"{month[0].opinion}+platt@")
    assert first.labels > 100
    assert first.auroc is not None
    assert 0.7 < first.auroc.before < 0.95
    assert first.auroc.gain.value == pytest.approx(0, abs=1e-9)
    assert 0 < second.labels < 30
    assert (second.auroc, second.kept) == (None, None)


def test_it_is_narrowed_by_model_and_time(month: tuple[Traffic, VerdictStore]) -> None:
    """The report can be limited to a model and to days of traffic; labels count for longer."""
    assert told(month, 30, model="other").replies < told(month).replies
    assert told(month, 30, model="other").measured == told(month).measured[1:]
    assert told(month, 5).replies < told(month, 30, model="other").replies
    labels = [each.labels for each in told(month).measured]
    assert [each.labels for each in told(month, 5).measured] == labels
    nothing = told(month, 30, team="law")
    assert not nothing.is_any
    assert nothing.measured == ()


def test_a_long_window_is_looked_through_from_its_end(month: tuple[Traffic, VerdictStore]) -> None:
    """A long window is read from its end, so that pages stay quick, and the report says so."""
    window = Window(time.time() - 30 * 86_400, time.time())
    some = opinion_exchanges(month[1].engine, window, limit=200)
    assert not some.is_whole
    assert {row.model for row in some.rows} == {"other"}


@pytest.mark.slow  # the judge's weights: test_recalibrate_from_store; the report: the test above
def test_a_judge_is_measured_beside_the_number_without_it(tmp_path: Path) -> None:
    """A judge's gain is measured against the number without
    it, under its name; calls are counted by the record.
    """
    traffic = Traffic(tmp_path, seed=4)
    traffic.pass_by(800, 7, audit_share=1.0, judged=0.5)
    traffic.label()
    assert traffic.run_json("recalibrate", "--from-store", "--signals")["promoted"]
    traffic.pass_by(800, 7, audit_share=1.0, judged=0.5)
    traffic.label()
    findings = VerdictStore(traffic.url)
    found = read_second_opinions(findings.engine, 30)
    findings.close()
    assert found.is_any
    [judged] = found.measured
    assert "+judge@" in judged.calibrator
    assert judged.labels > 300
    assert judged.auroc is not None
    assert judged.auroc.gain.low > 0.05
    assert (found.replies, found.asked, found.judged) == (0, 0, 0)
