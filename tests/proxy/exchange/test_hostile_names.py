"""Names that clients choose do no harm to rows, log lines, pages or terminals."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from proxy.commands.opening.exits import plain, plain_json
from proxy.store.database.database import open_engine
from tests.conftest import StartProxy
from tests.running.live_proxy import LiveProxy, error_of, run_cli, until

HOLD = "{version: 1, name: strict, default: {hold: {queue: q}}}"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e"


@pytest.fixture
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=HOLD)


def test_a_terminal_gets_no_escapes(proxy: LiveProxy, tmp_path: Path) -> None:
    """`reviews list`, `reviews show` and `explain` escape a model's name, whatever it is."""
    held = proxy.ask("p=0.1", model=f"say {ESCAPES}")
    review_id = held.headers["x-pinocchio-review-id"]
    request_id = held.headers["x-pinocchio-request-id"]
    proxy.recorded(request_id, "facts")
    (tmp_path / "proxy.yaml").write_text(f"store: sqlite:///{proxy.store_path}\n")
    config = "--config", str(tmp_path / "proxy.yaml")
    for command in (
        ("reviews", "list", "--limit", "1000"),
        ("reviews", "show", review_id),
        ("explain", request_id),
    ):
        done = run_cli(*command, *config)
        assert done.returncode == 0, done.stderr
        assert "owned" in done.stdout
        assert not [each for each in done.stdout if not each.isprintable() and each != "\n"]


@pytest.mark.parametrize("text", [ESCAPES, "caf\u00e9 \U0001f98a", 'a"b\\\n'])
def test_escaped_json_says_the_same(text: str) -> None:
    output = plain_json(json.dumps({"a": text}, ensure_ascii=False, indent=2))
    assert json.loads(output) == {"a": text}
    assert all(each.isprintable() or each == "\n" for each in output)
    assert plain(text).isprintable()


def test_a_name_without_end_is_refused(proxy: LiveProxy) -> None:
    """A model's name beyond the limit is refused, as it would be in every line, row and page."""
    refused = proxy.ask("x", model="m" * 5_000_000)
    assert (refused.status_code, error_of(refused)["code"]) == (400, "invalid_model")
    assert proxy.ask("x", model="say " + "m" * 1_000).status_code == 200


def test_half_a_surrogate_pair_keeps_nobody_out_of_the_record(proxy: LiveProxy) -> None:
    """An exchange whose name has half a surrogate pair is recorded, with the name escaped."""
    body = b'{"model": "say \\ud800", "messages": [{"role": "user", "content": "x"}]}'
    reply = proxy.post_raw(body)
    assert reply.status == 200
    [row] = proxy.recorded(reply.headers["x-pinocchio-request-id"], "json_quote(model)")
    assert row == "say \\ud800"


def test_only_its_owner_reads_the_store(tmp_path: Path) -> None:
    """Only its owner can read the store's files, also those beside it and an older one."""
    before = os.umask(0)
    try:
        path = tmp_path / "held.db"
        path.touch(0o644)
        path.chmod(0o644)
        proxy = LiveProxy("http://127.0.0.1:9/v1", tmp_path, waits=False)
        until(lambda: proxy.http.get("/livez").status_code == 200)
        found = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
        proxy.stop()
        open_engine(f"sqlite:///{tmp_path}/new.db").dispose()
        found["new.db"] = stat.S_IMODE((tmp_path / "new.db").stat().st_mode)
    finally:
        os.umask(before)
    assert {"held.db", "held.db-wal", "held.db-shm", "new.db"} <= found.keys()
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}
