"""The common part of vLLM and SGLang, which get token ids and report how many they have read.

The prompt is built here, token by token, from the checkpoint's own template and tokenizer, so that
the engine's chat template cannot change it. Both report how many tokens they have read: if that is
not the number that was sent, the prompt was truncated or assembled differently, and the scores are
for another text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Protocol

from calibrator import Item, Score, load_token_prompts
from proxy.config.settings.engines import TokenIds
from proxy.scoring.engines.errors import EngineError, check_probability, field_of
from proxy.scoring.engines.json_client import JsonClient

Json = dict[str, Any]
CANARY_TOLERANCE: Final = 0.05  # of a score; bf16 changes one by 0.02


class Dialect(Protocol):
    """The request and the answer of one engine."""

    path: str

    def request(self, prompts: list[list[int]], labels: tuple[int, int]) -> Json:
        """Return a request's body; `labels` are the token ids for correct and incorrect."""
        ...

    def probabilities(self, answer: Any, count: int) -> list[float]:
        """Return P(correct) for each prompt, in order; raises EngineError."""
        ...


class TokenIdEngine:
    """A server that is given token ids, for the scores of one checkpoint."""

    reads_images = False
    reads_tool_use = False

    def __init__(
        self, settings: TokenIds, dialect: Dialect, checkpoint: str, timeout_s: float
    ) -> None:
        """Load the checkpoint's prompts; raises CheckpointError, HubError or MissingExtraError."""
        self._prompts = load_token_prompts(
            checkpoint, settings.kind, omits_placeholder=settings.omit_placeholder
        )
        key = settings.api_key.get_secret_value()
        self._client = JsonClient(settings.base_url, key, timeout_s)
        self._dialect = dialect
        self._wanted = settings.model
        self._model = settings.model or ""
        self.address = f"{settings.kind} at {self._client.base_url}"

    async def connect(self) -> str:
        """Find the model and return the name of its scores; raises EngineError.

        Also checks that it has the checkpoint's weights, by sample scores, if the checkpoint has
        any.
        """
        listed = field_of(await self._client.get("/v1/models"), "data", list)
        served = [field_of(model, "id", str) for model in listed]
        if self._wanted is None and len(served) != 1:
            text = f"serves {len(served)} models; say which with engine.model"
            raise EngineError("engine_other", text)
        if self._wanted is not None and self._wanted not in served:
            raise EngineError("engine_other", f"does not serve {self._wanted}")
        self._model = self._wanted or served[0]
        await self._try_canaries()
        return self._prompts.name

    async def _try_canaries(self) -> None:
        """Score the checkpoint's examples; raises EngineError where a score is not the known one.

        Does nothing for a checkpoint without examples.
        """
        canaries = self._prompts.canaries
        found = await self.score([item for item, _ in canaries]) if canaries else []
        for (_, expected), score in zip(canaries, found, strict=True):
            if abs(score.score - expected) > CANARY_TOLERANCE:
                text = (
                    f"does not serve this checkpoint's weights: it gives {score.score:.3f} where "
                    f"the checkpoint says {expected:.3f}"
                )
                raise EngineError("engine_other", text)

    async def score(self, items: Sequence[Item]) -> list[Score]:
        """Return one score for each item, in order: the probability of the label for "correct".

        Raises EngineError if the engine has read another number of tokens than were sent.
        """
        prompts = self._prompts.read(items)
        incorrect, correct = self._prompts.label_ids
        ids = [prompt.ids for prompt in prompts]
        request = {"model": self._model, **self._dialect.request(ids, (correct, incorrect))}
        answer = await self._client.post(self._dialect.path, json.dumps(request).encode())
        sent = sum(map(len, ids))
        if (read := prompt_tokens(answer)) != sent:
            text = f"has read {read} tokens of {sent}: it cuts prompts, or changes them"
            raise EngineError("engine_answer", text)
        values = self._dialect.probabilities(answer, len(ids))
        return [
            self._prompts.score(prompt, check_probability(value))
            for prompt, value in zip(prompts, values, strict=True)
        ]

    async def aclose(self) -> None:
        await self._client.aclose()


def prompt_tokens(answer: Any) -> int:
    """Return how many tokens the engine has read for an answer."""
    return int(field_of(field_of(answer, "usage", dict), "prompt_tokens", int))
