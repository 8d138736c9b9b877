"""vLLM's `/generative_scoring`: label probabilities of any generative model, from token ids.

As read in vLLM's source, its main branch of autumn 2026 (the endpoint is there since 0.18, by pull
request 34539): `query` and `items` are concatenated, the softmax is over `label_token_ids` alone,
and the score is that of the first label. Prompts beyond `max_model_len` are truncated silently,
which the token count reveals.

    vllm serve FOLDER --served-model-name NAME      # of merged weights
"""

from __future__ import annotations

from typing import Any

from proxy.scoring.engines.errors import EngineError, field_of


class GenerativeScoring:
    """The Dialect of vLLM."""

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
