"""A person's first minutes: a held reply, the log in a terminal, login files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.http.listener.logs import TerminalLines
from tests.conftest import StartProxy
from tests.running.live_proxy import ROOT, ProxyProcess, environment, run_cli
from tests.servers.faulty_upstream import FaultyUpstream

HOLD = "{version: 1, name: desk, mode: enforce, default: {hold: {queue: q, reply: error}}}"


def test_a_held_reply_is_readable(start_proxy: StartProxy, tmp_path: Path) -> None:
    """A held reply is shown in a few lines, with question and reply; `--json` has all of it."""
    proxy = start_proxy(policy=HOLD)
    id = proxy.ask("Paris, p=0.31").headers["x-pinocchio-review-id"]
    (tmp_path / "proxy.yaml").write_text(f"store: sqlite:///{proxy.store_path}\n")
    config = "--config", str(tmp_path / "proxy.yaml")
    lines = run_cli("reviews", "show", id, *config).stdout.splitlines()
    assert lines[0] == f"{id}  open, queue q"
    assert "confidence 0.31, policy desk/" in lines[1]
    assert lines[lines.index("Reply") + 1] == "  Paris, p=0.31"
    assert len(lines) < 12
    assert "{" not in "".join(lines)
    assert '"reply": {' in run_cli("reviews", "show", id, "--json", *config).stdout


REQUEST: dict[str, Any] = {
    "event": "request",
    "level": "info",
    "timestamp": "2026-11-27T17:10:32.5Z",
    "status": 200,
    "model": "gpt-5-mini",
    "action": "deliver",
    "overhead_ms": 2.6,
    "generation": 1,
    "confidence": 0.6123,
    "confidence_status": "scored",
    "request_id": "req_1",
    "path": "/v1/x",
}
UNSCORED = {key: value for key, value in REQUEST.items() if key != "confidence"}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (REQUEST, "17:10:32 gpt-5-mini 200 0.61 deliver 3 ms"),
        (REQUEST | {"worker": 2}, "17:10:32 [2] gpt-5-mini 200 0.61 deliver 3 ms"),
        (
            UNSCORED | {"reason": "image", "confidence_status": "not_supported"},
            "17:10:32 gpt-5-mini 200 - deliver 3 ms reason=image",
        ),
        (
            REQUEST | {"action": "hold", "status": 422, "review_id": "held-1"},
            "17:10:32 gpt-5-mini 422 0.61 hold 3 ms review_id=held-1",
        ),
        ({"event": "request", "level": "info"}, "- - - -"),
    ],
)
def test_a_request_is_one_row_of_a_terminal(event: dict[str, Any], line: str) -> None:
    """A request's row has time, model, status, confidence, action, overhead and oddities."""
    assert TerminalLines()(None, "info", dict(event)) == line


def test_other_lines_of_a_terminal_keep_their_facts() -> None:
    """Other lines than requests keep all their facts."""
    line = TerminalLines()(None, "warning", {"event": "store_gone", "level": "warning", "lag": 3})
    assert "store_gone" in line
    assert "lag" in line


def test_login_files_are_removed_when_the_proxy_ends(tmp_path: Path) -> None:
    """The login link's file and that of the user's commands are removed when the process ends."""
    code = (
        "import pathlib; from proxy.desk.listening import bind_admin\n"
        "from proxy.config.settings.admin import AdminConfig\n"
        "bind_admin(AdminConfig(port=0)).greeting(is_terminal=False)\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "print(len([*folder.glob('pinocchio-login-*'), *folder.glob('desk/*')]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment() | {"TMPDIR": str(tmp_path), "PINOCCHIO_CACHE": str(tmp_path)},
    )
    assert done.stdout.strip() == "2"
    assert not list(tmp_path.glob("pinocchio-login-*"))
    assert not list((tmp_path / "desk").iterdir())


def test_the_suite_heeds_ctrl_c_where_it_is_ignored() -> None:
    """Where SIGINT is ignored, as under nohup or in a script's background,
    the tests' processes and those that they start take it all the same.
    """
    code = "import tests.conftest, signal; print(signal.getsignal(signal.SIGINT))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert "default_int_handler" in done.stdout


def test_top_needs_no_token_beside_a_proxy_of_the_same_user(
    tmp_path: Path, upstream: FaultyUpstream
) -> None:
    """With the defaults `top` works at once through a file that only its user can read."""
    config = f"upstreams: {{faulty: {{base_url: {upstream.base_url}}}}}\n"
    config += f"models: [{{match: '*', upstream: faulty}}]\nstore: sqlite:///{tmp_path}/held.db\n"
    with ProxyProcess(tmp_path, config + "calibrator: {checkpoint: 'fake:0.7'}\n") as server:
        [line] = [line for line in server.stdout().splitlines() if "review desk" in line]
        url = line.split()[2]
        file = Path(os.environ["PINOCCHIO_CACHE"]) / "desk" / url.rpartition(":")[2]
        assert file.stat().st_mode & 0o777 == 0o600
        command = ["top", "--once", "--every", "0.1", "--url", url]
        done = run_cli(*command, cwd=tmp_path)
        assert "generation 1" in done.stdout, done.stderr
        file.chmod(0o644)
        assert run_cli(*command, cwd=tmp_path).returncode == 1


def test_a_long_list_says_what_is_missing(start_proxy: StartProxy, tmp_path: Path) -> None:
    """`reviews list` says how many there are, and part of an id names a review."""
    proxy = start_proxy(policy=HOLD.replace("desk", "long"), store=f"sqlite:///{tmp_path}/long.db")
    ids = [proxy.ask(f"p=0.{n}").headers["x-pinocchio-review-id"] for n in (3, 1, 2)]
    (tmp_path / "proxy.yaml").write_text(f"store: sqlite:///{tmp_path}/long.db\n")
    config = "--config", str(tmp_path / "proxy.yaml")
    cut = run_cli("reviews", "list", "--limit", "2", *config)
    assert [line.split()[0] for line in cut.stdout.splitlines()] == [ids[1], ids[2]]
    assert cut.stderr.startswith("2 of 3 are shown; --limit 3 shows all")
    whole = run_cli("reviews", "list", "--queue", "q", *config)
    assert len(whole.stdout.splitlines()) == 3
    assert "shown" not in whole.stderr
    assert run_cli("reviews", "list", "--queue", "other", *config).stdout == ""
    assert run_cli("reviews", "list", "--team", "none", *config).stdout == ""
    assert "7 d" in whole.stdout or "24 h" in whole.stdout  # not a second less than it has
    part = ids[1].rpartition("-")[2][:8]
    assert run_cli("reviews", "approve", part, *config).stdout == f"{ids[1]} is released\n"
    common = ids[1].rpartition("-")[0]
    several = run_cli("reviews", "reject", common, *config)
    assert several.returncode == 1
    assert "several reviews have" in several.stderr
