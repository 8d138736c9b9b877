"""Before the first start: an initial configuration, and the tables of the store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from policies import load_policy, parse_policy
from proxy.config.sections import Config, load_config
from proxy.store.database import schema
from tests.running.databases import execute
from tests.running.live_proxy import run_cli


def test_init_writes_the_defaults_and_nothing_over_them(tmp_path: Path) -> None:
    """`init` writes a valid file with the defaults, and does not overwrite it."""
    done = run_cli("init", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pinocchio serve " in done.stdout
    written = load_config(tmp_path / "proxy.yaml", env={})
    assert written.model_dump() == Config().model_dump()
    (tmp_path / "proxy.yaml").write_text("mine")
    again = run_cli("init", cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr.startswith("proxy.yaml is there already; ")
    assert (tmp_path / "proxy.yaml").read_text() == "mine"


def test_init_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    """The printed commands name the chosen file; what cannot be written gives a sentence."""
    done = run_cli("init", "gate.yaml", cwd=tmp_path)
    command = next(line for line in done.stdout.splitlines() if "check" in line).partition("#")[0]
    assert run_cli(*command.split()[1:], cwd=tmp_path).returncode == 0
    refused = run_cli("init", "nowhere/gate.yaml", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("cannot write nowhere/gate.yaml: ")


def test_init_prints_or_copies_a_pack(tmp_path: Path) -> None:
    """`init --policy` prints or copies a pack word for word, in a file
    that a configuration can name; an unknown name gives a sentence.
    """
    output = run_cli("init", "-", "--policy", "agent-tools", cwd=tmp_path).stdout
    assert parse_policy(output, "x.yaml").name == load_policy("agent-tools").name
    copied = run_cli("init", "--policy", "agent-tools", cwd=tmp_path)
    assert (tmp_path / "agent-tools.yaml").read_text() == output
    assert "policies: agent-tools.yaml" in copied.stdout
    assert run_cli("init", "--policy", "agent-tools", cwd=tmp_path).returncode == 2
    refused = run_cli("init", "--policy", "helpdsk", cwd=tmp_path)
    assert refused.returncode == 2
    assert "no pack of this name" in refused.stderr


def test_migrate_makes_the_tables_and_may_run_again(tmp_path: Path, store_url: str) -> None:
    """`migrate` makes the tables on both databases, can run again, and prints no password."""
    (tmp_path / "proxy.yaml").write_text(f"store: {store_url}\n")
    for _ in range(2):
        done = run_cli("migrate", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith(f"is ready (schema {schema.LATEST})\n")
        assert "s3cret" not in done.stdout
    [(found,)] = execute(store_url, "SELECT version_num FROM alembic_version")
    assert found == schema.LATEST


def test_migrate_leaves_a_newer_store_alone(tmp_path: Path) -> None:
    """A newer store gives status 8 and what to do."""
    (tmp_path / "proxy.yaml").write_text("store: sqlite:///held.db\n")
    assert run_cli("migrate", cwd=tmp_path).returncode == 0
    with closing(sqlite3.connect(tmp_path / "held.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    done = run_cli("migrate", cwd=tmp_path)
    assert done.returncode == 8
    assert "a newer version of Pinocchio made it" in done.stderr


def test_migrate_says_where_there_is_no_store(tmp_path: Path) -> None:
    """Without a folder or a server `migrate` gives status 8 and the place."""
    (tmp_path / "proxy.yaml").write_text("store: sqlite:////nowhere/held.db\n")
    done = run_cli("migrate", cwd=tmp_path)
    assert done.returncode == 8
    assert "/nowhere" in done.stderr
