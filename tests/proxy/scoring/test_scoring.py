"""Scoring within the proxy: every fault may cost a number, with a reason, but no reply."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from calibrator import Item, NotScorableError, Question, Score, Scorer, UnavailableError
from proxy.formats import Choice
from proxy.scoring.engines.findings import findings_of
from proxy.scoring.scoring import Confidence, ScoreRequest, Scoring, Status
from proxy.scoring.waits import NICENESS
from tests.running.live_proxy import FailingScorer, SlowScorer, WordScorer, until
from tests.sharing.captured_logs import capture_logs


def choices(*texts: str) -> list[Choice]:
    return [Choice(i, {"role": "assistant", "content": text}) for i, text in enumerate(texts)]


def asked() -> Question:
    return Question("why?")


@asynccontextmanager
async def scoring_with(scorer: Scorer, **options: Any) -> AsyncIterator[Scoring]:
    scoring = Scoring(lambda: scorer, **options)
    scoring.start()
    await asyncio.to_thread(until, lambda: scoring.is_ready)
    yield scoring
    scoring.close()


async def test_a_scorer_that_is_not_there_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scorer that is not up yet is waited for; the log says so once, and when it is up."""
    monkeypatch.setattr("proxy.scoring.scoring.FIRST_PAUSE_S", 0.01)
    left = [UnavailableError("engine_down", "nobody listens")] * 3

    def load() -> Scorer:
        if left:
            raise left.pop()
        return WordScorer()

    with capture_logs() as lines:
        scoring = Scoring(load)
        scoring.start()
        await asyncio.to_thread(until, lambda: scoring.is_ready)
        scoring.close()
    away, ready = (each for each in lines if each["event"].startswith("calibrator_"))
    assert (away["event"], away["reason"], away["error"]) == (
        "calibrator_unavailable",
        "engine_down",
        "nobody listens",
    )
    assert (ready["event"], ready["calibrator"]) == ("calibrator_ready", "words@1")


async def test_one_confidence_for_each_choice() -> None:
    """The confidences come in the order of the choices, with the scorer's name."""
    async with scoring_with(WordScorer()) as scoring:
        found = await scoring.score(ScoreRequest(asked, choices("p=0.1", "p=0.9 truncated"), "gpt"))
        assert scoring.name == "words@1"
        assert await scoring.score(ScoreRequest(asked, [], "gpt")) == []
    assert [(each.value, each.status) for each in found] == [
        (0.1, Status.SCORED),
        (0.9, Status.TRUNCATED),
    ]
    assert {each.findings for each in found} == {findings_of(Score(0.5, 0.5))}


async def test_the_scorer_gets_text() -> None:
    """The scorer gets question, answer and the answering model's name."""
    scorer = WordScorer()
    async with scoring_with(scorer) as scoring:
        await scoring.score(ScoreRequest(asked, choices("p=0.1"), "gpt"))
    assert scorer.seen[-1] == Item("why?", "p=0.1", "gpt")


async def test_the_event_loop_is_not_blocked() -> None:
    """While the scorer computes, the event loop runs."""
    scorer = SlowScorer()
    async with scoring_with(scorer) as scoring:
        waiting = asyncio.create_task(scoring.score(ScoreRequest(asked, choices("p=0.1"), "gpt")))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        scorer.proceed.set()
        assert (await waiting)[0].value == 0.1


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")
async def test_the_event_loop_goes_first() -> None:
    """On a shared core the scorer's thread gives way to the event loop's."""

    def priority_of(thread: threading.Thread) -> int:
        assert thread.native_id is not None
        return os.getpriority(os.PRIO_PROCESS, thread.native_id)

    own = priority_of(threading.current_thread())
    before = set(threading.enumerate())
    async with scoring_with(WordScorer()):
        started = {each.name: each for each in threading.enumerate() if each not in before}
        assert priority_of(started["scorer"]) == min(19, own + NICENESS)
        assert priority_of(threading.current_thread()) == own


async def test_the_deadline() -> None:
    """An item without a score after `timeout_s` is a timeout, and nobody waits longer."""
    scorer = SlowScorer()
    async with scoring_with(scorer, timeout_s=0.05) as scoring:
        started = time.perf_counter()
        found = await scoring.score(ScoreRequest(asked, choices("p=0.1"), "gpt"))
        assert time.perf_counter() - started < 2
        scorer.proceed.set()
    assert found == [Confidence(None, Status.TIMEOUT, "deadline")]


async def test_what_nobody_waits_for_is_not_scored() -> None:
    """A score that timed out, or whose request was cancelled, costs the scorer nothing more."""
    scorer = SlowScorer()
    async with scoring_with(scorer, timeout_s=0.3) as scoring:
        first = asyncio.create_task(scoring.score(ScoreRequest(asked, choices("first"), "gpt")))
        assert await asyncio.to_thread(scorer.has_begun.wait, 10)  # so the others come too late
        late = asyncio.create_task(scoring.score(ScoreRequest(asked, choices("late"), "gpt")))
        left = asyncio.create_task(scoring.score(ScoreRequest(asked, choices("left"), "gpt")))
        await asyncio.sleep(0.01)
        left.cancel()
        await asyncio.gather(first, late)
        scorer.proceed.set()
        await scoring.score(ScoreRequest(asked, choices("p=0.1"), "gpt"))
    assert [item.answer for item in scorer.seen] == ["warm-up", "first", "p=0.1"]


async def test_a_full_queue() -> None:
    """Items that do not all fit into the queue are all refused at once."""
    async with scoring_with(WordScorer(), max_queue=2) as scoring:
        assert (
            await scoring.score(ScoreRequest(asked, choices("a", "b", "c"), "gpt"))
            == [Confidence(None, Status.SKIPPED, "queue_full")] * 3
        )
        assert len(await scoring.score(ScoreRequest(asked, choices("a", "b"), "gpt"))) == 2


async def test_one_bad_answer_does_not_take_others_along() -> None:
    """Where one answer makes the scorer fail, the others of its batch are scored."""

    class Picky(WordScorer):
        def score_batch(self, items: Sequence[Item]) -> list[Score]:
            if any("bad" in item.answer for item in items):
                raise ValueError("bad")
            return super().score_batch(items)

    async with scoring_with(Picky()) as scoring:
        found = await scoring.score(ScoreRequest(asked, choices("p=0.1", "bad", "p=0.3"), "gpt"))
    assert [confidence.value for confidence in found] == [0.1, None, 0.3]
    assert found[1] == Confidence(None, Status.ERROR, "scorer_failed")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NotScorableError("image", "an image"), Confidence(None, Status.NOT_SUPPORTED, "image")),
        (RecursionError("deep"), Confidence(None, Status.ERROR, "scorer_failed")),
        (KeyError("odd"), Confidence(None, Status.ERROR, "scorer_failed")),
    ],
)
async def test_questions_that_cannot_be_read(error: Exception, expected: Confidence) -> None:
    """Whatever reading the question raises becomes a status."""

    def unreadable() -> str:
        raise error

    async with scoring_with(WordScorer()) as scoring:
        assert await scoring.score(ScoreRequest(unreadable, choices("a"), "gpt")) == [expected]


async def test_answers_that_cannot_be_read() -> None:
    """An answer of an unknown shape becomes a status."""
    async with scoring_with(WordScorer()) as scoring:
        for content in (5, {"a": 1}, [5], True):
            [found] = await scoring.score(
                ScoreRequest(asked, [Choice(0, {"content": content})], "gpt")
            )
            assert found == Confidence(None, Status.NOT_SUPPORTED, "content")


async def test_before_the_scorer_is_there() -> None:
    """While the scorer loads everything has the status `loading` and nothing waits."""
    is_loaded = threading.Event()

    def load() -> Scorer:
        is_loaded.wait(10)
        return WordScorer()

    scoring = Scoring(load)
    scoring.start()
    assert await scoring.score(ScoreRequest(asked, choices("a"), "gpt")) == [
        Confidence(None, Status.LOADING, "calibrator_loading")
    ]
    assert (scoring.is_ready, scoring.name) == (False, None)
    is_loaded.set()
    await asyncio.to_thread(until, lambda: scoring.is_ready)
    scoring.close()


def failing_load() -> Scorer:
    raise OSError("gone")


@pytest.mark.parametrize("load", [failing_load, lambda: Unusable("broken")])
async def test_a_scorer_that_cannot_be_used(load: Callable[[], Scorer]) -> None:
    """A scorer that does not load, or fails its first batch, is an error from then on."""
    scoring = Scoring(load)
    scoring.start()
    failed = [Confidence(None, Status.ERROR, "calibrator_failed")]
    deadline = time.monotonic() + 10
    while await scoring.score(ScoreRequest(asked, choices("a"), "gpt")) != failed:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
    assert not scoring.is_ready
    scoring.close()


class Unusable(WordScorer):
    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        raise RuntimeError("no")


async def test_without_a_scorer() -> None:
    """Without a configured scorer everything is skipped and nothing waits."""
    scoring = Scoring(None)
    scoring.start()
    assert scoring.is_ready
    assert await scoring.score(ScoreRequest(asked, choices("a"), "gpt")) == [
        Confidence(None, Status.SKIPPED, "no_calibrator")
    ]
    scoring.close()


async def test_closing_while_something_waits() -> None:
    """An item that waits while the proxy stops gets a status and no exception."""
    scorer = SlowScorer()
    async with scoring_with(scorer) as scoring:
        first = asyncio.create_task(scoring.score(ScoreRequest(asked, choices("first"), "gpt")))
        await asyncio.to_thread(scorer.has_begun.wait, 10)
        second = asyncio.create_task(scoring.score(ScoreRequest(asked, choices("second"), "gpt")))
        await asyncio.sleep(0.02)
        closing = asyncio.create_task(asyncio.to_thread(scoring.close))
        await asyncio.wait_for(second, 10)  # what has not begun is given up first
        scorer.proceed.set()
        await closing
        assert (await first)[0].value == 0.5
        assert second.result() == [Confidence(None, Status.ERROR, "scorer_closed")]
        [after] = await scoring.score(ScoreRequest(asked, choices("after"), "gpt"))
    assert after.status is Status.ERROR


async def test_a_failing_scorer() -> None:
    """A scorer that raises is an error for each answer."""
    async with scoring_with(FailingScorer()) as scoring:
        found = await scoring.score(ScoreRequest(asked, choices("a", "b"), "gpt"))
    assert found == [Confidence(None, Status.ERROR, "scorer_failed")] * 2
