"""Linear layers in float8: other scores, near enough, under another name."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from calibrator.errors import CheckpointError
from calibrator.llm.layers.float8 import Float8Linear, rounded, use_float8
from calibrator.llm.layers.replace import text_model_of, use_faster_layers
from calibrator.llm.serving.batches import Budget
from calibrator.llm.serving.model import LabelModel
from calibrator.llm.serving.token_prompts import name_elsewhere
from calibrator.loading import load_scorer, version_of
from calibrator.recalibration.curves import Platt, Recalibration
from calibrator.scorer import Item
from tests.builders.tiny_models import EACH_FAMILY, Family, OfFamily, write_tiny_adapter
from tests.calibrator.llm.test_llm_model import (
    LABELS,
    PLACEHOLDER,
    TEXT,
    WHOLE,
    load,
    probabilities,
    prompt,
)

ITEM = Item("What is 2 + 3?", "the sum is 5")


def test_a_linear_layer_is_near_its_full_self() -> None:
    """Rounding to three bits of mantissa moves outputs by 4 % of their size at most, bias and
    shape included."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 128)
    states = torch.randn(3, 5, 64)
    with torch.inference_mode():
        exact, found = linear(states), Float8Linear(linear)(states)
    assert found.shape == exact.shape
    assert 0.01 < (found - exact).norm() / exact.norm() < 0.04


def test_the_long_way_is_what_a_scaled_product_computes() -> None:
    """Equal to torch's own product of float8 matrices, but for the rounding of its output."""
    torch.manual_seed(1)
    layer = Float8Linear(torch.nn.Linear(64, 128, bias=False))
    states = torch.randn(7, 64)
    values, scale = rounded(states)
    expected = torch._scaled_mm(
        values, layer.weight.T, scale_a=scale, scale_b=layer.scale, out_dtype=torch.bfloat16
    )
    assert torch.allclose(layer(states), expected.float(), rtol=2**-8, atol=1e-4)


def test_rows_of_zeros_stay_so() -> None:
    """No division by nothing."""
    values, scale = rounded(torch.zeros(2, 16))
    assert not values.float().any()
    assert (scale > 0).all()


@pytest.mark.parametrize("family", EACH_FAMILY)
def test_scores_are_near_and_neighbours_hardly_move_them(
    tiny_bases: OfFamily, family: Family
) -> None:
    """Within 0.05 of fp32; in any batch within 3e-3 in bf16, where other roundings decide about
    float8's, and 1e-5 in fp32."""
    model = load(tiny_bases, family)
    rng = random.Random(1)
    rows = [prompt(model, rng.choices(TEXT, k=rng.randint(3, 200)), PLACEHOLDER) for _ in range(16)]
    exact = probabilities(LabelModel(model, LABELS).logits(rows))
    for dtype, most in ((torch.float32, 1e-5), (torch.bfloat16, 3e-3)):
        changed = load(tiny_bases, family).to(dtype)
        use_faster_layers(changed)
        use_float8(text_model_of(changed))
        scorer = LabelModel(changed, LABELS, budget=Budget(1, 2**62))
        alone = probabilities(scorer.logits(rows))
        assert 1e-5 < (alone - exact).abs().max() < 0.05
        for scorer.budget in (Budget(600, 2**62), WHOLE):
            assert (probabilities(scorer.logits(rows)) - alone).abs().max() < most


def test_a_model_without_room_can_leave_the_gpu(tiny_bases: OfFamily) -> None:
    """Cast to fp32 with all others, its layers still hold the rounded weights."""
    model = load(tiny_bases, "qwen3_vl").to(torch.bfloat16)
    use_float8(text_model_of(model))
    rows = [prompt(model, [40, 50, 60], PLACEHOLDER)]
    before = probabilities(LabelModel(model, LABELS).logits(rows))
    model.to("cpu", torch.float32)
    assert (probabilities(LabelModel(model, LABELS).logits(rows)) - before).abs().max() < 0.02


@pytest.fixture(scope="module")
def checkpoint(tiny_bases: OfFamily, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base, folder = tiny_bases("qwen3_5_text"), tmp_path_factory.mktemp("float8") / "tiny"
    return write_tiny_adapter(folder, base, "qwen3_5_text", name="tiny", float8=True)


def test_a_checkpoint_says_that_it_is_scored_in_float8(
    checkpoint: Path, tiny_bases: OfFamily, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its layers are replaced, its name is another, and where that is slow a line says so."""
    full = write_tiny_adapter(
        tmp_path / "full", tiny_bases("qwen3_5_text"), "qwen3_5_text", name="tiny"
    )
    with caplog.at_level(logging.WARNING):
        scorer: Any = load_scorer(str(checkpoint), "cpu")
    layers = text_model_of(scorer.model.model).layers
    assert isinstance(layers[0].mlp.up_proj, Float8Linear)
    assert isinstance(layers[0].linear_attn.in_proj_a, torch.nn.Linear)
    assert "the long way" in caplog.text
    assert scorer.name == version_of(str(checkpoint))
    assert scorer.name == version_of(str(full)).replace("tiny@", "tiny-float8@")
    [found], [exact] = (
        each.score_batch([ITEM]) for each in (scorer, load_scorer(str(full), "cpu"))
    )
    assert 0 < abs(found.score - exact.score) < 0.05


def test_a_recalibration_is_its_own(checkpoint: Path, tmp_path: Path) -> None:
    """One that was fitted on the scores without float8 is refused, one for these is applied."""
    name = version_of(str(checkpoint))
    for calibrator in (name.replace("-float8", ""), name):
        file = tmp_path / "recalibration.json"
        Recalibration("platt", Platt(2.0, 0.5), calibrator=calibrator, labels=100).save(file)
        if calibrator == name:
            load_scorer(str(checkpoint), "cpu", recalibration=file)
        else:
            with pytest.raises(CheckpointError, match="tiny-float8@"):
                load_scorer(str(checkpoint), "cpu", recalibration=file)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"float8": 1}, "float8 must be true or false"),
        ({"recalibration": Platt(1.5, 0.1).as_dict()}, "float8 gives other scores"),
    ],
)
def test_what_does_not_go_with_float8_is_refused(
    tiny_bases: OfFamily, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    """A word that is no truth value, and a recalibration of the full weights."""
    values = {"float8": True, **changes}
    folder = write_tiny_adapter(
        tmp_path / "tiny", tiny_bases("qwen3_5_text"), "qwen3_5_text", **values
    )
    with pytest.raises(CheckpointError, match=said):
        version_of(str(folder))


def test_other_engines_are_not_asked_for_float8(checkpoint: Path) -> None:
    """They decide for themselves what they compute in."""
    with pytest.raises(CheckpointError, match="in this process alone"):
        name_elsewhere(str(checkpoint), "vllm")
