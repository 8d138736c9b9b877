"""Every completion arrives with its confidence, or with the reason why it has none."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from calibrator import Item, Question, Score, Scorer
from proxy.formats import Json
from proxy.formats.chat import ChatFormat
from tests.conftest import StartProxy
from tests.running.live_proxy import (
    FailingScorer,
    LiveProxy,
    ShortScorer,
    SlowScorer,
    WordScorer,
    members_in,
    post_raw,
    question,
    until,
    without_member,
)
from tests.servers.faulty_upstream import FaultyUpstream

WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Weather", "parameters": {}},
}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
STATUS = "x-pinocchio-confidence-status"
REASON = "x-pinocchio-confidence-reason"
CONFIDENCE = "x-pinocchio-confidence"


@dataclass
class BrokenScorer(WordScorer):
    """Returns a number that is no probability, except for the warm-up."""

    number: float = math.nan

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        scores = super().score_batch(items)
        is_warm_up = items[0].answer == "warm-up"
        return scores if is_warm_up else [Score(self.number, self.number) for _ in items]


def seen_by(proxy: LiveProxy) -> Item:
    """Return the item that the proxy's scorer saw last."""
    assert isinstance(proxy.scorer, WordScorer)
    return proxy.scorer.seen[-1]


# Numbers


def test_headers_and_member_say_the_same(proxy: LiveProxy) -> None:
    """Headers and body have the same confidence, status, policy, mode, calibrator and id."""
    response = proxy.ask("Paris p=0.91237")
    headers, member = response.headers, response.json()["pinocchio"]
    assert headers[CONFIDENCE] == "0.9124"
    assert headers[STATUS] == "scored"
    assert headers["x-pinocchio-action"] == "deliver"
    assert headers["x-pinocchio-mode"] == "shadow"
    assert headers["x-pinocchio-would-action"] == "deliver"
    assert headers["x-pinocchio-calibrator"] == "words@1"
    assert headers["x-pinocchio-policy"].startswith("watch/default@")
    assert float(headers["x-pinocchio-overhead-ms"]) >= float(headers["x-pinocchio-score-ms"]) >= 0
    assert REASON not in headers
    assert member == {
        "request_id": headers["x-pinocchio-request-id"],
        "confidence": 0.9124,
        "status": "scored",
        "basis": ["likeness"],
        "action": "deliver",
        "policy": headers["x-pinocchio-policy"],
        "mode": "shadow",
        "would_action": "deliver",
        "calibrator": "words@1",
        "choices": [
            {
                "index": 0,
                "confidence": 0.9124,
                "status": "scored",
                "basis": ["likeness"],
                "action": "deliver",
            }
        ],
    }
    assert headers["x-pinocchio-basis"] == "likeness"


def test_what_speaks_against_a_choice_is_told_with_it(proxy: LiveProxy) -> None:
    """`because` and `fields` are in the member of the choice that they are about, only there."""
    field = {"call": 0, "name": "city", "mark": "not in the conversation", "share": 0.1234}
    for words, expected in (
        ("doubted p=0.2", (["it is doubted"], [field])),
        ("p=0.9", (None, None)),
    ):
        (choice,) = proxy.ask(words).json()["pinocchio"]["choices"]
        assert (choice.get("because"), choice.get("fields")) == expected


def test_overhead_leaves_out_upstreams_time(proxy: LiveProxy, upstream: FaultyUpstream) -> None:
    """The overhead does not include upstream's time."""

    def release_late() -> None:
        request = upstream.wait_for_request()
        assert not request.is_cut_off(within_s=0.5)
        request.proceed()

    thread = threading.Thread(target=release_late)
    thread.start()
    response = proxy.ask("p=0.7", "slow")
    thread.join()
    assert response.elapsed.total_seconds() >= 0.5
    assert float(response.headers["x-pinocchio-overhead-ms"]) < 400


def test_ids_differ(proxy: LiveProxy) -> None:
    """Every request has an id of its own."""
    ids = {proxy.ask().headers["x-pinocchio-request-id"] for _ in range(3)}
    assert len(ids) == 3


def test_the_lowest_of_several_choices_speaks_for_all(proxy: LiveProxy) -> None:
    """With n > 1 the header has the lowest confidence, and the member has each choice's."""
    response = proxy.ask("p=0.9|p=0.2|p=0.6", n=3)
    assert response.headers[CONFIDENCE] == "0.2000"
    choices = response.json()["pinocchio"]["choices"]
    assert [(c["index"], c["confidence"]) for c in choices] == [(0, 0.9), (1, 0.2), (2, 0.6)]
    assert response.headers["x-pinocchio-would-action"] == "hold"


def test_headers_can_be_left_out(start_proxy: StartProxy) -> None:
    """With `attach.headers: false` no x-pinocchio field is sent, but the member is."""
    proxy = start_proxy(attach={"headers": False})
    for response in (proxy.ask("p=0.7"), proxy.ask("p=0.7", stream=True), proxy.ask(model="html")):
        assert not [name for name in response.headers if name.startswith("x-pinocchio")]
    assert proxy.ask("p=0.7").json()["pinocchio"]["confidence"] == 0.7


# What is scored


def test_the_scorer_sees_question_answer_and_model(proxy: LiveProxy) -> None:
    """The scorer gets the question, the answer and the name by which the model answered."""
    proxy.ask("Which city? p=0.7", "say Paris")
    messages = [{"role": "user", "content": "Which city? p=0.7"}]
    expected = Item("Which city? p=0.7", "Paris", "say Paris-2099", messages=messages)
    assert seen_by(proxy) == expected


def test_the_question_is_read_while_upstream_works(
    proxy: LiveProxy, upstream: FaultyUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is read once, while upstream works."""
    read: list[Question] = []

    def reading(format: ChatFormat, payload: Json) -> Question:
        read.append(found := original(format, payload))
        return found

    original = ChatFormat.question
    monkeypatch.setattr(ChatFormat, "question", reading)
    asking = threading.Thread(target=proxy.ask, args=("Which city? p=0.7", "slow"))
    asking.start()
    request = upstream.wait_for_request()
    until(lambda: len(read) == 1)
    request.proceed()
    asking.join(5)
    assert [question.text for question in read] == [seen_by(proxy).question]


@pytest.mark.parametrize("is_stream", [False, True])
def test_tool_calls_are_part_of_the_answer(proxy: LiveProxy, is_stream: bool) -> None:
    """Every tool call is scored with its arguments as part of the answer."""
    response = proxy.ask("p=0.3", "parallel-tools", tools=[WEATHER], stream=is_stream)
    calls = [f'get_weather(city="p=0.3", number={number})' for number in range(2)]
    assert seen_by(proxy).answer == f"[{', '.join(calls)}]"
    assert "Available functions" in seen_by(proxy).question
    member = members_in(response.content)[0] if is_stream else response.json()["pinocchio"]
    assert member["confidence"] == 0.3


@pytest.mark.parametrize("is_stream", [False, True])
def test_exposed_reasoning_is_part_of_the_answer(proxy: LiveProxy, is_stream: bool) -> None:
    """Reasoning that upstream exposes is scored with the answer that follows it."""
    proxy.ask("p=0.7", "reasoning", stream=is_stream)
    assert seen_by(proxy).answer == "Let me think about it. p=0.33\np=0.7"


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_empty_reply_is_scored(proxy: LiveProxy, is_stream: bool) -> None:
    """An empty reply counts as an answer and gets a number."""
    response = proxy.ask("Say nothing", "empty", stream=is_stream)
    messages = [{"role": "user", "content": "Say nothing"}]
    assert seen_by(proxy) == Item("Say nothing", "", "empty-2099", messages=messages)
    member = members_in(response.content)[0] if is_stream else response.json()["pinocchio"]
    assert (member["status"], member["confidence"]) == ("scored", 0.5)


def test_a_partly_read_answer_says_so(proxy: LiveProxy) -> None:
    """Where the scorer read only a part, the status is `truncated`, with a number and a reason."""
    headers = proxy.ask("truncated p=0.7").headers
    assert (headers[STATUS], headers[REASON]) == ("truncated", "long_text")
    assert headers[CONFIDENCE] == "0.7000"


# Completions without a number, each with its reason


def assert_unscored(proxy: LiveProxy, status: str, reason: str, **fields: Any) -> None:
    """Check that the answer arrives with this status and reason and without a number."""
    whole, streamed = proxy.ask(**fields), proxy.ask(stream=True, **fields)
    assert whole.status_code == streamed.status_code == 200
    assert whole.json()["choices"][0]["message"]["content"]
    assert (whole.headers[STATUS], whole.headers[REASON]) == (status, reason)
    assert CONFIDENCE not in whole.headers
    for member in (whole.json()["pinocchio"], *members_in(streamed.content)):
        assert (member["confidence"], member["status"], member["reason"]) == (None, status, reason)
        assert member["choices"][0]["confidence"] is None
    assert streamed.content.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    "scorer",
    [
        FailingScorer("failing"),
        ShortScorer("short"),
        BrokenScorer("nan"),
        BrokenScorer("too-high", number=1.2),
        BrokenScorer("negative", number=-0.1),
    ],
    ids=lambda scorer: scorer.name,
)
def test_a_scorer_that_fails_costs_the_number_only(start_proxy: StartProxy, scorer: Scorer) -> None:
    """A scorer that raises or returns too few scores or no probability gives an `error`."""
    assert_unscored(start_proxy(scorer=scorer), "error", "scorer_failed")


def test_a_score_that_takes_too_long(start_proxy: StartProxy) -> None:
    """A score that takes longer than `timeout_s` is a `timeout`."""
    scorer = SlowScorer("slow@timeout")
    proxy = start_proxy(scorer=scorer, calibrator={"timeout_s": 0.05})
    assert_unscored(proxy, "timeout", "deadline")
    scorer.proceed.set()


def test_more_choices_than_the_queue_takes(start_proxy: StartProxy) -> None:
    """More choices than the queue takes are `skipped` at once."""
    proxy = start_proxy(calibrator={"max_queue": 1})
    headers = proxy.ask("p=0.7", n=2).headers
    assert (headers[STATUS], headers[REASON]) == ("skipped", "queue_full")
    assert proxy.ask("p=0.7").headers[CONFIDENCE] == "0.7000"


def test_while_the_calibrator_loads(start_proxy: StartProxy) -> None:
    """Completions have the status `loading` until the calibrator is loaded, then a score."""
    is_loaded = threading.Event()

    def load() -> Scorer:
        is_loaded.wait(10)
        return WordScorer()

    proxy = start_proxy(load=load)
    assert_unscored(proxy, "loading", "calibrator_loading")
    assert proxy.http.get("/readyz").status_code == 503
    is_loaded.set()
    proxy.wait_until_ready()
    assert proxy.ask("p=0.7").headers[CONFIDENCE] == "0.7000"


def test_a_calibrator_that_does_not_load(start_proxy: StartProxy) -> None:
    """A calibrator that fails to load makes every status an `error`, and nothing more."""

    def load() -> Scorer:
        raise OSError("no such file")

    proxy = start_proxy(load=load)
    until(lambda: proxy.ask().headers[STATUS] != "loading")
    assert_unscored(proxy, "error", "calibrator_failed")


def test_without_a_calibrator(start_proxy: StartProxy) -> None:
    """With `checkpoint: none` every completion is `skipped`."""
    assert_unscored(start_proxy(calibrator={"checkpoint": "none"}), "skipped", "no_calibrator")


def test_a_calibrator_by_its_name(start_proxy: StartProxy) -> None:
    """The checkpoint that is configured is loaded and named."""
    headers = start_proxy(calibrator={"checkpoint": "fake:0.73"}).ask().headers
    assert headers[CONFIDENCE] == "0.7300"
    assert headers["x-pinocchio-calibrator"] == "fake:0.73"


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (IMAGE, "image"),
        ({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, "audio"),
        ({"type": "file", "file": {"file_id": "f"}}, "file"),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_question_that_is_not_text(
    proxy: LiveProxy, part: dict[str, Any], reason: str, is_stream: bool
) -> None:
    """A question with an image, audio or a file is `not_supported`, with that as the reason."""
    content = [{"type": "text", "text": "What is this?"}, part]
    response = proxy.ask("", messages=[{"role": "user", "content": content}], stream=is_stream)
    member = members_in(response.content)[0] if is_stream else response.json()["pinocchio"]
    assert (member["status"], member["reason"]) == ("not_supported", reason)
    assert member["confidence"] is None


@pytest.mark.parametrize("messages", ["a string", [], [5], None, [{"content": 5}]])
def test_messages_that_only_upstream_understands(proxy: LiveProxy, messages: Any) -> None:
    """A question that the proxy cannot read is delivered if upstream accepts it."""
    response = proxy.ask("", "say fine", messages=messages)
    assert response.json()["choices"][0]["message"]["content"] == "fine"
    assert response.headers[STATUS] == "not_supported"
    assert response.headers[REASON] == "messages"


@pytest.mark.parametrize("depth", [300, 450, 700, 900])
def test_a_deeply_nested_question_never_costs_the_answer(proxy: LiveProxy, depth: int) -> None:
    """A tool's definition that is too deep to be written again does not stop the answer."""
    nested = b"[" * depth + b"]" * depth
    tool = b'{"type":"function","function":{"name":"f","parameters":%b}}' % nested
    messages = b'[{"role":"user","content":"hi"}]'
    body = b'{"model":"say fine","messages":%b,"tools":[%b]}' % (messages, tool)
    assert proxy.post_raw(body).status == 200


MESSAGE: dict[str, Any] = {"role": "assistant", "content": "p=0.7"}
ODD_CHOICES: dict[str, list[Any]] = {
    "no choices": [],
    "no object": [5],
    "no message": [{"index": 0}],
    "content is a number": [{"message": {"content": 5}}],
    "content is parts": [{"message": {"content": [{"type": "text", "text": "p=0.7"}, 5]}}],
    "calls are odd": [{"message": {**MESSAGE, "tool_calls": [5, {"function": {"name": 5}}]}}],
    "a call far away": [{"message": {**MESSAGE, "tool_calls": [{"index": 10**9, "id": "a"}]}}],
    "no finish": [{"message": MESSAGE, "finish_reason": 5}],
    "odd indices": [{"index": -1, "message": MESSAGE}, {"index": "x", "message": MESSAGE}],
    "half a character": [{"message": {"content": "p=0.7 \ud83c"}}],
}


@pytest.mark.parametrize("name", ODD_CHOICES)
def test_odd_completions_are_delivered(
    proxy: LiveProxy, upstream: FaultyUpstream, name: str
) -> None:
    """Whatever completion upstream sends arrives byte for byte, plus the member."""
    choices = ODD_CHOICES[name]
    whole = {"id": "x", "choices": choices}
    finish = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    deltas = [{**c, "delta": c.get("message")} if isinstance(c, dict) else c for c in choices]
    for reply in (whole, [{"id": "x", "choices": deltas}, finish]):
        asked = question("hi", "told", reply=reply, stream=isinstance(reply, list))
        got, direct = (
            proxy.post_raw(asked),
            post_raw(f"{upstream.base_url}/chat/completions", asked),
        )
        if b"ended before its finish" in got.body:  # a choice that never finished
            assert isinstance(reply, list)
            continue
        assert got.status == 200
        assert without_member(got.body) == direct.body


def test_half_a_surrogate_pair_never_costs_the_answer(proxy: LiveProxy) -> None:
    """Half surrogate pairs, which JSON can express and UTF-8 cannot, are delivered unchanged."""
    body = b'{"model":"ok","messages":[{"role":"user","content":"p=0.7 \\ud83c"}]}'
    reply = proxy.post_raw(body)
    assert (reply.status, reply.headers[CONFIDENCE]) == (200, "0.7000")


def test_other_answers_arrive_while_one_is_scored(start_proxy: StartProxy) -> None:
    """While the scorer works, other requests reach upstream and streams reach their clients."""
    scorer = SlowScorer("slow@busy")
    limits = {"stream_wait_ms": 300}
    proxy = start_proxy(scorer=scorer, calibrator={"timeout_s": 5}, limits=limits)
    waiting = threading.Thread(target=proxy.ask, args=("p=0.7",))
    waiting.start()
    stream = proxy.ask("p=0.6", stream=True)
    assert members_in(stream.content)[0]["status"] == "pending"
    scorer.proceed.set()
    waiting.join(5)
    assert not waiting.is_alive()
