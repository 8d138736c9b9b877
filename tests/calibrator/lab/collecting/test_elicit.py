"""`pinocchio elicit`: what models say about replies, asked through the upstreams and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.running.live_proxy import run_cli
from tests.servers.faulty_upstream import FaultyUpstream

Json = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path, upstream: FaultyUpstream) -> Path:
    """Write six replies of a model that repeats its prompt, so that it states no own confidence."""
    config = f"""
    upstreams: {{faulty: {{base_url: "{upstream.base_url}", api_key: k}}}}
    models: [{{match: "*", upstream: faulty}}]
    """
    (tmp_path / "proxy.yaml").write_text(config)
    rows = [
        {"id": n, "question": f"Say {n}", "response": f"I say {n}", "model": "ok", "correct": n % 2}
        for n in range(6)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path


def elicit(folder: Path, *options: str) -> tuple[int, str, list[Json]]:
    output = folder / "elicited.jsonl"
    named = ["--config", str(folder / "proxy.yaml"), "-o", str(output)]
    done = run_cli("elicit", str(folder / "rows.jsonl"), *named, *options)
    rows = output.read_text().splitlines() if output.exists() else []
    return done.returncode, done.stdout + done.stderr, [json.loads(line) for line in rows]


def test_replies_get_what_models_say_of_them(folder: Path, upstream: FaultyUpstream) -> None:
    """Each row gets all fields, other fields stay, and a second run asks nobody (I01, I06, I08)."""
    options = ("--stated", "--judge", "ok", "--samples", "3")
    status, output, rows = elicit(folder, *options)
    assert status == 0, output
    for row, line in zip(rows, (folder / "rows.jsonl").read_text().splitlines(), strict=True):
        assert json.loads(line).items() <= row.items()
        assert row["judge"] == "ok"
        assert 0 <= row["judged"] <= 1
        assert 0 <= row.get("verbalized_confidence", 0) <= 1
        assert len(row["samples"]) == 3
    sent = [json.loads(request.body) for request in upstream.requests]
    assert len(sent) == 6 * (1 + 1 + 3)
    assert sum(body["temperature"] == 0.7 for body in sent) == 18
    upstream.forget()
    assert elicit(folder, *options)[2] == rows
    assert upstream.requests == []


def test_what_fails_adds_nothing(folder: Path, upstream: FaultyUpstream) -> None:
    """A judge that never answers leaves its rows without a number, with exit status 1."""
    status, output, rows = elicit(folder, "--judge", "status-400", "--samples", "1")
    assert status == 1
    assert "6 calls without an answer: status-400: status 400" in output
    assert all("judged" not in row and len(row["samples"]) == 1 for row in rows)


def test_nothing_to_ask_is_refused(folder: Path) -> None:
    """Without anything to ask the command is refused before it reads a row."""
    status, output, rows = elicit(folder)
    assert (status, rows) == (2, [])
    assert "say what to ask: --stated, --judge MODEL, --samples N" in output
