"""`pinocchio export` writes what a proxy stored as rows that every other command reads."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pinocchio.commands import cli
from proxy.store.database.verdicts import VerdictStore
from tests.conftest import StartProxy
from tests.proxy.actions.test_actions import WEATHER
from tests.proxy.store.test_retention import Retention
from tests.running.databases import execute
from tests.running.live_proxy import LiveProxy, until

POLICY = """
version: 1
name: desk
rules: [{name: unsure, when: {confidence: {below: 0.3}}, then: hold}]
default: deliver
"""
Run = Callable[..., Result]


@pytest.fixture
def proxy(start_proxy: StartProxy, store_url: str) -> LiveProxy:
    """Start a proxy that holds unsure replies, and selects everything else for audit."""
    return start_proxy(policy=POLICY, store=store_url, audit={"share": 1.0})


@pytest.fixture
def run(tmp_path: Path, store_url: str) -> Run:
    """Run `pinocchio export ..` on the test's store."""
    (tmp_path / "proxy.yaml").write_text(f"store: {store_url}\n")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(
            cli, ["export", *arguments, "--config", str(tmp_path / "proxy.yaml")]
        )

    return run


def rows_in(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.output
    rows = [line for line in done.stdout.splitlines() if line[:1] == "{"]  # not the proxy's log
    return [json.loads(line) for line in rows]


def recorded(url: str, count: int) -> None:
    """Wait until this many exchanges are written, and held replies of all but one."""
    until(lambda: execute(url, "SELECT count(*) FROM exchanges") == [(count,)])
    until(lambda: execute(url, "SELECT count(*) FROM held_replies") >= [(count - 1,)])


def test_a_row_has_the_words_and_what_is_known_of_them(
    proxy: LiveProxy, store_url: str, run: Run
) -> None:
    """A row has the scored question and message, the confidence, why it was kept, and labels."""
    held = proxy.ask("why? p=0.1", headers={"x-pinocchio-domain": "math"})
    proxy.ask("and this? p=0.9")
    proxy.ask("x", "status-429")
    recorded(store_url, 3)
    findings = VerdictStore(store_url)
    request_id = held.headers["x-pinocchio-request-id"]
    findings.give_verdict(request_id, True, "ada", "at first sight")
    findings.give_verdict(request_id, False, "bob")
    findings.close()
    first, second = rows_in(run())
    assert first["id"] == held.json()["id"]
    assert (first["question"], first["response"]["content"]) == ("why? p=0.1", "why? p=0.1")
    assert (first["correct"], first["confidence"], first["calibrator"]) == (0, 0.1, "words@1")
    assert (first["kind"], first["state"], first["domain"]) == ("hold", "open", "math")
    assert [(each["reviewer"], each["correct"]) for each in first["reviewers"]] == [
        ("ada", 1),
        ("bob", 0),
    ]
    assert (second["kind"], second["share"], second["action"]) == ("audit", 1.0, "deliver")
    assert "correct" not in second
    assert rows_in(run("--labelled")) == [first]
    assert rows_in(run("--since", "10m")) == [first, second]
    facts = rows_in(run("--facts"))[2:]
    assert [(each["status"], "response" in each) for each in facts] == [(429, False)]


def test_why_there_are_no_rows_is_told(start_proxy: StartProxy, store_url: str, run: Run) -> None:
    """Where nothing was kept of the exchanges, the message says so, unlike where there are none."""
    proxy = start_proxy(store=store_url)
    proxy.ask("p=0.9")
    recorded(store_url, 1)
    assert "--facts exports all exchanges" in run().stderr
    assert "--facts" not in run("--facts").stderr


@pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
def test_what_a_judge_said_goes_with_the_row(
    start_proxy: StartProxy, store_url: str, run: Run, tmp_path: Path
) -> None:
    """A row has the judge's signal, so that `recalibrate --signals` can learn from files."""
    policy = POLICY + "judge: {model: judge 0.75}\nlogprobs: true\n"
    proxy = start_proxy(policy=policy, store=store_url, audit={"share": 1.0})
    findings, count = VerdictStore(store_url), 60
    for number in range(count):
        reply = proxy.ask(f"{number} p=0.6", "likely", logprobs=True)
        findings.give_verdict(reply.headers["x-pinocchio-request-id"], number % 3 > 0, "ada")
    findings.close()
    recorded(store_url, count)
    rows = rows_in(run("--labelled"))
    assert {(row["judge"], round(row["judged"], 6)) for row in rows} == {("judge 0.75", 0.75)}
    assert all(len(row["logprobs"]) == 2 for row in rows)
    path, output = tmp_path / "rows.jsonl", tmp_path / "signals.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["recalibrate", str(path), "-o", str(output), "--calibrator", "fake:0.5"]
    done = CliRunner().invoke(cli, [*arguments, "--signals"])
    assert done.exit_code == 0, done.output
    assert "gives fake:0.5+judge-logprobs@" in done.stdout


def test_what_was_found_goes_with_the_row(proxy: LiveProxy, store_url: str, run: Run) -> None:
    """A row has support, basis and quotes like the reply itself; bare facts have columns."""
    answer = "p=0.9 support=0.4 basis=context act=data facts=needed missing=noon"
    proxy.ask(answer)
    proxy.ask("x", "status-429")
    recorded(store_url, 2)
    [row] = rows_in(run())
    assert (row["support"], row["basis"], row["act"]) == (0.4, ["context"], "data")
    assert (row["needs_facts"], row["familiar"]) == (True, True)
    assert row["unsupported"] == [{"sentence": answer, "words": ["noon"], "kind": "missing"}]
    execute(store_url, "DELETE FROM held_replies")
    facts = rows_in(run("--facts"))
    assert {each.get("basis") for each in facts} == {"context", None}
    assert "noon" not in json.dumps(facts)


def test_other_commands_read_what_is_written(
    proxy: LiveProxy, store_url: str, run: Run, tmp_path: Path
) -> None:
    """Other commands read the exported file, packed too, and tool calls in it."""
    name = "export.jsonl.gz" if store_url.startswith("sqlite") else "export.jsonl"
    findings = VerdictStore(store_url)
    count = 80
    for number in range(count):
        sure = 0.2 + 0.75 * number / count
        text, fields = f"{number} p={sure:.4f}", {}
        if number % 20 == 19:
            text, fields = f"{number} p={sure:.4f}", {"model": "tools", "tools": [WEATHER]}
        answer = proxy.ask(text, **fields)
        findings.give_verdict(answer.headers["x-pinocchio-request-id"], number > 30, "ada")
    findings.close()
    recorded(store_url, count)
    path = tmp_path / name
    done = run("--labelled", "-o", str(path))
    assert (done.exit_code, f"{count} rows" in done.stderr) == (0, True), done.output
    with gzip.open(path, "rt") if name.endswith("gz") else path.open() as lines:
        rows = [json.loads(line) for line in lines]
    assert sum("tool_calls" in row["response"] for row in rows) == 4
    for arguments in (
        ["evaluate", str(path), "--json"],
        ["recalibrate", str(path), "-o", str(tmp_path / "recalibration.json")],
        ["certify", str(path), "--max-error", "0.3", "--confidence", "0.9", "--json"],
    ):
        finished = CliRunner().invoke(cli, arguments)
        assert finished.exit_code in (0, 3), finished.output
        assert "bad" not in finished.output


def test_text_that_retention_deleted_is_not_exported(
    proxy: LiveProxy, store_url: str, run: Run
) -> None:
    """A reply whose text retention has deleted is exported only with `--facts`."""
    id = proxy.ask("p=0.1").json()["id"]
    recorded(store_url, 1)
    execute(
        store_url,
        "UPDATE held_replies SET state = 'released', decided_at = 1, expires_at = 2 WHERE id = :id",
        id=id,
    )
    retention = Retention(store_url, keep_days=30, keep_content_days=7)
    retention.forget()
    retention.close()
    assert rows_in(run()) == []
    [facts] = rows_in(run("--facts"))
    assert (facts["review_id"], "question" in facts) == (id, False)


def test_a_store_is_read_in_pages(
    proxy: LiveProxy, store_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reply is exported once and in the order of time, however many there are."""
    monkeypatch.setattr("proxy.store.exported.PAGE", 2)
    for number in range(7):
        proxy.ask(f"{number} p=0.9")
    proxy.ask("no completion", "status-500")
    recorded(store_url, 8)
    rows = rows_in(run("--facts"))
    assert [row.get("question", "facts").split()[0] for row in rows] == [*"0123456", "facts"]


def test_an_export_that_breaks_off_leaves_the_file_of_before(
    proxy: LiveProxy, run: Run, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-written export does not replace the earlier file."""
    for number in range(2):
        proxy.ask(f"{number} p=0.9")
    recorded(store_url, 2)
    output = tmp_path / "rows.jsonl"
    output.write_text("of before")
    rows = iter([{"id": "1"}])
    monkeypatch.setattr("proxy.commands.export.row_of", lambda _: next(rows))
    assert run("-o", str(output)).exit_code == 1
    assert output.read_text() == "of before"
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".partial")]
    monkeypatch.undo()
    assert run("-o", str(output)).exit_code == 0
    assert len(output.read_text().splitlines()) == 2


def test_an_export_goes_into_a_pipe(
    proxy: LiveProxy, run: Run, store_url: str, tmp_path: Path
) -> None:
    """An export into a pipe is written to it, and the pipe stays."""
    proxy.ask("p=0.9")
    recorded(store_url, 1)
    os.mkfifo(pipe := tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    assert run("-o", str(pipe)).exit_code == 0
    reader.join(10)
    assert len(read[0].splitlines()) == 1
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["--since", "soon"], 2, "such as 90m, 12h or 30d"),
        (["-o", "/nowhere/x.jsonl"], 2, "there is no folder /nowhere"),
        (["-o", "there/"], 2, "there/ names a folder"),
    ],
)
def test_mistakes_are_one_sentence(
    run: Run, arguments: list[str], status: int, problem: str, proxy: LiveProxy
) -> None:
    """Mistakes give one sentence and the exit status of their kind."""
    done = run(*arguments)
    assert (done.exit_code, problem in done.stderr) == (status, True), done.output
