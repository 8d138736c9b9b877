"""SGLang's `/v1/score`: label probabilities of a causal model, asked with token ids.

Read in SGLang's source, its main branch of autumn 2026: `query` and `items` are put together, and
each item's scores are in the order of `label_token_ids`, normalised over these by `apply_softmax`.
`usage` came in spring 2026; without it nobody can see what was read, and such a server is refused.
So is one that scores several items in one sequence (`--enable-mis`, a delimiter of items): there a
delimiter stands where the label is expected.

    python -m sglang.launch_server --model-path FOLDER      # of merged weights
"""

from __future__ import annotations

from typing import Any

from proxy.scoring.engines.errors import EngineError, field_of


class LabelScores:
    """A Dialect."""

    path = "/v1/score"

    def request(self, prompts: list[list[int]], labels: tuple[int, int]) -> dict[str, Any]:
        return {
            "query": [],
            "items": prompts,
            "label_token_ids": list(labels),
            "apply_softmax": True,
            "item_first": False,
        }

    def probabilities(self, answer: Any, count: int) -> list[float]:
        """Those of both labels add up to 1, or they are something else."""
        rows = field_of(answer, "scores", list)
        if len(rows) != count:
            raise EngineError("engine_answer", f"gave {len(rows)} scores for {count} items")
        return [_correct(row) for row in rows]


def _correct(row: Any) -> float:
    is_pair = isinstance(row, list) and len(row) == 2
    if not is_pair or not all(isinstance(value, int | float) for value in row):
        raise EngineError("engine_answer", "gave a row of scores that is not one for each label")
    if not abs(row[0] + row[1] - 1) < 1e-3:  # nor is NaN
        raise EngineError(
            "engine_answer", "gave probabilities of two labels that are not 1 together"
        )
    return float(row[0])
