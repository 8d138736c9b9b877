"""Questions with images through the proxy, on every surface, to a calibrator that reads them."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from calibrator import Item, Pinocchio, Score
from tests.builders.pictures import GREEN, JPEG, PNG, data_url, picture, webp_that_says
from tests.builders.tiny_models import Family, write_tiny_adapter
from tests.running.live_proxy import LiveProxy, SightedScorer, WordScorer, events_in, post_raw
from tests.servers.clients_upstream import ClientsUpstream
from tests.servers.engine_servers import live_scoring_server
from tests.servers.image_server import ImageServer

Json = dict[str, Any]
Start = Callable[..., LiveProxy]
ENCODED = base64.b64encode(PNG).decode()
SCORED = ("scored", None)


@dataclass
class SlowlySighted(SightedScorer):
    """Scores nothing with an image before `proceed` is set."""

    proceed: threading.Event = field(default_factory=threading.Event)

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        if any(item.images for item in items):
            self.proceed.wait(10)
        return super().score_batch(items)


@pytest.fixture(scope="module")
def upstream() -> Iterator[ClientsUpstream]:
    with ClientsUpstream() as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[ImageServer]:
    with ImageServer() as running:
        yield running


@pytest.fixture(scope="module")
def start(upstream: ClientsUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Yield a function that starts a proxy in front of an upstream that speaks all formats."""
    started: list[LiveProxy] = []

    def start(**options: Any) -> LiveProxy:
        folder = tmp_path_factory.mktemp("proxy")
        spoken = {"speaks": "both"}
        started.append(LiveProxy(upstream.base_url, folder, upstream=spoken, **options))
        return started[-1]

    yield start
    for proxy in started:
        proxy.ask_to_stop()
    for proxy in started:
        proxy.stop()


@pytest.fixture(scope="module")
def sighted(start: Start, server: ImageServer) -> LiveProxy:
    """Start a proxy whose calibrator reads images, and which fetches them from one server."""
    fetch = {"hosts": (f"127.0.0.1:{server.port}",), "allow_private": True}
    images = {"fetch": fetch, "max_count": 3, "max_bytes": 10_000}
    return start(scorer=SightedScorer(), calibrator={"images": images})


@pytest.fixture
def seen(sighted: LiveProxy) -> list[Item]:
    """Return the items that the calibrator receives during this test."""
    assert isinstance(sighted.scorer, SightedScorer)
    sighted.scorer.seen.clear()
    return sighted.scorer.seen


# Each surface: a request with the parts of its content


def chat(*parts: Json) -> tuple[str, Json]:
    content = [{"type": "text", "text": "What is this?"}, *parts]
    return "chat/completions", {"messages": [{"role": "user", "content": content}]}


def responses(*parts: Json) -> tuple[str, Json]:
    content = [{"type": "input_text", "text": "What is this?"}, *parts]
    return "responses", {"input": [{"role": "user", "content": content}]}


def messages(*parts: Json) -> tuple[str, Json]:
    content = [*parts, {"type": "text", "text": "What is this?"}]
    return "messages", {"max_tokens": 9, "messages": [{"role": "user", "content": content}]}


def of_chat(image: str = data_url(PNG), **more: str) -> Json:
    return {"type": "image_url", "image_url": {"url": image, **more}}


def of_responses(image: str = data_url(PNG), **more: str) -> Json:
    return {"type": "input_image", "image_url": image, **more}


def of_messages(data: str = ENCODED, media_type: str = "image/png") -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def told(proxy: LiveProxy, asked: tuple[str, Json], is_stream: bool = False) -> Json:
    """Return the reply's member; check that the reply contains the upstream's answer."""
    path, body = asked
    body = {"model": "text", **body, **({"stream": True} if is_stream else {})}
    got = post_raw(f"{proxy.base_url}/{path}", body)
    assert got.status == 200
    assert b"Paris" in got.body
    if not is_stream:
        member: Json = json.loads(got.body)["pinocchio"]
        return member
    [member] = [each["pinocchio"] for each in _objects(got.body) if "pinocchio" in each]
    return member


def _objects(stream: bytes) -> list[Json]:
    found = events_in(stream)
    return found + [each["response"] for each in found if isinstance(each.get("response"), dict)]


def status(member: Json) -> tuple[str, str | None]:
    assert (member["confidence"] is None) == (member["status"] not in ("scored", "truncated"))
    return member["status"], member.get("reason")


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    "asked",
    [
        chat(of_chat(), of_chat(data_url(JPEG, "image/jpeg"), detail="high")),
        responses(of_responses(), of_responses(data_url(JPEG), detail="low")),
        messages(of_messages(), of_messages(base64.b64encode(JPEG).decode(), "image/jpeg")),
    ],
    ids=["chat", "responses", "messages"],
)
def test_images_reach_the_calibrator(
    sighted: LiveProxy, seen: list[Item], asked: tuple[str, Json], is_stream: bool
) -> None:
    """B01, F06: the question's text and images are scored in their order."""
    assert status(told(sighted, asked, is_stream)) == SCORED
    [item] = seen
    assert (item.question, item.images) == ("What is this?", (PNG, JPEG))
    assert "Paris" in item.answer


@pytest.mark.parametrize(
    ("asked", "images"),
    [
        (
            (
                "messages",
                {
                    "max_tokens": 9,
                    "messages": [
                        {"role": "user", "content": "Look at the page."},
                        {"role": "assistant", "content": [{"type": "tool_use", "id": "t",
                                                           "name": "look", "input": {}}]},
                        {"role": "user", "content": [
                            {"type": "tool_result", "tool_use_id": "t", "content": [of_messages()]}
                        ]},
                    ],
                },
            ),
            (PNG,),
        ),
        (
            (
                "responses",
                {
                    "input": [
                        {"role": "user", "content": "Look at the page."},
                        {"type": "computer_call", "call_id": "c", "action": {"type": "screenshot"}},
                        {"type": "computer_call_output", "call_id": "c",
                         "output": {"type": "computer_screenshot", "image_url": data_url(PNG)}},
                    ]
                },
            ),
            (PNG,),
        ),
        (
            (
                "chat/completions",
                {
                    "messages": [
                        {"role": "user", "content": [of_chat()]},
                        {"role": "assistant", "content": "A square."},
                        {"role": "user", "content": [of_chat(data_url(JPEG))]},
                    ]
                },
            ),
            (PNG, JPEG),
        ),
    ],
    ids=["result of a tool", "screenshot", "earlier turn"],
)  # fmt: skip
def test_images_of_other_turns_belong_to_the_question(
    sighted: LiveProxy, seen: list[Item], asked: tuple[str, Json], images: tuple[bytes, ...]
) -> None:
    """Images in tool results and in earlier turns are scored as part of the question."""
    assert status(told(sighted, asked)) == SCORED
    assert seen[0].images == images


def test_the_openai_client_sends_images(sighted: LiveProxy, seen: list[Item]) -> None:
    """OpenAI's own client sends images for chat and for responses with only its URL changed."""
    client: OpenAI = sighted.openai
    content: Any = [{"type": "text", "text": "What is this?"}, of_chat()]
    chatted = client.chat.completions.create(
        model="text", messages=[{"role": "user", "content": content}]
    )
    parts: Any = [{"role": "user", "content": [of_responses()]}]
    responded = client.responses.create(model="text", input=parts)
    for reply in (chatted, responded):
        assert reply.model_extra is not None
        assert reply.model_extra["pinocchio"]["status"] == "scored"
    assert [item.images for item in seen] == [(PNG,), (PNG,)]


def test_every_choice_is_scored_with_the_images(sighted: LiveProxy, seen: list[Item]) -> None:
    """With n > 1 each choice is scored with the same image."""
    path, body = chat(of_chat())
    member = told(sighted, (path, {**body, "n": 2}))
    assert {choice["status"] for choice in member["choices"]} == {"scored"}
    assert {item.images for item in seen} == {(PNG,)}


def test_text_is_scored_as_ever(sighted: LiveProxy, seen: list[Item]) -> None:
    """A question without an image is scored as by any calibrator."""
    assert status(told(sighted, chat())) == SCORED
    assert seen[0].images == ()


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([of_chat("data:image/png;base64,!")], "image_format"),
        ([of_chat(data_url(b"GIF8?" * 9))], "image_format"),
        ([of_chat(data_url(PNG + b"x" * 10_000))], "image_size"),
        ([of_chat()] * 4, "image_size"),
        ([of_chat(), {"type": "image_url"}], "image_missing"),
        ([of_chat("http://127.0.0.1:9/a.png")], "image_url"),
        ([of_chat("http://169.254.169.254/latest")], "image_url"),
        ([of_chat("gopher://127.0.0.1/")], "image_url"),
        ([of_chat(data_url(b"BM" * 9, "image/bmp"))], "image_format"),
    ],
)
def test_what_is_wrong_with_an_image_costs_the_number_alone(
    sighted: LiveProxy, parts: list[Json], reason: str
) -> None:
    """A reply to a faulty image is delivered as `not_supported`, with the fault as its reason."""
    assert status(told(sighted, chat(*parts))) == ("not_supported", reason)


def test_an_image_that_turns_out_to_be_none_spoils_no_other(sighted: LiveProxy) -> None:
    """A faulty image does not cost questions of the same batch their numbers."""
    bad, good = chat(of_chat(data_url(b"BM" * 9, "image/bmp"))), chat(of_chat())
    found: list[tuple[str, str | None]] = []
    asking = [
        threading.Thread(target=lambda each=each: found.append(status(told(sighted, each))))
        for each in (bad, good, bad, good)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert sorted(found, key=str) == [("not_supported", "image_format")] * 2 + [SCORED] * 2


# Images under a URL


def test_an_image_is_fetched(sighted: LiveProxy, seen: list[Item], server: ImageServer) -> None:
    """An image is fetched from a configured host on each surface, without the client's key."""
    server.forget()
    url = f"{server.url}/png"
    source = {"type": "image", "source": {"type": "url", "url": url}}
    for asked in (chat(of_chat(url)), responses(of_responses(url)), messages(source)):
        assert status(told(sighted, asked)) == SCORED
    assert [item.images for item in seen] == [(PNG,)] * 3
    assert all("authorization" not in each.headers for each in server.seen)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("missing", "image_fetch"), ("html", "image_format"), ("endless", "image_size")],
)
def test_an_image_that_cannot_be_had(
    sighted: LiveProxy, server: ImageServer, path: str, reason: str
) -> None:
    """Where an image is not available, the reply has no number but a reason."""
    member = told(sighted, chat(of_chat(f"{server.url}/{path}")))
    assert status(member) == ("not_supported", reason)


def test_fetching_counts_as_scoring(start: Start, server: ImageServer) -> None:
    """Fetching an image counts for its score's deadline; one that is too late is a timeout."""
    images = {"fetch": {"hosts": ("127.0.0.1:*",), "allow_private": True}}
    proxy = start(scorer=SightedScorer(), calibrator={"timeout_s": 0.3, "images": images})
    began = time.perf_counter()
    for path in ("drip", "silent"):
        member = told(proxy, chat(of_chat(f"{server.url}/{path}")))
        assert status(member) == ("timeout", "deadline")
    assert time.perf_counter() - began < 5


def test_a_slow_calibrator_is_a_timeout_too(start: Start) -> None:
    """A question with images has the same deadline for its score as any other."""
    scorer = SlowlySighted()
    proxy = start(scorer=scorer, calibrator={"timeout_s": 0.2})
    assert status(told(proxy, chat(of_chat()))) == ("timeout", "deadline")
    scorer.proceed.set()
    assert status(told(proxy, chat(of_chat()))) == SCORED


def test_a_conversation_remembers_where_an_image_is(
    sighted: LiveProxy, seen: list[Item], server: ImageServer
) -> None:
    """A response that continues an earlier one is scored with its images: those
    under a URL are fetched again, those in the request are no longer available.
    """
    for url, expected in (
        (f"{server.url}/png", SCORED),
        (data_url(PNG), ("not_supported", "image_missing")),
    ):
        path, body = responses(of_responses(url))
        first = post_raw(f"{sighted.base_url}/{path}", {"model": "text", **body})
        id = json.loads(first.body)["id"]
        later = told(sighted, ("responses", {"input": "And now?", "previous_response_id": id}))
        assert status(later) == expected


# A language model as the calibrator


def test_vision_model_gets_the_image(
    start: Start, tiny_bases: Callable[[Family], Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """F04, F06: with a vision model of the real class the number
    through the proxy is that of Python, and depends on the image.
    """
    folder = tmp_path_factory.mktemp("vision") / "tiny"
    write_tiny_adapter(folder, tiny_bases("qwen3_vl"), "qwen3_vl")
    judge = Pinocchio(str(folder), device="cpu")
    proxy = start(scorer=judge._scorer, calibrator={"timeout_s": 60})
    found = []
    for url in (data_url(picture(size=(40, 30))), data_url(picture(size=(40, 30), colour=GREEN))):
        path, body = chat(of_chat(url))
        reply = json.loads(post_raw(f"{proxy.base_url}/{path}", {"model": "text", **body}).body)
        assert status(reply["pinocchio"]) == SCORED
        found.append(reply["pinocchio"]["confidence"])
        score = judge.score(reply, messages=body["messages"])
        assert found[-1] == pytest.approx(score, abs=1e-4)
    assert found[0] != found[1]
    for damaged in (PNG[:40], webp_that_says(9, 9), picture(size=(900, 2))):
        member = told(proxy, chat(of_chat(data_url(damaged))))
        assert member["status"] == "not_supported"
        assert member["reason"] in ("image_format", "image_shape")


def test_images_reach_a_calibrator_elsewhere(start: Start) -> None:
    """A scoring server gets images like a calibrator in the process, and its reasons are kept."""
    scorer = SightedScorer()
    with live_scoring_server(scorer) as engine:
        section = {"engine": {"kind": "scorer", "base_url": engine.url}, "timeout_s": 20.0}
        proxy = start(calibrator=section)
        assert status(told(proxy, chat(of_chat()))) == SCORED
        assert scorer.seen[-1].images == (PNG,)
        bad = told(proxy, chat(of_chat(data_url(b"BM" * 9, "image/bmp"))))
        assert status(bad) == ("not_supported", "image_format")


# A calibrator that reads text only


@pytest.mark.parametrize(
    "asked",
    [chat(of_chat()), responses(of_responses()), messages(of_messages()), chat(of_chat("x:"))],
    ids=["chat", "responses", "messages", "no image"],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_without_eyes_there_is_no_number(
    start: Start, blind: LiveProxy, asked: tuple[str, Json], is_stream: bool
) -> None:
    """A calibrator that reads no images gives `not_supported`, reason `image`, and no number."""
    assert isinstance(blind.scorer, WordScorer)
    blind.scorer.seen.clear()
    assert status(told(blind, asked, is_stream)) == ("not_supported", "image")
    assert blind.scorer.seen == []


@pytest.fixture(scope="module")
def blind(start: Start) -> LiveProxy:
    return start()


def test_images_may_be_ignored(start: Start) -> None:
    """With `images: ignore` the text is scored, and the number is marked as limited."""
    proxy = start(calibrator={"images": {"ignore": True}})
    assert isinstance(proxy.scorer, WordScorer)
    for asked in (chat(of_chat()), responses(of_responses("x:")), messages(of_messages())):
        assert status(told(proxy, asked)) == ("truncated", "image")
        assert proxy.scorer.seen[-1].images == ()
    assert status(told(proxy, chat())) == SCORED
