"""Faults around a proxy: what the client gets, what stays held, which figure and log line tell.

Faults are real: sockets that misbehave, a database that is locked or gone, a process without space
for files or descriptors, a scorer that fails. `docs/faults.md` has a table of them.
"""

from __future__ import annotations

import json
import re
import resource
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from calibrator import Item, Score
from tests.conftest import StartProxy
from tests.running.databases import execute
from tests.running.desk_client import DESK, HOLD, TOKEN, decide, scraped, value
from tests.running.live_proxy import (
    ROOT,
    LiveProxy,
    ProxyProcess,
    SlowScorer,
    WordScorer,
    error_of,
    left_behind,
    members_in,
    question,
    until,
)
from tests.running.postgres import PostgresServer
from tests.servers.faulty_upstream import FaultyUpstream
from tests.servers.raw_server import Peer, RawServer
from tests.sharing.captured_logs import capture_logs

WATCH = "version: 1\nname: faults\nmode: shadow\ndefault: deliver\n"
BODY = json.dumps({"choices": [{"index": 0, "message": {"content": "p=0.4"}}]}).encode()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


# --- upstream ------------------------------------------------------------------------------------


def hang(peer: Peer) -> None:
    peer.request()
    peer.sock.recv(1)  # until the proxy gives up


def reset(peer: Peer) -> None:
    peer.request()
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.sock.close()


def promise_too_much(peer: Peer) -> None:
    peer.request()
    peer.send(HEAD + b"content-length: %d\r\n\r\n" % (len(BODY) + 9) + BODY)


def talk_nonsense(peer: Peer) -> None:
    peer.request()
    peer.send(b"220 smtp.example.com ESMTP\r\n")


def close_in_a_chunk(peer: Peer) -> None:
    peer.request()
    peer.send(STREAM + b'40\r\ndata: {"choices":[{"index":0,"delta"')


@contextmanager
def before(answer: Callable[[Peer], None], folder: Path) -> Iterator[LiveProxy]:
    with RawServer(answer) as server:
        proxy = LiveProxy(
            f"http://127.0.0.1:{server.port}/v1",
            folder,
            policy=WATCH,
            upstream={"api_key": "sk-x", "timeout_s": 1},
            **DESK,
        )
        yield proxy
        proxy.stop()


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (hang, 504, "upstream_timeout"),
        (reset, 502, "upstream_broke_off"),
        (promise_too_much, 502, "upstream_broke_off"),
        (talk_nonsense, 502, "upstream_broke_off"),
    ],
)
def test_upstream_gives_no_reply(
    tmp_path: Path, answer: Callable[[Peer], None], status: int, code: str
) -> None:
    """Without a reply the client gets 502 or 504, and figure and log line have the error's code."""
    with before(answer, tmp_path) as proxy, capture_logs() as lines:
        got = proxy.ask()
        assert (got.status_code, error_of(got)["code"]) == (status, code)
        assert got.headers["x-pinocchio-error"] == "true"
        until(lambda: value(scraped(proxy.desk), "pinocchio_requests_total", status="5xx") == 1)
        [line] = [each for each in lines if each["event"] == "request"]
        assert (line["error"], line["status"]) == (code, status)


def test_upstream_trickles(tmp_path: Path) -> None:
    """A slow reply is delivered, since only silence counts as a timeout."""

    def trickle(peer: Peer) -> None:
        peer.request()
        whole = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
        pieces = [whole[start : start + 8] for start in range(0, len(whole), 8)]
        peer.send(*pieces, pause_s=0.1)

    with before(trickle, tmp_path) as proxy:
        got = proxy.ask()
        assert (got.status_code, got.json()["pinocchio"]["confidence"]) == (200, 0.4)
        until(lambda: value(scraped(proxy.desk), "pinocchio_upstream_seconds_sum") > 1)


def test_upstream_closes_in_a_chunk(tmp_path: Path) -> None:
    """A stream that breaks off within a chunk ends with an error event."""
    with before(close_in_a_chunk, tmp_path) as proxy, capture_logs() as lines:
        got = proxy.post_raw(question("x", stream=True))
        assert got.status == 200
        assert b'"code": "upstream_broke_off"' in got.body
        until(lambda: value(scraped(proxy.desk), "pinocchio_scores_total") == 1)
        [line] = [each for each in lines if each["event"] == "request"]
        assert line["reason"] == "stream_broke_off"


def test_the_name_of_upstream_is_gone(tmp_path: Path) -> None:
    proxy = LiveProxy("http://upstream.invalid/v1", tmp_path, policy=WATCH, **DESK)
    got = proxy.ask()
    assert (got.status_code, error_of(got)["code"]) == (502, "upstream_unreachable")
    until(lambda: value(scraped(proxy.desk), "pinocchio_requests_total", status="5xx") == 1)
    proxy.stop()


# --- the scorer ----------------------------------------------------------------------------------


@dataclass
class BrokenScorer(WordScorer):
    """Fails in another way for each word of the answer, except for the warm-up's."""

    fault: str = field(default="")

    def score_batch(self, items: list[Item]) -> list[Score]:  # type: ignore[override]
        if items[0].answer == "warm-up":
            return super().score_batch(items)
        match self.fault:
            case "hang":
                time.sleep(1)
            case "memory":
                raise MemoryError
            case "nan":
                return [Score(float("nan"), float("nan")) for _ in items]
            case "beyond":
                return [Score(1.5, 1.5) for _ in items]
            case "crash":
                raise RuntimeError("the weights are gone")
        return super().score_batch(items)


@pytest.mark.parametrize(
    ("fault", "status", "event"),
    [
        ("hang", "timeout", None),
        pytest.param("memory", "error", "score_failed", marks=pytest.mark.slow),
        ("nan", "error", "score_failed"),
        pytest.param("beyond", "error", "score_failed", marks=pytest.mark.slow),
        ("crash", "error", "score_failed"),
    ],
)
def test_the_scorer_fails(
    upstream: FaultyUpstream,
    tmp_path: Path,
    fault: str,
    status: str,
    event: str | None,
) -> None:
    """When the scorer fails, the reply goes out unscored
    and says so; where a policy needs a number, it is held.
    """
    scorer = BrokenScorer(fault=fault)
    options = {"scorer": scorer, "calibrator": {"timeout_s": 0.3}, **DESK}
    (tmp_path / "held").mkdir()
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=WATCH, **options)
    with capture_logs() as lines:
        got = proxy.ask()
    assert got.status_code == 200
    assert got.headers["x-pinocchio-confidence-status"] == status
    assert "x-pinocchio-confidence" not in got.headers
    until(lambda: value(scraped(proxy.desk), "pinocchio_scores_total", status=status) == 1)
    assert event is None or event in [line["event"] for line in lines]
    scorer.fault = ""
    until(lambda: proxy.ask("p=0.9").headers.get("x-pinocchio-confidence") == "0.9000")
    proxy.stop()
    scorer.fault = fault
    rules = "rules: [{name: r, when: {confidence: {below: 0.3}}, then: block}]\ndefault: deliver\n"
    strict = f"version: 1\nname: p\non_score_error: hold\n{rules}"
    holding = LiveProxy(upstream.base_url, tmp_path / "held", policy=strict, **options)
    assert holding.ask().headers["x-pinocchio-action"] == "hold"
    holding.stop()


# --- the store -----------------------------------------------------------------------------------


def is_told(proxy: LiveProxy, name: str, **labels: str) -> bool:
    return value(scraped(proxy.desk), name, **labels) > 0


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the database for writing within this context."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def test_the_store_is_locked_for_a_while(start_proxy: StartProxy) -> None:
    """While the store is locked replies go out; their records are written afterwards."""
    proxy = start_proxy(policy=WATCH.replace("faults", "locked"), **DESK)
    with locked(proxy.store_path):
        got = [proxy.ask("p=0.5") for _ in range(5)]
        assert {each.status_code for each in got} == {200}
        until(lambda: is_told(proxy, "pinocchio_store_lag_seconds"))
    ids = [each.headers["x-pinocchio-request-id"] for each in got]
    query = "select request_id, confidence from exchanges"
    with closing(sqlite3.connect(proxy.store_path)) as store:
        until(lambda: {*store.execute(query).fetchall()} >= {(id, 0.5) for id in ids})
    assert value(scraped(proxy.desk), "pinocchio_store_dropped_total", what="records") == 0


def serving(folder: Path, upstream: FaultyUpstream, policy: str) -> ProxyProcess:
    (folder / "policy.yaml").write_text(policy)
    return ProxyProcess(
        folder,
        f"upstreams: {{any: {{base_url: '{upstream.base_url}', api_key: sk-x}}}}\n"
        "models: [{match: '*', upstream: any}]\n"
        "calibrator: {checkpoint: 'fake:0.7'}\npolicies: policy.yaml\n"
        f"store: sqlite:///{folder}/store.db\nadmin: {{port: 0, token: {TOKEN}}}\n",
    )


def desk_of(proxy: ProxyProcess) -> httpx.Client:
    found = re.search(r"review desk (\S+)", proxy.stdout())
    assert found is not None
    headers = {"authorization": f"Bearer {TOKEN}"}
    return httpx.Client(base_url=found[1], headers=headers, trust_env=False, timeout=20)


def ask(proxy: ProxyProcess, text: str = "x", **fields: Any) -> httpx.Response:
    url = f"{proxy.base_url}/chat/completions"
    return httpx.post(url, json=question(text, **fields), trust_env=False, timeout=30)


@contextmanager
def no_space(proxy: ProxyProcess) -> Iterator[None]:
    """Let no file of the process grow, as on a full disk."""
    limit = resource.RLIMIT_FSIZE
    old = resource.prlimit(proxy.pid, limit, (0, resource.RLIM_INFINITY))
    yield
    resource.prlimit(proxy.pid, limit, old)


def test_the_disk_is_full(tmp_path: Path, upstream: FaultyUpstream) -> None:
    """On a full disk, what may go out does and what must be held is refused.
    Once there is space both work, and the waiting records are written.
    """
    rules = "rules: [{name: m, when: {model: 'ok'}, then: deliver}]\n"
    policy = f"version: 1\nname: p\n{rules}default: {{hold: {{queue: q}}}}\n"
    with serving(tmp_path, upstream, policy) as proxy, desk_of(proxy) as desk:
        held = ask(proxy, model="say a")
        assert held.headers["x-pinocchio-action"] == "hold"
        with no_space(proxy):
            assert ask(proxy).status_code == 200
            refused = ask(proxy, model="say b")
            assert (refused.status_code, error_of(refused)["code"]) == (503, "store_unavailable")
            assert "b" not in refused.json()
            until(lambda: value(scraped(desk), "pinocchio_store_lag_seconds") > 0)
        again = ask(proxy, model="say c")
        assert again.headers["x-pinocchio-action"] == "hold"
        until(lambda: value(scraped(desk), "pinocchio_store_lag_seconds") == 0)
        assert value(scraped(desk), "pinocchio_store_dropped_total", what="records") == 0
        with closing(sqlite3.connect(tmp_path / "store.db")) as store:
            found = {id for (id,) in store.execute("select id from held_replies")}
            recorded = store.execute("select status from exchanges order by status").fetchall()
        assert found == {each.headers["x-pinocchio-review-id"] for each in (held, again)}
        assert recorded == [(200,), (200,), (200,), (503,)]


def states_of(proxy: LiveProxy) -> dict[str, str]:
    with closing(sqlite3.connect(proxy.store_path)) as store:
        return dict(store.execute("select id, state from held_replies").fetchall())


def test_the_store_refuses_one_table(start_proxy: StartProxy) -> None:
    """A reply that must be held and cannot be stored is not sent, and none of its text is."""
    proxy = start_proxy(policy=HOLD.replace("desk", "refusing"), **DESK)
    first = proxy.ask("p=0.5")
    assert first.headers["x-pinocchio-action"] == "hold"
    with closing(sqlite3.connect(proxy.store_path, isolation_level=None)) as store:
        store.execute(
            "CREATE TRIGGER full BEFORE INSERT ON held_replies "
            "BEGIN SELECT RAISE(FAIL, 'full'); END"
        )
        refused = proxy.ask("p=0.5")
        assert (refused.status_code, error_of(refused)["code"]) == (503, "store_unavailable")
        assert refused.headers["x-should-retry"] == "false"
        store.execute("DROP TRIGGER full")
    until(lambda: is_told(proxy, "pinocchio_requests_total", status="5xx"))
    review = first.headers["x-pinocchio-review-id"]
    assert decide(proxy, review, verdict="approve").status_code == 200
    assert states_of(proxy) == {review: "released"}


def test_the_file_of_the_store_is_deleted(start_proxy: StartProxy) -> None:
    """When the store's file is deleted its content is lost,
    but no client gets a hold that nobody can decide on.
    """
    proxy = start_proxy(policy=HOLD.replace("desk", "deleted"), **DESK)
    assert proxy.ask("p=0.5").headers["x-pinocchio-action"] == "hold"
    for each in proxy.store_path.parent.glob("held.db*"):
        each.unlink()
    with capture_logs() as lines:
        refused = proxy.ask("p=0.4")
        assert (refused.status_code, error_of(refused)["code"]) == (503, "store_unavailable")
        until(lambda: "records_shed" in {line["event"] for line in lines})
    until(lambda: is_told(proxy, "pinocchio_store_dropped_total", what="records"))
    assert is_told(proxy, "pinocchio_requests_total", status="5xx")


MIXED = (
    "version: 1\nname: mixed\nrules: [{name: sure, when: {confidence: {at_least: 0.5}}, "
    "then: deliver}]\ndefault: {hold: {queue: q}}\n"
)


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """Yield a server that only these tests use, since they stop it."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def on_postgres(
    own_postgres: PostgresServer, upstream: FaultyUpstream, tmp_path: Path
) -> Iterator[LiveProxy]:
    url = own_postgres.new_database()
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=MIXED, store=url, **DESK)
    yield proxy
    proxy.stop()


def statuses(proxy: LiveProxy) -> list[Any]:
    return sorted(execute(proxy.config.store, "select status from exchanges"))


def test_the_store_is_slow(on_postgres: LiveProxy) -> None:
    """A slow store delays only a held reply, which is stored when the client has its id."""
    url = on_postgres.config.store
    assert not is_told(on_postgres, "pinocchio_store_lag_seconds")
    execute(
        url,
        "create function wait() returns trigger language plpgsql as "
        "'begin perform pg_sleep(1); return new; end'",
        "create trigger wait before insert on exchanges for each statement execute function wait()",
        "create trigger wait before insert on held_replies "
        "for each statement execute function wait()",
    )
    began = time.monotonic()
    assert on_postgres.ask("p=0.9").status_code == 200
    assert time.monotonic() - began < 0.9
    until(lambda: is_told(on_postgres, "pinocchio_store_lag_seconds"))
    began = time.monotonic()
    held = on_postgres.ask("p=0.1")
    assert held.headers["x-pinocchio-action"] == "hold"
    assert time.monotonic() - began > 0.9
    review = held.headers["x-pinocchio-review-id"]
    assert execute(url, "select id, state from held_replies") == [(review, "held")]
    until(lambda: statuses(on_postgres) == [(200,), (200,)])


def test_the_store_can_only_be_read(on_postgres: LiveProxy) -> None:
    """While the store is read-only, as on a standby, replies
    go out and holds are refused; afterwards both work.
    """
    url = on_postgres.config.store
    held = on_postgres.ask("p=0.1").headers["x-pinocchio-review-id"]
    until(lambda: statuses(on_postgres) == [(200,)])
    set_to = "alter database {} set default_transaction_read_only = {}".format
    cut = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
    name = url.rpartition("/")[2]
    execute(url, set_to(name, "on"), f"{cut} and datname = '{name}'")
    with capture_logs() as lines:
        assert on_postgres.ask("p=0.9").status_code == 200
        refused = on_postgres.ask("p=0.1")
        assert (refused.status_code, error_of(refused)["code"]) == (503, "store_unavailable")
        until(lambda: "records_wait" in {line["event"] for line in lines})
        assert is_told(on_postgres, "pinocchio_store_lag_seconds")
        execute(
            url, "set transaction read write", set_to(name, "off"), f"{cut} and datname = '{name}'"
        )
        until(lambda: statuses(on_postgres) == [(200,), (200,), (503,)])
        until(lambda: "records_written_again" in {line["event"] for line in lines})
    assert not is_told(on_postgres, "pinocchio_store_dropped_total")
    assert decide(on_postgres, held, verdict="approve").status_code == 200


def test_the_store_is_gone_for_a_while(
    on_postgres: LiveProxy, own_postgres: PostgresServer
) -> None:
    """While the store is away, replies go out and holds are
    refused; earlier holds and verdicts are there afterwards.
    """
    judged, held = (on_postgres.ask(f"p=0.{n}").headers["x-pinocchio-review-id"] for n in (1, 2))
    assert decide(on_postgres, judged, verdict="approve").status_code == 200
    own_postgres.stop()
    try:
        got = [on_postgres.ask("p=0.9") for _ in range(3)]
        assert {each.status_code for each in got} == {200}
        assert {each.headers["x-pinocchio-confidence"] for each in got} == {"0.9000"}
        refused = on_postgres.ask("p=0.3")
        assert (refused.status_code, error_of(refused)["code"]) == (503, "store_unavailable")
        until(lambda: is_told(on_postgres, "pinocchio_store_lag_seconds"))
    finally:
        own_postgres.start_again()
    until(lambda: statuses(on_postgres) == [*[(200,)] * 5, (503,)], 20)
    assert not is_told(on_postgres, "pinocchio_store_dropped_total")
    url = on_postgres.config.store
    states = dict(execute(url, "select id, state from held_replies"))
    assert states == {judged: "released", held: "held"}


# --- too much at once ----------------------------------------------------------------------------


def test_load_is_shed_in_the_stated_order(start_proxy: StartProxy) -> None:
    """Under load, first a stream's score is late, then replies go out
    without a score and say so, then holds are refused; each is counted.
    """
    rules = "rules: [{name: m, when: {model: 'say held*'}, then: {hold: {queue: q}}}]\n"
    scorer = SlowScorer()
    proxy = start_proxy(
        policy=f"version: 1\nname: shed\n{rules}default: deliver\n",
        scorer=scorer,
        calibrator={"max_queue": 2, "timeout_s": 30},
        limits={"stream_wait_ms": 50, "max_held": 1, "commit_after_s": 60},
        **DESK,
    )
    late = proxy.ask("p=0.5", stream=True)
    [member] = members_in(late.content)
    assert (member["status"], member["confidence"]) == ("pending", None)
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(proxy.ask, "p=0.6") for _ in range(2)]
        until(lambda: value(scraped(proxy.desk), "pinocchio_score_queue_depth") == 2)
        beyond = proxy.ask("p=0.7")
        assert beyond.status_code == 200
        fields = [beyond.headers.get(f"x-pinocchio-confidence{end}") for end in ("-reason", "")]
        assert fields == ["queue_full", None]
        scorer.proceed.set()
        scored = {each.result().headers["x-pinocchio-confidence"] for each in waiting}
        assert scored == {"0.6000"}
    id = late.headers["x-pinocchio-request-id"]
    until(lambda: proxy.http.get(f"/pinocchio/v1/results/{id}").json().get("confidence") == 0.5)
    assert proxy.ask("x", "say held 1").headers["x-pinocchio-action"] == "hold"
    refused = proxy.ask("x", "say held 2")
    assert (refused.status_code, error_of(refused)["code"]) == (503, "too_many_held")
    assert refused.headers["x-should-retry"] == "false"  # people decide how long it lasts
    until(lambda: is_told(proxy, "pinocchio_late_scores_total"))
    until(lambda: is_told(proxy, "pinocchio_scores_total", reason="queue_full"))
    until(lambda: is_told(proxy, "pinocchio_requests_total", status="5xx"))


# --- the machine ---------------------------------------------------------------------------------


def test_descriptors_run_out(tmp_path: Path, upstream: FaultyUpstream) -> None:
    """When descriptors run out, connected clients are answered and new
    ones wait. The figures show it beforehand, and a log line reports it.
    """
    with serving(tmp_path, upstream, WATCH) as proxy, desk_of(proxy) as desk:
        assert ask(proxy).status_code == 200
        scraped(desk)
        open_now = len(list(Path(f"/proc/{proxy.pid}/fd").iterdir()))
        old = resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE, (open_now + 4, old[1]))
        found = scraped(desk)
        left = value(found, "process_max_fds") - value(found, "process_open_fds")
        assert 0 <= left <= 4
        place = ("127.0.0.1", httpx.URL(proxy.base_url).port or 0)
        crowd = [socket.create_connection(place, timeout=5) for _ in range(24)]
        with pytest.raises(httpx.TransportError):
            httpx.get(proxy.base_url.replace("/v1", "/livez"), timeout=1, trust_env=False)
        assert proxy.lines("files_run_out") != []
        assert desk.get("/metrics").status_code == 200  # this connection was there before
        for each in crowd:
            each.close()
        until(lambda: is_alive(proxy))
        resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE, old)
        assert ask(proxy).status_code == 200


def is_alive(proxy: ProxyProcess) -> bool:
    try:
        url = proxy.base_url.replace("/v1", "/livez")
        return httpx.get(url, timeout=1, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def test_the_clock_jumps(start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold of a day survives a clock that jumps by an hour, and goes out once."""
    proxy = start_proxy(policy=HOLD.replace("desk", "clock"), **DESK)
    held = proxy.ask("p=0.5")
    real = time.time
    for hours in (1, -1):
        monkeypatch.setattr(time, "time", lambda hours=hours: real() + hours * 3_600)
        assert proxy.ask("p=0.5").headers["x-pinocchio-action"] == "hold"
        assert proxy.ask("p=0.5", "say other").headers["x-pinocchio-action"] == "hold"
    review = held.headers["x-pinocchio-review-id"]
    assert decide(proxy, review, verdict="approve").status_code == 200
    states = states_of(proxy)
    assert states.pop(review) == "released"
    assert [*states.values()] == ["held"] * 4


def test_nobody_listens_any_more(start_proxy: StartProxy, upstream: FaultyUpstream) -> None:
    """When a client leaves, the call to upstream ends, and its log line says so."""
    proxy = start_proxy(policy=WATCH.replace("faults", "left"), **DESK)

    with capture_logs() as lines:
        count_before = len(upstream.requests)
        with left_behind(proxy.port, question("x", "slow")):
            until(lambda: len(upstream.requests) > count_before)
        assert upstream.last.is_cut_off(within_s=15)
        until(lambda: any(line.get("error") == "client_left" for line in lines))
    until(lambda: is_told(proxy, "pinocchio_requests_total", status="4xx"))


def test_the_table_names_figures_and_lines_that_are_there() -> None:
    """The table's figures are on the operators' page, its events are logged by the code."""
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    rows = [row.strip("|").split("|") for row in page.splitlines() if row.startswith("| ")]
    figures = {name for row in rows[1:] for name in re.findall(r"`([a-z_]+)", row[3])}
    events = {name for row in rows[1:] for name in re.findall(r"`([a-z]+_[a-z_]+)`", row[4])}
    known = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert figures
    for name in figures - {"process_open_fds", "process_max_fds"}:
        assert f"| `pinocchio_{name}` |" in known, name
    code = "".join(each.read_text(encoding="utf-8") for each in (ROOT / "proxy").rglob("*.py"))
    assert events
    for name in events:
        assert f'"{name}"' in code, name
