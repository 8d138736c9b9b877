"""`/v1/images/generations`: generated images are scored by their prompt, where configured (R01)."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from calibrator import Item
from policies import InvalidDocumentError
from proxy.config.sections import load_config
from tests.builders.pictures import JPEG, PNG
from tests.conftest import StartProxy
from tests.running.live_proxy import LiveProxy, RawReply, SightedScorer, post_raw, without_member

Json = dict[str, Any]
ASKED = "Does this image accurately depict: *two cats*?"
BAD = b"BM" * 9  # an image that the calibrator reports as damaged


class LookingScorer(SightedScorer):
    """Gives a PNG 0.9 and anything else 0.2, whatever the answer."""

    def score_batch(self, items: Any) -> Any:
        seen = [Item(i.question, f"p={0.9 if i.images[:1] == (PNG,) else 0.2}") for i in items]
        found = super().score_batch(seen)
        self.seen[-len(items) :] = items
        if any(BAD in item.images for item in items):
            return super().score_batch([Item("", "", images=(BAD,))])
        return found


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    """Start a proxy that scores drawn images; its upstream answers with the request's own body."""
    images = {"score_generated": True, "max_bytes": 10_000}
    return start_proxy(scorer=LookingScorer(), calibrator={"images": images})


@pytest.fixture
def seen(proxy: LiveProxy) -> list[Item]:
    assert isinstance(proxy.scorer, LookingScorer)
    proxy.scorer.seen.clear()
    return proxy.scorer.seen


def drawn(*images: bytes) -> list[Json]:
    return [{"b64_json": base64.b64encode(image).decode()} for image in images]


def draw(proxy: LiveProxy, data: Any, **fields: Any) -> RawReply:
    body = {"model": "flux-2", "prompt": "two cats", "created": 1, "data": data, **fields}
    return post_raw(f"{proxy.base_url}/images/generations", body)


def test_each_image_is_scored_by_the_prompt(proxy: LiveProxy, seen: list[Item]) -> None:
    """R01: each image is scored by whether it depicts the prompt; the lowest one is the reply's."""
    got = draw(proxy, drawn(PNG, JPEG))
    assert seen[0] == Item(ASKED, "Yes", "flux-2", images=(PNG,))
    assert {item.images for item in seen} == {(PNG,), (JPEG,)}
    assert got.headers["x-pinocchio-confidence"] == "0.2000"
    assert got.headers["x-pinocchio-confidence-status"] == "scored"
    member = json.loads(got.body)["pinocchio"]
    assert [choice["confidence"] for choice in member["choices"]] == [0.9, 0.2]
    assert (member["confidence"], member["calibrator"]) == (0.2, "sighted@1")
    assert json.loads(without_member(got.body))["data"] == drawn(PNG, JPEG)


def test_it_stands_in_the_record(proxy: LiveProxy) -> None:
    """A reply with generated images is recorded with its number, like a completion."""
    id = json.loads(draw(proxy, drawn(PNG)).body)["pinocchio"]["request_id"]
    assert proxy.recorded(id, "CAST(confidence AS TEXT)") == [0.9]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (drawn(b"no image"), "image_format"),
        (drawn(PNG + b"x" * 10_000), "image_size"),
        (drawn(BAD), "image_format"),
        ([{"url": "https://example.org/a.png"}], "image_url"),
        ([{"revised_prompt": "x"}], "image_missing"),
    ],
)
def test_what_is_wrong_with_an_image_has_a_word(proxy: LiveProxy, data: Any, reason: str) -> None:
    """The reply arrives whole, with a reason in place of
    a number; one bad image leaves the others' numbers.
    """
    got = draw(proxy, data)
    assert json.loads(got.body)["data"] == data
    assert got.headers["x-pinocchio-confidence-status"] == "not_supported"
    assert got.headers["x-pinocchio-confidence-reason"] == reason
    member = json.loads(draw(proxy, [*data, *drawn(PNG)]).body)["pinocchio"]
    assert [choice["confidence"] for choice in member["choices"]] == [None, 0.9]


@pytest.mark.parametrize("fields", [{"data": []}, {"data": "x"}, {"prompt": 5}, {"data": [5]}])
def test_what_is_no_such_reply_is_relayed(proxy: LiveProxy, fields: Json) -> None:
    """A reply without a prompt or images is relayed byte for byte."""
    body = {"model": "flux-2", "prompt": "two cats", "data": drawn(PNG), **fields}
    got = post_raw(f"{proxy.base_url}/images/generations", body)
    assert got.body == json.dumps(body).encode()
    assert got.headers["x-pinocchio-confidence-reason"] == "surface"


def test_a_body_that_is_no_json_is_relayed(proxy: LiveProxy) -> None:
    """A body that is no JSON is relayed, and so is its reply."""
    sent = gzip.compress(b"{}")
    got = post_raw(f"{proxy.base_url}/images/generations", sent, content_encoding="gzip")
    assert (got.status, got.headers["x-pinocchio-confidence-reason"]) == (200, "surface")


def test_nothing_is_attached_where_nothing_should_be(start_proxy: StartProxy) -> None:
    """With `attach` off the bytes are upstream's, and no header is ours."""
    images = {"images": {"score_generated": True}}
    off = {"headers": False, "body": False}
    proxy = start_proxy(scorer=LookingScorer(), calibrator=images, attach=off)
    got = draw(proxy, drawn(PNG))
    assert b"pinocchio" not in got.body
    assert not [name for name in got.headers if name.startswith("x-pinocchio")]


def test_a_calibrator_for_text_says_so(start_proxy: StartProxy) -> None:
    """A calibrator that reads no images gives no number, with that as the reason."""
    proxy = start_proxy(calibrator={"images": {"score_generated": True}})
    got = draw(proxy, drawn(PNG))
    assert got.headers["x-pinocchio-confidence-status"] == "not_supported"
    assert got.headers["x-pinocchio-confidence-reason"] == "image"


def test_unasked_it_is_a_surface_like_others(start_proxy: StartProxy) -> None:
    """Without `score_generated` the reply is relayed and labelled."""
    got = draw(start_proxy(scorer=LookingScorer()), drawn(PNG))
    assert got.headers["x-pinocchio-confidence-reason"] == "surface"
    assert b"pinocchio" not in got.body


def test_a_question_about_an_image_needs_it(tmp_path: Path) -> None:
    """Ignoring images and scoring them is a contradiction, which is refused at the start."""
    path = tmp_path / "proxy.yaml"
    path.write_text("calibrator:\n  images: {ignore: true, score_generated: true}\n")
    with pytest.raises(InvalidDocumentError, match="remove ignore"):
        load_config(path)
