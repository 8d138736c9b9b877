"""`pinocchio recalibrate --from-store`: verdicts correct the calibrator, or it says why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrator.metrics.metrics import Floats
from calibrator.recalibration.curves import (
    Isotonic,
    Platt,
    Recalibration,
    load_named,
    recalibration_of,
)
from calibrator.recalibration.versions import RecalibrationVersions, resolve_recalibrations
from policies import Facts, load_certificate
from proxy.config.sections import Config
from proxy.config.settings.upstreams import ModelRoute
from proxy.learning.labels import read_labels
from proxy.learning.recalibrating import LearnedFit, NotLearntError, learn_recalibration
from proxy.store.database.verdicts import VerdictStore
from proxy.upstreams.router import Domains, Router
from tests.builders.simulated_traffic import (
    CALIBRATOR,
    Traffic,
    overconfident,
    timid,
    usual_truth,
)
from tests.running.databases import execute


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    """Store 2,000 replies of two weeks, the least sure held, a tenth of the others audited."""
    traffic = Traffic(tmp_path_factory.mktemp("month"), seed=3)
    traffic.pass_by(2_000, 14, audit_share=0.1, held=0.2)
    traffic.label()
    return traffic


def learnt(traffic: Traffic, **options: object) -> LearnedFit:
    findings = VerdictStore(traffic.url)
    labels = read_labels(findings.engine, 0.0, CALIBRATOR)
    findings.close()
    return learn_recalibration(labels, CALIBRATOR, **options)  # type: ignore[arg-type]  # of each test


def learn(traffic: Traffic, **options: object) -> Recalibration:
    found = learnt(traffic, **options).recalibration
    assert isinstance(found, Recalibration)
    return found


def test_what_is_better_is_promoted_listed_and_taken_back(labelled: Traffic) -> None:
    """200 audited verdicts halve the calibration error, a
    second run finds nothing better, and one command goes back.
    """
    truth = usual_truth(np.random.default_rng(0), 20_000)
    before = labelled.calibration_error(truth)
    dry = labelled.run_json("recalibrate", "--from-store", "--dry-run")
    assert dry["is_better"]
    assert not dry["promoted"]
    assert labelled.calibration_error(truth) == before
    done = labelled.run("recalibrate", "--from-store")
    assert done.returncode == 0, done.stderr
    assert "promoted" in done.stdout
    assert labelled.calibration_error(truth) < before / 2
    again = learnt(labelled, current=resolve_recalibrations(labelled.current).alone)
    assert not again.trial.is_better
    listed = labelled.run("recalibrate", "--history")
    assert f"none -> {dry['name']}" in listed.stdout
    assert labelled.run_json("recalibrate", "--rollback") == {"before": dry["name"], "after": None}
    assert labelled.calibration_error(truth) == before


def test_held_and_audited_replies_count_by_how_many_there_were(labelled: Traffic) -> None:
    """The estimate over all replies, weighted by how many were held, is near the truth."""
    findings = VerdictStore(labelled.url)
    labels = read_labels(findings.engine, 0.0, CALIBRATOR)
    findings.close()
    assert labels.totals.delivered + labels.totals.held == 2_000
    assert sum(labels.weights()) == pytest.approx(2_000)
    everything = labels.estimate("all")
    truth = usual_truth(np.random.default_rng(1), 50_000).mean()
    assert everything.low < truth < everything.high
    assert labels.estimate("held").high < labels.estimate("delivered").low
    sure = labels.estimate("all", of="confidence").value
    assert sure > everything.high  # overconfident


def test_a_new_recalibration_replaces_the_one_before(labelled: Traffic, tmp_path: Path) -> None:
    """A new recalibration is fitted on the calibrator's own scores, recorded or undone."""
    plain = learn(labelled)
    later = Traffic(tmp_path, seed=3)
    RecalibrationVersions(later.current.parent).promote(
        Recalibration("platt", Platt(0.3, 1.0), labels=9), {}
    )
    later.pass_by(2_000, 14, audit_share=0.1, held=0.2)
    later.label()
    mended = learn(later)
    grid = overconfident(np.linspace(0.1, 0.95, 20))
    first, second = (np.array([one.apply(float(p)) for p in grid]) for one in (plain, mended))
    assert second == pytest.approx(first, abs=0.1)


def test_what_former_recalibrations_corrected_is_learnt_from(tmp_path: Path) -> None:
    """Scores that former recalibrations corrected count, also where the raw ones are missing."""
    traffic = Traffic(tmp_path, seed=3)
    versions = RecalibrationVersions(traffic.current.parent)
    for slope in (0.5, 0.8):
        versions.promote(Recalibration("platt", Platt(slope, 0.2), labels=9), {})
        traffic.pass_by(300, 5, audit_share=0.4)
    traffic.label()
    execute(traffic.url, "UPDATE exchanges SET score = NULL")
    assert traffic.run_json("recalibrate", "--from-store", "--dry-run")["unknown"] == 0


def test_a_checkpoint_with_a_curve_of_its_own_finds_its_verdicts(tmp_path: Path) -> None:
    """The shipped calibrator's name has its own `+platt@..`, and its verdicts are found."""
    traffic = Traffic(tmp_path, seed=3, checkpoint="embedded")
    assert "+platt@" in traffic.calibrator
    traffic.pass_by(400, 7, audit_share=0.3)
    traffic.label()
    first = traffic.run_json("recalibrate", "--from-store")
    assert first["promoted"]
    traffic.pass_by(400, 7, audit_share=0.3)
    traffic.label()
    again = traffic.run_json("recalibrate", "--from-store", "--dry-run")
    assert again["labels"] > first["labels"] + 50
    assert again["unknown"] == 0


def test_nothing_better_is_not_promoted(tmp_path: Path) -> None:
    """For a calibrator that is right nothing is promoted, with exit status 3."""
    traffic = Traffic(tmp_path)
    traffic.pass_by(200, 7, audit_share=0.6, says=lambda truth: truth)
    traffic.label()
    done = traffic.run("recalibrate", "--from-store")
    assert done.returncode == 3, done.stderr
    assert "what counted before still counts" in done.stdout
    assert not traffic.current.exists()
    written = traffic.run("recalibrate", "--from-store", "-o", str(tmp_path / "curve.json"))
    assert "curve.json, without a proven gain: not better beyond noise" in written.stdout


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    """Store 2,000 replies, half of which have a number with a second opinion."""
    traffic = Traffic(tmp_path_factory.mktemp("heard"), seed=5)
    traffic.pass_by(2_000, 14, audit_share=0.3, heard=0.5)
    traffic.label()
    return traffic


def gap(found: Recalibration, says: Callable[[Floats], Floats]) -> float:
    """Return the mean distance from the truth of what it makes of these numbers."""
    truth = usual_truth(np.random.default_rng(0), 5_000)
    corrected = np.array([found.apply(float(score)) for score in says(truth)])
    return float(np.abs(corrected - truth).mean())


def test_numbers_alone_and_those_that_know_others_have_curves_of_their_own(
    heard: Traffic, tmp_path: Path
) -> None:
    """Numbers with and without opinions are fitted apart, and each curve says which it is for."""
    alone = load_named(written(heard, tmp_path / "alone.json"), recalibration_of)
    knowing = load_named(written(heard, tmp_path / "b.json", "--second-opinion"), recalibration_of)
    assert (alone.calibrator, knowing.calibrator) == (heard.calibrator, heard.opinion)
    assert (alone.of, knowing.of) == ("alone", "others")
    assert gap(alone, overconfident) < 0.05 < 0.1 < gap(alone, timid)
    assert gap(knowing, timid) < 0.05 < 0.1 < gap(knowing, overconfident)
    assert alone.labels > 1.8 * knowing.labels  # for replies with an opinion, the number before


def written(traffic: Traffic, output: Path, *more: str) -> Path:
    done = traffic.run("recalibrate", "--from-store", "-o", str(output), *more)
    assert done.returncode == 0, done.stderr
    return output


def test_each_is_promoted_and_taken_back_by_itself(tmp_path: Path) -> None:
    """The recalibration for opinions is promoted and taken back without changing the other."""
    traffic = Traffic(tmp_path, seed=6)
    traffic.pass_by(1_000, 10, audit_share=0.4, heard=0.5)
    traffic.label()
    knowing = traffic.run_json("recalibrate", "--from-store", "--second-opinion")
    assert (knowing["promoted"], knowing["calibrator"]) == (True, traffic.opinion)
    assert resolve_recalibrations(traffic.current).alone is None
    alone = traffic.run_json("recalibrate", "--from-store")
    assert (alone["promoted"], alone["calibrator"]) == (True, traffic.calibrator)
    counting = resolve_recalibrations(traffic.current)
    assert [each.name for each in counting] == [alone["name"], knowing["name"]]
    listed = traffic.run("recalibrate", "--history").stdout
    assert f"none -> {knowing['name']} of numbers with second opinions" in listed
    assert f"{knowing['name']} counts for numbers with second opinions" in listed
    traffic.pass_by(1_000, 10, audit_share=0.4, heard=0.5)
    traffic.label()
    for more in ([], ["--second-opinion"]):  # for corrected numbers, the ones before
        again = traffic.run_json("recalibrate", "--from-store", "--dry-run", *more)
        assert again["unknown"] == 0
        assert not again["is_better"]
    back = traffic.run_json("recalibrate", "--rollback", "--second-opinion")
    assert back == {"before": knowing["name"], "after": None}
    assert [each.name for each in resolve_recalibrations(traffic.current)] == [alone["name"]]


def test_what_an_isotonic_curve_corrected_is_learnt_from_too(tmp_path: Path) -> None:
    """An isotonic curve cannot be undone, so the record has both of the raw numbers."""
    traffic = Traffic(tmp_path, seed=9)
    versions = RecalibrationVersions(traffic.current.parent)
    for name in (traffic.calibrator, traffic.opinion):
        curve = Isotonic((0.1, 0.9), (0.5, 0.5))
        versions.promote(Recalibration("isotonic", curve, labels=99, calibrator=name), {})
    traffic.pass_by(800, 10, audit_share=0.4, heard=0.5)
    traffic.label()
    for more in ([], ["--second-opinion"]):
        found = traffic.run_json("recalibrate", "--from-store", "--dry-run", *more)
        assert found["unknown"] == 0
        assert found["is_better"]


def test_without_a_second_opinion_there_is_none_to_correct(labelled: Traffic) -> None:
    """Without second opinions the error says where such numbers come from."""
    done = labelled.run("recalibrate", "--from-store", "--second-opinion", "--dry-run")
    assert done.returncode == 2
    assert "no verdict is on a number of fake:0.5 that knows a second opinion" in done.stderr


def test_a_certificate_is_for_numbers_as_they_are_corrected_now(tmp_path: Path) -> None:
    """Verdicts on numbers of an earlier correction make no certificate."""
    traffic = Traffic(tmp_path, seed=7)
    for _ in range(2):
        traffic.pass_by(600, 7, audit_share=0.5, heard=0.5)
        traffic.label()
        RecalibrationVersions(traffic.current.parent).promote(
            Recalibration("platt", Platt(2.0, 2.0), labels=99, calibrator=traffic.opinion), {}
        )
    path = tmp_path / "c.json"
    traffic.run("certify", "--from-store", "--max-error", "0.3", "-o", str(path))
    certificate = load_certificate(path)
    assert certificate is not None
    corrected = resolve_recalibrations(traffic.current).with_others
    assert corrected is not None
    named = {grant.calibrator for grant in certificate.grants}
    assert named == {traffic.calibrator, f"{traffic.opinion}+{corrected.name}"}


@pytest.mark.parametrize(
    ("audited", "held", "options", "sentence"),
    [
        (0.0, 0.0, {}, "0 labelled replies are too few .* 50 more"),
        (0.05, 0.0, {}, "too few for a recalibration: 50 are the least"),
        (0.0, 0.9, {}, "labels are of held replies"),
        (0.3, 0.0, {"is_held_only": True}, "0 labelled replies are too few"),
    ],
)
def test_labels_that_do_not_allow_it_are_refused(
    audited: float, held: float, options: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    """The error says how many labels are missing, or that held replies say nothing about others."""
    traffic = Traffic(tmp_path)
    traffic.pass_by(400, 7, audit_share=audited, held=held)
    traffic.label()
    with pytest.raises(NotLearntError, match=sentence):
        learn(traffic, **options)


def test_held_replies_alone_are_enough_where_that_is_said(tmp_path: Path) -> None:
    """With `--held-only` labels of held replies are enough, for a recalibration of those."""
    traffic = Traffic(tmp_path)
    traffic.pass_by(400, 7, held=0.9)
    traffic.label()
    assert learn(traffic, is_held_only=True).labels >= 50


def test_labels_of_one_kind_are_refused(tmp_path: Path) -> None:
    """Labels that are all right are refused, as there is nothing to fit."""
    traffic = Traffic(tmp_path)
    traffic.pass_by(200, 7, audit_share=0.5, truth=lambda _, count: np.ones(count))
    traffic.label()
    with pytest.raises(NotLearntError, match="are correct: a recalibration needs both kinds"):
        learn(traffic)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["recalibrate", "--from-store", "--rollback"], "say what to learn from"),
        (["recalibrate", "--rollback"], "nothing to take back"),
        (["recalibrate", "--from-store"], "there is no record"),
        (["recalibrate", "--from-store", "-o", "/nowhere/r.json"], "there is no folder /nowhere"),
        (["recalibrate", "--from-store", "-o", "there/"], "there/ names a folder"),
    ],
)
def test_a_command_that_cannot_be_carried_out_says_why(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    """An impossible command gives one sentence and an exit status, and writes nothing."""
    done = Traffic(tmp_path).run(*arguments)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["proxy.yaml"]


def test_without_a_folder_of_versions_nothing_is_promoted(tmp_path: Path) -> None:
    """Without a folder of versions the error has the line that proxy.yaml lacks."""
    traffic = Traffic(tmp_path)
    traffic.config.write_text(f'calibrator: {{checkpoint: "{CALIBRATOR}"}}\n')
    done = traffic.run("recalibrate", "--from-store")
    assert done.returncode == 2
    assert "calibrator: {recalibration: recalibrations/current}" in done.stderr


def test_a_curve_by_domain_needs_somebody_who_says_the_domain(labelled: Traffic) -> None:
    """A curve by domain needs configured domains, or it would be for replies that never get it."""
    done = labelled.run("recalibrate", "--from-store", "--by", "domain", "--dry-run")
    assert done.returncode == 2
    assert "nothing says which domain a reply has" in done.stderr


def test_labels_are_of_the_domain_that_would_pick_their_curve(labelled: Traffic) -> None:
    """A label's domain is the one that picks the curve, a client's only where it is trusted."""
    findings = VerdictStore(labelled.url)
    labels = read_labels(findings.engine, 0.0, CALIBRATOR)
    findings.close()
    configured = replace(
        labels,
        replies=[
            replace(each, team="b" if at % 2 else None, facts=Facts(0.5, "m", domain="told"))
            for at, each in enumerate(labels.replies)
        ],
    )

    def domains(**more: object) -> list[str | None]:
        config = Config.model_validate({"teams": {"b": {"domain": "law"}}, **more})
        found = configured.in_domains(Domains(config, Router(config)))
        return [each.domain for each in found.replies][:2]

    assert domains() == [None, "law"]
    assert domains(calibrator={"client_domains": True}) == ["told", "law"]
    everything = ModelRoute(match="*", upstream="demo", domain="all")
    assert domains(models=(everything,)) == ["all", "law"]


# --- judges ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    """Store 2,000 replies, half of them judged, and half of those with an opinion."""
    traffic = Traffic(tmp_path_factory.mktemp("judged"), seed=7)
    traffic.pass_by(2_000, 14, audit_share=0.5, heard=0.5, judged=0.5)
    traffic.label()
    return traffic


def test_verdicts_teach_what_a_judge_is_worth(judged: Traffic) -> None:
    """The weights of a judge are promoted beside the curves,
    reported with their numbers, and taken back alone.
    """
    done = judged.run_json("recalibrate", "--from-store", "--signals")
    assert done["promoted"]
    assert done["calibrator"] == judged.calibrator
    assert done["after"]["brier"] < done["before"]["brier"] - 0.03
    found = resolve_recalibrations(judged.current).signals
    assert found is not None
    assert (found.name, sorted(found.names())) == (done["name"], done["numbers"])
    assert set(found.curves) == {judged.calibrator, judged.opinion}
    assert not list(resolve_recalibrations(judged.current))  # no curve was promoted with it
    again = judged.run_json("recalibrate", "--from-store", "--signals", "--dry-run")
    assert not again["is_better"]
    listed = judged.run("recalibrate", "--history").stdout
    assert f"none -> {found.name} for judges and log-probabilities" in listed
    assert judged.run_json("recalibrate", "--rollback", "--signals")["after"] is None
    assert resolve_recalibrations(judged.current).signals is None


@pytest.mark.slow  # a month of traffic of their own
def test_numbers_that_a_judge_moved_teach_the_others_too(tmp_path: Path) -> None:
    """A recalibration is fitted on the calibrator's numbers before
    the judge, and weights on its raw ones, whatever was sent then.
    """
    traffic = Traffic(tmp_path, seed=8)
    traffic.pass_by(800, 10, audit_share=0.8, judged=0.5)
    traffic.label()
    plain = learn(traffic)
    weights = traffic.run_json("recalibrate", "--from-store", "--signals")
    assert traffic.run_json("recalibrate", "--from-store")["promoted"]
    moved = Traffic(tmp_path / "moved", seed=8) if (tmp_path / "moved").mkdir() is None else traffic
    versions = RecalibrationVersions(moved.current.parent)
    signals = resolve_recalibrations(traffic.current).signals
    assert signals is not None
    versions.promote(signals, {})
    moved.pass_by(800, 10, audit_share=0.8, judged=0.5)
    moved.label()
    findings = VerdictStore(moved.url)
    names = {each.calibrator for each in read_labels(findings.engine, 0.0, CALIBRATOR).replies}
    findings.close()
    assert names == {CALIBRATOR, *signals.names()}
    assert learn(moved).as_dict() == plain.as_dict()
    again = moved.run_json("recalibrate", "--from-store", "--signals", "--dry-run")
    assert (again["labels"], again["unknown"]) == (weights["labels"], 0)
    assert again["name"] == weights["name"]


@pytest.mark.slow  # a month of traffic of their own
def test_numbers_that_know_a_judge_are_certified_apart(tmp_path: Path) -> None:
    """Numbers with a judge are certified under their own name, without those of former weights."""
    traffic = Traffic(tmp_path, seed=9)
    traffic.pass_by(600, 5, audit_share=1.0, judged=0.5)
    traffic.label()
    assert traffic.run_json("recalibrate", "--from-store", "--signals")["promoted"]
    traffic.pass_by(1_200, 9, audit_share=1.0, judged=0.5)
    traffic.label()
    weights = resolve_recalibrations(traffic.current).signals
    assert weights is not None
    certified = traffic.run("certify", "--from-store", "--max-error", "0.2", "--json")
    found = [json.loads(line) for line in certified.stdout.splitlines()]
    assert {each["calibrator"] for each in found} == {CALIBRATOR, *weights.names()}
    traffic.run_json("recalibrate", "--rollback", "--signals")
    certified = traffic.run("certify", "--from-store", "--max-error", "0.2", "--json")
    found = [json.loads(line) for line in certified.stdout.splitlines()]
    assert {each["calibrator"] for each in found} == {CALIBRATOR}


def test_too_few_judged_replies_are_one_sentence(tmp_path: Path) -> None:
    """Too few judged replies give a sentence with what is missing, and nothing is promoted."""
    traffic = Traffic(tmp_path)
    traffic.pass_by(100, 2, audit_share=1.0, judged=0.2)
    traffic.label()
    done = traffic.run("recalibrate", "--from-store", "--signals")
    assert done.returncode == 2
    assert "replies with signals are too few for a recalibration: 50 are the least" in done.stderr
    assert not traffic.current.parent.exists()
