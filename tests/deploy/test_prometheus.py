"""The board and the alerts of deploy/, in a real Prometheus that scrapes a running proxy."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from policies import Certificate, LabelledScore, Scope, certify
from proxy.config.settings.admin import LINKS
from proxy.scoring.scoring import Status
from proxy.store.database.verdicts import VerdictStore, Withdrawal
from proxy.store.verdicts.drift import Monitor, MonitorKey, Position, write_monitors
from tests.proxy.observe.otlp_receiver import OtlpReceiver
from tests.running.desk_client import DESK, TOKEN, decide, desk_url
from tests.running.live_proxy import ROOT, HearingScorer, LiveProxy, free_port, until
from tests.servers.faulty_upstream import FaultyUpstream

Json = dict[str, Any]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
BOARD: Json = json.loads((ROOT / "deploy" / "grafana" / "pinocchio.json").read_text())
PANELS: list[Json] = [each for each in BOARD["panels"] if each["type"] != "row"]
VARIABLES = {"$instance": ".*", "$kind": ".*", "$__rate_interval": "5s"}
PATIENCE_S = 30
CONFIG = """
global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}
rule_files: ["{alerts}"]
scrape_configs:
  - job_name: pinocchio
    authorization: {{credentials: "{token}"}}
    static_configs: [{{targets: ["{target}"]}}]
"""
POLICY = """
version: 1
name: gate
certificate: gate.certificate.json
second_opinion: {from: [say Paris], n: 2}
judge: {model: say 80, by: words}
rules: [{name: surely right, when: {confidence: {max_error: 0.1}}, then: deliver}]
default: {hold: {queue: seniors, expires: 1h, approvals: 2}}
"""


class Prometheus:
    """A Prometheus server that scrapes one proxy; `api` queries it."""

    def __init__(self, folder: Path, target: str) -> None:
        self._target = target
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(alerts=ALERTS, token=TOKEN, target=target))
        program, port = shutil.which("prometheus"), free_port()
        assert program is not None, "scripts/setup_programs installs it"
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            ],
            cwd=folder,
        )
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20)

    def api(self, path: str, **fields: str) -> Any:
        answer = self._http.post(f"/api/v1/{path}", data=fields)
        assert answer.status_code == 200, (fields, answer.text)
        return answer.json()["data"]

    def is_up(self) -> bool:
        try:
            return self._http.get("/-/ready").status_code == 200 and bool(self.ask("up == 1"))
        except httpx.TransportError:
            return False

    def ask(self, query: str) -> list[Json]:
        found: list[Json] = self.api("query", query=query)["result"]
        return found

    def alerts(self) -> dict[str, Json]:
        """Return the labels of the alerts that are firing or pending, by name."""
        found = self._http.get("/api/v1/alerts").json()["data"]["alerts"]
        return {each["labels"]["alertname"]: each["labels"] for each in found}

    def close(self) -> None:
        self._http.close()
        self._process.terminate()
        self._process.wait(20)


@pytest.fixture(scope="module")
def proxy(
    running_upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveProxy]:
    """Yield a proxy in which everything that has a label has happened."""
    folder = tmp_path_factory.mktemp("proxy")
    collector = OtlpReceiver()
    (folder / "gate.yaml").write_text(POLICY)
    (folder / "gate.certificate.json").write_text(Certificate((GRANT,), "2026-01-01").to_json())
    policy, scorer = folder / "gate.yaml", HearingScorer()
    proxy = LiveProxy(
        running_upstream.base_url,
        folder,
        policy=policy,
        scorer=scorer,
        telemetry={"otel": {"endpoint": collector.url}},
        guardrails={"port": 0},
        upstream={"breaker": {"failures": 100, "open_s": 1}},
        models=(
            {"match": "demo", "upstream": "demo"},
            {"match": "*-503", "upstream": "faulty", "fallback": {"to": ["demo"]}},
            {"match": "*", "upstream": "faulty"},
        ),
        **DESK,
    )
    with collector:
        try:
            happen(proxy)
            yield proxy
        finally:
            proxy.stop()


GRANT = certify(
    [LabelledScore(str(n), 0.9 if n % 2 else 0.2, bool(n % 2)) for n in range(600)], 0.1, 0.9
).grant("words@1", Scope())


def happen(proxy: LiveProxy) -> None:
    """Produce replies that are held, drifted, decided on, streamed, and refused by the upstream."""
    held = [proxy.ask(f"Paris p=0.{n}").headers["x-pinocchio-review-id"] for n in (1, 2, 3)]
    proxy.ask("Paris p=0.2", stream=True)
    proxy.ask("?", "status-500")
    proxy.ask("Paris p=0.9 support=0.8 basis=context")
    visit = {"text": "Paris p=0.9", "context": {"stage": "output"}}
    httpx.post(f"{proxy.guardrails_url}/analyze", json=visit, trust_env=False).raise_for_status()
    call = {"call": {"id": "a", "name": "f", "arguments": {}}, "messages": []}
    proxy.http.post("/pinocchio/v1/calls", json=call).raise_for_status()
    assert proxy.ask("?", "status-503").headers["x-pinocchio-fallback-from"] == "status-503"
    assert decide(proxy, held[0], verdict="approve").json()["state"] == "open"
    assert decide(proxy, held[1], verdict="reject").json()["state"] == "rejected"
    assert proxy.desk.get(f"{LINKS}altered").status_code == 403
    findings = VerdictStore(proxy.config.store)
    last = proxy.ask("Paris p=0.2").headers["x-pinocchio-request-id"]
    proxy.recorded(last, "facts")
    monitor = Monitor(MonitorKey("scores", "words@1", "ok"), 9, {}, time.time(), last)
    assert write_monitors(findings.engine, [monitor], Position(), Position(last, 0))
    findings.close()


@pytest.fixture(scope="module")
def prometheus(proxy: LiveProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    server = Prometheus(
        tmp_path_factory.mktemp("prometheus"), desk_url(proxy).removeprefix("http://")
    )
    try:
        until(server.is_up, PATIENCE_S)
        wanted = "count(increase(pinocchio_requests_total[1h]))"  # two scrapes
        until(lambda: server.ask(wanted), PATIENCE_S)
        yield server
    finally:
        server.close()


def queries(panel: Json) -> list[str]:
    found = []
    for target in panel["targets"]:
        query = target["expr"]
        for name, value in VARIABLES.items():
            query = query.replace(name, value)
        found.append(query)
    return found


def grouped_by(query: str) -> set[str]:
    """Return the labels that a query groups by, without `le`."""
    groups = [re.findall(r"\w+", each) for each in re.findall(r"\bby \(([^)]*)\)", query)]
    return set.union(set(), *map(set, groups)) - {"le"}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_each_panel_has_something_to_show(prometheus: Prometheus, panel: Json) -> None:
    """Prometheus accepts each query and finds series for it, with the labels of the legend."""
    for target, query in zip(panel["targets"], queries(panel), strict=True):
        until(lambda query=query: prometheus.ask(query), PATIENCE_S)
        labels = {label for series in prometheus.ask(query) for label in series["metric"]}
        assert labels - {"le"} == grouped_by(query), query
        legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - {"le"}
        assert legend <= grouped_by(query), target


def labels_of(prometheus: Prometheus, metric: str) -> set[str]:
    series = prometheus.api("series", **{"match[]": metric})
    return {label for each in series for label in each} - {"__name__"}


def all_queries() -> list[str]:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    return [query for panel in PANELS for query in queries(panel)] + [r["expr"] for r in rules]


def test_labels_that_are_selected_are_exported(prometheus: Prometheus) -> None:
    """Each selected label is one that its metric has: another would match all series, or none."""
    seen = 0
    for query in all_queries():
        for metric, selector in re.findall(r"((?:pinocchio|process)_\w+)\{([^}]*)\}", query):
            for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector):
                assert label in labels_of(prometheus, metric), (metric, label)
                seen += 1
    assert seen > 40
    for selected in re.findall(r'status!~"([^"]*)"', " ".join(all_queries())):
        assert set(selected.split("|")) <= {each.value for each in Status}


def test_the_board_shows_every_metric() -> None:
    """The board has a query for every metric that is exported."""
    named = set(re.findall(r"pinocchio_\w+", " ".join(all_queries())))
    plain = {re.sub(r"_(bucket|sum|count)$", "", each) for each in named}
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")  # checked elsewhere
    assert plain == set(re.findall(r"^\| `(pinocchio_\w+)` \|", page, re.MULTILINE))


def test_variables_of_the_board_are_of_real_labels(prometheus: Prometheus) -> None:
    """Both lists of choices read a label that its metric has."""
    queries = [each["query"]["query"] for each in BOARD["templating"]["list"][1:]]
    assert len(queries) == 2
    for each in queries:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", each).groups()  # type: ignore[union-attr]
        assert label in labels_of(prometheus, metric)


def test_rows_and_panels_do_not_overlap() -> None:
    """Every panel has its own place and number, under the rows that operators look for."""
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        *("Traffic", "Confidence", "Decisions", "Desk", "Scorer", "Store and process"),
    ]


@pytest.mark.parametrize(
    "arguments",
    [["check", "rules", str(ALERTS)], ["test", "rules", "alerts_test.yaml"]],
    ids=["check", "test"],
)
def test_alerts_fire_when_they_should(arguments: list[str]) -> None:
    """Each alert fires on series that should cause it, and not on others."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: Debian's package prometheus has it")
    done = subprocess.run(
        [program, *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tried = yaml.safe_load((Path(__file__).parent / "alerts_test.yaml").read_text())["tests"]
    named = {each["alertname"] for test in tried for each in test["alert_rule_test"]}
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    assert named == {each["alert"] for each in rules}
    assert len(rules) == 12


def test_a_running_proxy_makes_alerts_fire(proxy: LiveProxy, prometheus: Prometheus) -> None:
    """An old held reply, a withdrawn certificate and drift fire alerts; others do not fire."""
    assert "PinocchioHeldReplyAges" not in prometheus.alerts()
    with closing(sqlite3.connect(proxy.store_path)) as connection, connection:
        change = "UPDATE held_replies SET created_at = created_at - 9000 WHERE state = 'held'"
        connection.execute(change)
    findings = VerdictStore(proxy.config.store)
    findings.withdraw(Withdrawal(GRANT.digest, "gate", "all replies", "scores_drifted", 0.0))
    findings.close()
    expected = {"PinocchioHeldReplyAges", "PinocchioCertificateWithdrawn", "PinocchioDrift"}
    until(lambda: prometheus.alerts().keys() >= expected, PATIENCE_S)
    firing = prometheus.alerts()
    assert firing["PinocchioDrift"]["kind"] == "scores"
    assert not firing.keys() & {"PinocchioDown", "PinocchioConfigurationsDiffer"}
    assert firing["PinocchioHeldReplyAges"]["queue"] == "seniors"
    assert firing["PinocchioCertificateWithdrawn"]["policy"] == "gate"
