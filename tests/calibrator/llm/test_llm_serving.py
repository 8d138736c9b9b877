"""A language-model calibrator is trained, and scores completions in the proxy.

There is one small case of each; all other tests of language models run at night
(`tests/nightly/nightly.txt`). The tests import PyTorch, so that collecting them does not.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import httpx
import pytest

from calibrator import Batcher, CheckpointError, Item, load_scorer, version_of
from calibrator.lab.training.llm.config import LlmTrainConfig
from calibrator.rows.selection import Selection
from tests.builders.tiny_models import OfFamily, write_tiny_adapter
from tests.conftest import StartProxy
from tests.running.live_proxy import question


@pytest.fixture(scope="module")
def checkpoint(tiny_bases: OfFamily, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a tiny checkpoint; import its loader now, or the start of a proxy would wait for it."""
    import_module("calibrator.llm.serving.calibrator")
    folder = tmp_path_factory.mktemp("served") / "tiny"
    return write_tiny_adapter(folder, tiny_bases("qwen3_5"), "qwen3_5")


def test_a_completion_carries_the_score_of_the_configured_checkpoint(
    start_proxy: StartProxy, checkpoint: Path
) -> None:
    """A completion has the score and version of the configured checkpoint."""
    import torch

    proxy = start_proxy(calibrator={"checkpoint": str(checkpoint), "timeout_s": 30, "threads": 1})
    reply = httpx.post(
        f"{proxy.base_url}/chat/completions", json=question("why?", "ok"), timeout=60
    )
    assert reply.headers["x-pinocchio-confidence-status"] == "scored"
    assert reply.headers["x-pinocchio-calibrator"] == version_of(str(checkpoint))
    assert 0 < float(reply.headers["x-pinocchio-confidence"]) < 1
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_precision_is_the_configured_one(checkpoint: Path, dtype: str) -> None:
    """The weights have the configured precision, and batches the model's budget."""
    import torch

    from calibrator.llm.serving.calibrator import LlmCalibrator

    scorer = load_scorer(str(checkpoint), "cpu", dtype=dtype)
    assert isinstance(scorer, LlmCalibrator)
    assert scorer.model.model.dtype == getattr(torch, dtype)
    batcher = Batcher(scorer)
    assert batcher._batch_characters == 4 * scorer.model.budget.tokens
    batcher.close()


def test_the_embedded_calibrator_has_one_precision() -> None:
    """A precision for the embedded calibrator is refused."""
    with pytest.raises(CheckpointError, match="dtype is for language models"):
        load_scorer("embedded", "cpu", dtype="bfloat16")


def test_training_learns_which_word_is_right(tiny_bases: OfFamily, tmp_path: Path) -> None:
    """Training learns a rule on one word and ranks new replies by it (B05, B10)."""
    from calibrator.lab.training.llm.train import train_llm

    words = ("Ann", "Bob")
    rows = [
        {"question": f"{n}+1", "response": words[n % 2], "correct": n % 2, "model": "gpt"}
        for n in range(240)
    ]
    data = tmp_path / "words.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = LlmTrainConfig(
        data=(str(data),),
        name="tiny",
        base=str(tiny_bases("qwen3_vl")),
        is_text_only=True,
        selection=Selection(validation_share=0.25),
        epochs=2,
        learning_rate=3e-3,
        batch_rows=32,
        device="cpu",
    )
    checkpoint = train_llm(tmp_path / "run", config, lambda _: None)
    items = [Item("777+1", word) for word in words]
    bad, good = (score.score for score in load_scorer(str(checkpoint), "cpu").score_batch(items))
    assert bad < 0.3
    assert good > 0.7
