"""The queue in front of the scorer: what waits, what forms a batch, what is never scored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator import Batcher, CalibratorError, Item, QueueFullError, Score, Ticket

TIMEOUT_S = 10


@dataclass
class LengthScorer:
    """A scorer that scores an answer by its length, records each batch, and waits for its gate."""

    gate: threading.Event = field(default_factory=threading.Event)
    batches: list[list[str]] = field(default_factory=list)
    has_started: threading.Event = field(default_factory=threading.Event)
    name: str = "length"

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        self.has_started.set()
        assert self.gate.wait(TIMEOUT_S)
        self.batches.append([item.answer for item in items])
        if any(item.answer.startswith("bad") for item in items):
            raise ValueError("a bad item")
        return [score_of(item) for item in items]


@dataclass
class ApartScorer(LengthScorer):
    """A scorer that computes apart and logs what happens, in order."""

    computes_apart: bool = True
    log: list[str] = field(default_factory=list)

    def score_batch(self, items: Sequence[Item], meanwhile: Callable[[], None]) -> list[Score]:
        self.has_started.set()
        assert self.gate.wait(TIMEOUT_S)
        answers = " ".join(item.answer for item in items)
        self.log.append(f"read {answers}")
        if "worse" in answers:
            raise ValueError("a bad item, found early")
        meanwhile()
        self.log.append(f"compute {answers}")
        if "bad" in answers:
            raise ValueError("a bad item")
        return [score_of(item) for item in items]

    def record(self, ticket: Ticket) -> None:
        self.log.append(f"told {ticket.item.answer}{' failed' if ticket.error else ''}")


def score_of(item: Item) -> Score:
    return Score(1 / (1 + len(item.answer)), 1 / (1 + len(item.answer)))


def items(*answers: str) -> list[Item]:
    return [Item("", answer) for answer in answers]


@contextmanager
def batcher(scorer: LengthScorer, **options: int) -> Iterator[Batcher]:
    """Yield a batcher whose scorer waits until the test, or the end, opens its gate."""
    made = Batcher(scorer, **options)
    try:
        yield made
    finally:
        scorer.gate.set()
        made.close()


@contextmanager
def busy(scorer: LengthScorer, **options: int) -> Iterator[Batcher]:
    """Yield a batcher that is already computing, so that submitted items wait."""
    with batcher(scorer, **options) as made:
        made.submit(items("first"))
        assert scorer.has_started.wait(TIMEOUT_S)
        yield made


def results(tickets: Sequence[Ticket]) -> list[Score]:
    return [ticket.result(TIMEOUT_S) for ticket in tickets]


def test_every_item_gets_its_own_score() -> None:
    """Each item gets its own score, in the order of the items, over several batches."""
    scorer = LengthScorer()
    scorer.gate.set()
    given_items = items(*("x" * n for n in range(50)))
    with batcher(scorer, batch_characters=60) as made:
        assert results(made.submit(given_items)) == [score_of(item) for item in given_items]
        assert made.name == "length"


def test_what_arrives_meanwhile_forms_the_next_batch() -> None:
    """Items that arrive while the scorer is busy form the next batch."""
    scorer = LengthScorer()
    with busy(scorer) as made:
        waiting = [ticket for n in range(5) for ticket in made.submit(items(f"{n}"))]
        scorer.gate.set()
        results(waiting)
    assert scorer.batches == [["first"], ["0", "1", "2", "3", "4"]]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=20), st.integers(10, 100))
def test_batches_are_bounded_by_their_padded_size(sizes: list[int], limit: int) -> None:
    """A batch's longest item times its number of items stays within the limit, in order."""
    scorer = LengthScorer()
    answers = ["x" * size for size in sizes]
    with busy(scorer, batch_characters=limit) as made:
        waiting = made.submit(items(*answers))
        scorer.gate.set()
        results(waiting)
    batches = scorer.batches[1:]
    assert [answer for batch in batches for answer in batch] == answers
    assert all(len(b) == 1 or (max(map(len, b)) + 1) * len(b) <= limit for b in batches)


def test_a_giant_costs_what_the_scorer_reads_of_it() -> None:
    """An item counts only with the characters that the scorer reads."""
    scorer = LengthScorer()
    with busy(scorer, batch_characters=100, max_item_characters=20) as made:
        waiting = made.submit(items("a", "x" * 10_000, "b"))
        scorer.gate.set()
        results(waiting)
    assert [len(batch) for batch in scorer.batches] == [1, 3]


def test_cancelled_items_are_never_scored() -> None:
    """A cancelled item is never scored, and the others get their scores."""
    scorer = LengthScorer()
    with busy(scorer) as made:
        first, second, third = made.submit(items("a", "b", "c"))
        assert second.cancel()
        scorer.gate.set()
        results([first, third])
    assert scorer.batches == [["first"], ["a", "c"]]


def test_a_batch_of_cancelled_items_does_not_end_the_thread() -> None:
    """Scoring goes on after a batch whose items are all cancelled."""
    scorer = LengthScorer()
    with busy(scorer) as made:
        assert all(ticket.cancel() for ticket in made.submit(items("a", "b")))
        scorer.gate.set()
        results(made.submit(items("c")))
        results(made.submit(items("d")))
    assert "a" not in str(scorer.batches)


def test_a_full_queue_takes_all_or_nothing() -> None:
    """Beyond `max_queue` a submission is refused as a whole."""
    scorer = LengthScorer()
    with busy(scorer, max_queue=3) as made:
        waiting = made.submit(items("a", "b"))
        with pytest.raises(QueueFullError, match="2 items are waiting, 3 may"):
            made.submit(items("c", "d"))
        waiting += made.submit(items("e"))
        scorer.gate.set()
        results(waiting)
    assert scorer.batches == [["first"], ["a", "b", "e"]]


def test_cancelled_items_make_room() -> None:
    """Cancelled items make room in the queue."""
    scorer = LengthScorer()
    with busy(scorer, max_queue=2) as made:
        given_up = made.submit(items("a", "b"))
        assert all(ticket.cancel() for ticket in given_up)
        waiting = made.submit(items("c", "d"))
        scorer.gate.set()
        results(waiting)
    assert scorer.batches == [["first"], ["c", "d"]]


def test_a_failing_item_does_not_take_its_batch_along() -> None:
    """If a batch fails, each item is scored alone, and only the bad one has no score."""
    scorer = LengthScorer()
    with busy(scorer) as made:
        first, bad, third = made.submit(items("a", "bad", "c"))
        scorer.gate.set()
        assert results([first, third]) == [score_of(item) for item in items("a", "c")]
        with pytest.raises(ValueError, match="a bad item"):
            bad.result(TIMEOUT_S)
        results(made.submit(items("later")))
    assert scorer.batches == [["first"], ["a", "bad", "c"], ["a"], ["bad"], ["c"], ["later"]]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_scorer_that_gives_too_few_scores_is_not_believed(count: int) -> None:
    """A scorer that returns another number of scores gives an error for each item."""

    class Wrong(LengthScorer):
        def score_batch(self, items: Sequence[Item]) -> list[Score]:
            return [Score(0.5, 0.5)] * count if len(items) == 2 else []

    scorer = Wrong()
    with batcher(scorer) as made:
        for ticket in made.submit(items("a", "b")):
            with pytest.raises(CalibratorError, match="length gave 0 scores for 1 items"):
                ticket.result(TIMEOUT_S)


def test_whatever_a_scorer_raises_reaches_those_who_wait() -> None:
    """Any exception of a scorer, also SystemExit, reaches its caller, and the thread goes on."""

    class Exits(LengthScorer):
        def score_batch(self, items: Sequence[Item]) -> list[Score]:
            if items[0].answer == "bad":
                raise SystemExit(3)
            return [score_of(item) for item in items]

    with batcher(Exits()) as made:
        (bad,) = made.submit(items("bad"))
        with pytest.raises(SystemExit):
            bad.result(TIMEOUT_S)
        assert results(made.submit(items("a"))) == [score_of(Item("", "a"))]


def test_close_cancels_what_waits_and_ends_the_thread() -> None:
    """Closing finishes the running batch, cancels waiting items and ends the thread."""
    scorer = LengthScorer()
    made = Batcher(scorer)
    (running,) = made.submit(items("running"))
    assert scorer.has_started.wait(TIMEOUT_S)
    waiting = made.submit(items("a", "b"))
    closing = threading.Thread(target=made.close)
    closing.start()
    for ticket in waiting:
        with pytest.raises(CancelledError):
            ticket.result(TIMEOUT_S)
    scorer.gate.set()
    closing.join(TIMEOUT_S)
    assert running.result(TIMEOUT_S) == score_of(Item("", "running"))
    assert scorer.batches == [["running"]]
    assert not [t for t in threading.enumerate() if t.name == "scorer"]


def test_callbacks_run_while_the_next_batch_computes() -> None:
    """Callbacks of a batch run while the next one computes; those of the last run at once."""
    scorer = ApartScorer()
    with batcher(scorer, batch_characters=1) as made:
        tickets = made.submit(items("a", "b", "c"), scorer.record)
        scorer.gate.set()
        assert results(tickets) == [score_of(ticket.item) for ticket in tickets]
        (last,) = made.submit(items("d"), scorer.record)
        last.result(TIMEOUT_S)
    assert scorer.log == [
        *("read a", "compute a"),
        *("read b", "told a", "compute b"),
        *("read c", "told b", "compute c", "told c"),
        *("read d", "compute d", "told d"),
    ]


@pytest.mark.parametrize("bad", ["bad", "worse"])
def test_a_batch_that_fails_holds_no_scores_back(bad: str) -> None:
    """Callbacks of earlier batches run once if the next batch fails, early or late."""
    scorer = ApartScorer()
    with batcher(scorer, batch_characters=1) as made:
        good, failing, other = made.submit(items("a", bad, "b"), scorer.record)
        scorer.gate.set()
        assert results([good, other]) == [score_of(good.item), score_of(other.item)]
        with pytest.raises(ValueError, match="a bad item"):
            failing.result(TIMEOUT_S)
    calls = [each for each in scorer.log if each.startswith("told")]
    assert sorted(calls) == sorted(["told a", f"told {bad} failed", "told b"])


def test_close_runs_pending_callbacks() -> None:
    """Closing runs the callbacks of a batch whose scores were held back."""
    scorer = ApartScorer()
    made = Batcher(scorer, batch_characters=1)
    first, second = made.submit(items("a", "b"), scorer.record)
    assert scorer.has_started.wait(TIMEOUT_S)
    closing = threading.Thread(target=made.close)
    closing.start()
    with pytest.raises(CancelledError):
        second.result(TIMEOUT_S)
    scorer.gate.set()
    closing.join(TIMEOUT_S)
    assert first.result(TIMEOUT_S) == score_of(first.item)


def test_other_scorers_hold_nothing_back() -> None:
    """With a scorer that does not compute apart, callbacks run before the next batch."""
    log: list[str] = []

    class Plain(LengthScorer):
        def score_batch(self, items: Sequence[Item]) -> list[Score]:
            found = super().score_batch(items)
            log.append(f"score {items[0].answer}")
            return found

    scorer = Plain()
    with batcher(scorer, batch_characters=1) as made:
        tickets = made.submit(items("a", "b"), lambda each: log.append(f"told {each.item.answer}"))
        scorer.gate.set()
        results(tickets)
    assert log == ["score a", "told a", "score b", "told b"]


def test_a_closed_scorer_takes_nothing() -> None:
    """After closing, submitting is an error, and closing again is none."""
    made = Batcher(LengthScorer())
    made.close()
    made.close()
    with pytest.raises(CalibratorError, match="the scorer is closed"):
        made.submit(items("a"))


def test_nothing_is_nothing() -> None:
    """Submitting no items gives no tickets."""
    with batcher(LengthScorer()) as made:
        assert made.submit([]) == []


def test_any_thread_may_submit() -> None:
    """Many threads may submit at once: every item is scored once, for its own caller."""
    scorer = LengthScorer()
    scorer.gate.set()
    with batcher(scorer) as made, ThreadPoolExecutor(8) as pool:
        given_items = [items(*("x" * (10 * n + k) for k in range(5))) for n in range(40)]
        found = list(pool.map(lambda each: results(made.submit(each)), given_items))
    assert found == [[score_of(item) for item in each] for each in given_items]
    assert sum(map(len, scorer.batches)) == 200
