"""Faster layers for scoring: the same numbers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule

from calibrator.llm.layers import replace
from calibrator.llm.layers.last_layer import LastLayer
from calibrator.llm.layers.replace import (
    CHUNK,
    GatedDeltaNet,
    gated_delta_rule,
    text_model_of,
    use_faster_layers,
)
from calibrator.llm.serving.model import LabelModel
from calibrator.loading import load_scorer
from calibrator.scorer import Item
from tests.builders.tiny_models import EACH_FAMILY, Family, OfFamily, write_tiny_adapter
from tests.calibrator.llm.test_llm_model import LABELS, PLACEHOLDER, load, prompt


@pytest.mark.parametrize("length", [1, CHUNK - 1, CHUNK, 3 * CHUNK + 5])
@pytest.mark.parametrize(("groups", "heads"), [(2, 2), (2, 6)])
@pytest.mark.parametrize("has_state", [False, True])
def test_the_delta_rule_is_that_of_transformers(
    length: int, groups: int, heads: int, has_state: bool
) -> None:
    """The delta rule's outputs and state equal transformers' to 1e-5.

    Heads forget at once or hardly at all, in full and partial chunks.
    """
    torch.manual_seed(length)
    query, key = (torch.randn(2, length, groups, 16) for _ in range(2))
    value, beta = torch.randn(2, length, heads, 24), torch.rand(2, length, heads)
    decay = -torch.linspace(0.001, 30, heads) * functional.softplus(torch.randn(2, length, heads))
    state = torch.randn(2, heads, 16, 24) if has_state else None
    expected = torch_chunk_gated_delta_rule(
        query, key, value, g=decay, beta=beta, initial_state=state,
        output_final_state=True, use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    before = None if state is None else state.clone()
    found = gated_delta_rule(query, key, value, decay, beta, state)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-5)
    assert state is None or torch.equal(state, before)  # other rows continue from it too


def test_no_denormal_number_is_carried_on() -> None:
    """No denormal number is carried on: a CPU multiplies them many times slower."""
    length = 4 * CHUNK
    query, key, value = (torch.randn(1, length, 1, 16) for _ in range(3))
    decay = torch.full((1, length, 1), -2.9)  # exp(-2.9 * 32) is denormal
    out, state = gated_delta_rule(query, key, value, decay, torch.ones(1, length, 1), None)
    for found in (out, state):
        assert not ((found != 0) & (found.abs() < torch.finfo(torch.float32).tiny)).any()


@pytest.mark.parametrize("family", EACH_FAMILY)
def test_layers_are_replaced_under_their_own_names(tiny_bases: OfFamily, family: Family) -> None:
    """Faster layers have the same names, and replace the last layer and linear attention."""
    model = load(tiny_bases, family)
    names = set(model.state_dict())
    use_faster_layers(model)
    assert set(model.state_dict()) == names
    layers = getattr(model.model, "language_model", model.model).layers
    assert isinstance(layers[-1], LastLayer)
    linear = [layer.linear_attn for layer in layers if hasattr(layer, "linear_attn")]
    assert len(linear) == (0 if family == "qwen3_vl" else 3)
    assert all(isinstance(each, GatedDeltaNet) for each in linear)


@pytest.mark.parametrize("family", EACH_FAMILY)
def test_the_last_layer_computes_one_position_a_row(tiny_bases: OfFamily, family: Family) -> None:
    """The last layer's MLP reads one state of each row."""
    model = load(tiny_bases, family)
    use_faster_layers(model)
    layers: Any = getattr(model.model, "language_model", model.model).layers
    shapes = []
    layers[-1].mlp.register_forward_pre_hook(lambda _, args: shapes.append(args[0].shape[:2]))
    rows = [prompt(model, [40 + at] * at, PLACEHOLDER) for at in (3, 9)]
    with torch.inference_mode():
        LabelModel(model, LABELS).hidden_states(rows)
    assert shapes == [(2, 1)]


def test_threads_do_not_read_each_others_positions(tiny_bases: OfFamily) -> None:
    """Several threads score with one model, and each row gets its own score."""
    model = load(tiny_bases, "qwen3_vl")
    use_faster_layers(model)
    scorer = LabelModel(model, LABELS)
    rows = [prompt(model, [40 + at] * (3 + 7 * at), PLACEHOLDER) for at in range(8)]
    expected = scorer.logits(rows)
    with ThreadPoolExecutor(4) as pool:
        found = torch.cat(list(pool.map(lambda row: scorer.logits([row]), rows * 4)))
    assert torch.allclose(found, expected.repeat(4, 1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", EACH_FAMILY)
@pytest.mark.parametrize("is_kernel", [False, True])
def test_norms_give_what_those_of_transformers_do(
    tiny_bases: OfFamily, family: Family, is_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms equal transformers' to 1e-5, and are rounded in autocast."""
    if is_kernel:  # as on another device
        monkeypatch.setattr(replace, "PASSES_ON", "none")
    layers = text_model_of(load(tiny_bases, family)).layers
    theirs = [each for name, each in layers[-1].named_modules() if name.endswith("norm")]
    assert len(theirs) == 4
    for norm in theirs:
        torch.nn.init.uniform_(norm.weight)
        states = torch.randn(3, 5, len(norm.weight))
        ours = replace.Norm(norm, is_for_matrices=True)
        assert torch.allclose(ours(states), norm(states), rtol=0, atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(ours(states), ours(states).bfloat16())
            ours.is_for_matrices = False
            assert ours(states).dtype == torch.float32


def test_a_cpu_asks_for_no_kernels(
    tiny_bases: OfFamily, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU no kernel of flash-linear-attention is called.

    If it is installed, transformers calls it on a CPU too, where it fails. A checkpoint with an
    adapter is tried on the CPU first.
    """

    def fails(*_args: Any, **_others: Any) -> None:
        raise ValueError("Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)")

    checkpoint = write_tiny_adapter(tmp_path / "tiny", tiny_bases("qwen3_5"))
    monkeypatch.setattr(modeling_qwen3_5, "torch_chunk_gated_delta_rule", fails)
    [score] = load_scorer(str(checkpoint), "cpu").score_batch([Item("What is 2 + 3?", "5")])
    assert 0 < score.score < 1
