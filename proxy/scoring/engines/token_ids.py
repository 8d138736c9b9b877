"""The engines vLLM and SGLang, which get token ids and report how many they have read.

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


class GenerativeScoring:
    """The Dialect of vLLM: `/generative_scoring`, label probabilities of a generative model.

        vllm serve FOLDER --served-model-name NAME      # of merged weights

    As read in vLLM's source, its main branch of autumn 2026 (the endpoint is there since 0.18, by
    pull request 34539): `query` and `items` are concatenated, the softmax is over `label_token_ids`
    alone, and the score is that of the first label. Prompts beyond `max_model_len` are truncated
    silently, which the token count reveals.
    """

    path = "/generative_scoring"

    def request(self, prompts: list[list[int]], labels: tuple[int, int]) -> dict[str, Any]:
        """Return the body of a request for the probabilities of two label tokens after each prompt.

        Prompts and labels are token ids.
        """
        return {
            "query": [],
            "items": prompts,
            "label_token_ids": list(labels),
            "apply_softmax": True,
            "add_special_tokens": False,
        }

    def probabilities(self, answer: Any, count: int) -> list[float]:
        """Return P(correct) for each item, placed by the index that each score has.

        Raises EngineError where an index is missing or repeated.
        """
        data = field_of(answer, "data", list)
        found = {field_of(each, "index", int): field_of(each, "score", float) for each in data}
        if len(data) != count or found.keys() != set(range(count)):
            raise EngineError("engine_answer", f"gave {len(data)} scores for {count} items")
        return [found[at] for at in range(count)]


class LabelScores:
    """The Dialect of SGLang: `/v1/score`, label probabilities of a causal model.

        python -m sglang.launch_server --model-path FOLDER      # of merged weights

    As read in SGLang's source, its main branch of autumn 2026: `query` and `items` are
    concatenated, and each item's scores are in the order of `label_token_ids`, normalised over
    these by `apply_softmax`. `usage` was added in spring 2026; a server without it is refused,
    because what it has read cannot be checked. So is one that scores several items in one sequence
    (`--enable-mis`, a delimiter of items): there a delimiter takes the place of the label.
    """

    path = "/v1/score"

    def request(self, prompts: list[list[int]], labels: tuple[int, int]) -> dict[str, Any]:
        """Return the body of a request for the probabilities of two label tokens after each prompt.

        Prompts and labels are token ids.
        """
        return {
            "query": [],
            "items": prompts,
            "label_token_ids": list(labels),
            "apply_softmax": True,
            "item_first": False,
        }

    def probabilities(self, answer: Any, count: int) -> list[float]:
        """Return P(correct) for each item; raises EngineError where a pair does not add up to 1."""
        rows = field_of(answer, "scores", list)
        if len(rows) != count:
            raise EngineError("engine_answer", f"gave {len(rows)} scores for {count} items")
        return [_correct(row) for row in rows]


def _correct(row: Any) -> float:
    """Return the first probability of a pair; raises EngineError if two do not sum to 1."""
    is_pair = isinstance(row, list) and len(row) == 2
    if not is_pair or not all(isinstance(value, int | float) for value in row):
        raise EngineError("engine_answer", "gave a row of scores that is not one for each label")
    if not abs(row[0] + row[1] - 1) < 1e-3:  # also true for NaN
        raise EngineError(
            "engine_answer", "gave probabilities of two labels that are not 1 together"
        )
    return float(row[0])


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
        models = field_of(await self._client.get("/v1/models"), "data", list)
        names = [field_of(model, "id", str) for model in models]
        if self._wanted is None and len(names) != 1:
            text = f"serves {len(names)} models; say which with engine.model"
            raise EngineError("engine_other", text)
        if self._wanted is not None and self._wanted not in names:
            raise EngineError("engine_other", f"does not serve {self._wanted}")
        self._model = self._wanted or names[0]
        await self._try_canaries()
        return self._prompts.name

    async def _try_canaries(self) -> None:
        """Score the checkpoint's examples; raises EngineError where a score is not the known one.

        Does nothing for a checkpoint without examples.
        """
        canaries = self._prompts.canaries
        scores = await self.score([item for item, _ in canaries]) if canaries else []
        for (_, expected), score in zip(canaries, scores, strict=True):
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
    """Return how many tokens the engine has read; raises EngineError if it does not say."""
    return int(field_of(field_of(answer, "usage", dict), "prompt_tokens", int))
