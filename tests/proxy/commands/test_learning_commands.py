"""`pinocchio report`: what it prints of correct replies, agreement and drift."""

from __future__ import annotations

import json

import pytest
from click.testing import Result
from typer.testing import CliRunner

from proxy.commands.app import cli
from proxy.store.database.verdicts import VerdictStore
from tests.builders.simulated_traffic import CALIBRATOR, Traffic


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    """Store 400 replies; ann has labelled those held and those audited, and bob three."""
    traffic = Traffic(tmp_path_factory.mktemp("verdicts"), seed=6)
    traffic.pass_by(400, 27, audit_share=0.2, held=0.3)
    traffic.label()
    findings = VerdictStore(traffic.url)
    for id, is_correct in zip(traffic.ids[:3], (True, True, False), strict=True):
        findings.give_verdict(id, is_correct, "bob")
        findings.give_verdict(id, True, "eve")
    findings.close()
    return traffic


def report(traffic: Traffic, *arguments: str) -> Result:
    done = CliRunner().invoke(cli, ["report", *arguments, "--config", str(traffic.config)])
    assert done.exit_code == 0, done.output
    return done


def test_estimates_are_told_for_each_kind_of_replies(traffic: Traffic) -> None:
    """Delivered, held and all replies have estimates with intervals; other labels are counted."""
    done = report(traffic, "estimate", "--since", "30d", "--json")
    body = json.loads(done.stdout)
    assert body["delivered"]["replies"] + body["held"]["replies"] == body["all"]["replies"] == 400
    right = body["all"]["right"]
    assert 0 < right["low"] < right["value"] < right["high"] < 1
    done = report(traffic, "estimate", "--since", "30d")
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["delivered", "held", "all"]
    assert "95 % between" in lines[0]


def test_nothing_labelled_is_no_number(traffic: Traffic) -> None:
    """Without replies and verdicts the estimate is null in JSON, and a sentence elsewhere."""
    done = report(traffic, "estimate", "--since", "1s", "--json")
    assert json.loads(done.stdout)["all"]["right"]["value"] is None
    done = report(traffic, "estimate", "--since", "1s")
    assert "too few to say anything" in done.stdout
    done = report(traffic, "agreement", "--since", "1s")
    assert "none of 0 replies has two verdicts" in done.stdout


def test_agreement_is_told_with_each_pair(traffic: Traffic) -> None:
    """Two of three labels agree; kappa is undefined where one reviewer always says the same."""
    done = report(traffic, "agreement", "--since", "30d")
    text = done.stdout
    assert "bob and eve: 2 of 3 agree, Cohen's kappa 0.000" in text
    done = report(traffic, "agreement", "--since", "30d", "--json")
    pairs = json.loads(done.stdout)["pairs"]
    assert {(pair["first"], pair["second"]) for pair in pairs} >= {("bob", "eve")}


def test_drift_tells_every_monitor(traffic: Traffic) -> None:
    """A monitor of scores and one of calibration are listed as JSON and as lines."""
    output = report(traffic, "drift", "--json").stdout
    lines = report(traffic, "drift").stdout.splitlines()
    monitors = json.loads(output)["monitors"]
    assert [monitor["kind"] for monitor in monitors] == ["calibration", "scores"]
    assert {monitor["calibrator"] for monitor in monitors} == {CALIBRATOR}
    assert monitors[1]["seen"] == 400
    bands = [line for line in lines if line.startswith("  confidence ")]
    gaps = [band["gap"] for band in monitors[0]["bands"] if band["gap"] is not None]
    assert len(bands) == len(gaps) > 0
    for line, gap in zip(bands, gaps, strict=True):  # words say the direction, without a sign
        words = "overconfident" if gap >= 0 else "underconfident"
        assert line.endswith(f"{words} by {abs(gap):.3f}")


def test_all_of_it_is_one_report(traffic: Traffic) -> None:
    """Without a topic all three reports are printed, in JSON each under its name."""
    topics = ("estimate", "agreement", "drift")
    whole = json.loads(report(traffic, "--json").stdout)
    assert whole == {name: json.loads(report(traffic, name, "--json").stdout) for name in topics}
    lines = report(traffic).stdout.splitlines()
    assert lines == [line for name in topics for line in report(traffic, name).stdout.splitlines()]
