"""Scores from a remote engine: whatever it does may cost a number, with a reason, but no reply."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from calibrator import (
    Batcher,
    CalibratorError,
    CheckpointError,
    Item,
    NotScorableError,
    OtherReply,
    Score,
    ToolUse,
    UnsupportedSentence,
    load_scorer,
    version_of,
)
from proxy.config.sections import Config
from proxy.desk.console.views import calibrator_cards
from proxy.scoring.engines.errors import EngineError
from proxy.scoring.engines.opening import engine_loader, known_name
from proxy.scoring.engines.remote import RemoteScorer
from proxy.scoring.engines.scorer_protocol import read_scores
from proxy.scoring.scoring import Scoring
from tests.builders.pictures import data_url, picture
from tests.conftest import StartProxy
from tests.running.live_proxy import (
    HearingScorer,
    LiveProxy,
    ProxyProcess,
    WordScorer,
    free_port,
    until,
)
from tests.servers.engine_servers import Play, SaidServer, live_scoring_server, said
from tests.servers.raw_server import Peer
from tests.sharing.captured_logs import capture_logs

FACTS = {"calibrator": "words@1", "reads_images": False}
GOOD = {"score": 0.25, "confidence": 0.5, "is_truncated": True}
FOUND = (
    "p=0.3 support=0.2 basis=context,calls act=data facts=needed task=unfamiliar truncated "
    "unread=context_not_read missing=noon"
)
ITEMS = [Item("why?", "a"), Item("why?", "b")]
Json = dict[str, Any]


def scores(*values: Any, calibrator: Any = "words@1") -> Json:
    return {"calibrator": calibrator, "scores": list(values)}


def settings(url: str, timeout_s: float = 5.0, **engine: Any) -> Any:
    section = {"engine": {"kind": "scorer", "base_url": url, **engine}, "timeout_s": timeout_s}
    return Config.model_validate({"calibrator": section}).calibrator


@contextmanager
def connected(url: str, timeout_s: float = 5.0, **engine: Any) -> Iterator[RemoteScorer]:
    scorer = engine_loader(settings(url, timeout_s, **engine))()
    assert isinstance(scorer, RemoteScorer)
    try:
        yield scorer
    finally:
        scorer.close()
        assert not [thread for thread in threading.enumerate() if thread.name == "engine"]


class Seeing(WordScorer):
    """A WordScorer that reads images."""

    reads_images = True


class Told:
    """Answers like a working scoring server until `reply` is set."""

    def __init__(self) -> None:
        self.facts: Json = FACTS
        self.reply: bytes | Play | None = None
        self.hangs = threading.Event()
        self.hangs.set()  # clear: nothing is answered
        self.asked = 0
        self.items: list[Json] = []  # the items that were to be scored

    def __call__(self, path: str, body: Any) -> bytes | Play:
        self.asked += 1
        self.hangs.wait(10)
        if path.endswith("/scorer"):
            return said(self.facts)
        self.items += body["items"]
        return said(scores(*[GOOD] * len(body["items"]))) if self.reply is None else self.reply


def test_others_are_read_from_afar_as_in_this_process() -> None:
    """Other replies are sent with their calls, and the confidence without
    them if it is known; a server that reads no other replies gets none.
    """
    call = {"function": {"name": "pay", "arguments": "{}"}}
    use = ToolUse([], [], {"role": "assistant", "tool_calls": [call]})
    others = (OtherReply("Paris", "a"), OtherReply("London"), OtherReply("Paris", None, use))
    items = [
        Item("where?", "Paris p=0.4", others=others),
        Item("where?", "Paris p=0.4", others=others, alone=0.2),
        Item("where?", "Paris p=0.4"),
    ]
    with live_scoring_server(HearingScorer()) as server, connected(server.url) as scorer:
        assert scorer.opinion == "words@1+opinion@1"
        assert scorer.score_batch(items) == HearingScorer().score_batch(items)
    with live_scoring_server(WordScorer()) as server, connected(server.url) as scorer:
        assert scorer.opinion == ""
        assert scorer.score_batch(items[:1]) == WordScorer().score_batch(items[:1])


def test_scorer_gets_every_field() -> None:
    """The scorer gets every field of an item, and its score is returned unchanged."""
    scorer = Seeing()
    items = [
        Item("why?", "p=0.2 truncated, doubted", "gpt", "gpqa", "law"),
        Item("who?", "p=0.9", images=(b"\x89PNG\x00", b"\xff\xd8")),
        Item("when?", FOUND, messages=[{"role": "system", "content": "We close at noon."}]),
        Item("where?", "p=0.4", facts=("Shop: It is in Utrecht.",)),
    ]
    with live_scoring_server(scorer) as server, connected(server.url) as remote:
        found = remote.score_batch(items)
        assert (remote.name, remote.reads_images) == ("words@1", True)
    assert found == WordScorer().score_batch(items)
    assert [item for item in scorer.seen if item.answer != "warm-up"] == items


def test_an_older_server_is_sent_no_messages() -> None:
    """A server that does not announce messages and facts gets none, since it
    would refuse them; its scores have no findings and the basis `likeness`.
    """
    scripted = Told()
    with SaidServer(scripted) as server, connected(server.url) as remote:
        asked = Item("when?", "noon", messages=[{"role": "user"}], facts=("x",))
        [score] = remote.score_batch([asked])
    assert score == Score(0.25, 0.5, True)
    assert [item.keys() for item in scripted.items] == [{"question", "answer"}] * 2


FINDINGS: list[tuple[Json, Json]] = [
    ({"support": None, "basis": "context", "act": 3, "unread": []}, {}),
    ({"basis": ["calls", "gossip", 7, "context"]}, {"basis": ("context", "calls")}),
    ({"unsupported": "x"}, {}),
    ({"unsupported": [None, {"sentence": 1}]}, {}),
    (
        {"unsupported": [{"sentence": "It is.", "words": ["is", 2], "kind": "rumour"}]},
        {"unsupported": (UnsupportedSentence("It is.", ("is",), "missing"),)},
    ),
    ({"needs_facts": 1, "is_unfamiliar": "yes"}, {}),
    ({"needs_facts": True, "is_unfamiliar": True}, {"needs_facts": True, "is_unfamiliar": True}),
]


@pytest.mark.parametrize(("finding", "expected"), FINDINGS)
def test_findings_that_cannot_be_read_are_passed_over(finding: Json, expected: Json) -> None:
    """Findings that cannot be read cost no number; those that can are bounded and known."""
    [score] = read_scores({"calibrator": "words@1", "scores": [{**GOOD, **finding}]}, "words@1", 1)
    assert score == Score(0.25, 0.5, True, **expected)


FAULTS: list[tuple[bytes, str, str]] = [
    (said({}, 500), "engine_failed", "answered POST /pinocchio/v1/score with 500"),
    (said({}, 401), "engine_refused", "with 401; check engine.api_key"),
    (said({}, 404), "engine_refused", "with 404; check engine.base_url"),
    (said({}, 302, b"location: http://127.0.0.1:1/"), "engine_refused", "with 302"),
    (said({}, 429, b"retry-after: 1"), "engine_busy", "has no room for more"),
    (said({}, 503, b"retry-after: 1"), "engine_busy", "has no room for more"),
    (said({}, 503), "engine_failed", "with 503"),
    (said(b"<html>down"), "engine_answer", "did not answer with JSON (text/html)"),
    (said(b"[" * 100_000), "engine_answer", "did not answer with JSON"),
    (said([]), "engine_answer", "without a text in 'calibrator'"),
    (said({"calibrator": "words@1"}), "engine_answer", "without a list in 'scores'"),
    (said(scores(GOOD)), "engine_answer", "gave 1 scores for 2 items"),
    (said(scores(GOOD, GOOD, GOOD)), "engine_answer", "gave 3 scores for 2 items"),
    (said(scores(GOOD, GOOD, calibrator="other@2")), "engine_other", "scored with other@2"),
    (said(scores(GOOD, {**GOOD, "score": float("nan")})), "engine_answer", "gave nan"),
    (said(scores(GOOD, {**GOOD, "score": float("inf")})), "engine_answer", "gave inf"),
    (said(scores(GOOD, {**GOOD, "confidence": 1.5})), "engine_answer", "gave 1.5"),
    (said(scores(GOOD, {**GOOD, "confidence": -1})), "engine_answer", "gave -1.0"),
    (said(scores(GOOD, {**GOOD, "score": "0.5"})), "engine_answer", "without a number in 'score'"),
    (said(scores(GOOD, {**GOOD, "score": True})), "engine_answer", "without a number"),
    (said(scores(GOOD, {**GOOD, "is_truncated": 0})), "engine_answer", "without a truth value"),
    (said(scores(GOOD, None)), "engine_answer", "without a number"),
    (said(scores(GOOD, {"error": "no"})), "engine_answer", "without a text in 'reason'"),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", "engine_broke_off", "broke off"),
    (b"nonsense", "engine_broke_off", "broke off its answer"),
    (b"", "engine_broke_off", "broke off its answer"),
]


@pytest.mark.parametrize(("reply", "reason", "words"), FAULTS)
def test_an_engine_that_lies(reply: bytes, reason: str, words: str) -> None:
    """An invalid answer gives one sentence with the engine's address, and no score."""
    scripted = Told()
    with SaidServer(scripted, keeps=False) as server, connected(server.url) as remote:
        scripted.reply = reply
        with pytest.raises(EngineError, match=re.escape(words)) as caught:
            remote.score_batch(ITEMS)
    assert caught.value.reason == reason
    assert str(caught.value).startswith(f"scoring server {server.url} ")


@pytest.mark.parametrize("drip", [b"", b"x"])
def test_an_engine_that_hangs(drip: bytes) -> None:
    """After `timeout_s` nobody waits for an engine that is silent or drips; no thread is left."""

    def hang(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\n")
        while drip:
            peer.send(drip, pause_s=0.05)
        peer.is_left_within(5)

    scripted = Told()
    with SaidServer(scripted) as server, connected(server.url, timeout_s=0.3) as remote:
        scripted.reply = hang
        started = time.perf_counter()
        with pytest.raises(EngineError, match=r"did not answer within 0\.3 s") as caught:
            remote.score_batch(ITEMS)
        assert time.perf_counter() - started < 2
    assert caught.value.reason == "engine_timeout"


def test_an_item_without_a_score() -> None:
    """An item without a score gets the server's reason if there is one; the others keep scores."""
    scripted = Told()
    with SaidServer(scripted) as server, connected(server.url) as remote:
        scripted.reply = said(scores(GOOD, {"error": {"message": "no", "reason": "image"}}))
        with pytest.raises(NotScorableError):
            remote.score_batch(ITEMS)
        scripted.reply = said(scores(GOOD, {"error": {"message": "no", "reason": "odd"}}))
        with pytest.raises(CalibratorError, match="no"):
            remote.score_batch(ITEMS)
        scripted.reply = said(scores(GOOD, {"error": {"message": "no", "reason": "deadline"}}))
        with pytest.raises(EngineError, match="did not get to it in time") as caught:
            remote.score_batch(ITEMS)
        assert caught.value.reason == "engine_busy"
        scripted.reply = None
        assert remote.score_batch(ITEMS)[0].score == 0.25


def test_an_item_that_is_refused() -> None:
    """A refused item neither costs its batch the scores nor counts as the engine's failure."""
    scripted = Told()

    def answer(path: str, body: Any) -> bytes | Play:
        if body and any(item["answer"] == "bad" for item in body["items"]):
            return said({}, 413)
        return scripted(path, body)

    with SaidServer(answer) as server, connected(server.url) as remote:
        batcher = Batcher(remote, batch_characters=1_000)
        try:
            first, bad, last = batcher.submit([ITEMS[0], Item("", "bad"), ITEMS[1]])
            assert (first.result(10).score, last.result(10).score) == (0.25, 0.25)
            with pytest.raises(CalibratorError, match="refuses this one"):
                bad.result(10)
        finally:
            batcher.close()
        assert not remote.is_down


def test_a_closed_connection_is_no_fault() -> None:
    """A kept connection that the engine closed is opened again without an error."""
    with SaidServer(Told(), keeps=False) as server, connected(server.url) as remote:
        for _ in range(5):
            assert len(remote.score_batch(ITEMS)) == 2


def test_the_token_is_sent() -> None:
    """The scoring server answers with its token; without, the error says where it belongs."""
    with live_scoring_server(WordScorer(), scorer={"token": "sesame"}) as server:
        with connected(server.url, api_key="sesame") as remote:
            assert len(remote.score_batch(ITEMS)) == 2
        with pytest.raises(EngineError, match=r"with 401; check engine\.api_key"):
            engine_loader(settings(server.url))()


def test_another_calibrator_than_configured() -> None:
    """A server with another checkpoint than proxy.yaml names is refused."""
    section = {"checkpoint": "fake:0.5", "engine": {"kind": "scorer", "base_url": ""}}
    with live_scoring_server(WordScorer()) as server:
        section["engine"] = {"kind": "scorer", "base_url": server.url}
        config = Config.model_validate({"calibrator": section}).calibrator
        with pytest.raises(EngineError, match=r"words@1, and .* names fake:0\.5"):
            engine_loader(config)()


@pytest.mark.parametrize("name", ["", "two words", "a\r\nx-evil: 1", "\u00fc", "x" * 201])
def test_a_name_that_no_header_can_tell(name: str) -> None:
    """A calibrator's name that is no valid header value does not break the replies."""
    scripted = Told()
    scripted.facts = {**FACTS, "calibrator": name}
    with SaidServer(scripted) as server, pytest.raises(EngineError, match="a header cannot carry"):
        engine_loader(settings(server.url))()


def test_whose_scores_they_are() -> None:
    """A scoring server without a named checkpoint has no name before it is
    asked, and the error says what to do; messages say which engine it is.
    """
    config = settings("http://gpu:9000")
    with pytest.raises(CheckpointError, match=r"add calibrator\.checkpoint"):
        known_name(config)
    assert config.summary == "engine scorer at http://gpu:9000"
    card = calibrator_cards(config)[0]
    assert (card.title, card.facts) == ("Engine", (("configured", config.summary),))
    section = {
        "checkpoint": "fake:0.5",
        "engine": {"kind": "scorer", "base_url": "http://gpu:9000"},
    }
    named = Config.model_validate({"calibrator": section}).calibrator
    assert (known_name(named), named.summary) == ("fake:0.5", f"fake:0.5, {config.summary}")


# Several batches at once


def test_batches_under_way_at_a_time() -> None:
    """At most `concurrency` batches run at the same time; a further one waits."""
    together = threading.Barrier(3)

    class Meeting(WordScorer):
        concurrency = 3

        def score_batch(self, items: Any) -> Any:
            together.wait(10)  # breaks unless three are here
            return super().score_batch(items)

    batcher = Batcher(Meeting(), batch_characters=1)
    try:
        tickets = batcher.submit([Item("", f"p=0.{n}") for n in range(1, 7)])
        found = [ticket.result(10).score for ticket in tickets]
    finally:
        batcher.close()
    assert found == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def test_failed_batch_is_not_retried_by_item() -> None:
    """A batch that fails because of the engine is not tried again item by item."""
    scripted = Told()
    with SaidServer(scripted) as server, connected(server.url) as remote:
        scripted.reply = said({}, 500)
        before = scripted.asked
        batcher = Batcher(remote)
        try:
            for ticket in batcher.submit(ITEMS):
                with pytest.raises(EngineError):
                    ticket.result(10)
        finally:
            batcher.close()
    assert scripted.asked == before + 1


# An engine that is down and comes back


def test_engine_that_is_down_is_skipped() -> None:
    """After three failures the engine is not asked; it is probed, and asked once it answers."""
    scripted = Told()
    with (
        SaidServer(scripted) as server,
        connected(server.url, timeout_s=0.2) as remote,
        capture_logs() as lines,
    ):
        scripted.hangs.clear()
        for _ in range(3):
            with pytest.raises(EngineError, match="did not answer"):
                remote.score_batch(ITEMS)
        until(lambda: remote.is_down)
        started = time.perf_counter()
        for _ in range(100):
            with pytest.raises(EngineError, match="is down and not asked"):
                remote.score_batch(ITEMS)
        assert time.perf_counter() - started < 0.2
        scripted.hangs.set()
        until(lambda: not remote.is_down)
        assert len(remote.score_batch(ITEMS)) == 2
    events = [line["event"] for line in lines]
    assert events == ["engine_failed", "engine_down", "engine_up"]


def test_without_a_connection_it_is_down_at_once() -> None:
    """Where nothing listens any more, one failure is enough."""
    port = free_port()
    with live_scoring_server(WordScorer(), port=port) as server:
        remote = engine_loader(settings(server.url))()
    assert isinstance(remote, RemoteScorer)
    with pytest.raises(EngineError, match="cannot be reached"):
        remote.score_batch(ITEMS)
    until(lambda: remote.is_down)
    with live_scoring_server(WordScorer(), port=port):
        until(lambda: not remote.is_down)
        assert len(remote.score_batch(ITEMS)) == 2
    remote.close()


def test_an_engine_that_comes_back_as_another_stays_down() -> None:
    """An engine that comes back with another calibrator stays down."""
    scripted = Told()
    with (
        SaidServer(scripted) as server,
        connected(server.url, timeout_s=0.5) as remote,
        capture_logs() as lines,
    ):
        scripted.facts, scripted.reply = {**FACTS, "calibrator": "other@2"}, said({}, 500)
        for _ in range(3):
            with pytest.raises(EngineError):
                remote.score_batch(ITEMS)
        until(lambda: remote.is_down)
        scripted.reply = said(scores(GOOD, calibrator="other@2"))
        until(lambda: any("needs a restart" in line.get("error", "") for line in lines))
        assert remote.is_down


# Within the proxy


async def test_closing_while_an_engine_hangs() -> None:
    """While an engine hangs the proxy stops at once, and waiting requests get a status."""
    scripted = Told()
    with SaidServer(scripted) as server:
        scoring = Scoring(engine_loader(settings(server.url)), timeout_s=5)
        scoring.start()
        await asyncio.to_thread(until, lambda: scoring.is_ready)
        scripted.hangs.clear()
        waiting = asyncio.create_task(scoring.tickets(ITEMS))
        await asyncio.sleep(0.1)
        started = time.perf_counter()
        await asyncio.to_thread(scoring.close)
        assert time.perf_counter() - started < 2
        assert [ticket.is_done for ticket in await waiting] == [True, True]
        scripted.hangs.set()
    assert not [thread for thread in threading.enumerate() if thread.name in ("engine", "scorer")]


@pytest.mark.parametrize(
    ("set_up", "status", "reasons"),
    [
        (lambda scripted: setattr(scripted, "reply", said({}, 500)), "error", ("engine_failed",)),
        (lambda scripted: setattr(scripted, "reply", said({}, 429)), "skipped", ("engine_busy",)),
        # Engine and waiting request have the same time limit, and either may be first.
        (lambda scripted: scripted.hangs.clear(), "timeout", ("deadline", "engine_timeout")),
    ],
)
def test_no_reply_is_lost(
    start_proxy: StartProxy, set_up: Callable[[Told], None], status: str, reasons: tuple[str, ...]
) -> None:
    """Whatever the engine does, the reply is delivered with its status and reason."""
    scripted = Told()
    with SaidServer(scripted) as server:
        engine = {"kind": "scorer", "base_url": server.url}
        proxy = start_proxy(calibrator={"engine": engine, "timeout_s": 0.3})
        assert proxy.ask("Paris").headers["x-pinocchio-confidence"] == "0.5000"
        set_up(scripted)
        reply = proxy.ask("Paris")
        scripted.hangs.set()
    assert reply.json()["choices"][0]["message"]["content"] == "Paris"
    assert reply.headers["x-pinocchio-confidence-status"] == status
    assert reply.headers["x-pinocchio-confidence-reason"] in reasons
    assert "x-pinocchio-confidence" not in reply.headers


def test_a_proxy_that_is_there_before_its_engine(start_proxy: StartProxy) -> None:
    """Before its engine is up the proxy relays with the status `loading`; then it scores."""
    port = free_port()
    engine = {"kind": "scorer", "base_url": f"http://127.0.0.1:{port}"}
    proxy = start_proxy(calibrator={"engine": engine}, waits=False)
    before = proxy.ask("p=0.7")
    assert before.status_code == 200
    assert before.headers["x-pinocchio-confidence-status"] == "loading"
    with live_scoring_server(WordScorer(), port=port):
        proxy.wait_until_ready()
        after = proxy.ask("p=0.7")
    assert after.headers["x-pinocchio-confidence"] == "0.7000"
    assert after.headers["x-pinocchio-calibrator"] == "words@1"


def test_images_go_where_the_calibrator_is(start_proxy: StartProxy) -> None:
    """A scoring server that reads images gets those of a question
    unchanged; one that reads none is not asked about the question (B01).
    """
    scorer, image = Seeing(), picture()
    part = {"type": "image_url", "image_url": {"url": data_url(image)}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "p=0.6"}, part]}]
    found = []
    for each in (scorer, WordScorer()):
        with live_scoring_server(each) as server:
            engine = {"kind": "scorer", "base_url": server.url}
            proxy = start_proxy(calibrator={"engine": engine})
            body = {"model": "say p=0.6", "messages": messages}
            reply = proxy.http.post("/v1/chat/completions", json=body)
            found.append(reply.headers["x-pinocchio-confidence-status"])
    assert found == ["scored", "not_supported"]
    assert scorer.seen[-1].images == (image,)


def test_two_proxies_share_a_calibrator(start_proxy: StartProxy, tmp_path: Path) -> None:
    """Two proxies that ask one scoring server give the numbers of a calibrator of their own."""
    question = "What is the capital of France?"
    [own] = load_scorer("embedded").score_batch([Item(question, "Paris", "ok")])
    with ProxyProcess(tmp_path, "calibrator: {checkpoint: embedded}", "--scorer-only") as server:
        assert "calibrator embedded (loading), for this machine" in server.stdout()
        engine = {"kind": "scorer", "base_url": server.base_url}
        named = {"checkpoint": "embedded", "engine": engine}
        proxies = [start_proxy(calibrator=section) for section in ({"engine": engine}, named)]
        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(ask_for, proxies[n % 2], question, "Paris") for n in range(16)]
            replies = [each.result() for each in asking]
        assert len(server.lines("scored")) >= 16 // 8
    headers = [reply.headers for reply in replies]
    assert {each["x-pinocchio-confidence"] for each in headers} == {f"{own.confidence:.4f}"}
    assert {each["x-pinocchio-calibrator"] for each in headers} == {version_of("embedded")}


def ask_for(proxy: LiveProxy, question: str, answer: str) -> Any:
    """Ask the question; upstream answers with this answer."""
    return proxy.ask(question, headers={"x-faulty": f"say {answer}"})


# Other replies to the same question


def test_a_second_opinion_with_a_scoring_server(start_proxy: StartProxy) -> None:
    """The proxy asks for second opinions with a scoring server as with its own calibrator."""
    policy = "{version: 1, name: two, second_opinion: {from: say Paris}, default: deliver}"
    with live_scoring_server(HearingScorer()) as server:
        section = {"engine": {"kind": "scorer", "base_url": server.url}}
        proxy = start_proxy(policy=policy, calibrator=section)
        proxy.wait_until_ready()
        member = proxy.ask("Paris p=0.4").json()["pinocchio"]
    assert (member["confidence"], member["calibrator"]) == (0.6, "words@1+opinion@1")
