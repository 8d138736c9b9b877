"""One JSON line per request with known fields, and never a message's text or a key."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from proxy.http.listener.logs import PlainRequests
from tests.conftest import StartProxy
from tests.running.live_proxy import FailingScorer, ProxyProcess, question, run_cli, until

CANARY = "canary"
ALWAYS = {"event", "level", "timestamp", "request_id", "method", "path", "status"}
ALWAYS |= {"overhead_ms", "generation"}
SOMETIMES = {
    "upstream",
    "model",
    "stream",
    "score_ms",
    "confidence",
    "confidence_status",
    "support",
    "basis",
    "reason",
    "action",
    "would_action",
    "policy",
    "review_id",
    "shadowed",
    "calls",
    "key",
    "team",
    "error",
}


def line_of(server: ProxyProcess, response: httpx.Response) -> dict[str, Any]:
    """Return the one log line of a request."""
    id = response.headers["x-pinocchio-request-id"]
    until(lambda: any(line["request_id"] == id for line in server.lines()))
    [line] = [line for line in server.lines() if line["request_id"] == id]
    assert set(line) >= ALWAYS
    assert set(line) <= ALWAYS | SOMETIMES
    return line


def test_a_completion_has_a_line(server: ProxyProcess) -> None:
    """The line has what the headers have, and the upstream of the request."""
    response = httpx.post(f"{server.base_url}/chat/completions?key=x", json=question("hi"))
    line = line_of(server, response)
    headers = response.headers
    assert (line["method"], line["path"]) == ("POST", "/v1/chat/completions")
    assert (line["model"], line["upstream"], line["stream"]) == ("ok", "faulty", False)
    assert (line["status"], line["confidence"], line["confidence_status"]) == (200, 0.73, "scored")
    assert line["basis"] == headers["x-pinocchio-basis"] == "likeness"
    assert (line["action"], line["would_action"]) == ("deliver", "deliver")
    assert line["policy"] == headers["x-pinocchio-policy"]
    assert line["overhead_ms"] >= line["score_ms"] >= 0
    assert (line["event"], line["level"]) == ("request", "info")


def test_a_stream_has_a_line(server: ProxyProcess) -> None:
    """A stream's line is written at its end and has its confidence."""
    url = f"{server.base_url}/chat/completions"
    line = line_of(server, httpx.post(url, json=question("hi", stream=True)))
    assert (line["stream"], line["confidence"], line["status"]) == (True, 0.73, 200)
    line = line_of(server, httpx.post(url, json=question("hi", "cut", stream=True)))
    assert line["reason"] == "stream_broke_off"
    assert "confidence" not in line


def plain(**changes: object) -> dict[str, Any]:
    line = {"event": "request", "level": "info", "status": 200, "action": "deliver"}
    return line | changes


def test_a_share_of_plain_requests_is_logged_and_everything_else() -> None:
    """A share of plain requests is logged, and all errors,
    holds, requests without a policy's action and other events.
    """
    kept = [
        plain(status=429),
        plain(status=502, error="upstream_broke_off"),
        plain(action="hold", review_id="held-1"),
        plain(action="block"),
        plain(action="escalate"),
        plain(error="client_left", status=200),
        {"event": "store_gone", "level": "info"},
        {"event": "request", "level": "warning", "status": 200},
    ]
    quiet, half = PlainRequests(0), PlainRequests(0.5)
    for event in kept:
        assert quiet(None, "info", event) is event
    for event in (plain(), plain(action="annotate"), plain(reason="image")):
        with pytest.raises(structlog.DropEvent):
            quiet(None, "info", event)
    logged = 0
    for _ in range(1_000):
        with suppress(structlog.DropEvent):
            half(None, "info", plain())
            logged += 1
    assert 400 < logged < 600


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("PINOCCHIO_LOG_LEVEL", "loud", "PINOCCHIO_LOG_LEVEL is 'loud'; it may be debug, info"),
        ("PINOCCHIO_LOG_SHARE", "1 %", "PINOCCHIO_LOG_SHARE is '1 %'; it is a share of requests"),
        ("PINOCCHIO_LOG_SHARE", "nan", "PINOCCHIO_LOG_SHARE is 'nan'"),
        ("PINOCCHIO_LOG_SHARE", "7", "PINOCCHIO_LOG_SHARE is '7'"),
    ],
)
@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["serve", "--scorer-only"]])
def test_a_setting_of_the_log_that_is_none_is_one_sentence(
    command: list[str], name: str, value: str, sentence: str, tmp_path: Path
) -> None:
    """An invalid setting of the log stops the start with one sentence."""
    done = run_cli(*command, cwd=tmp_path, **{name: value})
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.splitlines()[1:] == ["pinocchio: unusable_input (exit status 2)"]


def test_other_surfaces_have_a_line(server: ProxyProcess) -> None:
    """A request that is only relayed has a line, too."""
    line = line_of(server, httpx.get(f"{server.base_url}/files/file-1"))
    assert (line["method"], line["path"]) == ("GET", "/v1/files/file-1")
    assert (line["confidence_status"], line["reason"]) == ("not_supported", "surface")


def test_errors_have_a_line(server: ProxyProcess) -> None:
    """An error of ours has a line with its code, one of upstream's with its status."""
    url = f"{server.base_url}/chat/completions"
    before = len(server.lines())
    httpx.post(url, content=b"what?")
    httpx.post(url, json=question("hi", "hang-up"))
    httpx.post(url, json=question("hi", "status-429"))
    until(lambda: len(server.lines()) == before + 3)
    bad, broken, limited = server.lines()[before:]
    assert (bad["status"], bad["error"]) == (400, "invalid_json")
    assert (broken["status"], broken["error"]) == (502, "upstream_broke_off")
    assert (limited["status"], limited["reason"]) == (429, "upstream_status")


def test_a_client_that_leaves_has_a_line(server: ProxyProcess) -> None:
    """A request whose client left is logged as such."""
    before = len(server.lines())
    url = f"{server.base_url}/chat/completions"
    for path in (url, f"{server.base_url}/responses"):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(path, json=question("hi", "slow"), timeout=0.2)
    until(lambda: len(server.lines()) == before + 2)
    assert [(line["status"], line["error"]) for line in server.lines()[before:]] == [
        (499, "client_left")
    ] * 2


def test_no_text_and_no_key_is_logged(server: ProxyProcess) -> None:
    """Nothing on stderr has a client's or an upstream's key, a question, an answer or a query."""
    chat = f"{server.base_url}/chat/completions"
    headers = {
        "authorization": f"Bearer sk-{CANARY}",
        "x-api-key": CANARY,
        "cookie": CANARY,
        "x-pinocchio-tags": CANARY,
    }
    tool = {"type": "function", "function": {"name": CANARY, "parameters": {}}}
    before = len(server.lines())
    with httpx.Client(headers=headers, params={"key": CANARY}, timeout=20) as client:
        for model in ("ok", "tools", "cut", "no-finish", "error-event", "broken-json", "hang-up"):
            for is_stream in (False, True):
                body = question(CANARY, model, stream=is_stream, tools=[tool], user=CANARY)
                client.post(chat, json=body)
        for content in (b'{"canary', b'{"model": "ok", "stream": "canary"}', b'"canary"'):
            client.post(chat, content=content)
        client.get(f"{chat}/chatcmpl-held-1")
        client.post(f"{server.base_url}/embeddings", json={"model": "x", "input": CANARY})
    until(lambda: len(server.lines()) >= before + 18)
    assert CANARY not in server.stderr()


def test_a_failing_scorer_logs_no_text(
    start_proxy: StartProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log has only the kind of a scorer's fault, since its message may quote the answer."""
    start_proxy(scorer=FailingScorer("telltale")).ask(CANARY)
    captured = capsys.readouterr()
    assert "score_failed" in captured.out
    assert "RuntimeError" in captured.out
    assert CANARY not in captured.out + captured.err
