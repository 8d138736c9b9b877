"""`/metrics` of a running proxy, read by Prometheus's own parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse

from proxy.observe.metrics import Metrics, expose_metrics
from proxy.observe.series import MOST_SERIES, OTHER
from tests.conftest import StartProxy
from tests.running import client_keys
from tests.running.desk_client import (
    API,
    DESK,
    HOLD,
    TOKEN,
    make_key,
    scraped,
    stranger,
    value,
    values_of,
)
from tests.running.live_proxy import ROOT, HearingScorer, ProxyProcess, question, until
from tests.servers.faulty_upstream import FaultyUpstream

PATIENCE_S = 20


def test_what_happens_is_counted_by_names_of_ours(start_proxy: StartProxy) -> None:
    """Requests, scores, confidences, decisions and waiting replies are counted by fixed names."""
    proxy = start_proxy(policy=HOLD.replace("desk", "gate"), **DESK)
    for text in ("p=0.2", "p=0.8"):
        proxy.ask(text)
    proxy.ask("?", "status-500")
    httpx.get(f"{proxy.base_url}/models", trust_env=False)
    until(lambda: value(scraped(proxy.desk), "pinocchio_requests_total", **MODELS) == 1)
    until(lambda: value(scraped(proxy.desk), "pinocchio_held_replies", **SENIORS) == 2)
    found = scraped(proxy.desk)
    chat = {"surface": "chat"}
    assert value(found, "pinocchio_requests_total", **chat, status="5xx") == 1
    assert sum(v for (name, _), v in found.items() if name == "pinocchio_requests_total") == 4
    assert value(found, "pinocchio_scores_total", status="scored", reason="") == 2
    gate = {"policy": "gate", "rule": "default", "action": "hold", "mode": "enforce"}
    assert value(found, "pinocchio_decisions_total", **gate) == 2
    assert value(found, "pinocchio_requests_total", upstream="faulty", action="hold") == 2
    assert value(found, "pinocchio_confidence_count") == 2
    assert value(found, "pinocchio_confidence_sum") == 1.0
    assert value(found, "pinocchio_confidence_bucket", le="0.5") == 1
    assert value(found, "pinocchio_config_generation") == 1
    assert value(found, "pinocchio_config_last_reload_successful") == 1


def test_decisions_are_counted_by_team(start_proxy: StartProxy) -> None:
    """Decisions are counted by team; without a team the label is empty."""
    rules = "rules: [{name: r, when: {team: legal}, then: block}]"
    proxy = start_proxy(
        policy=f"{{version: 1, name: p, {rules}, default: deliver}}",
        keys="required",
        upstream={"api_key": "sk-x"},
        teams={"legal": {}, "support": {}},
        **DESK,
    )
    for team in ("legal", "support", None):
        secret, _ = client_keys.make_key(proxy.store_path, team=team)
        client_keys.wait_until_known(proxy.base_url, secret)
        proxy.ask("p=0.9", headers=client_keys.bearer(secret))
    name = "pinocchio_decisions_total"
    until(lambda: value(scraped(proxy.desk), name) == 3)
    found = scraped(proxy.desk)
    assert value(found, name, team="legal", action="block") == 1
    assert value(found, name, team="support", action="deliver") == 1
    assert value(found, name, team="", action="deliver") == 1


def test_second_opinions_are_counted(start_proxy: StartProxy) -> None:
    """Second opinions are counted by what they say of the reply, and failures separately."""
    asking = "second_opinion: {from: [say Paris, say London, status-500], n: 3}"
    policy = f"version: 1\nname: two\n{asking}\ndefault: deliver\n"
    proxy = start_proxy(policy=policy, scorer=HearingScorer(), **DESK)
    proxy.ask("Paris p=0.5")
    name = "pinocchio_second_opinions_total"
    until(lambda: value(scraped(proxy.desk), name, agreement="failed") == 1)
    found = scraped(proxy.desk)
    assert [value(found, name, agreement=each) for each in ("agree", "differ")] == [1, 1]


MODELS = {"surface": "models", "status": "2xx"}
SENIORS = {"queue": "seniors", "kind": "hold"}


def test_nothing_that_a_client_writes_becomes_a_label(start_proxy: StartProxy) -> None:
    """A thousand models, paths and headers of clients make no new series."""
    proxy = start_proxy(**DESK)
    for number in range(30):
        proxy.ask("p=0.5", f"model-{number}")
        httpx.get(f"{proxy.base_url}/{number}/x%00{number}", trust_env=False)
        headers = {"x-pinocchio-tags": f"tag{number}", "x-pinocchio-domain": f"domain{number}"}
        httpx.post(
            f"{proxy.base_url}/chat/completions",
            json=question("p=0.5"),
            headers=headers,
            trust_env=False,
        )
    found = proxy.desk.get("/metrics").text
    assert re.search(r"model-|domain|tag\d", found) is None
    requests = [each for each in values_of(found) if each[0] == "pinocchio_requests_total"]
    assert len(requests) <= 4, requests


def test_series_have_a_bound() -> None:
    """Series beyond the bound, from names in reloaded configurations, count as `other`."""
    metrics = Metrics()
    for number in range(MOST_SERIES + 50):
        metrics._scores.add("scored", f"reason {number}")
        metrics._confidence.observe(0.5, f"calibrator {number}", "text")
    text, _ = expose_metrics("", metrics)
    found = values_of(text.decode())
    scores = {key: v for key, v in found.items() if key[0] == "pinocchio_scores_total"}
    assert len(scores) == MOST_SERIES + 1
    assert value(found, "pinocchio_scores_total", status=OTHER, reason=OTHER) == 50
    assert value(found, "pinocchio_confidence_count", calibrator=OTHER, kind=OTHER) == 50


def test_only_admins_scrape(start_proxy: StartProxy) -> None:
    """Only the token or an admin's key reads metrics,
    on the desk's port; a program gets no page.
    """
    proxy = start_proxy(**DESK)
    secrets = {
        None: 401,
        "wrong": 401,
        TOKEN: 200,
        make_key(proxy, "admin", "prometheus"): 200,
        make_key(proxy, "reviewer", "ann"): 403,
        make_key(proxy, "reviewer", "bob", queues="billing"): 403,
    }
    for secret, status in secrets.items():
        headers = {"authorization": f"Bearer {secret}"} if secret else {}
        with stranger(proxy, **headers) as client:
            assert client.get("/metrics").status_code == status, secret
    assert httpx.get(f"{proxy.base_url}/../metrics", trust_env=False).status_code == 404
    openmetrics = proxy.desk.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert "openmetrics-text" in openmetrics.headers["content-type"]
    assert list(parse_openmetrics(openmetrics.text))


@contextmanager
def serving(folder: Path, upstream: FaultyUpstream) -> Iterator[tuple[ProxyProcess, httpx.Client]]:
    config = (
        f'upstreams: {{faulty: {{base_url: "{upstream.base_url}", api_key: k}}}}\n'
        'models: [{match: "*", upstream: faulty}]\ncalibrator: {checkpoint: "fake:0.73"}\n'
        f"store: sqlite:///{folder}/held.db\nadmin: {{port: 0, token: {TOKEN}}}\n"
    )
    with ProxyProcess(folder, config) as process:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout().split("desk")[-1])
        assert found is not None, process.stdout()
        headers = {"authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=found[0], headers=headers, trust_env=False) as desk:
            yield process, desk


def test_a_refused_configuration_shows_until_it_is_mended(
    tmp_path: Path, upstream: FaultyUpstream
) -> None:
    """The metric is 0 while the file is wrong, and 1 again once
    it is right; the time of the last good one stays meanwhile.
    """
    path = tmp_path / "proxy.yaml"
    with serving(tmp_path, upstream) as (_, desk):

        def state() -> float:
            return value(scraped(desk), "pinocchio_config_last_reload_successful")

        at = "pinocchio_config_last_reload_success_timestamp_seconds"
        first = value(scraped(desk), at)
        good = path.read_text()
        assert state() == 1
        path.write_text(good + "polices: observe\n")
        until(lambda: state() == 0, PATIENCE_S)
        refused = scraped(desk)
        assert (value(refused, at), value(refused, "pinocchio_config_generation")) == (first, 1)
        assert value(refused, "pinocchio_config_reload_failures_total") == 1
        assert desk.get(f"{API}/stats").json()["configuration"]["is_refused"]
        path.write_text(good + "policies: helpdesk\n")
        until(lambda: state() == 1, PATIENCE_S)
        mended = scraped(desk)
        assert value(mended, "pinocchio_config_generation") == 2
        assert value(mended, at) > first
        assert value(mended, "pinocchio_config_reload_failures_total") == 1


def test_two_applications_count_apart(start_proxy: StartProxy) -> None:
    """Two applications in one process count separately."""
    one, other = (start_proxy(policy=HOLD.replace("desk", n), **DESK) for n in ("one", "two"))
    one.ask("p=0.5")
    until(lambda: value(scraped(one.desk), "pinocchio_confidence_count") == 1)
    assert value(scraped(other.desk), "pinocchio_confidence_count") == 0


def test_the_page_for_operators_names_every_metric(start_proxy: StartProxy) -> None:
    """docs/operations.md has the names and labels of all metrics that are served."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(pinocchio_\w+)` \| (.*?) \|", page, re.MULTILINE))
    proxy = start_proxy(policy=HOLD.replace("desk", "gate"), **DESK)
    proxy.ask("p=0.2")
    families = [
        family
        for family in parse(proxy.desk.get("/metrics").text)
        if family.name.startswith("pinocchio") and not family.name.endswith("_created")
    ]
    named = {f"{f.name}_total" if f.type == "counter" else f.name: f for f in families}
    assert named.keys() == {*rows}
    for name, family in named.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert labels <= {*re.findall(r"`(\w+)`", rows[name])}, name
