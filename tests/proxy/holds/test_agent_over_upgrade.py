"""An agent with docs/agents.md's function survives a restart, an upgrade and a migration."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from openai import OpenAI

from policies import pack_text
from proxy.store.database import schema
from tests.proxy.desk.test_waiting_calls import QUESTION
from tests.running.desk_client import DESK, decide
from tests.running.live_proxy import ROOT, LiveProxy
from tests.servers.faulty_upstream import FaultyUpstream
from tests.sharing.captured_logs import capture_logs

NEXT = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "9000", "{last}"
def upgrade():
    op.add_column("held_replies", sa.Column("colour", sa.String))
    op.create_table("ghosts", sa.Column("id", sa.String, primary_key=True))
"""
FIELDS = {"order_id": {"type": "string"}, "amount": {"type": "number"}}
REFUND = {"name": "refund_order", "parameters": {"type": "object", "properties": FIELDS}}
ASKED: dict[str, Any] = {"model": "demo", "tools": [{"type": "function", "function": REFUND}]}


@pytest.fixture
def upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function after which the version has one more revision of the schema."""

    def begin() -> None:
        folder = tmp_path / "migrations"
        shutil.copytree(schema.MIGRATIONS, folder)
        (folder / "versions" / "9000_next.py").write_text(NEXT.format(last=schema.LATEST))
        monkeypatch.setattr(schema, "MIGRATIONS", folder)
        monkeypatch.setattr(schema, "LATEST", "9000")

    return begin


def test_a_released_call_is_found_after_restart_and_migration(tmp_path: Path, upgrade: Any) -> None:
    """While the agent waits its call is released, the proxy ends and a newer one migrates
    the store. The agent's next request gets the same call, and no model is asked again.
    """
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/agents.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    folder = tmp_path / "store"
    folder.mkdir()
    with FaultyUpstream() as upstream:

        def start() -> LiveProxy:
            return LiveProxy(upstream.base_url, folder, policy=pack_text("doubtful-calls"), **DESK)

        proxies = [start()]
        client = OpenAI(base_url=proxies[0].base_url, api_key="sk-client", max_retries=0)
        logs: list[Any] = []

        def sleep(wait_s: float) -> None:
            """Release the call at the first pause, and start the newer proxy at the second."""
            if not logs:
                [held] = proxies[0].desk.get("/pinocchio/v1/reviews").json()["items"]
                assert decide(proxies[0], held["id"], verdict="approve").status_code == 200
                logs.append(held)
                proxies[0].stop()
                return
            upgrade()
            with capture_logs() as lines:
                proxies.append(start())
            logs.extend(line for line in lines if line["event"] == "store_migrated")
            client.base_url = proxies[1].base_url

        names["time"] = SimpleNamespace(sleep=sleep, monotonic=lambda: 0.0)
        try:
            messages = [{"role": "user", "content": QUESTION}]
            message = names["next_message"](client, messages, **ASKED)
        finally:
            proxies[-1].stop()
    held, migrated = logs
    [call] = message.tool_calls
    assert (held["question"], migrated["now"]) == (QUESTION, "9000")
    assert json.loads(call.function.arguments)["amount"] == 69  # a new call would be held again
