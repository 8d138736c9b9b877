"""Tower, inspector and trees for calls in one checkpoint: trained, read, scored (G02, L04)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from threadpoolctl import threadpool_limits

from calibrator import Item, ToolUse, load_scorer
from calibrator.checkpoints.checkpoint import read_config
from calibrator.embedded.calibrator import EmbeddedCalibrator
from calibrator.errors import TrainingError
from calibrator.lab.data.calls.domains import DOMAINS
from calibrator.lab.data.calls.worlds import scenes
from calibrator.lab.training import train as training
from calibrator.lab.training.fits.calls import CallConfig
from calibrator.lab.training.fits.inspection.config import InspectorConfig
from calibrator.lab.training.fits.knowledge.lessons import KnowledgeConfig
from calibrator.lab.training.run import TrainConfig
from calibrator.lab.training.stages.tower import TowerConfig
from calibrator.lab.training.train import train
from calibrator.rows.selection import Selection
from calibrator.text.word_pieces import Layout

THINGS = ("apples", "bricks", "candles", "drums", "engines", "flutes", "gloves", "hammers")
OFF_TOPIC = "The choir rehearses on Mondays, and the hall is heated."

PARTS = {"inspector", "knowledge", "calls"}


def write_rows(path: Path) -> Path:
    """Write sums with their working, right and wrong, and an agent's calls; return the path."""
    with path.open("w") as stream:
        for n in range(160):
            thing, first, second = THINGS[n % 8], 11 + 7 * n % 83, 12 + 5 * n % 71
            total = first + second + (n % 4 == 3)
            row = {
                "question_id": f"sum {n}",
                "benchmark": "shelves",
                "question": f"Shelf {n} has {first} {thing} and gets {second} more. How many?",
                "response": f"Shelf {n} had {first} {thing}. With {second} more that makes "
                f"{first} + {second} = {total} {thing}. The answer is {total}.",
                "correct": int(n % 4 != 3),
            }
            stream.write(json.dumps(row) + "\n")
        for scene in scenes(60, 5, DOMAINS[:4]):
            row = {
                "question_id": scene.group,
                "benchmark": "scenes",
                "messages": scene.used.messages,
                "tools": scene.used.tools,
                "response": scene.used.message,
                "correct": scene.correct,
            }
            stream.write(json.dumps(row) + "\n")
    return path


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    return TrainConfig(
        data=(str(write_rows(tmp_path_factory.mktemp("data") / "rows.jsonl")),),
        selection=Selection(validation_share=0.2),
        tower=TowerConfig(members=1, folds=2, batch=64),
        has_inspector=True,
        has_knowledge=True,
        has_calls=True,
        knowledge=KnowledgeConfig(layers=1, members=1, width=8, steps=5, own_pairs=60),
        inspector=InspectorConfig(
            irrelevant_rows=90, faulty_rows=90, trees=40, leaf_rows=10, width=8, plain_weight=0.1,
            symbolic_tasks=60, priors=(1.0, 3.0, 2.0, 5.0),
        ),
        calls=CallConfig(
            trees=20, learning_rate=0.3, leaf_rows=10, fits=1, folds=2, scenes=30, faults=1,
            remarks=60, claim_trees=10,
        ),
        layout=Layout(max_tokens=192),
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    vectors = np.random.default_rng(9).normal(size=(30_522, 16)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch, threadpool_limits(1):
        patch.setattr(training, "piece_vectors", lambda _: vectors)
        return train(tmp_path_factory.mktemp("run") / "run", config, lambda _: None)


@pytest.fixture(scope="module")
def scorer(made: Path) -> EmbeddedCalibrator:
    found = load_scorer(str(made), "cpu")
    assert isinstance(found, EmbeddedCalibrator)
    return found


def test_a_text_counts_as_much_as_it_is_in_order(scorer: EmbeddedCalibrator) -> None:
    """A text's confidence is P(right | in order) x P(in order), and one off topic has a reason."""
    question = "Shelf 7 has 31 drums and gets 12 more. How many?"
    own = "Shelf 7 had 31 drums. With 12 more that makes 31 + 12 = 43 drums. The answer is 43."
    items = [Item(question, own), Item(question, OFF_TOPIC)]
    right, off = scorer.score_batch(items)
    read = scorer.read_texts(items)
    plain = scorer.confidence(read) / read.in_order
    assert off.confidence == pytest.approx(plain[1] * read.in_order[1])
    assert off.confidence < 0.5 * right.confidence
    assert off.because == ("it does not answer the question",)
    assert right.because == ()


def test_a_call_is_judged_by_the_trees_for_calls(scorer: EmbeddedCalibrator) -> None:
    """A call is scored by the trees for calls alone, the same in a batch."""
    assert scorer.reads_tool_use
    (scene, *_) = scenes(1, 11, DOMAINS[:4])
    call = Item("ignored", "ignored", tool_use=scene.used)
    text = Item("Shelf 1 has 2 drums and gets 3 more. How many?", "The answer is 5.")
    alone = [scorer.score_batch([item])[0] for item in (call, text)]
    assert scorer.score_batch([call, text]) == alone
    assert scorer.parts.calls is not None
    odds = scorer.parts.calls.odds([scene.used], [None])
    assert alone[0].confidence == pytest.approx(1 / (1 + np.exp(-odds[0])))
    assert scorer.score_batch([Item("other", "other", tool_use=scene.used)]) == alone[:1]


def test_an_agents_claim_lowers_what_its_text_scores(scorer: EmbeddedCalibrator) -> None:
    """A message in a conversation with tools is multiplied by P(its claims are true)."""
    (scene, *_) = scenes(1, 12, DOMAINS[:4])
    message = {"role": "assistant", "content": "Done, it has been cancelled."}
    used = ToolUse([*scene.used.messages, {"role": "user", "content": "Cancel it."}],
                   scene.used.tools, message)  # fmt: skip
    plain, agent = Item("Cancel it.", message["content"]), Item("Cancel it.", message["content"])
    agent.tool_use = used
    assert scorer.parts.calls is not None
    honest = 1 / (1 + np.exp(-scorer.parts.calls.claim_odds([used])[0]))
    without, with_tools = (scorer.score_batch([item])[0].confidence for item in (plain, agent))
    assert with_tools == pytest.approx(without * honest)
    assert honest < 1


def test_rows_that_call_tools_teach_the_trees_for_calls_alone(
    scorer: EmbeddedCalibrator, made: Path
) -> None:
    """Rows that call tools teach only the trees for calls."""
    assert scorer.config.benchmarks == ("shelves",)
    assert read_config(made).training["has_calls"] is True


def test_each_part_is_fitted_once(
    config: TrainConfig, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that continues does not fit its parts again and gives the same checkpoint."""
    before = read_config(made)

    def fail(*_: object) -> None:
        raise AssertionError("it is fitted already")

    monkeypatch.setattr(training, "fit_inspector", fail)
    monkeypatch.setattr(training, "fit_knowledge", fail)
    monkeypatch.setattr(training, "fit_calls", fail)
    with threadpool_limits(1):  # another order of additions gives another last bit
        again = train(made.parent, config, lambda _: None)
    assert read_config(again) == before


def test_parts_are_added_to_a_checkpoint(
    config: TrainConfig, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--start` keeps tower, curve and familiarity, and notes their origin.

    Without a part to add it is refused.
    """
    bare = replace(config, has_inspector=False, has_knowledge=False, has_calls=False)
    start = train(tmp_path / "bare", bare, lambda _: None)
    fitted = {name: (made.parent / f"{name}.npz") for name in PARTS}
    more = tmp_path / "more"
    more.mkdir()
    for name, path in fitted.items():
        (more / f"{name}.npz").write_bytes(path.read_bytes())
    extended = train(more, replace(config, start=str(start)), lambda _: None)
    old, new = load_file(start / "model.safetensors"), load_file(extended / "model.safetensors")
    assert all(np.array_equal(new[name], old[name]) for name in old)
    assert {name.partition(".")[0] for name in new.keys() - old.keys()} == PARTS
    found = read_config(extended)
    assert found.recalibration == read_config(start).recalibration
    assert found.training["extended_from"] == read_config(start).version
    with pytest.raises(TrainingError, match="ask for one"):
        train(tmp_path / "none", replace(bare, start=str(start)), lambda _: None)


def test_calls_alone_teach_no_tower(config: TrainConfig, tmp_path: Path) -> None:
    """A file of calls only is refused."""
    lines = Path(config.data[0]).read_text().splitlines()
    path = tmp_path / "calls.jsonl"
    path.write_text("\n".join(line for line in lines if '"tools"' in line))
    with pytest.raises(TrainingError, match="a tower learns from texts"):
        train(tmp_path / "run", replace(config, data=(str(path),)), lambda _: None)
