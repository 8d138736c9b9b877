"""`pinocchio reviews estimate`, `reviews agreement` and `drift`: what they print."""

from __future__ import annotations

import json

import pytest

from proxy.commands.drift import drift
from proxy.commands.reviews.figures import show_agreement, show_estimate
from proxy.store.database.verdicts import VerdictStore
from tests.builders.simulated_traffic import CALIBRATOR, Traffic

Printed = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    """400 replies, of which ann has labelled those held and those audited, and bob three."""
    traffic = Traffic(tmp_path_factory.mktemp("verdicts"), seed=6)
    traffic.pass_by(400, 27, audit_share=0.2, held=0.3)
    traffic.label()
    findings = VerdictStore(traffic.url)
    for id, is_correct in zip(traffic.ids[:3], (True, True, False), strict=True):
        findings.give_verdict(id, is_correct, "bob")
        findings.give_verdict(id, True, "eve")
    findings.close()
    return traffic


def test_estimates_are_told_for_each_kind_of_replies(traffic: Traffic, capsys: Printed) -> None:
    """Delivered, held and all of them, with intervals; what nobody drew is only counted."""
    show_estimate(config=traffic.config, since="30d", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["delivered"]["replies"] + told["held"]["replies"] == told["all"]["replies"] == 400
    right = told["all"]["right"]
    assert 0 < right["low"] < right["value"] < right["high"] < 1
    show_estimate(config=traffic.config, since="30d", as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["delivered", "held", "all"]
    assert "95 % between" in lines[0]


def test_nothing_labelled_is_no_number(traffic: Traffic, capsys: Printed) -> None:
    """Of the last second there is neither a reply nor a verdict: null in JSON, words elsewhere."""
    show_estimate(config=traffic.config, since="1s", as_json=True)
    assert json.loads(capsys.readouterr().out)["all"]["right"]["value"] is None
    show_estimate(config=traffic.config, since="1s", as_json=False)
    assert "too few to say anything" in capsys.readouterr().out
    show_agreement(config=traffic.config, since="1s", as_json=False)
    assert "none of 0 replies has two verdicts" in capsys.readouterr().out


def test_agreement_is_told_with_each_pair(traffic: Traffic, capsys: Printed) -> None:
    """Two of three agree; kappa has no meaning where one of them says the same always."""
    show_agreement(config=traffic.config, since="30d", as_json=False)
    text = capsys.readouterr().out
    assert "bob and eve: 2 of 3 agree, Cohen's kappa 0.000" in text
    show_agreement(config=traffic.config, since="30d", as_json=True)
    pairs = json.loads(capsys.readouterr().out)["pairs"]
    assert {(pair["first"], pair["second"]) for pair in pairs} >= {("bob", "eve")}


def test_drift_tells_every_monitor(traffic: Traffic, capsys: Printed) -> None:
    """One of scores and one of calibration, as JSON and as lines."""
    for as_json in (True, False):
        drift(config=traffic.config, reset=False, as_json=as_json)
    told, *lines = capsys.readouterr().out.splitlines()
    monitors = json.loads(told)["monitors"]
    assert [monitor["kind"] for monitor in monitors] == ["calibration", "scores"]
    assert {monitor["calibrator"] for monitor in monitors} == {CALIBRATOR}
    assert monitors[1]["seen"] == 400
    bands = [line for line in lines if line.startswith("  confidence ")]
    gaps = [band["gap"] for band in monitors[0]["bands"] if band["gap"] is not None]
    assert len(bands) == len(gaps) > 0
    for line, gap in zip(bands, gaps, strict=True):  # the words say which way, no sign does
        words = "overconfident" if gap >= 0 else "underconfident"
        assert line.endswith(f"{words} by {abs(gap):.3f}")
