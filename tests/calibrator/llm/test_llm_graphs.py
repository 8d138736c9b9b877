"""Single rows by recorded passes. A CPU records nothing, so passes are run again here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from calibrator.llm.layers import graphs
from calibrator.llm.layers.replace import use_faster_layers
from calibrator.llm.serving.batches import ModelRow
from calibrator.llm.serving.model import LabelModel, gpu_budget
from tests.builders.tiny_models import EACH_FAMILY, Family, OfFamily
from tests.calibrator.llm.test_llm_model import (
    LABELS,
    PLACEHOLDER,
    kept,
    load,
    picture,
    prompt,
)

LENGTHS = (3, 90, 60, 63, 65, 1, 3)  # recordings of 64 and 128 tokens


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make models record as on a GPU; return how often each recording was played."""
    plays: list[int] = []

    def record(act: Callable[[], Tensor], _pool: Any) -> tuple[Tensor, Callable[[], None]]:
        state, at = act(), len(plays)
        plays.append(0)

        def play() -> None:
            plays[at] += 1
            state.copy_(act())

        return state, play

    monkeypatch.setattr(graphs, "record", record)
    monkeypatch.setattr(LabelModel, "_records", property(lambda self: True))
    return plays


def scorer_of(tiny_bases: OfFamily, family: Family) -> LabelModel:
    model = load(tiny_bases, family)
    use_faster_layers(model)
    scorer = LabelModel(model, LABELS)
    if scorer.image_id is not None:
        return kept(scorer)
    scorer.keep(prompt(model, []))
    return scorer


def rows_of(model: Any, lengths: Sequence[int] = LENGTHS) -> list[ModelRow]:
    return [prompt(model, list(range(40, 40 + each)), PLACEHOLDER) for each in lengths]


@pytest.mark.parametrize("family", EACH_FAMILY)
def test_played_rows_have_the_scores_of_others(
    tiny_bases: OfFamily, family: Family, recorded: list[int]
) -> None:
    """Played rows get the scores of a model without recordings, to 1e-5.

    Each length is recorded once, in multiples of 64 tokens.
    """
    scorer = scorer_of(tiny_bases, family)
    rows = rows_of(scorer.model)
    found = torch.cat([scorer.logits([row]) for row in rows])
    assert recorded == [5, 2]
    scorer._graphs = None
    expected = torch.cat([scorer.logits([row]) for row in rows])
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)


def test_what_cannot_be_played_is_computed(tiny_bases: OfFamily, recorded: list[int]) -> None:
    """Rows in a batch, with an image of their own or too long are not recorded."""
    scorer = scorer_of(tiny_bases, "qwen3_vl")
    model = scorer.model
    scorer.logits(rows_of(model, (9, 8)))
    scorer.logits([prompt(model, [40, 50], PLACEHOLDER, picture(1))])
    scorer.logits([prompt(model, [40, 50], picture(1))])
    scorer.logits([prompt(model, [40] * (graphs.MOST + 1), PLACEHOLDER)])
    assert recorded == []


def test_threads_do_not_play_each_others_rows(tiny_bases: OfFamily, recorded: list[int]) -> None:
    """Rows that several threads score take turns with a recording."""
    scorer = scorer_of(tiny_bases, "qwen3_vl")
    rows = rows_of(scorer.model)
    expected = torch.cat([scorer.logits([row]) for row in rows])
    with ThreadPoolExecutor(4) as pool:
        found = torch.cat(list(pool.map(lambda row: scorer.logits([row]), rows * 4)))
    assert torch.allclose(found, expected.repeat(4, 1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_what_cannot_be_recorded_is_computed(
    tiny_bases: OfFamily,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
) -> None:
    """If recording fails, rows are computed without it, with one warning."""

    def record(_act: Callable[[], Tensor], _pool: Any) -> Any:
        raise error("no")

    monkeypatch.setattr(graphs, "record", record)
    monkeypatch.setattr(LabelModel, "_records", True)
    scorer = scorer_of(tiny_bases, "qwen3_vl")
    rows = rows_of(scorer.model, (9, 90))
    with caplog.at_level(logging.WARNING):
        found = torch.cat([scorer.logits([row]) for row in rows])
    assert [record.message for record in caplog.records] == [
        "passes of single rows are not recorded: no"
    ]
    assert torch.allclose(found, scorer.logits(rows), rtol=0, atol=1e-5)


def test_recordings_are_dropped_before_the_gpu(
    tiny_bases: OfFamily, recorded: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """If memory is short, recordings are dropped before the model leaves the GPU."""
    scorer = scorer_of(tiny_bases, "qwen3_vl")
    [short] = rows_of(scorer.model, (9,))
    long = prompt(scorer.model, [40] * graphs.MOST, PLACEHOLDER)
    scorer.logits([short])

    def check(_module: Any, _args: Any, _kwargs: Any) -> None:
        if scorer._graphs is not None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    hook = scorer.model.model.register_forward_pre_hook(check, with_kwargs=True)
    with caplog.at_level(logging.WARNING), pytest.MonkeyPatch.context() as patch:
        patch.setattr(LabelModel, "is_on_cpu", False)
        found = scorer.logits([long])
    hook.remove()
    assert "single rows are not recorded any more" in caplog.text
    assert torch.equal(found, scorer.logits([long]))
    assert recorded == [1]


def test_a_pass_of_its_own_has_to_save_more_of_a_small_model() -> None:
    """A pass costs its launches on a GPU: 15e6 tokens of a model of 1e6 weights, 2,100 of 7e9."""
    layer: Any = torch.nn.Linear(1_000, 1_000, bias=False)
    model: Any = SimpleNamespace(model=SimpleNamespace(layers=torch.nn.ModuleList([layer])))
    assert gpu_budget(model).pass_tokens == pytest.approx(15_000_000, rel=0.01)
