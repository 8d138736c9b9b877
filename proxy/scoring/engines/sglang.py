"""SGLang's `/v1/score`: label probabilities of a causal model, from token ids.

As read in SGLang's source, its main branch of autumn 2026: `query` and `items` are concatenated,
and each item's scores are in the order of `label_token_ids`, normalised over these by
`apply_softmax`. `usage` was added in spring 2026; a server without it is refused, because what it
has read cannot be checked. So is one that scores several items in one sequence (`--enable-mis`, a
delimiter of items): there a delimiter takes the place of the label.

    python -m sglang.launch_server --model-path FOLDER      # of merged weights
"""

from __future__ import annotations

from typing import Any

from proxy.scoring.engines.errors import EngineError, field_of


class LabelScores:
    """The Dialect of SGLang."""

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
