"""Several workers are one proxy: what one knows, counts or learns holds at all of them."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from proxy.config.sections import Config
from proxy.desk.gauges import proportional_bytes
from proxy.scoring.loader import PreloadedCalibrators, preload, shares_scorer
from tests.builders.tiny_models import OfFamily
from tests.proxy.http.workers.several import Workers, is_alive, kill, running
from tests.running.client_keys import bearer, make_key
from tests.running.desk_client import scraped, value
from tests.running.live_proxy import members_in, question, run_cli, until
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.responses_upstream import ResponsesUpstream

CHAT = "/v1/chat/completions"
HOLD = (
    "version: 1\nname: p\nrules: [{name: sure, when: {tags: [sure]}, then: deliver}]\n"
    "default: {hold: {queue: q, reply: wait, wait: 60s}}\n"
)


@pytest.fixture(scope="module")
def shared(
    running_upstream: FaultyUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workers]:
    """Start two workers that hold what is not tagged as sure; none of these tests kills one."""
    folder = tmp_path_factory.mktemp("workers")
    with running(folder, running_upstream.base_url, policy=HOLD) as workers:
        yield workers


def ask(client: httpx.Client, text: str = "p=0.9", **fields: object) -> httpx.Response:
    headers = {"x-pinocchio-tags": "sure"}
    return client.post(CHAT, json=question(text, **fields), headers=headers)  # type: ignore[arg-type]


def test_a_streams_result_is_found_at_every_worker(shared: Workers) -> None:
    """A stream's result is found at every worker, with the key that asked."""
    one, other = shared.both()
    member = members_in(ask(one, stream=True).content)[-1]
    path = f"/pinocchio/v1/results/{member['request_id']}"
    assert one.get(path).json() == other.get(path).json()
    assert other.get(path).json()["request_id"] == member["request_id"]
    assert other.get(path, headers=bearer("sk-else")).status_code == 404
    assert other.get("/pinocchio/v1/results/req_none").status_code == 404


def test_counts_of_all_workers_add_up(shared: Workers) -> None:
    """A scrape has the sum of all workers' counts, and all processes."""
    desk, clients = shared.desk, shared.both()
    before = value(scraped(desk), "pinocchio_requests_total")
    for client in clients:
        for _ in range(3):
            assert ask(client).status_code == 200
    figures = scraped(desk)
    assert value(figures, "pinocchio_requests_total") == before + 6
    assert value(figures, "pinocchio_workers") == 2
    assert value(figures, "pinocchio_worker_restarts_total") == 0
    pids = shared.process.pid, *shared.pids()
    memory = sum(proportional_bytes(pid) for pid in pids)
    assert value(figures, "process_resident_memory_bytes") == pytest.approx(memory, rel=0.2)
    resident = sum(
        int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for pid in pids
    )
    assert memory < 0.8 * resident  # pages that the processes share count once


def test_who_waits_at_another_worker_hears_of_the_verdict(shared: Workers) -> None:
    """A client that waits at the second worker gets the first one's verdict as quickly."""
    desk, client = shared.desk, shared.client(1)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.post, CHAT, json=question("p=0.1"))
        until(lambda: desk.get("/pinocchio/v1/reviews").json()["items"])
        [review] = desk.get("/pinocchio/v1/reviews").json()["items"]
        verdict = {"verdict": "approve"}
        decided = desk.post(f"/pinocchio/v1/reviews/{review['id']}/verdict", json=verdict)
        assert decided.status_code == 200
        released = waiting.result(10)
    assert released.headers["x-pinocchio-action"] == "deliver"
    assert released.json()["choices"][0]["message"]["content"] == "p=0.1"


def test_a_configuration_holds_at_all_or_at_none(shared: Workers) -> None:
    """A change applies at both workers; one that is refused changes neither, and both report it."""
    one, other = shared.both()
    written = shared.path.read_text()
    number = shared.readyz()["generation"]
    shared.path.write_text(written + "attach: {headers: true, body: false}\n")
    until(lambda: one.get("/readyz").json()["generation"] == number + 1)
    until(lambda: other.get("/readyz").json()["generation"] == number + 1, within_s=1)
    assert all("pinocchio" not in ask(client).json() for client in (one, other))
    shared.path.write_text(written + "atach: {}\n")
    until(lambda: one.get("/readyz").json()["configuration"] == "refused")
    until(lambda: other.get("/readyz").json()["configuration"] == "refused", within_s=1)
    assert {c.get("/readyz").json()["generation"] for c in (one, other)} == {number + 1}
    assert len(shared.process.lines("configuration_refused")) == 1
    assert value(scraped(shared.desk), "pinocchio_config_last_reload_successful") == 0
    shared.path.write_text(written)
    shared.process.send_signal(signal.SIGHUP)
    until(lambda: shared.readyz()["generation"] == number + 2)
    until(lambda: all("pinocchio" in ask(client).json() for client in (one, other)))


def test_each_line_of_the_log_says_which_worker_wrote_it(shared: Workers) -> None:
    for client in shared.both():
        ask(client)
    until(lambda: {line["worker"] for line in shared.process.lines()} == {0, 1})


def test_conversations_and_limits_are_of_all_workers(
    responses_upstream: ResponsesUpstream, tmp_path: Path
) -> None:
    """A response can be continued at another worker, and a key's limits count for all workers."""
    store = tmp_path / "store.db"
    secret, _ = make_key(store)
    limited, _ = make_key(store, requests_per_minute=7)
    options = {"more": "keys: required\n"}
    with running(tmp_path, responses_upstream.base_url, **options) as workers:
        one, other = workers.both()
        first = one.post(
            "/v1/responses", json={"model": "ok", "input": "I am Ada"}, headers=bearer(secret)
        )
        asked = {"model": "ok", "input": "Who am I?", "previous_response_id": first.json()["id"]}
        second = other.post("/v1/responses", json=asked, headers=bearer(secret))
        assert second.headers["x-pinocchio-confidence-status"] == "scored", second.text
        fetched = other.get(f"/v1/responses/{first.json()['id']}", headers=bearer(secret))
        assert fetched.headers["x-pinocchio-confidence-status"] == "scored"
        foreign = {**asked, "previous_response_id": "resp_none"}
        assert other.post("/v1/responses", json=foreign, headers=bearer(secret)).status_code == 404
        statuses = [
            client.get("/v1/models", headers=bearer(limited)).status_code
            for client in (one, other) * 5
        ]
        assert [statuses.count(404), statuses.count(429)] == [7, 3], statuses  # 404: no models


def test_dead_worker_is_restarted(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """When a worker dies, clients of the others notice nothing and counts do not decrease.
    Its replacement has the current configuration, whatever the files have by then.
    """
    with running(tmp_path, upstream.base_url) as workers:
        one, other = workers.both()
        assert [ask(client).status_code for client in (one, other)] == [200, 200]
        workers.path.write_text(workers.path.read_text() + "attach: {body: false}\n")
        until(lambda: workers.readyz()["generation"] == 2)
        workers.path.write_text("no: configuration\n")
        until(lambda: workers.readyz()["configuration"] == "refused")
        assert value(scraped(workers.desk), "pinocchio_requests_total") == 2
        [first, second] = workers.pids()
        kill(first)  # the one with the desk
        assert ask(other).status_code == 200
        until(lambda: len(workers.pids()) == 2 and workers.readyz()["workers"]["running"] == 2)
        anew = workers.client(0)
        readiness = anew.get("/readyz").json()
        assert (readiness["generation"], readiness["configuration"]) == (2, "refused")
        assert "pinocchio" not in ask(anew).json()
        figures = scraped(workers.desk)
        assert value(figures, "pinocchio_requests_total") == 4
        assert value(figures, "pinocchio_worker_restarts_total") == 1
        [died] = workers.process.lines("worker_died")
        assert (died["process"], died["status"]) == ("worker 0", -9)
        assert second in workers.pids()


def test_workers_end_with_their_supervisor(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """When the supervisor is killed no worker remains; requests under way are answered first."""
    workers = Workers(tmp_path, upstream.base_url)
    pids, client = workers.pids(), workers.client(0)
    assert len(pids) == 2
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(ask, client, "p=0.9", model="slow")
        until(lambda: upstream.requests)
        kill(workers.process.pid)
        time.sleep(0.5)
        upstream.last.proceed()
        assert slow.result(10).status_code == 200
    until(lambda: not any(map(is_alive, pids)), within_s=15)
    assert len(workers.process.lines("supervisor_gone")) == 2
    workers.stop()


def test_a_drain_of_all_workers_loses_nothing(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """A signal for the whole group counts once: streams end and every reply
    is recorded, while clients follow `/readyz` as a load balancer does.
    """
    workers = Workers(tmp_path, upstream.base_url, drain_s=1)
    pids = workers.pids()
    done: list[int] = []
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.is_set():
            reply = httpx.post(workers.root + CHAT, json=question("p=0.9"), trust_env=False)
            assert reply.status_code == 200
            done.append(reply.status_code)

    with ThreadPoolExecutor() as pool:
        client = workers.client(1)
        with client.stream("POST", CHAT, json=question("p=0.9", "gated", stream=True)) as stream:
            parts = stream.iter_raw()
            begun, gated = next(parts), upstream.last
            clients = [pool.submit(go_on) for _ in range(4)]
            until(lambda: len(done) > 20)
            for pid in (*pids, workers.process.pid):  # as systemd does
                os.kill(pid, signal.SIGTERM)
            until(lambda: workers.readyz()["status"] == "draining", within_s=1)
            is_over.set()
            for each in clients:
                each.result(20)
            gated.proceed()
            whole = begun + b"".join(parts)
    assert whole.rstrip().endswith(b"data: [DONE]")
    workers.process.wait(within_s=15)
    assert not any(map(is_alive, pids))
    with closing(sqlite3.connect(tmp_path / "store.db")) as store:
        [(recorded,)] = store.execute("SELECT COUNT(*) FROM exchanges WHERE status = 200")
    assert recorded == len(done) + 1
    workers.stop()


def test_whoever_runs_it_may_drain_all(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """`POST /drain` at the desk turns `/readyz` of every worker, and of one that starts later."""
    with running(tmp_path, upstream.base_url) as workers:
        one, other = workers.both()
        assert workers.desk.post("/drain").json() == {"status": "draining"}
        until(lambda: one.get("/readyz").status_code == 503)
        until(lambda: other.get("/readyz").status_code == 503, within_s=1)
        assert ask(other).status_code == 200
        kill(workers.pids()[1])
        until(lambda: len(workers.pids()) == 2)
        assert workers.client(1).get("/readyz").json()["status"] == "draining"


def test_one_scorer_scores_for_all(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """One process scores for all workers; while it is gone, replies say that they have no score."""
    options = {"workers": "{count: 2, scorer: shared}"}
    with running(tmp_path, upstream.base_url, **options) as workers:
        assert "2 workers, one scorer for all of them" in workers.process.stdout()
        [scorer, *others] = workers.pids()
        assert len(others) == 2
        one, other = workers.both()
        for client in (one, other):
            reply = ask(client)
            assert reply.headers["x-pinocchio-confidence"] == "0.7000"
            assert reply.headers["x-pinocchio-calibrator"] == "fake:0.7"
        kill(scorer)
        assert ask(one).status_code == 200
        until(lambda: "x-pinocchio-confidence" in ask(one).headers, within_s=20)
        [died] = workers.process.lines("worker_died")
        assert died["process"] == "scorer"


def test_workers_share_the_memory_of_the_calibrator(
    upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """The embedded calibrator is loaded before workers are forked, also before a later one.
    Each scores by itself with few pages of its own; with its own calibrator a worker had 108
    MB.
    """
    with running(tmp_path, upstream.base_url, checkpoint="embedded") as workers:
        confidences = {confidence(client) for client in workers.both()}
        kill(workers.pids()[0])
        until(lambda: len(workers.process.lines("worker_died")) == 1)
        until(lambda: workers.readyz()["workers"]["running"] == 2)
        confidences |= {confidence(client) for client in workers.both()}
        assert len(confidences) == 1
        own_mb = [private_mb(pid) for pid in workers.pids()]
    assert len(own_mb) == 2
    assert max(own_mb) < 70


def confidence(client: httpx.Client) -> str:
    """Return a worker's confidence in a reply, once it scores."""
    until(lambda: "x-pinocchio-confidence" in ask(client).headers)
    return ask(client).headers["x-pinocchio-confidence"]


def private_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.partition("Private_Dirty:")[2].split()[0]) / 1_000


def test_what_computes_on_threads_is_not_forked(tiny_checkpoint: OfFamily, tmp_path: Path) -> None:
    """A language model is loaded by its user, since a fork copies no
    threads; so is one that cannot be loaded, as the worker reports why.
    """
    llm = str(tiny_checkpoint("qwen3_5_text"))
    for name in (llm, str(tmp_path), "none", "fake:0.5"):
        config = Config.model_validate({"calibrator": {"checkpoint": name}})
        assert preload(config.calibrator) == PreloadedCalibrators()
    section = {"checkpoint": llm, "stand_in": "embedded"}
    before = threading.active_count()
    found = preload(Config.model_validate({"calibrator": section}).calibrator)
    assert threading.active_count() == before
    assert found.calibrator is None
    assert found.stand_in is not None
    assert found.loader_of_stand_in(Config().calibrator)() is found.stand_in  # type: ignore[misc]


@pytest.mark.parametrize(
    ("checkpoint", "workers", "is_shared"),
    [
        ("embedded", 2, False),
        ("embedded", {"count": 2, "scorer": "shared"}, True),
        ("fake:0.7", 2, False),
        ("none", {"count": 2, "scorer": "shared"}, False),
        ("LLM", 2, True),
        ("LLM", {"count": 2, "scorer": "each"}, False),
        ("LLM", 1, False),
    ],
)
def test_a_language_model_is_loaded_once(
    tmp_path: Path, checkpoint: str, workers: object, is_shared: bool
) -> None:
    """By default one process loads a language model; the embedded one scores in each worker."""
    if checkpoint == "LLM":
        (tmp_path / "calibrator.json").write_text('{"preset": "released-0.8b"}')
        (tmp_path / "adapter_model.safetensors").write_bytes(b"")
        checkpoint = str(tmp_path)
    calibrator = {"checkpoint": checkpoint}
    config = Config.model_validate({"calibrator": calibrator, "workers": workers})
    assert shares_scorer(config) is is_shared


def test_how_many_workers_there_may_be(tmp_path: Path) -> None:
    """`check` says how many workers serve and who scores, and an invalid number is refused."""
    path = tmp_path / "proxy.yaml"
    path.write_text(f'workers: 3\nstore: "sqlite:///{tmp_path}/store.db"\n')
    done = run_cli("check", "--config", str(path))
    assert "3 workers, each scores for itself" in done.stdout
    path.write_text("workers: 65\n")
    refused = run_cli("check", "--config", str(path))
    assert refused.returncode == 2
    assert "proxy.yaml:1: workers" in refused.stderr
    path.unlink()
    none = run_cli("serve", "--workers", "0", cwd=tmp_path)
    assert (none.returncode, none.stdout) == (2, "")
    assert "--workers: " in none.stderr
    both = run_cli("serve", "--workers", "2", "--scorer-only", cwd=tmp_path)
    assert both.returncode == 2
