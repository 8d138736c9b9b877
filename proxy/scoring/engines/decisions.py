"""The engine `decisions`: a decision model behind litellm judges whether an answer is correct.

Decision models answer typed questions about a state with probabilities (`/v1/systemone`, OpenAI's
`/v1/decisions`; litellm knows which one a model has). Here the question is a yes-or-no one, a
`noul`, and the state consists of question and answer: the paper's baseline without training
(checklist I14), truncated as for a calibrator (F10). Written for litellm 1.106.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from calibrator import CalibratorError, Item, NotScorableError, Score
from proxy.config.settings.engines import Decisions
from proxy.scoring.engines.errors import BUSY, TIMEOUT, EngineError, check_probability
from proxy.upstreams.translation.clients import shared_clients
from proxy.upstreams.translation.litellm_upstream import load_litellm

QUESTION_CHARACTERS, ANSWER_CHARACTERS = 1_500, 800  # F02, F03
CORRECT = "correct"
QUESTIONS = {CORRECT: {"type": "noul", "instructions": "Is the answer to the question correct?"}}
_OF_ONE_ITEM = (400, 413, 422)


class DecisionsEngine:
    """A decision model; its creation loads litellm, which takes seconds."""

    reads_images = False
    reads_tool_use = False

    def __init__(self, settings: Decisions, timeout_s: float) -> None:
        self.address = f"decision model {settings.model}"
        self._litellm = load_litellm()
        self._room = asyncio.Semaphore(settings.concurrency)
        self._arguments: dict[str, Any] = {
            "model": settings.model,
            "questions": QUESTIONS,
            "api_base": settings.base_url,
            "api_key": settings.api_key.get_secret_value() or None,
            "timeout": timeout_s,
            "max_retries": 0,
            "num_retries": 0,
        }
        self._name = f"{settings.model}~{settings.kind}"

    async def connect(self) -> str:
        """Check the model's provider, without contacting it, and return the name of the scores.

        The engine begins to use the shared HTTP clients. Raises EngineError where litellm finds no
        provider in the model's name, or knows no API for decisions of it.
        """
        shared_clients().join(self)
        litellm, model = self._litellm, self._arguments["model"]
        try:
            name, provider, _, _ = litellm.get_llm_provider(model)
        except litellm.BadRequestError as error:
            text = "has a name by which litellm knows no provider; say which, as in typesafe/jev"
            raise EngineError("engine_refused", text) from error
        providers = litellm.utils.ProviderConfigManager
        if providers.get_provider_decisions_config(name, litellm.LlmProviders(provider)) is None:
            text = f"is served by {provider}, which has no API for decisions that litellm knows"
            raise EngineError("engine_refused", text)
        return self._name

    async def score(self, items: Sequence[Item]) -> list[Score]:
        """Return one score for each item, in order, with concurrent requests.

        Raises NotScorableError for an item with images, EngineError, and CalibratorError for an
        item that is refused.
        """
        if any(item.images for item in items):
            raise NotScorableError("image", "a decision model is asked about text only")
        tasks = [asyncio.ensure_future(self._ask(item)) for item in items]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # stop the others after a failure or a timeout
                task.cancel()

    async def _ask(self, item: Item) -> Score:
        """Ask the model whether the answer to an item's question is correct; both texts are cut.

        Raises EngineError, and CalibratorError for an item that is refused or not answered.
        """
        question, answer = item.question[:QUESTION_CHARACTERS], item.answer[:ANSWER_CHARACTERS]
        async with self._room:
            try:
                response = await self._litellm.asystemone(
                    state={"question": question, "answer": answer}, **self._arguments
                )
            except Exception as error:  # litellm raises errors of many kinds
                raise self._error(error) from error
        if (verdict := response.answers.get(CORRECT)) is None:
            raise CalibratorError(f"{self.address} gives no answer to this one")
        value = check_probability(verdict.noul)
        return Score(value, value, (question, answer) != (item.question, item.answer))

    def _error(self, error: Exception) -> CalibratorError:
        """Return an error of ours for one of litellm, without its text, which may quote the reply.

        A CalibratorError for a refused item (400, 413, 422), else an EngineError with a reason.
        """
        litellm, status = self._litellm, getattr(error, "status_code", None)
        if isinstance(error, litellm.Timeout):
            return EngineError(TIMEOUT, "did not answer in time")
        if isinstance(error, litellm.RateLimitError):
            return EngineError(BUSY, "has no room for more now (429)")
        if isinstance(error, litellm.APIConnectionError):
            return EngineError("engine_unreachable", "cannot be reached, or broke off its answer")
        if status in _OF_ONE_ITEM:
            return CalibratorError(f"{self.address} refuses this one ({status})")
        reason = "engine_refused" if isinstance(status, int) and status < 500 else "engine_failed"
        return EngineError(reason, f"failed with {type(error).__name__} ({status})")

    async def aclose(self) -> None:
        await shared_clients().leave(self)
