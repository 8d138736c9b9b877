"""Langfuse and Phoenix: confidences are sent there, and people's verdicts are fetched."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from proxy.commands.app import cli
from proxy.config.sections import load_config
from proxy.config.settings.telemetry import LangfuseConfig, PhoenixConfig
from proxy.observe import outbox as outbox_module
from proxy.observe.outbox import NotSentError, Outbox
from proxy.store.database.verdicts import VerdictStore
from proxy.store.record.reader import find
from proxy.store.verdicts.labels import labelled_replies
from tests.proxy.observe.otlp_receiver import OtlpReceiver
from tests.proxy.optional.scores.score_servers import LangfuseServer, PhoenixServer
from tests.running.desk_client import DESK, HOLD, scraped, value
from tests.running.live_proxy import ROOT, FailingScorer, LiveProxy, until
from tests.servers.faulty_upstream import FaultyUpstream

Start = Callable[..., LiveProxy]


@pytest.fixture
def langfuse() -> Iterator[LangfuseServer]:
    with LangfuseServer() as server:
        yield server


@pytest.fixture
def phoenix() -> Iterator[PhoenixServer]:
    with PhoenixServer() as server:
        yield server


def section_of(server: LangfuseServer | PhoenixServer) -> dict[str, Any]:
    if isinstance(server, LangfuseServer):
        public, secret = server.KEYS
        keys = {"public_key": public, "secret_key": secret}
        return {"langfuse": {"base_url": server.url, **keys}}
    return {"phoenix": {"base_url": server.url, "api_key": server.KEY, "project": "apps"}}


@pytest.fixture
def start(upstream: FaultyUpstream, tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts a proxy that exports to these servers.

    All of them stop in the end.
    """
    started: list[LiveProxy] = []

    def start(*servers: Any, **options: Any) -> LiveProxy:
        telemetry: dict[str, Any] = {}
        for server in servers:
            is_otel = isinstance(server, OtlpReceiver)
            telemetry |= {"otel": {"endpoint": server.url}} if is_otel else section_of(server)
        proxy = LiveProxy(upstream.base_url, tmp_path, telemetry=telemetry, **options)
        started.append(proxy)
        return proxy

    yield start
    for proxy in started:
        proxy.stop()


def parent(number: int) -> dict[str, str]:
    return {"traceparent": f"00-{number:032x}-{number:016x}-01"}


def test_a_confidence_becomes_a_score_of_the_clients_trace(
    start: Start, langfuse: LangfuseServer
) -> None:
    """Each request with a trace becomes one score of the client's trace, with its action."""
    proxy = start(langfuse, policy=HOLD)
    reply = proxy.ask("p=0.3", headers=parent(7))
    proxy.ask("p=0.9")
    request_id, policy = (reply.headers[f"x-pinocchio-{n}"] for n in ("request-id", "policy"))
    until(lambda: langfuse.scores)
    time.sleep(outbox_module.GATHER_S + 0.5)
    [score] = langfuse.scores.values()
    assert score["id"] == request_id
    assert score["subject"] == {"kind": "trace", "id": f"{7:032x}"}
    assert (score["name"], score["value"], score["dataType"]) == ("confidence", 0.3, "NUMERIC")
    assert score["comment"] == policy
    assert score["metadata"] == {
        "request_id": request_id,
        "action": "hold",
        "policy": policy,
        "mode": "enforce",
        "calibrator": "words@1",
        "basis": ["likeness"],
        "review_id": reply.headers["x-pinocchio-review-id"],
    }


def test_with_spans_of_ours_the_score_is_the_spans(
    start: Start, langfuse: LangfuseServer, phoenix: PhoenixServer
) -> None:
    """With spans of the proxy's own every request has a score, on its span."""
    with OtlpReceiver() as receiver:
        proxy = start(langfuse, phoenix, receiver)
        proxy.ask("p=0.4")
        until(lambda: receiver.spans and langfuse.scores and phoenix.annotations, 20)
        [span] = receiver.spans
        [score] = langfuse.scores.values()
        [annotation] = phoenix.annotations.values()
        proxy.stop()
    trace, id = span.trace_id.hex(), span.span_id.hex()
    assert score["subject"] == {"kind": "observation", "id": id, "traceId": trace}
    assert annotation["span_id"] == id


def test_phoenix_gets_annotations_of_the_clients_span(start: Start, phoenix: PhoenixServer) -> None:
    """Annotations in Phoenix are marked as the proxy's, so that a span never has two of them."""
    proxy = start(phoenix, **DESK)
    reply = proxy.ask("p=0.6", headers=parent(9))
    name = "pinocchio_telemetry_sent_total"
    until(lambda: value(scraped(proxy.desk), name, to="phoenix") == 1)
    [annotation] = phoenix.annotations.values()
    assert annotation["span_id"] == f"{9:016x}"
    assert (annotation["name"], annotation["annotator_kind"]) == ("confidence", "CODE")
    assert annotation["identifier"] == "pinocchio"
    assert annotation["result"]["score"] == 0.6
    assert annotation["result"]["label"] == "deliver"
    assert annotation["metadata"]["request_id"] == reply.headers["x-pinocchio-request-id"]


def test_without_a_number_nothing_is_sent(start: Start, langfuse: LangfuseServer) -> None:
    """A reply without a number has no score."""
    proxy = start(langfuse, scorer=FailingScorer(), **DESK)
    proxy.ask("p=0.3", headers=parent(1))
    proxy.ask("?", "status-500", headers=parent(2))
    until(lambda: value(scraped(proxy.desk), "pinocchio_requests_total") == 2)
    proxy.stop()
    assert langfuse.asked == []


def test_a_server_that_is_away_is_tried_again(start: Start, langfuse: LangfuseServer) -> None:
    """Requests continue while the server is away; what it refuses for good is counted."""
    langfuse.status = 503
    proxy = start(langfuse, **DESK)

    def now(name: str) -> float:
        return value(scraped(proxy.desk), f"pinocchio_telemetry_{name}_total", to="langfuse")

    assert proxy.ask("p=0.3", headers=parent(1)).status_code == 200
    until(lambda: len(langfuse.asked) >= 2, 20)
    langfuse.status = None
    until(lambda: now("sent") == 1, 20)
    assert len(langfuse.scores) == 1
    langfuse.status = 400
    proxy.ask("p=0.3", headers=parent(2))
    until(lambda: now("dropped") == 1, 20)
    langfuse.status = 401
    count_before = len(langfuse.asked)
    proxy.ask("p=0.3", headers=parent(3))
    until(lambda: now("dropped") == 2, 20)
    assert len(langfuse.asked) == count_before + 1
    assert now("sent") == 1


def test_what_waits_is_bounded_and_sent_in_batches() -> None:
    """Adding a score never waits: beyond the bound it is dropped, and later ones are sent."""
    batches: list[list[int]] = []
    go_on = threading.Event()

    def send(batch: list[int]) -> None:
        go_on.wait(10)
        batches.append(batch)

    box = Outbox("test", send, most_waiting=500, gather_s=0.01)
    box.start()
    began = time.monotonic()
    box.add(-1)
    time.sleep(0.2)  # it is being sent
    for number in range(1_000):
        box.add(number)
    assert time.monotonic() - began < 2
    assert box.drop_count == 500
    go_on.set()
    box.close()
    assert [number for batch in batches for number in batch] == [-1, *range(500)]
    assert max(map(len, batches)) == outbox_module.AT_ONCE
    assert box.sent == 501


def test_tries_come_to_an_end() -> None:
    """Retries end, also when the proxy stops meanwhile."""
    tried: list[float] = []

    def send(batch: list[int]) -> None:
        tried.append(time.monotonic())
        raise NotSentError("away", may_pass=True)

    box = Outbox("test", send, gather_s=0.01)
    box.start()
    box.add(1)
    until(lambda: len(tried) == 2)
    began = time.monotonic()
    box.close()
    assert time.monotonic() - began < 5
    assert (box.sent, box.drop_count) == (0, 1)


# --- fetched verdicts ----------------------------------------------------------------------------


def fetch(proxy: LiveProxy, folder: Path, *servers: Any, more: tuple[str, ...] = ()) -> Result:
    path = folder / "fetch.yaml"
    lines = [f'store: "{proxy.config.store}"', "telemetry:"]
    for server in servers:
        [(name, section)] = section_of(server).items()
        lines.append(f"  {name}: {{{', '.join(f'{k}: {v!r}' for k, v in section.items())}}}")
    path.write_text("\n".join(lines) + "\n")
    return CliRunner().invoke(cli, ["label", "--fetch", "--config", str(path), *more])


def labels(proxy: LiveProxy) -> dict[str, bool]:
    findings = VerdictStore(proxy.config.store)
    try:
        return {each.request_id: each.is_correct for each in labelled_replies(findings.engine)}
    finally:
        findings.close()


def asked(proxy: LiveProxy, *headers: dict[str, str]) -> list[str]:
    """Return the ids of requests, once their records are written."""
    ids = [proxy.ask("p=0.5", headers=each).headers["x-pinocchio-request-id"] for each in headers]
    findings = VerdictStore(proxy.config.store)
    until(lambda: all(find(findings.engine, id) for id in ids), 20)
    findings.close()
    return ids


def test_verdicts_in_langfuse_become_labels(
    start: Start, langfuse: LangfuseServer, tmp_path: Path
) -> None:
    """A verdict in Langfuse labels the request with a score on the same
    trace, once for each person; a trace with several replies labels none.
    """
    proxy = start(langfuse)
    ids = asked(proxy, parent(1), parent(2), parent(3), parent(3))
    until(lambda: len(langfuse.scores) == 4, 20)
    langfuse.annotate(True, f"{1:032x}")
    langfuse.annotate(False, f"{2:032x}", by="bob")
    langfuse.annotate(True, f"{3:032x}")
    langfuse.annotate(True, f"{99:032x}")
    dry = fetch(proxy, tmp_path, langfuse, more=("--dry-run",))
    assert dry.stdout == (
        "langfuse: 2 verdicts would be kept, 1 on a trace with several replies\n"
    ), dry.stderr
    assert labels(proxy) == {}
    done = fetch(proxy, tmp_path, langfuse)
    assert done.stdout == "langfuse: 2 verdicts kept, 1 on a trace with several replies\n"
    assert labels(proxy) == {ids[0]: True, ids[1]: False}
    findings = VerdictStore(proxy.config.store)
    assert findings.verdict_of(ids[1], "langfuse:bob") is False
    findings.close()
    again = fetch(proxy, tmp_path, langfuse)
    assert again.stdout.startswith("langfuse: 0 verdicts kept, 2 known already")


def test_verdicts_in_phoenix_become_labels(
    start: Start, phoenix: PhoenixServer, tmp_path: Path
) -> None:
    """A verdict in Phoenix counts by label or score, if it says right or wrong."""
    proxy = start(phoenix)
    ids = asked(proxy, *(parent(n) for n in range(1, 5)))
    until(lambda: len(phoenix.annotations) == 4, 20)
    phoenix.annotate(f"{1:016x}", label="correct")
    phoenix.annotate(f"{2:016x}", label=None, score=0)
    phoenix.annotate(f"{3:016x}", label="perhaps", score=0.5)
    done = fetch(proxy, tmp_path, phoenix)
    assert done.stdout == "phoenix: 2 verdicts kept\n", done.stderr
    assert labels(proxy) == {ids[0]: True, ids[1]: False}


def test_many_pages_are_read(
    start: Start, langfuse: LangfuseServer, phoenix: PhoenixServer, tmp_path: Path
) -> None:
    """All pages of scores and of spans are read."""
    proxy = start(langfuse, phoenix)
    ids = asked(proxy, *(parent(n) for n in range(1, 131)))
    until(lambda: len(langfuse.scores) == len(phoenix.annotations) == 130, 30)
    for number in range(1, 131):
        langfuse.annotate(True, f"{number:032x}")
        phoenix.annotate(f"{number:016x}", label="right")
    done = fetch(proxy, tmp_path, langfuse, phoenix)
    assert done.stdout == "langfuse: 130 verdicts kept\nphoenix: 130 verdicts kept\n", done.stderr
    assert labels(proxy).keys() == {*ids}


def test_old_verdicts_are_left_where_they_are(
    start: Start, phoenix: PhoenixServer, tmp_path: Path
) -> None:
    """Verdicts older than `--since` are not fetched."""
    proxy = start(phoenix)
    asked(proxy, parent(1))
    until(lambda: phoenix.annotations)
    phoenix.annotate(f"{1:016x}", label="right")
    [ours] = [each for each in phoenix.annotations.values() if each["name"] == "confidence"]
    ours["created_at"] = "2020-01-01T00:00:00+00:00"
    assert fetch(proxy, tmp_path, phoenix).stdout == "phoenix: 0 verdicts kept\n"


def test_failed_fetch_is_an_error(start: Start, langfuse: LangfuseServer, tmp_path: Path) -> None:
    """A server that refuses, or a configuration that names none, gives an error."""
    proxy = start(langfuse)
    asked(proxy, parent(1))
    langfuse.status = 500
    done = fetch(proxy, tmp_path, langfuse)
    assert done.exit_code == 1
    assert f"{langfuse.url}: Server error '500" in done.stderr
    (tmp_path / "none.yaml").write_text(f'store: "{proxy.config.store}"\n')
    none = CliRunner().invoke(cli, ["label", "--fetch", "--config", str(tmp_path / "none.yaml")])
    assert none.exit_code == 2
    assert "neither telemetry.langfuse nor telemetry.phoenix" in none.stderr


HOSTILE_NAME = "\x1b]0;owned\x07\ud800\x00\u202e" + "n" * 10_000


def test_hostile_answers_end_nothing(
    langfuse: LangfuseServer,
    phoenix: PhoenixServer,
    start: Start,
    store_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong types, odd names and invalid dates in a server's answer are skipped, others count."""
    proxy = start(langfuse, phoenix, store=store_url)
    ids = asked(proxy, parent(1), parent(2))
    until(lambda: len(langfuse.scores) == len(phoenix.annotations) == 2, 20)
    langfuse.annotate(True, f"{1:032x}", by=HOSTILE_NAME)
    phoenix.annotate(f"{2:016x}", by=HOSTILE_NAME, label="wrong")
    honest = {LangfuseServer: langfuse.answer, PhoenixServer: phoenix.answer}
    odd: list[Any] = [None, [], "text", 1e308, {"a": [[]]}, HOSTILE_NAME, -(10**30), True]
    names = {"metadata", "subject", "result", "created_at", "value", "label", "span_id", "name"}
    odd_items = [*odd, *({name: each for name in names} for each in odd)]
    odd_items += [{"metadata": {"request_id": each}, "subject": {"id": each}} for each in odd]
    dates = ("0001-01-01", "9999-12-31T23:59:59", "-5", "2026-02-30", "1e400")
    odd_items += [{"metadata": {"request_id": "r"}, "created_at": each} for each in dates]

    def with_odd(server: LangfuseServer | PhoenixServer) -> Callable[..., Any]:
        def answer(method: str, path: str, query: Any, body: Any) -> Any:
            status, page = honest[type(server)](method, path, query, body)
            return status, {**page, "data": [*odd_items, *page["data"], *odd_items]}

        return answer

    for server in (langfuse, phoenix):
        monkeypatch.setattr(server, "answer", with_odd(server))
    more = ("--since", "99999999d")
    done = fetch(proxy, tmp_path, langfuse, phoenix, more=more)
    assert done.exit_code == 0, done.output
    assert labels(proxy) == {ids[0]: True, ids[1]: False}
    findings = VerdictStore(proxy.config.store)
    assert findings.verdict_of(ids[0], f"langfuse:{(']0;owned' + 'n' * 10_000)[:200]}") is True
    findings.close()
    for server, end in ((langfuse, {"meta": {"cursor": "7"}}), (phoenix, {"next_cursor": 7})):
        monkeypatch.setattr(server, "answer", lambda *_, end=end: (200, {"data": [], **end}))
        circle = fetch(proxy, tmp_path, server)
        assert circle.exit_code == 1
        assert "gives the same page again" in circle.stderr


def test_the_page_shows_a_configuration_that_works(tmp_path: Path) -> None:
    """The complete block in docs/telemetry.md is a valid configuration."""
    page = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "proxy.yaml").write_text(text)
    telemetry = load_config(tmp_path / "proxy.yaml", env={}).telemetry
    assert all((telemetry.otel, telemetry.langfuse, telemetry.phoenix))


def test_langfuse_requires_keys() -> None:
    """Langfuse without keys is refused, and so is a URL with a user, which would be logged."""
    with pytest.raises(ValueError, match="set public_key and secret_key"):
        LangfuseConfig(public_key="pk")
    with pytest.raises(ValueError, match="names no user"):
        PhoenixConfig(base_url="http://user:secret@phoenix.example")
    assert PhoenixConfig(base_url="http://phoenix.example/").base_url.endswith("example")
