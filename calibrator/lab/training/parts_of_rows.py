"""Choose the parts of a calibrator that its rows can teach."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from calibrator.lab.training.fits.opinion import chosen_rows
from calibrator.lab.training.run import Chosen, TrainConfig, read_selection, with_calls_apart
from calibrator.rows.rows import Row

MIN_LABELS = 20  # right rows, and as many wrong ones, that an optional part needs


def choose_parts(
    config: TrainConfig, optional: Collection[str], say: Callable[[str], None]
) -> tuple[TrainConfig, Chosen]:
    """Read the rows of a training, and leave out optional parts that too few rows can teach.

    `optional` are names of parts such as `calls`; only these are ever left out. Each is reported to
    `say` with the reason. Returns (the configuration with `has_<part>` False for those, the rows).
    The rows are (training, validation, rows that call tools); the last list is empty, and such rows
    are in the first, if no trees for calls are fitted. Raises TrainingError for unusable rows.
    """
    rows, held, _ = every = read_selection(replace(config, has_calls=False))
    texts, _, calls = apart = with_calls_apart(rows, held)
    missing = {
        "abilities": "" if len({row.model for row in texts if row.model}) > 1 else (
            "it needs replies of two models, with their names"
        ),
        "calls": "" if texts and _teach(calls) else f"{_too_few_note()} that call tools",
        "inspector": "" if sum(row.correct or 0 for row in texts) >= MIN_LABELS else (
            f"it needs {MIN_LABELS} right replies"
        ),
    }  # fmt: skip
    if config.has_opinion:
        compared = chosen_rows(texts, config.opinion, config.seed)
        missing["opinion"] = (
            "" if _teach(compared) else f"{_too_few_note()} that other models answered too"
        )
    for part, reason in missing.items():
        if part in optional and reason and getattr(config, f"has_{part}"):
            say(f"without the part {part!r}: {reason}")
            left_out: dict[str, Any] = {f"has_{part}": False}
            config = replace(config, **left_out)
    return config, apart if config.has_calls else every


def _teach(rows: Sequence[Row]) -> bool:
    """Return whether there are at least `MIN_LABELS` right rows and as many that are not right."""
    right = sum(row.correct or 0 for row in rows)
    return min(right, len(rows) - right) >= MIN_LABELS


def _too_few_note() -> str:
    return f"it needs {MIN_LABELS} right and {MIN_LABELS} wrong replies"
