"""Export a checkpoint in forms that other engines load, each checked against the original scorer.

- `merged`: the whole weights with the adapter merged in, for vLLM, SGLang and transformers; also a
  checkpoint of ours. One that reads text and its labels alone carries `decision.json`, with which
  transformers' decision pipeline gives the same P(correct).
- `sequence-classification`: one output of weights W[ii] - W[i], whose sigmoid is P(correct) (B09).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, Literal

import torch

from calibrator.checkpoints.checkpoint import (
    digest_of,
    read_config,
    resolve_checkpoint,
    write_config,
)
from calibrator.checkpoints.llm_config import FIELD, HERE, LlmConfig, PromptConfig, is_tag
from calibrator.errors import CheckpointError
from calibrator.llm.serving.calibrator import LlmCalibrator, load_llm
from calibrator.llm.serving.loading import silence_loading
from calibrator.llm.serving.probe import PROBE
from calibrator.llm.serving.prompts import CANARIES, load_prompts

Form = Literal["merged", "sequence-classification"]
TOLERANCE: Final = {"float32": 1e-5, "bfloat16": 0.02, "float16": 0.01}  # change of a score


def export_weights(
    name: str, output: Path, form: Form = "merged", dtype: str = "float32"
) -> LlmConfig:
    """Write a checkpoint to the new folder `output` in a form, and return its configuration.

    `dtype` is that of the file; other types than fp32 may change scores by TOLERANCE. Raises
    CheckpointError for an existing folder, a checkpoint that is no language model, a form that its
    kind does not have, and where the written folder does not score as the checkpoint does (then
    nothing is left).
    """
    if output.exists():
        raise CheckpointError(f"{output} exists; export into a new folder")
    folder = resolve_checkpoint(name)
    config = read_config(folder, name)
    if not isinstance(config, LlmConfig):
        raise CheckpointError(f"{config.name} is no language model; its folder is its only form")
    calibrator = load_llm(config, folder, "cpu", dtype="float32")
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        write: Callable[[LlmCalibrator, Path, str], LlmConfig] = (
            _write_merged if form == "merged" else _classifier
        )
        if (probe := folder / PROBE).is_file() and form == "merged":
            shutil.copy(probe, draft)
        written = write(calibrator, draft, dtype)
        draft.chmod(0o755)
        draft.rename(output)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return written


def _write_merged(calibrator: LlmCalibrator, folder: Path, dtype: str) -> LlmConfig:
    """Write the merged weights and their `calibrator.json`, and return the configuration.

    Raises CheckpointError if the written folder scores differently.
    """
    expected = _scores(calibrator)
    _save(calibrator, calibrator.model.model, folder, dtype)
    config = replace(
        calibrator.config,
        base=HERE,
        base_revision=None,
        adapter=None,
        weights_sha256=digest_of(folder),
        canary=calibrator.canary_scores(),
    )
    write_config(folder, config)
    if config.images is None and config.elicitation == "logit":
        _save_decision(config, folder)
    found = _scores(load_llm(config, folder, "cpu", dtype="float32"))
    _check("merged weights", expected, found, dtype)
    return config


def _save_decision(config: LlmConfig, folder: Path) -> None:
    """Write the labels and the prompt in the form of transformers' decision pipeline."""
    from transformers.decision.configuration_utils import DecisionConfig

    incorrect, correct = config.labels
    before, after = _chat_frame(folder, config)
    DecisionConfig(
        labels={"noul": [correct, incorrect]},  # for the options true and false
        chat_template=f"{_quote(before)}{decision_template(config.prompt)}{_quote(after)}",
    ).save_pretrained(folder)


def decision_template(prompt: PromptConfig) -> str:
    """Return the prompt as Jinja over a `state` of question, answer, benchmark and source_model.

    It renders to the result of `prompts.fill` for the same texts.
    """
    expressions = {
        "question": f"{{{{ state.question[:{prompt.question_characters}] }}}}",
        "answer": f"{{{{ state.answer[:{prompt.answer_characters}] }}}}",
        "benchmark": "{{ state.benchmark or '' }}",
        "source_model": "{{ state.source_model or '' }}",
    }
    template = ""
    lines = prompt.template.split("\n")
    for number, line in enumerate(lines, start=1):
        pieces = FIELD.split(line)  # text and names of fields alternate
        body = "".join(expressions[p] if at % 2 else _quote(p) for at, p in enumerate(pieces))
        body += _quote("\n") if number < len(lines) else ""
        if is_tag(pieces[1::2]) and prompt.missing == "omit":
            known = " or ".join(f"state.{name}" for name in pieces[1::2])
            body = f"{{% if {known} %}}{body}{{% endif %}}"
        template += body
    return template


def _chat_frame(folder: Path, config: LlmConfig) -> tuple[str, str]:
    """Return the chat template's text before and after a prompt without images."""
    return load_prompts(config, folder).text_around(0)


def _quote(text: str) -> str:
    """Return a text as a Jinja expression that prints it; "" for an empty one."""
    return "{{ " + json.dumps(text) + " }}" if text else ""


def _classifier(calibrator: LlmCalibrator, folder: Path, dtype: str) -> LlmConfig:
    """Save the model as a classifier with one output, and return the calibrator's config.

    Raises CheckpointError for a probe, for a model without a sequence classification in
    transformers, and if the written classifier scores differently.
    """
    from transformers import AutoModelForSequenceClassification

    if calibrator.config.elicitation != "logit":
        raise CheckpointError(
            f"{calibrator.name} reads a probe, which a classifier of one output has no room for: "
            "export the merged form"
        )
    source = calibrator.model.model
    config = source.config.__class__.from_dict(source.config.to_dict())
    config.num_labels = 1
    text = config.get_text_config()
    text.pad_token_id = calibrator.prompts.tokenizer.pad_token_id
    try:
        with silence_loading():
            auto: Any = AutoModelForSequenceClassification
            model = auto.from_config(config)
    except ValueError as error:
        raise CheckpointError(
            f"transformers has no sequence classification for {config.model_type}: export the "
            "merged form, which vLLM reads as one with classifier_from_token"
        ) from error
    model.model.load_state_dict(source.model.state_dict())
    incorrect, correct = calibrator.model.label_rows()
    with torch.no_grad():
        model.score.weight.copy_((correct - incorrect)[None])
    _save(calibrator, model, folder, dtype)
    with silence_loading():
        again: Any = AutoModelForSequenceClassification.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True
        ).eval()
    rows, _ = calibrator.rows(CANARIES)
    with torch.inference_mode():
        found = [
            float(torch.sigmoid(again(**calibrator.model.inputs([row])).logits[0, 0]))
            for row in rows
        ]
    _check("the sequence classifier", _scores(calibrator), found, dtype)
    return calibrator.config


def _save(calibrator: LlmCalibrator, model: Any, folder: Path, dtype: str) -> None:
    """Write a model's weights in this dtype, the tokenizer and the image processor to a folder.

    `model` is in fp32 afterwards.
    """
    with silence_loading():
        model.to(getattr(torch, dtype)).save_pretrained(folder)
        model.to(torch.float32)
    calibrator.prompts.tokenizer.save_pretrained(folder)
    if calibrator.pixels is not None:
        calibrator.pixels.save(folder)


def _scores(calibrator: LlmCalibrator) -> list[float]:
    """Return the scores of the canaries, before recalibration."""
    return [score.score for score in calibrator.score_batch(CANARIES)]


def _check(what: str, expected: list[float], found: list[float], dtype: str) -> None:
    """Raise CheckpointError if a score differs by more than TOLERANCE of the dtype.

    `what` names the exported form in the message.
    """
    worst = max(abs(a - b) for a, b in zip(expected, found, strict=True))
    if not worst <= TOLERANCE[dtype]:
        raise CheckpointError(
            f"{what} would score differently, by up to {worst:.2g} (at most {TOLERANCE[dtype]:g} "
            f"in {dtype}); nothing was written"
        )
