"""Language-model checkpoints: loaded strictly, merged exactly, refused clearly (E01, F05, 2-W)."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from calibrator import (
    CheckpointError,
    Item,
    NotScorableError,
    Pinocchio,
    check_checkpoint,
    checkpoint_card,
    load_scorer,
    reads_images,
    version_of,
)
from calibrator.checkpoints.checkpoint import digest_of
from calibrator.checkpoints.llm_config import LlmConfig, parse_config, preset
from calibrator.llm.serving.calibrator import LlmCalibrator, load_llm
from calibrator.llm.serving.loading import ADAPTER, ADAPTER_CONFIG, load_adapter, load_base
from tests.builders.tiny_models import FAMILIES, Family, OfFamily

ITEMS = [
    Item("what is 2+2?", "4"),
    Item("what is 2+2? " * 40, "the sum is 5 " * 30),
    Item("", ""),
    Item("Question: no (ii)", "ii"),
]


@pytest.fixture
def copied(tiny_checkpoint: OfFamily, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint("qwen3_5"), tmp_path / "copied"))


def change(folder: Path, **values: Any) -> Path:
    path = folder / "calibrator.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return folder


def loaded(folder: Path) -> LlmCalibrator:
    scorer = load_scorer(str(folder), "cpu")
    assert isinstance(scorer, LlmCalibrator)
    return scorer


def scores_of(folder: Path, items: list[Item] = ITEMS) -> list[float]:
    return [score.score for score in loaded(folder).score_batch(items)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_score_is_the_softmax_over_two_logits(
    tiny_checkpoint: OfFamily, tiny_bases: OfFamily, family: Family
) -> None:
    """A score is the softmax over the adapted model's two label logits (B08, B09)."""
    folder = tiny_checkpoint(family)
    scorer = loaded(folder)
    adapted = load_adapter(
        load_base(tiny_bases(family), scorer.config.architecture), folder, scorer.config.adapter
    )
    rows, _ = scorer.rows(ITEMS)
    for row, score in zip(rows, scorer.score_batch(ITEMS), strict=True):
        with torch.inference_mode():
            logits = adapted(**scorer.model.inputs([row])).logits[0, -1]
        expected = torch.softmax(logits[list(scorer.model.label_ids)], 0)[1]
        assert score.score == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_neighbours_of_other_lengths_change_nothing(
    tiny_checkpoint: OfFamily, family: Family
) -> None:
    """A row's score is the same with neighbours of other lengths."""
    scorer = loaded(tiny_checkpoint(family))
    together = [score.score for score in scorer.score_batch(ITEMS)]
    alone = [scorer.score_batch([item])[0].score for item in ITEMS]
    assert together == pytest.approx(alone, abs=1e-5)
    assert len(set(together)) == len(ITEMS)


def test_the_placeholder_is_the_size_the_model_was_trained_with(
    tiny_checkpoint: OfFamily, copied: Path
) -> None:
    """The placeholder is 448 x 448 with 196 tokens (F05, V16, W02)."""
    for folder in (tiny_checkpoint("qwen3_vl"), change(copied, preset="released-0.8b")):
        pixels = loaded(folder).pixels
        assert pixels is not None
        assert pixels.placeholder is not None
        assert (pixels.placeholder.grid, pixels.placeholder.tokens) == ((1, 28, 28), 196)
        assert np.ptp(pixels.placeholder.patches) < 1e-6
    assert loaded(tiny_checkpoint("qwen3_5")).model.image_id is not None


def test_a_text_calibrator_reads_no_images(tiny_checkpoint: OfFamily) -> None:
    """A text calibrator refuses a question with an image."""
    text, vision = loaded(tiny_checkpoint("qwen3_5_text")), loaded(tiny_checkpoint("qwen3_5"))
    assert (reads_images(text), reads_images(vision)) == (False, True)
    with pytest.raises(NotScorableError) as raised:
        text.score_batch([Item("what is shown?", "a cat", images=(b"...",))])
    assert raised.value.reason == "image"


def test_an_adapter_is_never_left_out_in_silence(
    tiny_checkpoint: OfFamily, tiny_bases: OfFamily, tmp_path: Path
) -> None:
    """An adapter that does not match its base is refused.

    The hub's own snippet loads the released adapter into the text class, where nothing of it
    matches, and peft only warns: the scores are then those of the base.
    """
    for family, base, architecture in (
        ("qwen3_5", "qwen3_5_text", "causal-lm"),
        ("qwen3_vl", "qwen3_5", "image-text-to-text"),
    ):
        folder = Path(shutil.copytree(tiny_checkpoint(family), tmp_path / family))
        change(folder, base=str(tiny_bases(base)), architecture=architecture, images=None)
        with pytest.raises(CheckpointError, match="adapter"):
            loaded(folder)


@pytest.mark.parametrize("fault", ["missing", "strange", "shape"])
def test_every_key_of_an_adapter_counts(copied: Path, fault: str) -> None:
    """An adapter's weight that is missing, unknown or of another shape is refused."""
    state = load_file(copied / ADAPTER)
    name = sorted(state)[0]
    if fault == "shape":
        state[name] = state[name][:, :-1].contiguous()
    else:
        weight = state.pop(name)
        if fault == "strange":
            state[name.replace("layers.0", "layers.77").replace("blocks.0", "blocks.77")] = weight
    save_file(state, copied / ADAPTER)
    with pytest.raises(CheckpointError, match="does not fit" if fault == "shape" else "missing"):
        loaded(copied)


def test_an_adapter_that_changes_nothing_is_refused(copied: Path) -> None:
    """An adapter that changes no score is refused."""
    state = load_file(copied / ADAPTER)
    save_file({k: torch.zeros_like(v) if "lora_B" in k else v for k, v in state.items()},
              copied / ADAPTER)  # fmt: skip
    with pytest.raises(CheckpointError, match="changes nothing"):
        loaded(copied)


def test_weights_must_be_those_that_were_named(copied: Path) -> None:
    """Weights must have the digest that calibrator.json names."""
    change(copied, weights_sha256=digest_of(copied))
    assert loaded(copied)
    change(copied, weights_sha256="0" * 64)
    with pytest.raises(CheckpointError, match="sha256 differs"):
        loaded(copied)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def as_pickle(path: Path) -> None:
    path.with_suffix(".bin").write_bytes(pickle.dumps({"a": 1}))
    path.unlink()


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (ADAPTER, cut, "cannot be read"),
        (ADAPTER, lambda path: path.write_bytes(b""), "cannot be read"),
        (ADAPTER, as_pickle, "is a pickle"),
        (ADAPTER_CONFIG, lambda path: path.unlink(), "cannot be read"),
        (ADAPTER_CONFIG, lambda path: path.write_text("[]"), "cannot be read"),
        (ADAPTER_CONFIG, lambda path: path.write_text('{"peft_type": "IA3"}'), "only LORA"),
        ("calibrator.json", lambda path: path.write_text("{"), "cannot be read"),
        ("calibrator.json", lambda path: path.write_text("[]"), "is not what this version"),
        ("calibrator.json", lambda path: path.write_text('{"preset": "x"}'), "no preset 'x'"),
        ("calibrator.json", lambda path: path.unlink(), "no calibrator.json"),
    ],
)
def test_damaged_checkpoints_are_refused_in_a_sentence(
    copied: Path, name: str, damage: Callable[[Path], Any], message: str
) -> None:
    """Damaged files are refused in one sentence."""
    damage(copied / name)
    with pytest.raises(CheckpointError, match=message):
        loaded(copied)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"architecture": "mamba"}, "mamba"),
        ({"metadata": "sometimes"}, "auto, omit, explicit"),
        ({"labels": ["i", "i"]}, "two different"),
        ({"adapter": {"rank": "many"}}, "whole number"),
        ({"adapter": {"rank": 8, "alpha": 8}}, "calibrator.json says 8"),
        ({"adapter": None}, "whole weights"),
        ({"base": "."}, "whole weights"),
        ({"images": {"min_pixels": 0}}, "min_pixels"),
        ({"images": {"placeholder": 3}}, "must be an object"),
        ({"prompt": {"template": "{question}"}}, "needs"),
        ({"colour": 3}, "colour"),
        ({"base": "./nowhere"}, "nowhere"),
        ({"recalibration": {"kind": "platt", "slope": -1, "intercept": 0}}, "positive slope"),
    ],
)
def test_wrong_configurations_are_refused_in_a_sentence(
    copied: Path, values: dict[str, Any], message: str
) -> None:
    """A wrong configuration is refused with a message that names the mistake."""
    with pytest.raises(CheckpointError, match=message):
        loaded(change(copied, **values))


def test_a_base_without_all_its_weights_is_refused(
    tiny_checkpoint: OfFamily, tiny_bases: OfFamily, tmp_path: Path, copied: Path
) -> None:
    """A base with a missing weight is refused; transformers would make it up."""
    base = Path(shutil.copytree(tiny_bases("qwen3_5"), tmp_path / "base"))
    state = load_file(base / "model.safetensors")
    del state["model.language_model.layers.1.mlp.up_proj.weight"]
    save_file(state, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"missing_keys: .*layers\.1\.mlp\.up_proj"):
        loaded(change(copied, base=str(base)))


def test_merged_scores_are_those_of_the_adapter(tiny_checkpoint: OfFamily, tmp_path: Path) -> None:
    """Merged in fp32 and saved, a checkpoint scores the same without adapter (E01)."""
    folder = tiny_checkpoint("qwen3_5")
    scorer = loaded(folder)
    whole = tmp_path / "whole"
    scorer.model.model.save_pretrained(whole)
    scorer.prompts.tokenizer.save_pretrained(whole)
    shutil.copy(Path(scorer.config.base) / "preprocessor_config.json", whole)
    shutil.copy(folder / "calibrator.json", whole)
    change(whole, base=".", adapter=None)
    assert scores_of(whole) == pytest.approx(scores_of(folder), abs=1e-6)
    assert version_of(str(whole)) != version_of(str(folder))


def test_a_checkpoint_has_a_version_and_a_card_without_torch(
    tiny_checkpoint: OfFamily,
) -> None:
    """A checkpoint has a version and a card without loading torch."""
    folder = tiny_checkpoint("qwen3_5")
    check_checkpoint(str(folder))
    card = checkpoint_card(str(folder))
    assert card is not None
    assert card["version"] == version_of(str(folder)) == f"pinocchio@{digest_of(folder)[:8]}"
    assert card["prompt"]["question_characters"] == 1_500
    assert loaded(folder).name == card["version"]


def test_a_recalibration_of_the_checkpoint_is_applied(copied: Path) -> None:
    """The confidence is the score after the checkpoint's recalibration."""
    change(copied, recalibration={"kind": "platt", "slope": 0.5, "intercept": 1.0})
    [score] = loaded(copied).score_batch(ITEMS[:1])
    odds = 0.5 * np.log(score.score / (1 - score.score)) + 1
    assert score.confidence == pytest.approx(1 / (1 + np.exp(-odds)), abs=1e-6)
    assert "+platt@" in version_of(str(copied))


def test_long_texts_are_marked_as_truncated(tiny_checkpoint: OfFamily) -> None:
    """A text that is too long gives a truncated score (F02, F03)."""
    scores = loaded(tiny_checkpoint("qwen3_5_text")).score_batch(
        [Item("q", "a" * 801), Item("q", "a" * 800)]
    )
    assert [score.is_truncated for score in scores] == [True, False]


def test_two_lines_score_with_a_language_model(tiny_checkpoint: OfFamily) -> None:
    """`Pinocchio` loads a folder of a language model like any other (G01-G03)."""
    judge = Pinocchio(str(tiny_checkpoint("qwen3_5")), device="cpu")
    assert 0 < judge.score(question="2+2?", answer="4", source_model="gpt-5.6") < 1


def test_bf16_scores_near_fp32(tiny_checkpoint: OfFamily) -> None:
    """Scores in bf16 are near those in fp32, with the head in fp32 (E06)."""
    scorer = loaded(tiny_checkpoint("qwen3_5_text"))
    half = load_llm(scorer.config, tiny_checkpoint("qwen3_5_text"), "cpu", dtype="bfloat16")
    found, expected = ([s.score for s in each.score_batch(ITEMS)] for each in (half, scorer))
    assert found == pytest.approx(expected, abs=0.03)
    assert half.model.label_rows().dtype == torch.float32


def test_devices_that_are_not_there_are_named(tiny_checkpoint: OfFamily) -> None:
    """An unknown device is refused before anything is read."""
    with pytest.raises(CheckpointError, match="'nonsense'"):
        load_scorer(str(tiny_checkpoint("qwen3_5")), "nonsense")


def test_presets_are_what_paper_and_release_say() -> None:
    """The presets have the numbers of paper and release (B04, E01, F02-F05, W01-W03)."""
    paper, released = preset("paper"), preset("released-0.8b")
    assert paper.base == "Qwen/Qwen3-VL-8B-Instruct"
    assert paper.adapter is not None
    assert (paper.adapter.rank, paper.adapter.alpha) == (32, 64)
    assert paper.images is not None
    assert (paper.images.min_pixels, paper.images.max_pixels) == (200_704, 401_408)
    assert released.base == "Qwen/Qwen3.5-0.8B"
    assert released.architecture == "image-text-to-text"
    assert released.adapter is not None
    assert released.adapter.rank == 16
    assert released.images is not None
    assert released.images.placeholder is not None
    assert (released.images.placeholder.width, released.images.placeholder.pixels) == (336, 200_704)
    for config in (paper, released):
        assert config.labels == ("i", "ii")
        assert (config.prompt.question_characters, config.prompt.answer_characters) == (1_500, 800)
        assert parse_config(config.as_dict()) == config


def test_a_configuration_is_written_as_it_is_read(tiny_checkpoint: OfFamily) -> None:
    """A configuration survives `as_dict` and `parse_config`."""
    config: LlmConfig = loaded(tiny_checkpoint("qwen3_vl")).config
    assert parse_config(json.loads(json.dumps(config.as_dict()))) == config
