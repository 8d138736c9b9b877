"""The log-probabilities of an answer's tokens, in any form in which an upstream gives them.

    {"content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": [{"token": .., "logprob": ..}]}]}
    {"tokens": ["Yes"], "token_logprobs": [-0.1], "top_logprobs": [{"Yes": -0.1, "No": -2.3}]}

The first form is that of chat completions and responses, the second that of completions. This
module does not request them. What cannot be read is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from proxy.formats.base.format import Choice

LOWEST: Final = -100.0  # of a token; servers write -9999 or less for impossible ones


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer, its natural log-probability, and those of its alternatives.

    `instead` includes the token itself.
    """

    text: str
    logprob: float
    instead: Mapping[str, float]


def tokens_of(choice: Choice) -> Iterator[Token]:
    """Yield the tokens of a choice's text, in order, that have a readable log-probability."""
    fields = choice.logprobs or {}
    if isinstance(entries := fields.get("content"), list):
        for each in entries:
            if isinstance(each, dict) and (logprob := _logprob(each.get("logprob"))) is not None:
                yield Token(
                    str(each.get("token", "")),
                    logprob,
                    _read_alternatives(each.get("top_logprobs")),
                )
        return
    names, logprobs, tops = (
        column if isinstance(column := fields.get(name), list) else []
        for name in ("tokens", "token_logprobs", "top_logprobs")
    )
    for at, (name, value) in enumerate(zip(names, logprobs, strict=False)):
        if (logprob := _logprob(value)) is not None:
            top = tops[at] if at < len(tops) else None
            pairs = top.items() if isinstance(top, dict) else ()
            yield Token(str(name), logprob, dict(_read(pairs)))


def summary(choice: Choice) -> tuple[float, float] | None:
    """Return (mean, lowest) of the natural log-probabilities of a choice's tokens, or None.

    None means that it has none.
    """
    logprobs = [token.logprob for token in tokens_of(choice)]
    return (math.fsum(logprobs) / len(logprobs), min(logprobs)) if logprobs else None


def _read_alternatives(top: Any) -> dict[str, float]:
    """Return log-probabilities by token, from a list such as `[{"token": "No", "logprob": -2.3}]`.

    What cannot be read is left out.
    """
    entries = top if isinstance(top, list) else ()
    pairs = [(e.get("token"), e.get("logprob")) for e in entries if isinstance(e, dict)]
    return dict(_read(pairs))


def _read(pairs: Any) -> Iterator[tuple[str, float]]:
    """Yield (name, log-probability) of those pairs in which both can be read."""
    for name, value in pairs:
        if isinstance(name, str) and (logprob := _logprob(value)) is not None:
            yield name, logprob


def _logprob(value: Any) -> float | None:
    """Return a log-probability between `LOWEST` and 0, or None for a value that is none.

    Values just above 0 come from rounding and count as 0.
    """
    if type(value) not in (int, float) or math.isnan(value) or value > 1e-3:
        return None
    return max(LOWEST, min(0.0, float(value)))
