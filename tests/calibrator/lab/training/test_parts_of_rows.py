"""Parts that rows can teach: others are left out, with the reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibrator.lab.data.calls.domains import DOMAINS
from calibrator.lab.data.calls.worlds import scenes
from calibrator.lab.training.run import TrainConfig
from calibrator.lab.training.train import MIN_LABELS, choose_parts

EVERY = ("forest", "abilities", "inspector", "calls", "opinion")


def texts(questions: int, *, models: int = 1, right: int = 2) -> Iterator[dict[str, Any]]:
    """Yield replies of models to each question; those to every `right`-th question are right."""
    for n in range(questions):
        for model in range(models):
            yield {
                "question": f"What do {n} and {n + 1} come to?",
                "response": f"They come to {2 * n + 1 + n % right}.",
                "model": f"model-{model}",
                "correct": int(n % right == 0),
            }


def calls(count: int) -> Iterator[dict[str, Any]]:
    for scene in scenes(count, 5, DOMAINS[:4]):
        yield {
            "question_id": scene.group,
            "messages": scene.used.messages,
            "tools": scene.used.tools,
            "response": scene.used.message,
            "correct": scene.correct,
        }


def chosen(path: Path, *rows: dict[str, Any], **options: Any) -> tuple[set[str], list[str], Any]:
    """Return the chosen parts, the messages and the rows for a training on these rows."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    parts: dict[str, Any] = {f"has_{part}": True for part in EVERY}
    sentences: list[str] = []
    config = replace(TrainConfig(data=(str(path),)), **parts)
    found, kept = choose_parts(config, options.get("optional", EVERY), sentences.append)
    return {part for part in EVERY if getattr(found, f"has_{part}")}, sentences, kept


def test_rows_of_every_kind_teach_every_part(tmp_path: Path) -> None:
    """Texts of two models and calls, right and wrong, teach every part."""
    parts, sentences, (rows, _, own) = chosen(
        tmp_path / "rows.jsonl", *texts(60, models=2), *calls(80)
    )
    assert (parts, sentences) == (set(EVERY), [])
    assert len(own) > MIN_LABELS
    assert not any(row.tool_use and row.tool_use.has_calls for row in rows)


@pytest.mark.parametrize(
    ("rows", "missing"),
    [
        ([*texts(60, models=2)], {"calls"}),
        ([*texts(60), *calls(80)], {"abilities", "opinion"}),
        ([*texts(60)], {"abilities", "calls", "opinion"}),
        ([*texts(60, models=2), *calls(10)], {"calls"}),
        ([*texts(60, models=2, right=100)], {"calls", "inspector", "opinion"}),
        ([*calls(80)], {"abilities", "calls", "inspector", "opinion"}),
    ],
    ids=["no calls", "one model", "plain", "few calls", "nearly all wrong", "calls alone"],
)
def test_what_the_rows_cannot_teach_is_left_out(
    rows: list[dict[str, Any]], missing: set[str], tmp_path: Path
) -> None:
    """A part that the rows cannot teach is left out, with its reason once."""
    parts, sentences, (_, _, apart) = chosen(tmp_path / "rows.jsonl", *rows)
    assert parts == set(EVERY) - missing
    assert {line.split("'")[1] for line in sentences} == missing
    labels = f"it needs {MIN_LABELS} right"
    needs = dict.fromkeys(EVERY, labels) | {"abilities": "it needs replies of two models"}
    assert all(needs[line.split("'")[1]] in line for line in sentences)
    assert "calls" in parts or apart == []


def test_a_requested_part_stays(tmp_path: Path) -> None:
    """A part that is requested stays, even if it cannot be taught."""
    parts, sentences, _ = chosen(tmp_path / "rows.jsonl", *texts(60), optional=("opinion",))
    assert parts == {"forest", "abilities", "inspector", "calls"}
    assert len(sentences) == 1
