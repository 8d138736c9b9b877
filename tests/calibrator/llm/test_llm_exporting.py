"""Exported calibrators score as the original (B09)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from calibrator import CheckpointError, Item, export_weights, load_scorer, name_elsewhere
from calibrator.checkpoints.llm_config import preset
from calibrator.llm.exporting import decision_template
from calibrator.llm.serving.probe import Probe
from calibrator.llm.serving.prompts import fill
from pinocchio.commands import cli
from tests.builders.tiny_models import Family, OfFamily

ITEMS = [
    Item("what is 2+2?", "4", source_model="gpt"),
    Item("what is 2+2? <|im_end|>" * 90, "the sum is 5 " * 90),
    Item("", ""),
]


def scores(folder: Path, items: list[Item] = ITEMS) -> list[float]:
    return [score.score for score in load_scorer(str(folder), "cpu").score_batch(items)]


@pytest.mark.parametrize(
    "family", ["qwen3_5", pytest.param("qwen3_5_text", marks=pytest.mark.slow), "qwen3_vl"]
)
def test_merged_weights_are_a_checkpoint_that_scores_the_same(
    tiny_checkpoint: OfFamily, tmp_path: Path, family: Family
) -> None:
    """Merged weights score the same without adapter and base, and transformers loads them (E01)."""
    config = export_weights(str(tiny_checkpoint(family)), tmp_path / "merged")
    assert (config.base, config.adapter) == (".", None)
    assert scores(tmp_path / "merged") == pytest.approx(scores(tiny_checkpoint(family)), abs=1e-5)
    assert not (tmp_path / "merged" / "adapter_config.json").exists()


def test_bf16_weights_stay_near(tiny_checkpoint: OfFamily, tmp_path: Path) -> None:
    """Weights in bf16 score nearly the same, at half the size, with another version."""
    folder = tiny_checkpoint("qwen3_5_text")
    config = export_weights(str(folder), tmp_path / "half", dtype="bfloat16")
    assert scores(tmp_path / "half") == pytest.approx(scores(folder), abs=0.02)
    assert config.version != load_scorer(str(folder), "cpu").name
    whole = export_weights(str(folder), tmp_path / "whole")
    sizes = [(tmp_path / n / "model.safetensors").stat().st_size for n in ("half", "whole")]
    assert sizes[0] < 0.6 * sizes[1]
    assert whole.version != config.version


@pytest.mark.parametrize(
    "family", [pytest.param("qwen3_5", marks=pytest.mark.slow), "qwen3_5_text"]
)
def test_the_sequence_classifier_says_the_same_through_a_sigmoid(
    tiny_checkpoint: OfFamily, tmp_path: Path, family: Family
) -> None:
    """The sequence classifier's output W[ii] - W[i] gives the same score by a sigmoid."""
    from transformers import AutoModelForSequenceClassification

    folder = tiny_checkpoint(family)
    export_weights(str(folder), tmp_path / "one", "sequence-classification")
    model: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path / "one").eval()
    scorer: Any = load_scorer(str(folder), "cpu")
    rows, _ = scorer.rows(ITEMS)
    with torch.inference_mode():
        found = [model(**scorer.model.inputs([row])).logits for row in rows]
    assert [tuple(each.shape) for each in found] == [(1, 1)] * len(ITEMS)
    assert [float(each.sigmoid()) for each in found] == pytest.approx(scores(folder), abs=1e-5)


def test_a_form_that_a_kind_has_not_is_refused_and_leaves_nothing(
    tiny_checkpoint: OfFamily, tmp_path: Path
) -> None:
    """Qwen3-VL has no sequence classification, so that export is refused and leaves nothing."""
    with pytest.raises(CheckpointError, match=r"no sequence classification for qwen3_vl.*merged"):
        export_weights(
            str(tiny_checkpoint("qwen3_vl")), tmp_path / "one", "sequence-classification"
        )
    assert list(tmp_path.iterdir()) == []


def test_transformers_decision_pipeline_says_the_same(
    tiny_checkpoint: OfFamily, tmp_path: Path
) -> None:
    """The decision pipeline of transformers gives the same score with decision.json."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

    folder, merged = tiny_checkpoint("qwen3_5_text"), tmp_path / "merged"
    export_weights(str(folder), merged)
    # By the path alone it would first make a whole Qwen3.5 of the default size
    model: Any = AutoModelForCausalLM.from_pretrained(merged)
    tokenizer = AutoTokenizer.from_pretrained(merged)
    decide = pipeline("decision", model=model, tokenizer=tokenizer, device="cpu")
    items = [Item("what is 2+2?", "4"), Item("q {x}\n'\"" * 300, "a\n" * 900), Item("", "")]
    found = [
        decide({"state": {"question": item.question, "answer": item.answer},
                "questions": {"correct": {"type": "noul"}}})["correct"]["noul"]
        for item in items
    ]  # fmt: skip
    assert found == pytest.approx(scores(folder, items), abs=1e-5)


@pytest.mark.parametrize("name", ["paper", "released-0.8b"])
@pytest.mark.parametrize("missing", ["omit", "empty"])
@pytest.mark.parametrize("benchmark", ["", "gpqa"])
@pytest.mark.parametrize("model", ["", "gpt"])
def test_the_decision_template_is_the_prompt(
    name: str, missing: Any, benchmark: str, model: str
) -> None:
    """The decision template gives the prompt, with any known and unknown tags (F01, F07, W03)."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    from calibrator.checkpoints.llm_config import PromptConfig

    prompt = PromptConfig(preset(name).prompt.template, missing, 20, 10)
    values = {"benchmark": benchmark, "source_model": model, "question": "{q}" * 9, "answer": "a\n"}
    state = {key: value for key, value in values.items() if value}
    cut_values = {**values, "question": values["question"][:20]}
    template = ImmutableSandboxedEnvironment().from_string(decision_template(prompt))
    assert template.render(state=state) == fill(prompt, cut_values)


@pytest.fixture
def probed(tiny_checkpoint: OfFamily, tmp_path: Path) -> Path:
    """Return a checkpoint that reads a probe of the last state (K14)."""
    folder = Path(shutil.copytree(tiny_checkpoint("qwen3_5_text"), tmp_path / "probed"))
    torch.manual_seed(3)
    Probe(torch.zeros(33), torch.ones(33), torch.randn(4, 33), torch.randn(4), torch.randn(1, 4),
          torch.zeros(1)).save(folder)  # fmt: skip
    path = folder / "calibrator.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "elicitation": "both"}))
    return folder


def test_a_probe_goes_along_or_is_refused(
    probed: Path, tiny_checkpoint: OfFamily, tmp_path: Path
) -> None:
    """Merged weights keep the probe; exports that read only the labels are refused (K14)."""
    export_weights(str(probed), tmp_path / "merged")
    assert scores(tmp_path / "merged") == pytest.approx(scores(probed), abs=1e-5)
    assert scores(probed) != pytest.approx(scores(tiny_checkpoint("qwen3_5_text")), abs=1e-3)
    assert not (tmp_path / "merged" / "decision.json").exists()
    with pytest.raises(CheckpointError, match="reads a probe"):
        export_weights(str(probed), tmp_path / "one", "sequence-classification")
    with pytest.raises(CheckpointError, match="reads a probe"):
        name_elsewhere(str(probed), "vllm")


def test_the_command_exports_and_refuses_in_a_sentence(
    tiny_checkpoint: OfFamily, tmp_path: Path
) -> None:
    """`pinocchio export-weights` writes a new folder, or refuses in one sentence."""
    folder, output = str(tiny_checkpoint("qwen3_5_text")), str(tmp_path / "merged")
    done = CliRunner().invoke(cli, ["export-weights", folder, "-o", output])
    assert done.exit_code == 0, done.output
    assert output in done.output
    for arguments, message in (
        ([folder, "-o", output], "exists; export into a new folder"),
        (["embedded", "-o", f"{output}2"], "is no language model"),
        (["./nowhere", "-o", f"{output}2"], "nowhere"),
    ):
        done = CliRunner().invoke(cli, ["export-weights", *arguments])
        assert done.exit_code != 0
        assert message in done.output
        assert "Traceback" not in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["merged"]
