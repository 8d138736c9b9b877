"""The demo's judge: it knows the labels of the canned answers, and is wrong about one in eight.

It reads the prompt that a policy's `judge` sends, and answers True or False and a probability, with
the log-probabilities of its first token if they are requested.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

from proxy.upstreams.demo.answers import DemoRow, Json, rows, text_message

JUDGE: Final = "demo-judge"
SURE: Final = 0.9  # the probability of its verdict


def judged_choice(text: str, *, has_logprobs: bool) -> Json:
    """Return the choice that judges the canned answer in a text.

    If the text has no canned answer, the message says so.
    """
    found = _longest_answer_in(text.rpartition("<answer")[2])
    if found is None:
        message = text_message("There is no canned answer in this text that I could judge.")
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    p = SURE if found.correct != _is_mistaken(found) else 1 - SURE
    word = str(p >= 0.5)
    told = [{"token": name, "logprob": math.log(q)} for name, q in (("True", p), ("False", 1 - p))]
    first = {**next(each for each in told if each["token"] == word), "top_logprobs": told}
    return {
        "index": 0,
        "message": text_message(f"{word} {round(100 * p)}"),
        "logprobs": {"content": [first], "refusal": None} if has_logprobs else None,
        "finish_reason": "stop",
    }


def _longest_answer_in(text: str) -> DemoRow | None:
    """Return the longest canned answer that the text contains, or None."""
    found = [row for row in rows() if row.content and row.content in text]
    return max(found, key=lambda row: len(row.content or ""), default=None)


def _is_mistaken(row: DemoRow) -> bool:
    return hashlib.sha256(row.id.encode()).digest()[0] % 8 == 0
