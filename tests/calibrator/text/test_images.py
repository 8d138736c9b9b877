"""Images of a question: where they are, and which are valid."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrator import ImageLimits, NotScorableError, checked_image, locate_images
from calibrator.scorer import IMAGE_CHARACTERS
from calibrator.text.images import local_images
from calibrator.text.transcript import read_question
from tests.builders.pictures import JPEG, PNG, data_url, picture

Json = dict[str, Any]
ENCODED = base64.b64encode(PNG).decode()
URL = "https://example.org/a.png?token=secret"


def of_chat(url: Any) -> Json:
    return {"type": "image_url", "image_url": url}


def of_messages(**source: Any) -> Json:
    return {"type": "image", "source": source}


@pytest.mark.parametrize(
    ("part", "found"),
    [
        (of_chat({"url": data_url(PNG), "detail": "low"}), PNG),
        (of_chat(data_url(PNG)), PNG),
        (of_chat({"url": URL}), URL),
        ({"type": "input_image", "image_url": data_url(PNG), "detail": "auto"}, PNG),
        ({"type": "input_image", "image_url": "HTTP://example.org/a"}, "HTTP://example.org/a"),
        (of_messages(type="base64", media_type="image/png", data=ENCODED), PNG),
        (of_messages(type="url", url=URL), URL),
        (of_messages(type="url", url=data_url(JPEG, "image/jpeg")), JPEG),
        (of_chat({"url": f"DATA:IMAGE/PNG;charset=x;BASE64,{ENCODED}"}), PNG),
        (of_chat({"url": data_url(JPEG)}), JPEG),
        (
            of_chat({"url": "data:image/png;base64," + base64.encodebytes(PNG * 2).decode()}),
            PNG * 2,
        ),
    ],
)
def test_an_image_is_found_in_every_form(part: Json, found: bytes | str) -> None:
    """An image is found in chat, responses and messages, and its kind by its bytes (B01)."""
    assert locate_images([part]) == [found]


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "image_url"}, "image_missing"),
        (of_chat({}), "image_missing"),
        (of_chat({"url": 5}), "image_missing"),
        (of_chat({"url": ""}), "image_missing"),
        (of_messages(), "image_missing"),
        (of_messages(type="file", file_id="file_1"), "image_missing"),
        ({"type": "input_image", "file_id": "file-1"}, "image_missing"),
        ({"type": "image", "source": "x"}, "image_missing"),
        (of_messages(type="base64", media_type="image/png"), "image_missing"),
        (of_chat({"url": "file:///etc/passwd"}), "image_url"),
        (of_chat({"url": "ftp://example.org/a.png"}), "image_url"),
        (of_chat({"url": "data:"}), "image_format"),
        (of_chat({"url": "data:image/png,%89PNG"}), "image_format"),
        (of_chat({"url": f"data:image/svg+xml;base64,{ENCODED}"}), "image_format"),
        (of_chat({"url": f"data:text/html;base64,{ENCODED}"}), "image_format"),
        (of_chat({"url": f"data:;base64,{ENCODED}"}), "image_format"),
        (of_chat({"url": "data:image/png;base64,"}), "image_format"),
        (of_chat({"url": "data:image/png;base64,!!!!"}), "image_format"),
        (of_chat({"url": "data:image/png;base64,é"}), "image_format"),
        (of_chat({"url": data_url(PNG)[:-3]}), "image_format"),
        (of_chat({"url": data_url(PNG) + "AAAA"}), "image_format"),
        (of_chat({"url": data_url(b"<svg xmlns='http://www.w3.org/2000/svg'/>")}), "image_format"),
        (of_chat({"url": data_url(b"%PDF-1.7")}), "image_format"),
        (of_messages(type="base64", media_type=5, data=ENCODED), "image_format"),
    ],
)
def test_what_is_no_image_has_a_word(part: Json, reason: str) -> None:
    """A part without a valid image gives a reason."""
    with pytest.raises(NotScorableError) as raised:
        locate_images([part])
    assert raised.value.reason == reason
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_an_image_is_known_by_its_first_bytes(kind: str) -> None:
    """Each supported kind is recognised by its first bytes, and half of them are refused."""
    image = picture(kind)
    assert checked_image(image) == image
    with pytest.raises(NotScorableError) as raised:
        checked_image(image[:1])
    assert raised.value.reason == "image_format"


def test_an_image_may_have_so_many_bytes() -> None:
    """An image with one byte more than the limit is refused."""
    limits = ImageLimits(max_bytes=len(PNG))
    assert local_images([of_chat(data_url(PNG))], limits) == (PNG,)
    for image in (PNG + b"\0", PNG * 1_000):
        with pytest.raises(NotScorableError) as raised:
            local_images([of_chat(data_url(image))], limits)
        assert raised.value.reason == "image_size"


@settings(max_examples=30)
@given(st.binary(max_size=9), st.sampled_from([0, 196_600, 196_608, 400_000]))
def test_base64_is_read_whole_or_not_at_all(end: bytes, size: int) -> None:
    """Base64 is read in one line or many, and refused if it is damaged."""
    image = PNG + b"x" * size + end
    assert local_images([of_chat(data_url(image))]) == (image,)
    encoded = base64.b64encode(image).decode()
    wrapped = base64.encodebytes(image).decode().replace("\n", "\r\n")
    assert local_images([of_chat(f"data:image/png;base64,{wrapped}")]) == (image,)
    padded, spaced = encoded[:8] + "=" + encoded[9:], encoded[:40] + " " + encoded[40:]
    for broken in (encoded[:-1], padded, spaced):
        with pytest.raises(NotScorableError):
            local_images([of_chat(f"data:image/png;base64,{broken}")])


def test_a_question_may_have_so_many_images() -> None:
    """More images than the limit are refused."""
    part, limits = of_chat(data_url(PNG)), ImageLimits(max_count=2)
    assert local_images([part] * 2, limits) == (PNG, PNG)
    with pytest.raises(NotScorableError, match="has 3 images, at most 2") as raised:
        local_images([part] * 3, limits)
    assert raised.value.reason == "image_size"


def test_nothing_is_fetched_here() -> None:
    """A URL is refused without being fetched, and is not in the error."""
    with pytest.raises(NotScorableError) as raised:
        local_images([of_chat({"url": URL})])
    assert raised.value.reason == "image_url"
    assert "secret" not in str(raised.value)


# --- which images belong to a question ----------------------------------------------------------


def image_message(name: str, role: str = "user", text: str = "") -> Json:
    parts = [{"type": "text", "text": text}] if text else []
    return {"role": role, "content": [*parts, of_chat(name)]}


def names(messages: list[Json]) -> list[str]:
    return [part["image_url"] for part in read_question(messages).images]


def test_images_come_in_the_order_of_the_turns() -> None:
    """Images come in the order of the turns, images from tools last."""
    messages = [
        image_message("a", text="x"),
        image_message("b", "assistant", "y"),
        {"role": "user", "content": [of_chat("c"), {"type": "text", "text": "Q"}, of_chat("d")]},
        image_message("e", "tool"),
        image_message("f", "tool"),
    ]
    assert names(messages) == ["a", "b", "c", "d", "e", "f"]
    assert read_question(messages).text == "[user] x\n[assistant] y\n\nQ"


def test_an_image_counts_as_some_text() -> None:
    """An image counts as text in the history, so old ones are left out."""
    long_ago = [image_message(str(number), text="x") for number in range(40)]
    found = names([*long_ago, {"role": "user", "content": "Q"}])
    assert found == [str(number) for number in range(40 - len(found), 40)]
    assert 1 < len(found) <= 1_500 // IMAGE_CHARACTERS + 1


def test_instructions_show_nothing() -> None:
    """Images of the system message do not belong to the question."""
    assert names([image_message("a", "system"), {"role": "user", "content": "Q"}]) == []


def test_a_question_of_text_has_no_images() -> None:
    """A question of text has no images."""
    question = read_question([{"role": "user", "content": "Q"}])
    assert (question.text, list(question.images)) == ("Q", [])


json_values = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from([URL, data_url(PNG), "data:"]),
    lambda inner: st.dictionaries(
        st.sampled_from(["source", "image_url", "url", "type", "data", "media_type"]),
        inner,
        max_size=4,
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["source", "image_url", "type"]), json_values))
def test_any_part_is_an_image_or_a_word(part: Json) -> None:
    """Any part gives an image, a URL or a NotScorableError."""
    with contextlib.suppress(NotScorableError):
        [found] = locate_images([part])
        assert found == PNG or isinstance(found, str)
