"""The canary: a plain question and answer, scored to see whether a calibrator works."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from proxy.errors import StartupError

if TYPE_CHECKING:
    from calibrator import Recalibrations, Scorer

CANARY: Final = ("What is the capital of France?", "The capital of France is Paris.")
SAME: Final = 0.01  # the largest difference of two scores of one text, in half precision


class CanaryResult(NamedTuple):
    """The result of a canary; `name` is that of its numbers, `memory` is in bytes."""

    level: Literal["ok", "fail"]
    text: str
    name: str | None = None
    memory: int | None = None


def try_calibrator(
    load: Callable[[], Scorer], place: str, its: Recalibrations | None
) -> CanaryResult:
    """Load a calibrator, score the canary twice, close the calibrator, and return the result.

    `place` names it in a failure, `its` are its recalibrations. Errors are returned as a failure.
    """
    from calibrator import CalibratorError
    from proxy.commands.checkup.machine import resident_memory
    from proxy.scoring.scores import name_with

    gc.collect()  # memory freed meanwhile would distort the calibrator's own
    began, before = time.perf_counter(), resident_memory()
    try:
        scorer = load()
        loaded_s = time.perf_counter() - began
        try:
            is_well, text = _score_twice(scorer)
            memory = max(0, resident_memory() - before)  # measured before the scorer is closed
        finally:
            if (close := getattr(scorer, "close", None)) is not None:
                close()
    except (CalibratorError, StartupError, OSError) as error:
        return CanaryResult("fail", f"{place}: {error}")
    name = name_with(scorer.name, its)
    told = f"{name}: {text}, loaded in {loaded_s:.1f} s"
    if kernel := getattr(scorer, "kernel", None):  # of the embedded one; it may not be built here
        told += f", kernel: {kernel}"
    return CanaryResult("ok" if is_well else "fail", told, name, memory)


def _score_twice(scorer: Scorer) -> tuple[bool, str]:
    """Return whether the canary gets the same probability (to 0.01) twice, and a sentence."""
    from calibrator import Item

    scorer.score_batch([Item(*CANARY)])  # a warm-up, for the first one takes longest
    began = time.perf_counter()
    [first] = scorer.score_batch([Item(*CANARY)])
    passed_ms = (time.perf_counter() - began) * 1_000
    [second] = scorer.score_batch([Item(*CANARY)])
    one, other = first.confidence, second.confidence
    if not (math.isfinite(one) and 0 <= one <= 1):
        return False, f"a canary got {one}, which is no probability"
    if not abs(one - other) <= SAME:
        return False, f"a canary got {one:.4f}, and then {other:.4f}"
    return True, f"the canary got {one:.4f} in {passed_ms:.0f} ms"
