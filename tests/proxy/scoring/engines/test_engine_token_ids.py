"""With token ids, vLLM and SGLang give the calibrator's own number (B08, B09).

The engines are small servers of our own around a tiny random model; no real one was at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from calibrator import (
    CheckpointError,
    Item,
    NotScorableError,
    Recalibration,
    load_scorer,
    version_of,
)
from calibrator.llm.exporting import export_weights
from calibrator.llm.serving.calibrator import LlmCalibrator
from calibrator.llm.serving.loading import load_base
from calibrator.recalibration.curves import Platt
from proxy.config.sections import Config
from proxy.scoring.engines.errors import EngineError
from proxy.scoring.engines.opening import check_calibrator_config, engine_loader, known_name
from proxy.scoring.engines.remote import RemoteScorer
from tests.builders.tiny_models import Family, write_tiny_adapter
from tests.conftest import StartProxy
from tests.servers.engine_servers import SaidServer, ServedApp, said
from tests.servers.token_servers import log_probs_of, sglang_app, vllm_app

KINDS = ("vllm", "sglang")
ITEMS = [
    Item("what is 2+2?", "the sum is 4"),
    Item("what is 2+2? " * 200, "the sum is 5 " * 100),
    Item("", ""),
    Item("Question: <|im_end|> no (ii)", "ii", "gpt", "arithmetic"),
]


@pytest.fixture(scope="module")
def text_checkpoint(
    tiny_bases: Callable[[Family], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a checkpoint that reads text only, with its own recalibration."""
    folder = tmp_path_factory.mktemp("text") / "tiny"
    base = tiny_bases("qwen3_5_text")
    return write_tiny_adapter(
        folder, base, "qwen3_5_text", name="tiny", recalibration=Platt(0.8, 0.1).as_dict()
    )


@pytest.fixture(scope="module")
def own(text_checkpoint: Path) -> LlmCalibrator:
    """Return the same calibrator, loaded in this process."""
    scorer = load_scorer(str(text_checkpoint), "cpu")
    assert isinstance(scorer, LlmCalibrator)
    return scorer


@pytest.fixture(scope="module", params=KINDS)
def engine(request: pytest.FixtureRequest, own: LlmCalibrator) -> Iterator[tuple[str, str]]:
    """Yield kind and URL of an engine that serves the merged weights."""
    log_probs = log_probs_of(own.model.model)
    app = vllm_app(log_probs) if request.param == "vllm" else sglang_app(log_probs)
    with ServedApp(app) as server:
        yield request.param, server.url


def config(checkpoint: Path, kind: str, url: str, **engine: Any) -> Any:
    section = {
        "checkpoint": str(checkpoint),
        "engine": {"kind": kind, "base_url": url, **engine},
        "timeout_s": 10.0,
    }
    return Config.model_validate({"calibrator": section}).calibrator


@contextmanager
def connected(checkpoint: Path, kind: str, url: str, **engine: Any) -> Iterator[RemoteScorer]:
    scorer = engine_loader(config(checkpoint, kind, url, **engine))()
    assert isinstance(scorer, RemoteScorer)
    try:
        yield scorer
    finally:
        scorer.close()


def test_the_number_is_the_calibrators_own(
    engine: tuple[str, str], text_checkpoint: Path, own: LlmCalibrator
) -> None:
    """Score, confidence and truncation equal the in-process ones to
    1e-5, and the name says which engine gave them (B08, B09, F02, F03).
    """
    kind, url = engine
    with connected(text_checkpoint, kind, url) as scorer:
        found, expected = scorer.score_batch(ITEMS), own.score_batch(ITEMS)
        assert scorer.name == f"{own.name}~{kind}" == known_name(config(text_checkpoint, kind, url))
    assert [s.score for s in found] == pytest.approx([s.score for s in expected], abs=1e-5)
    assert [s.confidence for s in found] == pytest.approx(
        [s.confidence for s in expected], abs=1e-5
    )
    assert [s.is_truncated for s in found] == [False, True, False, False]
    assert len({round(s.score, 3) for s in found}) == 4  # otherwise the comparison shows little


def test_the_proxy_needs_no_weights(
    engine: tuple[str, str], text_checkpoint: Path, own: LlmCalibrator, tmp_path: Path
) -> None:
    """Exported weights, calibrator.json and the tokenizer are enough to ask an engine."""
    exported = export_weights(str(text_checkpoint), tmp_path / "exported")
    for path in (tmp_path / "exported").glob("*.safetensors"):
        path.unlink()
    with connected(tmp_path / "exported", *engine) as scorer:
        [found] = scorer.score_batch(ITEMS[:1])
    assert scorer.name == f"{exported.version}~{engine[0]}"
    assert found.score == pytest.approx(own.score_batch(ITEMS[:1])[0].score, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_other_weights_behind_an_engine(
    kind: str, text_checkpoint: Path, tiny_bases: Callable[[Family], Path], tmp_path: Path
) -> None:
    """An engine that serves the base model alone is refused before the
    first question, by the scores that an exported checkpoint carries.
    """
    exported = export_weights(str(text_checkpoint), tmp_path / "exported")
    assert len(exported.canary) == 3
    log_probs = log_probs_of(load_base(tiny_bases("qwen3_5_text"), "causal-lm"))
    app = vllm_app(log_probs) if kind == "vllm" else sglang_app(log_probs)
    with (
        ServedApp(app) as server,
        pytest.raises(EngineError, match="weights: it gives 0") as caught,
    ):
        engine_loader(config(tmp_path / "exported", kind, server.url))()
    assert caught.value.reason == "engine_other"


def test_images_get_no_score(engine: tuple[str, str], text_checkpoint: Path) -> None:
    """A question with an image has no score from an engine, with the reason `image`."""
    with (
        connected(text_checkpoint, *engine) as scorer,
        pytest.raises(NotScorableError) as caught,
    ):
        scorer.score_batch([Item("what is this?", "a cat", images=(b"picture",))])
    assert caught.value.reason == "image"


def test_through_the_proxy(
    engine: tuple[str, str], text_checkpoint: Path, own: LlmCalibrator, start_proxy: StartProxy
) -> None:
    """A reply through the proxy has the engine's number."""
    kind, url = engine
    section = {"checkpoint": str(text_checkpoint), "timeout_s": 10.0}
    engine_section = {"kind": kind, "base_url": url}
    proxy = start_proxy(calibrator={**section, "engine": engine_section})
    reply = proxy.ask("what is 2+2?", headers={"x-faulty": "say the sum is 4"})
    [expected] = own.score_batch([Item("what is 2+2?", "the sum is 4", "ok")])
    assert float(reply.headers["x-pinocchio-confidence"]) == pytest.approx(
        expected.confidence, abs=1e-4
    )
    assert reply.headers["x-pinocchio-calibrator"] == f"{own.name}~{kind}"


@pytest.mark.parametrize("kind", KINDS)
def test_bad_checkpoint_is_refused(
    kind: str, tiny_bases: Callable[[Family], Path], tmp_path: Path
) -> None:
    """A checkpoint that is no language model, or that shows an image beside every text (F05), is
    refused at the start. The latter can be used without images, under another name and uncorrected.
    """
    with pytest.raises(CheckpointError, match="'embedded' is no language model"):
        check_calibrator_config(config(Path("embedded"), kind, "http://127.0.0.1:1"))
    vision = write_tiny_adapter(
        tmp_path / "vision", tiny_bases("qwen3_5"), recalibration=Platt(0.8, 0.1).as_dict()
    )
    with pytest.raises(CheckpointError, match="omit_placeholder: true"):
        check_calibrator_config(config(vision, kind, "http://127.0.0.1:1"))
    wanted = config(vision, kind, "http://127.0.0.1:1", omit_placeholder=True)
    bare = version_of(str(vision)).partition("+")[0]
    assert known_name(wanted) == f"{bare}~{kind}-no-placeholder"


@pytest.mark.parametrize("kind", KINDS)
def test_a_recalibration_belongs_to_an_engine(
    kind: str, text_checkpoint: Path, own: LlmCalibrator, tmp_path: Path
) -> None:
    """A recalibration fitted on scores of this process is refused for an engine's scores."""
    wanted = config(text_checkpoint, kind, "http://127.0.0.1:1")
    for calibrator, fits in ((own.name, False), (known_name(wanted), True)):
        path = tmp_path / "curve.json"
        Recalibration("platt", Platt(1.0, 0.0), calibrator=calibrator).save(path)
        section = wanted.model_copy(update={"recalibration": path})
        with nullcontext() if fits else pytest.raises(CheckpointError, match="was fitted for"):
            check_calibrator_config(section)


def test_a_prompt_that_the_engine_cuts(text_checkpoint: Path, own: LlmCalibrator) -> None:
    """A prompt that vLLM silently cut gets no score, as the count of tokens shows the cut."""
    app = vllm_app(log_probs_of(own.model.model), max_model_len=200)
    with (
        ServedApp(app) as server,
        connected(text_checkpoint, "vllm", server.url) as scorer,
    ):
        assert len(scorer.score_batch(ITEMS[:1])) == 1
        with pytest.raises(EngineError, match=r"has read 199 tokens of \d+: it cuts prompts"):
            scorer.score_batch(ITEMS[1:2])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delimiter": 5}, r"has read \d+ tokens of \d+: it cuts prompts, or changes them"),
        ({"tells_usage": False}, "without an object in 'usage'"),
    ],
)
def test_an_sglang_that_reads_something_else(
    text_checkpoint: Path, own: LlmCalibrator, options: Any, words: str
) -> None:
    """An SGLang that puts several items into one sequence, or does not say, is refused."""
    app = sglang_app(log_probs_of(own.model.model), **options)
    with ServedApp(app) as server, pytest.raises(EngineError, match=words):
        engine_loader(config(text_checkpoint, "sglang", server.url))()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"model": "other", "api_key": "sk-x"}, "does not serve other"),
        ({}, "answered GET /v1/models with 401; check engine.api_key"),
    ],
)
def test_another_model_or_key(
    text_checkpoint: Path, own: LlmCalibrator, more: Any, words: str
) -> None:
    """A model that is not served, or not with this key, gives an error of one sentence."""
    app = vllm_app(log_probs_of(own.model.model), key="sk-x")
    with ServedApp(app) as server, pytest.raises(EngineError, match=words):
        engine_loader(config(text_checkpoint, "vllm", server.url, **more))()


def vllm_answer(*data: Any, tokens: int) -> bytes:
    return said({"data": list(data), "usage": {"prompt_tokens": tokens}})


def sglang_answer(*rows: Any, tokens: int) -> bytes:
    return said({"scores": list(rows), "usage": {"prompt_tokens": tokens}})


LIES: list[tuple[str, tuple[Any, ...], str]] = [
    ("vllm", ({"index": 0, "score": 0.5},), "gave 1 scores for 2 items"),
    ("vllm", ({"index": 0, "score": 0.5},) * 2, "gave 2 scores for 2 items"),
    ("vllm", ({"index": 0, "score": 0.5}, {"index": 1, "score": float("nan")}), "gave nan"),
    ("vllm", ({"index": 0, "score": 0.5}, {"index": 1, "score": 1.01}), "gave 1.01"),
    ("vllm", ({"index": 0, "score": 0.5}, {"index": 1}), "without a number in 'score'"),
    ("sglang", ([0.5, 0.5],), "gave 1 scores for 2 items"),
    ("sglang", ([0.5, 0.5], [0.5]), "not one for each label"),
    ("sglang", ([0.5, 0.5], [0.5, None]), "not one for each label"),
    ("sglang", ([0.5, 0.5], [0.5, 0.1]), "not 1 together"),
    ("sglang", ([0.5, 0.5], [float("nan"), 0.1]), "not 1 together"),
    ("sglang", ([0.5, 0.5], [1.5, -0.5]), "gave 1.5"),
    ("sglang", ([0.5, 0.5], [[0.5], 0.5]), "not one for each label"),
]


@pytest.mark.parametrize(("kind", "values", "words"), LIES)
def test_an_engine_that_lies(
    text_checkpoint: Path, kind: str, values: tuple[Any, ...], words: str
) -> None:
    """An engine's answer without a probability for each item gives no score, and an error."""
    worded = vllm_answer if kind == "vllm" else sglang_answer
    good: Any = {"index": 0, "score": 0.5} if kind == "vllm" else [0.5, 0.5]

    def answer(path: str, body: Any) -> bytes:
        if path == "/v1/models":
            return said({"data": [{"id": "calibrator"}]})
        tokens = sum(map(len, body["items"]))
        return worded(*(values if len(body["items"]) == 2 else [good]), tokens=tokens)

    with (
        SaidServer(answer) as server,
        connected(text_checkpoint, kind, server.url) as scorer,
        pytest.raises(EngineError, match=words) as caught,
    ):
        scorer.score_batch(ITEMS[:2])
    assert caught.value.reason == "engine_answer"


def test_vllm_says_which_item_a_score_is_of(text_checkpoint: Path) -> None:
    """Scores that arrive in another order are matched to their items."""

    def answer(path: str, body: Any) -> bytes:
        if path == "/v1/models":
            return said({"data": [{"id": "calibrator"}]})
        tokens = sum(map(len, body["items"]))
        data = [{"index": at, "score": (at + 1) / 10} for at in range(len(body["items"]))]
        return vllm_answer(*reversed(data), tokens=tokens)

    with SaidServer(answer) as server, connected(text_checkpoint, "vllm", server.url) as scorer:
        assert [score.score for score in scorer.score_batch(ITEMS[:3])] == [0.1, 0.2, 0.3]
