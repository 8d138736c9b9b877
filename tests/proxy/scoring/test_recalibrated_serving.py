"""A recalibration file in the configuration: what the proxy then reports (paper N01, N05)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from calibrator import load_scorer, opinion_of
from calibrator.recalibration.curves import Platt, Recalibration
from calibrator.recalibration.signals import SignalCurve, SignalWeights
from calibrator.recalibration.versions import RecalibrationVersions
from calibrator.scorer import Signals
from policies import InvalidDocumentError
from proxy.config.sections import load_config
from tests.running.live_proxy import ProxyProcess, question, run_cli, until
from tests.servers.faulty_upstream import FaultyUpstream

BY_MODEL = Recalibration("platt", Platt(1.0, -1.0), "model", {"ok-2099": Platt(1.0, 2.0)}, 100)
BY_DOMAIN = Recalibration("platt", Platt(1.0, -1.0), "domain", {"law": Platt(1.0, 2.0)}, 100)
LAW = pytest.approx(BY_DOMAIN.groups["law"].apply(0.5), abs=1e-4)
POOLED = pytest.approx(BY_DOMAIN.pooled.apply(0.5), abs=1e-4)
CALIBRATOR = "calibrator: {checkpoint: 'fake:0.5', recalibration: recalibration.json}\n"


def config_of(folder: Path, upstream: FaultyUpstream) -> str:
    return (
        f"upstreams: {{faulty: {{base_url: '{upstream.base_url}', api_key: sk-faulty}}}}\n"
        "models:\n- {match: 'law-*', upstream: faulty, domain: Law}\n"
        "- {match: '*', upstream: faulty}\n"
        f"store: sqlite:///{folder}/held.db\n{CALIBRATOR}"
    )


def asked(proxy: ProxyProcess, model: str = "ok", **headers: str) -> tuple[float, str, float]:
    """Return the confidence and the calibrator in the headers, and the confidence in the body."""
    reply = httpx.post(
        f"{proxy.base_url}/chat/completions",
        json=question("why?", model),
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        timeout=20,
    )
    assert reply.status_code == 200
    (choice,) = reply.json()["pinocchio"]["choices"]
    confidence = float(reply.headers["x-pinocchio-confidence"])
    return confidence, reply.headers["x-pinocchio-calibrator"], choice["confidence"]


def other_calibrators() -> str:
    """Return the file of a recalibration that was fitted for another calibrator."""
    found = Recalibration("platt", Platt(), labels=100, calibrator="embedded@1234")
    return json.dumps({"name": found.name, **found.as_dict()})


@pytest.fixture(scope="module")
def by_domain(
    running_upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxyProcess]:
    folder = tmp_path_factory.mktemp("recalibrated")
    BY_DOMAIN.save(folder / "recalibration.json")
    with ProxyProcess(folder, config_of(folder, running_upstream)) as process:
        yield process


def test_the_confidence_is_the_recalibrated_one(by_domain: ProxyProcess) -> None:
    """Header and body have the corrected number; the header names calibrator and correction."""
    confidence, name, in_body = asked(by_domain)
    assert confidence == pytest.approx(BY_DOMAIN.apply(0.5), abs=1e-4)
    assert in_body == pytest.approx(confidence, abs=1e-4)
    assert name == f"fake:0.5+{BY_DOMAIN.name}"


def test_the_domain_of_a_route_has_its_own_curve(by_domain: ProxyProcess) -> None:
    """N05: the domain of a model's route picks the curve, in upper or lower case."""
    law, _, _ = asked(by_domain, "law-1", x_faulty="ok")
    assert law == LAW
    assert asked(by_domain, "law-1", x_faulty="ok", x_pinocchio_domain="physics")[0] == LAW


@pytest.mark.parametrize("domain", ["law", "Law", "physics", ""])
def test_a_client_picks_no_curve(by_domain: ProxyProcess, domain: str) -> None:
    """A domain in the request picks no curve, or clients could choose their own confidence."""
    assert asked(by_domain, x_pinocchio_domain=domain) == asked(by_domain)


def test_a_client_picks_a_curve_where_clients_are_trusted(
    running_upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """With `client_domains: true` the request's domain counts, after the route's."""
    BY_DOMAIN.save(tmp_path / "recalibration.json")
    config = config_of(tmp_path, running_upstream).replace(
        "{checkpoint", "{client_domains: true, checkpoint"
    )
    with ProxyProcess(tmp_path, config) as process:
        assert asked(process, x_pinocchio_domain="LAW")[0] == LAW
        assert asked(process, x_pinocchio_domain="physics") == asked(process)
        assert asked(process, "law-1", x_faulty="ok", x_pinocchio_domain="physics")[0] == LAW


def test_the_domain_of_a_team_has_its_own_curve(
    running_upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """A team's domain counts before the route's; rules see it, and the record has it."""
    BY_DOMAIN.save(tmp_path / "recalibration.json")
    config = config_of(tmp_path, running_upstream)
    config += "keys: required\nteams: {lawyers: {domain: law}, physicists: {domain: physics}}\n"
    path = tmp_path / "proxy.yaml"
    path.write_text(config)
    keys = {
        team: run_cli("keys", "create", "--team", team, "--config", str(path)).stdout.split()[-1]
        for team in ("lawyers", "physicists")
    }
    with ProxyProcess(tmp_path, config) as process:
        body = {"x_pinocchio_domain": "other"}
        assert asked(process, authorization=f"Bearer {keys['lawyers']}", **body)[0] == LAW
        other = asked(process, "law-1", x_faulty="ok", authorization=f"Bearer {keys['physicists']}")
        assert other[0] == POOLED
    with closing(sqlite3.connect(tmp_path / "held.db")) as record:
        facts = [row[0] for row in record.execute("SELECT facts FROM exchanges ORDER BY rowid")]
    assert ['"law"' in facts[0], '"other"' in facts[0], '"physics"' in facts[1]] == [
        True,
        False,
        True,
    ]


def test_unused_curves_give_a_warning(running_upstream: FaultyUpstream, tmp_path: Path) -> None:
    """A recalibration with unused domains works with its pooled curve, and a warning says so."""
    BY_DOMAIN.save(tmp_path / "recalibration.json")
    config = config_of(tmp_path, running_upstream).replace(", domain: Law", "")
    with ProxyProcess(tmp_path, config) as process:
        assert asked(process, "law-1", x_faulty="ok", x_pinocchio_domain="law")[0] == POOLED
        assert process.lines("recalibration_without_domains")
    checked = run_cli("check", "--config", str(tmp_path / "proxy.yaml"))
    assert "warning: " in checked.stdout
    assert "nothing says which domain a reply has" in checked.stdout


def test_a_model_has_its_own_curve(running_upstream: FaultyUpstream, tmp_path: Path) -> None:
    """N02: the name that the answering model reports picks the curve."""
    BY_MODEL.save(tmp_path / "recalibration.json")
    with ProxyProcess(tmp_path, config_of(tmp_path, running_upstream)) as process:
        own, name, _ = asked(process)
    assert own == pytest.approx(BY_MODEL.groups["ok-2099"].apply(0.5), abs=1e-4)
    assert name == f"fake:0.5+{BY_MODEL.name}"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no recalibration"),
        ("{}", "is no recalibration of this version"),
        (other_calibrators(), "was fitted for embedded@1234, not for fake:0.5"),
        (json.dumps({**BY_MODEL.as_dict(), "name": "platt@00000000"}), "was changed by hand"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_start(
    content: str | None, sentence: str, running_upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """A recalibration file that does not fit is refused at the start, and by `check`."""
    if content is not None:
        (tmp_path / "recalibration.json").write_text(content)
    path = tmp_path / "proxy.yaml"
    path.write_text(config_of(tmp_path, running_upstream))
    for command in (["serve", "--port", "0"], ["check"]):
        done = run_cli(*command, "--config", str(path))
        assert done.returncode != 0
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


def test_a_promoted_recalibration_counts_from_the_next_request_on(
    running_upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """Promoting and taking back need no restart, and the record keeps the uncorrected number."""
    config = config_of(tmp_path, running_upstream)
    versions = RecalibrationVersions(tmp_path / "recalibrations")
    with ProxyProcess(tmp_path, config.replace(".json", "s/current")) as process:
        assert asked(process)[:2] == (0.5, "fake:0.5")  # none was promoted yet
        versions.promote(BY_DOMAIN, {})
        until(lambda: asked(process)[1] != "fake:0.5")
        mended = asked(process)
        assert mended[1] == f"fake:0.5+{BY_DOMAIN.name}"
        assert mended[0] == pytest.approx(BY_DOMAIN.apply(0.5), abs=1e-4)
        versions.roll_back()
        until(lambda: asked(process)[1] == "fake:0.5")
        (tmp_path / "recalibrations" / "current").write_text("no-such-file.json")
        until(lambda: process.lines("configuration_refused"))
        assert asked(process)[1] == "fake:0.5"
    with closing(sqlite3.connect(tmp_path / "held.db")) as record:
        rows = set(record.execute("SELECT calibrator, confidence, score FROM exchanges"))
    assert rows == {
        ("fake:0.5", 0.5, None),
        (f"fake:0.5+{BY_DOMAIN.name}", BY_DOMAIN.apply(0.5), 0.5),
    }


HEARING = """version: 1
name: hearing
second_opinion: {from: [say London p=0.9]}
rules: []
default: deliver
"""


def test_numbers_that_know_others_take_up_theirs(
    running_upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """With the shipped calibrator, promoting a recalibration for second opinions leaves
    the single reply's number unchanged, and taking it back needs no restart either.
    """
    config = config_of(tmp_path, running_upstream).replace("fake:0.5", "embedded")
    config += "policies: hearing.yaml\n"
    (tmp_path / "hearing.yaml").write_text(HEARING)
    versions = RecalibrationVersions(tmp_path / "recalibrations")
    name = opinion_of(load_scorer("embedded"))
    knowing = Recalibration("platt", Platt(1.0, -1.0), labels=100, calibrator=name)
    with ProxyProcess(tmp_path, config.replace(".json", "s/current")) as process:
        until(lambda: asked(process)[1] == name, 60)
        before = asked(process)[0]
        versions.promote(knowing, {})
        until(lambda: asked(process)[1] == f"{name}+{knowing.name}")
        assert asked(process)[0] == pytest.approx(knowing.apply(before), abs=2e-4)
        versions.roll_back("others")
        until(lambda: asked(process)[1] == name)
    with closing(sqlite3.connect(tmp_path / "held.db")) as record:
        query = "SELECT facts FROM exchanges WHERE facts LIKE '%alone%'"
        facts = [json.loads(row[0])[0] for row in record.execute(query)]
    assert {each["alone_calibrator"] for each in facts} == {name.partition("+opinion@")[0]}
    assert len({each["alone"] for each in facts}) == 1


def test_a_file_for_each_kind_of_numbers_is_named(
    running_upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """One file for single replies and one for numbers with opinions can be named, in any
    order; a change of either is read without a restart. Two files of one kind are refused.
    """
    scorer = load_scorer("embedded")
    alone = Recalibration("platt", Platt(1.0, -1.0), labels=100, calibrator=scorer.name)
    knowing = Recalibration("platt", Platt(1.0, -2.0), labels=100, calibrator=opinion_of(scorer))
    alone.save(tmp_path / "alone.json")
    knowing.save(tmp_path / "knowing.json")
    (tmp_path / "hearing.yaml").write_text(HEARING)
    config = config_of(tmp_path, running_upstream).replace("fake:0.5", "embedded")
    config = config.replace("recalibration.json", "[knowing.json, alone.json]")
    with ProxyProcess(tmp_path, config + "policies: hearing.yaml\n") as process:
        until(lambda: asked(process)[1] == f"{opinion_of(scorer)}+{knowing.name}", 60)
        (tmp_path / "hearing.yaml").write_text("{version: 1, name: plain, default: deliver}")
        until(lambda: asked(process)[1] == f"{scorer.name}+{alone.name}")
        replace_file = Recalibration("platt", Platt(1.0, 1.0), calibrator=scorer.name)
        replace_file.save(tmp_path / "alone.json")
        until(lambda: asked(process)[1] == f"{scorer.name}+{replace_file.name}")
    alone.save(tmp_path / "knowing.json")
    checked = run_cli("check", "--config", str(tmp_path / "proxy.yaml"))
    assert checked.returncode == 2
    assert "proxy.yaml:" in checked.stderr
    assert "is a second recalibration of numbers of replies alone" in checked.stderr


SIGNALLED = """version: 1
name: signalled
judge: {model: "judge 0.9", when: {confidence: {below: 0.1}}}
logprobs: true
default: deliver
"""


def test_weights_of_signals_stand_beside_a_curve(
    running_upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """A reply without signals has the curve's number and name; one with signals has the
    number that the weights make of the calibrator's own. `check` says whether signals count.
    """
    (tmp_path / "signalled.yaml").write_text(SIGNALLED)
    config = config_of(tmp_path, running_upstream) + "policies: signalled.yaml\n"
    BY_MODEL.save(tmp_path / "recalibration.json")
    path = tmp_path / "proxy.yaml"
    path.write_text(config)
    checked = run_cli("check", "--config", str(path)).stdout
    assert "asks judge 0.9 to judge replies whose confidence is below 0.1" in checked
    assert "log-probabilities are told and change no number yet" in checked
    assert "a judge moves a number by a prior" in checked
    curve = SignalCurve(1.0, 0.0, (1.0, 0.0))
    weights = SignalWeights("fake:0.5", {"fake:0.5": {"logprobs": curve}}, 100)
    weights.save(tmp_path / "signals.json")
    config = config.replace("recalibration.json", "[recalibration.json, signals.json]")
    with ProxyProcess(tmp_path, config) as process:
        assert asked(process, "likely")[1] == f"fake:0.5+{BY_MODEL.name}"
        body = question("Paris", "likely", logprobs=True)
        member = httpx.post(f"{process.base_url}/chat/completions", json=body).json()["pinocchio"]
    found = weights.weigh(0.5, "fake:0.5", Signals(logprobs=(-0.5, -0.5)))
    assert found is not None
    assert (member["confidence"], member["calibrator"]) == (
        round(found.confidence, 4),
        found.calibrator,
    )
    [piece] = member["evidence"]
    assert piece["before"] == round(BY_MODEL.apply(0.5), 4)
    checked = run_cli("check", "--config", str(path)).stdout
    assert "change no number yet" not in checked
    assert "by a prior" not in checked


def test_the_file_is_looked_for_beside_the_configuration(tmp_path: Path) -> None:
    """A recalibration's path is relative to the configuration, like a policy's."""
    path = tmp_path / "proxy.yaml"
    path.write_text(CALIBRATOR)
    assert load_config(path).calibrator.recalibration == (tmp_path / "recalibration.json",)
    path.write_text("calibrator: {recalibration: [alone.json, /etc/r.json]}\n")
    files = tmp_path / "alone.json", Path("/etc/r.json")
    assert load_config(path).calibrator.recalibration == files
    path.write_text("calibrator: {recalibration: /etc/r.json}\n")
    assert load_config(path).calibrator.recalibration == (Path("/etc/r.json"),)
    path.write_text("calibrator: {checkpoint: 'fake:0.5'}\n")
    assert load_config(path).calibrator.recalibration == ()


def test_nothing_cannot_be_recalibrated(tmp_path: Path) -> None:
    """A recalibration without a calibrator is refused with its line."""
    path = tmp_path / "proxy.yaml"
    path.write_text("calibrator:\n  checkpoint: none\n  recalibration: r.json\n")
    with pytest.raises(InvalidDocumentError, match="gives no number to recalibrate"):
        load_config(path)
