"""The chain over the record shows every row that is changed, removed or inserted."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from proxy.commands.audit import cli
from proxy.exchange.exchange import new_request_id
from proxy.store.database.chain import KEY_VARIABLE, audit_chain, key_file
from proxy.store.database.client_keys import ClientKey, KeyStore
from proxy.store.database.database import open_engine
from proxy.store.database.tables import path_of
from proxy.store.database.verdicts import VerdictStore, Withdrawal
from proxy.store.queue import ReviewQueue
from proxy.store.record.writer import Records
from proxy.store.reviews.held_replies import REJECTED, RELEASED, Store
from tests.proxy.store.test_records import row
from tests.proxy.store.test_store import REPLY
from tests.running.databases import execute
from tests.running.live_proxy import ROOT, environment, run_cli, until
from tests.running.postgres import PostgresServer
from tests.running.reviewing import decide, expire
from tests.running.warm_cli import Program, WarmProcess

BODY = b'{"id": "x"}'


@pytest.fixture(autouse=True, scope="module")
def chain_key() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_VARIABLE, "a key of the tests")
        yield


@pytest.fixture(scope="module")
def originals() -> dict[str, str]:
    """Return an empty mapping from the kind of database to the store that tests copy."""
    return {}


@pytest.fixture
def url(
    store_url: str, originals: dict[str, str], request: pytest.FixtureRequest, tmp_path: Path
) -> str:
    """Return a test's own copy of a store in which `live` made changes."""
    kind = store_url.partition(":")[0]
    if kind == "sqlite":
        if kind not in originals:
            originals[kind] = store_url
            live(store_url)
        shutil.copy(str(path_of(originals[kind])), tmp_path / "copy.db")
        return f"sqlite:///{tmp_path}/copy.db"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    if kind not in originals:
        live(store_url)
        originals[kind] = postgres.new_database(like=store_url)
    return postgres.new_database(like=originals[kind])


def live(url: str) -> None:
    """Make exchanges, holds and verdicts, a withdrawal, and a key."""
    record(url, 5)
    asyncio.run(review(url))
    queue = ReviewQueue(url)
    held = queue.get("d")
    assert held is not None
    assert queue.decide(held, RELEASED, "ada", is_correct=True, revised=b"{}", note="edited")
    queue.close()
    findings = VerdictStore(url)
    for reviewer in ("ada", "bob", "ada"):
        findings.give_verdict("req_1", True, reviewer)
    findings.withdraw(Withdrawal("g", "p", "all", "scores_drifted", 1.0))
    findings.withdraw(Withdrawal("g", "p", "all", "verdicts", 2.0))
    findings.close()
    keys = KeyStore(url)
    keys.add(ClientKey("key_1", "d" * 64, 1.0))
    keys.revoke("key_1")
    keys.revoke("key_2")
    keys.close()


def record(url: str, count: int) -> list[str]:
    """Record exchanges; return their ids."""
    records = Records(url, every_s=0.01)
    records.open()
    ids = [new_request_id() for _ in range(count)]
    for id in ids:
        records.add(row(id, is_stream=1, confidence=1, model="ä"))
    records.close()
    return ids


async def review(url: str) -> None:
    """Hold four replies: one handed out, one rejected, one that expires, one that waits."""
    store = Store(url)
    await store.open()
    for id in "abcd":
        expires_at = 4e9 if id != "c" else time.time() - 1
        held = replace(REPLY, id=id, reply=BODY, expires_at=expires_at, request_id="req_2")
        await store.hold(held)
    assert decide(store.url, "a", RELEASED)
    assert [await store.take("a", 60) for _ in range(2)] == [True, True]
    assert decide(store.url, "b", REJECTED)
    assert not decide(store.url, "b", RELEASED)
    expire(url)
    await store.aclose()


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Result]:
    """Run `pinocchio audit ..` on the test's store."""
    fixture = "url" if "url" in request.fixturenames else "store_url"
    (tmp_path / "proxy.yaml").write_text(f"store: {request.getfixturevalue(fixture)}\n")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, [*arguments, "--config", str(tmp_path / "proxy.yaml")])

    return run


Run = Callable[..., Result]


def test_what_nobody_changed_is_intact(url: str, run: Run) -> None:
    """In an untouched store every event has its entry, and every row is covered."""
    done = run("verify", "--json")
    body = json.loads(done.stdout)
    assert (done.exit_code, body["is_intact"], body["breaks"]) == (0, True, []), done.output
    tables = {"held_replies": 4, "exchanges": 5, "verdicts": 3, "client_keys": 1}
    assert body["rows"] == {**tables, "withdrawn_grants": 1}
    assert (body["earlier"], body["forgotten"]) == (0, 0)
    kinds = [kind for (kind,) in execute(url, "SELECT kind FROM audit_chain ORDER BY sequence")]
    assert kinds[:2] == ["begun", "recorded"]
    held = ["held"] * 4 + ["decided", "taken", "decided", "expired", "labelled", "decided"]
    later = [kind for kind in kinds if kind not in ("begun", "recorded")]
    assert later == [*held, *["labelled"] * 3, "withdrawn", "key_made", "key_revoked"]
    assert run("verify").stdout.splitlines()[-1] == f"head {body['head']}"
    assert run("verify", "--head", body["head"]).exit_code == 0
    assert "nothing was changed" in run("verify").stdout


TAMPERING = {
    "a changed exchange": (
        "UPDATE exchanges SET confidence = 0.99 WHERE request_id = :id",
        "row_changed exchanges",
    ),
    "a removed exchange": ("DELETE FROM exchanges WHERE request_id = :id", "row_missing exchanges"),
    "an inserted exchange": (
        "INSERT INTO exchanges (request_id, started_at, key_hash, path, is_stream, status, "
        "total_ms, overhead_ms) SELECT 'req_0', started_at, key_hash, path, is_stream, status, "
        "total_ms, overhead_ms FROM exchanges WHERE request_id = :id",
        "row_inserted exchanges",
    ),
    "a changed decision": (
        "UPDATE held_replies SET state = 'released' WHERE id = 'b'",
        "row_changed held_replies",
    ),
    "a removed hold": ("DELETE FROM held_replies WHERE id = 'a'", "row_missing held_replies"),
    "a changed label": (
        "UPDATE verdicts SET is_correct = NOT is_correct WHERE reviewer = 'bob'",
        "row_changed verdicts",
    ),
    "an inserted label": (
        "INSERT INTO verdicts (id, request_id, is_correct, given_at) "
        "SELECT 99, 'req_3', is_correct, 1 FROM verdicts WHERE reviewer = 'bob'",
        "row_inserted verdicts",
    ),
    "a key that lives again": (
        "UPDATE client_keys SET revoked_at = NULL",
        "row_changed client_keys",
    ),
    "a removed withdrawal": ("DELETE FROM withdrawn_grants", "row_missing withdrawn_grants"),
    "a removed entry": ("DELETE FROM audit_chain WHERE sequence = 4", "entry_missing "),
    "a changed entry": (
        "UPDATE audit_chain SET at = at + 1 WHERE sequence = 4",
        "entry_changed held_replies",
    ),
    "a changed list": (
        "UPDATE audit_chain SET covers = '{}' WHERE sequence = 4",
        "entry_changed held_replies",
    ),
    "an emptied list": (
        "UPDATE audit_chain SET covers = '' WHERE sequence = 2",
        "entry_changed exchanges",
    ),
    "a history that begins later": ("DELETE FROM audit_chain WHERE sequence = 1", "entry_missing "),
}


@pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.parametrize("how", TAMPERING)
def test_tampering_is_found_and_named(url: str, run: Run, how: str) -> None:
    """The first break names what was done and to what, with exit status 1."""
    statement, first = TAMPERING[how]
    [(id,)] = execute(url, "SELECT max(request_id) FROM exchanges")
    execute(url, statement, **({"id": id} if ":id" in statement else {}))
    done = run("verify", "--json")
    body = json.loads(done.stdout)
    assert (done.exit_code, body["is_intact"]) == (1, False)
    assert " ".join((body["breaks"][0]["what"], body["breaks"][0]["of"])) == first
    assert "BROKEN in" in run("verify").stdout


def test_changed_bytes_are_found(url: str, run: Run) -> None:
    """A change of any byte of a held reply is found."""
    path = path_of(url)
    other = "X'7B7D'" if path else r"'\x7b7d'"
    execute(url, f"UPDATE held_replies SET reply = {other} WHERE id = 'a'")
    done = run("verify")
    assert done.exit_code == 1
    assert "held_replies a, which it covers, was changed" in done.stdout


def test_earlier_head_detects_a_cut_tail(url: str, run: Run) -> None:
    """Removing the last rows with their entries is found by a head that was kept."""
    head = json.loads(run("verify", "--json").stdout)["head"]
    ids = record(url, 3)
    later = json.loads(run("verify", "--json").stdout)["head"]
    execute(url, *(f"DELETE FROM exchanges WHERE request_id = '{id}'" for id in ids))
    execute(url, f"DELETE FROM audit_chain WHERE sequence > {head.partition(':')[0]}")
    assert run("verify").exit_code == 0, "nothing inside of the store can tell"
    assert run("verify", "--head", head).exit_code == 0
    done = run("verify", "--head", later)
    assert done.exit_code == 1
    assert "or another than the head that was told" in done.stdout
    assert "BROKEN in 1 place\n" in done.stdout


@pytest.mark.parametrize("head", ["foo", "", "7", "7:", "7:abc", f"-7:{'0' * 64}", f"7:{'0' * 65}"])
def test_a_head_that_is_none_raises_no_alarm(url: str, run: Run, head: str) -> None:
    """A head that no chain can have is a typing mistake, and no alarm."""
    done = run("verify", "--head", head)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"--head must be SEQUENCE:MAC, as `audit verify` prints it, not {head!r}" in done.stderr


def test_what_was_there_before_the_chain_is_bound_by_it(store_url: str, run: Run) -> None:
    """Rows from before the chain are covered once it begins, so that none can be exchanged."""
    ids = record(store_url, 4)
    keys = KeyStore(store_url)
    keys.add(ClientKey("key_old", "digest", 1.0))
    keys.close()
    execute(store_url, "DELETE FROM audit_chain")
    record(store_url, 2)
    done = run("verify")
    assert done.exit_code == 0, done.output
    assert "cover 1 of client_keys, 6 of exchanges" in done.stdout
    execute(store_url, "UPDATE client_keys SET id = 'key_new', role = 'admin'")
    execute(store_url, f"UPDATE exchanges SET request_id = 'req_0' WHERE request_id = '{ids[0]}'")
    done = run("verify")
    assert done.exit_code == 1
    for name in ("client_keys key_old", "client_keys key_new", "exchanges req_0"):
        assert name in done.stdout


def test_running_proxy_reports_a_new_chain(
    store_url: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the last entry that a running proxy knew is gone, its log and the new chain say so."""
    records = Records(store_url, every_s=0.001)
    records.open()
    engine = open_engine(store_url)

    def entries() -> int:
        with engine.connect() as connection:
            return len(connection.execute(audit_chain.select()).all())

    records.add(tuple(row(new_request_id())))
    until(entries)
    with engine.begin() as connection:
        connection.execute(audit_chain.delete())
    records.add(tuple(row(new_request_id())))
    until(entries)
    records.close()
    engine.dispose()
    assert "audit_chain_cut" in capsys.readouterr().out
    done = run("verify")
    assert (done.exit_code, "it is gone, or another than the head" in done.stdout) == (1, True)


@pytest.mark.parametrize("model", ["m\ud800", "m\0", "m" * 5_000_000])
def test_no_name_keeps_an_exchange_out_of_the_record(store_url: str, run: Run, model: str) -> None:
    """A name that a database cannot store is stored escaped, and covered by the chain."""
    records = Records(store_url, every_s=0.001)
    records.open()
    values = row(id := new_request_id())
    records.add(tuple(model if value == "gpt" else value for value in values))
    records.close()
    assert records.shed == 0
    found = execute(store_url, f"SELECT model FROM exchanges WHERE request_id = '{id}'")
    assert len(found) == 1
    done = run("verify")
    assert (done.exit_code, "cover 1 of exchanges" in done.stdout) == (0, True)


def test_another_key_fits_nothing(url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the key nobody can rebuild the chain."""
    monkeypatch.setenv(KEY_VARIABLE, "another key")
    body = json.loads(run("verify", "--json").stdout)
    assert body["breaks"][0]["sequence"] == 1
    assert body["count"] == body["entries"]


WRITER = """
import json, sys
from proxy.store.record.writer import Records
from proxy.store.queue import ReviewQueue
records = Records(sys.argv[1], every_s=0.001, most_rows=3)
records.open()
for row in json.loads(sys.argv[2]):
    records.add(tuple(row))
records.close()
"""


@pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
def test_several_processes_write_one_chain(store_url: str, run: Run, tmp_path: Path) -> None:
    """Several processes that write at the same time make one chain."""
    ids = [new_request_id() for _ in range(120)]
    writer = Program(tmp_path / "writer.py")
    (tmp_path / "writer.py").write_text(WRITER)
    env = environment() | {KEY_VARIABLE: os.environ[KEY_VARIABLE]}
    record(store_url, 1)
    processes = [
        WarmProcess(
            [store_url, json.dumps([row(id) for id in some])],
            stdout=1, stderr=2, cwd=ROOT, env=env, program=writer,
        )
        for some in (ids[:60], ids[60:])
    ]  # fmt: skip
    assert [process.wait(60) for process in processes] == [0, 0]
    body = json.loads(run("verify", "--json").stdout)
    assert (body["is_intact"], body["rows"]) == (True, {"exchanges": 121})


def test_without_a_key_sqlite_has_one_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For SQLite a random key is made beside the file, for its owner alone, and used again."""
    monkeypatch.delenv(KEY_VARIABLE)
    url = f"sqlite:///{tmp_path}/held.db"
    record(url, 1)
    beside = key_file(tmp_path / "held.db")
    key = beside.read_bytes()
    assert (len(key), stat.S_IMODE(beside.stat().st_mode)) == (64, 0o600)
    record(url, 1)
    assert beside.read_bytes() == key
    (tmp_path / "proxy.yaml").write_text(f"store: {url}\n")
    arguments = ["verify", "--config", str(tmp_path / "proxy.yaml")]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    beside.unlink()
    done = CliRunner().invoke(cli, arguments)
    assert (done.exit_code, "there is no key" in done.stderr) == (2, True)


def test_without_a_key_postgresql_has_no_chain(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PostgreSQL without a key has records and no chain, and the log says what is missing."""
    monkeypatch.delenv(KEY_VARIABLE)
    record(postgres_url, 2)
    assert execute(postgres_url, "SELECT count(*) FROM exchanges") == [(2,)]
    assert execute(postgres_url, "SELECT count(*) FROM audit_chain") == [(0,)]
    assert "audit_chain_off" in capsys.readouterr().out


def test_what_commands_print_has_no_lines_of_the_log(postgres_url: str, tmp_path: Path) -> None:
    """On stdout there is only the key; the warning that there is no chain is on stderr."""
    (tmp_path / "proxy.yaml").write_text(f"store: {postgres_url}\n")
    done = run_cli("keys", "create", "--json", "--config", str(tmp_path / "proxy.yaml"))
    assert json.loads(done.stdout).keys() == {"id", "key"}
    assert "audit_chain_off" in done.stderr


def verified(url: str, tmp_path: Path, *options: str) -> Result:
    (tmp_path / "proxy.yaml").write_text(f"store: {url}\n")
    arguments = ["verify", "--config", str(tmp_path / "proxy.yaml"), *options]
    return CliRunner().invoke(cli, arguments)


def test_a_key_that_comes_later_says_that_the_chain_begins_with_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A key that is added later covers what was recorded before, and the report says so."""
    monkeypatch.delenv(KEY_VARIABLE)
    record(postgres_url, 30)
    monkeypatch.setenv(KEY_VARIABLE, "later")
    before = verified(postgres_url, tmp_path)
    assert (before.exit_code, "BROKEN" in before.stdout) == (0, False)
    assert "no entry yet" in before.stdout
    assert "until then it shows no change to the 30 rows that are there" in before.stdout
    record(postgres_url, 2)
    after = verified(postgres_url, tmp_path)
    assert after.exit_code == 0
    assert "cover 32 of exchanges" in after.stdout
    assert "nothing was changed" in after.stdout


def test_another_key_says_from_when_it_verifies(
    store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Entries under an earlier key are not verified, unless the reader gives their number."""
    record(store_url, 3)
    monkeypatch.setenv(KEY_VARIABLE, "another")
    wrong = verified(store_url, tmp_path).stdout
    assert "BROKEN" in wrong, "a key that made no entry is wrong"
    assert "has another key than all of these entries" in wrong
    record(store_url, 1)
    found = verified(store_url, tmp_path)
    assert (found.exit_code, "BROKEN" in found.stdout) == (1, False)
    assert "this key has been in use since entry 3, 20" in found.stdout
    assert "another key than all" not in found.stdout
    accepted = verified(store_url, tmp_path, "--other-key", "2")
    assert (accepted.exit_code, "nothing was changed since entry 3" in accepted.stdout) == (0, True)
    execute(store_url, "UPDATE exchanges SET model = 'other'")
    assert "BROKEN in 4 places" in verified(store_url, tmp_path, "--other-key", "2").stdout


def test_a_chain_that_was_emptied_is_no_chain_that_has_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emptied chain is found, as its key was made for the first entry."""
    monkeypatch.delenv(KEY_VARIABLE)
    url = f"sqlite:///{tmp_path}/held.db"
    record(url, 2)
    execute(url, "DELETE FROM audit_chain")
    found = verified(url, tmp_path)
    assert (found.exit_code, "BROKEN" in found.stdout) == (1, True)
