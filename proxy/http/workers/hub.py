"""Passes on the questions and messages of workers: the supervisor's part of `peers.py`.

A question goes to all workers that are up, and its answer back to the asker: the first answer
(`find`), or all of them (`gather`). The last gathered answer of each worker is kept, so that its
counts are still included after it has died.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.http.workers.channel import Message, WorkerLink
from proxy.http.workers.peers import ANSWER_S

_LEFT_S: Final = 0.8 * ANSWER_S  # then the answers that have arrived are sent


@dataclass(frozen=True, slots=True)
class WorkerAnswers:
    """The answers of living workers, the sum of those that died, and the supervisor's facts."""

    of_living: list[Any]
    of_dead: Any
    facts: Mapping[str, Any]


@dataclass(slots=True)
class _Question:
    asker: int
    number: int  # the asker's number for it
    awaited: set[int]
    is_first_enough: bool
    until: float
    answers: list[Any] = field(default_factory=list)


class Hub:
    """The hub of the workers that are up, whose links are in `links` by their index.

    `add` combines two or more gathered answers into one. `facts` are sent with every gathering.
    """

    def __init__(
        self,
        links: Mapping[int, WorkerLink],
        add: Callable[[Iterable[Any]], Any],
        facts: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._links = links
        self._add = add
        self._facts = facts
        self._numbers = itertools.count(1)
        self._questions: dict[int, _Question] = {}
        self._last: dict[int, Any] = {}  # the last gathered answer of each worker
        self._dead_counts: Any = None

    def take(self, sender: int, message: Message) -> bool:
        """Handle a worker's message; return whether it was one for the hub."""
        kind, number, body = message
        match kind:
            case "tell":
                topic, content = body
                for index, link in self._links.items():
                    if index != sender:
                        link.send(Message(topic, 0, content))
            case "find":
                self._ask(sender, number, body, set(self._links) - {sender}, is_first_enough=True)
            case "gather":
                self._ask(sender, number, body, set(self._links), is_first_enough=False)
            case "answer":
                self._note_answer(sender, number, body)
            case _:
                return False
        return True

    def leave(self, index: int) -> None:
        """Forget a worker that has died: stop waiting for its answers, and keep its last counts."""
        last = self._last.pop(index, None)
        if last is not None:
            self._dead_counts = self._add(
                [last] if self._dead_counts is None else [self._dead_counts, last]
            )
        for number, question in [*self._questions.items()]:
            question.awaited.discard(index)
            self._settle(number, question)

    def look(self, now: float) -> None:
        """End the questions whose time is up, with the answers so far.

        `now` is time.monotonic().
        """
        for number, question in [*self._questions.items()]:
            if now > question.until:
                question.awaited.clear()
                self._settle(number, question)

    def _ask(
        self, asker: int, number: int, content: object, awaited: set[int], *, is_first_enough: bool
    ) -> None:
        """Send a worker's question to those in `awaited`; answer it when enough have answered.

        `number` is the asker's number for it. One answer is enough for `is_first_enough`; otherwise
        all are awaited, for 1.6 s at most.
        """
        own_number, until = next(self._numbers), time.monotonic() + _LEFT_S
        question = _Question(asker, number, set(awaited), is_first_enough, until)
        self._questions[own_number] = question
        for index in awaited:
            self._links[index].send(Message("asked", own_number, content))
        self._settle(own_number, question)

    def _note_answer(self, sender: int, number: int, answer: Any) -> None:
        """Count a worker's answer to a question; None, or one not awaited, does not count."""
        question = self._questions.get(number)
        if question is None or sender not in question.awaited:
            return
        question.awaited.discard(sender)
        if answer is not None:
            question.answers.append(answer)
            if not question.is_first_enough:
                self._last[sender] = answer
        self._settle(number, question)

    def _settle(self, number: int, question: _Question) -> None:
        """Send the asker its answer and forget the question, unless more answers are awaited.

        The answer is the first one, or None without any, or for a gathering a WorkerAnswers.
        """
        is_enough = question.is_first_enough and question.answers
        if question.awaited and not is_enough:
            return
        del self._questions[number]
        link = self._links.get(question.asker)
        if link is None:
            return
        answer: Any = question.answers[0] if question.answers else None
        if not question.is_first_enough:
            answer = WorkerAnswers(question.answers, self._dead_counts, self._facts())
        link.send(Message("answered", question.number, answer))
