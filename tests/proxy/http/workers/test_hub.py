"""The hub passes questions on and does not wait for dead workers, over real socket pairs."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.http.workers.channel import Channel, Message, Unpacker, WorkerLink, pack_message
from proxy.http.workers.hub import Hub, WorkerAnswers


class Workers:
    """A hub with three workers, played by the test."""

    def __init__(self) -> None:
        pairs = [socket.socketpair() for _ in range(3)]
        self.links = {index: WorkerLink(ours) for index, (ours, _) in enumerate(pairs)}
        self.ends = [theirs for _, theirs in pairs]
        self._read = [iter(Channel(end).messages()) for end in self.ends]
        self.hub = Hub(self.links, add=lambda several: sum(several), facts=lambda: {"restarts": 1})

    def says(self, index: int, kind: str, body: Any = None, number: int = 0) -> None:
        assert self.hub.take(index, Message(kind, number, body))

    def hears(self, index: int) -> Message:
        return next(self._read[index])

    def hears_nothing(self, index: int) -> bool:
        self.ends[index].setblocking(False)
        try:
            self.ends[index].recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self.ends[index].setblocking(True)
        return False

    def close(self) -> None:
        for end in (*self.ends, *(link.end for link in self.links.values())):
            end.close()


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers()
    yield workers
    workers.close()


def test_the_first_answer_is_enough(workers: Workers) -> None:
    """All other workers are asked and the first answer counts; a late one is ignored."""
    workers.says(0, "find", ("result", "r1"), 5)
    questions = [workers.hears(1), workers.hears(2)]
    assert [(m.kind, m.body) for m in questions] == [("asked", ("result", "r1"))] * 2
    workers.says(1, "answer", None, questions[0].number)
    assert workers.hears_nothing(0)
    workers.says(2, "answer", b"here", questions[1].number)
    assert workers.hears(0) == Message("answered", 5, b"here")
    workers.says(1, "answer", b"late", questions[0].number)
    assert workers.hears_nothing(0)


def test_nobody_is_waited_for_who_is_gone(workers: Workers) -> None:
    """A worker that dies counts as having no answer, and so does one that is stuck."""
    workers.says(0, "find", ("result", "r1"), 6)
    number = workers.hears(1).number
    workers.hears(2)
    workers.says(1, "answer", None, number)
    workers.hub.leave(2)
    assert workers.hears(0) == Message("answered", 6, None)
    workers.says(0, "find", ("result", "r1"), 7)
    workers.hub.look(math.inf)
    assert workers.hears(0) == Message("answered", 7, None)


def test_what_a_worker_counted_stays_when_it_dies(workers: Workers) -> None:
    """The last gathered counts of a dead worker are kept, however many die."""
    for dead, expected in ((None, ([1, 2, 3], None)), (2, ([1, 2], 3)), (1, ([1], 5))):
        if dead is not None:
            workers.hub.leave(dead)
            workers.links.pop(dead).end.close()
        workers.says(0, "gather", ("figures", None), 8)
        for index in workers.links:
            question = workers.hears(index)
            workers.says(index, "answer", index + 1, question.number)
        figures = workers.hears(0).body
        assert figures == WorkerAnswers(*expected, {"restarts": 1})


def test_messages_reach_all_others(workers: Workers) -> None:
    workers.says(1, "tell", ("decided", "id"))
    assert [workers.hears(index).body for index in (0, 2)] == ["id", "id"]
    assert workers.hears_nothing(1)


def test_one_that_does_not_read_delays_nobody() -> None:
    """What a worker's socket does not take is sent when it reads again, whole and in order."""
    ours, theirs = socket.socketpair()
    link = WorkerLink(ours)
    large = [Message("asked", number, bytes(300_000)) for number in range(5)]
    for message in large:
        link.send(message)
    assert link.has_unsent
    unpacker, found = Unpacker(), []
    while len(found) < len(large):
        found += unpacker.feed(theirs.recv(65_536))
        link.flush()
    assert found == large
    assert not link.has_unsent
    for end in (ours, theirs):
        end.close()


def test_a_message_arrives_whatever_its_parts_are() -> None:
    text, unpacker = (
        pack_message(Message("one", 1, "ä")) + pack_message(Message("two", 2)),
        Unpacker(),
    )
    found = [message for byte in text for message in unpacker.feed(bytes([byte]))]
    assert found == [Message("one", 1, "ä"), Message("two", 2)]
