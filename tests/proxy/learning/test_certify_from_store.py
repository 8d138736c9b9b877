"""`pinocchio certify --from-store`: thresholds proved on audited verdicts, or why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrator import CalibratorError
from calibrator.recalibration.curves import Platt, Recalibration
from calibrator.recalibration.versions import RecalibrationVersions
from policies import LabelledScore, Scope, load_certificate, parse_policy
from proxy.learning.certifying import audited_labels
from proxy.store.database.verdicts import VerdictStore
from tests.builders.simulated_traffic import CALIBRATOR, Traffic

RULED = """
version: 1
name: p
mode: enforce
rules:
  - {name: long, when: {length: {at_least: 9}}, then: hold}
  - {name: sure, when: {confidence: {at_least: 0.5}}, then: deliver}
default: hold
"""


def labels(traffic: Traffic, scope: Scope | None = None, **options: object) -> list[LabelledScore]:
    findings = VerdictStore(traffic.url)
    try:
        return audited_labels(findings.engine, 0.0, CALIBRATOR, scope or Scope(), **options)  # type: ignore[arg-type]  # of each test
    finally:
        findings.close()


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    traffic = Traffic(tmp_path_factory.mktemp("audited"), seed=4)
    traffic.pass_by(500, 14, audit_share=0.6, held=0.3, truth=lambda rng, n: rng.beta(6, 0.5, n))
    traffic.label()
    return traffic


def test_a_certificate_is_made_of_audited_verdicts(audited: Traffic) -> None:
    """A certificate is for its calibrator, counts no held reply, and works in a policy."""
    path = audited.config.parent / "p.certificate.json"
    done = audited.run("certify", "--from-store", "--max-error", "0.1", "-o", str(path), "--json")
    assert done.returncode == 0, done.stderr
    certificate = load_certificate(path)
    assert certificate is not None
    [grant] = certificate.grants
    assert grant.calibrator == CALIBRATOR
    assert grant.labels == len(labels(audited)) < 400


def test_a_scope_takes_its_own_replies(audited: Traffic) -> None:
    """A scope counts only its own replies: none for an unknown model, all for a general rule."""
    everything = labels(audited)
    policy = parse_policy(RULED, "p.yaml")
    sure = Scope(rule="sure", rule_digest=policy.rules[1].digest)
    assert labels(audited, sure, policy=policy) == everything
    assert labels(audited, Scope(model="m")) == everything
    for scope in (Scope(model="other"), Scope(team="law")):
        with pytest.raises(CalibratorError, match="is within"):
            labels(audited, scope)


def test_several_shares_are_refused(tmp_path: Path) -> None:
    """Several shares are refused, as the exact test needs one probability of being drawn."""
    traffic = Traffic(tmp_path)
    traffic.pass_by(50, 3, audit_share=0.6)
    traffic.pass_by(50, 3, audit_share=0.3)
    traffic.label()
    with pytest.raises(CalibratorError, match=r"shares of 0\.3, 0\.6, and the exact test"):
        labels(traffic)


def test_another_version_and_no_audit_are_refused(tmp_path: Path) -> None:
    """Other versions are refused with their names, and a missing audit with how to get labels."""
    traffic = Traffic(tmp_path)
    traffic.pass_by(30, 3, held=0.99)
    traffic.label()
    with pytest.raises(CalibratorError, match="let the audit draw some"):
        labels(traffic)
    found = Recalibration("platt", Platt(0.5, 0.0), labels=9)
    RecalibrationVersions(traffic.current.parent).promote(found, {})
    traffic.pass_by(30, 3, audit_share=0.9)
    traffic.label()
    with pytest.raises(CalibratorError, match=f"of {CALIBRATOR}.{found.name}, none of"):
        labels(traffic)
