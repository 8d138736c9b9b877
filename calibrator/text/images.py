"""Find the images of a question, and decode those that were sent along.

An image stands in a content part as a data URL, as base64 (Anthropic's `source`), or as the URL of
an image elsewhere. Nothing is fetched here, and no pixels are decoded: an image is its encoded file
(PNG, JPEG, WebP, GIF or BMP, recognized by its first bytes), which `calibrator.llm.serving.pixels`
reads.

A faulty image prevents the score and nothing else. The fault has a word (`reason`):

    image            the calibrator reads no images
    image_missing    a part without an image: a file kept upstream, or one not remembered here
    image_url        the image is elsewhere, and may not be fetched from there
    image_fetch      the image could not be downloaded
    image_format     no base64, no image of a known kind, damaged, or not of the declared type
    image_size       too many bytes or pixels, or too many images
    image_shape      far longer than wide, or far wider than long
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calibrator.errors import NotScorableError

IMAGE_REASONS: Final = (
    "image",
    *("image_missing", "image_url", "image_fetch", "image_format", "image_size", "image_shape"),
)
MEDIA_TYPES: Final = frozenset(
    f"image/{name}" for name in ("png", "jpeg", "jpg", "webp", "gif", "bmp", "x-ms-bmp")
)
_BEGINNINGS: Final = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM")
_STEP: Final = 2**18  # characters of base64, a multiple of 4
_DATA: Final = "data:"
_WEB: Final = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """The largest size and number of images that one question may have."""

    max_bytes: int = 10 * 2**20  # of one encoded file
    max_count: int = 8


LIMITS: Final = ImageLimits()


def local_images(
    parts: Sequence[Mapping[str, Any]], limits: ImageLimits = LIMITS
) -> tuple[bytes, ...]:
    """Return the encoded image files of content parts, in order.

    Raises NotScorableError for a faulty image, for more than `limits.max_count` of them, and with
    the reason `image_url` for one that would have to be fetched.
    """
    images = []
    for image in locate_images(parts, limits):
        if isinstance(image, str):
            text = "an image is elsewhere, under a URL; only those that came along are looked at"
            raise NotScorableError("image_url", text)
        images.append(image)
    return tuple(images)


def locate_images(
    parts: Sequence[Mapping[str, Any]], limits: ImageLimits = LIMITS
) -> list[bytes | str]:
    """Return for each content part its encoded image file, or the http(s) URL of an image.

    Nothing is fetched. Raises NotScorableError, whose `reason` names the fault such as
    `image_format`, for a faulty image, and where there are more than `limits.max_count`.
    """
    if len(parts) > limits.max_count:
        text = f"the question has {len(parts)} images, at most {limits.max_count} are looked at"
        raise NotScorableError("image_size", text)
    return [_image_in(part, limits.max_bytes) for part in parts]


def checked_image(image: bytes, max_bytes: int = LIMITS.max_bytes) -> bytes:
    """Return an encoded image file unchanged if its size and first bytes are those of an image.

    Raises NotScorableError with the reason `image_size` for more than `max_bytes`, and with
    `image_format` if it is none of PNG, JPEG, WebP, GIF and BMP by its first bytes.
    """
    if len(image) > max_bytes:
        raise _too_large(max_bytes)
    if not (image.startswith(_BEGINNINGS) or (image[:4], image[8:12]) == (b"RIFF", b"WEBP")):
        kinds = "PNG, JPEG, WebP, GIF or BMP"
        raise NotScorableError("image_format", f"an image is none of {kinds} by its first bytes")
    return image


def _image_in(part: Mapping[str, Any], max_bytes: int) -> bytes | str:
    """Return the encoded image file of one content part, or its http(s) URL.

    The part has Anthropic's `source` or an `image_url`. Raises NotScorableError for a fault, and
    with the reason `image_missing` if it has neither data nor a URL.
    """
    source = part.get("source")  # Anthropic's form
    if isinstance(source, Mapping) and source.get("type") == "base64":
        return _decode_image(source.get("media_type"), source.get("data"), max_bytes)
    place = source if isinstance(source, Mapping) else part.get("image_url")
    url = place.get("url") if isinstance(place, Mapping) else place
    if not isinstance(url, str) or not url:
        raise NotScorableError("image_missing", "an image's part has neither its bytes nor a URL")
    scheme = url[: len(_WEB[1])].lower()
    if scheme.startswith(_DATA):
        return _decode_data_url(url, max_bytes)
    if scheme.startswith(_WEB):
        return url
    raise NotScorableError("image_url", "an image's URL begins with data:, http:// or https://")


def _decode_data_url(url: str, max_bytes: int) -> bytes:
    """Return the image file in a URL such as `data:image/png;base64,...`.

    Raises NotScorableError for one without base64 (percent-encoding is refused) and for a faulty
    image.
    """
    comma = url.find(",")
    media_type, *parameters = [each.strip() for each in url[len(_DATA) : comma].lower().split(";")]
    if comma < 0 or "base64" not in parameters:
        raise NotScorableError("image_format", "an image's data URL has no base64")
    return _decode_image(media_type, url[comma + 1 :], max_bytes)


def _decode_image(media_type: Any, data: Any, max_bytes: int) -> bytes:
    """Decode the base64 of an image file with a declared media type such as `image/png`.

    Raises NotScorableError for a media type that is none of `MEDIA_TYPES`, for data that is no
    text, too long or no base64, and for a file that is no image.
    """
    if not isinstance(media_type, str) or media_type.lower() not in MEDIA_TYPES:
        known = ", ".join(sorted(MEDIA_TYPES))
        raise NotScorableError("image_format", f"an image's media type is none of {known}")
    if not isinstance(data, str):
        raise NotScorableError("image_missing", "an image has no data")
    if len(data) * 3 / 4 > max_bytes * 1.04 + 3:  # 4 percent more allows for line ends
        raise _too_large(max_bytes)
    try:
        image = _bytes_of(data)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise NotScorableError("image_format", "an image's data is no base64") from error
    return checked_image(image, max_bytes)


def _bytes_of(data: str) -> bytes:
    """Decode base64, with or without line ends, in steps between which other threads may run.

    Raises UnicodeEncodeError or binascii.Error if it is no base64.
    """
    encoded = data.encode("ascii")
    if b"\n" in encoded or b"\r" in encoded:
        encoded = encoded.translate(None, b"\r\n")
    if b"=" in encoded[:-4]:  # padding is allowed at the very end only
        raise binascii.Error("padding in the middle")
    steps = (encoded[at : at + _STEP] for at in range(0, len(encoded), _STEP))
    return b"".join(binascii.a2b_base64(step, strict_mode=True) for step in steps)


def _too_large(max_bytes: int) -> NotScorableError:
    """Return the error for an image of more than `max_bytes`, with the reason `image_size`."""
    return NotScorableError("image_size", f"an image has more than {max_bytes} bytes")
