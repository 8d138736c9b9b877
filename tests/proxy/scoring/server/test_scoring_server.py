"""`pinocchio serve --scorer-only`: one calibrator over HTTP, for several processes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest

from calibrator import CalibratorError, Item, NotScorableError, Score, ToolUse
from proxy.errors import ExitStatus, StartupError
from proxy.scoring.engines.scorer_protocol import items_body, read_items
from proxy.scoring.server.app import serve_scorer
from tests.running.live_proxy import SlowScorer, WordScorer, error_of, until
from tests.servers.engine_servers import ServedApp, live_scoring_server

HERE = "127.0.0.1"
SCORE, SCORER = "/pinocchio/v1/score", "/pinocchio/v1/scorer"
PIXEL = base64.b64encode(b"\x89PNG picture").decode()


class PickyScorer(WordScorer):
    """A WordScorer that gives some answers no score."""

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        for item in items:
            if item.answer == "odd":
                raise RuntimeError(f"cannot score {item.answer!r}")
            if item.answer == "spoken":
                raise NotScorableError("audio", "the answer is spoken")
        return [Score(2.0, 2.0) if i.answer == "two" else self._score(i.answer) for i in items]


@pytest.fixture(scope="module")
def server() -> Iterator[ServedApp]:
    calibrator = {"checkpoint": "fake:0.5", "max_queue": 256}
    limits = {"max_body": "10KB"}
    with live_scoring_server(PickyScorer(), calibrator=calibrator, limits=limits) as found:
        yield found


@contextmanager
def queueing(scorer: SlowScorer, timeout_s: float) -> Iterator[ServedApp]:
    """Yield a scoring server with room for two items in its queue."""
    section: Any = {"checkpoint": "fake:0.5", "max_queue": 2, "timeout_s": timeout_s}
    with live_scoring_server(scorer, calibrator=section) as server:
        yield server


def scores_in(reply: httpx.Response) -> list[Any]:
    scores: list[Any] = reply.json()["scores"]
    return scores


def ask(server: ServedApp, *answers: str, **fields: Any) -> httpx.Response:
    items = [{"question": "why?", "answer": answer, **fields} for answer in answers]
    return httpx.post(server.url + SCORE, json={"items": items})


def test_one_score_for_each_item(server: ServedApp) -> None:
    """Scores come in the order of the items, with the name of the calibrator."""
    assert httpx.get(server.url + SCORER).json() == {
        "calibrator": "words@1",
        "reads_images": False,
        "reads_tool_use": False,
        "reads_messages": True,
        "reads_facts": True,
    }
    found = ask(server, "p=0.1", "p=0.9 truncated").json()
    assert found == {
        "calibrator": "words@1",
        "scores": [
            {"score": 0.1, "confidence": 0.1, "is_truncated": False},
            {"score": 0.9, "confidence": 0.9, "is_truncated": True},
        ],
    }


def test_an_item_without_a_score_does_not_take_others_along(server: ServedApp) -> None:
    """Each item has its own score or its own reason, and no reason repeats the text."""
    *scores, last = ask(server, "p=0.1", "odd", "spoken", "two", "p=0.2").json()["scores"]
    assert (scores[0]["score"], last["score"]) == (0.1, 0.2)
    assert [each["error"]["reason"] for each in scores[1:]] == [
        "scorer_failed",
        "audio",
        "scorer_failed",
    ]
    assert "odd" not in str(scores)


def test_text_calibrator_does_not_score_images(server: ServedApp) -> None:
    """An item with images gets the reason `image` from a calibrator that reads none."""
    items = [
        {"question": "what is this?", "answer": "p=0.9", "images": [PIXEL]},
        {"question": "what is this?", "answer": "p=0.3"},
    ]
    first, second = httpx.post(server.url + SCORE, json={"items": items}).json()["scores"]
    assert first["error"]["reason"] == "image"
    assert second["score"] == 0.3


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "JSON"),
        (b"[]", 400, "object"),
        ({}, 400, "'items' must be a list"),
        ({"items": []}, 400, "'items' must be a list"),
        ({"items": ["x"]}, 400, "items[0] must be an object"),
        ({"items": [{"question": "q"}]}, 400, "items[0].answer must be a string"),
        ({"items": [{"question": "q", "answer": 5}]}, 400, "items[0].answer must be a string"),
        (
            {"items": [{"question": "q", "answer": "a", "model": "x"}]},
            400,
            "items[0] has an unknown field 'model'",
        ),
        (
            {"items": [{"question": "q", "answer": "a", "domain": 1}]},
            400,
            "items[0].domain must be a string",
        ),
        (
            {"items": [{"question": "q", "answer": "a", "images": ["%"]}]},
            400,
            "items[0].images holds no base64",
        ),
        (
            {"items": [{"question": "q", "answer": "a", "images": "x"}]},
            400,
            "items[0].images must be a list",
        ),
        (
            {"items": [{"question": "q", "answer": "a", "others": "x"}]},
            400,
            "items[0].others must be a list",
        ),
        (
            {"items": [{"question": "q", "answer": "a", "others": [{"answer": 1}]}]},
            400,
            "items[0].others[0].answer and items[0].others[0].source_model must be strings",
        ),
        (
            {"items": [{"question": "q", "answer": "a", "others": [{"text": "x"}]}]},
            400,
            "items[0].others[0] must be an object of answer, source_model, tool_use",
        ),
        (
            {"items": [{"question": "q", "answer": "a", "alone": 2}]},
            400,
            "items[0].alone must be a number from 0 to 1",
        ),
        ({"items": [{"question": "q", "answer": "a"}], "model": "x"}, 400, "unknown field 'model'"),
        ({"items": [{"question": "q" * 11_000, "answer": "a"}]}, 413, "10240"),
        ({"items": [{"question": "", "answer": ""}] * 300}, 413, "300 items, 256 are allowed"),
    ],
)
def test_a_body_that_cannot_be_read(
    server: ServedApp, body: Any, status: int, message: str
) -> None:
    """A mistake gets 400 and too large a body 413, in OpenAI's envelope with what and where."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = httpx.post(server.url + SCORE, content=content)
    assert (reply.status_code, error_of(reply)["type"]) == (status, "invalid_request_error")
    assert message in error_of(reply)["message"]


def test_a_full_queue() -> None:
    """A request that does not fit into the queue is refused at once, with the time to retry."""
    scorer = SlowScorer()
    with queueing(scorer, timeout_s=10) as server:
        requests = [begin_to_ask(server, "p=0.1")]
        until(lambda: scorer.has_begun.is_set())
        requests.append(begin_to_ask(server, "p=0.2", "p=0.3"))
        refused = ask(server, "p=0.4")
        scorer.proceed.set()
        found = [answer_on(connection) for connection in requests]
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert error_of(refused)["code"] == "rate_limit_exceeded"
    assert [each["score"] for answer in found for each in answer["scores"]] == [0.1, 0.2, 0.3]


def begin_to_ask(server: ServedApp, *answers: str) -> HTTPConnection:
    """Send a request; return once the server has received it, without waiting for its answer."""
    connection = HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    connection.request("POST", SCORE, items_body([Item("why?", answer) for answer in answers]))
    for _ in range(2):  # what is answered now came later
        httpx.get(f"{server.url}/livez")
    return connection


def answer_on(connection: HTTPConnection) -> Any:
    with closing(connection):
        return json.loads(connection.getresponse().read())


def test_what_takes_too_long() -> None:
    """An item without a score at the deadline says so."""
    scorer = SlowScorer()
    with queueing(scorer, timeout_s=0.05) as server:
        found = scores_in(ask(server, "a"))
        scorer.proceed.set()
    assert found == [{"error": {"message": "time was up", "reason": "deadline"}}]


def test_while_the_calibrator_loads() -> None:
    """Until there is a calibrator the answer is 503: the server is alive, but not ready."""

    def load() -> WordScorer:
        raise CalibratorError("no weights")

    with live_scoring_server(load) as server:
        assert httpx.get(f"{server.url}/livez").status_code == 200
        assert httpx.get(f"{server.url}/readyz").status_code == 503
        for reply in (httpx.get(server.url + SCORER), ask(server, "a")):
            assert (reply.status_code, error_of(reply)["code"]) == (503, "calibrator_loading")


def test_only_with_its_token() -> None:
    """A server with a token answers requests without it only for the probes."""
    with live_scoring_server(WordScorer(), scorer={"token": "sesame"}) as server:
        for key in (None, "Bearer", "Bearer sesam", "sesame!"):
            reply = httpx.get(server.url + SCORER, headers={"authorization": key} if key else {})
            assert (reply.status_code, error_of(reply)["code"]) == (401, "invalid_api_key")
        let_in = httpx.get(server.url + SCORER, headers={"authorization": "Bearer sesame"})
        assert let_in.status_code == 200


def test_without_a_token_only_this_machine_is_answered(server: ServedApp) -> None:
    """A request that calls loopback by another name, as a page in a browser could, is refused."""
    reply = httpx.get(server.url + SCORER, headers={"host": "evil.example"})
    assert (reply.status_code, error_of(reply)["code"]) == (403, "host_not_allowed")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", SCORE), ("POST", SCORER), ("GET", "/"), ("POST", "/v1/responses")]
)
def test_there_is_nothing_else(server: ServedApp, method: str, path: str) -> None:
    """A scoring server answers any other path or method with 404."""
    reply = httpx.request(method, server.url + path)
    assert (reply.status_code, error_of(reply)["code"]) == (404, "unknown_url")


def test_items_survive_the_way() -> None:
    """Every field of an item survives writing and reading, and messages are sent once."""
    before = [{"role": "user", "content": "said once"}]
    items = [
        Item("q ü \U0001f600", "a\0\n"),
        Item("", "", "gpt", "gpqa", "law", (b"\x00\xff", b"")),
        Item("q", "a", messages=[{"role": "system", "content": "c"}, {"role": "user"}]),
        Item("q", "a", tool_use=ToolUse(before, [], {"role": "assistant"}), messages=before),
        Item("q", "a", tool_use=ToolUse([], [], {"role": "assistant"}), messages=before),
    ]
    body = items_body(items)
    assert read_items(body) == items
    assert body.count(b"said once") == 2


@pytest.mark.parametrize(
    ("text", "host", "status", "message"),
    [
        ("", "0.0.0.0", ExitStatus.UNSAFE, "scorer.token"),
        ("calibrator: {checkpoint: none}", HERE, ExitStatus.UNUSABLE_INPUT, "nothing to score"),
        (
            "calibrator: {engine: {kind: scorer, base_url: 'http://127.0.0.1:1'}}",
            HERE,
            ExitStatus.UNUSABLE_INPUT,
            "asks another one",
        ),
        (
            "calibrator: {recalibration: current}",
            HERE,
            ExitStatus.UNUSABLE_INPUT,
            "for the proxies",
        ),
        (
            "calibrator: {checkpoint: /no/such}",
            HERE,
            ExitStatus.CHECKPOINT_MISSING,
            "/no/such",
        ),
    ],
)
def test_mistakes_at_the_start(
    tmp_path: Path, text: str, host: str, status: ExitStatus, message: str
) -> None:
    """A scoring server that cannot work, or would be open to everybody, does not start."""
    path = tmp_path / "proxy.yaml"
    path.write_text(text)
    with pytest.raises(StartupError, match=message) as caught:
        serve_scorer(path, host, 0, print)
    assert caught.value.status is status
