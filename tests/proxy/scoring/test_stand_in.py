"""A calibrator that is busy, late or down, and the quick one that scores in its place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from calibrator import (
    FakeScorer,
    Item,
    NotScorableError,
    Question,
    Score,
    Scorer,
    load_scorer,
    version_of,
)
from calibrator.recalibration.curves import Platt, Recalibration
from calibrator.recalibration.versions import Recalibrations
from policies import Certificate, LabelledScore, Scope, certify
from policies.conditions.ranking import LEAST_KNOWN
from proxy.config.sections import Config
from proxy.errors import StartupError
from proxy.formats import Choice
from proxy.scoring.loader import check_calibrator
from proxy.scoring.scores import RecalibratedScores, WithStandIn
from proxy.scoring.scoring import OtherAnswer, ScoreRequest, Scoring, StandIn, Status
from proxy.scoring.server.app import check_scoring_server
from tests.builders.tiny_models import OfFamily
from tests.conftest import StartProxy
from tests.running.desk_client import DESK, scraped, value
from tests.running.live_proxy import (
    FailingScorer,
    HearingScorer,
    LiveProxy,
    ProxyProcess,
    SlowScorer,
    WordScorer,
    members_in,
    question,
    run_cli,
    until,
)
from tests.servers.engine_servers import live_scoring_server
from tests.servers.faulty_upstream import FaultyUpstream
from tests.sharing.captured_logs import capture_logs

LATE = {"stand_in_engine_timeout", "stand_in_deadline"}
CURVE = Recalibration("platt", Platt(1.0, 2.0), labels=100, calibrator="fake:0.7")
OTHERS_CURVE = Recalibration("platt", Platt(1.0, -2.0), labels=100, calibrator="words@1")
LOWERED = Recalibration("platt", Platt(1.0, -2.0), labels=100, calibrator="fake:0.7")
LIFTED = CURVE.pooled.apply(0.7)
REASON = "x-pinocchio-confidence-reason"
TOLD = ("status", "reason", "confidence", "calibrator")
GATE = """
version: 1
name: gate
certificate: gate.certificate.json
rules:
  - {name: surely right, when: {confidence: {max_error: 0.1}}, then: deliver}
default: block
"""


def asked() -> Question:
    return Question("why?")


def choices(*texts: str) -> list[Choice]:
    return [Choice(i, {"role": "assistant", "content": text}) for i, text in enumerate(texts)]


def told(member: dict[str, Any]) -> list[Any]:
    return [member.get(name) for name in TOLD]


@contextmanager
def both(first: Scorer, second: Scorer, **options: Any) -> Iterator[WithStandIn]:
    """Yield a calibrator with its stand-in, each corrected by a curve of its own."""
    scoring, curves = Scoring(lambda: first, **options), Recalibrations(OTHERS_CURVE)
    instead = Scoring(lambda: second)
    for each in (scoring, instead):
        each.start()
        until(lambda each=each: each.is_ready)
    yield WithStandIn(
        RecalibratedScores(scoring, curves), RecalibratedScores(instead, Recalibrations(CURVE))
    )
    for each in (scoring, instead):
        each.close()


class Some(WordScorer):
    """Fails for `bad`, and cannot read `odd`."""

    def score_batch(self, items: Any) -> list[Score]:
        for item in items:
            if item.answer == "bad":
                raise RuntimeError("the weights are gone")
            if item.answer == "odd":
                raise NotScorableError("odd", "an answer of a kind that nobody reads")
        return super().score_batch(items)


async def test_choices_that_are_compared_have_one_calibrator() -> None:
    """If one of several choices has no number, all get the stand-in's, with only its curve."""
    with both(Some(), FakeScorer(0.7)) as scores:
        fine = await scores.score(ScoreRequest(asked, choices("p=0.1", "p=0.2"), "m"))
        mixed = await scores.score(ScoreRequest(asked, choices("p=0.1", "bad"), "m"))
    assert [each.stand_in for each in fine] == [None, None]
    assert [each.score for each in fine] == [0.1, 0.2]
    by = StandIn(f"fake:0.7+{CURVE.name}", "scorer_failed")
    assert [(each.value, each.score, each.stand_in) for each in mixed] == [(LIFTED, 0.7, by)] * 2


async def test_what_cannot_be_read_stays_without_a_number() -> None:
    """An answer that cannot be read stays without a number: no stand-in scores it."""
    with both(Some(), FakeScorer(0.7)) as scores:
        found = await scores.score(ScoreRequest(asked, choices("odd", "bad"), "m"))
    assert [(each.value, each.status) for each in found] == [
        (None, Status.NOT_SUPPORTED),
        (None, Status.ERROR),
    ]


async def test_without_any_number_the_first_word_holds() -> None:
    """Where the stand-in fails too, the status is the calibrator's own."""
    with both(SlowScorer(), FailingScorer(), timeout_s=0.05) as scores:
        [found] = await scores.score(ScoreRequest(asked, choices("p=0.1"), "m"))
    assert (found.value, found.status, found.reason) == (None, Status.TIMEOUT, "deadline")
    assert found.stand_in is None


async def test_whoever_scored_hears_what_others_say() -> None:
    """Other opinions move a number by the calibrator that gave it."""
    others = [OtherAnswer({"role": "assistant", "content": "blue"}, "other")]
    with both(FailingScorer(), HearingScorer()) as scores:
        found = await scores.score(ScoreRequest(asked, choices("blue p=0.5"), "m"))
        [moved] = await scores.with_others(
            ScoreRequest(asked, choices("blue p=0.5"), "m"), found, others
        )
    assert moved.evidence is not None
    assert moved.stand_in is not None
    assert moved.evidence.calibrator == "words@1+opinion@1"
    assert (moved.value, moved.evidence.score_before) == (0.7, 0.5)


def test_an_overloaded_scoring_server(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """The embedded calibrator scores what a busy server refuses or answers too late; header,
    member, record, figures and log say who scored and why. Later the server's numbers return.
    """
    scorer, embedded = SlowScorer(), version_of("embedded")
    scorer.proceed.set()
    section = {"checkpoint": "fake:0.5", "max_queue": 1, "timeout_s": 20}
    with live_scoring_server(scorer, calibrator=section) as server, capture_logs() as lines:
        engine = {"kind": "scorer", "base_url": server.url, "concurrency": 8}
        stand_in = {"checkpoint": "embedded", "timeout_s": 20}
        calibrator = {"engine": engine, "timeout_s": 2.0, "stand_in": stand_in}
        proxy = LiveProxy(upstream.base_url, tmp_path, calibrator=calibrator, **DESK)
        try:
            ready = {"event": "calibrator_ready", "calibrator": embedded}
            until(lambda: any(line.items() >= ready.items() for line in lines))
            scorer.proceed.clear()
            with ThreadPoolExecutor() as pool:
                computed = pool.submit(proxy.ask, "p=0.1")
                until(scorer.has_begun.is_set)
                waiting = pool.submit(proxy.ask, "p=0.2")
                time.sleep(0.5)  # it is in the queue, which is full
                busy = proxy.ask("p=0.3")
                late = computed.result()
                replies = [late, waiting.result(), busy]
            assert busy.headers[REASON] == "stand_in_engine_busy"
            assert {each.headers[REASON] for each in replies[:2]} <= LATE
            assert {each.headers["x-pinocchio-confidence-status"] for each in replies} == {"scored"}
            assert {each.headers["x-pinocchio-calibrator"] for each in replies} == {embedded}
            own = load_scorer("embedded").score_batch([Item("p=0.1", "p=0.1", "ok")])[0]
            assert float(late.headers["x-pinocchio-confidence"]) == pytest.approx(
                own.confidence, abs=1e-4
            )
            reason = late.headers[REASON]
            assert told(late.json()["pinocchio"])[:2] == ["scored", reason]
            id = late.headers["x-pinocchio-request-id"]
            row = proxy.recorded(id, "json_quote(reason)", "json_quote(calibrator)")
            assert row == [reason, embedded]
            figures = scraped(proxy.desk)
            assert value(figures, "pinocchio_scores_total", status="scored", reason=reason) > 0
            assert value(figures, "pinocchio_confidence_count", calibrator=embedded) == 3
            [line] = [each for each in lines if each["event"] == "stand_in_scores"]
            assert (line["calibrator"], line["instead_of"]) == (embedded, "words@1")
            scorer.proceed.set()
            until(lambda: proxy.ask("p=0.9").headers["x-pinocchio-calibrator"] == "words@1")
        finally:
            scorer.proceed.set()
            proxy.stop()


def test_a_certificate_is_for_the_calibrator_that_scored(
    upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """A rule with `max_error` applies to the calibrator's own
    numbers and never to a stand-in's, since those are not certified.
    """
    rows = [LabelledScore(str(n), 0.9 if n % 2 else 0.2, bool(n % 2)) for n in range(600)]
    grant = certify(rows, 0.1, 0.9).grant("words@1", Scope())
    certificate = Certificate((grant,), "2026-01-01").to_json()
    (tmp_path / "gate.certificate.json").write_text(certificate)
    (tmp_path / "gate.yaml").write_text(GATE)
    scorer = SlowScorer()
    calibrator = {"timeout_s": 0.1, "stand_in": "fake:1"}
    proxy = LiveProxy(
        upstream.base_url,
        tmp_path,
        policy=tmp_path / "gate.yaml",
        scorer=scorer,
        calibrator=calibrator,
    )
    try:
        late = proxy.ask("p=0.95")
        assert late.headers[REASON] == "stand_in_deadline"
        assert late.headers["x-pinocchio-confidence"] == "1.0000"
        assert late.headers["x-pinocchio-action"] == "block"
        scorer.proceed.set()
        until(lambda: proxy.ask("p=0.95").headers["x-pinocchio-action"] == "deliver")
    finally:
        proxy.stop()


def test_the_least_sure_are_found_among_numbers_of_one_calibrator(start_proxy: StartProxy) -> None:
    """`lowest_share` compares a stand-in's numbers only with earlier
    ones of the stand-in, and with none while they are too few.
    """
    scorer = SlowScorer()
    scorer.proceed.set()
    proxy = start_proxy(
        policy="version: 1\nname: least\nrules: [{name: least, when: {confidence: "
        "{lowest_share: 0.5}}, then: block}]\ndefault: deliver\n",
        scorer=scorer,
        calibrator={"timeout_s": 1.0, "stand_in": "fake:0.1"},
    )
    for number in range(LEAST_KNOWN):
        proxy.ask(f"{number} p=0.{5 + number % 4}")
    assert proxy.ask("new p=0.1").headers["x-pinocchio-action"] == "block"
    scorer.proceed.clear()
    late = proxy.ask("newer p=0.9")
    assert late.headers[REASON] == "stand_in_deadline"
    assert late.headers["x-pinocchio-action"] == "deliver"
    scorer.proceed.set()


def test_a_late_stream_is_scored_by_the_stand_in(start_proxy: StartProxy) -> None:
    """A stream ends in time without a number; its later outcome names the stand-in."""
    scorer = SlowScorer()
    proxy = start_proxy(
        scorer=scorer,
        calibrator={"timeout_s": 0.3, "stand_in": "fake:0.7"},
        limits={"stream_wait_ms": 50},
    )
    late = proxy.ask("p=0.5", stream=True)
    [member] = members_in(late.content)
    assert told(member) == ["pending", "late", None, "words@1"]
    id = late.headers["x-pinocchio-request-id"]
    until(lambda: result(proxy, id).get("confidence") is not None)
    assert told(result(proxy, id)) == ["scored", "stand_in_deadline", 0.7, "fake:0.7"]
    scorer.proceed.set()


def result(proxy: LiveProxy, id: str) -> dict[str, Any]:
    found: dict[str, Any] = proxy.http.get(f"/pinocchio/v1/results/{id}").json()
    return found


CONFIG = """
upstreams: {{any: {{base_url: "{url}", api_key: sk-x}}}}
models: [{{match: "*", upstream: any}}]
store: sqlite:///{folder}/held.db
admin: false
calibrator:
  engine: {{kind: scorer, base_url: "{scorer}"}}
  timeout_s: 0.2
  stand_in: {{checkpoint: "fake:0.7", recalibration: curve.json}}
"""


def test_a_new_curve_of_the_stand_in_needs_no_restart(
    upstream: FaultyUpstream, tmp_path: Path
) -> None:
    """A new curve of the stand-in, beside the configuration, counts without a restart."""
    CURVE.save(tmp_path / "curve.json")
    scorer = SlowScorer()
    with live_scoring_server(scorer) as server:
        config = CONFIG.format(url=upstream.base_url, folder=tmp_path, scorer=server.url)
        with ProxyProcess(tmp_path, config) as proxy:
            url = f"{proxy.base_url}/chat/completions"

            def confidence() -> float:
                reply = httpx.post(url, json=question("p=0.1"), trust_env=False, timeout=20)
                return float(reply.headers["x-pinocchio-confidence"])

            assert confidence() == pytest.approx(LIFTED, abs=1e-4)
            LOWERED.save(tmp_path / "curve.json")
            lowered = pytest.approx(LOWERED.pooled.apply(0.7), abs=1e-4)
            until(lambda: confidence() == lowered)
            assert proxy.lines("restart_needed") == []
            scorer.proceed.set()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("checkpoint: embedded\n  stand_in: embedded", "stand_in is the calibrator itself"),
        ("checkpoint: none\n  stand_in: embedded", "'checkpoint: none' is never late or busy"),
        ("checkpoint: fake:0.5\n  stand_in: none", "'none' stands in for nothing"),
        ("checkpoint: fake:0.5\n  stand_in: {checkpont: embedded}", "did you mean 'checkpoint'?"),
        ("checkpoint: fake:0.5\n  stand_in: nowhere/to-be-found", "proxy.yaml:3: "),
        (
            "checkpoint: fake:0.5\n  stand_in: {checkpoint: 'fake:0.7', recalibration: curve.json}",
            "for words@1, not for fake:0.7",
        ),
    ],
)
def test_what_could_not_stand_in_is_refused(tmp_path: Path, section: str, message: str) -> None:
    """A stand-in that cannot work is refused with its line, by `check` and at the start."""
    OTHERS_CURVE.save(tmp_path / "curve.json")
    path = tmp_path / "proxy.yaml"
    path.write_text(f"calibrator:\n  {section}\n")
    done = run_cli("check", "--config", str(path), cwd=tmp_path)
    assert done.returncode == 2
    assert "proxy.yaml:" in done.stderr, done.stderr
    assert message in done.stderr


def test_a_scoring_server_has_no_stand_in() -> None:
    """A scoring server has no stand-in: the proxies that ask it have theirs."""
    config = Config.model_validate({"calibrator": {"checkpoint": "fake:0.5", "stand_in": "fake:1"}})
    with pytest.raises(StartupError, match="stand_in is for the proxies"):
        check_scoring_server(config, "127.0.0.1")


def test_a_language_model_is_too_slow_to_stand_in(tiny_checkpoint: OfFamily) -> None:
    section = {"checkpoint": "fake:0.5", "stand_in": str(tiny_checkpoint("qwen3_5_text"))}
    config = Config.model_validate({"calibrator": section})
    with pytest.raises(StartupError, match="a language model, which would be late too"):
        check_calibrator(config.calibrator, None)
