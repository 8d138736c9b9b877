"""Calls of the authors' own package work here (G04, G05, W01-W05)."""

from __future__ import annotations

import inspect
import shutil
import tomllib
from pathlib import Path

import pytest
import torch

from calibrator import CheckpointError, Item, Pinocchio
from calibrator.checkpoints.llm_config import preset
from calibrator.llm.serving.released_api import ADAPTER
from tests.builders.tiny_models import OfFamily, write_tiny_adapter

ASKED = {"question": "what is 2+2?", "answer": "4", "source_model": "gpt", "benchmark": "gpqa"}


@pytest.fixture(scope="module")
def adapter(tiny_bases: OfFamily, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an adapter as the authors publish theirs: rank 16, and no calibrator.json."""
    made = write_tiny_adapter(
        tmp_path_factory.mktemp("released") / "adapter",
        tiny_bases("qwen3_5"),
        adapter={"rank": 16, "alpha": 32},
    )
    (made / "calibrator.json").unlink()
    return made


@pytest.fixture(scope="module")
def judge(adapter: Path, tiny_bases: OfFamily) -> Pinocchio:
    return Pinocchio(
        adapter=str(adapter),
        base_model=str(tiny_bases("qwen3_5")),
        device_map="cpu",
        torch_dtype=torch.float32,
        use_placeholder_image=True,
    )


def test_the_constructor_takes_their_arguments(judge: Pinocchio) -> None:
    """The constructor takes an adapter and a base, with the release's prompt (G04, G05)."""
    assert judge.name.startswith("pinocchio-0.8b-on-qwen3_5@")
    assert 0 < judge.score(**ASKED) < 1  # type: ignore[arg-type]  # a dict of strings
    assert ADAPTER == "KevinDavidHayes/pinocchio-0.8b"


def test_without_the_placeholder_the_scores_have_another_name(
    judge: Pinocchio, adapter: Path, tiny_bases: OfFamily
) -> None:
    """Without the placeholder the scores differ and have another name (W02)."""
    bare = Pinocchio(
        adapter=str(adapter), base_model=str(tiny_bases("qwen3_5")), use_placeholder_image=False,
        device="cpu",
    )  # fmt: skip
    assert "-no-placeholder@" in bare.name
    assert bare.score(**ASKED) != pytest.approx(judge.score(**ASKED), abs=1e-6)  # type: ignore[arg-type]


def test_a_prompt_variant_is_another_prompt(judge: Pinocchio) -> None:
    """`baseline` is a shorter prompt without metadata; `combined` is the default (G05, W03)."""
    plain = judge.score(**ASKED)  # type: ignore[arg-type]
    baseline = judge.score(**ASKED, prompt_variant="baseline")  # type: ignore[arg-type]
    assert judge.score(**ASKED, prompt_variant="combined") == plain  # type: ignore[arg-type]
    assert baseline != plain
    untagged = {"question": ASKED["question"], "answer": ASKED["answer"]}
    assert judge.score(**untagged, prompt_variant="baseline") == pytest.approx(baseline, abs=1e-6)  # type: ignore[arg-type]
    many = judge.score_batch(
        [ASKED, {**ASKED, "prompt_variant": "baseline"}, Item("what is 2+2?", "4", "gpt", "gpqa")]
    )
    assert many == pytest.approx([plain, baseline, plain], abs=1e-6)


def test_unknown_names_are_refused(judge: Pinocchio, adapter: Path, tmp_path: Path) -> None:
    """Unknown variants, types, devices and folders are refused by their names."""
    with pytest.raises(CheckpointError, match=r"'terse'; it has: combined, baseline"):
        judge.score(question="q", answer="a", prompt_variant="terse")
    with pytest.raises(ValueError, match="no language model"):
        Pinocchio("fake:0.5").score(question="q", answer="a", prompt_variant="baseline")
    for arguments, message in (
        ({"torch_dtype": torch.int8}, "int8"),
        ({"device_map": {"a": 0, "b": 1}}, "one device"),
        ({"base_model": str(tmp_path / "none")}, "none"),
    ):
        with pytest.raises(CheckpointError, match=message):
            Pinocchio(adapter=str(adapter), **arguments)
    with pytest.raises(TypeError, match="adaptor"):
        Pinocchio(adaptor=str(adapter))
    broken = Path(shutil.copytree(adapter, tmp_path / "broken"))
    (broken / "adapter_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no weights"):
        Pinocchio(adapter=str(broken))


def test_their_arguments_of_score_are_ours() -> None:
    """`score` has all arguments of the released signature (G05)."""
    ours = set(inspect.signature(Pinocchio.score).parameters)
    theirs = {"question", "answer", "source_model", "benchmark", "prompt_variant", "messages"}
    assert theirs <= ours


def test_what_is_installed_is_above_the_floors_of_the_released_code() -> None:
    """The extra `torch` needs at least transformers 5.2 and peft 0.18 (W08)."""
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    requirements = tomllib.loads(text)["project"]["optional-dependencies"]["torch"]
    floors = dict(each.split(">=") for each in requirements)
    for name, least in (("transformers", (5, 2)), ("peft", (0, 18))):
        assert tuple(map(int, floors[name].split("."))) >= least
    assert "pillow" in floors


def test_its_quality_is_what_its_authors_state() -> None:
    """The released preset has its authors' figures, under a name that says so (W10)."""
    released = preset("released-0.8b")
    assert released.quality == {
        "stated by its authors": {"auroc": 0.867, "ece": 0.08, "rows": 2_293}
    }
    assert preset("paper").quality == {}
