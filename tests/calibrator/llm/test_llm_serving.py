"""A language-model calibrator in the proxy: loaded as configured, its score on each completion."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
import torch

from calibrator import Batcher, CheckpointError, load_scorer, version_of
from calibrator.llm.serving.calibrator import LlmCalibrator
from tests.builders.tiny_models import OfFamily, write_tiny_adapter
from tests.conftest import StartProxy
from tests.running.live_proxy import question


@pytest.fixture(scope="module")
def checkpoint(tiny_bases: OfFamily, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tiny"
    return write_tiny_adapter(folder, tiny_bases("qwen3_5"), "qwen3_5")


def test_a_completion_carries_the_score_of_the_configured_checkpoint(
    start_proxy: StartProxy, checkpoint: Path
) -> None:
    """Loading, prompt, placeholder and forward pass run in the proxy as they do in a program."""
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
    """`dtype` is that of the weights, and batches are as large as the model's budget says."""
    scorer = load_scorer(str(checkpoint), "cpu", dtype=dtype)
    assert isinstance(scorer, LlmCalibrator)
    assert scorer.model.model.dtype == getattr(torch, dtype)
    batcher = Batcher(scorer)
    assert batcher._batch_characters == 4 * scorer.model.budget.tokens
    batcher.close()


def test_the_embedded_calibrator_has_one_precision() -> None:
    """A precision that would be ignored is refused in a sentence."""
    with pytest.raises(CheckpointError, match="dtype is for language models"):
        load_scorer("embedded", "cpu", dtype="bfloat16")
