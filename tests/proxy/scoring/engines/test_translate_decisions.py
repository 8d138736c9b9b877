"""Decision models through litellm (checklist I14): asked whether an answer is correct."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from calibrator import CalibratorError, Item, NotScorableError, Score
from proxy.config.sections import Config
from proxy.scoring.engines.errors import EngineError
from proxy.scoring.engines.opening import engine_loader, known_name
from proxy.scoring.engines.remote import RemoteScorer
from tests.conftest import StartProxy
from tests.servers.engine_servers import SaidServer, said

Json = dict[str, Any]
SYSTEM_ONE, OPENAI = "hosted_vllm/jev", "openai/gpt-decide"


class DecisionServer:
    """Checks requests as the real ones do; the answer in the state says how sure it is, `p=0.9`."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Json]] = []
        self.says: bytes | None = None

    def __call__(self, path: str, body: Any) -> bytes:
        self.seen.append((path, body))
        if self.says is not None:
            return self.says
        return self._systemone(body) if path == "/v1/systemone" else self._decisions(path, body)

    def _systemone(self, body: Json) -> bytes:
        assert body.keys() == {"model", "state", "questions"}
        [(name, question)] = body["questions"].items()
        assert question == {"type": "noul", "instructions": question["instructions"]}
        answer = {"type": "noul", "noul": told(body["state"]["answer"])}
        return said({"model": "jev-1", "answers": {name: answer}, "usage": USAGE})

    def _decisions(self, path: str, body: Json) -> bytes:
        assert path == "/v1/decisions"
        assert body.keys() == {"model", "input", "questions"}
        [question] = body["questions"]
        assert question["type"] == "predicate"
        answer = {"type": "predicate", "name": question["name"], "probability": told(body["input"])}
        return said({"model": "gpt-decide", "answers": [answer], "usage": USAGE})


USAGE = {"input_tokens": 9, "output_tokens": 0, "total_tokens": 9}


def told(text: str) -> float:
    value = text.partition("p=")[2][:4]
    return float(value) if value[:1].isdigit() else 0.5


def config(model: str, url: str, **more: Any) -> Any:
    engine = {"kind": "decisions", "model": model, "base_url": url, "api_key": "sk-decide"}
    section = {"engine": engine, "timeout_s": 5.0, **more}
    return Config.model_validate({"calibrator": section}).calibrator


@contextmanager
def connected(model: str, server: DecisionServer, **more: Any) -> Iterator[RemoteScorer]:
    with SaidServer(server) as running:
        scorer = engine_loader(config(model, running.url, **more))()
        assert isinstance(scorer, RemoteScorer)
        try:
            yield scorer
            assert all(b"authorization: Bearer sk-decide" in seen.head for seen in running.requests)
        finally:
            scorer.close()


@pytest.mark.parametrize(
    ("model", "path"), [(SYSTEM_ONE, "/v1/systemone"), (OPENAI, "/v1/decisions")]
)
def test_a_yes_or_no_question_about_question_and_answer(model: str, path: str) -> None:
    """Both APIs get one typed question, with question and answer as the state (I14)."""
    server = DecisionServer()
    with connected(model, server) as scorer:
        found = scorer.score_batch([Item("why?", "p=0.91"), Item("who?", "p=0.12")])
        assert scorer.name == f"{model}~decisions" == known_name(config(model, "http://x"))
    assert found == [Score(0.91, 0.91), Score(0.12, 0.12)]
    assert {seen for seen, _ in server.seen} == {path}
    assert all("why?" in str(body) or "who?" in str(body) for _, body in server.seen[1:])


def test_the_text_is_cut_as_for_a_calibrator() -> None:
    """The state has 1,500 characters of the question and 800 of the answer at most (F10)."""
    server = DecisionServer()
    with connected(SYSTEM_ONE, server) as scorer:
        found = scorer.score_batch(
            [Item("q" * 1_500, "a" * 800), Item("q" * 1_501, "a"), Item("q", "a" * 801)]
        )
    assert [score.is_truncated for score in found] == [False, True, True]
    states = [body["state"] for _, body in server.seen[1:]]
    assert {"question": "q" * 1_500, "answer": "a"} in states
    assert {"question": "q", "answer": "a" * 800} in states


def test_images_get_no_score() -> None:
    """A question with an image has no score, since the model gets only text."""
    with (
        connected(SYSTEM_ONE, DecisionServer()) as scorer,
        pytest.raises(NotScorableError) as caught,
    ):
        scorer.score_batch([Item("what is this?", "a cat", images=(b"picture",))])
    assert caught.value.reason == "image"


@pytest.mark.parametrize(
    ("says", "error", "reason"),
    [
        (said({"error": {"message": "no"}}, 401), EngineError, "engine_refused"),
        (said({"error": {"message": "no"}}, 429), EngineError, "engine_busy"),
        (said({"error": {"message": "no"}}, 500), EngineError, "engine_failed"),
        (said({}, 302, b"location: http://127.0.0.1:1/"), EngineError, None),
        (said({"error": {"message": "no"}}, 400), CalibratorError, None),
        (said(b"<html>"), EngineError, None),
        (said({"model": "jev", "answers": {}}), CalibratorError, None),
        (said({"model": "jev", "answers": {"correct": {"type": "noul"}}}), EngineError, None),
        (
            said({"model": "jev", "answers": {"correct": {"type": "noul", "noul": 1.5}}}),
            EngineError,
            "engine_answer",
        ),
        (
            said({"model": "jev", "answers": {"correct": {"type": "noul", "noul": float("nan")}}}),
            EngineError,
            None,
        ),
    ],
)
def test_a_decision_model_that_fails(
    says: bytes, error: type[CalibratorError], reason: str | None
) -> None:
    """An answer without a probability is an error that repeats neither text nor answer."""
    server = DecisionServer()
    with connected(SYSTEM_ONE, server) as scorer:
        server.says = says
        with pytest.raises(error) as caught:
            scorer.score_batch([Item("secret question", "secret answer")])
    assert type(caught.value) is error
    assert reason in (None, getattr(caught.value, "reason", None))
    assert "secret" not in str(caught.value)


def test_a_decision_model_that_hangs() -> None:
    """A decision model that hangs is left after `timeout_s`."""
    server = DecisionServer()
    with connected(SYSTEM_ONE, server, timeout_s=0.3) as scorer:
        server.says = b""  # nothing is sent, and the connection stays
        started = time.perf_counter()
        with pytest.raises(EngineError, match="answer") as caught:
            scorer.score_batch([Item("why?", "a")])
    assert time.perf_counter() - started < 3
    assert caught.value.reason == "engine_timeout"


@pytest.mark.parametrize(
    ("model", "words"),
    [("nobodys-model", "litellm knows no provider"), ("groq/llama", "no API for decisions")],
)
def test_unknown_models_are_refused(model: str, words: str) -> None:
    """litellm must know who serves the model, and that it serves decisions."""
    with pytest.raises(EngineError, match=words):
        engine_loader(config(model, "http://127.0.0.1:1"))()


def test_through_the_proxy(start_proxy: StartProxy) -> None:
    """A reply through the proxy has the decision model's number, and the name says so."""
    with SaidServer(DecisionServer()) as server:
        engine = {"kind": "decisions", "model": SYSTEM_ONE, "base_url": server.url}
        reply = start_proxy(calibrator={"engine": engine, "timeout_s": 5.0}).ask("p=0.83")
    assert reply.headers["x-pinocchio-confidence"] == "0.8300"
    assert reply.headers["x-pinocchio-calibrator"] == f"{SYSTEM_ONE}~decisions"
