"""`pinocchio tune`: verdicts fine-tune the calibrator in use, or it says why not (A09, G06)."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibrator.checkpoints.checkpoint import read_config
from calibrator.errors import TrainingError
from calibrator.loading import load_scorer
from calibrator.rows.rows import parse_row
from calibrator.scorer import Item, Scorer
from calibrator.tuning.fine_tuning import TunableCheckpoint, TuningTrial
from calibrator.tuning.last_layer import fit_tuned
from proxy.learning.recalibrating import NotLearntError
from proxy.learning.tuning import TuningData, gather, learn_tuning
from proxy.store.database.verdicts import VerdictStore
from tests.builders.recorded_verdicts import label, record
from tests.builders.tiny_checkpoint import save_tiny
from tests.running.live_proxy import LiveProxy, run_cli, until

RIGHT = {"fine-a": 0.9, "fine-b": 0.2}  # two models that training never saw, one bad at this


def rows(count: int, seed: int, right: dict[str, float] = RIGHT) -> list[dict[str, Any]]:
    """Return questions of a deployment, whose correctness depends mostly on the model.

    One in eight asks for a fact, and is read by the
    part that knows some; that costs most of a score.
    """
    rng = random.Random(seed)
    found = []
    for n in range(count):
        model = rng.choice(sorted(right))
        a, b = rng.randint(100, 999), rng.randint(100, 999)
        text = f"what do {a} and {b} come to?" if n % 8 == 0 else f"add {a} to {b}."
        found.append(
            {
                "question": f"Order {seed}-{n}: {text}",
                "response": f"They come to {a + b + rng.choice([0, 1, 10])}.",
                "model": model,
                "correct": int(rng.random() < right[model]),
            }
        )
    return found


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return load_scorer("embedded")


@pytest.fixture(scope="module")
def start() -> TunableCheckpoint:
    return TunableCheckpoint("embedded")


class Deployment:
    """A folder with a configuration and a store."""

    def __init__(self, folder: Path, scorer: Scorer, calibrator: str = "embedded") -> None:
        self.folder, self.scorer = folder, scorer
        self.url = f"sqlite:///{folder}/store.db"
        self.config = folder / "proxy.yaml"
        self.config.write_text(f"calibrator: {{checkpoint: {calibrator}}}\nstore: {self.url}\n")

    def live(self, made: list[dict[str, Any]], **options: Any) -> None:
        label(self.url, record(self.url, made, self.scorer, **options), made)

    def run(self, *arguments: str) -> Any:
        return run_cli("tune", "--config", str(self.config), *arguments)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, scorer: Scorer) -> Deployment:
    """Store 300 labelled replies, each a tenth of the traffic."""
    found = Deployment(tmp_path_factory.mktemp("deployment"), scorer)
    found.live(rows(300, 1), share=0.1)
    return found


@pytest.fixture(scope="module")
def tuned(deployment: Deployment) -> Path:
    """Return the folder that the command writes from the deployment's records."""
    folder = deployment.folder / "tuned"
    done = deployment.run("-o", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "written to" in done.stdout
    assert "restart" in done.stdout
    return folder


@pytest.fixture(scope="module")
def found(deployment: Deployment, start: TunableCheckpoint) -> TuningData:
    return gathered(deployment.url, start)


@pytest.fixture(scope="module")
def learnt(found: TuningData) -> TuningTrial:
    return learn_tuning(found)


def gathered(url: str, start: TunableCheckpoint, **options: Any) -> TuningData:
    findings = VerdictStore(url)
    try:
        return gather(findings.engine, 0.0, start, **options)
    finally:
        findings.close()


def test_it_ranks_what_it_did_not_see_better(tuned: Path, scorer: Scorer) -> None:
    """On new questions of the same deployment the tuned checkpoint ranks right above
    wrong, which the shipped one does not, and its scores are those of the trial.
    """
    from calibrator.metrics.metrics import auroc
    from calibrator.rows.scores import score_rows

    new = [parse_row(row) for row in rows(250, 2)]
    y = [row.correct for row in new]
    before, after = (
        auroc(y, score_rows(one, new).confidence) for one in (scorer, load_scorer(str(tuned)))
    )
    assert before < 0.65
    assert after > 0.75


def test_what_is_written_is_an_ordinary_checkpoint(tuned: Path, start: TunableCheckpoint) -> None:
    """The result is another version of the same name,
    with its labels noted; it can be tuned again.
    """
    config = read_config(tuned)
    note = config.training["tuned"]
    assert config.version != start.version
    assert config.name == start.config.name
    assert note["from"] == start.version
    assert note["store"]["labels"] == 300
    assert len(note["store"]["labels_sha256"]) == 64
    assert config.source_models == start.config.source_models
    assert config.quality["verdicts"]["rows"] == 300
    assert TunableCheckpoint(str(tuned)).version == config.version


def test_the_weights_are_what_the_fit_says(
    tuned: Path, found: TuningData, learnt: TuningTrial
) -> None:
    """The written checkpoint scores as the fitted layer does, except for rounding."""
    assert found.read is not None
    fitted = learnt.tuned.confidence(found.read)
    items = [parse_row(row).item("served") for row in rows(300, 1)]
    served = [score.confidence for score in load_scorer(str(tuned)).score_batch(items)]
    assert served == pytest.approx(fitted.tolist(), abs=1e-4)


def test_what_shipped_stays_as_it_was(tuned: Path, start: TunableCheckpoint) -> None:
    """Tuning adds a layer and a centre of familiarity, and changes no other array."""
    for name, added in (("model", "familiarity.centroids"), ("evidence", "tuned.0.")):
        before, after = (
            load_file(folder / f"{name}.safetensors") for folder in (start.folder, tuned)
        )
        changed = {
            key
            for key, array in after.items()
            if key not in before or not np.array_equal(before[key], array)
        }
        assert changed
        assert all(key.startswith(added) for key in changed)
        assert before.keys() <= after.keys()


def test_models_have_biases_of_their_own(learnt: TuningTrial) -> None:
    """Models that training never saw are distinguished by their labels."""
    assert set(learnt.tuned.models) == set(RIGHT)
    assert learnt.tuned.models["fine-a"] > learnt.tuned.models["fine-b"] + 0.5


def test_a_computed_result_is_not_overruled(tuned: Path, scorer: Scorer) -> None:
    """Labels of other replies do not lower a computed result."""
    items = [Item("What is 17 * 23?", answer, "fine-b") for answer in ("391", "It is 401.")]
    before, after = (one.score_batch(items) for one in (scorer, load_scorer(str(tuned))))
    assert [each.basis for each in before] == [("computed",)] * 2
    assert [each.confidence for each in after] == [each.confidence for each in before]


def test_a_tuned_checkpoint_is_tuned_again(tuned: Path, tmp_path: Path) -> None:
    """A second layer is added over the first one, and scores are those of both."""
    again = TunableCheckpoint(str(tuned))
    made = [parse_row(row) for row in rows(120, 9, {"fine-a": 0.3, "fine-b": 0.8})]
    found = again.read_rows(made)
    layer = fit_tuned(found)
    again.write(tmp_path / "twice", layer, {}, {})
    served = load_scorer(str(tmp_path / "twice")).score_batch([r.item("served") for r in made])
    expected = layer.confidence(found.read).tolist()
    assert [each.confidence for each in served] == pytest.approx(expected, abs=1e-4)
    assert layer.models["fine-b"] > layer.models["fine-a"]


def test_the_same_verdicts_give_the_same_file(
    tuned: Path, found: TuningData, start: TunableCheckpoint, tmp_path: Path
) -> None:
    """The same verdicts give the same file, byte for byte."""
    again = start.write(tmp_path / "again", fit_tuned(found.readings()), {}, {})
    assert again.version == read_config(tuned).version


def test_evaluate_reads_it(tuned: Path, tmp_path: Path) -> None:
    """`pinocchio evaluate --calibrator FOLDER` evaluates the result like any calibrator."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(60, 3)))
    done = run_cli("evaluate", str(file), "--calibrator", str(tuned), "--json")
    assert done.returncode == 0, done.stderr
    assert "auroc" in done.stdout


def test_where_a_recalibration_does_as_well_nothing_is_written(
    tmp_path: Path, scorer: Scorer
) -> None:
    """Labels that only show how often replies are right change no weights;
    the message names the command that is enough, with exit status 3.
    """
    deployment = Deployment(tmp_path, scorer)
    deployment.live(rows(250, 4, {"fine-a": 0.93}))
    done = deployment.run("-o", str(tmp_path / "tuned"))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "pinocchio recalibrate --from-store" in done.stdout
    assert not (tmp_path / "tuned").exists()


def test_it_is_compared_with_what_counts_now_and_with_a_recalibration(learnt: TuningTrial) -> None:
    """On unseen verdicts tuning must beat both the current number and a recalibration."""
    assert learnt.is_better
    assert learnt.now.after.auroc > learnt.now.before.auroc + 0.1
    assert learnt.now.evidence > 20
    assert learnt.beside.evidence > 20
    assert learnt.recalibration.after.log_loss > learnt.now.after.log_loss
    assert json.loads(json.dumps(learnt.as_dict()))["beside"]["is_better"]


def test_verdicts_of_a_real_proxy_are_read_as_they_were_scored(
    start_proxy: Any, scorer: Scorer, start: TunableCheckpoint
) -> None:
    """The audit's texts of replies and streams are scored as the proxy had scored them."""
    proxy: LiveProxy = start_proxy(calibrator={"checkpoint": "embedded"}, audit={"share": 1.0})
    for n in range(4):
        answer = proxy.ask(f"The answer to {n} is {n + 1}")
        assert answer.headers["x-pinocchio-confidence-status"] == "scored"
    streamed = proxy.ask("The answer is a stream", stream=True)
    assert streamed.status_code == 200
    ids = [answer.headers["x-pinocchio-request-id"], streamed.headers["x-pinocchio-request-id"]]
    until(lambda: _kept(proxy, ids) == 2, within_s=30)
    findings = VerdictStore(proxy.config.store)
    for id in ids:
        findings.give_verdict(id, True, "ann")
    findings.close()
    found = gathered(proxy.config.store, start)
    assert len(found.labels.replies) == 2
    assert found.left_out.changed == found.left_out.unreadable == 0


OFFICE = "Answer from this text only.\n\nThe Fenwick office opens at nine and closes at five."


@pytest.mark.parametrize(
    ("system", "question", "answer", "basis"),
    [
        ("", "What is 17 * 23?", "391", "computed"),
        ("", "What is 17 * 23?", "It is 401.", "computed"),
        (OFFICE, "When does the Fenwick office close?", "It closes at five.", "context"),
        (OFFICE, "When does the Fenwick office close?", "It closes at eight.", "context"),
        ("", "Why is the sky blue?", "Blue light is scattered more by air.", "likeness"),
    ],
)
def test_a_reply_is_read_as_it_is_scored_whatever_decided(
    system: str, question: str, answer: str, basis: str, scorer: Scorer, start: TunableCheckpoint
) -> None:
    """Computations and contexts count for labels as they count when serving."""
    messages = [{"role": "system", "content": system}] * bool(system)
    messages.append({"role": "user", "content": question})
    row = parse_row({"messages": messages, "response": answer, "model": "m", "correct": 1})
    item = row.item("served")
    (score,) = scorer.score_batch([item])
    assert score.basis == (basis,)
    assert start.read([item]).confidence.tolist() == pytest.approx([score.confidence], abs=1e-6)


def _kept(proxy: LiveProxy, ids: list[str]) -> int:
    """Return how many of the requests are recorded, with what the audit drew of them."""
    query = "SELECT count(*) FROM exchanges JOIN held_replies USING (request_id)"
    query += " WHERE request_id IN (?, ?)"
    with closing(sqlite3.connect(proxy.store_path)) as connection:
        count: int = connection.execute(query, ids).fetchone()[0]
    return count


def test_postgresql_is_read_alike(store_url: str, scorer: Scorer, start: TunableCheckpoint) -> None:
    """The same verdicts give the same labels on both databases, in the order of time."""
    made = rows(30, 5)
    label(store_url, record(store_url, made, scorer), made)
    found = gathered(store_url, start)
    assert [int(each.is_correct) for each in found.labels.replies] == [r["correct"] for r in made]
    assert found.readings().read.odds.shape == (30,)


@pytest.mark.parametrize(
    ("made", "options", "sentence"),
    [
        ([], {}, "0 labelled replies with content are too few .* 100 more, and 500 are better"),
        (rows(60, 6), {}, "60 labelled replies with content are too few .* 40 more"),
        (rows(110, 6, {"m": 1.0}), {}, "all 110 labelled replies are correct"),
        (rows(110, 6), {"kind": "hold"}, "labels are of held replies"),
    ],
)
def test_verdicts_that_do_not_allow_it_are_refused(
    made: list[dict[str, Any]],
    options: dict[str, Any],
    sentence: str,
    tmp_path: Path,
    scorer: Scorer,
    start: TunableCheckpoint,
) -> None:
    """Insufficient verdicts are refused with how many are missing, or the other reason."""
    url = f"sqlite:///{tmp_path}/store.db"
    VerdictStore(url).close()
    if made:
        label(url, record(url, made, scorer, **options), made)
    else:
        record(url, rows(1, 1), scorer)
    with pytest.raises(NotLearntError, match=sentence):
        learn_tuning(gathered(url, start))


def test_content_that_is_gone_and_other_versions_are_counted(
    tmp_path: Path, scorer: Scorer, start: TunableCheckpoint
) -> None:
    """The refusal says how many labels lack their content and
    which setting keeps it, and whose confidences the others are.
    """
    deployment = Deployment(tmp_path, scorer)
    deployment.live(rows(20, 7))
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute(
            "UPDATE held_replies SET reply = x'', request = NULL WHERE rowid % 2 = 0"
        )
        connection.execute("UPDATE exchanges SET calibrator = 'old@1' WHERE rowid % 4 = 1")
    output = gathered(deployment.url, start)
    assert output.left_out.without_content == 10
    assert output.left_out.versions == {"old@1": 5}
    with pytest.raises(NotLearntError, match=r"keep_content_days.*old@1, another version"):
        learn_tuning(output)


def test_a_reply_that_scores_otherwise_now_is_left_out(
    tmp_path: Path, scorer: Scorer, start: TunableCheckpoint
) -> None:
    """A reply whose score differs now is left out, as its stored text is not what was scored."""
    deployment = Deployment(tmp_path, scorer)
    deployment.live(rows(8, 8))
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE exchanges SET confidence = 0.999 WHERE rowid <= 3")
    assert gathered(deployment.url, start).left_out.changed == 3


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    (folder / "calibrator.json").write_text(json.dumps({"preset": "paper", "base": "x/y"}))
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    return folder


def test_other_calibrators_are_told_their_way(language_model: Path, tmp_path: Path) -> None:
    """A language model, a calibrator without evidence and a fake are refused with a reason."""
    with pytest.raises(TrainingError, match=r"pinocchio train .* --start"):
        TunableCheckpoint(str(language_model))
    with pytest.raises(TrainingError, match=r"has no evidence\.safetensors"):
        TunableCheckpoint(str(save_tiny(tmp_path / "tiny")))
    with pytest.raises(TrainingError, match="no calibrator that could be trained"):
        TunableCheckpoint("fake:0.5")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "say where to write with -o"),
        (["--dry-run"], "there is no record"),
        (["--dry-run", "--since", "soon"], "--since must be a duration"),
    ],
)
def test_a_command_that_cannot_be_carried_out_says_why(
    arguments: list[str], sentence: str, tmp_path: Path, scorer: Scorer
) -> None:
    """An impossible command gives one sentence and an exit status, without a traceback."""
    done = Deployment(tmp_path, scorer).run(*arguments)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_scores_from_elsewhere_need_their_checkpoint_named(tmp_path: Path) -> None:
    """For scores of a remote engine whose checkpoint is not configured, the command asks for it."""
    config = tmp_path / "proxy.yaml"
    engine = "{kind: scorer, base_url: 'http://127.0.0.1:9'}"
    config.write_text(f"calibrator: {{engine: {engine}}}\nstore: sqlite:///{tmp_path}/store.db\n")
    done = run_cli("tune", "--config", str(config), "--dry-run")
    assert done.returncode == 2
    assert "say which checkpoint that is: --calibrator" in done.stderr


def test_a_folder_with_something_in_it_is_left_alone(
    deployment: Deployment, tmp_path: Path
) -> None:
    """A folder with files in it is left alone."""
    (tmp_path / "mine.txt").write_text("mine")
    done = deployment.run("-o", str(tmp_path))
    assert done.returncode == 2
    assert "is not an empty folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_labelled_rows_of_a_file_teach_as_verdicts_do(tmp_path: Path) -> None:
    """`tune FILE` needs no store; a row that cannot be read is named and left out."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(200, 1)) + "{broken\n")
    options = (str(file), "--calibrator", "embedded", "-o", str(tmp_path / "tuned"))
    done = run_cli("tune", *options, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    body = json.loads(done.stdout)
    assert body["is_better"]
    assert "not JSON" in body["left_out"][0]
    assert read_config(tmp_path / "tuned").training["tuned"]["rows"]["labels"] == 200


def test_options_for_verdicts_are_refused_where_rows_teach(tmp_path: Path) -> None:
    """Options for verdicts are refused with rows, with status 2 and before anything is read."""
    done = run_cli("tune", "rows.jsonl", "--since", "9d", "-o", str(tmp_path / "tuned"))
    assert done.returncode == 2
    assert "--since is for verdicts of the store, not for FILES; leave one out" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("certify r.jsonl --max-error 0.1 --since 9d", "--since is for the store"),
        ("certify --from-store --max-error 0.1 --calibrator x", "--calibrator is for FILES"),
        ("certify r.jsonl --max-error 0.1 --splits 9 -o c.json", "--output names a certificate"),
        ("replay --policies observe --rows r.jsonl --config x.yaml", "--config is for --since"),
        ("replay --policies observe --since 9d --calibrator x", "--calibrator is for --rows"),
        ("recalibrate r.jsonl -o r.json --held-only", "--held-only is for verdicts"),
        ("recalibrate --from-store --study model", "--study is for labelled FILES"),
        ("recalibrate --history --by model", "--by is for fitting"),
        ("score r.jsonl --actors 2", "--actors is for Ray"),
        ("score r.jsonl --engine ray --rescore", "--rescore is for one process"),
        ("serve --scorer-only --policy agent-tools", "--policy is for the proxy"),
        ("label req_1 wrong --since 9d", "--since is for --fetch"),
        ("label --fetch --as ann", "--as is not for --fetch"),
        ("report agreement --reset", "--reset is for drift"),
        ("report drift --since 9d", "--since is for estimate and agreement"),
        ("reviews list --standing --limit 9", "--limit is for replies"),
        ("labels r.jsonl --audit --strict", "--strict is for the survey"),
    ],
)
def test_options_that_would_change_nothing_are_refused(arguments: str, sentence: str) -> None:
    """An option that a command would not use is refused with a sentence."""
    done = run_cli(*arguments.split())
    assert done.returncode == 2
    assert done.stderr.startswith(f"pinocchio: {sentence}")


def test_options_that_nobody_has_are_refused_as_ever(tmp_path: Path) -> None:
    """A misspelt option is refused as for any command."""
    done = run_cli("train", "rows.jsonl", "-o", str(tmp_path / "run"), "--frost")
    assert done.returncode == 2
    assert "No such option: --frost" in done.stderr
