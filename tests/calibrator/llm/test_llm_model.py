"""The forward pass of language-model calibrators: fast, and equal to the plain one (B08, B09)."""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from calibrator.llm.layers.replace import LinearPatches, use_faster_layers, use_linear_patches
from calibrator.llm.serving.batches import Budget, ModelRow
from calibrator.llm.serving.loading import load_base
from calibrator.llm.serving.model import LabelModel, positions_of
from calibrator.llm.serving.pixels import Pixels
from tests.builders.tiny_models import EACH_FAMILY, Family, OfFamily

LABELS = (20, 30)
TEXT = range(40, 300)  # ids that are text in the tiny vocabularies
WHOLE = Budget(tokens=100_000, pass_tokens=1)  # one batch, everything shared


def load(tiny_bases: OfFamily, family: Family) -> Any:
    architecture = "causal-lm" if family == "qwen3_5_text" else "image-text-to-text"
    return load_base(tiny_bases(family), architecture)


@pytest.fixture(scope="module", params=EACH_FAMILY)
def model(request: pytest.FixtureRequest, tiny_bases: OfFamily) -> Any:
    """Return a tiny base of each family, in fp32; tests do not change it."""
    return load(tiny_bases, request.param)


@pytest.fixture(scope="module")
def faster(model: Any) -> Any:
    """Return the same base with the layers that scoring replaces."""
    changed = copy.deepcopy(model)
    use_faster_layers(changed)
    return changed


def picture(seed: int, height: int = 4, width: int = 4) -> Pixels:
    patches = np.random.default_rng(seed).normal(size=(height * width, 3 * 2 * 16 * 16))
    return Pixels(patches.astype(np.float32), (1, height, width), height * width // 4)


PLACEHOLDER = picture(0)


def prompt(model: Any, text: list[int], *images: Pixels) -> ModelRow:
    """Return a row of images, if the model has vision, and then text."""
    image_id = getattr(model.config, "image_token_id", None)
    if image_id is None:
        return ModelRow([35, 36, *text])
    ids = [35]
    for image in images:
        ids += [36, *[image_id] * image.tokens, 37]
    return ModelRow(ids + text, images)


def rows_of(model: Any) -> list[ModelRow]:
    """Return rows of mixed lengths, choices of one question, with own images and with two."""
    rng = random.Random(0)

    def text(length: int) -> list[int]:
        return rng.choices(TEXT, k=length)

    rows = [prompt(model, text(length), PLACEHOLDER) for length in (3, 90, 17, 130, 64)]
    question = text(70)
    rows += [prompt(model, question + text(length), PLACEHOLDER) for length in (5, 1, 40)]
    own = picture(1, 4, 8)
    rows += [prompt(model, text(25), own), prompt(model, text(8), own, picture(2, 6, 4))]
    return rows


def plainly(model: Any, row: ModelRow) -> Tensor:
    """Return label logits by a plain pass: one row, all positions, the whole vocabulary."""
    ids = torch.tensor([row.ids])
    inputs: dict[str, Tensor] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if row.images:
        inputs |= {
            "pixel_values": torch.cat([torch.from_numpy(each.patches) for each in row.images]),
            "image_grid_thw": torch.tensor([each.grid for each in row.images]),
            "mm_token_type_ids": (ids == model.config.image_token_id).long(),
        }
    with torch.inference_mode():
        logits: Tensor = model(**inputs).logits[0, -1, list(LABELS)]
    return logits.float()


def probabilities(logits: Tensor) -> Tensor:
    return (logits[:, 1] - logits[:, 0]).sigmoid()


@pytest.fixture(scope="module")
def expected(model: Any) -> Tensor:
    return torch.stack([plainly(model, row) for row in rows_of(model)])


def keep_beginning(scorer: LabelModel) -> LabelModel:
    """Keep the states of a prompt's beginning if it contains an image; return the scorer."""
    if scorer.image_id is not None:
        row = rows_of(scorer.model)[0]
        scorer.keep(row.cut(row.spans(scorer.image_id)[-1][1], scorer.image_id))
    return scorer


@pytest.mark.parametrize("padding", ["left", "right"])
def test_one_mixed_batch_equals_the_plain_pass(model: Any, expected: Tensor, padding: Any) -> None:
    """Padding on either side changes no logit by more than 1e-5 (B09)."""
    scorer = LabelModel(model, LABELS, padding=padding)
    with torch.inference_mode():
        found = scorer.hidden_states(rows_of(model)) @ scorer.label_rows().T
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "budget",
    [
        pytest.param(Budget(1, 2**62), id="alone"),
        pytest.param(Budget(300, 2**62), id="batches"),
        pytest.param(WHOLE, id="shared"),
        pytest.param(Budget(60, 30), id="both"),
    ],
)
@pytest.mark.parametrize("is_kept", [False, True])
def test_batches_and_shared_beginnings_equal_the_plain_pass(
    model: Any, faster: Any, expected: Tensor, budget: Budget, is_kept: bool
) -> None:
    """Any grouping and any kept beginning give each row's own logits (W07)."""
    for layers in (model, faster):
        scorer = LabelModel(layers, LABELS, budget=budget)
        found = (keep_beginning(scorer) if is_kept else scorer).logits(rows_of(model))
        assert torch.allclose(found, expected, rtol=0, atol=1e-5)


def test_replaced_layers_can_be_padded_on_the_left(faster: Any, expected: Tensor) -> None:
    """Replaced layers work with padding on the left."""
    found = LabelModel(faster, LABELS, padding="left").logits(rows_of(faster))
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)


def test_nothing_is_carried_from_one_call_to_the_next(faster: Any, expected: Tensor) -> None:
    """A score does not depend on earlier calls."""
    scorer = keep_beginning(LabelModel(faster, LABELS, budget=WHOLE))
    rows = rows_of(faster)
    for order in ([9, 0], [0], [8, 5, 6, 7], [1], [5, 6, 7]):
        found = scorer.logits([rows[place] for place in order])
        assert torch.allclose(found, expected[order], rtol=0, atol=1e-5)


@contextmanager
def counted_images(model: Any) -> Iterator[list[int]]:
    """Yield the number of images in each call of the vision tower."""
    seen: list[int] = []
    hook = model.model.visual.register_forward_pre_hook(
        lambda _module, args, kwargs: seen.append(len(kwargs["grid_thw"])), with_kwargs=True
    )
    try:
        yield seen
    finally:
        hook.remove()


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_vl"])
def test_an_image_is_encoded_once(tiny_bases: OfFamily, family: Family) -> None:
    """The placeholder is encoded once for eight rows, and not at all once it is kept (W07)."""
    model = load(tiny_bases, family)
    scorer = LabelModel(model, LABELS, budget=WHOLE)
    rows = [prompt(model, [40 + at, 50], PLACEHOLDER) for at in range(8)]
    with counted_images(model) as seen, torch.inference_mode():
        scorer.hidden_states(rows)
    assert seen == [1]
    keep_beginning(scorer)
    with counted_images(model) as seen:
        scorer.logits(rows)
    assert seen == []


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_vl"])
def test_positions_are_those_of_the_model(tiny_bases: OfFamily, family: Family) -> None:
    """Positions in time, height and width equal transformers'."""
    model = load(tiny_bases, family)
    image_id = model.config.image_token_id
    for row in rows_of(model):
        ids = torch.tensor([row.ids])
        theirs, _ = model.model.get_rope_index(
            ids,
            image_grid_thw=torch.tensor([image.grid for image in row.images]),
            mm_token_type_ids=(ids == image_id).long(),
        )
        assert np.array_equal(positions_of(row, image_id, 2), theirs[:, 0].numpy())


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_vl"])
def test_patches_as_a_linear_layer_are_the_convolution(
    tiny_bases: OfFamily, family: Family
) -> None:
    """The replaced first layer of the vision tower gives the same embeddings to 1e-5."""
    model = load(tiny_bases, family)
    patches = torch.from_numpy(picture(3, 8, 8).patches)
    with torch.inference_mode():
        before = model.model.visual.patch_embed(patches)
        use_linear_patches(model)
        after = model.model.visual.patch_embed(patches)
    assert isinstance(model.model.visual.patch_embed, LinearPatches)
    assert torch.allclose(before, after, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", EACH_FAMILY)
def test_neighbours_move_no_score_in_bf16(tiny_bases: OfFamily, family: Family) -> None:
    """In bf16 a score differs by at most 2e-3 alone, in any batch and after a kept beginning."""
    model = load(tiny_bases, family).to(torch.bfloat16)
    use_faster_layers(model)
    rng = random.Random(1)
    rows = rows_of(model)
    rows += [
        prompt(model, rng.choices(TEXT, k=rng.randint(20, 200)), PLACEHOLDER) for _ in range(12)
    ]
    scorer = LabelModel(model, LABELS, budget=Budget(1, 2**62))
    alone = probabilities(scorer.logits(rows))
    assert alone.std() > 0.2  # scores of 0.5 would not differ either
    for budget in (Budget(600, 2**62), WHOLE):
        scorer.budget = budget
        assert (probabilities(scorer.logits(rows)) - alone).abs().max() < 2e-3
    assert (probabilities(keep_beginning(scorer).logits(rows)) - alone).abs().max() < 2e-3


def test_gradients_pass_through_the_states(tiny_bases: OfFamily) -> None:
    """Gradients reach text layers and vision tower through the states."""
    model = load(tiny_bases, "qwen3_vl")
    LabelModel(model, LABELS).hidden_states(rows_of(model)).sum().backward()
    for layer in (model.model.language_model.layers[0].mlp.up_proj, model.model.visual.merger.norm):
        assert layer.weight.grad.abs().sum() > 0


# Out of memory


@contextmanager
def memory_for(model: Any, rows: int, *, also_on_cpu: bool = True) -> Iterator[list[int]]:
    """Simulate a memory that is full above this many rows; yield the batch sizes tried.

    Unless `also_on_cpu`, only a model in bf16 runs out of memory.
    """
    sizes: list[int] = []

    def check(_module: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        sizes.append(len(kwargs["input_ids"]))
        if sizes[-1] > rows and (also_on_cpu or model.dtype == torch.bfloat16):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    hook = model.model.register_forward_pre_hook(check, with_kwargs=True)
    try:
        yield sizes
    finally:
        hook.remove()


def test_batches_become_smaller_when_memory_is_short(
    tiny_bases: OfFamily, caplog: pytest.LogCaptureFixture
) -> None:
    """If memory is short, batches are halved for good, with one warning each."""
    model = load(tiny_bases, "qwen3_5")
    rows = rows_of(model)
    scorer = LabelModel(model, LABELS, budget=Budget(10_000, 2**62))
    expected = scorer.logits(rows)
    with memory_for(model, 3) as sizes, caplog.at_level(logging.WARNING):
        assert torch.allclose(scorer.logits(rows), expected, rtol=0, atol=1e-5)
        failed = sum(size > 3 for size in sizes)
        sizes.clear()
        assert torch.allclose(scorer.logits(rows), expected, rtol=0, atol=1e-5)
    assert max(sizes) <= 3  # nothing fails any more
    assert scorer.budget.tokens < 10_000
    assert all("out of memory: batches hold" in record.message for record in caplog.records)
    assert len(caplog.records) == failed > 0


def test_a_model_without_room_for_one_row_goes_to_the_cpu(
    tiny_bases: OfFamily, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without room for one row the model moves to the CPU in fp32, with a line in the log."""
    model = load(tiny_bases, "qwen3_5").to(torch.bfloat16)
    scorer = keep_beginning(LabelModel(model, LABELS, budget=WHOLE))
    rows = rows_of(model)
    before = probabilities(scorer.logits(rows))
    monkeypatch.setattr(
        LabelModel, "is_on_cpu", property(lambda self: model.dtype != torch.bfloat16)
    )
    with memory_for(model, 0, also_on_cpu=False), caplog.at_level(logging.WARNING):
        after = probabilities(scorer.logits(rows))
    assert model.dtype == torch.float32
    assert (before - after).abs().max() < 5e-3
    assert "on the CPU from now on, in fp32" in caplog.records[-1].message


def test_a_row_that_fits_nowhere_is_an_error(tiny_bases: OfFamily) -> None:
    """A row that is too large for the CPU is an error."""
    model = load(tiny_bases, "qwen3_5_text")
    with memory_for(model, 0) as sizes, pytest.raises(torch.OutOfMemoryError):
        LabelModel(model, LABELS, budget=WHOLE).logits(rows_of(model)[:2])
    assert len(sizes) < 5
