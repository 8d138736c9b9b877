"""Traffic as applications make it: requests that belong together, with scores that are alike.

    for ask in chats(rng, 300): ...      # ScoredRequest(payload, score), in the order of time

Every conversation has a worth of its own, drawn from one distribution for ever: the traffic is
stationary, however its requests are mixed. With `worth=harder` it is not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
Worth = Callable[[random.Random], float]


@dataclass(frozen=True)
class ScoredRequest:
    """One request, and the calibrator's score of its reply."""

    payload: dict[str, Any]
    score: float


def usual(rng: random.Random) -> float:
    """Draw how good the answers of a conversation are."""
    return rng.betavariate(4, 2)


def harder(rng: random.Random) -> float:
    """Draw it for questions that are answered worse."""
    return rng.betavariate(3, 3)


def singles(rng: random.Random, count: int, worth: Worth = usual) -> Iterator[ScoredRequest]:
    """Yield questions that have nothing to do with each other."""
    for _ in range(count):
        yield ScoredRequest(_asking(_user(rng)), worth(rng))


def chats(rng: random.Random, count: int, worth: Worth = usual) -> Iterator[ScoredRequest]:
    """Yield the requests of eight chats at a time, of four turns each.

    Later turns get lower scores. The system message contains the time.
    """
    open_chats: list[tuple[list[Message], float]] = []
    for second in range(count):
        while len(open_chats) < 8:
            open_chats.append(([], worth(rng)))
        messages, own_worth = open_chats.pop(rng.randrange(8))
        messages.append(_user(rng))
        score = _near(rng, own_worth - 0.05 * (len(messages) // 2))
        yield ScoredRequest(_asking(_system(second), *messages), score)
        messages.append({"role": "assistant", "content": f"reply {rng.random()}"})
        if len(messages) < 8:
            open_chats.append((messages, own_worth))


def retries(rng: random.Random, count: int, worth: Worth = usual) -> Iterator[ScoredRequest]:
    """Yield each question one to six times in a row, with the same score."""
    while True:
        request = ScoredRequest(_asking(_user(rng)), worth(rng))
        for _ in range(rng.randint(1, 6)):
            if count == 0:
                return
            yield request
            count -= 1


def agents(rng: random.Random, count: int, worth: Worth = usual) -> Iterator[ScoredRequest]:
    """Yield the requests of tasks in up to twenty steps, each with the results of tools so far."""
    while count > 0:
        messages, own_worth = [_system(count), _user(rng)], worth(rng)
        for _ in range(min(count, rng.randint(2, 20))):
            yield ScoredRequest(_asking(*messages), _near(rng, own_worth))
            messages = [*messages, {"role": "assistant", "content": None, "tool_calls": [{}]}]
            messages = [*messages, {"role": "tool", "content": f"result {rng.random()}"}]
            count -= 1


def load_tests(rng: random.Random, count: int, worth: Worth = usual) -> Iterator[ScoredRequest]:
    """Yield usual traffic, and at times 200 requests in a row that repeat the same 20 questions."""
    tested = [*singles(rng, 20, worth)]
    for at in range(count):
        in_test = at % 400 >= 200
        yield rng.choice(tested) if in_test else next(singles(rng, 1, worth))


def examples(rng: random.Random, count: int, worth: Worth = usual) -> Iterator[ScoredRequest]:
    """Yield the requests of an application that puts two fixed examples before every question."""
    shots = [_prompt("What is 1 + 1?"), _answer("2"), _prompt("What is 2 + 2?"), _answer("4")]
    for _ in range(count):
        yield ScoredRequest(_asking(*shots, _user(rng)), worth(rng))


def documents(rng: random.Random, count: int, worth: Worth = usual) -> Iterator[ScoredRequest]:
    """Yield the requests of an application whose instruction is always the same.

    The text to work on is in the system message.
    """
    words = ("river", "invoice", "planet", "protein", "treaty", "engine", "violin", "harbour")
    for _ in range(count):
        text = " ".join(rng.choices(words, k=12))
        yield ScoredRequest(
            _asking({"role": "system", "content": text}, _prompt("Sum this up.")), worth(rng)
        )


def _near(rng: random.Random, worth: float) -> float:
    return min(max(worth + rng.gauss(0, 0.02), 0.0), 1.0)


def _asking(*messages: Message) -> dict[str, Any]:
    return {"model": "m", "messages": [*messages]}


def _user(rng: random.Random) -> Message:
    return _prompt(f"question {rng.getrandbits(60):x}")


def _prompt(text: str) -> Message:
    return {"role": "user", "content": text}


def _answer(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _system(second: int) -> Message:
    return {"role": "system", "content": f"You help. It is 10:{second // 60 % 60}:{second % 60}."}
