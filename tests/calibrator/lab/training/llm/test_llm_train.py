"""Training of language-model calibrators, on tiny random bases of the true classes (E01-E10)."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from accelerate import PartialState
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

from calibrator import CheckpointError, Item, export_weights, load_scorer
from calibrator.checkpoints.checkpoint import read_config
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.errors import TrainingError
from calibrator.lab.training.llm.adapter_run import AdapterRun, learning_rate
from calibrator.lab.training.llm.adapters import go_on_from_adapter
from calibrator.lab.training.llm.config import LlmTrainConfig
from calibrator.lab.training.llm.processes import Processes
from calibrator.lab.training.llm.samples import (
    Samples,
    check_questions_apart,
    read_samples,
    sample_of,
    step_numbers,
)
from calibrator.lab.training.llm.states import last_states
from calibrator.lab.training.llm.train import train_llm
from calibrator.llm.serving.calibrator import LlmCalibrator
from calibrator.llm.serving.loading import ADAPTER, load_adapter, load_base
from calibrator.llm.serving.model import LabelModel
from calibrator.llm.serving.pixels import load_pixel_reader
from calibrator.llm.serving.probe import PROBE
from calibrator.llm.serving.prompts import load_prompts
from calibrator.metrics.metrics import auroc
from calibrator.rows.rows import parse_row
from calibrator.rows.selection import Selection
from pinocchio.commands import cli
from tests.builders.pictures import GREEN, RED, data_url, picture
from tests.builders.sums import sums, write_sums
from tests.builders.tiny_models import Family, OfFamily
from tests.running.live_proxy import free_port

ITEMS = [Item(f"Ann Bob {a}+1", str(n), "gpt") for a in (0, 1) for n in range(3)]


def silent(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sums(tmp_path_factory.mktemp("rows") / "sums.jsonl", 120)


@pytest.fixture(scope="module")
def config(tiny_bases: OfFamily, rows: Path) -> LlmTrainConfig:
    """Return a configuration of six steps on a vision base without images, which is fast."""
    return LlmTrainConfig(
        data=(str(rows),),
        name="tiny",
        base=str(tiny_bases("qwen3_vl")),
        is_text_only=True,
        selection=Selection(validation_share=0.25),
        epochs=2,
        learning_rate=3e-3,
        batch_rows=32,
        device="cpu",
    )


@pytest.fixture(scope="module")
def finished(config: LlmTrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of a run that nothing interrupted."""
    return train_llm(tmp_path_factory.mktemp("whole") / "run", config, silent)


def config_in(folder: Path) -> LlmConfig:
    found = read_config(folder)
    assert isinstance(found, LlmConfig)
    return found


def scores_of(folder: Path, items: list[Item] = ITEMS) -> list[float]:
    return [score.score for score in load_scorer(str(folder), "cpu").score_batch(items)]


def rule(config: LlmTrainConfig, folder: Path) -> LlmTrainConfig:
    """Return the configuration of a run that is long enough to learn to add.

    Names would only distract it. It is slow enough to learn addition from any start: at a rate of
    2e-3 and above, runs learn the questions by heart instead.
    """
    return replace(
        config,
        data=(str(write_sums(folder / "many.jsonl", 1_600)),),
        selection=Selection(validation_share=0.15),
        epochs=3,
        learning_rate=7e-4,
        batch_rows=16,
        dropout=0.0,
        model_dropout=1.0,
        benchmark_dropout=1.0,
        has_checkpointing=False,
    )


def held_out_auroc(checkpoint: Path, config: LlmTrainConfig) -> float:
    """Return the AUROC on the questions that the run did not train on."""
    held = read_samples(config).validation
    assert len({sample.question_id for sample in held}) > 8
    items = [replace(sample.item, source_model=None, benchmark=None) for sample in held]
    return auroc([sample.target for sample in held], scores_of(checkpoint, items))


@pytest.mark.slow
def test_the_loop_learns_a_rule(config: LlmTrainConfig, tmp_path: Path) -> None:
    """A run learns a rule and ranks answers to unseen questions by it (B05, B10)."""
    longer = rule(config, tmp_path)
    made = train_llm(tmp_path / "run", longer, silent)
    assert held_out_auroc(made, longer) >= 0.99
    assert config_in(made).quality["validation_plain"]["auroc"] >= 0.99


@pytest.mark.slow
def test_the_rule_is_learned_by_command_on_two_processes(
    config: LlmTrainConfig, tmp_path: Path
) -> None:
    """The command on two processes learns the rule too (gloo)."""
    longer = replace(rule(config, tmp_path), selection=Selection())
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("-m", "pinocchio", "train", *longer.data, "-o", str(tmp_path / "run")),
        *("--preset", "paper", "--base", longer.base, "--text-only"),
        *("--epochs", "3", "--learning-rate", "7e-4", "--set", "dropout=0"),
        *("--set", "checkpointing=0", "--set", "model_dropout=1"),
        *("--set", "benchmark_dropout=1"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert held_out_auroc(tmp_path / "run" / "checkpoint", longer) >= 0.99


def test_the_checkpoint_says_what_was_done(config: LlmTrainConfig, finished: Path) -> None:
    """The checkpoint has the paper's values, other settings and quality (B05, E01-E10)."""
    found = config_in(finished)
    assert (found.name, found.adapter and (found.adapter.rank, found.adapter.alpha)) == (
        "tiny",
        (32, 64),
    )
    facts = found.training
    assert LlmTrainConfig(data=()).learning_rate == 1e-4
    assert LlmTrainConfig(data=()).epochs == 3
    assert LlmTrainConfig(data=()).batch_rows == 16
    assert (facts["weight_decay"], facts["gradient_norm"], facts["dropout"]) == (0.01, 1.0, 0.05)
    assert facts["steps"] == 2 * -(-facts["rows"] // 32)
    assert facts["precision"] == {"base": "torch.float32", "adapter": "torch.float32"}
    assert 0.5 < facts["trainable_share"] < 1.5  # large, because the base is small
    assert len(facts["validation_losses"]) == 2
    assert found.source_models == ("gpt", "llama")
    assert found.benchmarks == ("sums",)
    assert found.recalibration is not None
    assert config.data[0] not in (finished / "calibrator.json").read_text()


def test_every_linear_layer_but_the_head_is_adapted(finished: Path, tiny_bases: OfFamily) -> None:
    """Every linear layer but the head is adapted, in language model and vision tower (B05)."""
    names = {name.rpartition(".lora_")[0] for name in load_file(finished / ADAPTER)}
    model = load_base(tiny_bases("qwen3_vl"), "image-text-to-text")
    linear = {name for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    assert names == {f"base_model.model.{name}" for name in linear - {"lm_head"}}
    assert any("visual" in name for name in names)


def test_the_adapter_scores_the_same_however_it_is_held(
    finished: Path, tiny_bases: OfFamily
) -> None:
    """The adapter scores the same to 1e-5 unmerged, merged, and after saving and loading."""
    known, base = config_in(finished), tiny_bases("qwen3_vl")
    prompts = load_prompts(known, base)
    model = load_base(base, known.architecture)
    assert known.adapter is not None
    load_adapter(model, finished, known.adapter)
    unmerged = LlmCalibrator(known, LabelModel(model, prompts.label_ids), prompts)
    apart = [score.score for score in unmerged.score_batch(ITEMS)]
    assert scores_of(finished) == pytest.approx(apart, abs=1e-5)
    assert len({round(score, 4) for score in apart}) > 1


def test_the_loss_is_that_of_the_answer_token(
    config: LlmTrainConfig, finished: Path, tiny_bases: OfFamily
) -> None:
    """The loss is the cross-entropy at the last position only (B10)."""
    run = run_of(finished, config, tiny_bases("qwen3_vl"))
    samples = read_samples(config).train[:4]
    prepared, _ = run.calibrator.rows([sample.item for sample in samples])
    found = run.loss(prepared, [sample.target for sample in samples])
    expected = 0.0
    for row, sample in zip(prepared, samples, strict=True):
        logits = run.calibrator.model.model(input_ids=torch.tensor([row.ids])).logits
        wanted = torch.tensor([run.calibrator.model.label_ids[sample.target]])
        expected += cross_entropy(logits[:, -1], wanted).item()
    assert found.item() == pytest.approx(expected, rel=1e-4)


def run_of(checkpoint: Path, config: LlmTrainConfig, base: Path) -> AdapterRun:
    """Return a run that begins with the adapter of a checkpoint."""
    known = config_in(checkpoint)
    prompts = load_prompts(known, base)
    model = load_base(base, known.architecture)
    assert known.adapter is not None
    adapted = go_on_from_adapter(model, checkpoint, known.adapter)
    reader = LlmCalibrator(known, LabelModel(model, prompts.label_ids), prompts)
    return AdapterRun(checkpoint, config, reader, adapted, Processes("cpu"), silent)


def test_a_run_that_was_interrupted_ends_with_the_same_scores(
    config: LlmTrainConfig, finished: Path, tmp_path: Path
) -> None:
    """An interrupted run ends with the same scores, with dropout too."""

    def stop(done: int, _total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_llm(tmp_path, config, silent, progress=stop, save_every_s=0)
    sentences: list[str] = []
    resumed = train_llm(tmp_path, config, sentences.append)
    assert "going on after 3 steps" in sentences
    assert scores_of(resumed) == pytest.approx(scores_of(finished), abs=1e-3)


KILLED = """
import json, os, signal, sys
from pathlib import Path
from calibrator.lab.training.llm.train import train_llm
from calibrator.lab.training.llm.config import LlmTrainConfig
from calibrator.rows.selection import Selection

given = json.loads(sys.argv[1])
given |= {"data": tuple(given["data"]), "selection": Selection(**given["selection"])}

def progress(done, total):
    if done == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

train_llm(Path(sys.argv[2]), LlmTrainConfig(**given), progress=progress, save_every_s=0)
"""


@pytest.mark.slow
def test_a_run_that_was_killed_at_every_step_ends_with_the_same_scores(
    config: LlmTrainConfig, finished: Path, tmp_path: Path
) -> None:
    """A run killed with SIGKILL after each step in turn ends with the same scores."""
    config_text = json.dumps(config.as_dict())
    steps = config_in(finished).training["steps"]
    for step in range(1, steps + 1):
        command = [sys.executable, "-c", KILLED, config_text, str(tmp_path), str(step)]
        killed = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = train_llm(tmp_path, config, silent)
    assert scores_of(resumed) == pytest.approx(scores_of(finished), abs=1e-3)


def on_two_processes(
    command: Sequence[str], folder: Path
) -> list[subprocess.CompletedProcess[str]]:
    """Run a command in two processes that are forked here, as `torchrun` would start them.

    They share what is imported already. The slow tests use `torchrun` itself.
    """
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    env |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    pids = []
    for rank in ("0", "1"):
        pid = os.fork()
        if pid == 0:
            _be_one_of_two(command, env | {"RANK": rank, "LOCAL_RANK": rank}, folder / rank)
        pids.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return [
        subprocess.CompletedProcess(command, status, "", (folder / rank).read_text())
        for rank, status in zip(("0", "1"), statuses, strict=True)
    ]


def _be_one_of_two(command: Sequence[str], env: dict[str, str], output: Path) -> NoReturn:
    status = 1
    try:
        os.environ.update(env)
        PartialState._reset_state()  # otherwise it would stay the only process
        result = CliRunner().invoke(cli, command)
        status = result.exit_code
        output.write_text(f"{result.stderr}{result.exception or ''}")
    finally:
        os._exit(status)


def test_two_processes_end_with_what_one_does(config: LlmTrainConfig, tmp_path: Path) -> None:
    """Two processes end with the scores of one: a step has sixteen rows in all (V13, gloo)."""
    data = write_sums(tmp_path / "few.jsonl", 60)
    command = [
        *("train", str(data), "-o", str(tmp_path / "two"), "--preset", "paper"),
        *("--base", config.base, "--text-only"),
        *("--epochs", "1", "--learning-rate", "1e-3", "--set", "dropout=0"),
    ]
    done = on_two_processes(command, tmp_path)
    assert [each.returncode for each in done] == [0, 0], done
    assert sum(each.stderr.count("the checkpoint is in") for each in done) == 1
    alone = LlmTrainConfig(
        data=(str(data),),
        base=config.base,
        is_text_only=True,
        epochs=1,
        learning_rate=1e-3,
        dropout=0.0,
        device="cpu",
    )
    one = train_llm(tmp_path / "one", alone, silent)
    two = tmp_path / "two" / "checkpoint"
    assert config_in(two).training["processes"] == 2
    assert scores_of(two) == pytest.approx(scores_of(one), abs=1e-4)


def test_what_a_run_says_is_in_words(
    config: LlmTrainConfig, finished: Path, tmp_path: Path
) -> None:
    """The output of a run has sentences and a table, and no Python dict."""
    again = tmp_path / "run"
    shutil.copytree(finished.parent, again)
    sentences: list[str] = []
    train_llm(again, config, sentences.append)
    whole = "\n".join(sentences)
    assert re.search(r"validation rows:\n  no names told +AUROC [01]\.\d{3}, Brier", whole)
    assert re.search(r"the adapter has \d+\.\d\d% as many weights as the base", whole)
    assert "{" not in whole


def test_a_folder_is_one_run(config: LlmTrainConfig, finished: Path) -> None:
    """Another configuration is refused in a folder with a run, which stays unchanged."""
    before = (finished / ADAPTER).read_bytes()
    with pytest.raises(TrainingError, match="another configuration"):
        train_llm(finished.parent, replace(config, learning_rate=1.0), silent)
    assert (finished / ADAPTER).read_bytes() == before


@pytest.mark.parametrize("elicitation", [pytest.param("probe", marks=pytest.mark.slow), "both"])
def test_a_probe_is_part_of_the_checkpoint(
    config: LlmTrainConfig, finished: Path, tmp_path: Path, elicitation: Any
) -> None:
    """A probe is fitted on the adapter's states, used for scores, and has a digest (K14)."""
    probed = replace(config, elicitation=elicitation, epochs=1, batch_rows=64)
    made = train_llm(tmp_path / "run", probed, silent)
    known = config_in(made)
    assert known.elicitation == elicitation
    scorer = load_scorer(str(made), "cpu")
    assert isinstance(scorer, LlmCalibrator)
    states, odds = last_states(scorer, ITEMS, 8_192)
    features = torch.cat([states, odds[:, None]], dim=1) if elicitation == "both" else states
    probe = load_file(made / PROBE)
    standard = (features - probe["mean"]) / probe["deviation"]
    units = torch.relu(standard @ probe["hidden_weight"].T + probe["hidden_bias"])
    expected = torch.sigmoid(units @ probe["out_weight"].T + probe["out_bias"])[:, 0]
    assert scores_of(made) == pytest.approx(expected.tolist(), abs=1e-5)
    assert scores_of(made) != pytest.approx(torch.sigmoid(odds).tolist(), abs=1e-3)
    (made / PROBE).unlink()
    with pytest.raises(CheckpointError, match="sha256 differs"):
        load_scorer(str(made), "cpu")


def test_a_checkpoint_is_gone_on_from(
    config: LlmTrainConfig, finished: Path, tmp_path: Path
) -> None:
    """Training continues from a checkpoint, with its prompt, base and rank (G06, A09)."""
    own = sums(60, seed=7)
    data = tmp_path / "own.jsonl"
    data.write_text("".join(json.dumps({**row, "model": "ours"}) + "\n" for row in own))
    tuned = replace(config, start=str(finished), base="", is_text_only=False, data=(str(data),))
    still = train_llm(tmp_path / "still", replace(tuned, learning_rate=0.0, epochs=1), silent)
    assert scores_of(still) == pytest.approx(scores_of(finished), abs=1e-6)
    moved = train_llm(tmp_path / "moved", replace(tuned, epochs=1), silent)
    assert scores_of(moved) != pytest.approx(scores_of(finished), abs=1e-4)
    was, now = config_in(finished), config_in(moved)
    assert (now.prompt, now.base, now.adapter) == (was.prompt, was.base, was.adapter)
    assert now.source_models == ("gpt", "llama", "ours")


def test_a_text_model_is_trained_as_one(tiny_bases: OfFamily, rows: Path, tmp_path: Path) -> None:
    """A hybrid base without vision is trained as a text model, by its config.json (E01)."""
    made = train_llm(
        tmp_path / "run",
        LlmTrainConfig(
            data=(str(rows),),
            base=str(tiny_bases("qwen3_5_text")),
            epochs=1,
            batch_rows=64,
            selection=Selection(validation_share=0.25),
            device="cpu",
        ),
        silent,
    )
    known = config_in(made)
    assert (known.architecture, known.images) == ("causal-lm", None)
    names = " ".join(load_file(made / ADAPTER))
    assert all(
        f".{layer}." in names for layer in ("in_proj_qkv", "out_proj", "q_proj", "down_proj")
    )
    assert len(set(scores_of(made))) > 1


def image_row(number: int, data: bytes | None) -> dict[str, Any]:
    row = {"question": f"{number}: is it red?", "response": "yes", "correct": number % 2}
    if data is None:
        return row
    return {**row, "images": [data_url(data)]}


@pytest.mark.parametrize("family", ["qwen3_5", pytest.param("qwen3_vl", marks=pytest.mark.slow)])
def test_images_are_trained_with(tiny_bases: OfFamily, tmp_path: Path, family: Family) -> None:
    """Rows with an image and with the placeholder train together (B06, F05, F06)."""
    images = [picture(colour=RED), picture(colour=GREEN), None]
    rows = [image_row(n, images[n % 3]) for n in range(12)]
    rows.append(image_row(13, picture(colour=RED)[:40]))
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sentences: list[str] = []
    made = train_llm(
        tmp_path / "run",
        LlmTrainConfig(
            data=(str(data),),
            base=str(tiny_bases(family)),
            selection=Selection(validation_share=0.3),
            epochs=1,
            learning_rate=1e-2,
            device="cpu",
        ),
        sentences.append,
    )
    known = config_in(made)
    assert any(line.startswith("1 rows are left out") for line in sentences)
    assert known.training["rows"] + known.quality["validation_plain"]["rows"] == 12
    assert known.images is not None
    state = load_file(made / ADAPTER)
    assert all(state[name].any() for name in state if "visual" in name and "lora_B" in name)
    same = [Item("is it red?", "yes", images=(picture(colour=each),)) for each in (RED, GREEN)]
    red, green = scores_of(made, same)
    assert red != pytest.approx(green, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_vl"])
def test_two_processes_train_images_like_one(
    tiny_bases: OfFamily, tmp_path: Path, family: Family
) -> None:
    """Rows with images end on two processes where one ends (B05, B06, V13, gloo)."""
    pictures = [picture(colour=RED), picture(colour=GREEN), None]
    data, base = tmp_path / "rows.jsonl", str(tiny_bases(family))
    data.write_text("".join(json.dumps(image_row(n, pictures[n % 3])) + "\n" for n in range(40)))
    options = ("--epochs", "2", "--learning-rate", "1e-3", "--set", "dropout=0")
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("-m", "pinocchio", "train", str(data), "-o", str(tmp_path / "two")),
        *("--preset", "paper", "--base", base, *options),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr[-2_000:]
    alone = LlmTrainConfig(
        data=(str(data),), base=base, epochs=2, learning_rate=1e-3, dropout=0.0, device="cpu"
    )
    one, two = train_llm(tmp_path / "one", alone, silent), tmp_path / "two" / "checkpoint"
    images = [(), *((picture(colour=each),) for each in (RED, GREEN))]
    items = [Item("is it red?", "yes", images=each) for each in images]
    found = scores_of(two, items)
    assert found == pytest.approx(scores_of(one, items), abs=1e-4)
    assert len({round(score, 6) for score in found}) == 3
    known = config_in(two)
    assert known.training["processes"] == 2
    assert known.adapter is not None
    model, prompts = load_base(tiny_bases(family), known.architecture), load_prompts(known, base)
    load_adapter(model, two, known.adapter)
    assert known.images is not None
    pixels = load_pixel_reader(known.images, base)
    unmerged = LlmCalibrator(known, LabelModel(model, prompts.label_ids), prompts, pixels)
    assert [each.score for each in unmerged.score_batch(items)] == pytest.approx(found, abs=1e-5)
    export_weights(str(two), tmp_path / "merged")
    assert scores_of(tmp_path / "merged", items) == pytest.approx(found, abs=1e-5)


def test_an_empty_answer_is_incorrect(rows: Path) -> None:
    """An empty answer is incorrect, whatever its label (D03)."""
    row = {"question": "2+2?", "response": " ", "correct": 1}
    assert sample_of(parse_row(row)).target == 0
    assert sample_of(parse_row({**row, "response": "I cannot say.", "correct": 0})).target == 0
    assert sample_of(parse_row({**row, "response": "4"})).target == 1


def test_no_question_is_on_both_sides(config: LlmTrainConfig) -> None:
    """All answers to a question are on one side (D04)."""
    found = read_samples(config)
    sides = [{sample.question_id for sample in side} for side in (found.train, found.validation)]
    assert not sides[0] & sides[1]
    with pytest.raises(TrainingError, match="trained on and validated on"):
        check_questions_apart(Samples(found.train, found.train[:1]))


def test_an_epoch_shows_every_row_once(config: LlmTrainConfig) -> None:
    """Each epoch has all rows in an order of its own (E04, E05)."""
    epochs = [
        [step_numbers(70, step, config) for step in range(start, start + 3)] for start in (0, 3)
    ]
    for steps in epochs:
        assert sorted(n for step in steps for n in step) == list(range(70))
        assert [len(step) for step in steps] == [32, 32, 6]
    assert epochs[0] != epochs[1]


def test_the_learning_rate_rises_and_falls() -> None:
    """The learning rate is 1e-4 after a short warm-up and next to nothing at the end (E02, E09)."""
    rates = [learning_rate(step, 1_000, LlmTrainConfig(data=())) for step in range(1_000)]
    assert max(rates) == rates[29] == pytest.approx(1e-4)
    assert rates == sorted(rates[:30]) + sorted(rates[30:], reverse=True)
    assert rates[-1] < 1e-8


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--base", "x", "--with", "forest"), "--with is not for language models"),
        (("--base", "x", "--set", "dropout=2"), "--set dropout takes a number from 0 to 0.9"),
        (("--base", "x", "--set", "batch_rows=1.5"), "takes a whole number from 1"),
        (("--base", "x", "--set", "max_tokens=99"), "--set knows batch_rows, micro_tokens"),
        (("--epochs", "2"), "--epochs is for language models"),
        (("--set", "dropout=0"), "--set knows max_tokens, addressed_share"),
        (("--with", "frost"), "there is no part 'frost'; there are: forest"),
        (("--preset", "none"), "there is no preset 'none'; there are: paper, released-0.8b"),
        (("--base", "x"), "there is no folder 'x'"),
        (("--start", "CHECKPOINT", "--preset", "paper"), "keeps its preset"),
        (("--start", "CHECKPOINT", "--base", "x"), "has its own base; leave out"),
    ],
)
def test_options_that_contradict_are_refused(
    rows: Path, finished: Path, tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    """Contradicting options give one sentence, status 2 and no folder."""
    words = [str(finished) if option == "CHECKPOINT" else option for option in options]
    out = str(tmp_path / "run")
    result = CliRunner().invoke(cli, ["train", str(rows), "-o", out, *words])
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_language_model_is_no_start_of_the_other_command(
    rows: Path, finished: Path, tmp_path: Path
) -> None:
    """`pinocchio train --with` refuses to start from a language model."""
    arguments = ["--start", str(finished), "--with", "inspector", "-o", str(tmp_path / "run")]
    result = CliRunner().invoke(cli, ["train", str(rows), *arguments])
    assert result.exit_code == 2
    assert "--with is not for language models" in result.stderr


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"start": "embedded", "base": ""}, "no language model"),
        ({"base": "/nowhere/to/be/found"}, "no folder"),
        ({"data": ("x__nc.jsonl",)}, "never trained on"),
    ],
)
def test_an_impossible_configuration_is_refused(
    config: LlmTrainConfig, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    """An impossible configuration is refused before anything is computed."""
    wrong = replace(config, is_text_only=False, **changes)
    with pytest.raises((TrainingError, CheckpointError), match=sentence):
        train_llm(tmp_path, wrong, silent)
