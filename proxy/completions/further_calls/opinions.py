"""Second opinions: other models get the same question, and a confidence considers their answers.

Each model is called at most once for a completion, however many choices that has. The answers are
not delivered, unless a rule escalates to the model that gave one; tools that they call are not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache

import structlog

from policies import Facts, SecondOpinion
from proxy.completions.further_calls.calls import Calls
from proxy.errors import UpstreamTimeoutError
from proxy.exchange.answer import Answer
from proxy.exchange.call import Call, tokens
from proxy.exchange.exchange import Exchange, SharedClock
from proxy.scoring.scores import Scores
from proxy.scoring.scoring import OtherAnswer

log = structlog.get_logger(__name__)


class Opinions:
    """The second opinions on one completion, if its policy wants them."""

    def __init__(self, config: SecondOpinion, calls: Calls, scores: Scores) -> None:
        self._config = config
        self._calls = calls
        self._scores = scores
        self._tasks: dict[asyncio.Task[None], Call] = {}
        self._deadline: float | None = None  # by the event loop's clock
        self._waiting = 0  # answers that wait for the opinions

    def begin(self) -> None:
        """Start the calls for second opinions together with the request, if the policy says so.

        Not if the policy wants none for such a request, or the calibrator does not read them.
        """
        self._calls.exchange.in_upstream = SharedClock()
        facts = self._calls.request.facts()
        is_wanted = self._config.start == "with" and self._config.may_be_wanted(facts)
        if is_wanted and self._can_read():
            self._ask()

    def end(self) -> None:
        """Cancel the calls that are not done, unless an answer still waits for them."""
        if not self._waiting:
            self._give_up()

    async def ask_about(self, answer: Answer, facts: Sequence[Facts]) -> None:
        """Wait for second opinions on an answer, for as long as the policy says; raises nothing.

        Starts their calls if the policy wants opinions on these `facts` of the choices only after
        the answer. Calls that are late are cancelled.
        """
        if not self._tasks:
            is_wanted = self._config.start == "after" and any(map(self._config.is_wanted, facts))
            if not is_wanted or not self._can_read():
                return
            self._ask()
        self._calls.chosen_call(answer)
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            self._deadline = loop.time() + self._config.within_s
        self._waiting += 1
        try:
            await asyncio.wait(self._tasks, timeout=max(0.0, self._deadline - loop.time()))
        finally:
            self._waiting -= 1
            self._give_up()

    def _can_read(self) -> bool:
        """Return whether the calibrator reads other answers; logs it, once, if it does not."""
        if self._scores.opinion:
            return True
        if self._scores.name is not None:
            _warn_unread(self._scores.name)
        return False

    def _ask(self) -> None:
        """Start a call, each in a task, of every model that is to give a second opinion."""
        models = {self._calls.request.model, *(c.model for c in self._calls.exchange.calls)}
        for model in self._config.models_for(models):
            call = self._calls.add_call(model, "second_opinion")
            self._tasks[asyncio.create_task(self._calls.ask_opinion(call))] = call

    def _give_up(self) -> None:
        """Cancel the calls that are not done, and note them as timeouts."""
        for task, call in self._tasks.items():
            if not task.done():
                self._calls.note_failure(call, UpstreamTimeoutError.code)
                task.cancel()


def others_of(exchange: Exchange, answer: Answer) -> list[OtherAnswer]:
    """Return other calls' answers to the same question; the answer itself is left out.

    Only the first choice of a call counts, because all choices are one model's opinion.
    """
    return [
        OtherAnswer(
            call.answer.choices[0].message,
            call.answer.model or call.model,
            tokens(call.answer.completion.get("usage")),
        )
        for call in exchange.calls
        if call.answer not in (None, answer)
        and not call.is_kept
        and call.purpose in ("answer", "second_opinion")
    ]


@lru_cache(maxsize=8)  # so that it is logged once for each calibrator
def _warn_unread(calibrator: str) -> None:
    """Log that no second opinions are requested, because this calibrator does not read them."""
    log.warning(
        "second_opinion_unread",
        calibrator=calibrator,
        hint="this calibrator does not read what others answered, so nobody is asked; take a "
        "checkpoint with a second stage, such as embedded",
    )
