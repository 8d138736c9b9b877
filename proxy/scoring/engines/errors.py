"""Errors of engines, and checks of their answers.

An engine's own messages are never repeated, because they may quote the text that was to be scored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from calibrator import UnavailableError

T = TypeVar("T")
_WORDS: dict[Any, str] = {
    str: "a text",
    list: "a list",
    dict: "an object",
    int: "a whole number",
    float: "a number",
    bool: "a truth value",
}
TIMEOUT, BUSY, DOWN = "engine_timeout", "engine_busy", "engine_down"


class EngineError(UnavailableError):
    """The engine gave no usable scores; the message completes a sentence begun by its address.

    `reason` is `engine_unreachable` (no connection), `engine_timeout`, `engine_broke_off`,
    `engine_refused` (4xx), `engine_failed` (5xx), `engine_busy` (429), `engine_answer` (something
    else than scores), `engine_other` (another calibrator or model), or `engine_down` (not called,
    because it failed several times).
    """


def field_of(value: Any, name: str, kind: type[T]) -> T:
    """Return the member `name` of an object in an engine's answer, of type `kind`.

    Raises EngineError where it is missing or of another type. For float, whole numbers count too,
    truth values do not.
    """
    field = value.get(name) if isinstance(value, Mapping) else None
    if kind is float and type(field) is int:
        field = float(field) if abs(field) < 2**53 else math.inf
    if type(field) is not kind:
        raise EngineError("engine_answer", f"answered without {_WORDS[kind]} in '{name}'")
    return field


def check_probability(probability: float) -> float:
    """Return the number unchanged; raises EngineError if it is not from 0 to 1, also for NaN."""
    if not 0 <= probability <= 1:
        raise EngineError("engine_answer", f"gave {probability} as a probability")
    return probability
