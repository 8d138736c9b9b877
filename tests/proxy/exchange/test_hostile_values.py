"""Hostile values in every field that a client can reach harm neither the record
nor its readers: rows, chain, commands, pages, metrics, drift, logs on a terminal.
"""

from __future__ import annotations

import json
import os
import pty
import random
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import sqlalchemy as sa
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from proxy.commands.app import cli
from proxy.http.listener.logs import without_escapes
from proxy.learning.drift import look
from tests.running.desk_client import API, DESK, TOKEN, desk_url
from tests.running.live_proxy import ROOT, LiveProxy, environment, question, until
from tests.servers.faulty_upstream import FaultyUpstream

HOLD = "{version: 1, name: strict, default: {hold: {queue: q}}}"
EDITED = re.compile(r"<textarea[^>]*>.*?</textarea>", re.DOTALL)
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e"
VALUES = (
    "[/bold][link=file:///etc]click",  # first, so that it is among those that `top` shows
    "\ud800 alone",
    "NUL \x00 in it",
    "lines\r\nand\n{more}",
    ESCAPES,
    "<script>alert(1)</script>:smile:{{7*7}}%n",
    "'; DROP TABLE exchanges; --",
    "".join(map(chr, random.Random(21).choices(range(0x20000, 0x2A6D6), k=1_000))),
)
"""The last one has 4,000 bytes that cannot be packed, more than a key of PostgreSQL may have."""


@pytest.fixture
def proxy(
    upstream: FaultyUpstream, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LiveProxy]:
    monkeypatch.setenv("PINOCCHIO_CHAIN_KEY", "ab" * 32)
    proxy = LiveProxy(upstream.base_url, tmp_path, policy=HOLD, store=store_url, **DESK)
    yield proxy
    proxy.stop()


def told(value: str) -> str:
    """Return a value as a header field can carry it."""
    return "".join(each if each.isprintable() else quote(each, errors="replace") for each in value)


def ask(proxy: LiveProxy, value: str, behaviour: str) -> httpx.Response:
    """Ask with the value as model, user, metadata, tools, text, header fields and query."""
    function = {"name": value, "description": value, "parameters": {"type": "object"}}
    more = {"user": value, "metadata": {value: value}, "stop": [value], "seed": 2**63}
    tools = {"tools": [{"type": "function", "function": function}]} if behaviour == "tools" else {}
    field = told(value)[:2_000].encode("utf-8", "replace")
    headers = [
        (b"x-faulty", behaviour.encode()),
        (b"x-pinocchio-tags", field),
        (b"x-pinocchio-domain", field),
        (b"user-agent", field),
        (b"x-request-id", field),
        (b"content-type", b"application/json"),
    ]
    return proxy.http.post(
        f"/v1/chat/completions?q={quote(value, errors='replace')}",
        content=json.dumps(question(f"p=0.1 {value}", value, **more, **tools)),
        headers=headers,
    )


def rows(engine: sa.Engine, table: str) -> int:
    with engine.connect() as connection:
        count: int = connection.execute(sa.text(f"SELECT count(*) FROM {table}")).scalar_one()
    return count


def is_harmless(text: str) -> bool:
    return all(each.isprintable() or each == "\n" for each in text)


@pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
def test_no_value_harms_the_record_or_its_readers(
    proxy: LiveProxy, store_url: str, tmp_path: Path
) -> None:
    """Each request has its row and each held reply its review,
    the chain is intact, and people see all of it, escaped.
    """
    replies = [ask(proxy, value, behaviour) for value in VALUES for behaviour in ("ok", "tools")]
    assert {each.status_code for each in replies} == {200, 422}
    reviews = [each.headers["x-pinocchio-review-id"] for each in replies]
    requests = [each.headers["x-pinocchio-request-id"] for each in replies]
    engine = sa.create_engine(store_url.replace("postgresql:", "postgresql+psycopg:"))
    until(lambda: rows(engine, "exchanges") >= len(replies))
    assert rows(engine, "held_replies") == len(replies)
    notes = [{"id": id, "is_correct": True, "note": v} for id, v in zip(requests, VALUES)]  # noqa: B905
    lines = "\n".join(json.dumps(note) for note in notes)
    assert proxy.http.post(f"{API}/feedback", content=lines).status_code in (200, 400)
    look(engine, lag_s=-60)
    assert rows(engine, "drift_monitors") > len(VALUES) / 2
    engine.dispose()
    _look_with_commands(proxy, tmp_path, store_url, requests, reviews)
    _look_at_the_desk(proxy, reviews)


def _look_with_commands(
    proxy: LiveProxy, folder: Path, store_url: str, requests: list[str], reviews: list[str]
) -> None:
    config = folder / "proxy.yaml"
    config.write_text(json.dumps({"store": store_url}))
    run, of = CliRunner(), ("--config", str(config))
    env = {"PINOCCHIO_ADMIN_TOKEN": TOKEN, "COLUMNS": "140"}
    commands = [("reviews", "list", "--limit", "1000"), ("audit", "verify"), ("export", "--facts")]
    commands += [("explain", requests[at]) for at in range(0, len(requests), 3)]
    commands += [("reviews", "show", reviews[at]) for at in range(1, len(reviews), 3)]
    commands += [("replay", "--since", "1h", "--policies", "observe"), ("report",)]
    for command in commands:
        done = run.invoke(cli, [*command, *of], env=env)
        assert done.exit_code == 0, (command, done.output, done.exception)
        assert is_harmless(done.stdout), (command, ascii(done.stdout))
    seen = run.invoke(cli, ["top", "--once", "--every", "0.1", "--url", desk_url(proxy)], env=env)
    assert seen.exit_code == 0, seen.output
    assert is_harmless(seen.stdout)
    assert "[/bold]" in seen.stdout


def _look_at_the_desk(proxy: LiveProxy, reviews: list[str]) -> None:
    metrics = proxy.desk.get("/metrics").text
    assert [*text_string_to_metric_families(metrics)]
    assert "DROP TABLE" not in metrics
    paths = ["/console/reviews", *(f"/console/reviews/{each}" for each in reviews)]
    for path in paths:
        page = proxy.desk.get(path, follow_redirects=True)
        assert page.status_code == 200, path
        assert "\0" not in page.text
        visible = EDITED.sub("", page.text)  # a person edits every character unescaped
        unseen = {each for each in visible if unicodedata.category(each) in ("Cc", "Cf", "Cs")}
        assert unseen <= {"\n"}, path
        assert "<script>alert" not in page.text
    listed = proxy.desk.get(f"{API}/reviews", params={"limit": 100}).json()["items"]
    assert len(listed) == len(reviews)


def test_a_log_on_a_terminal_has_no_escapes(tmp_path: Path) -> None:
    """A log on a terminal shows clients' names escaped, also those without a space."""
    program = (
        "import structlog; from proxy.http.listener.logs import configure_logs;"
        "configure_logs('info');"
        f"structlog.get_logger().info('request', model={ESCAPES!r}, path='/v1/{ESCAPES}')"
    ).encode("unicode_escape")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", program.decode()]
    subprocess.run(command, stderr=theirs, cwd=ROOT, env=environment(), check=True)
    os.close(theirs)
    written = os.read(ours, 65_536).decode(errors="replace")
    os.close(ours)
    assert r"\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e" in written
    assert "\x1b[2J" not in written
    assert "\x1b]0" not in written


def test_a_traceback_keeps_its_lines() -> None:
    event = without_escapes(None, "error", {"exception": "a\n b\x1b[2J", "count": 2})
    assert event == {"exception": "a\n b\\x1b[2J", "count": 2}
